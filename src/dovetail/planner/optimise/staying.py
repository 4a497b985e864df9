"""Which machines stay: the part of a fleet, with what is for sale beside it, that holds everybody for the least money.

All machines are weighed at once, resource by resource, so that what stays is not short of memory while CPU stands
idle. An integer programme for a small fleet; of a large one the relaxation, rounded up, is as good.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np

from dovetail.planner.columns import Bools, Floats

#: More machines than this are not weighed one by one; beside a few, what is bought is weighed whole as well.
SMALL, _FEW = 300, 8
#: Branches of the integer programme: a limit on work, not on time, so that the answer is the same everywhere.
_BRANCHES = 500
_NO_SALE = np.zeros(0)

#: So much of each machine, and of each thing for sale; at least so much is needed.
Need = tuple[Floats, float]


def cheapest(worth: Floats, needs: Sequence[Need], sale: Floats = _NO_SALE) -> Bools:
    """Whom to keep, so that every need is met; everybody, if even all of them would not meet it.

    `worth` is what keeping each costs, `sale` the price of what can be had in any amount instead.
    """
    count, wide = len(worth), len(worth) + len(sale)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_max_nodes", _BRANCHES), ("mip_rel_gap", 0.002)):
        solver.setOptionValue(option, value)
    upper = np.concatenate([np.ones(count), np.full(len(sale), highspy.kHighsInf)])
    solver.addVars(wide, np.zeros(wide), upper)
    solver.changeColsCost(wide, np.arange(wide, dtype=np.int32), np.concatenate([worth, sale]))
    if count <= SMALL:
        most = wide if count <= _FEW else count
        whole = np.full(most, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(most, np.arange(most, dtype=np.int32), whole)
    for amount, least in needs:
        index = np.flatnonzero(amount).astype(np.int32)
        enough = float(amount.sum()) if not amount[count:].any() else least
        solver.addRow(min(least, enough), highspy.kHighsInf, len(index), index, amount[index])
    solver.run()
    found = solver.getSolution().col_value
    return np.array(found)[:count] > 1e-6 if found else np.ones(count, dtype=np.bool_)
