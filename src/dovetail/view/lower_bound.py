"""What no fleet for the same pods costs less than, as far as it can be proven from outside the controller.

Nodes of no NodePool stay, with their price and their free room; all pods of the others, and those that wait for a node
on its way, are to be placed on nodes launched anew, at the packaged prices, or at a price that a node of the same
offering was launched at if that is less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dovetail.cloud.aws import catalog
from dovetail.cluster import nodepools
from dovetail.cluster.snapshot import SnapshotBuilder
from dovetail.cluster.state import ClusterState
from dovetail.language import source
from dovetail.model import wellknown
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import SPOT
from dovetail.model.pods import Pod, owned_by
from dovetail.planner.cache import PlannerCache
from dovetail.planner.snapshot import Pool, Snapshot
from dovetail.view.model import FleetView, LowerBound

#: How long the relaxation may take, in seconds.
RELAXATION_TIMEOUT_S = 5.0
PACKAGED = source("at packaged prices")
SPOT_ESTIMATED = source("spot prices are estimates")

Offerings = Mapping[tuple[str, str, str], float]


class BoundProblem(msgspec.Struct, frozen=True):
    """What is to be bounded: a snapshot, the prices of its nodes by name, and what holds of the prices."""

    snapshot: Snapshot
    prices: Mapping[str, float]
    memory: PlannerCache
    notes: tuple[str, ...]
    #: What the fleet costs while the problem is as it is.
    cost: float | None = None


class Bounds:
    """Problems from a cluster state. Types of a node class are derived again only when it changes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._builder = SnapshotBuilder(state)
        self._memory = PlannerCache()
        self._types: dict[str, tuple[Any, str, tuple[InstanceType, ...]]] = {}

    def problem(self, view: FleetView) -> BoundProblem | None:
        """None where it cannot be known: no NodePool, a price that is unknown, or more than one region."""
        regions = {node.metadata.labels.get(wellknown.REGION, "") for node in self._state.nodes.store}
        if len(regions) != 1 or not (regions & set(catalog.regions())):
            return None
        cost = view.totals.fleet.money.per_hour
        if cost is None:
            return None
        (region,) = regions
        paid = {
            (node.instance_type or "", node.zone or "", node.capacity_type or ""): node.price.per_hour
            for node in view.nodes.values()
            if node.price is not None
        }
        pools = tuple(self._pools(region, paid))
        if not pools:
            return None
        prices = {node.name: node.price.per_hour for node in view.nodes.values() if node.price is not None}
        spot = any(_may_be_spot(pool) for pool in pools)
        notes = (PACKAGED, SPOT_ESTIMATED) if spot else (PACKAGED,)
        snapshot = self._builder.build(pools, ())  # pods that wait for a node on its way are on it already
        return BoundProblem(snapshot, prices, self._memory, notes, cost)

    def _pools(self, region: str, paid: Offerings) -> Iterable[Pool]:
        lowered: dict[str, tuple[InstanceType, ...]] = {}
        for pool in self._state.pools.store.all():
            name = pool.spec.template.spec.node_class_ref.name
            node_class = self._state.node_classes.store.get(name)
            if nodepools.usable(pool) and node_class is not None:
                if name not in lowered:
                    types = self._types_of(name, node_class, region)
                    lowered[name] = tuple(_lowered(instance_type, paid) for instance_type in types)
                yield nodepools.for_planner(pool, lowered[name])

    def _types_of(self, name: str, node_class: Mapping[str, Any], region: str) -> tuple[InstanceType, ...]:
        held = self._types.get(name)
        if held is None or held[0] is not node_class or held[1] != region:
            held = self._types[name] = (node_class, region, catalog.of_class(region, node_class))
        return held[2]


def bound(problem: BoundProblem) -> LowerBound | None:
    """Solve it; some seconds of a processor for a large fleet. None where time was short.

    All that follows from the snapshot is derived here, not in `problem`: 30,000 pods held the server's loop for 0.3 s.
    """
    from dovetail.planner.optimise.lower_bound import WORDS, proven
    from dovetail.planner.problem.compile import Problem

    names = {pool.name for pool in problem.snapshot.pools}
    remaining = [state for state in problem.snapshot.nodes if not state.deleting]
    staying = tuple(state for state in remaining if state.pool not in names)
    moved = {
        pod.metadata.uid: _unbound(pod)  # once, though it may be on a node and nominated for its replacement
        for state in remaining
        if state.pool in names
        for pod in state.pods
        if _moves(pod)
    }
    price_of_staying = sum(problem.prices.get(state.name, 0.0) for state in staying)
    compiled = Problem(
        msgspec.structs.replace(problem.snapshot, nodes=staying, pending=tuple(moved.values()), memory=problem.memory)
    )
    nowhere = {
        pod_class.index: pod_class.count for pod_class in compiled.classes if not _is_offered(compiled, pod_class)
    }
    bound_of_new_nodes = proven(compiled, nowhere, RELAXATION_TIMEOUT_S)
    return (
        None
        if bound_of_new_nodes is None
        else LowerBound(price_of_staying + bound_of_new_nodes, (*problem.notes, WORDS), problem.cost)
    )


def _is_offered(problem: Any, pod_class: Any) -> bool:
    import numpy as np

    request = problem.request(pod_class, len(pod_class.levels) - 1)
    return bool((request.offerings & np.isfinite(problem.frontier.prices)).any())


def _lowered(offered: InstanceType, paid: Offerings) -> InstanceType:
    """The type with no offering dearer than a node of it was: a bound must hold for the prices that are paid."""

    def price(offering: Offering) -> float | None:
        seen = paid.get((offered.name, offering.zone, offering.capacity_type))
        return seen if seen is not None and (offering.price is None or seen < offering.price) else offering.price

    changed = [(offering, price(offering)) for offering in offered.offerings]
    if all(offering.price == lower for offering, lower in changed):
        return offered
    offerings = tuple(msgspec.structs.replace(offering, price=lower) for offering, lower in changed)
    return msgspec.structs.replace(offered, offerings=offerings)


def _moves(pod: Pod) -> bool:
    return not pod.finished and not owned_by(pod, "DaemonSet", "Node")


def _unbound(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def _may_be_spot(pool: Pool) -> bool:
    terms = [term for term in pool.requirements if term.key == wellknown.CAPACITY_TYPE]
    return not any(term.operator == "In" and SPOT not in term.values for term in terms)
