"""What the fleet costs with the requests of now, and with those that are proposed.

Costs come from planning the whole fleet afresh with the pods as they would be; nodes of pods that no new node could
take (Karpenter's own, say, which keep away from the nodes of NodePools) are kept and paid in every plan. The saving of
one workload is that of its change alone, so savings of several workloads need not add up: two of them may free the same
node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dovetail.autoscalers.vpa.rightsizing import ContainerAdvice, WorkloadAdvice, WorkloadKey, workload_of
from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pods import Container, Pod, PodSpec, PodStatus
from dovetail.model.workloads import DaemonSet
from dovetail.planner.plan import total_price
from dovetail.planner.snapshot import NodeState, Snapshot

HOURS_A_MONTH = 730.0
#: Up to so many proposals, the saving of each comes from a whole plan, as the totals do; of more from a quick one.
MAX_WHOLE_PLANS = 20


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
    kept_price = total_price(prices[node.name] for node in kept)

    def with_kept(per_hour: float | None) -> float | None:
        return None if per_hour is None or kept_price is None else per_hour + kept_price

    return RightsizingReport(
        workloads=_with_savings(advice, by_key, demand, plan, quote),
        cost=FleetCost(
            nodes_now=total_price(prices.values()) if prices else None,
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
