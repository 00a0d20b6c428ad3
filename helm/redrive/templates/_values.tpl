{{/* Single values that no schema can judge, or only by a pattern that nobody reads. Each message begins with the field. */}}
{{- define "redrive.validate.values" -}}
{{- $values := .Values -}}
{{- $resources := dict "exporter.tools" $values.exporter.tools.resources "postgres.trial" $values.postgres.trial.resources -}}
{{- range $field := list "exporter" "console" "gateway" "migrations" "redrive" "purge" "report" "test" -}}
{{- $_ := set $resources $field (index $values $field "resources") -}}
{{- end -}}
{{- $env := dict "pods" $values.pods.env "gateway" $values.gateway.env -}}
{{- $labels := dict "commonLabels" $values.commonLabels "pods.labels" $values.pods.labels "serviceAccount.labels" $values.serviceAccount.labels "monitoring.labels" $values.monitoring.labels -}}
{{- $tolerations := dict "pods" $values.pods.tolerations -}}
{{- $images := dict "image.repository" $values.image.repository "postgres.trial.image" $values.postgres.trial.image -}}
{{- $annotations := dict "commonAnnotations" $values.commonAnnotations "pods.annotations" $values.pods.annotations -}}
{{- range $field := list "exporter" "console" "gateway" -}}
{{- $_ := set $labels (printf "%s.podLabels" $field) (index $values $field "podLabels") -}}
{{- $_ = set $annotations (printf "%s.podAnnotations" $field) (index $values $field "podAnnotations") -}}
{{- $_ = set $annotations (printf "%s.deploymentAnnotations" $field) (index $values $field "deploymentAnnotations") -}}
{{- $_ = set $tolerations $field (index $values $field "tolerations") -}}
{{- end -}}

{{- range $name := keys $values.workers | sortAlpha -}}
{{- $pool := include "redrive.pool" (list $ $name) | fromJson -}}
{{- $field := printf "workers.%s" $name -}}
{{- $_ := set $resources $field $pool.resources -}}
{{- range $list := list "initContainers" "extraContainers" -}}
{{- range index $pool $list }}{{ $_ := set $resources (printf "%s.%s.%s" $field $list .name) (.resources | default dict) }}{{ end -}}
{{- end -}}
{{- $_ = set $env $field $pool.env -}}
{{- $_ = set $tolerations $field $pool.tolerations -}}
{{- $_ = set $images (printf "%s.image" $field) $pool.image -}}
{{- $_ = set $labels (printf "%s.podLabels" $field) $pool.podLabels -}}
{{- $_ = set $annotations (printf "%s.podAnnotations" $field) $pool.podAnnotations -}}
{{- $_ = set $annotations (printf "%s.deploymentAnnotations" $field) $pool.deploymentAnnotations -}}
{{- if and $pool.podDisruptionBudget.enabled (has (toString $pool.podDisruptionBudget.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.podDisruptionBudget.maxUnavailable is 0; no node with one of its pods could be drained; set 1 or more, or enabled to false" $field) -}}
{{- end -}}
{{- range $kind, $target := $pool.targets.targets -}}
{{- $url := urlParse (toString $target.url) -}}
{{- if not (and (has $url.scheme (list "http" "https")) $url.hostname) -}}
{{- fail (printf "%s.targets.targets.%s.url must start with http:// or https:// and name a host" $field $kind) -}}
{{- end -}}
{{- if not (has (lower $url.hostname) (splitList " " (lower (join " " $pool.targets.allowed_hosts)))) -}}
{{- fail (printf "%s.targets.targets.%s.url goes to %s, which is not among targets.allowed_hosts" $field $kind $url.hostname) -}}
{{- end -}}
{{- end -}}
{{- $all := keys $pool.targets.targets -}}
{{- range $pool.targets.schedules -}}
{{- include "redrive.validate.zone" (list (printf "%s.targets.schedules" $field) (.tz | default "UTC")) -}}
{{- if not (or $pool.handlers (contains "*" (join " " $all)) (has .kind $all)) -}}
{{- fail (printf "%s.targets.schedules: there is no target %s, which a schedule names" $field .kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- range $field, $given := $resources -}}
{{- range $part := list "requests" "limits" -}}
{{- range $name, $amount := index $given $part | default dict -}}
{{- $of := printf "%s.resources.%s.%s" $field $part $name -}}
{{- if not (regexMatch "^(cpu|memory|ephemeral-storage|hugepages-.+|.+/.+)$" $name) -}}
{{- fail (printf "%s: Kubernetes has no resource %s; use cpu, memory, ephemeral-storage or a name with a domain, such as nvidia.com/gpu" $of $name) -}}
{{- end -}}
{{- if kindIs "string" $amount -}}
{{- include "redrive.validate.form" (list $of $amount "[0-9]{1,15}([.][0-9]{1,3})?(m|k|[KMGTPE]i|[MGTPE]|e[0-9])?" "a quantity of Kubernetes, such as 250m or 512Mi") -}}
{{- end -}}
{{- $bytes := include "redrive.quantity" $amount | float64 -}}
{{- if and (eq $name "memory") (gt $bytes 0.0) (lt $bytes 1048576.0) -}}
{{- fail (printf "%s is %v, less than 1Mi; in Mi, it is a number such as 512Mi" $of $amount) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $request := $given.requests -}}
{{- $limit := get ($given.limits | default dict) $name -}}
{{- if and (ne (toString $limit) "") (gt (include "redrive.quantity" $request | float64) (include "redrive.quantity" $limit | float64)) -}}
{{- fail (printf "%s.resources.requests.%s is %v, more than limits.%s, %v; Kubernetes refuses such a pod" $field $name $request $name $limit) -}}
{{- end -}}
{{- if and (contains "/" $name) (ne (toString $limit) (toString $request)) -}}
{{- fail (printf "%s.resources.requests.%s needs the same number in limits.%s; Kubernetes refuses such a pod" $field $name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- range $field, $given := $tolerations -}}
{{- range $given -}}
{{- if and (eq (.operator | default "") "Exists") .value -}}
{{- fail (printf "%s.tolerations: %s has operator Exists and a value; leave out one of the two" $field .key) -}}
{{- end -}}
{{- if and (hasKey . "tolerationSeconds") (ne (.effect | default "") "NoExecute") -}}
{{- fail (printf "%s.tolerations: tolerationSeconds of %s needs effect NoExecute; Kubernetes refuses such a pod" $field .key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $field, $image := $images -}}
{{- if contains "://" $image -}}
{{- fail (printf "%s: %s begins with a scheme; leave out %s" $field $image (regexFind "^.*://" $image)) -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.pods.dnsPolicy "None") (not $values.pods.dnsConfig.nameservers) -}}
{{- fail "pods.dnsPolicy is None; it needs pods.dnsConfig.nameservers" -}}
{{- end -}}

{{- range $field, $given := $env -}}
{{- range $given }}{{ include "redrive.validate.setting" (list $ (printf "%s.env" $field) .name) }}{{ end -}}
{{- end -}}

{{- range $field, $given := $labels -}}
{{- range $label := keys $given | sortAlpha -}}
{{- if regexMatch "^(app[.]kubernetes[.]io/(name|instance|component|part-of|version|managed-by)|helm[.]sh/chart|redrive/pool)$" $label -}}
{{- fail (printf "%s: the chart sets %s itself; leave it out" $field $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $field, $given := $annotations -}}
{{- range $annotation := keys $given | sortAlpha -}}
{{- if hasPrefix "helm.sh/hook" $annotation -}}
{{- fail (printf "%s: %s would make a hook of it; leave it out" $field $annotation) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- $duration := "[0-9]+(\\.[0-9]+)?(s|m|h|d|w)" -}}
{{- $durations := dict "purge.olderThan" $values.purge.olderThan "report.since" $values.report.since -}}
{{- range $what, $keep := $values.retention }}{{ $_ := set $durations (printf "retention.%s" $what) $keep }}{{ end -}}
{{- range $field, $given := $durations -}}
{{- include "redrive.validate.form" (list $field $given $duration "a number and a unit, such as 30m, 12h or 30d") -}}
{{- end -}}
{{- range $field, $given := dict "purge.every" $values.purge.every "redrive.automatic.every" $values.redrive.automatic.every -}}
{{- include "redrive.validate.form" (list $field $given "(auto|[1-9][0-9]*(\\.[0-9]+)?(s|m|h|d|w))?" "auto, empty, or a number and a unit, such as 12h or 1d") -}}
{{- end -}}
{{- range $field := list "since" "until" -}}
{{- $form := printf "(|%s|[0-9]{4}-[0-9]{2}-[0-9]{2}[0-9T:.,Z +-]*)" $duration -}}
{{- include "redrive.validate.form" (list (printf "redrive.automatic.filter.%s" $field) (index $values.redrive.automatic.filter $field | default "") $form "an age such as 12h or 7d, or a time such as 2026-01-31T08:00Z") -}}
{{- end -}}
{{- if regexMatch ":[^/]*$" $values.image.repository -}}
{{- fail (printf "image.repository: %s ends with a tag; set the tag in image.tag" $values.image.repository) -}}
{{- end -}}

{{- include "redrive.validate.cron" (list "purge.schedule" $values.purge.schedule) -}}
{{- include "redrive.validate.cron" (list "redrive.automatic.schedule" $values.redrive.automatic.schedule) -}}
{{- include "redrive.validate.cron" (list "report.schedule" $values.report.schedule) -}}
{{- include "redrive.validate.zone" (list "cronJobs.timeZone" $values.cronJobs.timeZone) -}}
{{- end }}

{{/* A quantity of Kubernetes, as a number. */}}
{{- define "redrive.quantity" -}}
{{- $unit := regexFind "(m|k|[KMGTPE]i|[MGTPE])$" (toString .) -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (trimSuffix $unit (toString .) | float64) (get $factors $unit) -}}
{{- end }}

{{/* (list field text pattern sentence) */}}
{{- define "redrive.validate.form" -}}
{{- if not (regexMatch (printf "^(%s)$" (index . 2)) (index . 1)) -}}
{{- fail (printf "%s is %q; it must be %s" (index . 0) (index . 1) (index . 3)) -}}
{{- end -}}
{{- end }}

{{/* A cron expression, as the CronJobs of Kubernetes read it. (list field expression) */}}
{{- define "redrive.validate.cron" -}}
{{- $field := index . 0 -}}{{- $cron := index . 1 -}}
{{- $months := list "JAN" "FEB" "MAR" "APR" "MAY" "JUN" "JUL" "AUG" "SEP" "OCT" "NOV" "DEC" -}}
{{- $days := list "SUN" "MON" "TUE" "WED" "THU" "FRI" "SAT" -}}
{{- $parts := list
      (dict "what" "minute, 0 to 59" "from" 0 "to" 59 "names" list)
      (dict "what" "hour, 0 to 23" "from" 0 "to" 23 "names" list)
      (dict "what" "day of the month, 1 to 31" "from" 1 "to" 31 "names" list)
      (dict "what" "month, 1 to 12 or JAN to DEC" "from" 1 "to" 12 "names" $months)
      (dict "what" "day of the week, 0 to 6 or SUN to SAT" "from" 0 "to" 6 "names" $days) -}}
{{- if not (hasPrefix "@" $cron) -}}
{{- range $nth, $text := splitList " " (regexReplaceAll " +" $cron " ") -}}
{{- $part := index $parts $nth -}}
{{- range $given := splitList "," $text -}}
{{- $span := upper $given -}}
{{- range $n, $name := $part.names }}{{ $span = replace $name (add $n $part.from | toString) $span }}{{ end -}}
{{- $right := regexMatch "^([*?]|[0-9]{1,2}(-[0-9]{1,2})?)(/0?[1-9][0-9]?)?$" $span -}}
{{- if and $right (not (regexMatch "^[*?]" $span)) -}}
{{- $ends := regexFindAll "[0-9]+" (splitList "/" $span | first) -1 -}}
{{- $from := first $ends | atoi -}}{{- $to := last $ends | atoi -}}
{{- $right = and (ge $from $part.from) (le $from $to) (le $to $part.to) -}}
{{- end -}}
{{- if not $right }}{{ fail (printf "%s: %s is no %s, in %q" $field $given $part.what $cron) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A time zone of this machine. A name that it does not know comes out as UTC; so does each, where it knows none, and then
     nothing is said. (list field zone) */}}
{{- define "redrive.validate.zone" -}}
{{- $winter := toDate "2006-01-02" "2026-01-15" -}}
{{- $zone := index . 1 -}}
{{- $asUTC := eq (dateInZone "MST" $winter $zone) "UTC" -}}
{{- if and $asUTC (eq (dateInZone "MST" $winter "Europe/Berlin") "CET") (not (regexMatch "^(Etc/)?(UTC|UCT|Zulu|Universal)$" $zone)) -}}
{{- fail (printf "%s: %s is no time zone; one is Europe/Berlin" (index . 0) $zone) -}}
{{- end -}}
{{- end }}

{{/* A variable that only looks like a setting ends a process at its start. The nearest setting is the one that shares most
     pairs of letters. (list root field variable) */}}
{{- define "redrive.validate.setting" -}}
{{- $name := index . 2 | upper -}}
{{- $known := (index . 0).Files.Lines "files/settings.txt" -}}
{{- if and (hasPrefix "REDRIVE_" $name) (not (regexMatch "^REDRIVE_(TEST|DEMO|CHAOS)_" $name)) (not (has $name $known)) -}}
{{- $nearest := "" -}}{{- $most := -1000 -}}
{{- range $one := $known -}}
{{- $shared := sub 0 (len $one) -}}
{{- range $n := until (sub (len $name) 1 | int) }}{{ if contains (substr $n (add $n 2 | int) $name) $one }}{{ $shared = add $shared 2 }}{{ end }}{{ end -}}
{{- if gt (int $shared) (int $most) }}{{ $most = $shared }}{{ $nearest = $one }}{{ end -}}
{{- end -}}
{{- fail (printf "%s: %s is no setting of Redrive; the nearest is %s" (index . 1) (index . 2) $nearest) -}}
{{- end -}}
{{- end }}
