"""Scheduling simulation: the plan for the pods of candidates, without the candidates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.disruption import removal_sets
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.consolidation import CLOSE, ConsolidationContext, RejectedConsolidation
from dovetail.controllers.disruption.removal_sets import DEAR, FreeCapacity, removable
from dovetail.controllers.disruption.types import Candidate
from dovetail.controllers.provisioning import provisionable_pods
from dovetail.model.nodes import Taint
from dovetail.model.pods import Pod
from dovetail.planner.cache import PlannerCache
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.plan import Plan, Unschedulable
from dovetail.planner.problem.pod_spec import PodConstraints, shape_of
from dovetail.planner.provision import provision, quote
from dovetail.planner.snapshot import NodeState, Pool

#: Seconds' worth of work for a plan that may be executed.
EFFORT = 0.5
CLOSED = Taint(key="dovetail.sh/in-motion", effect="NoSchedule")


class Simulation:
    """One snapshot of the cluster, simulated many times."""

    def __init__(
        self,
        context: Context,
        pools: Sequence[Pool],
        closed: Collection[str] = (),
        candidates: Sequence[Candidate] = (),
    ) -> None:
        """`closed` are nodes that no pod should be moved to: pods come and go there, or they are empty.

        Nothing about `candidates` is read from the cluster later, so that these simulations may run beside the loop.
        """
        waiting = [
            *provisionable_pods.waiting(context.cluster_state),
            *provisionable_pods.evictable(context.cluster_state, context.clock.now()),
        ]
        snapshot = context.snapshot_builder.build(pools, waiting)
        nodes = tuple(_tainted(node) if node.name in closed else node for node in snapshot.nodes)
        self._snapshot = msgspec.structs.replace(snapshot, nodes=nodes) if closed else snapshot
        self._waiting = {pod.metadata.key for pod in waiting}
        self._types = context.cluster_state.types_by_name
        self._context = context
        self._pods: dict[str, list[Pod]] = {}
        for candidate in candidates:
            self._moved(candidate)

    @property
    def seen(self) -> tuple[tuple[object, ...], ...]:
        """What results depend on: the nodes, the pending pods, and the offers."""
        return self._snapshot.nodes, self._snapshot.pending, self._snapshot.pools

    def question(
        self,
        candidates: Sequence[Candidate],
        remaining_budgets: RemainingBudgets,
        refused: Mapping[str, RejectedConsolidation],
        *,
        spot_to_spot: bool,
        vain: float = -math.inf,
    ) -> ConsolidationContext:
        """All that a choice among the candidates is made from.

        In a fleet that is dearer than a fresh one by the share `vain` at most, no whole sets are searched for, nor
        those whose NodePool rejected them.
        """
        fresh = self.fresh(candidates)
        above = sum(candidate.price or 0.0 for candidate in candidates) / fresh - 1.0 if fresh else math.inf
        there = FreeCapacity(self._snapshot.nodes, self._snapshot.memory)
        rejected_nodes = {node for node, why in refused.items() if why.code == "NOT_BALANCED" and above <= vain}
        thinned = self.thinned(candidates, there, remaining_budgets.left, fresh)
        return ConsolidationContext(
            simulate=self.without,
            search=partial(self.without, effort=EFFORT),
            allow=remaining_budgets.fits,
            removals=tuple(self.removals(candidates, there, remaining_budgets.left, fresh)) if above > vain else (),
            thinned=tuple(candidate for candidate in thinned if candidate.node not in rejected_nodes),
            fresh=fresh,
            above=above,
            refused=refused,
            spot_to_spot=spot_to_spot,
            baseline=self.baseline(),
            types=self._types,
        )

    def without(self, candidates: Collection[Candidate], effort: float | None = None, credit: str = "") -> Plan | None:
        """A plan that places every pod of the candidates elsewhere; None if some pod would be unschedulable.

        Pending pods are planned along, and do not count against the candidates if they are unschedulable.
        `credit` is a capacity reservation that has one more free instance once the candidates are gone.
        """
        plan, moved = self._planned(candidates, effort, credit)
        uninitialized = {node.name for node in self._snapshot.nodes if not node.initialized}
        for pod in moved:
            place = plan.placements.get(pod.metadata.key)
            if place is None or place.unschedulable is not None or place.node in uninitialized:
                return None
        return plan

    def unschedulable(self, candidate: Candidate) -> dict[str, Unschedulable]:
        """The pods of a candidate that no other node would hold, and no new one, and why; by their keys."""
        plan, moved = self._planned((candidate,))
        places = {pod.metadata.key: plan.placements.get(pod.metadata.key) for pod in moved}
        return {key: place.unschedulable for key, place in places.items() if place and place.unschedulable}

    def _planned(
        self, candidates: Collection[Candidate], effort: float | None = None, credit: str = ""
    ) -> tuple[Plan, list[Pod]]:
        """The plan without the candidates, and their pods."""
        removed = {candidate.node for candidate in candidates}
        moved = [pod for candidate in candidates for pod in self._moved(candidate)]
        nodes = tuple(
            msgspec.structs.replace(node, deleting=True) if node.name in removed else node
            for node in self._snapshot.nodes
        )
        pending = (*self._snapshot.pending, *moved)
        pools = tuple(_credited(pool, credit) for pool in self._snapshot.pools) if credit else self._snapshot.pools
        snapshot = msgspec.structs.replace(self._snapshot, nodes=nodes, pending=pending, pools=pools)
        return provision(snapshot, deadline=effort, optimiser=better_by_work), moved

    def baseline(self) -> float:
        """What the pending pods would cost: no part of any candidate's cost."""
        if not self._snapshot.pending:
            return 0.0
        return provision(self._snapshot).cost.per_hour

    def thinned(
        self, candidates: Sequence[Candidate], there: FreeCapacity, allowed: Mapping[str, int], fresh: float | None
    ) -> list[Candidate]:
        """Candidates that could probably be removed without a replacement."""
        pods = {candidate.node: self._moved(candidate) for candidate in candidates}
        return removable(candidates, pods, there, allowed, fresh)

    def removals(
        self, candidates: Sequence[Candidate], there: FreeCapacity, allowed: Mapping[str, int], fresh: float | None
    ) -> Iterator[tuple[Candidate, ...]]:
        """Whole sets of candidates that might be removed together; moving a pod is charged with what a pod costs."""
        if fresh is None:
            return iter(())
        cost = sum(candidate.price or 0.0 for candidate in candidates)
        charge = fresh / max(1, sum(len(candidate.pods) for candidate in candidates))
        if cost <= fresh * (1 + CLOSE):
            charge *= DEAR
        pods = {candidate.node: self._moved(candidate) for candidate in candidates}
        return removal_sets.removals(candidates, pods, there, allowed, charge)

    def fresh(self, candidates: Sequence[Candidate]) -> float | None:
        """What the pods of these nodes would cost on an empty cluster; None if not all would be schedulable."""
        moved = [pod for candidate in candidates for pod in self._moved(candidate)]
        empty = msgspec.structs.replace(self._snapshot, nodes=(), pending=tuple(moved))
        rows = empty.memory.table("fresh")
        about = (_alike(moved, empty.memory), tuple(map(id, empty.pools)), tuple(map(id, empty.daemons)))
        if about not in rows:
            rows.clear()
            rows[about] = (quote(empty), empty.pools, empty.daemons)  # objects keyed by identity must stay alive
        price: float | None = rows[about][0]
        return price

    def _moved(self, candidate: Candidate) -> list[Pod]:
        if candidate.node not in self._pods:
            pods = map(self._context.cluster_state.pods.store.get, candidate.pods)
            self._pods[candidate.node] = [pod for pod in pods if pod and pod.metadata.key not in self._waiting]
        return self._pods[candidate.node]


def _alike(pods: Sequence[Pod], memory: PlannerCache) -> frozenset[tuple[PodConstraints, int]]:
    """Pods by their scheduling shape, with counts."""
    with memory.lock:
        return frozenset(Counter(shape_of(pod, memory) for pod in pods).items())


def _tainted(node: NodeState) -> NodeState:
    """The same node, its pods counted as ever, with a NoSchedule taint."""
    return msgspec.structs.replace(node, taints=(*node.taints, CLOSED))


def _credited(pool: Pool, reservation: str) -> Pool:
    """The same offers, with one more free instance in a reservation."""
    types = tuple(
        msgspec.structs.replace(
            kind,
            offerings=tuple(
                msgspec.structs.replace(offering, reservation_capacity=(offering.reservation_capacity or 0) + 1)
                if offering.reservation_id == reservation
                else offering
                for offering in kind.offerings
            ),
        )
        for kind in pool.types
    )
    return msgspec.structs.replace(pool, types=types)
