"""Proposals: sets of nodes that may be removed together, chosen by resources and price; each is planned afterwards.

`cheapest` chooses the nodes to keep: with new nodes, they provide the total requests of all pods at the least cost.
All resources are constraints of one programme, so that the kept nodes are not short of memory while CPU is unused. It
is an integer programme for a small fleet; for a large one its LP relaxation, rounded up, is as good.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import highspy
import numpy as np

from dovetail.planner.consolidate.candidates import CandidateFleet
from dovetail.planner.offerings.catalog import Bools, Floats, Table
from dovetail.planner.problem.frontier import undominated
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH
from dovetail.planner.snapshot import NodeState

#: Usable share of kept nodes and of new nodes: integer pods fill a node less well than their sum, and less well beside
#: pods that do not move.
_MARGINS = ((1.0, 1.0), (0.96, 0.98), (0.98, 0.99), (0.93, 0.98), (0.9, 0.98))
#: Multiples of the eviction charge.
_CHARGE_FACTORS = (1.0, 4.0)


class SubsetProposals:
    """Proposes sets of candidates. Tables have a row for each: `room` for pods, and the `load` of its own pods."""

    def __init__(self, fleet: CandidateFleet) -> None:
        self.fleet = fleet
        problem = self.problem = fleet.all_removed
        self.dims = [index for index, name in enumerate(problem.dims) if not name.startswith((PORT, ATTACH))]
        number = [[fleet.classes[pod_key(pod)] for pod in fleet.moved[node.name]] for node in fleet.candidates]
        load = [problem.requests[mine].sum(axis=0)[self.dims] for mine in number]
        self.load: Table = np.array(load, dtype=np.float64).reshape(len(load), len(self.dims))
        self.room: Table = np.maximum(fleet.free[:, self.dims] + self.load, 0.0)
        self.prices: Floats = np.array([node.price or 0.0 for node in fleet.candidates], dtype=np.float64)
        self.charges: Floats = np.array([fleet.charges[node.name] for node in fleet.candidates], dtype=np.float64)

    def ranked(self) -> list[NodeState]:
        """The candidates, the least used for their price first."""
        taken = (self.load / np.maximum(self.load.sum(axis=0), 1.0)).max(axis=1, initial=0.0)
        use = (taken + self.charges) / np.maximum(self.prices, 1e-9)
        order = sorted(range(len(use)), key=lambda index: (use[index], self.fleet.candidates[index].name))
        return [self.fleet.candidates[index] for index in order]

    def sets(self) -> Iterator[tuple[NodeState, ...]]:
        """The sets to remove: all that budgets allow, then those that the cheapest fleet does not keep, by margins."""
        if not self.fleet.candidates:
            return
        ranked = self.ranked()
        yield self.fleet.within(ranked)
        limits, scale = self._limits(), np.maximum(self.room.mean(axis=0), 1.0)
        frontier, problem = self.problem.frontier, self.problem
        priced = np.flatnonzero(np.isfinite(frontier.prices))
        offered = np.array(undominated(priced, frontier.capacity[self.dims]), dtype=np.int64) if len(priced) else priced
        sizes = frontier.capacity[self.dims][:, offered].T / scale
        demand = problem.requests[:, self.dims].T @ problem.counts
        demand = (demand - np.maximum(problem.free[self.dims], 0).sum(axis=1)) / scale
        nothing = np.zeros(len(offered))
        for (old, new), weight in product(_MARGINS, _CHARGE_FACTORS):
            whole = np.concatenate([self.room / scale * old, sizes * new])
            needs = [(whole[:, dim], float(least)) for dim, least in enumerate(demand)]
            needs += [(np.concatenate([amounts, nothing]), least) for amounts, least in limits]
            stays = cheapest(self.prices - weight * self.charges, needs, frontier.prices[offered])
            kept = {node.name for node, stay in zip(self.fleet.candidates, stays, strict=True) if stay}
            yield self.fleet.within(node for node in ranked if node.name not in kept)

    def _limits(self) -> list[CoverConstraint]:
        """Constraints on the nodes that must stay: by NodePool budgets and by PodDisruptionBudgets."""
        fleet, limits = self.fleet, list[CoverConstraint]()
        for pool, quota in fleet.policy.budgets.items():
            mine = np.array([float(node.pool == pool) for node in fleet.candidates])
            used = mine * [float(bool(fleet.moved[node.name])) for node in fleet.candidates]
            for members, most in ((mine, fleet.most[pool]), (used, quota.used)):
                if members.sum() > most:
                    limits.append((members, float(members.sum() - most)))
        for key, allowed in fleet.evictions_allowed.items():
            counts = [fleet.pods_by_budget[node.name][key] for node in fleet.candidates]
            pods = np.minimum(np.array(counts, dtype=np.float64), 1e4)
            if pods.sum() > allowed:
                limits.append((pods, float(pods.sum() - allowed)))
        return limits


#: Up to this many nodes, keeping a node is an integer variable; up to the second number, new nodes are integer as well.
SMALL, _MAX_NODES_WITH_INTEGER_OFFERS = 300, 8
#: Branch-and-bound nodes of the integer programme: a bound on work, so that the result is the same on every computer.
_MAX_BRANCHES = 500
_NO_OFFERS = np.zeros(0)

#: A constraint: the amount that each node, and each offer, provides, and the least sum.
CoverConstraint = tuple[Floats, float]


def cheapest(worth: Floats, needs: Sequence[CoverConstraint], offers: Floats = _NO_OFFERS) -> Bools:
    """The nodes to keep so that every need is met at the least cost; all of them, if even all do not meet a need.

    `worth` is the cost of keeping each node, `offers` the price of new nodes, which are available in any number.
    """
    count, wide = len(worth), len(worth) + len(offers)
    solver = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("mip_max_nodes", _MAX_BRANCHES),
        ("mip_rel_gap", 0.002),
    ):
        solver.setOptionValue(option, value)
    upper = np.concatenate([np.ones(count), np.full(len(offers), highspy.kHighsInf)])
    solver.addVars(wide, np.zeros(wide), upper)
    solver.changeColsCost(wide, np.arange(wide, dtype=np.int32), np.concatenate([worth, offers]))
    if count <= SMALL:
        most = wide if count <= _MAX_NODES_WITH_INTEGER_OFFERS else count
        whole = np.full(most, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(most, np.arange(most, dtype=np.int32), whole)
    for amount, least in needs:
        index = np.flatnonzero(amount).astype(np.int32)
        enough = float(amount.sum()) if not amount[count:].any() else least
        solver.addRow(min(least, enough), highspy.kHighsInf, len(index), index, amount[index])
    solver.run()
    values = solver.getSolution().col_value
    return np.array(values)[:count] > 1e-6 if values else np.ones(count, dtype=np.bool_)
