{{- define "sibyl.name" -}}
{{- if contains "sibyl" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-sibyl{{ end }}
{{- end }}

{{- define "sibyl.selector" -}}
app.kubernetes.io/name: sibyl
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sibyl.labels" -}}
{{ include "sibyl.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
