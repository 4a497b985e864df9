"""Every value of Karpenter's charts from 0.5 to 1.15, each with a value that differs from our default."""

from __future__ import annotations

from typing import Any

_ENV = [{"name": "A", "value": "b"}]
_TOLERATIONS = [{"key": "system", "operator": "Exists"}]
_NODE_AFFINITY = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 50,
                "preference": {"matchExpressions": [{"key": "eks.amazonaws.com/nodegroup", "operator": "Exists"}]},
            }
        ]
    }
}
_RESOURCES = {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}

NAMING: dict[str, Any] = {
    "nameOverride": "other",
    "fullnameOverride": "other",
    "additionalLabels": {"team": "platform"},
    "additionalAnnotations": {"owner": "platform"},
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "platform"},
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-extra"}}],
    "service.annotations": {"a": "b"},
    "revisionHistoryLimit": 3,
    "strategy.rollingUpdate.maxUnavailable": "50%",
    "additionalClusterRoleRules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    "serviceAccount.create": False,
    "serviceAccount.name": "other",
    "serviceAccount.annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/r"},
}
POD: dict[str, Any] = {
    "replicas": 1,
    "podDisruptionBudget.name": "other",
    "podDisruptionBudget.maxUnavailable": 2,
    "podSecurityContext.fsGroup": 1000,
    "podSecurityContext.runAsUser": 1000,
    "priorityClassName": "other",
    "terminationGracePeriodSeconds": 60,
    "hostNetwork": True,
    "schedulerName": "other",
    "dnsPolicy": "Default",
    "dnsConfig": {"nameservers": ["10.0.0.2"]},
    "initContainers": [{"name": "wait", "image": "busybox"}],
    "nodeSelector": {"pool": "system"},
    "affinity": _NODE_AFFINITY,
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "tolerations": _TOLERATIONS,
    "extraVolumes": [{"name": "token", "emptyDir": {}}],
}
CONTROLLER: dict[str, Any] = {
    "controller.containerName": "other",
    "controller.image": "public.example/controller:v0.25.0",
    "controller.image.repository": "public.example/controller",
    "controller.image.tag": "1.2.1",
    "controller.image.digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
    "controller.env": _ENV,
    "controller.envFrom": [{"configMapRef": {"name": "other"}}],
    "controller.resources": _RESOURCES,
    "controller.securityContext.appArmorProfile": {"type": "RuntimeDefault"},
    "controller.securityContext.seLinuxOptions": {"level": "s0"},
    "controller.securityContext.seccompProfile": {"type": "RuntimeDefault"},
    "controller.extraVolumeMounts": [{"name": "token", "mountPath": "/token"}],
    "controller.sidecarContainer": [{"name": "proxy", "image": "proxy"}],
    "controller.sidecarVolumeMounts": [{"name": "token", "mountPath": "/token"}],
    "controller.metrics.port": 8000,
    "controller.healthProbe.port": 8001,
    "controller.batchMaxDuration": "20s",
    "controller.batchIdleDuration": "2s",
    "controller.logLevel": "debug",
    "controller.logEncoding": "console",
    "controller.outputPaths": ["/dev/null"],
    "controller.errorOutputPaths": ["/dev/null"],
    "controller.affinity": _NODE_AFFINITY,
    "controller.nodeSelector": {"pool": "system"},
    "controller.tolerations": _TOLERATIONS,
    "controller.replicas": 1,
    "controller.clusterName": "demo",
    "controller.clusterEndpoint": "https://demo.example",
}
LOGGING: dict[str, Any] = {
    "logLevel": "debug",
    "logEncoding": "console",
    "logOutputPaths": ["/dev/null"],
    "logErrorOutputPaths": ["/dev/null"],
    "logConfig.enabled": True,
    "logConfig.outputPaths": ["/dev/null"],
    "logConfig.errorOutputPaths": ["/dev/null"],
    "logConfig.logEncoding": "console",
    "logConfig.logLevel.global": "debug",
    "logConfig.logLevel.controller": "debug",
    "logConfig.logLevel.webhook": "error",
}
OLDEST: dict[str, Any] = {
    "clusterName": "demo",
    "clusterEndpoint": "https://demo.example",
    "aws.defaultInstanceProfile": "KarpenterNodeInstanceProfile-demo",
    "aws.enablePodENI": False,
}
OLDER: dict[str, Any] = {
    "settings.aws.assumeRoleARN": "arn:aws:iam::111122223333:role/r",
    "settings.aws.assumeRoleDuration": "15m",
    "settings.aws.clusterCABundle": "Y2E=",
    "settings.aws.clusterName": "demo",
    "settings.aws.clusterEndpoint": "https://demo.example",
    "settings.aws.defaultInstanceProfile": "KarpenterNodeInstanceProfile-demo",
    "settings.aws.enablePodENI": False,
    "settings.aws.enableENILimitedPodDensity": False,
    "settings.aws.interruptionQueueName": "demo",
    "settings.aws.isolatedVPC": True,
    "settings.aws.nodeNameConvention": "resource-name",
    "settings.aws.tags": {"team": "platform"},
    "settings.aws.vmMemoryOverheadPercent": 0.05,
    "settings.featureGates.driftEnabled": False,
}
SETTINGS: dict[str, Any] = {
    "settings.assumeRoleARN": "arn:aws:iam::111122223333:role/r",
    "settings.assumeRoleDuration": "15m",
    "settings.batchMaxDuration": "20s",
    "settings.batchIdleDuration": "2s",
    "settings.clusterCABundle": "Y2E=",
    "settings.clusterName": "demo",
    "settings.clusterEndpoint": "https://demo.example",
    "settings.isolatedVPC": True,
    "settings.eksControlPlane": True,
    "settings.vmMemoryOverheadPercent": 0,
    "settings.interruptionQueue": "demo",
    "settings.reservedENIs": "1",
    "settings.preferencePolicy": "Ignore",
    "settings.minValuesPolicy": "BestEffort",
    "settings.enableZonalShift": True,
    "settings.ignoreDRARequests": False,
    "settings.disableClusterStateObservability": True,
    "settings.disableDryRun": True,
    "settings.amiRefreshInterval": "5m",
    "settings.subnetRefreshInterval": "5m",
    "settings.featureGates.drift": False,
    "settings.featureGates.spotToSpotConsolidation": True,
    "settings.featureGates.nodeRepair": True,
    "settings.featureGates.reservedCapacity": False,
    "settings.featureGates.nodeOverlay": True,
    "settings.featureGates.staticCapacity": True,
    "settings.featureGates.StaticCapacity": True,
    "settings.featureGates.capacityBuffer": True,
    "settings.featureGates.terminateFirstDrift": True,
    "settings.featureGates.terminateFirstRepair": True,
    "settings.featureGates.podDeletionCostManagement": True,
    "settings.awsFeatureGates.nodeClassCEL": True,
}
WEBHOOK: dict[str, Any] = {
    "webhook.enabled": True,
    "webhook.port": 9443,
    "webhook.metrics.port": 8001,
    "webhook.image": "public.example/webhook:v0.25.0",
    "webhook.env": _ENV,
    "webhook.resources": _RESOURCES,
    "webhook.resources.requests.cpu": "1",
    "webhook.resources.requests.memory": "1Gi",
    "webhook.resources.limits.cpu": "1",
    "webhook.resources.limits.memory": "1Gi",
    "webhook.securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    "webhook.extraVolumeMounts": [{"name": "token", "mountPath": "/token"}],
    "webhook.logLevel": "debug",
    "webhook.logEncoding": "console",
    "webhook.replicas": 3,
    "webhook.affinity": _NODE_AFFINITY,
    "webhook.nodeSelector": {"pool": "system"},
    "webhook.tolerations": _TOLERATIONS,
    "webhook.hostNetwork": True,
    "postInstallHook.image.repository": "public.example/kubectl",
    "postInstallHook.image.tag": "1.30",
    "postInstallHook.image.digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000",
}
MONITORING: dict[str, Any] = {
    "serviceMonitor.enabled": True,
    "serviceMonitor.additionalLabels": {"release": "prometheus"},
    "serviceMonitor.relabelings": [{"action": "drop"}],
    "serviceMonitor.metricRelabelings": [{"action": "drop"}],
    "serviceMonitor.endpointConfig": {"interval": "30s"},
    "serviceMonitor.sampleLimit": 50000,
}
#: One after another, as `--set` or a values file would say them.
ALL: dict[str, Any] = {**NAMING, **POD, **CONTROLLER, **LOGGING, **OLDEST, **OLDER, **SETTINGS, **WEBHOOK, **MONITORING}
#: What only shows together with another value.
WITH: dict[str, dict[str, Any]] = {
    **{path: {"webhook.enabled": True} for path in WEBHOOK if path != "webhook.enabled"},
    **{path: {"serviceMonitor.enabled": True} for path in MONITORING if path != "serviceMonitor.enabled"},
    "controller.sidecarVolumeMounts": {"controller.sidecarContainer": [{"name": "proxy", "image": "proxy"}]},
}
#: Said in a value that holds in any case: nothing changes, and nothing need be said.
ALREADY_SO = frozenset({"logConfig.logLevel.webhook"})


def nested(paths: dict[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    values: dict[str, Any] = {}
    for path, value in paths.items():
        *folders, last = path.split(".")
        inner = values
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = value
    return values
