{{/* The console's own environment. All that is secret lies in /etc/redrive/console. */}}
{{- define "redrive.console.env" -}}
- {name: REDRIVE_CONSOLE_PORT, value: "9809"}
{{- range include "redrive.console.roles" . | fromJsonArray }}
- {name: REDRIVE_CONSOLE_{{ upper . }}_URL_FILE, value: /etc/redrive/console/{{ . }}/url}
{{- end }}
{{- with .Values.console }}
{{- with .url }}
- {name: REDRIVE_CONSOLE_URL, value: {{ . | quote }}}
{{- end }}
{{- with .groups }}
{{- $groups := list }}
{{- range $group, $role := . }}{{ $groups = append $groups (printf "%s=%s" $group $role) }}{{ end }}
- {name: REDRIVE_CONSOLE_GROUPS, value: {{ join "," $groups | quote }}}
{{- end }}
{{- if .tokens.existingSecret }}
- {name: REDRIVE_CONSOLE_TOKENS, value: /etc/redrive/console/tokens}
{{- end }}
{{- if .sessionKey.existingSecret }}
- {name: REDRIVE_CONSOLE_KEY_FILE, value: /etc/redrive/console/key}
{{- end }}
{{- with .oidc }}
{{- if .issuer }}
- {name: REDRIVE_CONSOLE_OIDC_ISSUER, value: {{ .issuer | quote }}}
- {name: REDRIVE_CONSOLE_OIDC_CLIENT_ID, value: {{ .clientId | quote }}}
{{- if .existingSecret }}
- {name: REDRIVE_CONSOLE_OIDC_CLIENT_SECRET_FILE, value: /etc/redrive/console/oidc/secret}
{{- end }}
{{- if .caConfigMap.name }}
- {name: SSL_CERT_FILE, value: /etc/redrive/console/oidc/ca.crt}
{{- end }}
- {name: REDRIVE_CONSOLE_OIDC_SCOPES, value: {{ .scopes | quote }}}
- {name: REDRIVE_CONSOLE_OIDC_USER_CLAIM, value: {{ .userClaim | quote }}}
- {name: REDRIVE_CONSOLE_OIDC_GROUPS_CLAIM, value: {{ .groupsClaim | quote }}}
{{- end }}
{{- end }}
{{- with .proxy }}
{{- if .addresses }}
- {name: REDRIVE_CONSOLE_PROXIES, value: {{ join "," .addresses | quote }}}
- {name: REDRIVE_CONSOLE_USER_HEADER, value: {{ .userHeader | quote }}}
- {name: REDRIVE_CONSOLE_GROUPS_HEADER, value: {{ .groupsHeader | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What lies there: logins, tokens, the key, the provider's secret. They may change while the console runs. */}}
{{- define "redrive.console.secrets" -}}
{{- range $role := include "redrive.console.roles" . | fromJsonArray }}
{{- $login := list $ (printf "console-%s" $role) }}
- secret:
    name: {{ include "redrive.database.secret" $login | quote }}
    items: [{key: {{ include "redrive.database.key" $login | quote }}, path: {{ $role }}/url}]
{{- end }}
{{- with .Values.console }}
{{- $files := list (list .tokens "tokens") (list .sessionKey "key") }}
{{- if .oidc.issuer }}{{ $files = append $files (list .oidc "oidc/secret") }}{{ end }}
{{- range $files }}
{{- $of := index . 0 }}
{{- if $of.existingSecret }}
- secret:
    name: {{ $of.existingSecret | quote }}
    items: [{key: {{ $of.key | quote }}, path: {{ index . 1 }}}]
{{- end }}
{{- end }}
{{- if and .oidc.issuer .oidc.caConfigMap.name }}
- configMap:
    name: {{ .oidc.caConfigMap.name | quote }}
    items: [{key: {{ .oidc.caConfigMap.key | quote }}, path: oidc/ca.crt}]
{{- end }}
{{- end }}
{{- end }}

{{/* The host of console.url. */}}
{{- define "redrive.console.host" -}}
{{- regexReplaceAll ":[0-9]+$" (regexReplaceAll "^https?://" .Values.console.url "") "" -}}
{{- end }}

{{/* A console that nobody could enter, or anybody. */}}
{{- define "redrive.validate.console" -}}
{{- $console := .Values.console -}}
{{- if $console.enabled -}}
{{- $roles := include "redrive.console.roles" . | fromJsonArray -}}
{{- if not (or $console.tokens.existingSecret $console.oidc.issuer $console.proxy.addresses) -}}
{{- fail "console.enabled is true and nobody could sign in; set console.tokens.existingSecret, or console.groups with console.oidc.issuer or console.proxy.addresses" -}}
{{- end -}}
{{- $cells := .Values.cells.existingSecret -}}
{{- range $role, $login := $console.logins -}}
{{- if and $cells (or $login.existingSecret $login.url) -}}
{{- fail (printf "console.logins.%s and cells.existingSecret are both set; the file of cells has the logins of the console in each" $role) -}}
{{- end -}}
{{- end -}}
{{- if not (or $roles $cells) -}}
{{- fail "console.logins: set existingSecret (or url) of viewer, operator or approver; a role without a login does not exist" -}}
{{- end -}}
{{- if and (or $console.oidc.issuer $console.proxy.addresses) (not $console.groups) -}}
{{- fail "console.groups is empty, and nobody of the provider or the proxy would have a role; set e.g. {oncall: operator}" -}}
{{- end -}}
{{- range $group, $role := $console.groups -}}
{{- if not (or $cells (has $role $roles)) -}}
{{- fail (printf "console.groups: %s is %s, and console.logins.%s is not set" $group $role $role) -}}
{{- end -}}
{{- end -}}
{{- if $console.oidc.issuer -}}
{{- if not $console.oidc.clientId -}}
{{- fail "console.oidc.clientId is not set; it is the console's name at the provider" -}}
{{- end -}}
{{- if not (regexMatch "^(https://|http://localhost(:|$))" $console.url) -}}
{{- fail "console.url: the OIDC provider sends people back there; set an address that begins with https://" -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int $console.replicas) 1) (not $console.sessionKey.existingSecret) -}}
{{- fail (printf "console.replicas is %d and console.sessionKey.existingSecret is not set; a session of one pod would be none at the next" (int $console.replicas)) -}}
{{- end -}}
{{- range $way := list "ingress" "httpRoute" -}}
{{- if and (index $console $way).enabled (not $console.url) -}}
{{- fail (printf "console.%s.enabled is true and console.url is not set; it names the host" $way) -}}
{{- end -}}
{{- end -}}
{{- if and $console.httpRoute.enabled (not $console.httpRoute.parentRefs) -}}
{{- fail "console.httpRoute.parentRefs is empty; name the Gateway that it belongs to" -}}
{{- end -}}
{{- end -}}
{{- end }}
