"""Settings of Karpenter 0.19 to 0.31, which their chart keeps in a ConfigMap and not in the environment."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import CONFIGMAPS

NAME = "karpenter-global-settings"
#: Keys of the ConfigMap by the variables that later charts set.
_VARIABLES: Mapping[str, str] = {
    "aws.clusterName": "CLUSTER_NAME",
    "aws.clusterEndpoint": "CLUSTER_ENDPOINT",
    "aws.clusterCABundle": "CLUSTER_CA_BUNDLE",
    "aws.interruptionQueueName": "INTERRUPTION_QUEUE",
    "aws.isolatedVPC": "ISOLATED_VPC",
    "aws.reservedENIs": "RESERVED_ENIS",
    "aws.vmMemoryOverheadPercent": "VM_MEMORY_OVERHEAD_PERCENT",
    "batchIdleDuration": "BATCH_IDLE_DURATION",
    "batchMaxDuration": "BATCH_MAX_DURATION",
}


async def variables(kube: Kube, namespace: str) -> dict[str, str]:
    """The settings of the ConfigMap as environment variables; none where there is none, or it cannot be read."""
    try:
        data = (await kube.get(CONFIGMAPS, NAME, namespace)).get("data") or {}
    except KubeError:
        return {}
    return {variable: data[key] for key, variable in _VARIABLES.items() if data.get(key)}
