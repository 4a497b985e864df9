{{/*
The controller's environment. Each variable takes the first value that is there: today's name, that of Karpenter
0.19 to 0.31 (`settings.aws`), that of 0.5 to 0.16 (top level or `controller`). Of the values for logs the narrower one
counts, as there: `controller`, then `logConfig` unless it is disabled, then the top level.
*/}}
{{- define "dovetail.settings" -}}
{{- $settings := default dict .Values.settings }}
{{- $aws := default dict $settings.aws }}
{{- $old := default dict .Values.aws }}
{{- $controller := .Values.controller }}
{{- $log := default dict .Values.logConfig }}
{{- if eq (toString $log.enabled) "false" }}
{{- $log = dict }}
{{- end }}
{{- $logLevels := default dict $log.logLevel }}
{{- if not (kindIs "map" $logLevels) }}
{{- $logLevels = dict "global" $logLevels }}
{{- end }}
{{- $gates := include "dovetail.featureGates" . }}
{{- $level := coalesce $controller.logLevel $logLevels.controller $logLevels.global .Values.logLevel "info" }}
CLUSTER_NAME: {{ coalesce $settings.clusterName $aws.clusterName .Values.clusterName $controller.clusterName | default "" | toString | quote }}
CLUSTER_ENDPOINT: {{ coalesce $settings.clusterEndpoint $aws.clusterEndpoint .Values.clusterEndpoint $controller.clusterEndpoint | default "" | toString | quote }}
CLUSTER_CA_BUNDLE: {{ coalesce $settings.clusterCABundle $aws.clusterCABundle | default "" | toString | quote }}
INTERRUPTION_QUEUE: {{ coalesce $settings.interruptionQueue $aws.interruptionQueueName | default "" | toString | quote }}
DEFAULT_INSTANCE_PROFILE: {{ coalesce $settings.defaultInstanceProfile $aws.defaultInstanceProfile $old.defaultInstanceProfile | default "" | toString | quote }}
ISOLATED_VPC: {{ coalesce $settings.isolatedVPC $aws.isolatedVPC | default false | toString | quote }}
EKS_CONTROL_PLANE: {{ default false $settings.eksControlPlane | toString | quote }}
ASSUME_ROLE_ARN: {{ coalesce $settings.assumeRoleARN $aws.assumeRoleARN | default "" | toString | quote }}
ASSUME_ROLE_DURATION: {{ coalesce $settings.assumeRoleDuration $aws.assumeRoleDuration | default "" | toString | quote }}
{{- $tags := coalesce $settings.tags $aws.tags }}
AWS_TAGS: {{ ternary (toJson $tags) "" (not (empty $tags)) | quote }}
EC2_SHARE: {{ get $settings "ec2Share" | toString | quote }}
VM_MEMORY_OVERHEAD_PERCENT: {{ coalesce (get $settings "vmMemoryOverheadPercent" | toString) (get $aws "vmMemoryOverheadPercent" | toString) | default "" | quote }}
RESERVED_ENIS: {{ default "" $settings.reservedENIs | toString | quote }}
BATCH_MAX_DURATION: {{ coalesce $settings.batchMaxDuration $controller.batchMaxDuration | default "" | toString | quote }}
BATCH_IDLE_DURATION: {{ coalesce $settings.batchIdleDuration $controller.batchIdleDuration | default "" | toString | quote }}
PREFERENCE_POLICY: {{ default "" $settings.preferencePolicy | quote }}
MIN_VALUES_POLICY: {{ default "" $settings.minValuesPolicy | quote }}
DISABLE_CLUSTER_STATE_OBSERVABILITY: {{ default false $settings.disableClusterStateObservability | toString | quote }}
DISABLE_DRY_RUN: {{ default false $settings.disableDryRun | toString | quote }}
AMI_REFRESH_INTERVAL: {{ default "" $settings.amiRefreshInterval | toString | quote }}
SUBNET_REFRESH_INTERVAL: {{ default "" $settings.subnetRefreshInterval | toString | quote }}
PLACE: {{ default "" $settings.place | quote }}
PLACE_SCHEDULERS: {{ default list $settings.placeSchedulers | join "," | quote }}
PLAN_DEADLINE: {{ default "" $settings.planDeadline | quote }}
LAUNCH_TIMEOUT: {{ default "" $settings.launchTimeout | quote }}
REGISTRATION_TIMEOUT: {{ default "" $settings.registrationTimeout | quote }}
LEGACY_NODE_REPAIR: {{ default false $settings.legacyNodeRepair | toString | quote }}
DRY_RUN: {{ default false $settings.dryRun | toString | quote }}
HISTORY: {{ default "" $settings.history | quote }}
KUBE_CLIENT_QPS: {{ default "" $settings.kubeClientQPS | toString | quote }}
KUBE_CLIENT_BURST: {{ default "" $settings.kubeClientBurst | toString | quote }}
ENABLE_PROFILING: {{ default false $settings.enableProfiling | toString | quote }}
PROFILING_PORT: {{ default "" $settings.profilingPort | toString | quote }}
DISABLE_LEADER_ELECTION: {{ default false $settings.disableLeaderElection | toString | quote }}
SCHEDULER_CONFIG: {{ default "" $settings.schedulerConfig | quote }}
FEATURE_GATES: {{ $gates | quote }}
LOG_LEVEL: {{ $level | quote }}
LOG_ENCODING: {{ coalesce $controller.logEncoding $log.logEncoding .Values.logEncoding "json" | quote }}
LOG_OUTPUT_PATHS: {{ coalesce $controller.outputPaths $log.outputPaths .Values.logOutputPaths | default (list "stdout") | join "," | quote }}
LOG_ERROR_OUTPUT_PATHS: {{ coalesce $controller.errorOutputPaths $log.errorOutputPaths .Values.logErrorOutputPaths | default (list "stderr") | join "," | quote }}
METRICS_PORT: {{ default dict $controller.metrics | dig "port" 8080 | toString | quote }}
HEALTH_PROBE_PORT: {{ default dict $controller.healthProbe | dig "port" 8081 | toString | quote }}
LEADER_ELECTION_NAMESPACE: {{ .Release.Namespace | quote }}
{{- end }}

{{/* NodeRepair=true,... of the gates that were set, in a fixed order. */}}
{{- define "dovetail.featureGates" -}}
{{- $given := default dict (default dict .Values.settings).featureGates }}
{{- $gates := list }}
{{- range $name := list "nodeRepair" "nodeOverlay" "reservedCapacity" "spotToSpotConsolidation" "staticCapacity" "capacityBuffer" "terminateFirstDrift" "terminateFirstRepair" "podDeletionCostManagement" }}
{{- range $key := list $name (title $name) }}
{{- if hasKey $given $key }}
{{- $gates = append $gates (printf "%s=%v" (title $name) (get $given $key)) }}
{{- end }}
{{- end }}
{{- end }}
{{- join "," $gates }}
{{- end }}
