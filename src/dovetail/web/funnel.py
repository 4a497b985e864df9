"""A funnel as a picture: how many offerings are left after each filter, with the table behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.web import figures
from dovetail.web.catalogue import Catalogue
from dovetail.web.layout import table
from dovetail.web.markup import Markup, isolated, join, tag

_ROW_PX, _WIDTH_PX = 20, 320


def funnels(pools: Mapping[str, Any], t: Catalogue) -> Markup:
    """One funnel for each NodePool."""
    return join(*(funnel(name, pool, t) for name, pool in pools.items() if isinstance(pool, dict)))


def funnel(name: str, pool: Mapping[str, Any], t: Catalogue) -> Markup:
    start, steps = int(pool.get("start") or 0), pool.get("steps") or ()
    rows = [(t("candidates"), start), *((str(step.get("clause", "")), int(step.get("left", 0))) for step in steps)]
    shapes = []
    for number, (_, left) in enumerate(rows):
        width = _WIDTH_PX * left / start if start else 0.0
        x, y = (_WIDTH_PX - width) / 2, number * _ROW_PX
        shapes.append(f'<rect class="fg" x="{x:.1f}" y="{y + 2}" width="{max(width, 1):.1f}" height="{_ROW_PX - 4}"/>')
    drawn = Markup(
        f'<svg class="funnel" viewBox="0 0 {_WIDTH_PX} {len(rows) * _ROW_PX}" width="{_WIDTH_PX}"'
        f' height="{len(rows) * _ROW_PX}" aria-hidden="true">{"".join(shapes)}</svg>'
    )
    columns = [(t("Filter"), ""), (t("Left"), "num")]
    listed = table(t("NodePool {name}", name=name), columns, [[isolated(text), f"{left:,}"] for text, left in rows], "")
    facts = [t("emptied by {filter}", filter=pool["emptied_by"])] if pool.get("emptied_by") else []
    nearest = pool.get("nearest")
    if nearest:
        price = figures.dollars(nearest.get("price"), t)
        lacks = f", {t('lacks {amount}', amount=pool['nearest_lacks'])}" if pool.get("nearest_lacks") else ""
        facts.append(f"{t('nearest')}: {nearest['instance_type']} {nearest['zone']} {price}{lacks}")
    return tag("div", tag("div", drawn, listed, class_="funnel-row"), *(tag("p", isolated(fact)) for fact in facts))
