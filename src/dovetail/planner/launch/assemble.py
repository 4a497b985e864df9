"""The plan of a packing: NodeClaims, placements, reasons for pods without a node, and the cost."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.planner.explain.unschedulable import UnusablePools, unschedulable
from dovetail.planner.launch.node_claims import nodes_and_placements, with_daemon_requests
from dovetail.planner.packing.objective import zone_budget
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.zone_spread import pin_zones
from dovetail.planner.plan import Cost, Placement, Plan, PlannedNode
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.min_values import meets_min_values

#: Up to this many new nodes, one is moved to an unused zone for a small extra cost; more are in every zone anyway.
_MAX_ZONE_PINNED_NODES = 200


def _price(planned_nodes: Sequence[PlannedNode]) -> float:
    return sum([planned.price for planned in planned_nodes])


def plan_of(problem: Problem, packing: Packing, tier: int = 1, bound: float | None = None, bound_of: str = "") -> Plan:
    """The packing as a plan, with reasons for its unplaced pods."""
    planned_nodes, placements, left = nodes_and_placements(problem, packing)
    least = _price(planned_nodes)
    if tier > 1 and len(planned_nodes) <= _MAX_ZONE_PINNED_NODES:
        pools_with_min_values = {problem.pools[node].name: problem.pools[node] for node in problem.min_values}

        def settled(was: PlannedNode, planned: PlannedNode) -> PlannedNode | None:
            varies = planned.pool not in pools_with_min_values or meets_min_values(
                pools_with_min_values[planned.pool], planned.offerings
            )
            return with_daemon_requests(problem, was, planned) if varies else None

        run = packing.state.run
        budget = zone_budget(least, packing.left, run.baseline, run.cheapest)
        planned_nodes = pin_zones(planned_nodes, settled, budget)
    unusable = UnusablePools(problem, [problem.classes[index] for index in left])
    for index, names in left.items():
        why = Placement(unschedulable=unschedulable(problem, packing.state, problem.classes[index], unusable))
        placements.update(dict.fromkeys(names, why))
    price = _price(planned_nodes)
    cost = Cost(per_hour=price, lower_bound=bound, bound_of=bound_of, for_zones=max(0.0, price - least))
    names = sorted(placements)
    in_order = dict(zip(names, map(placements.__getitem__, names), strict=True))
    return Plan(placements=in_order, nodes=planned_nodes, cost=cost, tier=tier)
