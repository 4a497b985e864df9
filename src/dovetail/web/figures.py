"""Figures as people read them. Unknown is a word, never a number."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from dovetail.model.quantity import is_bytes
from dovetail.view.model import HOURS_PER_MONTH, Money

Translate = Callable[..., str]
_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def dollars(amount: float | None, t: Translate) -> str:
    """Dollars an hour: four digits, as cloud price lists have them; none behind the point from a hundred on."""
    if amount is None:
        return t("unknown")
    size = abs(amount)
    shown = f"{size:,.0f}" if size >= 1000 else f"{size:,.2f}" if size >= 10 else f"{size:.4f}"
    return f"-${shown}" if amount < 0 and shown.strip("0.,") else f"${shown}"  # a rounded nothing has no sign


def money(sum_: Money, t: Translate) -> str:
    """A sum an hour; where a price is unknown, the least that it is."""
    if not sum_.unpriced:
        return dollars(sum_.known, t)
    return t("unknown") if sum_.unpriced >= sum_.parts else f"≥ {dollars(sum_.known, t)}"


def monthly(sum_: Money, t: Translate) -> str:
    if sum_.unpriced and sum_.unpriced >= sum_.parts:
        return t("unknown")
    amount = sum_.known * HOURS_PER_MONTH
    least = "≥ " if sum_.unpriced else ""
    return f"{least}${amount:,.0f}" if amount >= 100 else f"{least}${amount:,.2f}"


def percent(share: float | None, t: Translate) -> str:
    if share is None:
        return t("unknown")
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def cpu(milli: int | None, t: Translate) -> str:
    if milli is None:
        return t("unknown")
    return f"{milli / 1000:,.0f}" if milli >= 100_000 else f"{milli / 1000:.4g}"


def memory(size: int | None, t: Translate) -> str:
    if size is None:
        return t("unknown")
    amount, unit = float(size), 0
    while amount >= 1024 and unit < len(_BINARY_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.4g} {_BINARY_UNITS[unit]}"


def amount(resource: str, count: int | None, t: Translate) -> str:
    if resource == "cpu":
        return cpu(count, t)
    if is_bytes(resource):
        return memory(count, t)
    return t("unknown") if count is None else f"{count:,}"


def nodes(count: int, t: Translate) -> str:
    return t("1 node") if count == 1 else t("{count} nodes", count=f"{count:,}")


def pods(count: int, t: Translate) -> str:
    return t("1 pod") if count == 1 else t("{count} pods", count=f"{count:,}")


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m {whole % 60}s" if minutes else f"{whole}s"


def age(since: datetime | None, now: datetime, t: Translate) -> str:
    return t("unknown") if since is None else span((now - since).total_seconds())
