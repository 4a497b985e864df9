"""Disruption budgets as a calendar: how many nodes of a NodePool may be disrupted, from today on for seven days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from dovetail.controllers.explain.nodepools import REASONS
from dovetail.language import source
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodepool import NodePool
from dovetail.view.model import Sum
from dovetail.view.observer import Observer
from dovetail.web import figures
from dovetail.web.context import PageContext
from dovetail.web.layout import card
from dovetail.web.markup import Markup, isolated, join, link, tag
from dovetail.web.page_language import PageLanguage

CALENDAR_DAYS = 7
#: Windows of budgets are drawn to this step.
STEP = timedelta(minutes=10)
_STEPS_PER_DAY = timedelta(days=1) // STEP
#: The more may go, the higher the bar: the levels differ without colours too.
_HEIGHTS = {"free": 18, "some": 11, "shut": 3}
WEEKDAYS = (
    source("Mon"),
    source("Tue"),
    source("Wed"),
    source("Thu"),
    source("Fri"),
    source("Sat"),
    source("Sun"),
)
#: Nodes that may go at once; None is no limit.
Allowed = int | None


def budget_calendar(context: PageContext, observer: Observer) -> Markup:
    t = context.t
    if not context.rights.nodepools:
        return join(tag("h1", t("Budgets")), tag("p", t("Needs the right to list NodePools."), class_="empty"))
    pools = sorted(observer.state.pools.store.all(), key=lambda pool: pool.name)
    if not pools:
        return join(tag("h1", t("Budgets")), tag("p", t("There are no NodePools."), class_="empty"))
    said = t("How many nodes may be disrupted at once, by the hour (UTC). Forceful disruption has no budget.")
    return join(tag("h1", t("Budgets")), tag("p", said), _legend(t), *(_calendar(pool, context) for pool in pools))


def _legend(t: PageLanguage) -> Markup:
    labels = {"free": t("no limit"), "some": t("limited"), "shut": t("none may go")}
    items = [
        tag(
            "li",
            Markup(f'<svg class="calendar key" viewBox="0 0 18 18" aria-hidden="true">{_bar(level, 0, 18)}</svg>'),
            label,
        )
        for level, label in labels.items()
    ]
    return tag("div", tag("ul", *items), class_="legend")


def _bar(level: str, start: int, width: int) -> str:
    height = _HEIGHTS[level]
    return f'<rect class="{level}" x="{start}" y="{18 - height}" width="{width}" height="{height}"/>'


def _calendar(pool: NodePool, context: PageContext) -> Markup:
    t = context.t
    total = context.view.totals.pools.get(pool.name, Sum()).nodes
    view = context.view.pools.get(pool.name)
    start = context.now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = [start + timedelta(days=day) for day in range(CALENDAR_DAYS)]
    head = [tag("th", t("Reason"), scope="col", class_="reason")]
    head += [tag("th", f"{t(WEEKDAYS[day.weekday()])} {day.day}", scope="col") for day in days]
    head.append(tag("th", t("Now"), scope="col", class_="words"))
    by_allowance: dict[tuple[Allowed, ...], list[str]] = {}
    for reason in REASONS:
        by_allowance.setdefault(tuple(allowed(pool, reason, total, start)), []).append(reason)
    body = [_row(reasons, steps, start, context) for steps, reasons in by_allowance.items()]
    listed = view.budgets if view is not None else ()
    described = tag(
        "p", t("Budgets"), ": ", isolated("; ".join(budget.words(t) for budget in listed)) if listed else "-"
    )
    grid = tag(
        "div",
        tag(
            "table",
            tag("caption", pool.name, class_="hidden"),
            tag("thead", tag("tr", *head)),
            tag("tbody", *body),
            class_="week",
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=pool.name,
    )
    heading = join(link(pool.name, "nodepool", pool.name), tag("small", figures.nodes(total, t)))
    problem = budgets.allowance(pool.spec.disruption.budgets, REASONS[0], total, context.now).problem
    unread = (
        tag(
            "p",
            t("A budget cannot be read, so nothing may go:"),
            " ",
            isolated(t.recorded(problem)),
            class_="notice bad",
        )
        if problem
        else None
    )
    return card(heading, described, unread, grid)


def allowed(pool: NodePool, reason: str, total: int, start: datetime) -> list[Allowed]:
    """The nodes that may go in each step from `start` on."""
    count = _STEPS_PER_DAY * CALENDAR_DAYS
    declared = pool.spec.disruption.budgets
    if not any(budget.schedule for budget in declared):
        allowance = budgets.allowance(declared, reason, total, start)
        return [None if allowance.unlimited else allowance.nodes] * count
    steps: list[Allowed] = []
    for step in range(count):
        allowance = budgets.allowance(declared, reason, total, start + step * STEP)
        steps.append(None if allowance.unlimited else allowance.nodes)
    return steps


def _row(reasons: Sequence[str], steps: Sequence[Allowed], start: datetime, context: PageContext) -> Markup:
    t = context.t
    label = t("every reason") if len(reasons) == len(REASONS) else ", ".join(reasons)
    passed = (context.now - start) // STEP
    cells = [tag("th", label, scope="row")]
    for day in range(CALENDAR_DAYS):
        first = day * _STEPS_PER_DAY
        cells.append(tag("td", _day(steps[first : first + _STEPS_PER_DAY], passed if day == 0 else None)))
    cells.append(tag("td", _windows(steps, passed, start, t), class_="words"))
    return tag("tr", *cells)


def _day(steps: Sequence[Allowed], now: int | None) -> Markup:
    """A day as bars; the line is the present."""
    shapes, position = [], 0
    for level, run in groupby(map(_level, steps)):
        width = sum(1 for _ in run)
        shapes.append(_bar(level, position, width))
        position += width
    line = f'<path class="use" d="M{now} 0v18"/>' if now is not None else ""
    return Markup(
        f'<svg viewBox="0 0 {_STEPS_PER_DAY} 18" preserveAspectRatio="none" class="calendar" aria-hidden="true">'
        f"{''.join(shapes)}{line}</svg>"
    )


def _level(nodes: Allowed) -> str:
    return "free" if nodes is None else "shut" if nodes == 0 else "some"


def _windows(steps: Sequence[Allowed], passed: int, start: datetime, t: PageLanguage) -> str:
    """The same in words: now, and when it next changes."""

    def said(nodes: Allowed) -> str:
        return t("no limit") if nodes is None else figures.nodes(nodes, t)

    now = steps[passed]
    change = next((step for step in range(passed, len(steps)) if steps[step] != now), None)
    if change is None:
        return said(now)
    when = start + change * STEP
    day = f"{t(WEEKDAYS[when.weekday()])} {when:%H:%M}"
    return t("{now}; from {day} on {then}", now=said(now), day=day, then=said(steps[change]))
