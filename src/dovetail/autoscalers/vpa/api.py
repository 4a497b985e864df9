"""The objects that the three programs read: VerticalPodAutoscaler, its checkpoint, pods and LimitRanges.

Absent and empty are different things in some of upstream's rules (a pod without requests gets a patch that
creates the map), so maps that may be absent are None here, not empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.kube.resources import Resource
from dovetail.model.meta import Amount, Condition, ObjectMeta, View
from dovetail.model.quantity import Quantity, QuantityError, parse

GROUP = "autoscaling.k8s.io"
VPAS = Resource(GROUP, "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
CHECKPOINTS = Resource(GROUP, "v1", "verticalpodautoscalercheckpoints", "VerticalPodAutoscalerCheckpoint")
LIMITRANGES = Resource("", "v1", "limitranges", "LimitRange")
WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)

OFF, INITIAL, RECREATE, AUTO = "Off", "Initial", "Recreate", "Auto"
IN_PLACE_OR_RECREATE, IN_PLACE = "InPlaceOrRecreate", "InPlace"
#: The modes that the validation names as supported; Auto is accepted with a warning.
NAMED_MODES = (IN_PLACE, IN_PLACE_OR_RECREATE, INITIAL, OFF, RECREATE)

REQUESTS_AND_LIMITS, REQUESTS_ONLY = "RequestsAndLimits", "RequestsOnly"
#: The policy of this name holds for every container without a policy of its own.
DEFAULT_POLICY = "*"
#: Resources by name, exact.
Amounts = dict[str, Quantity]

OBSERVED_CONTAINERS = "vpaObservedContainers"
UPDATES = "vpaUpdates"
IN_PLACE_UPDATED = "vpaInPlaceUpdated"


class TargetRef(View, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class EvictionRequirement(View, frozen=True, kw_only=True):
    resources: tuple[str, ...] = ()
    change_requirement: str = ""


class UpdatePolicy(View, frozen=True, kw_only=True):
    update_mode: str | None = None
    min_replicas: int | None = None
    eviction_requirements: tuple[EvictionRequirement, ...] | None = None
    evict_after_oom_seconds: int | None = msgspec.field(default=None, name="evictAfterOOMSeconds")


class CPUBoost(View, frozen=True, kw_only=True):
    type: str = ""
    factor: int | None = None
    quantity: Amount | None = None
    duration_seconds: int | None = None


class StartupBoost(View, frozen=True, kw_only=True):
    cpu: CPUBoost | None = None


class ContainerPolicy(View, frozen=True, kw_only=True):
    container_name: str = ""
    mode: str | None = None
    min_allowed: Mapping[str, Amount] | None = None
    max_allowed: Mapping[str, Amount] | None = None
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None
    oom_bump_up_ratio: Amount | None = msgspec.field(default=None, name="oomBumpUpRatio")
    oom_min_bump_up: Amount | None = msgspec.field(default=None, name="oomMinBumpUp")
    memory_aggregation_interval_seconds: int | None = None
    memory_aggregation_interval_count: int | None = None
    startup_boost: StartupBoost | None = None


class ResourcePolicy(View, frozen=True, kw_only=True):
    container_policies: tuple[ContainerPolicy, ...] = ()


class RecommenderName(View, frozen=True, kw_only=True):
    name: str = ""


class VpaSpec(View, frozen=True, kw_only=True):
    target_ref: TargetRef | None = None
    update_policy: UpdatePolicy | None = None
    resource_policy: ResourcePolicy | None = None
    recommenders: tuple[RecommenderName, ...] | None = None
    startup_boost: StartupBoost | None = None


class ContainerRecommendation(View, frozen=True, kw_only=True):
    container_name: str = ""
    target: Mapping[str, Amount] | None = None
    lower_bound: Mapping[str, Amount] | None = None
    upper_bound: Mapping[str, Amount] | None = None
    uncapped_target: Mapping[str, Amount] | None = None


class PodRecommendation(View, frozen=True, kw_only=True):
    container_recommendations: tuple[ContainerRecommendation, ...] = ()


class VpaStatus(View, frozen=True, kw_only=True):
    recommendation: PodRecommendation | None = None
    conditions: tuple[Condition, ...] = ()
    observed_generation: int | None = None


class VerticalPodAutoscaler(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VpaSpec = VpaSpec()
    status: VpaStatus = VpaStatus()

    @property
    def update_mode(self) -> str:
        """The mode in effect: an absent one means Recreate."""
        policy = self.spec.update_policy
        return (policy.update_mode if policy is not None else None) or RECREATE

    @property
    def has_startup_boost(self) -> bool:
        policies = self.spec.resource_policy.container_policies if self.spec.resource_policy else ()
        boosts = (self.spec.startup_boost, *(policy.startup_boost for policy in policies))
        return any(boost is not None and boost.cpu is not None for boost in boosts)


def container_policy(name: str, policy: ResourcePolicy | None) -> ContainerPolicy | None:
    """The policy of a container: its own, or else the last one for all."""
    default = None
    for item in policy.container_policies if policy is not None else ():
        if item.container_name == name:
            return item
        if item.container_name == DEFAULT_POLICY:
            default = item
    return default


def controlled_values(name: str, policy: ResourcePolicy | None) -> str:
    item = container_policy(name, policy)
    return (item.controlled_values if item is not None else None) or REQUESTS_AND_LIMITS


class Resources(View, frozen=True, kw_only=True):
    requests: Mapping[str, Amount] | None = None
    limits: Mapping[str, Amount] | None = None


class ResizePolicy(View, frozen=True, kw_only=True):
    resource_name: str = ""
    restart_policy: str = ""


class Container(View, frozen=True, kw_only=True):
    name: str = ""
    resources: Resources = Resources()
    resize_policy: tuple[ResizePolicy, ...] = ()


class Terminated(View, frozen=True, kw_only=True):
    reason: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Running(View, frozen=True, kw_only=True):
    started_at: datetime | None = None


class ContainerState(View, frozen=True, kw_only=True):
    terminated: Terminated | None = None
    running: Running | None = None


class ContainerStatus(View, frozen=True, kw_only=True):
    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    resources: Resources | None = None


class PodMeta(ObjectMeta, frozen=True, kw_only=True):
    """Annotations may be absent, which is not the same as empty."""

    annotations: Mapping[str, str] | None = None  # type: ignore[assignment]


class PodSpec(View, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(View, frozen=True, kw_only=True):
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or {}


class LimitRangeItem(View, frozen=True, kw_only=True):
    type: str = ""
    max: Mapping[str, Amount] | None = None
    min: Mapping[str, Amount] | None = None
    default: Mapping[str, Amount] | None = None


class LimitRangeSpec(View, frozen=True, kw_only=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class CheckpointSpec(View, frozen=True, kw_only=True):
    vpa_object_name: str = ""
    container_name: str = ""


class Checkpoint(View, frozen=True, kw_only=True):
    """A stored checkpoint; its status is read by `checkpoints`, which reports what it cannot read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CheckpointSpec = CheckpointSpec()
    status: Mapping[str, object] = {}


def amounts(texts: Mapping[str, Amount] | None) -> Amounts:
    """A resource list as quantities. A text that is none is left out: the API server refuses it long before."""
    parsed: Amounts = {}
    for name, text in (texts or {}).items():
        try:
            parsed[name] = parse(text)
        except QuantityError:
            continue
    return parsed


def texts(quantities: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in quantities.items()}


def resources_of(name: str, pod: Pod) -> Resources:
    """What a container has now: as its status reports it, or else as its spec asks."""
    for status in pod.status.container_statuses:
        if status.name == name and status.resources is not None:
            return status.resources
    for container in pod.spec.containers:
        if container.name == name:
            return container.resources
    return Resources()


def requests_of(name: str, pod: Pod) -> Amounts:
    return amounts(resources_of(name, pod).requests)


def limits_of(name: str, pod: Pod) -> Amounts:
    return amounts(resources_of(name, pod).limits)
