{{/*
Values of Karpenter's charts that change nothing here: path, what may be said without a word (the value that already
holds), and why. NOTES.txt names those that were set to anything else.
*/}}
{{- define "dovetail.withoutEffect" -}}
settings.aws.enablePodENI: {holds: "true", why: "branch interfaces for security groups of pods are always counted"}
settings.aws.enableENILimitedPodDensity: {holds: "true", why: "pod density follows the network interfaces unless the EC2NodeClass sets spec.kubelet.maxPods"}
settings.aws.nodeNameConvention: {holds: "ip-name", why: "nodes are found by provider id, whatever their names"}
settings.featureGates.drift: {holds: "true", why: "drift is always found; a disruption budget with nodes 0 and reason Drifted stops the replacement"}
settings.featureGates.driftEnabled: {holds: "true", why: "drift is always found; a disruption budget with nodes 0 and reason Drifted stops the replacement"}
settings.awsFeatureGates.nodeClassCEL: {holds: "false", why: "selector terms in CEL are not read"}
settings.enableZonalShift: {holds: "false", why: "a zonal shift does not move launches out of the zone; restrict topology.kubernetes.io/zone in the NodePools during a shift"}
settings.featureGates.capacityBuffer: {holds: "false", why: "CapacityBuffers are stored and not acted on; keep headroom with a Deployment of low priority"}
settings.ignoreDRARequests: {holds: "true", why: "pods with resource claims are left to the scheduler"}
logConfig.enabled: {holds: "*", why: ""}
logConfig.logLevel.webhook: {holds: "*", why: ""}
webhook.logEncoding: {holds: "json", why: "log lines are JSON"}
webhook.logLevel: {holds: "*", why: ""}
webhook.metrics: {holds: "", why: "the webhook serves no metrics of its own"}
webhook.replicas: {holds: "", why: "the webhook is a container of the controller's pods; set replicas"}
webhook.affinity: {holds: "", why: "the webhook is a container of the controller's pods; set affinity"}
webhook.nodeSelector: {holds: "", why: "the webhook is a container of the controller's pods; set nodeSelector"}
webhook.tolerations: {holds: "", why: "the webhook is a container of the controller's pods; set tolerations"}
webhook.hostNetwork: {holds: "false", why: "the webhook is a container of the controller's pods; set hostNetwork"}
postInstallHook.image: {holds: "", why: "no Job runs after the installation: the webhook writes its certificate itself"}
{{- end }}

{{/* One line for each value that was set and changes nothing. */}}
{{- define "dovetail.remarks" -}}
{{- $entries := include "dovetail.withoutEffect" . | fromYaml }}
{{- range $path, $entry := $entries }}
{{- $value := $.Values }}
{{- range $step := splitList "." $path }}
{{- $value = ternary (get (ternary $value dict (kindIs "map" $value)) $step) "" (kindIs "map" $value) }}
{{- end }}
{{- if and $value (ne $entry.holds "*") (ne (toString $value) $entry.holds) }}
* {{ $path }} = {{ toString $value }} has no effect: {{ $entry.why }}.
{{- end }}
{{- if and (eq (toString $value) "false") (kindIs "bool" $value) (ne $entry.holds "*") (ne $entry.holds "false") (ne $entry.holds "") }}
* {{ $path }} = false has no effect: {{ $entry.why }}.
{{- end }}
{{- end }}
{{- range $path, $names := include "dovetail.names" . | fromYaml }}
{{- $values := ternary $.Values (get $.Values $path) (eq $path "values") }}
{{- range $key, $_ := ternary $values dict (kindIs "map" $values) }}
{{- if not (has $key $names) }}
* {{ ternary "" (printf "%s." $path) (eq $path "values") }}{{ $key }} is no value of this chart and has no effect.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The names that are read, so that a misspelt one does not pass unnoticed. */}}
{{- define "dovetail.names" -}}
values: [additionalAnnotations, additionalClusterRoleRules, additionalLabels, affinity, alerts, aws, clusterEndpoint, clusterName, controller, dashboard, dashboards, dnsConfig, dnsPolicy, extraObjects, extraVolumes, flowSchemas, fullnameOverride, global, hostNetwork, imagePullPolicy, imagePullSecrets, initContainers, logConfig, logEncoding, logErrorOutputPaths, logLevel, logOutputPaths, nameOverride, networkPolicy, nodeSelector, podAnnotations, podDisruptionBudget, podLabels, podSecurityContext, postInstallHook, priorityClassName, replicas, revisionHistoryLimit, schedulerName, service, serviceAccount, serviceMonitor, settings, strategy, terminationGracePeriodSeconds, tolerations, topologySpreadConstraints, vpa, webhook]
controller: [affinity, batchIdleDuration, batchMaxDuration, clusterEndpoint, clusterName, containerName, env, envFrom, errorOutputPaths, extraArgs, extraVolumeMounts, healthProbe, image, logEncoding, logLevel, metrics, nodeSelector, outputPaths, replicas, resources, securityContext, sidecarContainer, sidecarVolumeMounts, tolerations]
settings: [amiRefreshInterval, assumeRoleARN, assumeRoleDuration, aws, awsFeatureGates, batchIdleDuration, batchMaxDuration, clusterCABundle, clusterEndpoint, clusterName, defaultInstanceProfile, disableClusterStateObservability, disableDryRun, disableLeaderElection, dryRun, ec2Share, eksControlPlane, enableProfiling, enableZonalShift, featureGates, history, ignoreDRARequests, interruptionQueue, isolatedVPC, kubeClientBurst, kubeClientQPS, launchTimeout, legacyNodeRepair, minValuesPolicy, place, placeSchedulers, planDeadline, preferencePolicy, profilingPort, registrationTimeout, reservedENIs, schedulerConfig, subnetRefreshInterval, tags, vmMemoryOverheadPercent]
{{- end }}
