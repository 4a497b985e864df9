"""Views of pods: what scheduling, launching and disruption ask of them, and what the lab's kubelets run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.model.meta import Amount, Condition, IntOrString, ObjectMeta, View
from dovetail.model.selector import LabelSelector


class ResourceClaimUse(View, frozen=True, kw_only=True):
    name: str = ""
    request: str = ""


class ResourceRequirements(View, frozen=True, kw_only=True):
    requests: Mapping[str, Amount] = {}
    limits: Mapping[str, Amount] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(View, frozen=True, kw_only=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class EnvVar(View, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class HTTPGetAction(View, frozen=True, kw_only=True):
    path: str = ""
    port: IntOrString = 0


class Probe(View, frozen=True, kw_only=True):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    http_get: HTTPGetAction | None = None


class VolumeMount(View, frozen=True, kw_only=True):
    name: str = ""
    mount_path: str = ""


class Container(View, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()

    @property
    def sidecar(self) -> bool:
        """An init container that stays for the pod's whole life."""
        return self.restart_policy == "Always"


class NodeSelectorRequirement(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(View, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(View, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(View, frozen=True, kw_only=True):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(View, frozen=True, kw_only=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(View, frozen=True, kw_only=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(View, frozen=True, kw_only=True):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(View, frozen=True, kw_only=True):
    """Pod affinity or pod anti-affinity: the shape is the same."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(View, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(View, frozen=True, kw_only=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimUse(View, frozen=True, kw_only=True):
    claim_name: str = ""
    read_only: bool = False


class PersistentVolumeClaimSpec(View, frozen=True, kw_only=True):
    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None


class PersistentVolumeClaimTemplate(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolume(View, frozen=True, kw_only=True):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class DiskUse(View, frozen=True, kw_only=True):
    """An in-tree network disk: only its identity matters here."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    pd_name: str = ""
    iqn: str = ""
    monitors: tuple[str, ...] = ()
    pool: str = ""
    image: str = ""
    read_only: bool = False


class CSIVolume(View, frozen=True, kw_only=True):
    driver: str = ""


class ImageVolume(View, frozen=True, kw_only=True):
    reference: str = ""


class EmptyDirVolume(View, frozen=True, kw_only=True):
    medium: str = ""


class HostPathVolume(View, frozen=True, kw_only=True):
    path: str = ""


class Volume(View, frozen=True, kw_only=True):
    name: str = ""
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    persistent_volume_claim: PersistentVolumeClaimUse | None = None
    ephemeral: EphemeralVolume | None = None
    csi: CSIVolume | None = None
    aws_elastic_block_store: DiskUse | None = None
    gce_persistent_disk: DiskUse | None = None
    iscsi: DiskUse | None = None
    rbd: DiskUse | None = None
    image: ImageVolume | None = None


class SchedulingGate(View, frozen=True, kw_only=True):
    name: str = ""


class ReadinessGate(View, frozen=True, kw_only=True):
    condition_type: str = ""


class PodResourceClaim(View, frozen=True, kw_only=True):
    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(View, frozen=True, kw_only=True):
    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, Amount] = {}
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    service_account_name: str = ""
    runtime_class_name: str | None = None


class ContainerStateRunning(View, frozen=True, kw_only=True):
    started_at: datetime | None = None


class ContainerStateWaiting(View, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerStateTerminated(View, frozen=True, kw_only=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(View, frozen=True, kw_only=True):
    running: ContainerStateRunning | None = None
    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(View, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    allocated_resources: Mapping[str, Amount] = {}
    resources: ResourceRequirements | None = None


class PodStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: datetime | None = None
    qos_class: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    host_ip: str = msgspec.field(default="", name="hostIP")
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: Mapping[str, Amount] = {}
    resources: ResourceRequirements | None = None
    observed_generation: int = 0


class Pod(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Its containers have ended for good: it holds no resources any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class PodTemplateSpec(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


# Which pods come back elsewhere once their node goes: all but those that belong to it.


def owned_by(pod: Pod, *kinds: str) -> bool:
    return any(owner.kind in kinds for owner in pod.metadata.owner_references)


def returning(pod: Pod) -> bool:
    """A pod that will come back elsewhere once it is made to leave."""
    if pod.finished or owned_by(pod, "DaemonSet", "Node"):
        return False
    return not pod.terminating or owned_by(pod, "StatefulSet")
