"""What a group on the hostname key allows: how many more pods each of some machines may take, of owners and of members.

`fits` has an entry for each of the machines; each rule can only lower it. A new machine is always possible, so the
fewest pods that a spread sees anywhere are none.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.cells import Cell
from dovetail.planner.columns import Ints
from dovetail.planner.groups import AFFINITY, ANTI, SPREAD


def cap_owner(cell: Cell, mine: bool, counts: Ints, bins: Ints, fits: Ints) -> None:
    """What a group that pods own asks of them; `mine`: it counts them; `counts` are those of all machines."""
    here = counts.take(bins)
    if cell.kind == SPREAD:
        if mine:
            np.minimum(fits, np.maximum(cell.skew - here, 0), out=fits)
        else:
            fits[here > cell.skew] = 0
    elif cell.kind == ANTI:
        fits[here > 0] = 0
        if mine:
            np.minimum(fits, 1, out=fits)
    elif not mine or bool((counts > 0).any()):
        fits[here == 0] = 0


def cap_member(cell: Cell, counts: Ints, owners: Ints, bins: Ints, fits: Ints) -> None:
    """What a group that merely counts pods has promised to its owners."""
    if cell.kind == AFFINITY:
        return
    promised = owners.take(bins) > 0
    if not promised.any():
        return
    if cell.kind == ANTI:
        fits[promised] = 0
    else:
        allowed = np.maximum(cell.skew - counts.take(bins), 0)
        np.minimum(fits, allowed, out=fits, where=promised)
