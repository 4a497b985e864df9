"""Which machines stay: the part of the fleet that holds everybody for the least money, with a charge for every move.

All machines are weighed at once, resource by resource, so that what stays is not short of memory while CPU stands
idle. Whole pods fit less well than their sums, so several margins are tried; which of the answers is best is the
planner's to say. An integer programme for a small fleet; of a large one the relaxation, rounded up, is as good.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dovetail.controllers.disruption.commands import Candidate
from dovetail.controllers.disruption.thinning import Room
from dovetail.model.pods import Pod
from dovetail.planner.consolidate.subsets import SMALL, cheapest

#: How heavily moves weigh, and how much of the machines that stay may be asked for.
TRIED = tuple(itertools.product((1.0, 2.5), (1.0, 0.99, 0.98, 0.97, 0.95, 0.92)))
#: Large fleets are weighed less often.
ROUGH = ((1.0, 1.0), (1.0, 0.97), (1.0, 0.94))


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
        stays = cheapest(prices - weight * trouble, [*needs, *limits])
        going = tuple(each for each, kept in zip(known, stays, strict=True) if not kept)
        names = tuple(each.node for each in going)
        if going and names not in seen:
            seen.add(names)
            yield going

