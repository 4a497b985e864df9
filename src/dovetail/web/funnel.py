"""A funnel as a picture: how many offerings are left after each filter, with the table behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.web import figures
from dovetail.web.catalogue import Catalogue
from dovetail.web.layout import table
from dovetail.web.markup import Markup, isolated, join, tag

_ROW_PX, _WIDTH_PX = 16, 320


def funnels(pools: Mapping[str, Any], t: Catalogue) -> Markup:
    """One funnel for each NodePool."""
    return join(*(funnel(name, pool, t) for name, pool in pools.items() if isinstance(pool, dict)))


def funnel(name: str, pool: Mapping[str, Any], t: Catalogue) -> Markup:
    start, steps = int(pool.get("start") or 0), pool.get("steps") or ()
    rows = [(t("candidates"), start), *((str(step.get("clause", "")), int(step.get("left", 0))) for step in steps)]
    columns = [(t("Filter"), "long"), ("", ""), (t("Left"), "num")]
    cells: list[list[Markup | str]] = [
        [isolated(t.recorded(text)), _stage(left, start), f"{left:,}"] for text, left in rows
    ]
    listed = table(t("NodePool {name}", name=name), columns, cells, "")
    facts = [t("emptied by {filter}", filter=t.recorded(str(pool["emptied_by"])))] if pool.get("emptied_by") else []
    nearest = pool.get("nearest")
    if nearest:
        price = figures.dollars(nearest.get("price"), t)
        lacks = f", {t('lacks {amount}', amount=pool['nearest_lacks'])}" if pool.get("nearest_lacks") else ""
        facts.append(f"{t('nearest')}: {nearest['instance_type']} {nearest['zone']} {price}{lacks}")
    return tag("div", listed, *(tag("p", isolated(fact)) for fact in facts), class_="funnel")


def _stage(left: int, start: int) -> Markup:
    """A bar in the middle of its row: the rows together are the funnel."""
    width = max(1.0, _WIDTH_PX * left / start if start else 0.0)
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH_PX} {_ROW_PX}" width="{_WIDTH_PX}" height="{_ROW_PX}" aria-hidden="true">'
        f'<rect class="fg" x="{(_WIDTH_PX - width) / 2:.1f}" width="{width:.1f}" height="{_ROW_PX}"/></svg>'
    )
