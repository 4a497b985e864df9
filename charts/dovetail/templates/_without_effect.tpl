{{/*
Values of Karpenter's charts that change nothing here: path, what may be said without a word (the value that already
holds), and why. With `needs` they change something only while that value is true. NOTES.txt names those that were set
to anything else.
*/}}
{{- define "dovetail.withoutEffect" -}}
aws.enablePodENI: {holds: "true", why: "branch interfaces for security groups of pods are always counted"}
settings.aws.enablePodENI: {holds: "true", why: "branch interfaces for security groups of pods are always counted"}
settings.aws.enableENILimitedPodDensity: {holds: "true", why: "pod density follows the network interfaces unless the EC2NodeClass sets spec.kubelet.maxPods"}
settings.aws.nodeNameConvention: {holds: "ip-name", why: "nodes are found by provider id, whatever their names"}
settings.featureGates.drift: {holds: "true", why: "drift is always found; a disruption budget with nodes 0 and reason Drifted stops the replacement"}
settings.featureGates.driftEnabled: {holds: "true", why: "drift is always found; a disruption budget with nodes 0 and reason Drifted stops the replacement"}
settings.awsFeatureGates.nodeClassCEL: {holds: "false", why: "selector terms in CEL are not read"}
settings.enableZonalShift: {holds: "false", why: "a zonal shift does not move launches out of the zone; restrict topology.kubernetes.io/zone in the NodePools during a shift"}
settings.featureGates.capacityBuffer: {holds: "false", why: "CapacityBuffers are stored and not acted on; keep headroom with a Deployment of low priority"}
settings.ignoreDRARequests: {holds: "true", why: "pods with resource claims are left to the scheduler"}
logConfig.enabled: {holds: "false", why: "no ConfigMap is mounted; the other values of logConfig are set as environment variables"}
logConfig.logLevel.webhook: {holds: "error", why: "the webhook writes its errors and nothing else"}
webhook.logEncoding: {holds: "", why: "the webhook writes its errors as plain lines"}
webhook.logLevel: {holds: "error", why: "the webhook writes its errors and nothing else"}
webhook.metrics: {holds: "", why: "the webhook serves no metrics of its own"}
webhook.replicas: {holds: "", why: "the webhook is a container of the controller's pods; set replicas"}
webhook.affinity: {holds: "", why: "the webhook is a container of the controller's pods; set affinity"}
webhook.nodeSelector: {holds: "", why: "the webhook is a container of the controller's pods; set nodeSelector"}
webhook.tolerations: {holds: "", why: "the webhook is a container of the controller's pods; set tolerations"}
webhook.hostNetwork: {holds: "false", why: "the webhook is a container of the controller's pods; set hostNetwork"}
webhook.env: {holds: "", needs: webhook.enabled}
webhook.extraVolumeMounts: {holds: "", needs: webhook.enabled}
webhook.image: {holds: "", needs: webhook.enabled}
webhook.port: {holds: "8443", needs: webhook.enabled}
webhook.resources: {holds: "", needs: webhook.enabled}
webhook.securityContext: {holds: "", needs: webhook.enabled}
serviceMonitor.additionalLabels: {holds: "", needs: serviceMonitor.enabled}
serviceMonitor.endpointConfig: {holds: "", needs: serviceMonitor.enabled}
serviceMonitor.metricRelabelings: {holds: "", needs: serviceMonitor.enabled}
serviceMonitor.relabelings: {holds: "", needs: serviceMonitor.enabled}
serviceMonitor.sampleLimit: {holds: "", needs: serviceMonitor.enabled}
networkPolicy.metricsFrom: {holds: "", needs: networkPolicy.enabled}
alerts.additionalLabels: {holds: "", needs: alerts.enabled}
controller.sidecarVolumeMounts: {holds: "", needs: controller.sidecarContainer}
postInstallHook.image: {holds: "", why: "no Job runs after the installation: the webhook writes its certificate itself"}
{{- end }}

{{/* The value at a path, as JSON in a map: {"value": ...}; without it where there is none. */}}
{{- define "dovetail.valueAt" -}}
{{- $value := .values }}
{{- range $step := splitList "." .path }}
{{- $value = ternary (get (ternary $value dict (kindIs "map" $value)) $step) "" (kindIs "map" $value) }}
{{- end }}
{{- toJson (dict "value" $value) }}
{{- end }}

{{/* One line for each value that was set and changes nothing. */}}
{{- define "dovetail.remarks" -}}
{{- range $path, $entry := include "dovetail.withoutEffect" . | fromYaml }}
{{- $value := get (include "dovetail.valueAt" (dict "values" $.Values "path" $path) | fromJson) "value" }}
{{- $shown := ternary (toJson $value) (toString $value) (or (kindIs "map" $value) (kindIs "slice" $value)) }}
{{- $said := and (ne $shown $entry.holds) (or $value (and (kindIs "bool" $value) (ne $entry.holds ""))) }}
{{- $why := $entry.why }}
{{- with $entry.needs }}
{{- $switch := get (include "dovetail.valueAt" (dict "values" $.Values "path" .) | fromJson) "value" }}
{{- $why = printf "%s is %s" . (ternary "empty" "not true" (or (kindIs "map" $switch) (kindIs "slice" $switch))) }}
{{- if and $switch (ne (toString $switch) "false") }}
{{- $said = false }}
{{- end }}
{{- end }}
{{- if $said }}
* {{ $path }} = {{ $shown }} has no effect: {{ $why }}.
{{- end }}
{{- end }}
{{- range $name, $image := dict "controller.image" .Values.controller.image "webhook.image" (default dict .Values.webhook).image }}
{{- $reference := include "dovetail.reference" (dict "image" $image "appVersion" "") }}
{{- if include "dovetail.isKarpenters" $reference }}
* {{ $name }} = {{ $reference }} has no effect: it is an image of Karpenter; Dovetail's own runs.
{{- end }}
{{- end }}
{{- range $path, $names := include "dovetail.names" . | fromYaml }}
{{- $values := $.Values }}
{{- if ne $path "values" }}
{{- $values = get (include "dovetail.valueAt" (dict "values" $.Values "path" $path) | fromJson) "value" }}
{{- end }}
{{- range $key, $_ := ternary $values dict (kindIs "map" $values) }}
{{- if not (has $key $names) }}
* {{ ternary "" (printf "%s." $path) (eq $path "values") }}{{ $key }} is no value of this chart and has no effect.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
