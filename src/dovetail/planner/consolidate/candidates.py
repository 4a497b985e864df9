"""Candidates of consolidation: the nodes that may be removed, and the plan that follows from removing some of them."""

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
from dovetail.planner.consolidate.lower_bound import FleetLowerBound, RemovableNode, fleet_lower_bound
from dovetail.planner.consolidate.policy import ConsolidationPolicy
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

#: Without a configured charge, an eviction is charged this share of the average cost of a pod.
_EVICTION_CHARGE_SHARE = 0.02
#: For this many nodes that stay, a plan tells whether their pods fit elsewhere at any price.
_MAX_EXPLAINED_STAYS = 20


class ConsolidationPlan:
    """Nodes to remove and the plan for their pods; `saving` is the saving in $/h less the charge for evictions."""

    def __init__(self, removed: Sequence[NodeState], plan: Plan, eviction_charge: float) -> None:
        self.removed = tuple(removed)
        self.plan = plan
        self.saving = sum(node.price or 0.0 for node in removed) - plan.cost.per_hour - eviction_charge


class CandidateFleet:
    """The existing nodes of a snapshot. `moved` are the pods of each candidate that would be evicted."""

    def __init__(self, snapshot: Snapshot, policy: ConsolidationPolicy) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.candidates = sorted(filter(_is_removable, snapshot.nodes), key=lambda node: node.name)
        self.moved = {node.name: movable_pods(node) for node in self.candidates}
        self.pods = sum(map(len, self.moved.values()))
        self.pods_by_budget = _pods_by_disruption_budget(snapshot, self.moved)
        plan = provision(snapshot)
        self.unchanged = ConsolidationPlan((), plan, 0.0)
        self._missing = frozenset(plan.unschedulable)
        self._uninitialized = {node.name for node in snapshot.nodes if not node.initialized}

    @cached_property
    def all_removed(self) -> Problem:
        """The problem with all candidates removed: to place are their pods and the pending pods that can be placed."""
        without_candidates = self._snapshot_without(self.candidates)
        return Problem(
            replace(
                without_candidates,
                pending=tuple(p for p in without_candidates.pending if pod_key(p) not in self._missing),
            )
        )

    @cached_property
    def free(self) -> Table:
        """The free resources of each candidate with its pods on it, by dimension."""
        dims, memory = self.all_removed.dims, self.snapshot.memory
        with memory.lock:
            rows = [[_free(node, name, facts_of(node, memory)) for name in dims] for node in self.candidates]
        return np.array(rows, dtype=np.float64).reshape(len(self.candidates), len(dims))

    @cached_property
    def classes(self) -> dict[str, int]:
        """The index of each pod's class."""
        return {pod: pod_class.index for pod_class in self.all_removed.classes for pod in pod_class.pods}

    def lower_bound(self, seconds: float) -> FleetLowerBound | None:
        """The lower bound of the fleet's cost, whichever candidates are removed; None where time is short."""
        kinds = {(pool.name, kind.name): kind for pool in self.snapshot.pools for kind in pool.types}
        removable = [
            RemovableNode(
                node.pool or "",
                node.price or 0.0,
                [self.classes[pod_key(pod)] for pod in self.moved[node.name]],
                free,
                _is_replaceable(node, kinds),
            )
            for node, free in zip(self.candidates, self.free, strict=True)
        ]
        ours = {node.name for node in self.candidates}
        staying = sum(node.price or 0.0 for node in self.snapshot.nodes if not node.deleting and node.name not in ours)
        return fleet_lower_bound(self.all_removed, removable, staying, self.most, seconds)

    @cached_property
    def most(self) -> dict[str, int]:
        """The number of nodes that the budgets of each NodePool allow to be removed: empty ones only, or any."""
        empty = Counter(node.pool for node in self.candidates if not self.moved[node.name])
        return {pool: max(min(empty[pool], quota.empty), quota.used) for pool, quota in self.policy.budgets.items()}

    @cached_property
    def charges(self) -> Mapping[str, float]:
        """The charge for evicting the pods of each candidate, in $/h."""
        policy, charges = self.policy, {}
        charge = policy.charge
        if charge is None:
            cost = sum(node.price or 0.0 for node in self.candidates)
            charge = _EVICTION_CHARGE_SHARE * min(cost, self.replacement_cost) / max(1, self.pods)
        for node in self.candidates:
            units = policy.eviction_units.get(node.name, float(len(self.moved[node.name])))
            charges[node.name] = max(charge * units, policy.min_savings.get(node.pool or "", 0.0) * units)
        return charges

    @cached_property
    def replacement_cost(self) -> float:
        """The approximate cost of new nodes for the pods of all candidates, in $/h."""
        return provision(self._snapshot_without(self.candidates)).cost.per_hour

    def without(
        self,
        removed: Sequence[NodeState],
        seed: int = 0,
        deadline: float | None = None,
        optimiser: Optimiser | None = None,
    ) -> ConsolidationPlan | None:
        """The choice to remove these nodes; None if a pod that can be placed now would become unplaced."""
        plan = provision(self._snapshot_without(removed), seed=seed, deadline=deadline, optimiser=optimiser)
        if not self._missing.issuperset(plan.unschedulable):
            return None
        moved = {pod_key(pod) for node in removed for pod in self.moved[node.name]}
        if self._uninitialized and any(plan.placements[pod].node in self._uninitialized for pod in moved):
            return None
        return ConsolidationPlan(removed, plan, sum(self.charges[node.name] for node in removed))

    def _snapshot_without(self, removed: Iterable[NodeState]) -> Snapshot:
        names = {node.name for node in removed}
        nodes = tuple(replace(node, deleting=True) if node.name in names else node for node in self.snapshot.nodes)
        moved = tuple(pod for node in self.candidates if node.name in names for pod in self.moved[node.name])
        return replace(self.snapshot, nodes=nodes, pending=(*self.snapshot.pending, *moved))

    # -- disruption budgets ------------------------------------------------------------------------------------

    def within(self, removed: Iterable[NodeState]) -> tuple[NodeState, ...]:
        """As many of the nodes as NodePool budgets and PodDisruptionBudgets allow, in order; empty ones first."""
        budget_use = BudgetUse(self)
        return tuple(
            node
            for node in sorted(removed, key=lambda candidate: bool(self.moved[candidate.name]))
            if budget_use.take(node)
        )

    @cached_property
    def evictions_allowed(self) -> dict[str, int]:
        """The number of pods that each PodDisruptionBudget allows to be evicted."""
        return {budget.metadata.key: budget.status.disruptions_allowed for budget in self.snapshot.budgets}

    def stays(self, best: ConsolidationPlan) -> dict[str, str]:
        """Why each node that is not removed stays."""
        budget_use, removed, reasons = BudgetUse(self), {node.name for node in best.removed}, dict[str, str]()
        tried = 0
        for node in best.removed:
            budget_use.take(node)
        for node in self.snapshot.nodes:
            if node.name in removed or node.deleting:
                continue
            if node.name not in self.moved:
                reasons[node.name] = node.held_by or _why_not_removable(node)
                continue
            reasons[node.name] = budget_use.blocking_budget(node) or message("no cheaper node for its pods")
            if not budget_use.blocking_budget(node) and self.moved[node.name] and tried < _MAX_EXPLAINED_STAYS:
                tried += 1
                if self.without((node,)) is None:
                    reasons[node.name] = message("its pods fit nowhere else")
        return reasons


class BudgetUse:
    """The NodePool budgets and PodDisruptionBudgets that a set of removed nodes uses."""

    def __init__(self, fleet: CandidateFleet) -> None:
        self._fleet = fleet
        self._pools: Counter[tuple[str, bool]] = Counter()
        self._pods: Counter[str] = Counter()

    def blocking_budget(self, node: NodeState) -> str:
        """The budget that forbids removing another node as well, as text; empty if none does."""
        fleet, pool, used = self._fleet, node.pool or "", bool(self._fleet.moved[node.name])
        quota = fleet.policy.budgets.get(pool)
        if quota is not None:
            both = self._pools[pool, True] + self._pools[pool, False]
            full = both >= quota.used if used or self._pools[pool, True] else False
            if full or (not used and self._pools[pool, False] >= quota.empty):
                return message("the budgets of its NodePool let no more go at once")
        for key, count in fleet.pods_by_budget[node.name].items():
            if self._pods[key] + count > fleet.evictions_allowed[key]:
                return message("PodDisruptionBudget {key} lets no more pods go at once", key=key)
        return ""

    def take(self, node: NodeState) -> bool:
        """Add a node to the removed ones if the budgets allow it; returns whether they do."""
        if self.blocking_budget(node):
            return False
        self._pools[node.pool or "", bool(self._fleet.moved[node.name])] += 1
        self._pods += self._fleet.pods_by_budget[node.name]
        return True


def _free(node: NodeState, name: str, facts: NodeFacts) -> float:
    if name.startswith(PORT):
        return 1.0
    if name.startswith(ATTACH):
        return float(node.attach_limits.get(driver_of(name), TOO_MUCH))
    return float(node.allocatable.get(name, 0) - facts.used.get(name, 0) - facts.missing_daemons[name])


def _is_replaceable(node: NodeState, kinds: Mapping[tuple[str, str], InstanceType]) -> bool:
    """Whether an equal node can be launched for no higher price: then keeping it cannot cost less than replacing it."""
    zone, name, capacity = (node.labels.get(key, "") for key in (ZONE, INSTANCE_TYPE, CAPACITY_TYPE))
    kind = kinds.get((node.pool or "", name))
    if kind is None or any(kind.allocatable.get(what, 0) < amount for what, amount in node.allocatable.items()):
        return False
    prices = [o.price for o in kind.offerings if o.available and (o.zone, o.capacity_type) == (zone, capacity)]
    return any(price is not None and price <= (node.price or 0.0) for price in prices)


def _is_removable(node: NodeState) -> bool:
    return node.movable and not node.deleting and node.initialized and node.price is not None


def _why_not_removable(node: NodeState) -> str:
    return message("it is not ready for pods yet") if not node.initialized else message("its price is unknown")


def movable_pods(node: NodeState) -> list[Pod]:
    """The pods that must be placed elsewhere if the node is removed: neither daemons nor finished ones."""
    pods = []
    for pod in node.pods:
        owner = pod.metadata.controller
        if not pod.finished and not pod.terminating and (owner is None or owner.kind not in ("DaemonSet", "Node")):
            pods.append(pod)
    return pods


def _pods_by_disruption_budget(snapshot: Snapshot, moved: Mapping[str, Sequence[Pod]]) -> dict[str, Counter[str]]:
    """The number of pods of each PodDisruptionBudget on each node; a pod under several cannot be evicted."""
    pods_by_budget: dict[str, Counter[str]] = {}
    for name, pods in moved.items():
        mine = Counter[str]()
        for pod in pods:
            over = [
                budget
                for budget in snapshot.budgets
                if budget.metadata.namespace == pod.metadata.namespace
                and matches(budget.spec.selector, pod.metadata.labels)
            ]
            for budget in over:
                if len(over) > 1 or budget.spec.unhealthy_pod_eviction_policy != "AlwaysAllow" or _ready(pod):
                    mine[budget.metadata.key] += 1 if len(over) == 1 else 1 << 30
        pods_by_budget[name] = mine
    return pods_by_budget


def _ready(pod: Pod) -> bool:
    described = condition(pod.status.conditions, "Ready")
    return described is not None and described.status == "True"
