"""A funnel as a picture: how many offerings are left after each filter, with the table behind it."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.planner.plan import Funnel
from dovetail.web import figures
from dovetail.web.layout import table
from dovetail.web.markup import Markup, isolated, tag
from dovetail.web.page_language import PageLanguage

_ROW_PX, _WIDTH = 14, 100


def funnels(pools: Mapping[str, Funnel], t: PageLanguage) -> Markup:
    """One funnel for each NodePool, side by side where there is room."""
    drawn = [_funnel(name, pool, t) for name, pool in pools.items()]
    return tag("div", *drawn, class_="funnels")


def _funnel(name: str, funnel: Funnel, t: PageLanguage) -> Markup:
    rows = [(t("candidates"), funnel.start), *((step.clause, step.left) for step in funnel.steps)]
    columns = [(t("Filter"), "filter"), ("", "stage"), (t("Left"), "num")]
    cells: list[list[Markup | str]] = [
        [
            tag("span", isolated(t.recorded(text)), class_=None if left else "emptied"),
            _stage(left, funnel.start),
            tag("span", f"{left:,}", class_=None if left else "emptied"),
        ]
        for text, left in rows
    ]
    listed = table(t("NodePool {name}", name=name), columns, cells, "")
    nearest, said = funnel.nearest, ""
    if nearest is not None:
        price = figures.dollars(nearest.price, t)
        lacks = f", {t('lacks {amount}', amount=funnel.nearest_lacks)}" if funnel.nearest_lacks else ""
        said = f"{t('nearest')}: {nearest.instance_type} {nearest.zone} {price}{lacks}"
    return tag("div", listed, tag("p", isolated(said), class_="empty") if said else None, class_="funnel")


def _stage(left: int, start: int) -> Markup:
    """A bar in the middle of its row: the rows together are the funnel."""
    width = _WIDTH * left / start if start else 0.0
    shape = f'<rect class="fg" x="{(_WIDTH - width) / 2:.1f}" width="{width:.1f}" height="{_ROW_PX}"/>'
    none = f'<path class="none" d="M{_WIDTH / 2:.0f} 0v{_ROW_PX}"/>'
    return Markup(
        f'<svg viewBox="0 0 {_WIDTH} {_ROW_PX}" preserveAspectRatio="none" aria-hidden="true">'
        f"{shape if left else none}</svg>"
    )
