{{/* What the schema cannot say: rules over several values. Each message begins with the field to change. */}}
{{- define "redrive.validate" -}}
{{- $values := .Values -}}
{{- if gt (len (include "redrive.name" .)) 35 -}}
{{- fail (printf "fullnameOverride: the name %q is longer than 35 characters, and names of CronJobs could not begin with it; set a shorter one" (include "redrive.name" .)) -}}
{{- end -}}

{{- /* With a dot, or with a digit at its beginning, it is no name for a Service. */ -}}
{{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" (include "redrive.name" .)) -}}
{{- fail (printf "fullnameOverride: the name %q is none for a Service; set one of letters, digits and - that begins with a letter" (include "redrive.name" .)) -}}
{{- end -}}

{{- range $login := list "owner" "worker" "operator" "viewer" -}}
{{- $given := index $values.database $login -}}
{{- $wanted := and (ne $login "viewer") (or (ne $login "owner") (ne $values.migrations.mode "none")) -}}
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
{{- if and .systemCa (or .caSecret.name .caConfigMap.name) -}}
{{- fail "database.tls.systemCa is true and a certificate of your own is named; unset one of the two" -}}
{{- end -}}
{{- if and .systemCa (ne .mode "verify-full") -}}
{{- fail "database.tls.systemCa needs database.tls.mode verify-full; anybody can have a certificate of a public authority, so the host's name must be checked" -}}
{{- end -}}
{{- if and (hasPrefix "verify-" .mode) (not .systemCa) (not .caSecret.name) (not .caConfigMap.name) -}}
{{- fail (printf "database.tls.mode is %s; it needs the authority's certificate in database.tls.caSecret.name or database.tls.caConfigMap.name, or database.tls.systemCa" .mode) -}}
{{- end -}}
{{- end -}}

{{- $connections := 0 -}}
{{- range $name := keys $values.workers | sortAlpha -}}
{{- $pool := include "redrive.pool" (list $ $name) | fromJson -}}
{{- if not (or $pool.handlers $pool.targets.targets) -}}
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
{{- /* A worker with work holds four: claims, heartbeats with notifications, chores, figures. Handlers' own come on top. */ -}}
{{- $connections = add $connections (mul 4 $pool.most) -}}
{{- end -}}
{{- /* The console: for each role eight that read and eight that change something. Which ones, a file of cells says. */ -}}
{{- $roles := len (include "redrive.console.roles" . | fromJsonArray) -}}
{{- if and .Values.console.enabled .Values.cells.existingSecret }}{{ $roles = 3 }}{{ end -}}
{{- $connections = add $connections (mul 16 $roles (int .Values.console.replicas)) -}}
{{- /* exporter, and one each for migration, purge, redrive with its lock, and the report */ -}}
{{- $connections = add $connections 6 -}}
{{- if $values.report.enabled }}{{ $connections = add $connections 1 }}{{ end -}}
{{- /* The gateway: a worker, and an intake for each source. A ConfigMap does not say how many it names. */ -}}
{{- with $values.gateway -}}
{{- $intakes := max 1 (add (len .sources.rabbitmq) (len .sources.sqs)) -}}
{{- if .enabled }}{{ $connections = add $connections (mul (add 4 $intakes) .replicas) }}{{ end -}}
{{- end -}}
{{- if and $values.database.connectionBudget (gt (int $connections) (int $values.database.connectionBudget)) -}}
{{- fail (printf "database.connectionBudget is %d; the pools at their largest open %d connections, without those of handlers" (int $values.database.connectionBudget) (int $connections)) -}}
{{- end -}}

{{- with $values.cells -}}
{{- if and .existingSecret $values.workers (not .name) -}}
{{- fail "cells.name is not set; the workers of this release are of one of the cells, and alerts ask each cell for its workers" -}}
{{- end -}}
{{- end -}}

{{- include "redrive.validate.values" . -}}
{{- include "redrive.validate.monitoring" . -}}
{{- include "redrive.validate.console" . -}}
{{- include "redrive.validate.gateway" . -}}

{{- with $values.report -}}
{{- if .enabled -}}
{{- if not .webhook.existingSecret -}}
{{- fail "report.enabled is true and it goes nowhere; set report.webhook.existingSecret" -}}
{{- end -}}
{{- end -}}
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

{{/* Combinations that would page wrongly, or never. */}}
{{- define "redrive.validate.monitoring" -}}
{{- $monitoring := .Values.monitoring -}}
{{- $rules := $monitoring.prometheusRule -}}
{{- range $kind := list "podMonitor" "serviceMonitor" -}}
{{- $monitor := index $monitoring $kind -}}
{{- $interval := include "redrive.seconds" $monitor.interval | int -}}
{{- with $monitor.scrapeTimeout -}}
{{- if gt (include "redrive.seconds" . | int) $interval -}}
{{- fail (printf "monitoring.%s.scrapeTimeout is %s, longer than the interval, %s; Prometheus refuses that" $kind . $monitor.interval) -}}
{{- end -}}
{{- end -}}
{{- if and $monitor.enabled $rules.enabled -}}
{{- if gt $interval 60 -}}
{{- fail (printf "monitoring.%s.interval is %s; the rules look at the last minutes and need a scrape at least every 60s" $kind $monitor.interval) -}}
{{- end -}}
{{- range $monitor.relabelings -}}
{{- if has .targetLabel (list "job" "namespace") -}}
{{- fail (printf "monitoring.%s.relabelings: the rules read the figures of this release by job and namespace, so neither can be changed; for another job set monitoring.job" $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $rules.enabled (not $monitoring.scrapedOtherwise) (not $monitoring.podMonitor.enabled) -}}
{{- if not $monitoring.serviceMonitor.enabled -}}
{{- fail "monitoring.prometheusRule.enabled is true and nothing is scraped, so no alert could fire; set monitoring.podMonitor.enabled, or scrapedOtherwise" -}}
{{- end -}}
{{- if .Values.workers -}}
{{- fail "monitoring.serviceMonitor scrapes the exporter alone, and monitoring.prometheusRule would page that no worker serves any queue; set monitoring.podMonitor.enabled, or scrapedOtherwise" -}}
{{- end -}}
{{- end -}}
{{- if and $rules.enabled (has "RedriveDeadLetterOnCriticalQueue" $rules.disabledAlerts) -}}
{{- range $queue := keys .Values.queues | sortAlpha -}}
{{- if (index $.Values.queues $queue "objectives" | default dict).page_on_first_dead_letter -}}
{{- fail (printf "queues.%s.objectives.page_on_first_dead_letter is 1 and monitoring.prometheusRule.disabledAlerts leaves out RedriveDeadLetterOnCriticalQueue, which pages for it; unset one of the two" $queue) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A duration of Prometheus, of one unit. */}}
{{- define "redrive.seconds" -}}
{{- mul (regexFind "^[0-9]+" . | int64) (get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]$" .)) -}}
{{- end }}
