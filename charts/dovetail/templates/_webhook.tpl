{{/* "true", or nothing. */}}
{{- define "dovetail.webhookEnabled" -}}
{{- if eq (toString (default dict .Values.webhook).enabled) "true" }}true{{ end }}
{{- end }}

{{/* The container that converts between API versions; it makes and renews its own certificate. */}}
{{- define "dovetail.webhookContainer" -}}
{{- $webhook := .Values.webhook }}
{{- $image := default .Values.controller.image $webhook.image }}
- name: webhook
  image: {{ include "dovetail.image" (dict "image" $image "appVersion" .Chart.AppVersion) | quote }}
  imagePullPolicy: {{ .Values.imagePullPolicy }}
  args:
    - webhook
    - --service={{ .Release.Namespace }}/{{ include "dovetail.fullname" . }}-webhook
    - --port={{ default 8443 $webhook.port }}
  securityContext:
    {{- include "dovetail.securityContext" (dict "securityContext" $webhook.securityContext) | nindent 4 }}
  {{- with $webhook.env }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ports:
    - name: https-webhook
      containerPort: {{ default 8443 $webhook.port }}
      protocol: TCP
  readinessProbe:
    httpGet:
      path: /healthz
      port: https-webhook
      scheme: HTTPS
  livenessProbe:
    initialDelaySeconds: 30
    httpGet:
      path: /healthz
      port: https-webhook
      scheme: HTTPS
  {{- with $webhook.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    {{- with $webhook.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
