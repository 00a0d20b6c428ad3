{{/* What the schema cannot say: rules over several values. Each message begins with the field to change. */}}
{{- define "redrive.validate" -}}
{{- $values := .Values -}}
{{- if gt (len (include "redrive.name" .)) 35 -}}
{{- fail (printf "fullnameOverride: the name %q is longer than 35 characters, and names of CronJobs could not begin with it; set a shorter one" (include "redrive.name" .)) -}}
{{- end -}}

{{- range $login := list "owner" "worker" "operator" -}}
{{- $given := index $values.database $login -}}
{{- $wanted := or (ne $login "owner") (ne $values.migrations.mode "none") -}}
{{- if $values.postgres.trial.enabled -}}
{{- if or $given.existingSecret $given.url -}}
{{- fail (printf "postgres.trial.enabled is true and database.%s is set; the throw-away Postgres has logins of its own, so unset one of the two" $login) -}}
{{- end -}}
{{- else if and $wanted (not $given.existingSecret) (not $given.url) -}}
{{- fail (printf "database.%s: set existingSecret (or url); or for a first try with a throw-away database, postgres.trial.enabled=true" $login) -}}
{{- end -}}
{{- end -}}

{{- with $values.database.tls -}}
{{- if and .caSecret.name .caConfigMap.name -}}
{{- fail "database.tls.caConfigMap.name and database.tls.caSecret.name are both set; one holds the certificate" -}}
{{- end -}}
{{- if and (hasPrefix "verify-" .mode) (not .caSecret.name) (not .caConfigMap.name) -}}
{{- fail (printf "database.tls.mode is %s; it needs the authority's certificate in database.tls.caSecret.name or database.tls.caConfigMap.name" .mode) -}}
{{- end -}}
{{- end -}}

{{- $connections := 0 -}}
{{- range $name := keys $values.workers | sortAlpha -}}
{{- $pool := include "redrive.pool" (list $ $name) | fromYaml -}}
{{- if not $pool.handlers -}}
{{- fail (printf "workers.%s.handlers is not set; it must be module:attribute, e.g. app.jobs:jobs" $name) -}}
{{- end -}}
{{- $scaling := $pool.autoscaling -}}
{{- if $pool.scales -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "workers.%s.autoscaling.minReplicas is %d, more than maxReplicas, %d" $name (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- if and (eq $scaling.type "hpa") (lt (int $scaling.minReplicas) 1) -}}
{{- fail (printf "workers.%s.autoscaling.minReplicas is 0; only autoscaling.type keda can scale to nothing" $name) -}}
{{- end -}}
{{- end -}}
{{- if eq $scaling.type "keda" -}}
{{- if and (eq $scaling.keda.trigger "prometheus") (not $scaling.keda.prometheus.serverAddress) -}}
{{- fail (printf "workers.%s.autoscaling.keda.prometheus.serverAddress is not set; KEDA asks there how many jobs wait" $name) -}}
{{- end -}}
{{- if eq $scaling.keda.trigger "postgresql" -}}
{{- range $field := list "host" "database" "user" "passwordSecret" -}}
{{- if not (index $scaling.keda.postgresql $field) -}}
{{- fail (printf "workers.%s.autoscaling.keda.postgresql.%s is not set; KEDA asks the database how many jobs wait" $name $field) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* A worker holds four: claims, heartbeats with notifications, chores, figures. Handlers' own come on top. */ -}}
{{- $connections = add $connections (mul 4 $pool.most) -}}
{{- end -}}
{{- /* exporter, and one each for migration, purge, redrive with its lock */ -}}
{{- $connections = add $connections 6 -}}
{{- if and $values.database.connectionBudget (gt (int $connections) (int $values.database.connectionBudget)) -}}
{{- fail (printf "database.connectionBudget is %d; the pools at their largest open %d connections, without those of handlers" (int $values.database.connectionBudget) (int $connections)) -}}
{{- end -}}

{{- with $values.redrive.automatic -}}
{{- if .enabled -}}
{{- $narrow := false -}}
{{- range $field := list "kind" "queue" "reason" "category" "errorClass" "tenant" -}}
{{- if index $values.redrive.automatic.filter $field }}{{ $narrow = true }}{{ end -}}
{{- end -}}
{{- if not $narrow -}}
{{- fail "redrive.automatic.filter: name at least one kind, queue, reason, category, errorClass or tenant; what is redriven without anybody looking must be chosen" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
