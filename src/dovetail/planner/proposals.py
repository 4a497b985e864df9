"""Sets of machines that might go together, by room and price alone; what becomes of them is planned afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from dovetail.planner.choices import Fleet
from dovetail.planner.classes import pod_key
from dovetail.planner.columns import Floats, Table
from dovetail.planner.menu import frontier
from dovetail.planner.optimise.staying import Need, cheapest
from dovetail.planner.ports import PORT
from dovetail.planner.sharing import ATTACH
from dovetail.planner.snapshot import NodeState

#: How much of machines that stay may be asked for, and of those that are bought: whole pods fit less well than their
#: sums, and less well beside others who do not move.
_MARGINS = ((1.0, 1.0), (0.96, 0.98), (0.98, 0.99), (0.93, 0.98), (0.9, 0.98))
#: How many times over evictions are charged.
_WEIGHTS = (1.0, 4.0)


class Proposals:
    """The candidates as rows of amounts: what each has room for, and what its pods take."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        problem = self.problem = fleet.whole
        self.dims = [at for at, name in enumerate(problem.dims) if not name.startswith((PORT, ATTACH))]
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
        order = sorted(range(len(use)), key=lambda at: (use[at], self.fleet.candidates[at].name))
        return [self.fleet.candidates[at] for at in order]

    def sets(self) -> Iterator[tuple[NodeState, ...]]:
        """Sets to go: those that the cheapest fleet does not keep, by several margins, and everybody."""
        if not self.fleet.candidates:
            return
        ranked = self.ranked()
        yield self.fleet.within(ranked)
        limits, scale = self._limits(), np.maximum(self.room.mean(axis=0), 1.0)
        menu, problem = self.problem.menu, self.problem
        priced = np.flatnonzero(np.isfinite(menu.prices))
        sold = np.array(frontier(priced, menu.capacity[self.dims]), dtype=np.int64) if len(priced) else priced
        sizes = menu.capacity[self.dims][:, sold].T / scale
        wanted = problem.requests[:, self.dims].T @ problem.counts
        wanted = (wanted - np.maximum(problem.free[self.dims], 0).sum(axis=1)) / scale
        nothing = np.zeros(len(sold))
        for (old, new), weight in product(_MARGINS, _WEIGHTS):
            whole = np.concatenate([self.room / scale * old, sizes * new])
            needs = [(whole[:, dim], float(least)) for dim, least in enumerate(wanted)]
            needs += [(np.concatenate([amounts, nothing]), least) for amounts, least in limits]
            stays = cheapest(self.prices - weight * self.charges, needs, menu.prices[sold])
            kept = {node.name for node, stay in zip(self.fleet.candidates, stays, strict=True) if stay}
            yield self.fleet.within(node for node in ranked if node.name not in kept)

    def _limits(self) -> list[Need]:
        """How many must stay by the budgets of their pools, and how many pods by their own."""
        fleet, found = self.fleet, list[Need]()
        for pool, quota in fleet.terms.budgets.items():
            mine = np.array([float(node.pool == pool) for node in fleet.candidates])
            used = mine * [float(bool(fleet.moved[node.name])) for node in fleet.candidates]
            for members, most in ((mine, fleet.most[pool]), (used, quota.used)):
                if members.sum() > most:
                    found.append((members, float(members.sum() - most)))
        for key, spare in fleet.spare.items():
            counts = [fleet.guarded[node.name][key] for node in fleet.candidates]
            pods = np.minimum(np.array(counts, dtype=np.float64), 1e4)
            if pods.sum() > spare:
                found.append((pods, float(pods.sum() - spare)))
        return found
