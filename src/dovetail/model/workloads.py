"""Views of what makes pods and what protects them: controllers, services, disruption budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from dovetail.model.meta import Condition, IntOrString, ObjectMeta, View
from dovetail.model.pods import PersistentVolumeClaimTemplate, PodTemplateSpec
from dovetail.model.selector import LabelSelector


class RollingUpdate(View, frozen=True, kw_only=True):
    max_surge: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    partition: int = 0


class UpdateStrategy(View, frozen=True, kw_only=True):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class WorkloadStatus(View, frozen=True, kw_only=True):
    """The union of what the workload kinds report; each fills its own part."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    unavailable_replicas: int = 0
    fully_labeled_replicas: int = 0
    current_replicas: int = 0
    terminating_replicas: int | None = None
    current_revision: str = ""
    update_revision: str = ""
    collision_count: int | None = None
    conditions: tuple[Condition, ...] = ()


class DeploymentSpec(View, frozen=True, kw_only=True):
    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False


class Deployment(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSetSpec(View, frozen=True, kw_only=True):
    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    min_ready_seconds: int = 0


class ReplicaSet(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicationControllerSpec(View, frozen=True, kw_only=True):
    replicas: int = 1
    selector: Mapping[str, str] = {}
    template: PodTemplateSpec = PodTemplateSpec()


class ReplicationController(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicationControllerSpec = ReplicationControllerSpec()
    status: WorkloadStatus = WorkloadStatus()


class StatefulSetSpec(View, frozen=True, kw_only=True):
    replicas: int = 1
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: UpdateStrategy = UpdateStrategy()
    volume_claim_templates: tuple[PersistentVolumeClaimTemplate, ...] = ()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10


class StatefulSet(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSetSpec(View, frozen=True, kw_only=True):
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    update_strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10


class DaemonSetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    number_misscheduled: int = 0
    number_ready: int = 0
    number_available: int = 0
    number_unavailable: int = 0
    updated_number_scheduled: int = 0


class DaemonSet(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


class JobSpec(View, frozen=True, kw_only=True):
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    selector: LabelSelector | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class JobStatus(View, frozen=True, kw_only=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    ready: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ServiceSpec(View, frozen=True, kw_only=True):
    selector: Mapping[str, str] | None = None
    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class PodDisruptionBudgetSpec(View, frozen=True, kw_only=True):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: Mapping[str, datetime] = {}
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
