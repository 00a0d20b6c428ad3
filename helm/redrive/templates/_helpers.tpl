{{/* The name of the release, or what replaces it: the beginning of every object's name. */}}
{{- define "redrive.name" -}}
{{- .Values.fullnameOverride | default .Release.Name -}}
{{- end }}

{{/* What selectors use. (list root component [pool]) */}}
{{- define "redrive.selector" -}}
app.kubernetes.io/name: redrive
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- if gt (len .) 2 }}
redrive/pool: {{ index . 2 | quote }}
{{- end }}
{{- end }}

{{/* The labels of every object. The same arguments. */}}
{{- define "redrive.labels" -}}
{{- $root := index . 0 -}}
{{ include "redrive.selector" . }}
app.kubernetes.io/part-of: redrive
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The beginning of every object's metadata. (list root name-suffix component [pool]) */}}
{{- define "redrive.metadata" -}}
{{- include "redrive.metadata.annotated" (concat (list (index . 0) dict) (slice . 1)) -}}
{{- end }}

{{/* The same of an object with annotations of its own. (list root annotations name-suffix component [pool]) */}}
{{- define "redrive.metadata.annotated" -}}
{{- $root := index . 0 -}}
{{- $name := include "redrive.name" $root -}}
name: {{ with index . 2 }}{{ printf "%s-%s" $name . }}{{ else }}{{ quote $name }}{{ end }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "redrive.labels" (concat (list $root) (slice . 3)) | nindent 2 }}
{{- include "redrive.annotations" (list $root (index . 1)) }}
{{- end }}

{{/* An object's annotations: its own, and those of all objects. An own one wins. (list root annotations) */}}
{{- define "redrive.annotations" -}}
{{- with merge (dict) (index . 1) (index . 0).Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The same for what others select by labels: monitors, rules, dashboards. (list root name-suffix labels annotations) */}}
{{- define "redrive.monitoring.metadata" -}}
{{- $root := index . 0 -}}
{{- $metadata := include "redrive.metadata.annotated" (list $root (index . 3) (index . 1) "monitoring") | fromYaml -}}
{{- $_ := set $metadata "labels" (merge $metadata.labels (index . 2) $root.Values.monitoring.labels) -}}
{{- toYaml $metadata -}}
{{- end }}

{{- define "redrive.image" -}}
{{- with .Values.image -}}
{{- include "redrive.image.named" (list $ (empty .digest | not | ternary (printf "%s@%s" .repository .digest) (printf "%s:%s" .repository (.tag | default $.Chart.AppVersion)))) -}}
{{- end -}}
{{- end }}

{{/* An image in the registry of all charts of a parent, if it names one. (list root image) */}}
{{- define "redrive.image.named" -}}
{{- $image := index . 1 -}}
{{- with (index . 0).Values.global.imageRegistry -}}
{{- $image = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $image "") -}}
{{- end -}}
{{- quote $image -}}
{{- end }}

{{- define "redrive.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "redrive.name" .) | quote }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" | quote }}
{{- end -}}
{{- end }}

{{/* hook, job or none. A Postgres that comes with the release is not there before the release is. */}}
{{- define "redrive.migrations.mode" -}}
{{- if and .Values.postgres.trial.enabled (eq .Values.migrations.mode "hook") }}job{{ else }}{{ .Values.migrations.mode }}{{ end -}}
{{- end }}

{{/* What values say of a login: one of database, gateway, or console-<role>. (list root login) */}}
{{- define "redrive.login" -}}
{{- $values := (index . 0).Values -}}{{- $login := index . 1 -}}
{{- if hasPrefix "console-" $login -}}
{{- index $values.console.logins (trimPrefix "console-" $login) | toJson -}}
{{- else if eq $login "gateway" -}}
{{- $values.gateway.login | toJson -}}
{{- else -}}
{{- index $values.database $login | toJson -}}
{{- end -}}
{{- end }}

{{/* All logins that a release uses, as JSON. */}}
{{- define "redrive.logins" -}}
{{- $logins := list "owner" "worker" "operator" "viewer" -}}
{{- range include "redrive.console.roles" . | fromJsonArray }}{{ $logins = append $logins (printf "console-%s" .) }}{{ end -}}
{{- if .Values.gateway.enabled }}{{ $logins = append $logins "gateway" }}{{ end -}}
{{- toJson $logins -}}
{{- end }}

{{/* The roles of the console, as JSON: those that have a login. The throw-away Postgres brings two. Logins of cells are in
     the file of cells. */}}
{{- define "redrive.console.roles" -}}
{{- $roles := list -}}
{{- if and .Values.console.enabled (not .Values.cells.existingSecret) -}}
{{- range $role := list "viewer" "operator" "approver" -}}
{{- $given := index $.Values.console.logins $role -}}
{{- if or $given.existingSecret $given.url (and $.Values.postgres.trial.enabled (ne $role "approver")) }}{{ $roles = append $roles $role }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $roles -}}
{{- end }}

{{/* The Secret with the URL of a login. (list root login) */}}
{{- define "redrive.database.secret" -}}
{{- (include "redrive.login" . | fromJson).existingSecret | default (printf "%s-database-%s" (include "redrive.name" (index . 0)) (index . 1)) -}}
{{- end }}

{{- define "redrive.database.key" -}}
{{- $login := include "redrive.login" . | fromJson -}}
{{- if $login.existingSecret }}{{ $login.key }}{{ else }}url{{ end -}}
{{- end }}

{{/* The exporter listens on the network: it may read figures and nothing else, where a login for that is given. */}}
{{- define "redrive.exporter.login" -}}
{{- with .Values.database.viewer -}}
{{ if or $.Values.postgres.trial.enabled .existingSecret .url }}viewer{{ else }}operator{{ end }}
{{- end -}}
{{- end }}

{{/* The ports of the database, as JSON: those in the URLs that values hold, else databasePort. */}}
{{- define "redrive.database.ports" -}}
{{- $ports := list -}}
{{- range $login := include "redrive.logins" . | fromJsonArray -}}
{{- $given := include "redrive.login" (list $ $login) | fromJson -}}
{{- /* Passwords first: a part of one is not to be taken for a port. */ -}}
{{- $url := regexReplaceAll "://[^@]*@|password *= *('[^']*'|[^ ]*)" $given.url "://" -}}
{{- $found := regexFindAll ":[0-9]+([,/?]|$)|port *= *'?[0-9,]+" $url -1 -}}
{{- range $found }}{{ $ports = concat $ports (regexFindAll "[0-9]+" . -1) }}{{ end -}}
{{- if and (not $found) (or $url $given.existingSecret) -}}
{{- $ports = append $ports (int64 $.Values.networkPolicy.databasePort | toString) -}}
{{- end -}}
{{- end -}}
{{- if .Values.cells.existingSecret }}{{ $ports = append $ports (int64 .Values.networkPolicy.databasePort | toString) }}{{ end -}}
{{- toJson (uniq $ports) -}}
{{- end }}

{{/* The job label that Prometheus gives to all pods of the release, and only to them. */}}
{{- define "redrive.monitoring.job" -}}
{{- .Values.monitoring.job | default .Release.Name -}}
{{- end }}

{{/* What every endpoint of a monitor has: the values of the monitor, and one job. (list root monitor port) */}}
{{- define "redrive.monitoring.endpoint" -}}
{{- $monitor := index . 1 -}}
port: {{ index . 2 }}
path: /metrics
interval: {{ $monitor.interval | quote }}
{{- with $monitor.scrapeTimeout }}
scrapeTimeout: {{ . | quote }}
{{- end }}
relabelings:
  # Rules compare workers with the exporter, and two releases in one namespace are two jobs.
  - {action: replace, targetLabel: job, replacement: {{ include "redrive.monitoring.job" (index . 0) | quote }}}
  {{- with (index . 0).Values.cells }}
  {{- if .name }}
  # Figures of all cells come with the label; workers are of one.
  - {{ if .existingSecret }}{sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component], regex: worker|gateway, {{ else }}{ {{- end }}action: replace, targetLabel: cell, replacement: {{ quote .name }}}
  {{- end }}
  {{- end }}
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The URL that the chart itself puts into a Secret; empty where a Secret exists. (list root login) */}}
{{- define "redrive.database.url" -}}
{{- $root := index . 0 -}}{{- $login := index . 1 -}}
{{- if $root.Values.postgres.trial.enabled -}}
postgresql://redrive_trial_{{ trimPrefix "console-" $login }}:{{ $root.Values.postgres.trial.password }}@{{ include "redrive.name" $root }}-postgres:5432/redrive
{{- else -}}
{{ (include "redrive.login" . | fromJson).url }}
{{- end -}}
{{- end }}

{{/* A list in which no name, or path, may stand twice: of two, Kubernetes would drop one. (list field property list) */}}
{{- define "redrive.distinct" -}}
{{- $seen := dict -}}
{{- $property := index . 1 -}}
{{- $field := index . 0 -}}
{{- range index . 2 -}}
{{- $value := get . $property -}}
{{- if hasKey $seen $value -}}
{{- fail (printf "%s: %s is there twice, or the chart sets it itself; leave one of them out" $field $value) -}}
{{- end -}}
{{- $_ := set $seen $value true -}}
{{- end -}}
{{- toYaml (index . 2) -}}
{{- end }}

{{/* Annotations of a pod; those of values first, so that none of them replaces one of ours. (list root own more) */}}
{{- define "redrive.pod.annotations" -}}
{{- toYaml (merge (index . 1) (index . 2) (index . 0).Values.pods.annotations) -}}
{{- end }}

{{/* Changes when what a pod reads at its start changes, so that it is replaced. (list root login) */}}
{{- define "redrive.checksum" -}}
{{ printf "%s %s" (include "redrive.database.secret" .) (include "redrive.database.url" .) | sha256sum }}
{{- end }}

{{/* Labels of a pod; those of values first, so that none of them replaces one that a selector uses. (list root labels component [pool]) */}}
{{- define "redrive.pod.labels" -}}
{{- $root := index . 0 -}}
{{- $own := include "redrive.labels" (concat (list $root) (slice . 2)) | fromYaml -}}
{{- toYaml (merge $own (index . 1) $root.Values.pods.labels) -}}
{{- end }}

{{/* Pod: who it is and where it may run. */}}
{{- define "redrive.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- with .Values.pods.runAsUser }}
  runAsUser: {{ int64 . }}
  runAsGroup: {{ int64 . }}
  {{- end }}
  {{- with .Values.pods.fsGroup }}
  fsGroup: {{ int64 . }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- include "redrive.imagePullSecrets" . }}
{{- with .Values.pods.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .Values.pods.schedulerName }}
schedulerName: {{ . | quote }}
{{- end }}
{{- with .Values.pods.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.pods.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Annotations of a Job that runs after the release is there. A failed one stays, so that its logs can be read. */}}
{{- define "redrive.hook.after" -}}
helm.sh/hook: post-install,post-upgrade
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* Pod: the secrets of this chart and those of all charts of a parent, some of which list plain names. */}}
{{- define "redrive.imagePullSecrets" -}}
{{- $names := list -}}
{{- range concat .Values.imagePullSecrets (.Values.global.imagePullSecrets | default list) -}}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name")) -}}
{{- end -}}
{{- with uniq $names }}
imagePullSecrets:
  {{- range . }}
  - name: {{ quote . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Pod: where it may run and how soon: its own values, and those of all pods. (list root own) */}}
{{- define "redrive.pod.placement" -}}
{{- $pods := (index . 0).Values.pods -}}{{- $own := index . 1 -}}
{{- with $own.priorityClassName | default $pods.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with merge (dict) ($own.nodeSelector | default dict) $pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat $pods.tolerations ($own.tolerations | default list) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity | default $pods.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Pod: how the pods of a Deployment spread. A constraint without a selector is about these pods: without one, Kubernetes
     would count none. (list field constraints topology-keys root component [pool]) */}}
{{- define "redrive.pod.spread" -}}
{{- $selector := dict "matchLabels" (include "redrive.selector" (slice . 3) | fromYaml) -}}
{{- $constraints := list -}}
{{- $seen := dict -}}
{{- range index . 1 -}}
{{- $key := printf "%s, %s" .topologyKey .whenUnsatisfiable -}}
{{- if hasKey $seen $key }}{{ fail (printf "%s: %s is there twice; leave one of them out" (index $ 0) $key) }}{{ end -}}
{{- $_ := set $seen $key true -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (set (deepCopy .) "labelSelector" $selector)) -}}
{{- else -}}
{{- range index . 2 -}}
{{- $constraint := dict "topologyKey" . "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash") -}}
{{- $constraints = append $constraints (set $constraint "labelSelector" $selector) -}}
{{- end -}}
{{- end -}}
{{- with $constraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Container: what it may do, and that its last words are in its status: kubectl describe pod says why it ended. */}}
{{- define "redrive.container.security" -}}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Environment of a container that runs redrive: of all, its own, of values. (list root own field more) */}}
{{- define "redrive.env" -}}
{{- $root := index . 0 -}}
{{- $env := concat (include "redrive.env.common" $root | fromYamlArray) (index . 1) $root.Values.pods.env (index . 3) -}}
{{- include "redrive.distinct" (list (index . 2) "name" $env) -}}
{{- end }}

{{/* Secrets come as files. */}}
{{- define "redrive.env.common" -}}
- {name: REDRIVE_DATABASE_URL_FILE, value: /etc/redrive/database/url}
{{ include "redrive.env.shared" . }}
{{- end }}

{{/* What the console has, too, which knows other logins. */}}
{{- define "redrive.env.shared" -}}
- {name: REDRIVE_LOG_FORMAT, value: {{ .Values.log.format | quote }}}
- {name: REDRIVE_LOG_LEVEL, value: {{ .Values.log.level | quote }}}
# A migration beside the release is waited for, and not met with restarts.
- {name: REDRIVE_STARTUP_TIMEOUT, value: "120"}
{{- with .Values.database.diskBudgetGiB }}
- {name: REDRIVE_DISK_BUDGET_GIB, value: {{ int . | quote }}}
{{- end }}
{{- with .Values.database.tls }}
{{- with .mode }}
- {name: PGSSLMODE, value: {{ . | quote }}}
{{- end }}
{{- if or .caSecret.name .caConfigMap.name }}
- {name: PGSSLROOTCERT, value: /etc/redrive/ca/ca.crt}
{{- else if .systemCa }}
# What libpq calls system, by its path: the libpq of psycopg looks for it elsewhere.
- {name: PGSSLROOTCERT, value: /etc/ssl/certs/ca-certificates.crt}
{{- end }}
{{- if .clientSecret.name }}
- {name: PGSSLCERT, value: /etc/redrive/client/tls.crt}
- {name: PGSSLKEY, value: /etc/redrive/client/tls.key}
{{- end }}
{{- end }}
{{- end }}

{{- define "redrive.volumeMounts" -}}
{{- include "redrive.volumeMounts.named" (list . "tmp" "database") -}}
{{- end }}

{{/* The same, where a pod has more than one of them. (list root tmp database) */}}
{{- define "redrive.volumeMounts.named" -}}
- {name: {{ index . 1 }}, mountPath: /tmp}
- {name: {{ index . 2 }}, mountPath: /etc/redrive/database, readOnly: true}
{{- include "redrive.volumeMounts.tls" (index . 0) }}
{{- end }}

{{- define "redrive.volumeMounts.tls" -}}
{{- with .Values.database.tls }}
{{- if or .caSecret.name .caConfigMap.name }}
- {name: ca, mountPath: /etc/redrive/ca, readOnly: true}
{{- end }}
{{- if .clientSecret.name }}
- {name: client, mountPath: /etc/redrive/client, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{/* A place to write, and the URL of a login. (list root login tmp database) */}}
{{- define "redrive.volumes.named" -}}
- name: {{ index . 2 }}
  emptyDir: {sizeLimit: {{ (index . 0).Values.pods.tmpSize }}}
- name: {{ index . 3 }}
  secret:
    secretName: {{ include "redrive.database.secret" . | quote }}
    defaultMode: 0440
    items: [{key: {{ include "redrive.database.key" . | quote }}, path: url}]
{{- end }}

{{/* (list root login) */}}
{{- define "redrive.volumes" -}}
{{- $root := index . 0 -}}
{{- include "redrive.volumes.named" (concat . (list "tmp" "database")) }}
{{- include "redrive.volumes.tls" $root }}
{{- end }}

{{- define "redrive.volumes.tls" -}}
{{- with .Values.database.tls }}
{{- if .caSecret.name }}
- name: ca
  secret:
    secretName: {{ .caSecret.name | quote }}
    items: [{key: {{ .caSecret.key | quote }}, path: ca.crt}]
{{- else if .caConfigMap.name }}
- name: ca
  configMap:
    name: {{ .caConfigMap.name | quote }}
    items: [{key: {{ .caConfigMap.key | quote }}, path: ca.crt}]
{{- end }}
{{- with .clientSecret }}
{{- if .name }}
- name: client
  secret:
    secretName: {{ .name | quote }}
    # libpq refuses a key that others may read.
    defaultMode: 0440
    items: [{key: {{ .certKey | quote }}, path: tls.crt}, {key: {{ .keyKey | quote }}, path: tls.key}]
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* All cells, for exporter and console: a file of them, beside those that it names. */}}
{{- define "redrive.cells.env" -}}
{{- with .Values.cells }}
{{- if .existingSecret }}
- {name: REDRIVE_DATABASES, value: /etc/redrive/cells/{{ .key }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "redrive.cells.volumeMount" -}}
{{- if .Values.cells.existingSecret }}
- {name: cells, mountPath: /etc/redrive/cells, readOnly: true}
{{- end }}
{{- end }}

{{- define "redrive.cells.volume" -}}
{{- with .Values.cells.existingSecret }}
- name: cells
  secret: {secretName: {{ quote . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* The keyring, for those who read payloads. */}}
{{- define "redrive.keyring.env" -}}
{{- if .Values.encryption.existingSecret }}
- {name: REDRIVE_ENCRYPTION_KEYS_FILE, value: /etc/redrive/encryption/keys}
{{- end }}
{{- end }}

{{- define "redrive.keyring.volumeMount" -}}
{{- if .Values.encryption.existingSecret }}
- {name: encryption, mountPath: /etc/redrive/encryption, readOnly: true}
{{- end }}
{{- end }}

{{- define "redrive.keyring.volume" -}}
{{- with .Values.encryption }}
{{- if .existingSecret }}
- name: encryption
  secret:
    secretName: {{ .existingSecret | quote }}
    defaultMode: 0440
    items: [{key: {{ .key | quote }}, path: keys}]
{{- end }}
{{- end }}
{{- end }}

{{/* The start may last as long as it waits for the schema, and half a minute more. (port) */}}
{{- define "redrive.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: {{ . }}}
  periodSeconds: 2
  failureThreshold: 75
livenessProbe:
  httpGet: {path: /livez, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* The pod template of a Job that runs one command as the operator.
     (dict root component args env resources; files: projected volume sources for /etc/redrive/<component>) */}}
{{- define "redrive.job" -}}
{{- $root := .root -}}
{{- /* By default the audit log names the Job. */ -}}
{{- $env := list (dict "name" "REDRIVE_ACTOR" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.labels['job-name']"))) -}}
{{- range $name, $value := .env }}{{ $env = append $env (dict "name" $name "value" (toString $value)) }}{{ end -}}
backoffLimit: {{ $root.Values.cronJobs.backoffLimit | int64 }}
activeDeadlineSeconds: {{ .activeDeadlineSeconds | int64 }}
ttlSecondsAfterFinished: {{ $root.Values.cronJobs.ttlSecondsAfterFinished | int64 }}
podFailurePolicy:
  rules:
    # A drained node is no failure of ours; another run holding the lock is none either: wait for it.
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: Ignore
      onExitCodes: {containerName: redrive, operator: In, values: [75]}
    # Nothing matched, usage or settings, schema: trying again cannot help. After an aborted campaign it does harm: more jobs die.
    - action: FailJob
      onExitCodes: {containerName: redrive, operator: In, values: [2, 4, 64, 78]}
template:
  metadata:
    labels:
      {{- include "redrive.pod.labels" (list $root dict .component) | nindent 6 }}
    {{- with $root.Values.pods.annotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ include "redrive.serviceAccount" $root }}
    {{- include "redrive.pod" $root | nindent 4 }}
    {{- include "redrive.pod.placement" (list $root dict) | nindent 4 }}
    containers:
      - name: redrive
        image: {{ include "redrive.image" $root }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args: {{ toJson .args }}
        env:
          {{- include "redrive.env" (list $root $env "pods.env" list) | nindent 10 }}
        resources:
          {{- toYaml .resources | nindent 10 }}
        {{- include "redrive.container.security" $root | nindent 8 }}
        volumeMounts:
          {{- include "redrive.volumeMounts" $root | nindent 10 }}
          {{- if .files }}
          - {name: files, mountPath: /etc/redrive/{{ .component }}, readOnly: true}
          {{- end }}
    volumes:
      {{- include "redrive.volumes" (list $root "operator") | nindent 6 }}
      {{- with .files }}
      - name: files
        projected:
          defaultMode: 0440
          sources:
            {{- toYaml . | nindent 12 }}
      {{- end }}
{{- end }}

{{/* Objectives by queue, as JSON; empty where none is set. */}}
{{- define "redrive.objectives" -}}
{{- $objectives := dict -}}
{{- range $queue, $values := .Values.queues -}}
{{- with $values.objectives }}{{ $_ := set $objectives $queue . }}{{ end -}}
{{- end -}}
{{- with $objectives }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* Owners by pattern, as JSON; empty where none is set. */}}
{{- define "redrive.owners" -}}
{{- $owners := dict -}}
{{- range $pattern, $values := .Values.queues -}}
{{- if $values.owner }}{{ $_ := set $owners $pattern (pick $values "owner" "contact") }}{{ end -}}
{{- end -}}
{{- with $owners }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* How often a CronJob is to run, for the alert: its schedule unless told otherwise; empty = no alert. (its values) */}}
{{- define "redrive.every" -}}
{{- if .enabled }}{{ if eq .every "auto" }}{{ .schedule }}{{ else }}{{ .every }}{{ end }}{{ end -}}
{{- end }}

{{- define "redrive.cronjob" -}}
timeZone: {{ .Values.cronJobs.timeZone | quote }}
concurrencyPolicy: Forbid
startingDeadlineSeconds: {{ .Values.cronJobs.startingDeadlineSeconds | int64 }}
successfulJobsHistoryLimit: 1
failedJobsHistoryLimit: 3
{{- end }}
