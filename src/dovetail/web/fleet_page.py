"""Fleet: every node as a block or a row, what happens now with its reason, and what is pending and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from dovetail.view.model import FleetView, Money, NodeView, PendingPod, State
from dovetail.view.totals import grouped, node_money
from dovetail.web import figures
from dovetail.web.blocks import STATES, block, group_of, target
from dovetail.web.catalogue import Catalogue
from dovetail.web.context import PageContext
from dovetail.web.layout import bar, card, decision_link, table
from dovetail.web.look import COLOURS, FORMS, GROUPS, ZOOMS, Look
from dovetail.web.markup import Markup, isolated, join, link, path, tag
from dovetail.web.palette import DISTINCT, OTHER, Palette

GROUP_LABELS = {"pool": "NodePool", "group": "Node group", "zone": "Zone", "type": "Type", "capacity": "Capacity type"}
COLOUR_LABELS = {"namespace": "Namespace", "workload": "Workload"}
FORM_LABELS = {"picture": "Picture", "table": "Table"}
_NOW = (State.LAUNCHING, State.JOINING, State.REPLACING, State.DRAINING, State.NOT_READY, State.CORDONED)
MAX_NOW = 6
MAX_PENDING_REASONS = 12
MAX_PENDING_NAMED = 5
#: Nodes of a table; more are reached by a filter.
MAX_ROWS = 2000


def fleet(context: PageContext, look: Look) -> Markup:
    t, view = context.t, context.view
    prepare(context.palette, view, look)
    side = tag("div", now_panel(view, context.now, t), pending_panel(view, t), class_="side")
    picture = picture_of(view, look, context.palette, t) if look.form == "picture" else table_of(view, look, t)
    return tag(
        "div",
        tag("h1", t("Fleet"), class_="hidden"),
        tag("div", controls(look, t), legend(view, look, context.palette, t), picture, class_="wide"),
        side,
        class_="fleet",
    )


def prepare(palette: Palette, view: FleetView, look: Look) -> None:
    """Give the colours to what requests most."""
    sums = view.totals.namespaces if look.colour == "namespace" else view.totals.workloads
    largest = sorted(sums.items(), key=lambda entry: (-entry[1].cpu, entry[0]))
    palette.prepare(look.colour, (name for name, total in largest if total.pods))


def controls(look: Look, t: Catalogue) -> Markup:
    """Links, not state: the URL says what is seen."""
    choices = (
        ("group", t("Group by"), {name: t(GROUP_LABELS[name]) for name in GROUPS}),
        ("colour", t("Colour by"), {name: t(COLOUR_LABELS[name]) for name in COLOURS}),
        ("zoom", t("Size"), {name: name.upper() for name in ZOOMS}),
        ("form", t("As"), {name: t(FORM_LABELS[name]) for name in FORMS}),
    )
    rows = [
        tag(
            "span",
            tag("span", label, class_="label"),
            *(
                tag(
                    "a",
                    text,
                    href=f"/{look.query(**{name: value})}",
                    aria_current="true" if getattr(look, name) == value else None,
                )
                for value, text in options.items()
            ),
            class_="choice",
            role="group",
            aria_label=label,
        )
        for name, label, options in choices
    ]
    hidden = [
        tag("input", type="hidden", name=name, value=getattr(look, name))
        for name in ("group", "colour", "zoom", "form")
    ]
    filtering = tag(
        "form",
        *hidden,
        tag("label", t("Filter"), for_="filter", class_="label"),
        tag("input", id="filter", name="filter", type="search", value=look.filter, maxlength=200, placeholder="spot …"),
        class_="choice",
    )
    return tag("div", *rows, filtering, class_="controls")


def legend(view: FleetView, look: Look, palette: Palette, t: Catalogue) -> Markup:
    sums = view.totals.namespaces if look.colour == "namespace" else view.totals.workloads
    named = [name for name, total in sums.items() if total.pods]
    shown = sorted((palette.of(look.colour, name), name) for name in named)
    items = [_key(colour, isolated(name)) for colour, name in shown if colour < DISTINCT]
    others = sum(1 for colour, _ in shown if colour >= DISTINCT)
    if others:
        items.append(_key(OTHER, t("{count} others", count=others)))
    explained = t("Left CPU, right memory; filled: requested; line: used")
    return tag("div", tag("ul", *items), tag("small", explained), id="legend", class_="legend")


def _key(colour: int, label: Markup | str) -> Markup:
    swatch = Markup(f'<svg width="10" height="10" aria-hidden="true"><path class="c{colour}" d="M0 0h10v10H0z"/></svg>')
    return tag("li", swatch, label)


def picture_of(view: FleetView, look: Look, palette: Palette, t: Catalogue) -> Markup:
    shown = {key: node for key, node in view.nodes.items() if look.shows(node)}
    sections = [group_section(name, nodes, look, palette, t) for name, nodes in grouped(shown, look.group).items()]
    empty = tag("p", t("No node matches.") if look.filter else t("There are no nodes."), class_="empty")
    return tag("div", *(sections or [empty]), id="picture", data_empty="" if sections else "1")


def group_section(name: str, nodes: Sequence[NodeView], look: Look, palette: Palette, t: Catalogue) -> Markup:
    ordered = sorted(nodes, key=lambda node: (node.instance_type or "", node.name))
    blocks = [block(node, look, palette, t) for node in ordered]
    return tag(
        "section",
        group_heading(name, nodes, look, t),
        tag("div", *blocks, class_="blocks", id=f"blocks:{name}"),
        class_="group",
        aria_label=name or t("without {label}", label=t(GROUP_LABELS[look.group])),
        id=f"section:{name}",
    )


def group_heading(name: str, nodes: Sequence[NodeView], look: Look, t: Catalogue) -> Markup:
    money = Money()
    for node in nodes:
        money = money.plus(node_money(node))
    title: Markup | str = name
    if not name:
        title = t("without {label}", label=t(GROUP_LABELS[look.group]))
    elif look.group == "pool":
        title = link(name, "nodepool", name)
    elif look.group == "group":
        title = link(name, "group", name)
    cost = ""
    if money.parts:
        cost = t("price unknown") if money.unpriced >= money.parts else f"{figures.money(money, t)}/h"
    count = t("{count} nodes", count=len(nodes))
    small = tag("small", f"{count} · {cost}" if cost else count)
    return tag("h2", title, " ", small, id=f"heading:{name}")


def table_of(view: FleetView, look: Look, t: Catalogue) -> Markup:
    """The same figures as the picture, as a table."""
    shown = sorted(
        (node for node in view.nodes.values() if look.shows(node)),
        key=lambda node: (not group_of(node, look), group_of(node, look), node.name),
    )
    columns = [
        (t(GROUP_LABELS[look.group]), ""),
        (t("Node"), ""),
        (t("State"), ""),
        (t("Type"), ""),
        (t("Capacity type"), ""),
        (t("Zone"), ""),
        (t("Cost an hour"), "num"),
        (t("CPU requested"), "num"),
        (t("CPU used"), "num"),
        (t("Memory requested"), "num"),
        (t("Memory used"), "num"),
        (t("Pods"), "num"),
    ]
    rows = [_row(node, look, t) for node in shown[:MAX_ROWS]]
    more = len(shown) - MAX_ROWS
    note = tag("p", t("{count} more; filter to see them.", count=more), class_="empty") if more > 0 else None
    return tag("div", table(t("Nodes"), columns, rows, t("There are no nodes."), hidden=True), note, id="picture")


def _row(node: NodeView, look: Look, t: Catalogue) -> list[Markup | str]:
    return [
        isolated(group_of(node, look)),
        tag("a", isolated(node.name), href=target(node)),
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


def now_panel(view: FleetView, now: datetime, t: Catalogue) -> Markup:
    """Nodes that are on their way in or out, with the reason and when it ends at the latest."""
    busy = [node for node in view.nodes.values() if node.state in _NOW]
    busy.sort(key=lambda node: (_NOW.index(node.state), node.until is None, node.until or now, node.name))
    items = [_busy(node, t) for node in busy[:MAX_NOW]]
    more = len(busy) - MAX_NOW
    if more > 0:
        first = Look(form="table", filter=busy[0].state.value)
        items.append(tag("li", tag("a", t("{count} more", count=more), href=f"/{first.query()}"), class_="more"))
    empty = tag("p", t("Nothing is launched, drained or replaced."), class_="empty")
    heading = join(t("Now"), tag("small", str(len(busy)) if busy else ""))
    return card(heading, tag("ul", *items, class_="plain") if items else empty, id_="now")


def _busy(node: NodeView, t: Catalogue) -> Markup:
    until = None
    if node.until is not None:
        until = tag("time", "", class_="until", datetime=node.until.isoformat(), data_until=node.until.isoformat())
    kind = ", ".join(filter(None, (node.instance_type, node.capacity_type)))
    return tag(
        "li",
        tag("span", t(STATES[node.state]), class_=f"badge {node.state.value}"),
        " ",
        tag("a", isolated(short_name(node)), href=target(node), title=node.name),
        until,
        tag("small", isolated(" · ".join(filter(None, (kind, node.reason))))),
    )


def short_name(node: NodeView) -> str:
    """The host's name without its domain, which all hosts of a cluster share."""
    return node.name.partition(".")[0] if node.name.endswith(".internal") else node.name


def pending_panel(view: FleetView, t: Catalogue) -> Markup:
    """Pending pods by reason, the most frequent first."""
    reasons: dict[tuple[str, str], list[PendingPod]] = {}
    for pod in view.pending.values():
        reasons.setdefault((pod.code, pod.reason), []).append(pod)
    ordered = sorted(reasons.values(), key=lambda pods: (-len(pods), pods[0].key))
    items = [_reason(pods, t) for pods in ordered[:MAX_PENDING_REASONS]]
    more = len(ordered) - MAX_PENDING_REASONS
    if more > 0:
        items.append(tag("li", tag("a", t("{count} more reasons", count=more), href="/pending"), class_="more"))
    heading = join(link_to_pending(t), tag("small", f"{len(view.pending):,}" if view.pending else ""))
    empty = tag("p", t("No pod is pending."), class_="empty")
    return card(heading, tag("ul", *items, class_="plain") if items else empty, id_="pending")


def link_to_pending(t: Catalogue) -> Markup:
    return tag("a", t("Pending"), href="/pending")


def _reason(pods: Sequence[PendingPod], t: Catalogue) -> Markup:
    first = pods[0]
    named = [join(link(pod.key, "pod", pod.namespace, pod.name)) for pod in pods[:MAX_PENDING_NAMED]]
    more = len(pods) - len(named)
    listed = join(*(join(", " if number else "", name) for number, name in enumerate(named)))
    return tag(
        "li",
        tag("span", f"{len(pods):,}", class_="count"),
        isolated(first.reason),
        join(" ", tag("code", first.code)) if first.code else None,
        tag("small", listed, f", {t('{count} more', count=more)}" if more else None),
        tag("small", t("Remedy"), ": ", isolated(first.remedy), class_="remedy") if first.remedy else None,
    )


def pending_page(context: PageContext) -> Markup:
    """Every pending pod, as a table."""
    t = context.t
    columns = [
        (t("Pod"), ""),
        (t("Workload"), ""),
        (t("CPU"), "num"),
        (t("Memory"), "num"),
        (t("Age"), "num"),
        (t("Reason"), ""),
        (t("Decision"), ""),
    ]
    rows: list[list[Markup | str]] = []
    for pod in sorted(context.view.pending.values(), key=lambda pod: pod.key)[:MAX_ROWS]:
        asked: Mapping[str, int] | None = pod.requests
        rows.append(
            [
                link(pod.key, "pod", pod.namespace, pod.name),
                isolated(pod.workload),
                figures.cpu(None if asked is None else asked.get("cpu", 0), t),
                figures.memory(None if asked is None else asked.get("memory", 0), t),
                figures.age(pod.created, context.now, t),
                join(isolated(pod.reason), " ", tag("code", pod.code) if pod.code else None),
                decision_link(pod.decision) if pod.decision else "",
            ]
        )
    more = len(context.view.pending) - MAX_ROWS
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    return join(tag("h1", t("Pending pods")), table(t("Pending pods"), columns, rows, t("No pod is pending.")), note)


def group_page(context: PageContext, name: str) -> Markup | None:
    """A node group: its nodes."""
    nodes = [node for node in context.view.nodes.values() if node.group == name]
    if not nodes:
        return None
    t = context.t
    look = Look(group="group", form="table", filter="")
    part = FleetView(nodes={node.key: node for node in nodes})
    heading = tag("h1", isolated(f"{t('Node group')} {name}"))
    picture = tag("p", tag("a", t("Fleet"), href=f"{path()}{Look(group='group', filter=name).query()}"))
    return join(heading, picture, table_of(part, look, t))
