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

{{/* The image that a value names: a reference, or repository, tag and digest. A digest wins over a tag. */}}
{{- define "dovetail.reference" -}}
{{- $image := default dict .image }}
{{- if kindIs "string" $image }}
{{- $image }}
{{- else if $image.digest }}
{{- printf "%s@%s" (default "dovetail/controller" $image.repository) $image.digest }}
{{- else }}
{{- printf "%s:%v" (default "dovetail/controller" $image.repository) (default .appVersion $image.tag) }}
{{- end }}
{{- end }}

{{/* The same, or ours: values of a Karpenter release name Karpenter's own images, which are other programs. */}}
{{- define "dovetail.image" -}}
{{- $reference := include "dovetail.reference" . }}
{{- if include "dovetail.isKarpenters" $reference }}
{{- include "dovetail.reference" (dict "image" dict "appVersion" .appVersion) }}
{{- else }}
{{- $reference }}
{{- end }}
{{- end }}

{{- define "dovetail.isKarpenters" -}}
{{- if or (contains "karpenter/controller" .) (contains "karpenter/webhook" .) }}true{{ end }}
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

{{/* A container's security context: ours, with what is given over it. */}}
{{- define "dovetail.securityContext" -}}
{{- $context := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- range $field, $value := default dict .securityContext }}
{{- if or $value (not (or (kindIs "map" $value) (kindIs "invalid" $value))) }}
{{- $_ := set $context $field $value }}
{{- end }}
{{- end }}
{{- toYaml $context }}
{{- end }}
