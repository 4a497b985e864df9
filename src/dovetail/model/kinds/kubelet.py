"""The kubelet's settings: on the node class in v1, on the pool before that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from dovetail.model.kinds.schema import QUANTITY, Field, SchemaRule
from dovetail.model.meta import View

SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
)
RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")
THRESHOLD = (
    r"^((\d{1,2}(\.\d{1,2})?|100(\.0{1,2})?)%||(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?)$"
)


def _signals(field: str) -> SchemaRule:
    listed = "[" + ",".join(f"'{signal}'" for signal in SIGNALS) + "]"
    return SchemaRule(
        f"self.all(x, x in {listed})",
        f"valid keys for {field} are {listed}",
        lambda value: all(key in SIGNALS for key in value),
    )


def _reserved(field: str, text: str) -> Field:
    listed = "[" + ",".join(f"'{name}'" for name in RESERVABLE) + "]"
    either = " || ".join(f"x=='{name}'" for name in RESERVABLE)
    return Field(
        text,
        each=Field(pattern=QUANTITY),
        rules=(
            SchemaRule(
                f"self.all(x, {either})",
                f"valid keys for {field} are {listed}",
                lambda value: all(key in RESERVABLE for key in value),
            ),
            SchemaRule(
                "self.all(x, !self[x].startsWith('-'))",
                f"{field} value cannot be a negative resource quantity",
                lambda value: not any(amount.startswith("-") for amount in value.values()),
            ),
        ),
    )


class Kubelet(View, frozen=True, kw_only=True):
    """Settings of the node's agent that decide how many pods fit and when they are evicted."""

    cluster_dns: Annotated[tuple[str, ...] | None, Field("Addresses of the cluster's DNS servers.")] = msgspec.field(
        default=None, name="clusterDNS"
    )
    max_pods: Annotated[int | None, Field("The most pods a node runs.", format="int32", minimum=0)] = None
    pods_per_core: Annotated[
        int | None, Field("The most pods a node runs for each core, within maxPods.", format="int32", minimum=0)
    ] = None
    system_reserved: Annotated[
        Mapping[str, str] | None, _reserved("systemReserved", "Kept back for the operating system.")
    ] = None
    kube_reserved: Annotated[
        Mapping[str, str] | None, _reserved("kubeReserved", "Kept back for Kubernetes' own agents.")
    ] = None
    eviction_hard: Annotated[
        Mapping[str, str] | None,
        Field(
            "Thresholds at which pods are evicted at once.",
            each=Field(pattern=THRESHOLD),
            rules=(_signals("evictionHard"),),
        ),
    ] = None
    eviction_soft: Annotated[
        Mapping[str, str] | None,
        Field(
            "Thresholds at which pods are evicted after a grace period.",
            each=Field(pattern=THRESHOLD),
            rules=(_signals("evictionSoft"),),
        ),
    ] = None
    eviction_soft_grace_period: Annotated[
        Mapping[str, str] | None,
        Field("Grace period of each soft threshold.", rules=(_signals("evictionSoftGracePeriod"),)),
    ] = None
    eviction_max_pod_grace_period: Annotated[
        int | None, Field("Longest grace, in seconds, for a pod that a soft threshold evicts.", format="int32")
    ] = None
    image_gc_high_threshold_percent: Annotated[
        int | None,
        Field("Disk use at which unused images begin to be removed.", format="int32", minimum=0, maximum=100),
    ] = msgspec.field(default=None, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: Annotated[
        int | None,
        Field("Disk use down to which unused images are removed.", format="int32", minimum=0, maximum=100),
    ] = msgspec.field(default=None, name="imageGCLowThresholdPercent")
    cpu_cfs_quota: Annotated[bool | None, Field("Whether CPU limits of containers are enforced.")] = msgspec.field(
        default=None, name="cpuCFSQuota"
    )


def _pairs(first: str, second: str) -> SchemaRule:
    return SchemaRule(
        f"has(self.{first}) ? self.{first}.all(e, (e in self.{second})):true",
        f"{first} OwnerKey does not have a matching {second}",
        lambda value: _all_in(value, first, second),
    )


def _all_in(value: Mapping[str, Any], first: str, second: str) -> bool:
    return first not in value or not value[first] or all(key in value[second] for key in value[first])


def _order(value: Mapping[str, Any]) -> bool:
    high, low = value.get("imageGCHighThresholdPercent"), value.get("imageGCLowThresholdPercent")
    return high is None or low is None or high > low


KUBELET_RULES = (
    SchemaRule(
        "has(self.imageGCHighThresholdPercent) && has(self.imageGCLowThresholdPercent) ?  "
        "self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent  : true",
        "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
        _order,
    ),
    _pairs("evictionSoft", "evictionSoftGracePeriod"),
    _pairs("evictionSoftGracePeriod", "evictionSoft"),
)
#: On a pool that came from an older generation: its own kubelet settings, which go before its class's.
KUBELET_ANNOTATION = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"


def with_kubelet(node_class: Mapping[str, Any], annotations: Mapping[str, str]) -> Mapping[str, Any]:
    """The node class as a pool with these annotations sees it; the very same object where they say nothing."""
    text = annotations.get(KUBELET_ANNOTATION)
    if text is None:
        return node_class
    try:
        block = json.loads(text)
    except ValueError:
        return node_class
    spec = node_class.get("spec")
    if not isinstance(block, dict) or not isinstance(spec, Mapping):
        return node_class
    return {**node_class, "spec": {**spec, "kubelet": block}}


KUBELET = Field("Settings of the kubelet on these nodes.", rules=KUBELET_RULES)
#: The order in which upstream wrote the block down; the compatibility annotation keeps it.
KUBELET_ORDER = (
    "clusterDNS",
    "maxPods",
    "podsPerCore",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMaxPodGracePeriod",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "cpuCFSQuota",
)
