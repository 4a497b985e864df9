"""Binding order: whether kube-scheduler can bind every pod to its planned node in some order.

kube-scheduler checks a spread only for its owners. So pods that a spread only counts are bound after its owners, or
when no other pod can be bound. Pods with a common label alternate between zones, so that the counts of a spread rise
evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from dovetail.model.fit.podinfo import PodInfo, SelectorFacts, pod_info
from dovetail.model.fit.terms import Spread
from dovetail.model.labels import ZONE
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify.cluster import PlannedCluster
from dovetail.planner.verify.counts import PlacedPodCounts

#: From this many pods on, pods that a spread only counts are bound in stages.
_MIN_PODS_IN_STAGES = 1000


class PlannedBinding(msgspec.Struct, frozen=True, eq=False):
    """A pod and the node it is planned for. `turn` is its position in the binding order.

    Pods that no spread of other pods counts come first; then the number of similar pods before it in the zone decides.
    """

    turn: tuple[int, int]
    key: str
    target: str
    info: PodInfo


def unbindable(plan: Plan, pods: Mapping[str, PodInfo], planned_cluster: PlannedCluster) -> dict[str, str]:
    """The pods that no order can bind to their nodes, with the reason; empty for a valid plan. Places the pods."""
    bindings, counts = _bindings(plan, pods, planned_cluster), PlacedPodCounts(planned_cluster.cluster)
    first = bisect_right(bindings, 0, key=lambda binding: binding.turn[0])
    waiting, later = bindings[:first], bindings[first:]
    while True:
        why: dict[str, str] = {}
        before = len(waiting)
        waiting = [binding for binding in waiting if not _placed(binding, planned_cluster, counts, why)]
        if waiting and len(waiting) < before:
            continue
        if not later:
            return why
        spreads = [spread for binding in waiting for spread in binding.info.shape.spread]
        if spreads and len(later) <= _MIN_PODS_IN_STAGES:
            waiting.append(_next(later, spreads[0], planned_cluster))
            later.remove(waiting[-1])
        else:
            count = bisect_right(later, later[0].turn, key=lambda binding: binding.turn)
            waiting, later = waiting + later[:count], later[count:]


def _next(later: list[PlannedBinding], rule: Spread, planned_cluster: PlannedCluster) -> PlannedBinding:
    """The next pod to bind while owners of a spread wait: one that the spread counts, in the domain with the fewest."""
    counts_by_domain: Counter[str | None] = Counter()
    for held in planned_cluster.cluster.nodes.values():
        counts_by_domain[held.labels.get(rule.topology_key)] += sum(
            count for kind, count in held.kinds.items() if rule.selects(kind.labels)
        )
    helpful = [binding for binding in later if rule.selects(binding.info.kind.labels)] or later
    return min(
        helpful, key=lambda binding: _domain_count(binding, rule.topology_key, counts_by_domain, planned_cluster)
    )


def _domain_count(
    binding: PlannedBinding, key: str, counts_by_domain: Counter[str | None], planned_cluster: PlannedCluster
) -> int:
    held = planned_cluster.cluster.nodes.get(binding.target)
    return counts_by_domain[held.labels.get(key)] if held is not None else 0


def _placed(
    binding: PlannedBinding, planned_cluster: PlannedCluster, counts: PlacedPodCounts, why: dict[str, str]
) -> bool:
    held = planned_cluster.cluster.nodes.get(binding.target)
    if held is None:
        why[binding.key] = f"there is no node {binding.target}"
        return False
    fit = counts.fit(binding.info)
    rejection = fit.rejection or fit.check(held)
    if rejection is not None:
        why[binding.key] = f"{binding.target}: {', '.join(rejection.reasons)}"
        return False
    counts.place(binding.info, binding.target)
    return True


def _bindings(plan: Plan, pods: Mapping[str, PodInfo], planned_cluster: PlannedCluster) -> list[PlannedBinding]:
    seen: Counter[tuple[str, str, str]] = Counter()
    bindings: list[PlannedBinding] = []
    for key in sorted(plan.placements):
        target = plan.placements[key].node or plan.placements[key].new_node
        if target is None:
            continue
        held = planned_cluster.cluster.nodes.get(target)
        zone = held.labels.get(ZONE, "") if held is not None else ""
        labels_in_zone = [(zone, *pair) for pair in pods[key].shape.labels.items()] or [(zone, "", "")]
        turn = max(seen[label] for label in labels_in_zone)
        bindings.append(PlannedBinding((0, turn), key, target, _unbound(pods[key], planned_cluster.snapshot)))
        seen.update(labels_in_zone)
    stages = _stages(bindings)
    in_line = [replace(binding, turn=(stages.get(id(binding.info.shape), 0), binding.turn[1])) for binding in bindings]
    return sorted(in_line, key=lambda binding: (binding.turn, binding.key))


def _unbound(info: PodInfo, snapshot: Snapshot) -> PodInfo:
    """The pod without its node, and with the cluster's default spreads if it has none of its own."""
    spec, owner = info.pod.spec, info.pod.metadata.controller
    selector = snapshot.selectors.get(owner.uid) if owner is not None and snapshot.default_spread else None
    if selector is not None and not spec.topology_spread_constraints:
        given = tuple(replace(spread, label_selector=selector) for spread in snapshot.default_spread)
        spec = replace(spec, topology_spread_constraints=given)
    if spec.node_name:
        spec = replace(spec, node_name="")
    return info if spec is info.pod.spec else pod_info(replace(info.pod, spec=spec))


def _stages(bindings: Iterable[PlannedBinding]) -> dict[int, int]:
    """The stage of each shape's pods: after the owners of every spread that counts them but is not theirs.

    In a cycle, the owners of a spread are in one stage. Empty where no spread counts other pods.
    """
    shapes = {id(binding.info.shape): binding.info for binding in bindings}
    owned = {
        shape: {_mark(info.shape.namespace, spread): spread for spread in info.shape.spread}
        for shape, info in shapes.items()
    }
    spreads = {
        mark: (shapes[index].shape.namespace, value) for index, own in owned.items() for mark, value in own.items()
    }
    counting: dict[SelectorFacts, set[bytes]] = {}
    waits: dict[int, set[bytes]] = {}
    for shape, info in shapes.items() if spreads else ():
        kind = info.kind
        if kind not in counting:
            counting[kind] = {
                mark
                for mark, (namespace, spread) in spreads.items()
                if namespace == kind.namespace and spread.selects(kind.labels)
            }
        waits[shape] = counting[kind] - owned[shape].keys()
    stages: dict[int, int] = {}
    stage = 0
    while waits:
        open_marks = {mark for index in waits for mark in owned[index]}
        going = [index for index, marks in waits.items() if not marks & open_marks] or [
            index for index in waits if owned[index]
        ]
        stages.update(dict.fromkeys(going, stage))
        for index in going:
            del waits[index]
        stage += 1
    return stages


_encoder = msgspec.msgpack.Encoder(order="deterministic")


def _mark(namespace: str, spread: Spread) -> bytes:
    return _encoder.encode((namespace, spread))
