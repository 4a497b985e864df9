"""Strategies: the knobs of a packing. Trying several and keeping the best is how the planner hedges."""

from __future__ import annotations

import msgspec


class Strategy(msgspec.Struct, frozen=True):
    """How to pack: `foresight` weighs demand that is still to come, `order` sizes classes, `turn` rotates domains.

    `ceiling` keeps targets at or below a price; `grow` prefers a larger node to another one. `wide` counts a
    node against its pool's limits with the largest type it might still become; `thrift` spends limits, not money;
    `lavish` opens nodes for what is to come rather than for the pods that ask; `bulk` takes the least price a pod
    for as many full nodes as there are, and looks again for the rest; `level` also spreads those evenly that
    others look at, so that these find every domain open; `settle` fills what stands, as far as a spread allows, before
    it levels; `slack` does not level at all, but takes the cheapest domain that a spread allows.
    """

    foresight: float = 1.0
    order: str = "max"
    turn: int = 0
    ceiling: float = float("inf")
    grow: bool = False
    by_priority: bool = False
    wide: bool = False
    thrift: bool = False
    lavish: bool = False
    bulk: bool = False
    level: bool = False
    settle: bool = False
    slack: bool = False
