"""Consolidation: the same problem from the other side. Which machines could go, and what would hold their pods?

A machine's pods are planned as if it were going; removing is worth it when what must be bought costs less than what
is given back, by more than the evictions are charged. Machines go one at a time, the least useful for its price
first, then replacements for several at once are tried, and the cheapest whole is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dovetail.clock import stopwatch
from dovetail.model.labels import INSTANCE_TYPE, ZONE
from dovetail.model.pods import Pod
from dovetail.planner.classes import pod_key
from dovetail.planner.optimise.bound import WORDS, proven
from dovetail.planner.plan import Cost, Move, Plan
from dovetail.planner.problem import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Snapshot

#: A plan must save this share of what is removed, or nobody is disturbed for it.
_WORTH_IT = 1e-6


def consolidate(
    snapshot: Snapshot,
    seed: int = 0,
    deadline: float | None = None,
    charge: float = 0.0,
    budgets: dict[str, int] | None = None,
) -> Plan:
    """What to give back. `charge` is dollars an hour for each eviction, `budgets` the machines each pool may lose."""
    start = stopwatch()
    limit = deadline or 5.0
    before = sum(node.price or 0.0 for node in snapshot.nodes if not node.deleting)
    candidates = sorted((node for node in snapshot.nodes if _may_go(node)), key=_usefulness)
    best = _Choice((), provision(snapshot), snapshot, charge)
    left = dict(budgets) if budgets is not None else None
    best = _one_by_one(best, candidates, left, lambda: stopwatch() - start > limit * 0.6)
    best = _together(best, candidates, left, seed, lambda: stopwatch() - start > limit * 0.9)
    best = _spared(best, lambda: stopwatch() - start > limit)
    plan = _plan(best, before, stopwatch() - start)
    bound = _bound(snapshot, candidates, max(0.2, limit * 0.1))
    if bound is None:
        return plan
    told = f"the whole fleet bought anew, where {WORDS}"
    return replace(plan, cost=replace(plan.cost, lower_bound=bound, bound_of=told))


def _bound(snapshot: Snapshot, candidates: list[NodeState], seconds: float) -> float | None:
    """What the fleet would cost at least if everything movable were bought anew; None where keeping might be cheaper.

    Keeping a machine must not beat buying it again, so every machine's own offering must still be for sale.
    """
    if not all(_for_sale(node, snapshot) for node in candidates):
        return None
    problem = Problem(_world(replace(snapshot, pending=()), tuple(candidates)))
    bought = proven(problem, {}, seconds)
    going = {node.name for node in candidates}
    staying = sum(node.price or 0.0 for node in snapshot.nodes if not node.deleting and node.name not in going)
    return None if bought is None else staying + bought


def _for_sale(node: NodeState, snapshot: Snapshot) -> bool:
    zone, kind = node.labels.get(ZONE), node.labels.get(INSTANCE_TYPE)
    for pool in snapshot.pools:
        for each in pool.types if pool.name == node.pool else ():
            enough = all(each.allocatable.get(name, 0) >= amount for name, amount in node.allocatable.items())
            if each.name == kind and enough:
                return any(
                    o.zone == zone and o.available and o.price is not None and o.price <= (node.price or 0.0)
                    for o in each.offerings
                )
    return False


class _Choice:
    """A set of machines to remove and the plan that follows; `worth` is dollars an hour saved, evictions charged."""

    def __init__(self, gone: tuple[NodeState, ...], plan: Plan, snapshot: Snapshot, charge: float) -> None:
        self.gone = gone
        self.plan = plan
        self.snapshot = snapshot
        self.charge = charge
        evicted = sum(len(movable_pods(node)) for node in gone)
        saved = sum(node.price or 0.0 for node in gone)
        self.worth = saved - plan.cost.per_hour - charge * evicted

    def with_gone(self, more: tuple[NodeState, ...], deadline: float | None = None, seed: int = 0) -> _Choice | None:
        gone = (*self.gone, *more)
        plan = provision(_world(self.snapshot, gone), seed=seed, deadline=deadline)
        moved = {pod_key(pod) for node in gone for pod in movable_pods(node)}
        if any(pod in moved for pod in plan.unschedulable):
            return None
        return _Choice(gone, plan, self.snapshot, self.charge)


def _may_go(node: NodeState) -> bool:
    return node.movable and not node.deleting and node.initialized and node.price is not None


def movable_pods(node: NodeState) -> list[Pod]:
    """The pods that would need another place: not daemons, not finished."""
    found = []
    for pod in node.pods:
        owner = pod.metadata.controller
        if not pod.finished and not pod.terminating and (owner is None or owner.kind not in ("DaemonSet", "Node")):
            found.append(pod)
    return found


def _usefulness(node: NodeState) -> tuple[float, str]:
    """Pods held for each dollar: who holds few for much goes first."""
    return (len(movable_pods(node)) / max(node.price or 0.0, 1e-9), node.name)


def _world(snapshot: Snapshot, gone: tuple[NodeState, ...]) -> Snapshot:
    names = {node.name for node in gone}
    nodes = tuple(replace(node, deleting=True) if node.name in names else node for node in snapshot.nodes)
    moved = tuple(pod for node in gone for pod in movable_pods(node))
    return replace(snapshot, nodes=nodes, pending=(*snapshot.pending, *moved))


def _allowed(node: NodeState, left: dict[str, int] | None) -> bool:
    return left is None or left.get(node.pool or "", 0) > 0


def _one_by_one(
    best: _Choice, candidates: list[NodeState], left: dict[str, int] | None, out_of_time: Callable[[], bool]
) -> _Choice:
    for node in candidates:
        if out_of_time():
            break
        if not _allowed(node, left) or not _evictable(best, node):
            continue
        tried = best.with_gone((node,))
        if tried is not None and tried.worth > best.worth + (node.price or 0.0) * _WORTH_IT:
            best = tried
            if left is not None:
                left[node.pool or ""] -= 1
    return best


def _together(
    best: _Choice,
    candidates: list[NodeState],
    left: dict[str, int] | None,
    seed: int,
    out_of_time: Callable[[], bool],
) -> _Choice:
    """Several of the rest for several cheaper ones: growing prefixes of the ranking, and all at once."""
    gone = {node.name for node in best.gone}
    rest = [node for node in candidates if node.name not in gone and _evictable(best, node)]
    sizes = sorted({2, 3, 5, 8, 13, 21, 34, 55, len(rest) // 2, len(rest)})
    base = best
    for size in (each for each in reversed(sizes) if 2 <= each <= len(rest)):
        if out_of_time():
            break
        group = _within_budget(rest[:size], left)
        tried = base.with_gone(tuple(group), deadline=0.5, seed=seed) if len(group) > 1 else None
        if tried is not None and tried.worth > best.worth + _WORTH_IT:
            best = tried
    return best


def _spared(best: _Choice, out_of_time: Callable[[], bool]) -> _Choice:
    """Machines whose going saves nothing, now that the others go, stay: the same saving with fewer evictions."""
    for node in sorted(best.gone, key=lambda each: (-len(movable_pods(each)), each.name)):
        if out_of_time():
            break
        fewer = tuple(each for each in best.gone if each.name != node.name)
        base = _Choice((), best.plan, best.snapshot, best.charge)
        tried = base.with_gone(fewer)
        if tried is not None and tried.worth >= best.worth - _WORTH_IT:
            best = tried
    return best


def _within_budget(nodes: list[NodeState], left: dict[str, int] | None) -> list[NodeState]:
    if left is None:
        return nodes
    room = dict(left)
    found = []
    for node in nodes:
        if room.get(node.pool or "", 0) > 0:
            room[node.pool or ""] -= 1
            found.append(node)
    return found


def _evictable(best: _Choice, node: NodeState) -> bool:
    """Whether the disruption budgets of its pods allow them all to go, on top of those already chosen."""
    taken: dict[str, int] = {}
    for pod in (pod for each in (*best.gone, node) for pod in movable_pods(each)):
        matching = [
            budget for budget in best.snapshot.budgets
            if budget.metadata.namespace == pod.metadata.namespace and budget.spec.selector is not None
            and budget.spec.selector.matches(pod.metadata.labels)
        ]  # fmt: skip
        if len(matching) > 1:
            return False
        for budget in matching:
            key = budget.metadata.key
            taken[key] = taken.get(key, 0) + 1
            if taken[key] > budget.status.disruptions_allowed:
                return False
    return True


def _plan(best: _Choice, before: float, seconds: float) -> Plan:
    moves = {}
    for node in best.gone:
        for pod in movable_pods(node):
            place = best.plan.placements[pod_key(pod)]
            moves[pod_key(pod)] = Move(source=node.name, node=place.node, machine=place.machine)
    unpriced = sum(node.price is None and not node.deleting for node in best.snapshot.nodes)
    after = before - sum(node.price or 0.0 for node in best.gone) + best.plan.cost.per_hour
    return replace(
        best.plan,
        cost=Cost(per_hour=after, before=before, unpriced=unpriced),
        remove=tuple(sorted(node.name for node in best.gone)),
        moves=dict(sorted(moves.items())),
        evictions=len(moves),
        seconds=seconds,
    )
