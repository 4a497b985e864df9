"""What requests cost: for each workload what it requests, uses, and would get from VPA, and what the fleet costs then.

Costs come from planning the whole fleet afresh with the pods as they would be; nodes of pods that no new node could
take (Karpenter's own, say, which keep away from the nodes of NodePools) are kept and paid in every plan. The saving of
one workload is that of its change alone, so savings of several workloads need not add up: two of them may free the same
node. A workload whose usage is not known long enough is left as it is, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.autoscalers.vpa.api import (
    REQUESTS_AND_LIMITS,
    VerticalPodAutoscaler,
    amounts,
    container_policy,
    controlled_values,
    texts,
)
from dovetail.autoscalers.vpa.estimators import EstimatorSettings, pod_estimates
from dovetail.autoscalers.vpa.histogram import Histogram
from dovetail.autoscalers.vpa.model import PodHistory
from dovetail.autoscalers.vpa.proportions import proportional_limits
from dovetail.autoscalers.vpa.recommendation import FormatSettings, pod_recommendation
from dovetail.autoscalers.vpa.usage import DAY_S, Aggregation, ContainerUsage
from dovetail.language import message
from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pods import Container, Pod, PodSpec, PodStatus
from dovetail.model.quantity import milli, whole
from dovetail.model.workloads import DaemonSet
from dovetail.planner.snapshot import NodeState, Snapshot

HOURS_A_MONTH = 730.0
CONTROLLED_RESOURCES = ("cpu", "memory")
#: Shorter histories are not acted on: it is the time after which VPA's bounds have confidence 1.
MIN_HISTORY_S = DAY_S
#: Fewer CPU samples say nothing, however long they reach back.
MIN_SAMPLES = 20
#: Up to so many proposals, the saving of each comes from a whole plan, as the totals do; of more from a quick one.
MAX_WHOLE_PLANS = 20
#: A CronJob names its Jobs after itself and the minute of their schedule.
_JOB_OF_CRONJOB = re.compile(r"(.+)-\d{8,10}")


class WorkloadKey(msgspec.Struct, frozen=True, order=True):
    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


class ContainerAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One container: amounts as Kubernetes writes them. `above` is how often usage was more than the proposal."""

    name: str
    requests: dict[str, str]
    limits: dict[str, str]
    used: dict[str, str]
    proposed: dict[str, str]
    proposed_limits: dict[str, str]
    above: dict[str, float]


class WorkloadAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """One workload. `unknown` says why nothing is proposed; then it stays as it is in every plan.

    `scaled_by` has the HPA that holds a percentage of the requests of a resource: other requests would be another
    number of pods, so nothing is proposed for that resource.
    """

    key: WorkloadKey
    pods: int
    containers: list[ContainerAdvice]
    history_s: float
    samples: int
    unknown: str = ""
    scaled_by: dict[str, str] = {}
    saving_per_month: float | None = None

    @property
    def is_proposal(self) -> bool:
        return not self.unknown and any(container.proposed for container in self.containers)


class FleetCost(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars an hour; None where it is not known."""

    nodes_now: float | None
    planned_now: float | None
    planned_after: float | None
    lower_bound_after: float | None
    #: Pods, `namespace/name`, that neither a new node nor their own has room for.
    unschedulable_now: tuple[str, ...] = ()
    unschedulable_after: tuple[str, ...] = ()
    #: The nodes that every plan keeps, because some of their pods fit no new node.
    kept_nodes: tuple[str, ...] = ()
    #: The nodes whose price is not known; with one of them, that of all nodes is not.
    unpriced_nodes: tuple[str, ...] = ()


class RightsizingReport(msgspec.Struct, frozen=True, kw_only=True):
    workloads: list[WorkloadAdvice]
    cost: FleetCost


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What a planner says of a snapshot."""

    per_hour: float
    lower_bound: float | None
    unschedulable: tuple[str, ...]


#: Plans a snapshot with care, and quickly: the first for totals, the second once for each workload.
Plan = Callable[[Snapshot], Planned]
Quote = Callable[[Snapshot], float | None]
#: What a standing node costs an hour; None where that is not known.
NodePrice = Callable[[NodeState], float | None]


def workload_of(pod: Pod) -> WorkloadKey:
    """The workload that a pod belongs to: a Deployment behind its ReplicaSet, a CronJob behind its Job.

    A pod without a controller is its own.
    """
    namespace = pod.metadata.namespace or "default"
    owner = pod.metadata.controller
    if owner is None:
        return WorkloadKey(namespace, "Pod", pod.metadata.name)
    if owner.kind == "ReplicaSet":
        suffix = pod.metadata.labels.get("pod-template-hash")
        if suffix and owner.name.endswith(f"-{suffix}"):
            return WorkloadKey(namespace, "Deployment", owner.name.removesuffix(f"-{suffix}"))
    if owner.kind == "Job" and (scheduled := _JOB_OF_CRONJOB.fullmatch(owner.name)):
        return WorkloadKey(namespace, "CronJob", scheduled[1])
    return WorkloadKey(namespace, owner.kind, owner.name)


class UsageEvidence:
    """What is known of the usage of workloads' containers, from all sources together."""

    def __init__(self) -> None:
        self._usages: dict[tuple[WorkloadKey, str], Aggregation] = {}
        self._containers: dict[tuple[str, str], ContainerUsage] = {}

    def add_samples(self, pod: Pod, container: str, samples: Iterable[tuple[float, int | None, int | None]]) -> None:
        """Samples of one container in order of time: seconds since 1970, milli-cores, bytes; None if not measured."""
        usage = self._usage(f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}", workload_of(pod), container)
        for time_s, millicores, size_bytes in samples:
            if millicores is not None:
                usage.add_cpu(millicores, time_s)
            if size_bytes is not None:
                usage.add_memory(size_bytes, time_s)

    def add_history(self, key: WorkloadKey, history: PodHistory) -> None:
        for container, samples in history.samples.items():
            usage = self._usage(f"{history.namespace}/{history.name}", key, container)
            for sample in samples:
                if sample.resource == "cpu":
                    usage.add_cpu(sample.amount, sample.time_s)
                else:
                    usage.add_memory(sample.amount, sample.time_s)

    def add_checkpoint(self, key: WorkloadKey, container: str, usage: Aggregation) -> None:
        self._whole(key, container).merge(usage)

    def of(self, key: WorkloadKey, container: str) -> Aggregation | None:
        return self._usages.get((key, container))

    def _usage(self, pod: str, key: WorkloadKey, container: str) -> ContainerUsage:
        held = self._containers.get((pod, container))
        if held is None:
            held = self._containers[pod, container] = ContainerUsage(self._whole(key, container))
        return held

    def _whole(self, key: WorkloadKey, container: str) -> Aggregation:
        held = self._usages.get((key, container))
        if held is None:
            held = self._usages[key, container] = Aggregation()
        return held


def share_above(histogram: Histogram, amount: float) -> float:
    """The share of weight in buckets that begin at or above an amount: how often more than that was used."""
    held = [
        (bucket, weight)
        for bucket, weight in histogram.weights.items()
        if histogram.lowest <= bucket <= histogram.highest
    ]
    total = sum(weight for _, weight in held)
    above = sum(weight for bucket, weight in held if histogram.buckets.start(bucket) >= amount)
    return above / total if total > 0 else 0.0


def advise(
    pods: Sequence[Pod],
    evidence: UsageEvidence,
    vpas: Mapping[WorkloadKey, VerticalPodAutoscaler],
    *,
    estimators: EstimatorSettings,
    scaled_by: Mapping[WorkloadKey, Mapping[str, str]] | None = None,
    min_history_s: float = MIN_HISTORY_S,
    min_samples: int = MIN_SAMPLES,
) -> list[WorkloadAdvice]:
    """What VPA would set for each workload; with a VPA object, under its policies.

    `scaled_by` has the HPAs of workloads by the resource whose requests they hold a percentage of.
    """
    members: dict[WorkloadKey, list[Pod]] = {}
    for pod in pods:
        members.setdefault(workload_of(pod), []).append(pod)
    advice = []
    for key in sorted({*members, *vpas}):
        if key not in members:
            why = message("none of its pods is known, so neither are its requests")
            advice.append(WorkloadAdvice(key=key, pods=0, containers=[], history_s=0.0, samples=0, unknown=why))
            continue
        template, vpa = members[key][0], vpas.get(key)
        policy = vpa.spec.resource_policy if vpa is not None else None
        usages = {
            container.name: usage
            for container in template.spec.containers
            if (usage := evidence.of(key, container.name)) is not None
        }
        history_s = min((_covered_s(usage) for usage in usages.values()), default=0.0)
        samples = min((usage.samples for usage in usages.values()), default=0)
        unknown = _unknown(template, usages, history_s, samples, min_history_s, min_samples)
        held = dict((scaled_by or {}).get(key, {}))
        proposals = {} if unknown else _proposals(usages, vpa, estimators, held)
        follow = {
            container.name: controlled_values(container.name, policy) == REQUESTS_AND_LIMITS
            for container in template.spec.containers
        }
        advice.append(
            WorkloadAdvice(
                key=key,
                pods=sum(key.kind != "DaemonSet" or bool(pod.spec.node_name) for pod in members[key]),
                containers=[
                    _container(container, usages.get(container.name), proposals.get(container.name, {}), follow)
                    for container in template.spec.containers
                ],
                history_s=history_s,
                samples=samples,
                unknown=unknown,
                scaled_by=held,
            )
        )
    return advice


def _proposals(
    usages: Mapping[str, Aggregation],
    vpa: VerticalPodAutoscaler | None,
    estimators: EstimatorSettings,
    held: Collection[str],
) -> dict[str, dict[str, str]]:
    """Requests by container, of the resources that a VPA controls and no HPA holds."""
    policy = vpa.spec.resource_policy if vpa is not None else None
    considered, controlled = {}, {}
    for name, usage in usages.items():
        own = container_policy(name, policy)
        if own is None or own.mode != "Off":
            considered[name] = usage
            resources = own.controlled_resources if own is not None else None
            named = CONTROLLED_RESOURCES if resources is None else resources
            controlled[name] = tuple(resource for resource in named if resource not in held)
    estimates = pod_estimates(considered, estimators, controlled)
    annotations = vpa.metadata.annotations if vpa is not None else {}
    recommended = pod_recommendation(estimates, policy, annotations, FormatSettings())
    return {
        item.container_name: {name: str(text) for name, text in (item.target or {}).items()}
        for item in recommended.container_recommendations
    }


def _covered_s(usage: Aggregation) -> float:
    if usage.first_sample_s is None or usage.last_sample_s is None:
        return 0.0
    return usage.last_sample_s - usage.first_sample_s


def _unknown(
    pod: Pod, usages: Mapping[str, Aggregation], history_s: float, samples: int, min_history_s: float, min_samples: int
) -> str:
    missing = [container.name for container in pod.spec.containers if container.name not in usages]
    if missing:
        return message("no usage is known of container {missing}", missing=", ".join(missing))
    if samples < min_samples:
        return message("samples of usage: {samples}, needed: {min_samples}", samples=samples, min_samples=min_samples)
    if history_s < min_history_s:
        return message(
            "{history_s:.1f} h of usage, {min_history_s:g} h are needed",
            history_s=history_s / 3600,
            min_history_s=min_history_s / 3600,
        )
    return ""


def _container(
    container: Container, usage: Aggregation | None, proposed: dict[str, str], follow: Mapping[str, bool]
) -> ContainerAdvice:
    requests = {name: str(text) for name, text in container.resources.requests.items()}
    limits = {name: str(text) for name, text in container.resources.limits.items()}
    used: dict[str, str] = {}
    above: dict[str, float] = {}
    if usage is not None and usage.samples:
        used["cpu"] = f"{round(usage.cpu.percentile(0.9) * 1000)}m"
        used["memory"] = str(round(usage.memory.percentile(0.9)))
        if "cpu" in proposed:
            above["cpu"] = share_above(usage.cpu, milli(proposed["cpu"]) / 1000)
        if "memory" in proposed:
            above["memory"] = share_above(usage.memory, float(whole(proposed["memory"])))
    scaled = None
    if proposed and follow[container.name]:
        scaled, _ = proportional_limits(amounts(limits), amounts(requests), amounts(proposed), {})
    return ContainerAdvice(
        name=container.name,
        requests=requests,
        limits=limits,
        used=used,
        proposed=proposed,
        proposed_limits=texts(scaled) if scaled is not None else {},
        above=above,
    )


# The fleet


def all_pods(snapshot: Snapshot) -> list[Pod]:
    """Every pod that would need a place in a new fleet: DaemonSet and static pods come with their nodes."""
    standing = [
        pod
        for node in snapshot.nodes
        if not node.deleting
        for pod in node.pods
        if not pod.finished and not pod.terminating and _kind(pod) not in ("DaemonSet", "Node")
    ]
    return [*snapshot.pending, *standing]


def daemon_pods(snapshot: Snapshot) -> list[Pod]:
    """The pods of DaemonSets, which come with every node: those that stand, or else one made of the template."""
    standing = [
        pod
        for node in snapshot.nodes
        if not node.deleting
        for pod in node.pods
        if _kind(pod) == "DaemonSet" and not pod.finished and not pod.terminating
    ]
    seen = {workload_of(pod) for pod in standing}
    return [*standing, *(pod for pod in map(_template_pod, snapshot.daemons) if workload_of(pod) not in seen)]


def _template_pod(daemon: DaemonSet) -> Pod:
    template, metadata = daemon.spec.template, daemon.metadata
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name=metadata.name, controller=True)
    named = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        labels=template.metadata.labels,
        owner_references=(owner,),
    )
    return Pod(metadata=named, spec=template.spec)


def _kind(pod: Pod) -> str:
    return pod.metadata.controller.kind if pod.metadata.controller is not None else ""


def on_empty_fleet(snapshot: Snapshot, pods: Iterable[Pod]) -> Snapshot:
    """The same demand on an empty fleet. What a kubelet has granted a running pod is not what a new one asks for."""
    unbound = tuple(replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus()) for pod in pods)
    return replace(snapshot, nodes=(), pending=unbound)


def resized(pod: Pod, advice: WorkloadAdvice) -> Pod:
    """A pod with the requests that are proposed for it."""
    return replace(pod, spec=_resized_spec(pod.spec, advice))


def _resized_daemon(daemon: DaemonSet, chosen: Mapping[WorkloadKey, WorkloadAdvice]) -> DaemonSet:
    advice = chosen.get(workload_of(_template_pod(daemon)))
    if advice is None:
        return daemon
    template = replace(daemon.spec.template, spec=_resized_spec(daemon.spec.template.spec, advice))
    return replace(daemon, spec=replace(daemon.spec, template=template))


def _resized_spec(spec: PodSpec, advice: WorkloadAdvice) -> PodSpec:
    proposed = {item.name: item for item in advice.containers if item.proposed}
    containers = tuple(
        _resized(container, proposed[container.name]) if container.name in proposed else container
        for container in spec.containers
    )
    return replace(spec, containers=containers)


def _resized(container: Container, item: ContainerAdvice) -> Container:
    resources = replace(
        container.resources,
        requests={**container.resources.requests, **item.proposed},
        limits={**container.resources.limits, **item.proposed_limits},
    )
    return replace(container, resources=resources)


class PlannedDemand:
    """The demand of a snapshot, planned on new nodes, beside those that are kept."""

    def __init__(self, snapshot: Snapshot, kept: Sequence[NodeState] = ()) -> None:
        self._snapshot = snapshot
        self._kept = kept
        staying = {pod.metadata.key for node in kept for pod in node.pods}
        self._moving = [pod for pod in all_pods(snapshot) if pod.metadata.key not in staying]

    def with_proposals(self, chosen: Mapping[WorkloadKey, WorkloadAdvice]) -> Snapshot:
        """What to plan when some workloads get what is proposed for them."""

        def changed(pod: Pod) -> Pod:
            key = workload_of(pod)
            return resized(pod, chosen[key]) if key in chosen else pod

        daemons = tuple(_resized_daemon(daemon, chosen) for daemon in self._snapshot.daemons)
        nodes = tuple(replace(node, pods=tuple(map(changed, node.pods))) for node in self._kept)
        fresh = on_empty_fleet(replace(self._snapshot, daemons=daemons), map(changed, self._moving))
        return replace(fresh, nodes=nodes)


def kept_nodes(snapshot: Snapshot, unplaced: Collection[str]) -> list[NodeState]:
    """The nodes of pods that no new node takes: with these pods, and those that come with every node."""
    kept = []
    for node in snapshot.nodes:
        staying = [pod for pod in node.pods if pod.metadata.key in unplaced]
        if staying and not node.deleting:
            own = [pod for pod in node.pods if _kind(pod) in ("DaemonSet", "Node")]
            kept.append(replace(node, pods=(*staying, *own)))
    return kept


def _sum(prices: Iterable[float | None]) -> float | None:
    """The sum of prices; None where one is not known."""
    total = 0.0
    for price in prices:
        if price is None:
            return None
        total += price
    return total


def price(
    snapshot: Snapshot, advice: Sequence[WorkloadAdvice], plan: Plan, quote: Quote, node_price: NodePrice
) -> RightsizingReport:
    """Plan the fleet as it is and as it would be, and with each change alone."""
    by_key = {item.key: item for item in advice if item.is_proposal}
    demand = PlannedDemand(snapshot)
    now = plan(demand.with_proposals({}))
    kept = kept_nodes(snapshot, now.unschedulable)
    if kept:
        demand = PlannedDemand(snapshot, kept)
        now = plan(demand.with_proposals({}))
    after = plan(demand.with_proposals(by_key))
    prices = {node.name: node_price(node) for node in snapshot.nodes if not node.deleting}
    kept_price = _sum(prices[node.name] for node in kept)

    def with_kept(per_hour: float | None) -> float | None:
        return None if per_hour is None or kept_price is None else per_hour + kept_price

    return RightsizingReport(
        workloads=_with_savings(advice, by_key, demand, plan, quote),
        cost=FleetCost(
            nodes_now=_sum(prices.values()) if prices else None,
            planned_now=None if now.unschedulable else with_kept(now.per_hour),
            planned_after=None if after.unschedulable else with_kept(after.per_hour),
            lower_bound_after=with_kept(after.lower_bound),
            unschedulable_now=now.unschedulable,
            unschedulable_after=after.unschedulable,
            kept_nodes=tuple(sorted(node.name for node in kept)),
            unpriced_nodes=tuple(sorted(name for name, price in prices.items() if price is None)),
        ),
    )


def _with_savings(
    advice: Sequence[WorkloadAdvice],
    by_key: Mapping[WorkloadKey, WorkloadAdvice],
    demand: PlannedDemand,
    plan: Plan,
    quote: Quote,
) -> list[WorkloadAdvice]:
    """The advice with what each proposal saves alone; None where the fleet has no place for all pods."""
    whole_plans = len(by_key) <= MAX_WHOLE_PLANS

    def cost(chosen: Mapping[WorkloadKey, WorkloadAdvice]) -> float | None:
        if not whole_plans:
            return quote(demand.with_proposals(chosen))
        planned = plan(demand.with_proposals(chosen))
        return None if planned.unschedulable else planned.per_hour

    base = cost({}) if by_key else None
    priced = []
    for item in advice:
        saving = None
        if base is not None and item.key in by_key:
            alone = cost({item.key: item})
            saving = None if alone is None else round((base - alone) * HOURS_A_MONTH, 6) + 0.0  # no minus zero
        priced.append(replace(item, saving_per_month=saving))
    return priced


# For programs


def as_json(report: RightsizingReport) -> dict[str, Any]:
    cost = report.cost

    def monthly(per_hour: float | None) -> float | None:
        return None if per_hour is None else round(per_hour * HOURS_A_MONTH, 2)

    return {
        "cost": {
            "unit": "USD/month",
            "nodesNow": monthly(cost.nodes_now),
            "nodesWithoutPrice": list(cost.unpriced_nodes),
            "plannedNow": monthly(cost.planned_now),
            "plannedAfter": monthly(cost.planned_after),
            "lowerBoundAfter": monthly(cost.lower_bound_after),
            "nodesKept": list(cost.kept_nodes),
            "unschedulableNow": list(cost.unschedulable_now),
            "unschedulableAfter": list(cost.unschedulable_after),
        },
        "workloads": [
            {
                "namespace": item.key.namespace,
                "kind": item.key.kind,
                "name": item.key.name,
                "pods": item.pods,
                "historyHours": round(item.history_s / 3600, 2),
                "samples": item.samples,
                **({"unknown": item.unknown} if item.unknown else {}),
                **({"scaledBy": item.scaled_by} if item.scaled_by else {}),
                "savingPerMonth": None if item.saving_per_month is None else round(item.saving_per_month, 2),
                "containers": [
                    {
                        "name": container.name,
                        "requests": container.requests,
                        "used": container.used,
                        "proposed": container.proposed,
                        "proposedLimits": container.proposed_limits,
                        "shareAboveProposal": {name: round(share, 4) for name, share in container.above.items()},
                    }
                    for container in item.containers
                ],
            }
            for item in report.workloads
        ],
    }


#: The kinds whose template can be changed. That of a Job cannot: the next Job has to be made with other requests.
_API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1",
                 "CronJob": "batch/v1", "ReplicationController": "v1"}  # fmt: skip


def unpatched(report: RightsizingReport) -> list[WorkloadKey]:
    """The workloads with a proposal that no patch can carry out."""
    return [item.key for item in report.workloads if item.is_proposal and item.key.kind not in _API_VERSIONS]


def as_patches(report: RightsizingReport) -> list[dict[str, Any]]:
    """Strategic merge patches: the proposed resources of each workload's containers."""
    patches = []
    for item in report.workloads:
        containers = [
            {
                "name": container.name,
                "resources": {
                    "requests": container.proposed,
                    **({"limits": container.proposed_limits} if container.proposed_limits else {}),
                },
            }
            for container in item.containers
            if container.proposed
        ]
        if item.is_proposal and item.key.kind in _API_VERSIONS:
            spec: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
            patches.append(
                {
                    "apiVersion": _API_VERSIONS[item.key.kind],
                    "kind": item.key.kind,
                    "metadata": {"name": item.key.name, "namespace": item.key.namespace},
                    "spec": {"jobTemplate": {"spec": spec}} if item.key.kind == "CronJob" else spec,
                }
            )
    return patches
