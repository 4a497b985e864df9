"""What if these nodes went: a fleet, who on it may go, and the plan that follows from each choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.meta import condition
from dovetail.model.pods import Pod
from dovetail.model.selector import matches
from dovetail.planner.consolidate.lower_bound import Floor, Stand, floor_of
from dovetail.planner.consolidate.policy import Terms
from dovetail.planner.offerings.catalog import Table
from dovetail.planner.optimise.improve import Optimiser
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.nodes import NodeFacts, facts_of
from dovetail.planner.problem.pod_classes import TOO_MUCH, pod_key
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH, driver_of
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Snapshot

#: Without a charge of their own evictions cost such a share of what a pod costs.
_CHARGE = 0.02
#: Of so many nodes that stay it is worked out whether their pods fit elsewhere at any price.
_MAX_TRIED = 20


class Choice:
    """Nodes that go and the plan that follows; `worth` is dollars an hour saved, less what moving is charged."""

    def __init__(self, gone: Sequence[NodeState], plan: Plan, trouble: float) -> None:
        self.gone = tuple(gone)
        self.plan = plan
        self.worth = sum(node.price or 0.0 for node in gone) - plan.cost.per_hour - trouble


class Fleet:
    """A snapshot from the side of what is there. `moved` are the pods of each candidate that need another place."""

    def __init__(self, snapshot: Snapshot, terms: Terms) -> None:
        self.snapshot = snapshot
        self.terms = terms
        self.candidates = sorted(filter(_may_go, snapshot.nodes), key=lambda node: node.name)
        self.moved = {node.name: movable_pods(node) for node in self.candidates}
        self.pods = sum(map(len, self.moved.values()))
        self.guarded = _guarded(snapshot, self.moved)
        plan = provision(snapshot)
        self.nothing = Choice((), plan, 0.0)
        self._missing = frozenset(plan.unschedulable)
        self._coming = {node.name for node in snapshot.nodes if not node.initialized}

    @cached_property
    def whole(self) -> Problem:
        """All candidates gone, and all their pods to be placed, with those that wait and have a node."""
        world = self._world(self.candidates)
        return Problem(replace(world, pending=tuple(p for p in world.pending if pod_key(p) not in self._missing)))

    @cached_property
    def free(self) -> Table:
        """What every candidate has free, beside its own pods, of all that pods ask for."""
        dims, memory = self.whole.dims, self.snapshot.memory
        with memory.lock:
            rows = [[_free(node, name, facts_of(node, memory)) for name in dims] for node in self.candidates]
        return np.array(rows, dtype=np.float64).reshape(len(self.candidates), len(dims))

    @cached_property
    def classes(self) -> dict[str, int]:
        """The number of each pod's class."""
        return {pod: one.index for one in self.whole.classes for pod in one.pods}

    def floor(self, seconds: float) -> Floor | None:
        """What no choice can make the fleet cost less than."""
        kinds = {(pool.name, kind.name): kind for pool in self.snapshot.pools for kind in pool.types}
        stands = [
            Stand(
                node.pool or "",
                node.price or 0.0,
                [self.classes[pod_key(pod)] for pod in self.moved[node.name]],
                free,
                _resold(node, kinds),
            )
            for node, free in zip(self.candidates, self.free, strict=True)
        ]
        ours = {node.name for node in self.candidates}
        staying = sum(node.price or 0.0 for node in self.snapshot.nodes if not node.deleting and node.name not in ours)
        return floor_of(self.whole, stands, staying, self.most, seconds)

    @cached_property
    def most(self) -> dict[str, int]:
        """How many nodes of each pool with a budget may go: empty ones alone, or any of them."""
        empty = Counter(node.pool for node in self.candidates if not self.moved[node.name])
        return {pool: max(min(empty[pool], quota.empty), quota.used) for pool, quota in self.terms.budgets.items()}

    @cached_property
    def charges(self) -> Mapping[str, float]:
        """What emptying each candidate is charged."""
        terms, found = self.terms, {}
        charge = terms.charge
        if charge is None:
            cost = sum(node.price or 0.0 for node in self.candidates)
            charge = _CHARGE * min(cost, self.fresh) / max(1, self.pods)
        for node in self.candidates:
            units = terms.trouble.get(node.name, float(len(self.moved[node.name])))
            found[node.name] = max(charge * units, terms.dues.get(node.pool or "", 0.0) * units)
        return found

    @cached_property
    def fresh(self) -> float:
        """About what the pods of all candidates would cost, launched anew."""
        return provision(self._world(self.candidates)).cost.per_hour

    def without(
        self,
        gone: Sequence[NodeState],
        seed: int = 0,
        deadline: float | None = None,
        optimiser: Optimiser | None = None,
    ) -> Choice | None:
        """The choice to remove these, if all who have a node now have one then."""
        plan = provision(self._world(gone), seed=seed, deadline=deadline, optimiser=optimiser)
        if not self._missing.issuperset(plan.unschedulable):
            return None
        moved = {pod_key(pod) for node in gone for pod in self.moved[node.name]}
        if self._coming and any(plan.placements[pod].node in self._coming for pod in moved):
            return None
        return Choice(gone, plan, sum(self.charges[node.name] for node in gone))

    def _world(self, gone: Iterable[NodeState]) -> Snapshot:
        names = {node.name for node in gone}
        nodes = tuple(replace(node, deleting=True) if node.name in names else node for node in self.snapshot.nodes)
        moved = tuple(pod for node in self.candidates if node.name in names for pod in self.moved[node.name])
        return replace(self.snapshot, nodes=nodes, pending=(*self.snapshot.pending, *moved))

    # -- who may go together --------------------------------------------------------------------------------------

    def within(self, gone: Iterable[NodeState]) -> tuple[NodeState, ...]:
        """As many of them as the budgets of pools and of pods allow, in order; empty ones first."""
        taken = Taken(self)
        return tuple(node for node in sorted(gone, key=lambda each: bool(self.moved[each.name])) if taken.take(node))

    @cached_property
    def spare(self) -> dict[str, int]:
        """How many pods each disruption budget lets go."""
        return {budget.metadata.key: budget.status.disruptions_allowed for budget in self.snapshot.budgets}

    def stays(self, best: Choice) -> dict[str, str]:
        """Why nodes that are not going stay."""
        taken, gone, found = Taken(self), {node.name for node in best.gone}, dict[str, str]()
        tried = 0
        for node in best.gone:
            taken.take(node)
        for node in self.snapshot.nodes:
            if node.name in gone or node.deleting:
                continue
            if node.name not in self.moved:
                found[node.name] = node.held_by or _unfit(node)
                continue
            found[node.name] = taken.against(node) or message("no cheaper node for its pods")
            if not taken.against(node) and self.moved[node.name] and tried < _MAX_TRIED:
                tried += 1
                if self.without((node,)) is None:
                    found[node.name] = message("its pods fit nowhere else")
        return found


class Taken:
    """What nodes that go use up of the budgets of their pools and of their pods."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._pools: Counter[tuple[str, bool]] = Counter()
        self._pods: Counter[str] = Counter()

    def against(self, node: NodeState) -> str:
        """What keeps another node from going as well, in words."""
        fleet, pool, used = self._fleet, node.pool or "", bool(self._fleet.moved[node.name])
        quota = fleet.terms.budgets.get(pool)
        if quota is not None:
            both = self._pools[pool, True] + self._pools[pool, False]
            full = both >= quota.used if used or self._pools[pool, True] else False
            if full or (not used and self._pools[pool, False] >= quota.empty):
                return message("the budgets of its NodePool let no more go at once")
        for key, count in fleet.guarded[node.name].items():
            if self._pods[key] + count > fleet.spare[key]:
                return message("PodDisruptionBudget {key} lets no more pods go at once", key=key)
        return ""

    def take(self, node: NodeState) -> bool:
        """Let a node go, if it may."""
        if self.against(node):
            return False
        self._pools[node.pool or "", bool(self._fleet.moved[node.name])] += 1
        self._pods += self._fleet.guarded[node.name]
        return True


def _free(node: NodeState, name: str, facts: NodeFacts) -> float:
    if name.startswith(PORT):
        return 1.0
    if name.startswith(ATTACH):
        return float(node.attach_limits.get(driver_of(name), TOO_MUCH))
    return float(node.allocatable.get(name, 0) - facts.used.get(name, 0) - facts.unserved[name])


def _resold(node: NodeState, kinds: Mapping[tuple[str, str], InstanceType]) -> bool:
    """Whether a node like it can be launched for no more: then keeping it cannot beat launching it again."""
    zone, name, capacity = (node.labels.get(key, "") for key in (ZONE, INSTANCE_TYPE, CAPACITY_TYPE))
    kind = kinds.get((node.pool or "", name))
    if kind is None or any(kind.allocatable.get(what, 0) < amount for what, amount in node.allocatable.items()):
        return False
    prices = [o.price for o in kind.offerings if o.available and (o.zone, o.capacity_type) == (zone, capacity)]
    return any(price is not None and price <= (node.price or 0.0) for price in prices)


def _may_go(node: NodeState) -> bool:
    return node.movable and not node.deleting and node.initialized and node.price is not None


def _unfit(node: NodeState) -> str:
    return message("it is not ready for pods yet") if not node.initialized else message("its price is unknown")


def movable_pods(node: NodeState) -> list[Pod]:
    """The pods that would need another place: not daemons, not finished."""
    found = []
    for pod in node.pods:
        owner = pod.metadata.controller
        if not pod.finished and not pod.terminating and (owner is None or owner.kind not in ("DaemonSet", "Node")):
            found.append(pod)
    return found


def _guarded(snapshot: Snapshot, moved: Mapping[str, Sequence[Pod]]) -> dict[str, Counter[str]]:
    """How many pods of each disruption budget every node has; a pod under several may not be moved at all."""
    found: dict[str, Counter[str]] = {}
    for name, pods in moved.items():
        mine = Counter[str]()
        for pod in pods:
            over = [
                budget
                for budget in snapshot.budgets
                if budget.metadata.namespace == pod.metadata.namespace
                and matches(budget.spec.selector, pod.metadata.labels)
            ]
            for each in over:
                if len(over) > 1 or each.spec.unhealthy_pod_eviction_policy != "AlwaysAllow" or _ready(pod):
                    mine[each.metadata.key] += 1 if len(over) == 1 else 1 << 30
        found[name] = mine
    return found


def _ready(pod: Pod) -> bool:
    described = condition(pod.status.conditions, "Ready")
    return described is not None and described.status == "True"
