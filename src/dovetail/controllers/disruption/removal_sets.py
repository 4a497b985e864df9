"""Which nodes stay: the part of the fleet that holds all pods at the least cost, with a charge for every move.

All nodes are weighed at once, resource by resource, so that what stays is not short of memory while CPU stands
idle. Whole pods fit less well than their sums, so several margins are tried; the planner decides which of the sets is
best. An integer programme for a small fleet; for a large one the relaxation, rounded up, is as good.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dovetail.controllers.disruption.consolidation import CLOSE
from dovetail.controllers.disruption.types import Candidate
from dovetail.model.pods import Pod
from dovetail.planner.cache import PlannerCache
from dovetail.planner.consolidate.subsets import SMALL, cheapest
from dovetail.planner.problem.nodes import facts_of
from dovetail.planner.problem.pod_spec import PodConstraints, shape_of
from dovetail.planner.snapshot import NodeState

#: How heavily moves weigh, and how much of the remaining capacity may be requested.
TRIED = tuple(itertools.product((1.0, 2.5), (1.0, 0.99, 0.98, 0.97, 0.95, 0.92)))
#: Large fleets are weighed less often.
TRIED_LARGE = ((1.0, 1.0), (1.0, 0.97), (1.0, 0.94))


def removals(
    candidates: Sequence[Candidate],
    pods: Mapping[str, Sequence[Pod]],
    there: FreeCapacity,
    allowed: Mapping[str, int],
    charge: float,
) -> Iterator[tuple[Candidate, ...]]:
    """Sets of candidates to remove, each different. `charge` is what moving a pod costs."""
    priced = [candidate for candidate in candidates if candidate.node in there.row and candidate.price is not None]
    if len(priced) < 2:
        return
    rows = [there.row[candidate.node] for candidate in priced]
    load = np.array([sum(map(there.size, pods[candidate.node]), np.zeros(len(there.names))) for candidate in priced])
    room = there.free[rows] + load
    shortfall = load.sum(axis=0) - np.delete(there.free, rows, axis=0).clip(min=0.0).sum(axis=0)
    prices = np.array([candidate.price or 0.0 for candidate in priced])
    trouble = charge * np.array([float(len(candidate.pods)) for candidate in priced])
    limits = []
    for pool, left in allowed.items():
        members = np.array([float(candidate.pool == pool) for candidate in priced])
        if members.sum() > left:
            limits.append((members, float(members.sum()) - left))
    seen: set[tuple[str, ...]] = set()
    for weight, margin in TRIED if len(priced) <= SMALL else TRIED_LARGE:
        needs = [(margin * room[:, i], float(amount)) for i, amount in enumerate(shortfall)]
        stays = cheapest(prices - weight * trouble, [*needs, *limits])
        removed = tuple(candidate for candidate, kept in zip(priced, stays, strict=True) if not kept)
        names = tuple(candidate.node for candidate in removed)
        if removed and names not in seen:
            seen.add(names)
            yield removed


# Thinning out: which nodes could be removed without a replacement, judged by free capacity alone.
#
# A quick estimate before the planner's exact simulation. Nodes with the fewest pods for their price come first, and
# their pods go to the tightest free capacity elsewhere. Only resources count, so the result is a proposal to be
# simulated, never a decision.

Amounts = npt.NDArray[np.float64]

#: Close to a fresh fleet a node is removed if it costs so many times what an average pod costs, for each of its pods.
DEAR = 2.0


class FreeCapacity:
    """Free capacity of every node: a row each, a column for each resource, in shares of an average node."""

    def __init__(self, nodes: Sequence[NodeState], memory: PlannerCache) -> None:
        """Capacity of nodes that stay: initialized, not terminating, and without a NoSchedule taint."""
        open_ones = [node for node in nodes if node.initialized and not node.deleting and not _closed(node)]
        self.names = tuple(sorted({name for node in open_ones for name, amount in node.allocatable.items() if amount}))
        self.row = {node.name: row for row, node in enumerate(open_ones)}
        shape = (len(open_ones), len(self.names))
        allocatable = np.array(
            [[node.allocatable.get(name, 0) for name in self.names] for node in open_ones], dtype=float
        )
        with memory.lock:
            used = np.array([self._row(facts_of(node, memory).used) for node in open_ones], dtype=float)
        scale = np.maximum(allocatable.mean(axis=0), 1.0) if open_ones else np.ones(len(self.names))
        self.free: Amounts = (allocatable - used).reshape(shape) / scale
        self._scale = scale
        self._memory = memory
        self._sizes: dict[PodConstraints, Amounts] = {}

    def size(self, pod: Pod) -> Amounts:
        """What a pod requests, in the same shares."""
        shape = shape_of(pod, self._memory)
        if shape not in self._sizes:
            self._sizes[shape] = np.array(self._row(shape.requests)) / self._scale
        return self._sizes[shape]

    def _row(self, amounts: Mapping[str, int]) -> list[float]:
        return [float(amounts.get(name, 0)) for name in self.names]


def removable(
    candidates: Sequence[Candidate],
    pods: Mapping[str, Sequence[Pod]],
    there: FreeCapacity,
    allowed: Mapping[str, int],
    fresh: float | None = None,
) -> list[Candidate]:
    """Candidates that could be removed together, best first.

    `pods` are those to move, by node; `allowed` is the budget left by NodePool. Once the fleet is close to what a
    `fresh` one would cost, only nodes are removed that are expensive for the few pods on them.
    """
    left = dict(allowed)
    cost = sum(candidate.price or 0.0 for candidate in candidates)
    keep = DEAR * (fresh or 0.0) / max(1, sum(len(candidate.pods) for candidate in candidates))
    free = there.free.copy()
    alive = np.ones(len(free), dtype=bool)
    came: dict[int, list[Amounts]] = {}
    removed = []
    for candidate in sorted(candidates, key=_removal_order):
        row = there.row.get(candidate.node)
        if row is None or candidate.price is None or left.get(candidate.pool, 0) < 1:
            continue
        if fresh is not None and cost <= fresh * (1 + CLOSE) and candidate.price < keep * len(candidate.pods):
            continue
        alive[row] = False
        leaving = [*map(there.size, pods[candidate.node]), *came.get(row, ())]
        placed = _place(leaving, free, alive)
        if placed is None:
            alive[row] = True
            continue
        for size, target in placed:
            came.setdefault(target, []).append(size)
        left[candidate.pool] -= 1
        cost -= candidate.price
        removed.append(candidate)
    return removed


def _removal_order(candidate: Candidate) -> tuple[float, float, str]:
    """Few pods for a high price first; then the more expensive one."""
    price = max(candidate.price or 0.0, 1e-9)
    return (candidate.cost / price, -price, candidate.node)


def _place(sizes: Sequence[Amounts], free: Amounts, alive: npt.NDArray[np.bool_]) -> list[tuple[Amounts, int]] | None:
    """The tightest fit for each, largest first; taken from `free`. None, with `free` as it was, if one does not fit."""
    placed: list[tuple[Amounts, int]] = []
    for size in sorted(sizes, key=lambda size: -float(size.max())):
        rest = free - size
        able = alive & (rest >= -1e-9).all(axis=1)
        if not able.any():
            for moved_size, target in placed:
                free[target] += moved_size
            return None
        target = int(np.where(able, rest.sum(axis=1), np.inf).argmin())
        free[target] -= size
        placed.append((size, target))
    return placed


def _closed(node: NodeState) -> bool:
    return any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.taints)
