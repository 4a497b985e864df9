"""Fleet: every node as a block or a row, what happens now with its reason, and what is pending and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from dovetail.language import source
from dovetail.view.model import FleetView, Money, NodePhase, NodeView, PendingPod
from dovetail.view.totals import grouped, node_money
from dovetail.web import figures
from dovetail.web.blocks import STATES, block, group_of, short_name, target
from dovetail.web.context import PageContext
from dovetail.web.layout import bar, card, decision_badge, decision_link, table
from dovetail.web.markup import Markup, isolated, join, link, path, tag
from dovetail.web.page_language import PageLanguage
from dovetail.web.palette import DISTINCT, OTHER, Palette
from dovetail.web.view_options import COLOURS, FORMS, GROUPS, ZOOMS, ViewOptions

GROUP_LABELS = {
    "pool": source("NodePool"),
    "group": source("Node group"),
    "zone": source("Zone"),
    "type": source("Type"),
    "capacity": source("Capacity type"),
}
COLOUR_LABELS = {"namespace": source("Namespace"), "workload": source("Workload")}
FORM_LABELS = {"picture": source("Picture"), "table": source("Table")}
_NOW = (
    NodePhase.LAUNCHING,
    NodePhase.JOINING,
    NodePhase.REPLACING,
    NodePhase.DRAINING,
    NodePhase.NOT_READY,
    NodePhase.CORDONED,
)
MAX_NOW = 6
#: Groups of more blocks have rows of their own, which the browser draws when they are scrolled to.
MAX_BLOCKS_OF_A_SMALL_GROUP = 60
MAX_PENDING_REASONS = 12
MAX_PENDING_NAMED = 5
#: What stands for the reasons of pods that wait for a node.
_WAITS = "waits"
#: Nodes of a table; more are reached by a filter.
MAX_ROWS = 2000


def fleet(context: PageContext, options: ViewOptions) -> Markup:
    t, view = context.t, context.view
    prepare(context.palette, view, options)
    panels = (now_panel(view, context.now, t), pending_panel(view, t), recent_panel(view, t))
    side = tag("div", *panels, class_="side")
    drawn = options.form == "picture"
    picture = picture_of(view, options, context.palette, t) if drawn else table_of(view, options, t)
    key = legend(view, options, context.palette, t) if drawn else None
    return tag(
        "div",
        tag("h1", t("Fleet"), class_="hidden"),
        tag("div", controls(options, t), key, picture, class_="wide"),
        side,
        class_="fleet" if drawn else "fleet listed",
    )


def prepare(palette: Palette, view: FleetView, options: ViewOptions) -> None:
    """Give the colours to what requests most."""
    sums = view.totals.namespaces if options.colour == "namespace" else view.totals.workloads
    largest = sorted(sums.items(), key=lambda entry: (-entry[1].cpu, entry[0]))
    palette.prepare(options.colour, (name for name, total in largest if total.pods))


def controls(options: ViewOptions, t: PageLanguage) -> Markup:
    """Links, not state: the URL says what is seen."""
    choices = (
        ("group", t("Group by"), {name: t(GROUP_LABELS[name]) for name in GROUPS}),
        ("colour", t("Colour by"), {name: t(COLOUR_LABELS[name]) for name in COLOURS}),
        ("form", t("As"), {name: t(FORM_LABELS[name]) for name in FORMS}),
    )
    rows = [
        tag(
            "span",
            tag("span", label, class_="label") if name != "form" else None,
            *(
                tag(
                    "a",
                    text,
                    href=f"/{options.query(**{name: value})}",
                    aria_current="true" if getattr(options, name) == value else None,
                )
                for value, text in values.items()
            ),
            class_="choice options",
            role="group",
            aria_label=label,
        )
        for name, label, values in choices
    ]
    if options.form == "picture":
        rows.append(_sizes(options, t))
    hidden = [
        tag("input", type="hidden", name=name, value=getattr(options, name))
        for name in ("group", "colour", "zoom", "form")
    ]
    filtering = tag(
        "form",
        *hidden,
        tag("label", t("Filter"), for_="filter", class_="hidden"),
        tag(
            "input",
            id="filter",
            name="filter",
            type="search",
            value=options.filter,
            maxlength=200,
            placeholder=f"{t('Filter')}: spot …",
        ),
        class_="choice",
    )
    return tag("div", *rows, filtering, class_="controls")


def _sizes(options: ViewOptions, t: PageLanguage) -> Markup:
    """Links to blocks a step smaller and a step larger; at either end plain text."""
    sizes = list(ZOOMS)
    place = sizes.index(options.zoom) if options.zoom in sizes else sizes.index("m")
    steps = (("−", t("Smaller"), place - 1), ("+", t("Larger"), place + 1))
    links = [
        tag("a", sign, href=f"/{options.query(zoom=sizes[step])}", aria_label=label, title=label)
        if 0 <= step < len(sizes)
        else tag("span", sign, class_="end", aria_hidden="true")
        for sign, label, step in steps
    ]
    label = t("Size")
    return tag("span", *links, class_="choice options", role="group", aria_label=label)


def legend(view: FleetView, options: ViewOptions, palette: Palette, t: PageLanguage) -> Markup:
    sums = view.totals.namespaces if options.colour == "namespace" else view.totals.workloads
    named = [name for name, total in sums.items() if total.pods]
    shown = sorted((palette.of(options.colour, name), name) for name in named)
    items = [_key(colour, isolated(name)) for colour, name in shown if colour < DISTINCT]
    others = sum(1 for colour, _ in shown if colour >= DISTINCT)
    if others:
        items.append(_key(OTHER, t("{count} others", count=others)))
    keys = [
        _sample("halves", t("left CPU, right memory")),
        _sample("asked", t("requested")),
        _sample("line", t("used")),
        *(_sample(state.value, t(STATES[state])) for state in _NOW if view.totals.states.get(state.value)),
    ]
    return tag("div", tag("ul", *items), tag("ul", *keys, class_="keys"), id="legend", class_="legend")


_SAMPLES = {
    "halves": '<path class="bg" d="M0 0h10.5v14H0zM11.5 0H22v14H11.5z"/>',
    "asked": '<path class="bg" d="M0 0h22v14H0z"/><path class="c8" d="M0 5h22v9H0z"/>',
    "line": '<path class="bg" d="M0 0h22v14H0z"/><path class="use" d="M0 8h22"/>',
}


def _sample(name: str, label: str) -> Markup:
    """A small block of the kind, with its word."""
    drawn = _SAMPLES.get(name, '<path class="bg" d="M0 0h22v14H0z"/>')
    return tag(
        "li",
        Markup(f'<span class="n {name}"><svg width="22" height="14" aria-hidden="true">{drawn}</svg></span>'),
        label,
    )


def _key(colour: int, label: Markup | str) -> Markup:
    swatch = Markup(f'<svg width="10" height="10" aria-hidden="true"><path class="c{colour}" d="M0 0h10v10H0z"/></svg>')
    return tag("li", swatch, label)


def picture_of(view: FleetView, options: ViewOptions, palette: Palette, t: PageLanguage) -> Markup:
    shown = {key: node for key, node in view.nodes.items() if options.shows(node)}
    sections = [
        group_section(name, nodes, options, palette, t) for name, nodes in grouped(shown, options.group).items()
    ]
    empty = tag("p", t("No node matches.") if options.filter else t("There are no nodes."), class_="empty")
    return tag("div", *(sections or [empty]), id="picture", data_empty="" if sections else "1")


def group_section(
    name: str, nodes: Sequence[NodeView], options: ViewOptions, palette: Palette, t: PageLanguage
) -> Markup:
    ordered = sorted(nodes, key=lambda node: (node.instance_type or "", node.name))
    blocks = [block(node, options, palette, t) for node in ordered]
    return tag(
        "section",
        group_heading(name, nodes, options, t),
        tag("div", *blocks, class_="blocks", id=f"blocks:{name}"),
        class_="group many" if len(blocks) > MAX_BLOCKS_OF_A_SMALL_GROUP else "group",
        aria_label=name or t("without {label}", label=t(GROUP_LABELS[options.group])),
        id=f"section:{name}",
    )


def group_heading(name: str, nodes: Sequence[NodeView], options: ViewOptions, t: PageLanguage) -> Markup:
    money = Money()
    for node in nodes:
        money = money.plus(node_money(node))
    title: Markup | str = name
    if not name:
        title = t("without {label}", label=t(GROUP_LABELS[options.group]))
    elif options.group == "pool":
        title = link(name, "nodepool", name)
    elif options.group == "group":
        title = link(name, "group", name)
    cost = ""
    if money.parts:
        cost = t("price unknown") if money.unpriced >= money.parts else f"{figures.money(money, t)}/h"
    count = figures.nodes(len(nodes), t)
    small = tag("small", f"{count} · {cost}" if cost else count)
    return tag("h2", title, " ", small, id=f"heading:{name}")


def table_of(view: FleetView, options: ViewOptions, t: PageLanguage) -> Markup:
    """The same figures as the picture, as a table."""
    shown = sorted(
        (node for node in view.nodes.values() if options.shows(node)),
        key=lambda node: (not group_of(node, options), group_of(node, options), node.name),
    )
    columns = [
        (t(GROUP_LABELS[options.group]), "name"),
        (t("Node"), "name"),
        (t("State"), ""),
        (t("Type"), "name"),
        (t("Capacity type"), "name"),
        (t("Zone"), "name"),
        (t("Cost an hour"), "num"),
        (t("CPU requested"), "num"),
        (t("CPU used"), "num"),
        (t("Memory requested"), "num"),
        (t("Memory used"), "num"),
        (t("Pods"), "num"),
    ]
    rows = [_row(node, options, t) for node in shown[:MAX_ROWS]]
    more = len(shown) - MAX_ROWS
    note = tag("p", t("{count} more; filter to see them.", count=more), class_="empty") if more > 0 else None
    return tag(
        "div", table(t("Nodes"), columns, rows, t("There are no nodes."), hidden=True, wide=True), note, id="picture"
    )


def _row(node: NodeView, options: ViewOptions, t: PageLanguage) -> list[Markup | str]:
    return [
        tag("bdi", group_of(node, options) or "–", title=group_of(node, options) or None),
        tag("a", isolated(short_name(node)), href=target(node), title=node.name),
        t(STATES[node.state]),
        node.instance_type or t("unknown"),
        node.capacity_type or t("unknown"),
        node.zone or t("unknown"),
        figures.dollars(node.price.per_hour if node.price is not None else None, t),
        bar(node.share("cpu"), t, node.usage_share("cpu")),
        figures.percent(node.usage_share("cpu"), t),
        bar(node.share("memory"), t, node.usage_share("memory")),
        figures.percent(node.usage_share("memory"), t),
        f"{len(node.pods)}" if node.requests is not None else t("unknown"),
    ]


def now_panel(view: FleetView, now: datetime, t: PageLanguage) -> Markup:
    """Nodes that are on their way in or out, with the reason and when it ends at the latest."""
    busy = [node for node in view.nodes.values() if node.state in _NOW]
    busy.sort(key=lambda node: (_NOW.index(node.state), node.until is None, node.until or now, node.name))
    waiting = Counter(pod.waits_for for pod in view.pending.values() if pod.waits_for)
    items = [_busy(node, waiting[node.key], t) for node in busy[:MAX_NOW]]
    more = len(busy) - MAX_NOW
    if more > 0:
        first = ViewOptions(form="table", filter=busy[0].state.value)
        items.append(tag("li", tag("a", t("{count} more", count=more), href=f"/{first.query()}"), class_="more"))
    empty = join(tag("p", t("Nothing is launched, drained or replaced."), class_="empty"), _without_pools(view, t))
    heading = join(t("Now"), tag("small", str(len(busy)) if busy else ""))
    return card(heading, tag("ul", *items, class_="plain") if items else empty, id_="now")


def _without_pools(view: FleetView, t: PageLanguage) -> Markup | None:
    """What is missing before anything can be launched, where NodePools can be read and there are none."""
    if view.pools or not view.nodes or any(name.startswith("nodepools") for name in view.health.unread):
        return None
    said = t("There is no NodePool yet: no node is launched for pending pods before one is created.")
    return tag("p", said, class_="hint", data_hint="no-nodepool")


def _busy(node: NodeView, waiting: int, t: PageLanguage) -> Markup:
    until = None
    if node.until is not None:
        ends = node.until.isoformat()
        countdown = tag("time", "", datetime=ends, data_until=ends, data_most=t("at most"), data_late=t("overdue"))
        until = tag("span", _elapsed(node), countdown, class_="until", title=_ends(node, t))
    kind = ", ".join(filter(None, (node.instance_type, node.capacity_type, node.zone)))
    moving = sum(1 for pod in node.pods if not pod.daemon)
    leaves = node.state in (NodePhase.DRAINING, NodePhase.REPLACING)
    about = t("for {pods}", pods=figures.pods(waiting, t)) if waiting else ""
    if leaves and node.requests is not None:
        about = t("{pods} to move", pods=figures.pods(moving, t))
    return tag(
        "li",
        tag("span", t(STATES[node.state]), class_=f"badge {node.state.value}"),
        " ",
        tag("a", isolated(short_name(node)), href=target(node), title=node.name),
        until,
        tag("small", isolated(" · ".join(filter(None, (kind, about))))),
        tag("small", isolated(t.recorded(node.reason)), class_="why") if node.reason else None,
    )


def _elapsed(node: NodeView) -> Markup | None:
    """How long a node has been on its way in."""
    if node.created is None or node.state not in (NodePhase.LAUNCHING, NodePhase.JOINING):
        return None
    since = node.created.isoformat()
    return join(tag("time", "", datetime=since, data_since=since), " · ")


def _ends(node: NodeView, t: PageLanguage) -> str:
    """What happens when the countdown ends."""
    if node.state in (NodePhase.LAUNCHING, NodePhase.JOINING):
        return t("then the NodeClaim is given up and another is created")
    return t("then the node is removed, whatever still runs on it")


def pending_panel(view: FleetView, t: PageLanguage) -> Markup:
    """Pending pods by reason, the most frequent first."""
    reasons: dict[tuple[str, str], list[PendingPod]] = {}
    for pod in view.pending.values():
        key = (_WAITS, "") if pod.waits_for else (pod.code, pod.reason)
        reasons.setdefault(key, []).append(pod)
    ordered = sorted(reasons.values(), key=lambda pods: (-len(pods), pods[0].key))
    items = [_reason(pods, t) for pods in ordered[:MAX_PENDING_REASONS]]
    more = len(ordered) - MAX_PENDING_REASONS
    if more > 0:
        items.append(tag("li", tag("a", t("{count} more reasons", count=more), href="/pending"), class_="more"))
    heading = join(link_to_pending(t), tag("small", f"{len(view.pending):,}" if view.pending else ""))
    empty = tag("p", t("No pod is pending."), class_="empty")
    return card(heading, tag("ul", *items, class_="plain") if items else empty, id_="pending")


def link_to_pending(t: PageLanguage) -> Markup:
    return tag("a", t("Pending"), href="/pending")


def _reason(pods: Sequence[PendingPod], t: PageLanguage) -> Markup:
    """A reason with the workloads that it concerns; pods that wait for a node are one entry."""
    first = pods[0]
    said = _waits(pods, t) if first.waits_for else reason_of(first, t)
    code = join(" ", tag("code", first.code)) if first.code and not first.waits_for else None
    return tag(
        "li",
        tag("div", tag("span", f"{len(pods):,}", class_="count"), said, code, class_="said"),
        tag("small", t("Remedy"), ": ", isolated(t.recorded(first.remedy)), class_="remedy") if first.remedy else None,
        tag("small", _workloads(pods, t)),
    )


def _waits(pods: Sequence[PendingPod], t: PageLanguage) -> Markup:
    """What the pods wait for: a NodeClaim or a node by name, several by their number."""
    awaited = sorted({pod.waits_for for pod in pods})
    if len(awaited) == 1:
        return reason_of(pods[0], t)
    return isolated(t("wait for {nodes} on their way", nodes=figures.nodes(len(awaited), t)))


def _workloads(pods: Sequence[PendingPod], t: PageLanguage) -> Markup:
    """The workloads of pods, the largest first; a pod of its own leads to its page."""
    counts = Counter((pod.namespace, pod.workload) for pod in pods)
    largest = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    parts: list[Markup] = []
    for (namespace, workload), count in largest[:MAX_PENDING_NAMED]:
        kind, _, name = workload.partition("/")
        label = f"{namespace}/{name}" if kind == "Pod" else f"{namespace}/{workload}"
        address = ("pod", namespace, name) if kind == "Pod" else ("workload", namespace, kind, name)
        parts.append(join(link(label, *address), f" ({count:,})" if count > 1 else None))
    more = len(largest) - len(parts)
    listed = join(*(join(", " if number else "", part) for number, part in enumerate(parts)))
    return join(listed, f", {t('{count} more', count=more)}" if more else None)


def reason_of(pod: PendingPod, t: PageLanguage) -> Markup:
    """Why the pod is pending; what it waits for is a link."""
    said = isolated(t.recorded(pod.reason))
    return tag("a", said, href=path(*pod.waits_for.split("/", 1))) if pod.waits_for else said


def recent_panel(view: FleetView, t: PageLanguage) -> Markup:
    """The newest decisions: what was done, when, and why."""
    items = [
        tag(
            "li",
            tag("time", decision.time[11:16], datetime=decision.time, title=decision.time, class_="clock"),
            decision_badge(decision.kind, t),
            " ",
            tag(
                "a",
                isolated(t.recorded(decision.summary) or decision.id),
                href=path("decision", decision.id),
                title=decision.id,
            ),
        )
        for decision in view.recent
    ]
    missing = t("No decision is recorded.") if view.health.safe_mode is not None else t("The history is not read.")
    listed = tag("ul", *items, class_="plain") if items else tag("p", missing, class_="empty")
    heading = join(t("Recent decisions"), tag("small", "UTC") if items else None)
    return card(heading, listed, id_="recent")


def pending_page(context: PageContext) -> Markup:
    """Every pending pod, as a table."""
    t = context.t
    columns = [
        (t("Pod"), "key"),
        (t("Workload"), "key"),
        (t("CPU"), "num"),
        (t("Memory"), "num"),
        (t("Age"), "num"),
        (t("Reason"), "long"),
        (t("Decision"), ""),
    ]
    rows: list[list[Markup | str]] = []
    for pod in sorted(context.view.pending.values(), key=lambda pod: pod.key)[:MAX_ROWS]:
        requests: Mapping[str, int] | None = pod.requests
        rows.append(
            [
                link(pod.key, "pod", pod.namespace, pod.name),
                isolated(pod.workload),
                figures.cpu(None if requests is None else requests.get("cpu", 0), t),
                figures.memory(None if requests is None else requests.get("memory", 0), t),
                figures.age(pod.created, context.now, t),
                join(reason_of(pod, t), " ", tag("code", pod.code) if pod.code else None),
                decision_link(pod.decision) if pod.decision else "",
            ]
        )
    more = len(context.view.pending) - MAX_ROWS
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    listed = table(t("Pending pods"), columns, rows, t("No pod is pending."), hidden=True)
    return join(tag("h1", t("Pending pods")), tag("section", listed, note, class_="card"))
