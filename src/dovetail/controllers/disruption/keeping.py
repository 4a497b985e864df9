"""Which machines stay: the part of the fleet that holds everybody for the least money, with a charge for every move.

All machines are weighed at once, resource by resource, so that what stays is not short of memory while CPU stands
idle. Whole pods fit less well than their sums, so several margins are tried; which of the answers is best is the
planner's to say. An integer programme for a small fleet; of a large one the relaxation, rounded up, is as good.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import highspy
import numpy as np
import numpy.typing as npt

from dovetail.controllers.disruption.commands import Candidate
from dovetail.controllers.disruption.thinning import Amounts, Room
from dovetail.model.pods import Pod

#: How heavily moves weigh, and how much of the machines that stay may be asked for.
TRIED = tuple(itertools.product((1.0, 2.5), (1.0, 0.99, 0.98, 0.97, 0.95, 0.92)))
#: More machines than this are not weighed one by one, and less often.
SMALL = 300
ROUGH = ((1.0, 1.0), (1.0, 0.97), (1.0, 0.94))
#: Branches of the integer programme: a limit on work, not on time, so that the answer is the same everywhere.
BRANCHES = 500


def removals(
    candidates: Sequence[Candidate], pods: Mapping[str, Sequence[Pod]], there: Room, allowed: Mapping[str, int],
    charge: float,
) -> Iterator[tuple[Candidate, ...]]:
    """Sets of candidates to go, each different. `charge` is what moving a pod costs."""
    known = [each for each in candidates if each.node in there.row and each.price is not None]
    if len(known) < 2:
        return
    rows = [there.row[each.node] for each in known]
    load = np.array([sum(map(there.size, pods[each.node]), np.zeros(len(there.names))) for each in known])
    room = there.free[rows] + load
    wanted = load.sum(axis=0) - np.delete(there.free, rows, axis=0).clip(min=0.0).sum(axis=0)
    prices = np.array([each.price or 0.0 for each in known])
    trouble = charge * np.array([float(len(each.pods)) for each in known])
    limits = []
    for pool, left in allowed.items():
        members = np.array([float(each.pool == pool) for each in known])
        if members.sum() > left:
            limits.append((members, float(members.sum()) - left))
    seen: set[tuple[str, ...]] = set()
    for weight, margin in TRIED if len(known) <= SMALL else ROUGH:
        needs = [(margin * room[:, i], float(each)) for i, each in enumerate(wanted)]
        stays = _cheapest(prices - weight * trouble, [*needs, *limits])
        going = tuple(each for each, kept in zip(known, stays, strict=True) if not kept)
        names = tuple(each.node for each in going)
        if going and names not in seen:
            seen.add(names)
            yield going


def _cheapest(worth: Amounts, needs: Sequence[tuple[Amounts, float]]) -> npt.NDArray[np.bool_]:
    """Whom to keep, so that every need is met; everybody, if even all of them would not meet it."""
    count = len(worth)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_max_nodes", BRANCHES), ("mip_rel_gap", 0.002)):
        solver.setOptionValue(option, value)
    solver.addVars(count, np.zeros(count), np.ones(count))
    solver.changeColsCost(count, np.arange(count, dtype=np.int32), worth)
    if count <= SMALL:
        whole = np.full(count, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
    for amount, least in needs:
        index = np.flatnonzero(amount).astype(np.int32)
        solver.addRow(min(least, float(amount.sum())), highspy.kHighsInf, len(index), index, amount[index])
    solver.run()
    found = solver.getSolution().col_value
    return np.array(found) > 1e-6 if found else np.ones(count, dtype=bool)
