"""Consolidation policy: how many nodes of each NodePool may be removed at once, and the charge for evictions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class RemovalQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The number of nodes of a NodePool that may be removed at once: empty ones, and any if one of them has pods."""

    empty: int
    used: int


class ConsolidationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets and charges of a consolidation. NodePools without a budget may lose any number of nodes.

    `charge` is $/h for each eviction; without it, a small share of the average cost of a pod. `eviction_units` is the
    number of evictions that emptying a node counts as, where that is not the number of its pods. `min_savings` is the
    least saving in $/h for each of these evictions, by NodePool.
    """

    budgets: Mapping[str, RemovalQuota] = {}
    charge: float | None = None
    min_savings: Mapping[str, float] = {}
    eviction_units: Mapping[str, float] = {}
