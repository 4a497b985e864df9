"""What the planner has already refused: a machine that did not change is not asked about again for a while.

Most passes over a fleet come to the same answers; asking again costs a plan for each machine. An answer is
forgotten when the machine's pods or price change, when other offers are sold, and in any case after some minutes. So
is the search for whole sets that came to nothing, as long as the fleet has not become dearer against a fresh one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dovetail.controllers.disruption.commands import Candidate
from dovetail.controllers.disruption.consolidation import Rejection
from dovetail.planner.snapshot import Pool

FOR, SEARCHED_FOR = 900.0, 3600.0
#: A fleet is dearer than it was once it costs this share of a fresh one more.
DEARER = 0.005
#: Answers of the planner, and of pools that weigh them; others depend on the pass they were given in.
LASTING = frozenset({"NOT_CHEAPER", "PODS_WOULD_NOT_FIT", "SPOT_TO_SPOT_OFF", "SPOT_INFLEXIBLE", "NOT_BALANCED"})


class Refusals:
    def __init__(self) -> None:
        self._known: dict[str, tuple[Candidate, Rejection, float]] = {}
        self._offers: tuple[object, ...] = ()
        self._vain: dict[bool, tuple[float, float]] = {}

    def still(self, candidates: Sequence[Candidate], pools: Sequence[Pool], now: float) -> dict[str, Rejection]:
        """The answers that still hold."""
        offers = tuple(pool.types for pool in pools)
        if len(offers) != len(self._offers) or any(a is not b for a, b in zip(offers, self._offers, strict=True)):
            self._offers = offers
            self._known.clear()
            self._vain.clear()
        there = {each.node: each for each in candidates}
        self._known = {
            node: (asked, why, until)
            for node, (asked, why, until) in self._known.items()
            if until > now and there.get(node) == asked
        }
        return {node: why for node, (_, why, _) in self._known.items()}

    def note(self, candidates: Sequence[Candidate], stays: Mapping[str, Rejection], now: float) -> None:
        for each in candidates:
            why = stays.get(each.node)
            if why is not None and why.code in LASTING and each.node not in self._known:
                self._known[each.node] = (each, why, now + FOR)

    def searched(self, above: float, now: float, *, restless: bool) -> None:
        """Whole sets were looked for in vain in a fleet that costs so much more than a fresh one, as a share of it."""
        self._vain[restless] = (above + DEARER, now + SEARCHED_FOR)

    def vain(self, now: float, *, restless: bool) -> float:
        """Up to which share above a fresh fleet there is no point in looking for whole sets.

        What was not found while machines were in motion may be found once they are quiet, and not the other way round.
        """
        known = [found for moving, found in self._vain.items() if restless or not moving]
        return max((share for share, until in known if now < until), default=-math.inf)
