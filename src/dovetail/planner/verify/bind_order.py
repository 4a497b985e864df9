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

from dovetail.model.fit.podinfo import Kind, PodInfo, pod_info
from dovetail.model.fit.terms import Spread
from dovetail.model.labels import ZONE
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify.cluster import World
from dovetail.planner.verify.counts import Tallies

#: From this many pods on, pods that a spread only counts are bound in stages.
_MANY = 1000


class Step(msgspec.Struct, frozen=True, eq=False):
    """A pod and the node it is planned for; `turn` is its place in line.

    Pods that no spread of other pods counts come first; then the number of similar pods before it in the zone decides.
    """

    turn: tuple[int, int]
    key: str
    target: str
    info: PodInfo


def stuck(plan: Plan, pods: Mapping[str, PodInfo], world: World) -> dict[str, str]:
    """Why each pod that no order places has no node; empty when the plan holds. The world is filled on the way."""
    steps, tallies = _steps(plan, pods, world), Tallies(world.cluster)
    first = bisect_right(steps, 0, key=lambda step: step.turn[0])
    waiting, later = steps[:first], steps[first:]
    while True:
        why: dict[str, str] = {}
        before = len(waiting)
        waiting = [step for step in waiting if not _placed(step, world, tallies, why)]
        if waiting and len(waiting) < before:
            continue
        if not later:
            return why
        spreads = [spread for step in waiting for spread in step.info.shape.spread]
        if spreads and len(later) <= _MANY:
            waiting.append(_next(later, spreads[0], world))
            later.remove(waiting[-1])
        else:
            count = bisect_right(later, later[0].turn, key=lambda step: step.turn)
            waiting, later = waiting + later[:count], later[count:]


def _next(later: list[Step], rule: Spread, world: World) -> Step:
    """Who of those that are only counted goes next while owners wait: one in the domain with the fewest of them."""
    heights: Counter[str | None] = Counter()
    for held in world.cluster.nodes.values():
        heights[held.labels.get(rule.topology_key)] += sum(
            count for kind, count in held.kinds.items() if rule.selects(kind.labels)
        )
    helpful = [step for step in later if rule.selects(step.info.kind.labels)] or later
    return min(helpful, key=lambda step: _height(step, rule.topology_key, heights, world))


def _height(step: Step, key: str, heights: Counter[str | None], world: World) -> int:
    held = world.cluster.nodes.get(step.target)
    return heights[held.labels.get(key)] if held is not None else 0


def _placed(step: Step, world: World, tallies: Tallies, why: dict[str, str]) -> bool:
    held = world.cluster.nodes.get(step.target)
    if held is None:
        why[step.key] = f"there is no node {step.target}"
        return False
    fit = tallies.fit(step.info)
    rejection = fit.rejection or fit.check(held)
    if rejection is not None:
        why[step.key] = f"{step.target}: {', '.join(rejection.reasons)}"
        return False
    tallies.place(step.info, step.target)
    return True


def _steps(plan: Plan, pods: Mapping[str, PodInfo], world: World) -> list[Step]:
    seen: Counter[tuple[str, str, str]] = Counter()
    steps: list[Step] = []
    for key in sorted(plan.placements):
        target = plan.placements[key].node or plan.placements[key].new_node
        if target is None:
            continue
        held = world.cluster.nodes.get(target)
        zone = held.labels.get(ZONE, "") if held is not None else ""
        kin = [(zone, *pair) for pair in pods[key].shape.labels.items()] or [(zone, "", "")]
        turn = max(seen[member] for member in kin)
        steps.append(Step((0, turn), key, target, _unbound(pods[key], world.snapshot)))
        seen.update(kin)
    stages = _stages(steps)
    in_line = [replace(step, turn=(stages.get(id(step.info.shape), 0), step.turn[1])) for step in steps]
    return sorted(in_line, key=lambda step: (step.turn, step.key))


def _unbound(info: PodInfo, snapshot: Snapshot) -> PodInfo:
    """The pod as it would be scheduled anew, with the cluster's default spreads where it has none of its own."""
    spec, owner = info.pod.spec, info.pod.metadata.controller
    selector = snapshot.selectors.get(owner.uid) if owner is not None and snapshot.default_spread else None
    if selector is not None and not spec.topology_spread_constraints:
        given = tuple(replace(spread, label_selector=selector) for spread in snapshot.default_spread)
        spec = replace(spec, topology_spread_constraints=given)
    if spec.node_name:
        spec = replace(spec, node_name="")
    return info if spec is info.pod.spec else pod_info(replace(info.pod, spec=spec))


def _stages(steps: Iterable[Step]) -> dict[int, int]:
    """The stage of each shape's pods: after the owners of every spread that counts them but is not theirs.

    In a cycle, the owners of a spread are in one stage. Empty where no spread counts other pods.
    """
    shapes = {id(step.info.shape): step.info for step in steps}
    owned = {
        shape: {_mark(info.shape.namespace, spread): spread for spread in info.shape.spread}
        for shape, info in shapes.items()
    }
    spreads = {
        mark: (shapes[index].shape.namespace, value) for index, own in owned.items() for mark, value in own.items()
    }
    counting: dict[Kind, set[bytes]] = {}
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
