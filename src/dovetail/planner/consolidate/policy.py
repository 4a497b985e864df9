"""On what terms nodes may be given back: how many of each pool at once, and what it costs to move those on them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes of a pool may go at once: empty ones, and any at all if one of them is used."""

    empty: int
    used: int


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Pools without a budget may lose any number.

    `charge` is dollars an hour for each eviction; without one it is a small share of what a pod costs. `trouble` says
    how many evictions emptying a node counts for, where that is not the number of its pods, and `dues` what moving
    so much must save in some pools.
    """

    budgets: Mapping[str, Quota] = {}
    charge: float | None = None
    dues: Mapping[str, float] = {}
    trouble: Mapping[str, float] = {}
