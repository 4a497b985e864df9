"""Sets of nodes that might go together, by room and price alone; what becomes of them is planned afterwards.

Which nodes stay: the part of a fleet, with what is on offer beside it, that holds every pod for the least money.

All nodes are weighed at once, resource by resource, so that what stays is not short of memory while CPU stands
idle. An integer programme for a small fleet; of a large one the relaxation, rounded up, is as good.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import highspy
import numpy as np

from dovetail.planner.consolidate.candidates import Fleet
from dovetail.planner.offerings.catalog import Bools, Floats, Table
from dovetail.planner.problem.frontier import undominated
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH
from dovetail.planner.snapshot import NodeState

#: How much of nodes that stay may be asked for, and of those that are launched: whole pods fit less well than their
#: sums, and less well beside others who do not move.
_MARGINS = ((1.0, 1.0), (0.96, 0.98), (0.98, 0.99), (0.93, 0.98), (0.9, 0.98))
#: How many times over evictions are charged.
_WEIGHTS = (1.0, 4.0)


class Proposals:
    """The candidates as rows of amounts: what each has room for, and what its pods take."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        problem = self.problem = fleet.whole
        self.dims = [index for index, name in enumerate(problem.dims) if not name.startswith((PORT, ATTACH))]
        number = [[fleet.classes[pod_key(pod)] for pod in fleet.moved[node.name]] for node in fleet.candidates]
        load = [problem.requests[mine].sum(axis=0)[self.dims] for mine in number]
        self.load: Table = np.array(load, dtype=np.float64).reshape(len(load), len(self.dims))
        self.room: Table = np.maximum(fleet.free[:, self.dims] + self.load, 0.0)
        self.prices: Floats = np.array([node.price or 0.0 for node in fleet.candidates], dtype=np.float64)
        self.charges: Floats = np.array([fleet.charges[node.name] for node in fleet.candidates], dtype=np.float64)

    def ranked(self) -> list[NodeState]:
        """The least useful for their price first."""
        taken = (self.load / np.maximum(self.load.sum(axis=0), 1.0)).max(axis=1, initial=0.0)
        use = (taken + self.charges) / np.maximum(self.prices, 1e-9)
        order = sorted(range(len(use)), key=lambda index: (use[index], self.fleet.candidates[index].name))
        return [self.fleet.candidates[index] for index in order]

    def sets(self) -> Iterator[tuple[NodeState, ...]]:
        """Sets to go: those that the cheapest fleet does not keep, by several margins, and every pod."""
        if not self.fleet.candidates:
            return
        ranked = self.ranked()
        yield self.fleet.within(ranked)
        limits, scale = self._limits(), np.maximum(self.room.mean(axis=0), 1.0)
        frontier, problem = self.problem.frontier, self.problem
        priced = np.flatnonzero(np.isfinite(frontier.prices))
        offered = np.array(undominated(priced, frontier.capacity[self.dims]), dtype=np.int64) if len(priced) else priced
        sizes = frontier.capacity[self.dims][:, offered].T / scale
        wanted = problem.requests[:, self.dims].T @ problem.counts
        wanted = (wanted - np.maximum(problem.free[self.dims], 0).sum(axis=1)) / scale
        nothing = np.zeros(len(offered))
        for (old, new), weight in product(_MARGINS, _WEIGHTS):
            whole = np.concatenate([self.room / scale * old, sizes * new])
            needs = [(whole[:, dim], float(least)) for dim, least in enumerate(wanted)]
            needs += [(np.concatenate([amounts, nothing]), least) for amounts, least in limits]
            stays = cheapest(self.prices - weight * self.charges, needs, frontier.prices[offered])
            kept = {node.name for node, stay in zip(self.fleet.candidates, stays, strict=True) if stay}
            yield self.fleet.within(node for node in ranked if node.name not in kept)

    def _limits(self) -> list[Need]:
        """How many must stay by the budgets of their pools, and how many pods by their own."""
        fleet, limits = self.fleet, list[Need]()
        for pool, quota in fleet.terms.budgets.items():
            mine = np.array([float(node.pool == pool) for node in fleet.candidates])
            used = mine * [float(bool(fleet.moved[node.name])) for node in fleet.candidates]
            for members, most in ((mine, fleet.most[pool]), (used, quota.used)):
                if members.sum() > most:
                    limits.append((members, float(members.sum() - most)))
        for key, spare in fleet.spare.items():
            counts = [fleet.guarded[node.name][key] for node in fleet.candidates]
            pods = np.minimum(np.array(counts, dtype=np.float64), 1e4)
            if pods.sum() > spare:
                limits.append((pods, float(pods.sum() - spare)))
        return limits


#: More nodes than this are not weighed one by one; beside a few, what is launched is weighed whole as well.
SMALL, _FEW = 300, 8
#: Branches of the integer programme: a limit on work, not on time, so that the answer is the same everywhere.
_BRANCHES = 500
_NO_OFFERS = np.zeros(0)

#: So much of each node, and of each thing on offer; at least so much is needed.
Need = tuple[Floats, float]


def cheapest(worth: Floats, needs: Sequence[Need], offers: Floats = _NO_OFFERS) -> Bools:
    """Whom to keep, so that every need is met; every pod, if even all of them would not meet it.

    `worth` is what keeping each costs, `sale` the price of what can be had in any amount instead.
    """
    count, wide = len(worth), len(worth) + len(offers)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_max_nodes", _BRANCHES), ("mip_rel_gap", 0.002)):
        solver.setOptionValue(option, value)
    upper = np.concatenate([np.ones(count), np.full(len(offers), highspy.kHighsInf)])
    solver.addVars(wide, np.zeros(wide), upper)
    solver.changeColsCost(wide, np.arange(wide, dtype=np.int32), np.concatenate([worth, offers]))
    if count <= SMALL:
        most = wide if count <= _FEW else count
        whole = np.full(most, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(most, np.arange(most, dtype=np.int32), whole)
    for amount, least in needs:
        index = np.flatnonzero(amount).astype(np.int32)
        enough = float(amount.sum()) if not amount[count:].any() else least
        solver.addRow(min(least, enough), highspy.kHighsInf, len(index), index, amount[index])
    solver.run()
    values = solver.getSolution().col_value
    return np.array(values)[:count] > 1e-6 if values else np.ones(count, dtype=np.bool_)
