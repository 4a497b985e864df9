"""The lower bound of a moment: what the pods of the cluster would cost at least, on any nodes its NodePools allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dovetail.cluster.nodepools import for_planner
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod, returning
from dovetail.model.quantity import resources
from dovetail.planner.cache import PlannerCache
from dovetail.planner.optimise.lower_bound import proven
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_spec import shape_of
from dovetail.planner.snapshot import NodeState, Pool, Snapshot

#: Seconds that a bound may take; it is a limit for broken input, never reached by a sound one.
BOUND_TIMEOUT_S = 60.0


def pools_of(node_pools: Iterable[dict[str, Any]], types: Sequence[InstanceType]) -> tuple[Pool, ...]:
    """NodePools that all launch the same types."""
    return tuple(for_planner(msgspec.convert(body, NodePool), types) for body in node_pools)


class OfferBounds:
    """Bounds for one offer. Pods of the same shapes in the same numbers have the same bound, which is kept."""

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._pools = tuple(pools)
        self._memory = PlannerCache()
        self._known: dict[object, float] = {}

    def per_hour(self, pods: Iterable[Pod], standing: Iterable[Node] = ()) -> float:
        """Dollars an hour; `standing` are nodes that are there whatever is launched, and cost nothing here."""
        unbound = [
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
            for pod in pods
            if returning(pod)
        ]
        nodes = tuple(
            NodeState(
                name=node.metadata.name,
                labels=node.metadata.labels,
                allocatable=resources(node.status.allocatable),
                capacity=resources(node.status.capacity),
                taints=node.spec.taints,
            )
            for node in standing
        )
        key = (
            frozenset(Counter(shape_of(pod, self._memory) for pod in unbound).items()),
            tuple(node.name for node in nodes),
        )
        if key not in self._known:
            self._known[key] = self._compute(unbound, nodes)
        return self._known[key]

    def _compute(self, pods: Sequence[Pod], nodes: tuple[NodeState, ...]) -> float:
        if not pods or not self._pools:
            return 0.0
        snapshot = Snapshot(pools=self._pools, nodes=nodes, pending=tuple(pods), memory=self._memory)
        problem = Problem(snapshot)
        # A pod that no offering holds costs nothing in a bound: it would have to be left out by any plan.
        infeasible = {pod_class.index: pod_class.count for pod_class in problem.classes if pod_class.error}
        return proven(problem, infeasible, BOUND_TIMEOUT_S) or 0.0
