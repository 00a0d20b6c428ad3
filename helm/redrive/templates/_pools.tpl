{{/* Lay the second map over the first, in place. Unlike merge, an empty, zero or false value counts. */}}
{{- define "redrive.overlay" -}}
{{- $under := index . 0 -}}
{{- range $key, $value := index . 1 }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $under $key)) }}
{{- include "redrive.overlay" (list (get $under $key) $value) }}
{{- else }}
{{- $_ := set $under $key $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* A pool with all its properties, as YAML: the defaults, what values say of it, and what follows from both, as JSON. (list root name) */}}
{{- define "redrive.pool" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
{{- $pool := deepCopy $root.Values.workerDefaults -}}
{{- include "redrive.overlay" (list $pool (index $root.Values.workers $name)) -}}
{{- $scales := ne $pool.autoscaling.type "none" -}}
{{- $grace := add (int $pool.drainTimeoutSeconds) 10 -}}
{{- $asked := $pool.terminationGracePeriodSeconds -}}
{{- if not (kindIs "invalid" $asked) -}}
{{- if lt (int $asked) (int $grace) -}}
{{- fail (printf "workers.%s.terminationGracePeriodSeconds is %d; it must be at least drainTimeoutSeconds + 10 = %d, or jobs would be killed while they drain" $name (int $asked) (int $grace)) -}}
{{- end -}}
{{- $grace = int $asked -}}
{{- end -}}
{{- $_ := set $pool "terminationGracePeriodSeconds" $grace -}}
{{- $rollout := $pool.rollingUpdate -}}
{{- if and (has (toString $rollout.maxSurge) (list "0" "0%")) (has (toString $rollout.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "workers.%s.rollingUpdate.maxSurge and maxUnavailable are both 0; raise one of them, or no pod can be replaced" $name) -}}
{{- end -}}
{{- $_ := set $pool "scales" $scales -}}
{{- $_ := set $pool "hasTargets" (or (not (empty $pool.targets.targets)) (not (empty $pool.targets.schedules))) -}}
{{- $_ := set $pool "most" (ternary $pool.autoscaling.maxReplicas $pool.replicas $scales | int) -}}
{{- $_ := set $pool "jobsPerPod" ($pool.autoscaling.jobsPerPod | default (mul (int $pool.slots) (int $pool.runners)) | int) -}}
{{- $_ := set $pool "fullname" (printf "%s-worker-%s" (include "redrive.name" $root) $name) -}}
{{- toJson $pool -}}
{{- end }}

{{/* A number of pods, or a percentage. */}}
{{- define "redrive.count" -}}
{{- kindIs "string" . | ternary (quote .) (int64 .) -}}
{{- end }}

{{/* What a worker says it runs: the tag of its image, or the beginning of its digest. (list root pool) */}}
{{- define "redrive.worker.version" -}}
{{- $root := index . 0 -}}{{- $pool := index . 1 -}}
{{- $image := $pool.image | default (include "redrive.image" $root | trimAll "\"") -}}
{{- $pool.version | default (regexFind "@sha256:[0-9a-f]{12}|:[^/:@]+$" $image | trimPrefix "@sha256" | trimPrefix ":") -}}
{{- end }}

{{/* A worker's own environment. (list root pool) */}}
{{- define "redrive.worker.env" -}}
{{- include "redrive.keyring.env" (index . 0) }}
{{- with index . 1 }}
- {name: REDRIVE_HANDLERS, value: {{ .handlers | quote }}}
{{- with include "redrive.worker.version" $ }}
- {name: REDRIVE_VERSION, value: {{ quote . }}}
{{- end }}
{{- with .queues }}
- {name: REDRIVE_QUEUES, value: {{ join "," . | quote }}}
{{- end }}
- {name: REDRIVE_SLOTS, value: {{ .slots | int64 | quote }}}
- {name: REDRIVE_RUNNERS, value: {{ .runners | int64 | quote }}}
- {name: REDRIVE_HTTP_PORT, value: "9808"}
- {name: REDRIVE_DATABASE_METRICS, value: "false"}
- {name: REDRIVE_HEARTBEAT_TTL, value: {{ .heartbeatTtlSeconds | int64 | quote }}}
- {name: REDRIVE_DRAIN_TIMEOUT, value: {{ .drainTimeoutSeconds | int64 | quote }}}
{{- if .hasTargets }}
- {name: REDRIVE_TARGETS, value: /targets/targets.yaml}
{{- end }}
{{- if .handlersConfigMap }}
- {name: PYTHONPATH, value: "/handlers:/app"}
{{- end }}
{{- end }}
{{- end }}

{{/* What a worker mounts: its own, and what values add. (list root name pool) */}}
{{- define "redrive.worker.volumeMounts" -}}
{{- $root := index . 0 -}}{{- $pool := index . 2 -}}
{{- $mounts := concat (include "redrive.volumeMounts" $root | fromYamlArray) (include "redrive.keyring.volumeMount" $root | fromYamlArray) -}}
{{- if $pool.handlersConfigMap }}{{ $mounts = append $mounts (dict "name" "handlers" "mountPath" "/handlers" "readOnly" true) }}{{ end -}}
{{- if $pool.hasTargets }}{{ $mounts = append $mounts (dict "name" "targets" "mountPath" "/targets" "readOnly" true) }}{{ end -}}
{{- include "redrive.distinct" (list (printf "workers.%s.volumeMounts" (index . 1)) "mountPath" (concat $mounts $pool.volumeMounts)) -}}
{{- end }}

{{/* The same arguments. */}}
{{- define "redrive.worker.volumes" -}}
{{- $root := index . 0 -}}{{- $pool := index . 2 -}}
{{- $volumes := concat (include "redrive.volumes" (list $root "worker") | fromYamlArray) (include "redrive.keyring.volume" $root | fromYamlArray) -}}
{{- with $pool.handlersConfigMap }}{{ $volumes = append $volumes (dict "name" "handlers" "configMap" (dict "name" .)) }}{{ end -}}
{{- if $pool.hasTargets }}{{ $volumes = append $volumes (dict "name" "targets" "configMap" (dict "name" (printf "%s-targets" $pool.fullname))) }}{{ end -}}
{{- $volumes = concat $volumes $pool.volumes -}}
{{- include "redrive.distinct" (list (printf "workers.%s.volumes" (index . 1)) "name" $volumes) -}}
{{- $names := list }}{{ range $volumes }}{{ $names = append $names .name }}{{ end -}}
{{- range $pool.volumeMounts }}
{{- if not (has .name $names) }}{{ fail (printf "workers.%s.volumeMounts: there is no volume %s; add it to volumes" (index $ 1) .name) }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Containers of values, in which Kubernetes would refuse what is there twice, too late. (list field containers) */}}
{{- define "redrive.worker.containers" -}}
{{- $field := index . 0 -}}
{{- range index . 1 -}}
{{- if eq .name "worker" }}{{ fail (printf "%s: worker is the chart's own container; take another name" $field) }}{{ end -}}
{{- $_ := include "redrive.distinct" (list (printf "%s.%s.env" $field .name) "name" (.env | default list)) -}}
{{- $_ = include "redrive.distinct" (list (printf "%s.%s.volumeMounts" $field .name) "mountPath" (.volumeMounts | default list)) -}}
{{- end -}}
{{- toYaml (index . 1) -}}
{{- end }}

{{/* How KEDA asks Prometheus. What is ready on a paused queue needs no pods, what runs does. Nothing ready or no such queue
yet is 0, but only while the figures are there: without them there is no answer, and KEDA falls back. (list root pool) */}}
{{- define "redrive.load.promql" -}}
{{- $where := include "redrive.load.where" (index . 0) -}}
{{- $which := printf "%s%s" $where (include "redrive.load.queues" (index . 1).queues) -}}
sum(max by (queue, state) (redrive_queue_depth{ {{- $which }},state="running"}) or (max by (queue, state) (redrive_queue_depth{ {{- $which }},state="ready"}) unless on (queue) max by (queue) (redrive_queue_paused{ {{- $which }}}) == 1)) or 0 * max(redrive_stats_timestamp_seconds{ {{- $where }}})
{{- end }}

{{- define "redrive.wait.promql" -}}
{{- $where := include "redrive.load.where" (index . 0) -}}
{{- $which := printf "%s%s" $where (include "redrive.load.queues" (index . 1).queues) -}}
max(max by (queue) (redrive_queue_oldest_ready_age_seconds{ {{- $which }}}) unless on (queue) max by (queue) (redrive_queue_paused{ {{- $which }}}) == 1) or 0 * max(redrive_stats_timestamp_seconds{ {{- $where }}})
{{- end }}

{{- define "redrive.load.where" -}}
namespace={{ .Release.Namespace | quote }},job={{ include "redrive.monitoring.job" . | quote }}
{{- end }}

{{/* A dot in a name of a queue is a dot, not any character. */}}
{{- define "redrive.load.queues" -}}
{{- with . }},queue=~"{{ join "|" . | replace "." "[.]" }}"{{ end -}}
{{- end }}

{{- define "redrive.load.sql" -}}
select coalesce(sum(running + case when paused then 0 else ready end), 0)::float8 from redrive.depths_v1()
{{- with .queues }} where queue in ('{{ join "', '" . }}'){{ end -}}
{{- end }}

{{/* Up at once, down slowly. */}}
{{- define "redrive.scaling.behavior" -}}
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies:
    - {type: Percent, value: 100, periodSeconds: 15}
    - {type: Pods, value: 4, periodSeconds: 15}
scaleDown:
  stabilizationWindowSeconds: {{ .scaleDownSeconds | int64 }}
  policies:
    - {type: Percent, value: 25, periodSeconds: 60}
{{- end }}
