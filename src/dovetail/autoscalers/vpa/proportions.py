"""Limits in proportion to requests, and what a LimitRange makes of both.

Where a pod has a limit, VPA keeps the ratio of limit to request. A LimitRange bounds limits, so through that
ratio it bounds requests too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from dovetail.autoscalers.vpa.api import Amounts, LimitRange, amounts
from dovetail.model.quantity import Quantity

MAX_INT64 = 2**63 - 1
ZERO = Quantity(0)


class LimitBounds(msgspec.Struct, frozen=True, kw_only=True):
    """All LimitRange items of one type in a namespace as one. None where no item says anything."""

    max: Amounts | None = None
    min: Amounts | None = None
    default: Amounts | None = None


def limit_bounds(ranges: Iterable[LimitRange], kind: str) -> LimitBounds | None:
    """The lowest max, the highest min, and the last default of the items of a type (Container or Pod)."""
    most: Amounts | None = None
    least: Amounts | None = None
    default: Amounts | None = None
    for limit_range in ranges:
        for item in limit_range.spec.limits:
            if item.type != kind:
                continue
            if item.default is not None:
                default = amounts(item.default)
            if item.max is not None:
                most = _combined(most, amounts(item.max), min)
            if item.min is not None:
                least = _combined(least, amounts(item.min), max)
    if most is None and least is None and default is None:
        return None
    return LimitBounds(max=most, min=least, default=default)


def _combined(before: Amounts | None, item: Amounts, choose: Callable[[Quantity, Quantity], Quantity]) -> Amounts:
    """Of two equal amounts the later one, as it is written."""
    if before is None:
        return dict(item)
    combined = dict(before)
    for name in ("cpu", "memory"):
        if name in item:
            combined[name] = choose(item[name], combined[name]) if name in combined else item[name]
    return combined


def scaled(
    name: str, quantity: Quantity, base: Quantity, result: Quantity, *, up: bool = False
) -> tuple[Quantity, bool]:
    """`quantity * result / base` in milli-cores or whole bytes, rounded down; and whether int64 was too small.

    `up` rounds milli-cores up. Bytes are rounded down all the same, as upstream does.
    """
    if name == "cpu":
        if not base:
            return quantity, False
        amount, rest = divmod(quantity.milli * result.milli, base.milli)
        if amount > MAX_INT64:
            return Quantity(MAX_INT64 * 10**6, quantity.format), True
        return Quantity((amount + (1 if up and rest else 0)) * 10**6, quantity.format), False
    amount = quantity.whole * result.whole // base.whole
    if amount > MAX_INT64:
        return Quantity(MAX_INT64 * 10**9, quantity.format), True
    return Quantity(amount * 10**9, quantity.format), False


def proportional_limit(
    name: str, limit: Quantity, request: Quantity, recommended: Quantity, default: Quantity
) -> tuple[Quantity | None, str]:
    """The limit beside a recommended request, with the ratio of limit to request as it is; and a note.

    A zero stands for a value that is not set. Without a limit the LimitRange's default is the limit.
    """
    limit = limit if limit.whole else default
    if not limit.whole:
        return None, f"{name}: limit NOT set since originalLimit is nil or 0"
    if not recommended.whole:
        return None, f"{name}: limit NOT set since recommendedRequest is nil or 0"
    if not request.whole or request.milli == limit.milli:
        return recommended, ""
    amount, overflow = scaled(name, limit, request, recommended)
    return amount, f"{name}: failed to keep limit to request ratio; capping limit to int64" if overflow else ""


def proportional_limits(
    limits: Mapping[str, Quantity],
    requests: Mapping[str, Quantity],
    recommended: Mapping[str, Quantity],
    defaults: Mapping[str, Quantity],
) -> tuple[Amounts | None, list[str]]:
    """Limits for cpu and memory beside recommended requests, or None if neither has one; and notes."""
    computed: Amounts = {}
    notes = []
    for name in ("cpu", "memory"):
        limit, note = proportional_limit(
            name,
            limits.get(name, ZERO),
            requests.get(name, ZERO),
            recommended.get(name, ZERO),
            defaults.get(name, ZERO),
        )
        if note:
            notes.append(note)
        if limit is not None:
            computed[name] = limit
    return (computed, notes) if computed else (None, [])


def boundary_request(name: str, request: Quantity, limit: Quantity, boundary: Quantity, default: Quantity) -> Quantity:
    """The request at which the limit, in its present proportion, reaches a boundary; zero if none does."""
    limit = limit if limit.whole else default
    if not limit.whole:
        return ZERO
    if not request.whole:
        return boundary
    return scaled(name, request, limit, boundary)[0]


def boundary_requests(
    requests: Mapping[str, Quantity],
    limits: Mapping[str, Quantity],
    boundary: Amounts | None,
    default: Amounts | None,
) -> Amounts:
    if boundary is None:
        return {}
    return {
        name: boundary_request(
            name,
            requests.get(name, ZERO),
            limits.get(name, ZERO),
            boundary.get(name, ZERO),
            (default or {}).get(name, ZERO),
        )
        for name in ("cpu", "memory")
    }
