"""The view as plain text: the totals above the tables, and all of it at once for `--once`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.language import message, plural, translated
from dovetail.language.columns import width_of
from dovetail.language.recognition import recognized
from dovetail.tui import figures
from dovetail.tui.figures import fit, printable, wrapped
from dovetail.tui.tables import NODES, PENDING, PODS, POOLS, Table, TableLook, heading, line, matching, ordered, widths
from dovetail.view.model import FleetView, Totals
from dovetail.view.observer import NOT_PERMITTED

#: Columns of a bar above the tables.
_BAR = 10
_UNREAD_SHOWN, _UNREADY_SHOWN = 3, 2
#: Between the facts of a line.
_GAP = "   "


def totals(view: FleetView, look: TableLook, width: int) -> list[str]:
    """Three lines: what there is, what it costs, how full it is. As many facts of each as there is room for."""
    facts = (_counts(view, width), _costs(view.totals, look), _fill(view.totals, look))
    return [fit(printable(_joined(part, width)), width, look.glyphs.cut) for part in facts]


def _joined(facts: list[str], width: int) -> str:
    """The facts in a row; those that no longer fit are left out, the first excepted."""
    text = facts[0]
    for fact in facts[1:]:
        longer = f"{text}{_GAP}{fact}"
        if width_of(longer) > width:
            break
        text = longer
    return text


def _counts(view: FleetView, width: int) -> list[str]:
    """Nodes with their states, pods, pending pods. The states are left out where they leave no room for the pods."""
    total = view.totals
    states = ", ".join(f"{count} {name}" for name, count in sorted(total.states.items()) if name != "ready")
    nodes = plural("{n} node", "{n} nodes", n=total.fleet.nodes)
    pods = message("? pods") if total.pods is None else plural("{n} pod", "{n} pods", n=total.pods)
    pending = plural("{n} pending", "{n} pending", n=total.pending)
    facts = [f"{nodes} ({states})", pods, pending] if states else [nodes, pods, pending]
    if width_of(_GAP.join(facts)) > width:
        facts = [nodes, pods, pending]
    if view.health.kubernetes:
        facts.append(f"Kubernetes {view.health.kubernetes}")
    return facts


def _costs(total: Totals, look: TableLook) -> list[str]:
    cost = total.fleet.money
    facts = [
        message(
            "{hour}/hour {month}/month",
            hour=figures.money(cost, look.glyphs),
            month=figures.monthly(cost, look.glyphs),
        )
    ]
    bound = total.current_bound
    if bound is not None:
        facts.append(message("lower bound {bound}/hour", bound=figures.dollars(bound.per_hour)))
        if total.gap is not None:
            facts.append(message("at most {gap} above it", gap=_gap(total.gap)))
    if cost.unpriced:
        facts.append(plural("{n} price unknown", "{n} prices unknown", n=cost.unpriced))
    if total.saved_per_hour is not None:
        facts.append(message("consolidation saved {saved}/hour", saved=figures.dollars(total.saved_per_hour)))
    for name in ("spot", "on-demand", "reserved", "fargate"):
        if name in total.capacity_types and len(total.capacity_types) > 1:
            facts.append(f"{name} {figures.money(total.capacity_types[name].money, look.glyphs)}")
    return facts


def _gap(gap: float) -> str:
    return f"{gap:.1%}" if gap < 0.1 else f"{gap:.0%}"


def _fill(total: Totals, look: TableLook) -> list[str]:
    facts = []
    for name, requested, most, used in (
        ("cpu", total.fleet.cpu, total.allocatable_cpu, total.usage_cpu),
        ("memory", total.fleet.memory, total.allocatable_memory, total.usage_memory),
    ):
        share = requested / most if most and total.pods is not None else None
        drawn = figures.bar(share, _BAR, look.glyphs)
        use = figures.percent(None if used is None or not most else used / most)
        facts.append(
            message(
                "{resource} {bar} {share} of {total}, {use} used",
                resource=name,
                bar=drawn if share is not None else "",
                share=figures.percent(share),
                total=figures.amount(name, most or None),
                use=use,
            ).replace("  ", " ")
        )
    return facts


def problems(view: FleetView) -> list[str]:
    """What keeps the view from being whole or the autoscaler from acting, the worst first."""
    health, lines = view.health, []
    if not health.connected:
        what, why = next(iter(health.problems.items()))
        lines.append(message("CONNECTION LOST ({what}): {why}; this is the last state", what=what, why=why))
    if health.safe_mode:
        lines.append(message("safe mode: {why}", why=recognized(health.safe_mode)))
    if health.autoscaler:
        lines.append(health.autoscaler)
    lines += _unready(view)
    refused = [f"{name} {translated(why)}" for name, why in health.unread.items() if why == NOT_PERMITTED]
    if refused:
        more = len(refused) - _UNREAD_SHOWN
        names = ", ".join(refused[:_UNREAD_SHOWN]) + (f" +{more}" if more > 0 else "")
        lines.append(message("cannot be read: {names}", names=names))
    return [printable(text) for text in lines]


def _unready(view: FleetView) -> list[str]:
    """NodePools that launch no node, each with the reason; the others stand in their table."""
    unready = sorted((pool for pool in view.pools.values() if pool.ready is False), key=lambda pool: pool.name)
    return [
        f"NodePool {pool.name}: {message('not ready')}: {recognized(pool.problem) or figures.UNKNOWN}"
        for pool in unready[:_UNREADY_SHOWN]
    ]


def once(
    view: FleetView,
    look: TableLook,
    width: int,
    *,
    filter_text: str = "",
    sort: str = "",
    descending: bool = False,
    pods: bool = False,
) -> Iterator[str]:
    """Everything, for a pipe or a log: totals, NodePools, nodes, pending pods; pods if they are asked for."""
    yield from totals(view, look, width)
    for text in problems(view):
        yield from wrapped(text, width)
    shown: tuple[Table[Any], ...] = (POOLS, NODES, PODS, PENDING) if pods else (POOLS, NODES, PENDING)
    for table in shown:
        rows = matching(table, table.rows(view), filter_text if table is not POOLS else "")
        if not rows:
            continue
        chosen = sort if any(column.name == sort for column in table.columns) else table.first
        columns = widths(table, width)
        yield ""
        yield heading(columns, look).rstrip()
        for row in ordered(table, rows, chosen, descending and chosen == sort):
            yield line(columns, row, look).rstrip()
    if not view.nodes:
        yield ""
        yield message("The cluster has no node.")
    if look.usage and view.health.metrics:
        yield ""
        yield from wrapped(message("usage is unknown: {why}", why=printable(recognized(view.health.metrics))), width)
