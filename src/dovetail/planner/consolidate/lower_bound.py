"""The lower bound of a consolidation: the least cost of the fleet, whichever of its nodes stay.

On new nodes, pods cost at least their dual price in the LP relaxation. A node that stays costs its price and saves at
most the dual price of the pods that it can hold; where that is more than its price, the difference is subtracted from
the bound. Where budgets keep nodes, those with the largest difference are kept first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from dovetail.language import message, source
from dovetail.planner.offerings.catalog import Floats
from dovetail.planner.optimise.lower_bound import WORDS, relaxed, whole
from dovetail.planner.optimise.relaxation import Relaxation
from dovetail.planner.problem.compile import Problem

#: The bound is the maximum over this many scalings of the dual prices between 0 and 1.
_DUAL_SCALINGS = 64
_FLEET = source("any part of the fleet launched anew, whatever the disruption budgets of pods, where {relaxations}")
_KEPT = source("; of NodePools with a budget as many nodes stay as must")


class FleetLowerBound(msgspec.Struct, frozen=True):
    """The bound, and what it relaxes."""

    price: float
    words: str


class RemovableNode(msgspec.Struct, frozen=True):
    """A node that may be removed: its price, the classes of its pods, and its free resources.

    `replaceable`: an equal node can be launched for no higher price.
    """

    pool: str
    price: float
    pods: Sequence[int]
    free: Floats
    replaceable: bool


def fleet_lower_bound(
    problem: Problem, removable: Sequence[RemovableNode], staying: float, budgets: Mapping[str, int], seconds: float
) -> FleetLowerBound | None:
    """The lower bound of a fleet for the same pods; None where there was no time.

    In `problem` all `removable` nodes are removed and their pods are to be placed; `staying` is the cost of the other
    nodes. `budgets` has the most nodes of a NodePool that may be removed.
    """
    nowhere = {
        pod_class.index: pod_class.count for pod_class in problem.classes if not _is_offered(problem, pod_class.index)
    }
    relaxation = relaxed(problem, nowhere, seconds)
    if relaxation is None:
        return None
    prices, pools = np.array([node.price for node in removable]), [node.pool for node in removable]
    values, must = _values(relaxation, removable), {pool: pools.count(pool) - most for pool, most in budgets.items()}
    kept = max(
        _cost_with_kept_nodes(share * relaxation.price, prices - share * values, pools, must)
        for share in np.linspace(0.0, 1.0, _DUAL_SCALINGS + 1)
    )
    if all(node.replaceable for node in removable):
        kept = max(kept, whole(problem, nowhere))
    words = message(_FLEET, relaxations=WORDS) + (_KEPT if any(count > 0 for count in must.values()) else "")
    return FleetLowerBound(float(staying + kept), words)


def _is_offered(problem: Problem, index: int) -> bool:
    request = problem.request(problem.classes[index], len(problem.classes[index].levels) - 1)
    return bool((request.offerings & np.isfinite(problem.frontier.prices)).any())


def _cost_with_kept_nodes(new_nodes: float, net_costs: Floats, pools: Sequence[str], must: Mapping[str, int]) -> float:
    """The cost of new nodes plus the net cost of kept nodes: those that reduce the sum or must stay."""
    total = new_nodes + float(np.minimum(net_costs, 0.0).sum())
    for pool, count in must.items():
        if count > 0:
            mine = np.sort(net_costs[[pool_name == pool for pool_name in pools]])
            total += float(np.maximum(mine[:count], 0.0).sum())
    return total


def _values(relaxation: Relaxation, removable: Sequence[RemovableNode]) -> Floats:
    """The largest dual price of the pods that each node can hold: its own, and as many more as fit."""
    placement_requests = [flow.demand.request for flow in relaxation.flows]
    values_by_index = {
        request.cls.index: float(total) / flow.demand.count
        for request, flow, total in zip(placement_requests, relaxation.flows, relaxation.worth, strict=True)
    }
    own = np.array([sum(values_by_index.get(index, 0.0) for index in node.pods) for node in removable])
    if placement_requests and removable:
        dual_values = (
            relaxation.rates @ np.array([request.amounts for request in placement_requests], dtype=np.float64).T
        )
        valid_rates = (
            dual_values >= np.array([values_by_index[request.cls.index] for request in placement_requests]) * (1 - 1e-9)
        ).all(axis=1)
        rates = relaxation.rates[valid_rates] if valid_rates.any() else relaxation.rates.max(axis=0, keepdims=True)
        own = own + (np.maximum([node.free for node in removable], 0.0) @ rates.T).min(axis=1)
    return np.where([node.replaceable for node in removable], np.minimum(own, [node.price for node in removable]), own)
