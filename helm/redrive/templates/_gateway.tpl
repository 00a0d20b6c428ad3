{{/* The gateway's own environment. */}}
{{- define "redrive.gateway.env" -}}
{{- include "redrive.keyring.env" . }}
{{- with include "redrive.worker.version" (list . (dict)) }}
- {name: REDRIVE_VERSION, value: {{ quote . }}}
{{- end }}
- {name: REDRIVE_GATEWAY, value: /etc/redrive/gateway/gateway.yaml}
- {name: REDRIVE_SLOTS, value: {{ .Values.gateway.slots | int64 | quote }}}
- {name: REDRIVE_HTTP_PORT, value: "9808"}
- {name: REDRIVE_DATABASE_METRICS, value: "false"}
{{- end }}

{{/* A gateway that could not start. */}}
{{- define "redrive.validate.gateway" -}}
{{- with .Values.gateway -}}
{{- $given := or .login.existingSecret .login.url -}}
{{- $sources := or .sources.rabbitmq .sources.sqs -}}
{{- if .enabled -}}
{{- if and $.Values.postgres.trial.enabled $given -}}
{{- fail "gateway.login is set and postgres.trial.enabled is true; the throw-away Postgres has logins of its own, so unset one of the two" -}}
{{- end -}}
{{- if not (or $.Values.postgres.trial.enabled $given) -}}
{{- fail "gateway.login: set existingSecret (or url); its login is a member of redrive_worker and redrive_operator" -}}
{{- end -}}
{{- if and $sources .existingConfigMap -}}
{{- fail "gateway.sources and gateway.existingConfigMap are both set; unset one of the two" -}}
{{- end -}}
{{- if not (or $sources .existingConfigMap) -}}
{{- fail "gateway.sources names no dead letter queue; add one under rabbitmq or sqs, or set gateway.existingConfigMap" -}}
{{- end -}}
{{- range $name, $source := .sources.rabbitmq -}}
{{- if eq (hasKey $source "url") (hasKey $source "url_file") -}}
{{- fail (printf "gateway.sources.rabbitmq.%s: set url or url_file, and not both" $name) -}}
{{- end -}}
{{- with $source.url_file -}}
{{- if not (has (regexFind "^/etc/redrive/brokers/[^/]+/[^/]" . | trimPrefix "/etc/redrive/brokers/" | dir) $.Values.gateway.secrets) -}}
{{- fail (printf "gateway.sources.rabbitmq.%s.url_file is %s, in no Secret of gateway.secrets; name the Secret there, and its file /etc/redrive/brokers/<secret>/<key>" $name .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
