"""The frame around every page: navigation, search, figures of the whole fleet, and what is wrong at once."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from dovetail import __version__
from dovetail.language import source
from dovetail.view.model import FleetView, Money, NodePhase, Sum
from dovetail.web import figures
from dovetail.web.blocks import STATES
from dovetail.web.context import PageContext
from dovetail.web.instant import slider, with_instant_in_links
from dovetail.web.markup import Markup, isolated, join, link, tag, text
from dovetail.web.page_language import LANGUAGES, PageLanguage

PAGES = (
    ("/", source("Fleet")),
    ("/cost", source("Cost")),
    ("/time", source("Time")),
    ("/autoscalers", source("Autoscalers")),
    ("/budgets", source("Budgets")),
    ("/health", source("Health")),
)
_HTMX = '{"allowEval":false,"includeIndicatorStyles":false,"historyCacheSize":0,"selfRequestsOnly":true}'


#: NodePools that a notice names.
MAX_UNREADY_POOLS = 3


def page(context: PageContext, title: str, main: Markup, stream: str, *, plots: bool = False) -> str:
    """A whole document. `stream` is where its updates come from."""
    t = context.t
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="htmx-config", content=_HTMX),
        tag("title", f"{title} · Dovetail"),
        tag("link", rel="icon", href="/assets/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href=f"/assets/dashboard.css?v={__version__}"),
        tag("link", rel="stylesheet", href="/assets/uPlot.min.css") if plots else None,
        tag("script", src="/assets/htmx.min.js", defer=True),
        tag("script", src="/assets/uPlot.iife.min.js", defer=True) if plots else None,
        tag("script", src=f"/assets/dashboard.js?v={__version__}", defer=True),
    )
    body = tag(
        "body",
        tag("a", t("Skip to the content"), href="#main", class_="skip"),
        _header(context),
        tag("div", _lost(t), health(context.view, t), id="notices", role="status", aria_live="polite"),
        slider(context) if context.moment is not None else None,
        fleet_figures(context.view, t),
        tag("main", main, id="main", tabindex="-1"),
        _footer(context),
        data_stream=stream,
        data_following="1" if context.moment is not None and context.moment.following else None,
        data_unknown=t("unknown"),
    )
    theme = context.theme if context.theme in ("dark", "light") else None
    return with_instant_in_links(
        f"<!doctype html>{tag('html', head, body, lang=t.language, data_theme=theme)}", context.moment
    )


def _header(context: PageContext) -> Markup:
    t = context.t
    items = [
        tag(
            "li",
            tag("a", t(label), href=address, aria_current="page" if context.path == address else None),
        )
        for address, label in PAGES
    ]
    search = tag(
        "form",
        tag("label", t("Search"), for_="search", class_="hidden"),
        tag(
            "input",
            id="search",
            name="q",
            type="search",
            placeholder=t("Search"),
            value=context.query.get("q") if context.path == "/search" else None,
            autocomplete="off",
            accesskey="/",
            hx_get="/search/results",
            hx_trigger="input changed delay:200ms",
            hx_target="#found",
            maxlength=200,
        ),
        tag("div", id="found", aria_live="polite"),
        action="/search",
        role="search",
    )
    return tag(
        "header",
        tag("a", tag("span", "dovetail"), href="/", class_="brand", aria_label=t("Dovetail: the fleet")),
        tag("nav", tag("ul", *items), aria_label=t("Pages")),
        search,
        tag("button", t("Theme"), id="theme", type="button", class_="quiet", title=t("Dark or light")),
        _languages(context),
    )


def _languages(context: PageContext) -> Markup:
    """Links to the same page in the other languages."""
    others = [
        tag(
            "a",
            name,
            href=f"{context.path}?{urlencode({**context.query, 'lang': code})}",
            lang=code,
            hreflang=code,
            class_="quiet",
        )
        for code, name in LANGUAGES.items()
        if code != context.t.language
    ]
    return tag("span", *others, class_="languages")


def _footer(context: PageContext) -> Markup:
    t = context.t
    viewer = join(" · ", t("signed in as"), " ", isolated(context.viewer)) if context.viewer else None
    cluster = join(" · ", isolated(context.title)) if context.title else None
    updated = tag("time", context.now.strftime("%H:%M:%S"), id="updated", datetime=context.now.isoformat())
    return tag("footer", f"Dovetail {__version__}", cluster, viewer, " · ", t("as of"), " ", updated, " UTC")


def _lost(t: PageLanguage) -> Markup:
    """Shown by the script as soon as the stream breaks."""
    return tag(
        "p",
        tag("strong", t("Connection lost.")),
        " ",
        t("The figures are those of the last update; they follow again as soon as the server answers."),
        id="lost",
        class_="notice bad",
        hidden=True,
    )


def health(view: FleetView, t: PageLanguage) -> Markup:
    """What is wrong with the cluster's API, with the autoscaler, or with what may be read."""
    notices, state = [], view.health
    if not state.connected:
        why = "; ".join(f"{name}: {t.recorded(problem)}" for name, problem in sorted(state.problems.items())[:3])
        said = t("The cluster does not answer. The figures are those of the last answer.")
        notices.append(
            tag("p", tag("strong", said), " ", isolated(why), class_="notice bad", data_notice="disconnected")
        )
    if state.safe_mode:
        said = t("Safe mode: voluntary disruption has stopped.")
        notices.append(
            tag(
                "p",
                tag("strong", said),
                " ",
                isolated(t.recorded(state.safe_mode)),
                class_="notice warn",
                data_notice="safe-mode",
            )
        )
    if state.autoscaler:
        notices.append(tag("p", isolated(t.recorded(state.autoscaler)), class_="notice warn", data_notice="autoscaler"))
    return tag("div", *notices, _unready_pools(view, t), id="health-notices")


def _unready_pools(view: FleetView, t: PageLanguage) -> Markup | None:
    """NodePools that launch nothing now, each with the reason."""
    unready = sorted((pool for pool in view.pools.values() if pool.ready is False), key=lambda pool: pool.name)
    if not unready:
        return None
    said = t("NodePools that are not ready launch no node:")
    named = [
        join(" ", link(pool.name, "nodepool", pool.name), f": {t.recorded(pool.problem)}" if pool.problem else "")
        for pool in unready[:MAX_UNREADY_POOLS]
    ]
    more = len(unready) - len(named)
    rest = tag("a", t("{count} more", count=more), href="/health") if more else None
    return tag(
        "p",
        tag("strong", said),
        join(*(join(";" if number else "", pool) for number, pool in enumerate(named))),
        join("; ", rest) if rest is not None else None,
        class_="notice warn",
        data_notice="nodepools",
    )


def fleet_figures(view: FleetView, t: PageLanguage) -> Markup:
    """The strip of figures of the whole fleet."""
    totals = view.totals
    fleet = totals.fleet
    unpriced = t("{count} without a price", count=fleet.money.unpriced) if fleet.money.unpriced else ""
    month = t("{amount} a month", amount=figures.monthly(fleet.money, t))
    bound = totals.current_bound
    cells = [
        _figure(
            "cost",
            t("Cost an hour"),
            figures.money(fleet.money, t),
            unpriced or month,
            t("What all instances cost an hour; a month has 730 hours."),
        ),
        _figure(
            "bound",
            t("Lower bound"),
            figures.dollars(bound.per_hour if bound is not None else None, t),
            _gap(view, t),
            t("No fleet for the same pods costs less; the gap is what could be saved at most.")
            + (f" ({'; '.join(map(t, bound.of))})" if bound is not None and bound.of else ""),
        ),
        _figure("nodes", t("Nodes"), f"{fleet.nodes:,}", states(totals.states, t)),
        _figure("pods", t("Pods"), t("unknown") if totals.pods is None else f"{totals.pods:,}", t("on nodes")),
        _figure(
            "pending",
            t("Pending"),
            f"{totals.pending:,}",
            t("without a node"),
            kind="warn" if totals.pending else "",
        ),
        _use("cpu", t("CPU"), fleet.cpu, totals.allocatable_cpu, totals.usage_cpu, totals.pods is not None, t),
        _use(
            "memory",
            t("Memory"),
            fleet.memory,
            totals.allocatable_memory,
            totals.usage_memory,
            totals.pods is not None,
            t,
        ),
        _figure(
            "spot",
            t("Spot"),
            *_spot(totals.capacity_types, fleet.money, t),
            t("The part of the cost that is paid for spot instances."),
        ),
        _figure(
            "saved",
            t("Saved an hour"),
            _saved(view, t),
            t("in 7 days"),
            t("What consolidation took off the price an hour in the last seven days."),
        ),
    ]
    return tag("dl", *cells, id="figures", aria_label=t("Figures of the fleet"))


def _gap(view: FleetView, t: PageLanguage) -> str:
    """How far the fleet is above the bound, or why that is not known."""
    totals = view.totals
    if totals.gap is not None:
        return t("gap {share}", share=figures.percent(totals.gap, t))
    if totals.current_bound is not None:
        return t("no pod needs a node")
    if totals.bound is not None:
        return t("being computed")
    if totals.fleet.money.per_hour is None:
        return t("needs every price")
    return t("needs a NodePool") if not view.pools else t("not computed")


def _figure(
    name: str, label: str, value: str, below: str, explained: str = "", *, kind: str = "", drawn: Markup | None = None
) -> Markup:
    """A figure with its label, what is said below it, and the picture of a share, if it is one."""
    kinds = ["value", *filter(None, (kind, "" if any(map(str.isdigit, value)) else "unknown"))]
    shown = tag("span", value, class_=" ".join(kinds))
    return tag(
        "div",
        tag("dt", label),
        tag("dd", shown, drawn, tag("small", below), data_figure=name, title=explained or None),
    )


def _saved(view: FleetView, t: PageLanguage) -> str:
    """What consolidation saved; unknown without a decision history."""
    if view.totals.saved_per_hour is None and view.health.safe_mode is not None:
        return t("nothing yet")
    return figures.dollars(view.totals.saved_per_hour, t)


def _use(
    name: str, label: str, requested: int, total: int, used: int | None, has_total: bool, t: PageLanguage
) -> Markup:
    share = requested / total if has_total and total else None
    usage = used / total if used is not None and total else None
    below = t("{share} used", share=figures.percent(usage, t)) if usage is not None else t("usage unknown")
    explained = t("Requested by pods, of what the nodes can give them; the line is what is used.")
    drawn = _bar(share, usage) if share is not None else None
    return _figure(
        name, t("{resource} requested", resource=label), figures.percent(share, t), below, explained, drawn=drawn
    )


def _spot(types: object, whole: Money, t: PageLanguage) -> tuple[str, str]:
    """The share of spot in what is paid; unknown where a price is."""
    assert isinstance(types, dict)
    spot: Sum = types.get("spot", Sum())
    nodes = t("{count} of {total} nodes", count=spot.nodes, total=sum(group.nodes for group in types.values()))
    if whole.per_hour is None or spot.money.per_hour is None:
        return t("unknown"), nodes
    return (figures.percent(spot.money.per_hour / whole.per_hour, t) if whole.per_hour else "0%"), nodes


def states(counts: object, t: PageLanguage) -> str:
    """How many nodes are in which state, without those that are simply ready."""
    assert isinstance(counts, dict)
    listed = [
        t("{count} {state}", count=counts[state.value], state=t(STATES[state]))
        for state in NodePhase
        if counts.get(state.value)
    ]
    return ", ".join(listed) if len(listed) > 1 or not counts.get(NodePhase.READY.value) else t("all ready")


def card(title: Markup | str, *content: Markup | None, id_: str | None = None, class_: str = "card") -> Markup:
    return tag("section", tag("h2", title), *content, id=id_, class_=class_)


def table(
    caption: str,
    columns: list[tuple[str, str]],
    rows: list[list[Markup | str]],
    empty: str,
    *,
    hidden: bool = False,
    wide: bool = False,
) -> Markup:
    """A table; `columns` are headings with a class (`num` is right-aligned).

    On a small screen the cells of a row stand below each other where texts are long, or the columns many (`wide`).
    """
    if not rows:
        return tag("p", empty, class_="empty")
    stacked = wide or any(kind == "long" for _, kind in columns)
    head = tag(
        "tr",
        *(
            tag("th", label, scope="col", class_=kind or None, role="columnheader" if stacked else None)
            for label, kind in columns
        ),
        role="row" if stacked else None,
    )
    body = [_cells(row, columns, stacked) for row in rows]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="hidden" if hidden else None),
            tag("thead", head, role="rowgroup" if stacked else None),
            tag("tbody", *body, role="rowgroup" if stacked else None),
            class_="stacked" if stacked else None,
            role="table" if stacked else None,
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def _cells(row: list[Markup | str], columns: list[tuple[str, str]], stacked: bool) -> Markup:
    """A row. On a small screen those with long texts stand one below the other: each cell says what it is then."""
    cells = [
        tag(
            "td",
            cell,
            class_=kind or None,
            role="cell" if stacked else None,
            data_label=label if stacked and label and kind != "long" else None,
        )
        for cell, (label, kind) in zip(row, columns, strict=True)
    ]
    return tag("tr", *cells, role="row" if stacked else None)


def definition_list(facts: Sequence[tuple[str, Markup | str]]) -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def decision_link(identity: str) -> Markup:
    return link(identity, "decision", identity, class_="id")


#: What a decision did, by its kind.
DECISION_LABELS = {
    "provision": source("launch"),
    "refuse": source("unschedulable"),
    "disrupt": source("disruption"),
    "undo": source("undone"),
    "end": source("done"),
    "unhealthy": source("unhealthy"),
    "safe-mode": source("safe mode"),
    "drift-stop": source("drift stopped"),
    "scale-up": source("scale-up"),
    "scale-down": source("scale-down"),
    "keep": source("kept"),
}


def decision_badge(kind: str, t: PageLanguage) -> Markup:
    return tag("span", t(DECISION_LABELS.get(kind, kind)), class_=f"badge {kind}", title=kind)


def bar(share: float | None, t: PageLanguage, used: float | None = None) -> Markup:
    """A bar with its figure beside it; unknown has no bar at all."""
    if share is None:
        return tag("span", t("unknown"), class_="unknown")
    return join(_bar(share, used), tag("span", text(figures.percent(share, t)), class_="num"))


def _bar(share: float, used: float | None) -> Markup:
    width = round(100 * max(0.0, min(1.0, share)), 1)
    line = f'<path class="use" d="M{100 * min(1.0, used):.1f} 0v8"/>' if used is not None else ""
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bg" width="100" height="8"/><rect class="fg" width="{width}" height="8"/>{line}</svg>'
    )
