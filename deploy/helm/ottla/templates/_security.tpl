{{- /* What every pod has: no root, no privileges, nothing writable but its volumes. */ -}}
{{- define "ottla.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "ottla.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
{{- define "ottla.probe" -}}
exec: {command: [python, -c, "import urllib.request as u; u.urlopen('{{ . }}', timeout=4)"]}
timeoutSeconds: 5
{{- end }}
{{- /* Refuses values that would leave something open without a word of it. */ -}}
{{- define "ottla.checked" -}}
{{- if not .Values.allowOpen }}
{{- if not (and .Values.tls.existingSecret .Values.auth.existingSecret) }}
{{- fail "set tls.existingSecret and auth.existingSecret, or allowOpen=true when the network is closed" }}
{{- end }}
{{- if and .Values.console.enabled (not (and .Values.console.usersSecret .Values.console.clientSecret)) }}
{{- fail "set console.usersSecret and console.clientSecret, or console.enabled=false, or allowOpen=true when the network is closed" }}
{{- end }}
{{- end }}
{{- if not (has .Values.antiAffinity (list "soft" "hard" "none")) }}
{{- fail "antiAffinity is soft, hard or none" }}
{{- end }}
{{- if .Values.external.enabled }}
{{- if not (has .Values.external.type (list "NodePort" "LoadBalancer")) }}
{{- fail "external.type is NodePort or LoadBalancer" }}
{{- end }}
{{- if and (eq .Values.external.type "NodePort") (not .Values.external.host) }}
{{- fail "set external.host: the address by which clients outside reach the node ports" }}
{{- end }}
{{- if and (eq .Values.external.type "LoadBalancer") (not .Values.external.domain) }}
{{- fail "set external.domain: clients outside reach the pods as POD.DOMAIN" }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.properties }}
{{- if regexMatch "password|jaas|secret|keystore.key" $name }}
{{- fail (printf "properties.%s is a secret: put it into auth.properties of auth.existingSecret" $name) }}
{{- end }}
{{- end }}
{{- end }}
