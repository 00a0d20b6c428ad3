{{/* The name of the release, or what replaces it: the beginning of every object's name. */}}
{{- define "redrive.name" -}}
{{- .Values.fullnameOverride | default .Release.Name -}}
{{- end }}

{{/* What selectors use. (list root component [pool]) */}}
{{- define "redrive.selector" -}}
app.kubernetes.io/name: redrive
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- if gt (len .) 2 }}
redrive/pool: {{ index . 2 }}
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
{{- $root := index . 0 -}}
name: {{ include "redrive.name" $root }}{{ with index . 1 }}-{{ . }}{{ end }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "redrive.labels" (concat (list $root) (slice . 2)) | nindent 2 }}
{{- end }}

{{- define "redrive.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "redrive.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "redrive.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{/* hook, job or none. A Postgres that comes with the release is not there before the release is. */}}
{{- define "redrive.migrations.mode" -}}
{{- if and .Values.postgres.trial.enabled (eq .Values.migrations.mode "hook") }}job{{ else }}{{ .Values.migrations.mode }}{{ end -}}
{{- end }}

{{/* The Secret with the URL of a login. (list root login) */}}
{{- define "redrive.database.secret" -}}
{{- $root := index . 0 -}}{{- $login := index . 1 -}}
{{- index $root.Values.database $login "existingSecret" | default (printf "%s-database-%s" (include "redrive.name" $root) $login) -}}
{{- end }}

{{- define "redrive.database.key" -}}
{{- $login := index (index . 0).Values.database (index . 1) -}}
{{- if $login.existingSecret }}{{ $login.key }}{{ else }}url{{ end -}}
{{- end }}

{{/* The URL that the chart itself puts into a Secret; empty where a Secret exists. (list root login) */}}
{{- define "redrive.database.url" -}}
{{- $root := index . 0 -}}{{- $login := index . 1 -}}
{{- if $root.Values.postgres.trial.enabled -}}
postgresql://redrive_trial_{{ $login }}:{{ $root.Values.postgres.trial.password }}@{{ include "redrive.name" $root }}-postgres:5432/redrive
{{- else -}}
{{ index $root.Values.database $login "url" }}
{{- end -}}
{{- end }}

{{/* Changes when what a pod reads at its start changes, so that it is replaced. (list root login) */}}
{{- define "redrive.checksum" -}}
checksum/config: {{ printf "%s %s" (include "redrive.database.secret" .) (include "redrive.database.url" .) | sha256sum }}
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
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Pod: where it may run, for all but workers. */}}
{{- define "redrive.pod.placement" -}}
{{- with .Values.pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "redrive.container.security" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Environment of every container that runs redrive. Secrets come as files. */}}
{{- define "redrive.env" -}}
- {name: REDRIVE_DATABASE_URL_FILE, value: /etc/redrive/database/url}
- {name: REDRIVE_LOG_FORMAT, value: {{ .Values.log.format }}}
- {name: REDRIVE_LOG_LEVEL, value: {{ .Values.log.level }}}
# A migration beside the release is waited for, and not met with restarts.
- {name: REDRIVE_STARTUP_TIMEOUT, value: "120"}
{{- with .Values.database.tls }}
{{- with .mode }}
- {name: PGSSLMODE, value: {{ . }}}
{{- end }}
{{- if or .caSecret.name .caConfigMap.name }}
- {name: PGSSLROOTCERT, value: /etc/redrive/ca/ca.crt}
{{- end }}
{{- if .clientSecret.name }}
- {name: PGSSLCERT, value: /etc/redrive/client/tls.crt}
- {name: PGSSLKEY, value: /etc/redrive/client/tls.key}
{{- end }}
{{- end }}
{{- with .Values.pods.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "redrive.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: database, mountPath: /etc/redrive/database, readOnly: true}
{{- with .Values.database.tls }}
{{- if or .caSecret.name .caConfigMap.name }}
- {name: ca, mountPath: /etc/redrive/ca, readOnly: true}
{{- end }}
{{- if .clientSecret.name }}
- {name: client, mountPath: /etc/redrive/client, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{/* (list root login) */}}
{{- define "redrive.volumes" -}}
{{- $root := index . 0 -}}
- name: tmp
  emptyDir: {sizeLimit: {{ $root.Values.pods.tmpSize }}}
- name: database
  secret:
    secretName: {{ include "redrive.database.secret" . }}
    defaultMode: 0440
    items: [{key: {{ include "redrive.database.key" . }}, path: url}]
{{- with $root.Values.database.tls }}
{{- if .caSecret.name }}
- name: ca
  secret:
    secretName: {{ .caSecret.name }}
    items: [{key: {{ .caSecret.key }}, path: ca.crt}]
{{- else if .caConfigMap.name }}
- name: ca
  configMap:
    name: {{ .caConfigMap.name }}
    items: [{key: {{ .caConfigMap.key }}, path: ca.crt}]
{{- end }}
{{- with .clientSecret }}
{{- if .name }}
- name: client
  secret:
    secretName: {{ .name }}
    # libpq refuses a key that others may read.
    defaultMode: 0440
    items: [{key: {{ .certKey }}, path: tls.crt}, {key: {{ .keyKey }}, path: tls.key}]
{{- end }}
{{- end }}
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
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: keys}]
{{- end }}
{{- end }}
{{- end }}

{{/* The start may last as long as it waits for the schema, and half a minute more. */}}
{{- define "redrive.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  failureThreshold: 75
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* The pod template of a Job that runs one command as the operator.
     (dict root component args env resources) */}}
{{- define "redrive.job" -}}
{{- $root := .root -}}
backoffLimit: {{ $root.Values.cronJobs.backoffLimit }}
activeDeadlineSeconds: {{ .activeDeadlineSeconds | int64 }}
ttlSecondsAfterFinished: {{ $root.Values.cronJobs.ttlSecondsAfterFinished | int64 }}
podFailurePolicy:
  rules:
    # A drained node is no failure of ours; another run holding the lock is none either: wait for it.
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: Ignore
      onExitCodes: {containerName: redrive, operator: In, values: [75]}
    # Nothing matched, usage or settings, schema: trying again cannot help.
    - action: FailJob
      onExitCodes: {containerName: redrive, operator: In, values: [2, 64, 78]}
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
    {{- include "redrive.pod.placement" $root | nindent 4 }}
    containers:
      - name: redrive
        image: {{ include "redrive.image" $root }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        args: {{ toJson .args }}
        env:
          {{- include "redrive.env" $root | nindent 10 }}
          # By default the audit log names the Job.
          - name: REDRIVE_ACTOR
            valueFrom: {fieldRef: {fieldPath: "metadata.labels['job-name']"}}
          {{- range $name, $value := .env }}
          - {name: {{ $name }}, value: {{ $value | toString | quote }}}
          {{- end }}
        resources:
          {{- toYaml .resources | nindent 10 }}
        {{- include "redrive.container.security" $root | nindent 8 }}
        volumeMounts:
          {{- include "redrive.volumeMounts" $root | nindent 10 }}
    volumes:
      {{- include "redrive.volumes" (list $root "operator") | nindent 6 }}
{{- end }}

{{/* Objectives by queue, as JSON; empty where none is set. */}}
{{- define "redrive.objectives" -}}
{{- $objectives := dict -}}
{{- range $queue, $values := .Values.queues -}}
{{- with $values.objectives }}{{ $_ := set $objectives $queue . }}{{ end -}}
{{- end -}}
{{- with $objectives }}{{ toJson . }}{{ end -}}
{{- end }}

{{/* How often a CronJob is to run, for the alert: its schedule unless told otherwise; empty = no alert. (its values) */}}
{{- define "redrive.every" -}}
{{- if .enabled }}{{ if eq .every "auto" }}{{ .schedule }}{{ else }}{{ .every }}{{ end }}{{ end -}}
{{- end }}

{{- define "redrive.cronjob" -}}
timeZone: {{ .Values.cronJobs.timeZone }}
concurrencyPolicy: Forbid
startingDeadlineSeconds: {{ .Values.cronJobs.startingDeadlineSeconds | int64 }}
successfulJobsHistoryLimit: 1
failedJobsHistoryLimit: 3
{{- end }}
