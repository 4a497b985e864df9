"""What a fleet cannot cost less than, whichever of its nodes stay: the bound of a consolidation.

Launched anew, pods are worth what the market asks for them at least. A node that stays holds so much worth of pods at
most, and costs its price: what it holds beyond that comes off the bound. Where budgets keep nodes, those that are
the best bargains stay first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from dovetail.language import source
from dovetail.planner.offerings.catalog import Floats
from dovetail.planner.optimise.lower_bound import WORDS, relaxed, whole
from dovetail.planner.optimise.relaxation import Relaxation
from dovetail.planner.problem.compile import Problem

#: Steps in which prices of the market are tried, from nothing to all they are.
_STEPS = 64
_MAX_LISTED = source("any part of the fleet launched anew, whatever the disruption budgets of pods")
_KEPT = source("; of NodePools with a budget as many nodes stay as must")


class Floor(msgspec.Struct, frozen=True):
    """The bound, and what it relaxes."""

    price: float
    words: str


class Stand(msgspec.Struct, frozen=True):
    """A node that might go: what it costs, who is on it by the number of their class, and what room it has beside.

    `resold`: as much can be launched for no more.
    """

    pool: str
    price: float
    pods: Sequence[int]
    free: Floats
    resold: bool


def floor_of(
    problem: Problem, stands: Sequence[Stand], staying: float, budgets: Mapping[str, int], seconds: float
) -> Floor | None:
    """What no fleet for the same pods costs less than; None where there was no time.

    In `problem` all `stands` are gone and their pods to be placed; `staying` is what the others cost. Of a pool with a
    budget at most so many may go.
    """
    nowhere = {
        pod_class.index: pod_class.count for pod_class in problem.classes if not _is_offered(problem, pod_class.index)
    }
    relaxation = relaxed(problem, nowhere, seconds)
    if relaxation is None:
        return None
    prices, pools = np.array([stand.price for stand in stands]), [stand.pool for stand in stands]
    values, must = _values(relaxation, stands), {pool: pools.count(pool) - most for pool, most in budgets.items()}
    kept = max(
        _kept(share * relaxation.price, prices - share * values, pools, must)
        for share in np.linspace(0.0, 1.0, _STEPS + 1)
    )
    if all(stand.resold for stand in stands):
        kept = max(kept, whole(problem, nowhere))
    words = f"{_MAX_LISTED}, where {WORDS}{_KEPT if any(count > 0 for count in must.values()) else ''}"
    return Floor(float(staying + kept), words)


def _is_offered(problem: Problem, index: int) -> bool:
    request = problem.request(problem.classes[index], len(problem.classes[index].levels) - 1)
    return bool((request.offerings & np.isfinite(problem.frontier.prices)).any())


def _kept(new_nodes: float, dues: Floats, pools: Sequence[str], must: Mapping[str, int]) -> float:
    """What is launched, and what those cost on top whom it pays to keep, or who must stay: the best bargains."""
    total = new_nodes + float(np.minimum(dues, 0.0).sum())
    for pool, count in must.items():
        if count > 0:
            mine = np.sort(dues[[pool_name == pool for pool_name in pools]])
            total += float(np.maximum(mine[:count], 0.0).sum())
    return total


def _values(relaxation: Relaxation, stands: Sequence[Stand]) -> Floats:
    """What the pods are worth at most that each node holds if it stays: its own, and as many more as have room."""
    placement_requests = [flow.demand.request for flow in relaxation.flows]
    values_by_index = {
        request.cls.index: float(total) / flow.demand.count
        for request, flow, total in zip(placement_requests, relaxation.flows, relaxation.worth, strict=True)
    }
    own = np.array([sum(values_by_index.get(index, 0.0) for index in stand.pods) for stand in stands])
    if placement_requests and stands:
        asked = relaxation.rates @ np.array([request.amounts for request in placement_requests], dtype=np.float64).T
        dear = (
            asked >= np.array([values_by_index[request.cls.index] for request in placement_requests]) * (1 - 1e-9)
        ).all(axis=1)
        rates = relaxation.rates[dear] if dear.any() else relaxation.rates.max(axis=0, keepdims=True)
        own = own + (np.maximum([stand.free for stand in stands], 0.0) @ rates.T).min(axis=1)
    return np.where([stand.resold for stand in stands], np.minimum(own, [stand.price for stand in stands]), own)
