{{/* The label app.kubernetes.io/name. */}}
{{- define "dovetail.name" -}}
{{- default "karpenter" .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name of every object: the release's. */}}
{{- define "dovetail.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "dovetail.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "dovetail.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "dovetail.selectorLabels" -}}
app.kubernetes.io/name: {{ include "dovetail.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dovetail.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "dovetail.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels and annotations of an object's metadata. */}}
{{- define "dovetail.meta" -}}
labels:
  {{- include "dovetail.labels" . | nindent 2 }}
{{- with .Values.additionalAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* An image: a reference, or repository, tag and digest. A digest wins over a tag. */}}
{{- define "dovetail.image" -}}
{{- $image := .image }}
{{- if kindIs "string" $image }}
{{- $image }}
{{- else if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%v" $image.repository (default .appVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* Affinity, with the replicas' own selector in pod terms that have none. */}}
{{- define "dovetail.affinity" -}}
{{- $labels := include "dovetail.selectorLabels" . | fromYaml }}
{{- $affinity := mergeOverwrite (dict) (deepCopy (default dict .Values.affinity)) (deepCopy (default dict .Values.controller.affinity)) }}
{{- range $kind := list "podAffinity" "podAntiAffinity" }}
{{- $terms := default dict (get $affinity $kind) }}
{{- range $term := default list $terms.requiredDuringSchedulingIgnoredDuringExecution }}
{{- if not (hasKey $term "labelSelector") }}
{{- $_ := set $term "labelSelector" (dict "matchLabels" $labels) }}
{{- end }}
{{- end }}
{{- range $weighted := default list $terms.preferredDuringSchedulingIgnoredDuringExecution }}
{{- if not (hasKey $weighted.podAffinityTerm "labelSelector") }}
{{- $_ := set $weighted.podAffinityTerm "labelSelector" (dict "matchLabels" $labels) }}
{{- end }}
{{- end }}
{{- end }}
{{- if $affinity }}
{{- toYaml $affinity }}
{{- end }}
{{- end }}

{{- define "dovetail.topologySpreadConstraints" -}}
{{- $labels := include "dovetail.selectorLabels" . | fromYaml }}
{{- $constraints := deepCopy (default list .Values.topologySpreadConstraints) }}
{{- range $constraint := $constraints }}
{{- if not (hasKey $constraint "labelSelector") }}
{{- $_ := set $constraint "labelSelector" (dict "matchLabels" $labels) }}
{{- end }}
{{- end }}
{{- if $constraints }}
{{- toYaml $constraints }}
{{- end }}
{{- end }}

{{/* The container's security context: fixed, but for what differs between nodes. */}}
{{- define "dovetail.securityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- range $part := list "appArmorProfile" "seLinuxOptions" "seccompProfile" }}
{{- with get (default dict $.securityContext) $part }}
{{ $part }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
