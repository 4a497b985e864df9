"""Pages about the whole cluster: cost, time, budgets, health, and what a search finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from dovetail.controllers.explain.nodepools import REASONS
from dovetail.controllers.history.decisions import Decision
from dovetail.install.doctor.facts import Finding, Status
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodepool import NodePool
from dovetail.view.model import Sum
from dovetail.view.observer import Observer
from dovetail.view.totals import IDLE, NONE
from dovetail.web import figures
from dovetail.web.catalogue import Catalogue
from dovetail.web.context import PageContext
from dovetail.web.layout import bar, card, table
from dovetail.web.markup import Markup, isolated, join, link, tag
from dovetail.web.object_pages import decision_table
from dovetail.web.series import MARKED

MAX_ROWS = 200
MAX_FOUND = 30
CALENDAR_DAYS = 7


# Cost.


def cost(context: PageContext) -> Markup:
    t, totals = context.t, context.view.totals
    return join(
        tag("h1", t("Cost")),
        tag("p", t("A node's price is divided among its pods by their requests, half by CPU and half by memory.")),
        tag(
            "div",
            _costs(t("NodePool"), "pools", totals.pools, context),
            _costs(t("Capacity type"), "capacity_types", totals.capacity_types, context),
            _costs(t("Namespace"), "namespaces", totals.namespaces, context),
            _costs(t("Workload"), "workloads", totals.workloads, context),
            class_="columns",
        ),
    )


def _costs(label: str, dimension: str, sums: Mapping[str, Sum], context: PageContext) -> Markup:
    t, whole = context.t, context.view.totals.fleet.money
    ordered = sorted(sums.items(), key=lambda entry: (-entry[1].money.nano, entry[0]))
    rows: list[list[Markup | str]] = []
    for name, part in ordered[:MAX_ROWS]:
        share = part.money.nano / whole.nano if whole.nano and not part.money.unpriced else None
        rows.append(
            [
                _named(dimension, name, t),
                f"{part.nodes or part.pods:,}" if name != IDLE else "",
                figures.money(part.money, t),
                figures.monthly(part.money, t),
                bar(share, t),
            ]
        )
    counted = t("Nodes") if dimension in ("pools", "capacity_types") else t("Pods")
    columns = [
        (label, ""),
        (counted, "num"),
        (t("Cost an hour"), "num"),
        (t("Cost a month"), "num"),
        (t("Share"), "num"),
    ]
    more = len(ordered) - MAX_ROWS
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    return card(t("By {label}", label=label), table(label, columns, rows, t("There are none."), hidden=True), note)


def _named(dimension: str, name: str, t: Catalogue) -> Markup | str:
    if name == IDLE:
        return t("idle: requested by no pod")
    if name == NONE:
        return t("none")
    if dimension == "pools":
        return link(name, "nodepool", name)
    if dimension == "workloads":
        namespace, kind, workload = name.split("/", 2)
        return link(name, "workload", namespace, kind, workload)
    return isolated(name)


# Time.


def time(context: PageContext, decisions: Sequence[Decision]) -> Markup:
    t = context.t
    permitted = context.rights.history and context.rights.pods
    marked = [decision for decision in decisions if decision.kind in MARKED] if permitted else []
    return join(
        tag("h1", t("Time")),
        tag(
            "p",
            t("Since this page's server started; lines mark decisions. Point to one to read it, click to open it."),
        ),
        plots(t),
        card(
            t("Decisions"),
            decision_table(marked, t)
            if permitted
            else tag("p", t("Needs the right to read the decision history."), class_="empty"),
            id_="decisions",
        ),
    )


def plots(t: Catalogue) -> Markup:
    """The frames that the script draws the series into."""
    names = {"cost": t("Cost an hour"), "nodes": t("Nodes"), "pending": t("Pending"), "evictions": t("Evictions")}
    frames = [
        tag("figure", tag("figcaption", label), tag("div", class_="plot", data_plot=name, data_label=label))
        for name, label in names.items()
    ]
    return join(
        tag("div", "", id="hover", aria_live="polite", class_="hover"),
        tag("div", *frames, id="plots", data_chart="/data/time", role="group", aria_label=t("Time")),
    )


# Budgets.


def budget_calendar(context: PageContext, observer: Observer) -> Markup:
    """For each NodePool and reason, how many nodes may be disrupted in each hour of the next days."""
    t = context.t
    if not context.rights.nodepools:
        return join(tag("h1", t("Budgets")), tag("p", t("Needs the right to list NodePools."), class_="empty"))
    pools = sorted(observer.state.pools.store.all(), key=lambda pool: pool.name)
    cards = [_calendar(pool, context) for pool in pools]
    empty = tag("p", t("There are no NodePools."), class_="empty")
    said = t("How many nodes may be disrupted at once, by hour (UTC).")
    return join(tag("h1", t("Budgets")), tag("p", said), *(cards or [empty]))


def _calendar(pool: NodePool, context: PageContext) -> Markup:
    t = context.t
    total = context.view.totals.pools.get(pool.name, Sum()).nodes
    view = context.view.pools.get(pool.name)
    start = context.now.replace(minute=0, second=0, microsecond=0)
    head = [tag("th", t("Reason"), scope="col")]
    for day in range(CALENDAR_DAYS):
        head.append(tag("th", f"{start + timedelta(days=day):%a %d}", scope="col", colspan=24))
    body = []
    for reason in REASONS:
        cells, shapes, allowed = [], [], []
        for hour in range(24 * CALENDAR_DAYS):
            allowance = budgets.allowance(pool.spec.disruption.budgets, reason, total, start + timedelta(hours=hour))
            allowed.append(None if allowance.unlimited else allowance.nodes)
        for hour, nodes in enumerate(allowed):
            level = "free" if nodes is None else "shut" if nodes == 0 else "some"
            shapes.append(f'<rect class="{level}" x="{hour * 5}" width="4.4" height="18"/>')
        drawn = Markup(
            f'<svg viewBox="0 0 {24 * CALENDAR_DAYS * 5} 18" preserveAspectRatio="none" class="calendar"'
            f' aria-hidden="true">{"".join(shapes)}</svg>'
        )
        cells = [tag("th", reason, scope="row"), tag("td", drawn, tag("span", _windows(allowed, t)), colspan=24 * 7)]
        body.append(tag("tr", *cells))
    described = tag("p", isolated("; ".join(view.budgets) if view is not None and view.budgets else "-"))
    grid = tag(
        "div",
        tag("table", tag("caption", pool.name, class_="hidden"), tag("thead", tag("tr", *head)), tag("tbody", *body)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=pool.name,
    )
    return card(link(pool.name, "nodepool", pool.name), described, grid)


def _windows(allowed: Sequence[int | None], t: Catalogue) -> str:
    """The same in words: now, and when it next changes."""

    def said(nodes: int | None) -> str:
        return t("no limit") if nodes is None else t("{count} nodes", count=nodes)

    now = allowed[0]
    change = next((hour for hour, nodes in enumerate(allowed) if nodes != now), None)
    if change is None:
        return said(now)
    return t("{now}; in {hours} h {then}", now=said(now), hours=change, then=said(allowed[change]))


# Health.


def health_page(context: PageContext, findings: Sequence[Finding] | None, problem: str) -> Markup:
    t, state = context.t, context.view.health
    unknown = t("unknown")
    safe = unknown if state.safe_mode is None else state.safe_mode or t("off")
    autoscaler = unknown if state.autoscaler is None else state.autoscaler or t("renews its lease")
    recording = t("recording") if context.moment is not None else ""
    answers = t("answers") if state.connected else t("does not answer")
    errors = f"{state.api_errors:,} {state.last_api_error}".strip()
    metrics = t("not recorded") if recording and state.metrics else state.metrics
    facts = [
        (t("API server"), recording or answers, None if recording else state.connected),
        (t("Safe mode"), safe, None if state.safe_mode is None else not state.safe_mode),
        (t("Autoscaler"), autoscaler, None if state.autoscaler is None else not state.autoscaler),
        (t("Metrics of nodes"), metrics or t("measured"), None if recording and metrics else not metrics),
        (t("API errors"), recording or errors, None if recording else state.api_errors == 0),
        ("Kubernetes", state.kubernetes or unknown, None if state.kubernetes is None else True),
        ("Dovetail", state.dovetail or unknown, True),
        (
            "kubelet",
            ", ".join(f"{version} ({count})" for version, count in sorted(state.kubelets.items())) or unknown,
            True if state.kubelets else None,
        ),
    ]
    rows: list[list[Markup | str]] = [[name, isolated(value), _mark(good, t)] for name, value, good in facts]
    columns = [(t("What"), ""), (t("State"), ""), ("", "")]
    kinds: list[list[Markup | str]] = []
    kinds += [[isolated(name), isolated(why), _mark(False, t)] for name, why in sorted(state.problems.items())]
    kinds += [
        [isolated(name), t("not recorded") if recording else t(why), _mark(None, t)]
        for name, why in sorted(state.unread.items())
    ]
    pools: list[list[Markup | str]] = [
        [link(pool.name, "nodepool", pool.name), isolated(pool.problem), _mark(pool.ready, t)]
        for pool in context.view.pools.values()
    ]
    return join(
        tag("h1", t("Health")),
        card(t("State"), table(t("State"), columns, rows, "", hidden=True)),
        card(
            t("Kinds that are not read"),
            table(t("Kinds that are not read"), columns, kinds, t("All are read."), hidden=True),
        ),
        card("NodePools", table("NodePools", columns, pools, t("There are no NodePools."), hidden=True)),
        _doctor(context, findings, problem),
    )


def _mark(good: bool | None, t: Catalogue) -> Markup:
    text, kind = {True: (t("good"), "good"), False: (t("bad"), "bad"), None: (t("unknown"), "unknown")}[good]
    return tag("span", text, class_=f"mark {kind}")


def _doctor(context: PageContext, findings: Sequence[Finding] | None, problem: str) -> Markup:
    t = context.t
    if context.moment is not None:
        return card("doctor", tag("p", t("A recording: doctor checks clusters."), class_="empty"))
    if not context.rights.everything:
        return card("doctor", tag("p", t("Needs the right to list every kind."), class_="empty"))
    if findings is None:
        text = isolated(problem) if problem else t("The checks are running; they are shown here when they are done.")
        return card("doctor", tag("p", text, class_="empty", data_pending=None if problem else "1"))
    order = {Status.FAILED: 0, Status.WARNING: 1, Status.NOT_CHECKED: 2, Status.PASSED: 3}
    good = {Status.PASSED: True, Status.FAILED: False}
    rows: list[list[Markup | str]] = [
        [each.id, isolated(each.object), isolated(each.message), isolated(each.remedy), _mark(good.get(each.status), t)]
        for each in sorted(findings, key=lambda finding: (order[finding.status], finding.id))
        if each.status is not Status.PASSED
    ]
    passed = sum(1 for finding in findings if finding.status is Status.PASSED)
    columns = [(t("Check"), ""), (t("Object"), ""), (t("Message"), ""), (t("Remedy"), ""), ("", "")]
    return card(
        "doctor",
        tag("p", t("{count} checks passed.", count=passed)),
        table("doctor", columns, rows, t("Nothing was found."), hidden=True),
    )


# Search.


def found(context: PageContext, observer: Observer, asked: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Kind, name and path of what matches: names that begin with it first."""
    words = asked.strip().lower()
    if not words:
        return []
    view, matches = context.view, list[tuple[str, str, tuple[str, ...]]]()

    def offer(kind: str, name: str, *parts: str) -> None:
        if words in name.lower():
            matches.append((kind, name, parts))

    for node in view.nodes.values():
        kind = "node" if node.has_node else "nodeclaim"
        offer(kind, node.name, kind, node.name)
        if node.has_node and node.claim:
            offer("nodeclaim", node.claim, "nodeclaim", node.claim)
        for pod in node.pods:
            offer("pod", pod.key, "pod", pod.namespace, pod.name)
    for waiting in view.pending.values():
        offer("pod", waiting.key, "pod", waiting.namespace, waiting.name)
    for pool in view.pools:
        offer("nodepool", pool, "nodepool", pool)
    for group in {node.group for node in view.nodes.values() if node.group}:
        offer("group", group, "group", group)
    for name in view.totals.workloads:
        namespace, kind, workload = name.split("/", 2)
        offer("workload", name, "workload", namespace, kind, workload)
    rights = context.rights
    for kind, reflector, allowed in (("hpa", observer.hpas, rights.hpas), ("vpa", observer.vpas, rights.vpas)):
        for obj in reflector.store.all() if allowed else ():
            namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            offer(kind, f"{namespace}/{name}", kind, namespace, name)
    if rights.history and rights.pods:
        for decision in observer.decisions.all():
            offer("decision", decision.id, "decision", decision.id)
    matches.sort(key=lambda match: (not match[1].lower().startswith(words), match[0] == "pod", match[1]))
    return matches


def search_results(context: PageContext, observer: Observer, asked: str) -> Markup:
    """The list below the field."""
    t, matches = context.t, found(context, observer, asked)
    items = [tag("li", tag("small", kind), " ", link(name, *parts)) for kind, name, parts in matches[:MAX_FOUND]]
    if not asked.strip():
        return Markup("")
    if not items:
        return tag("p", t("Nothing matches."), class_="empty")
    more = len(matches) - len(items)
    return join(tag("ul", *items), tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None)


def search_page(context: PageContext, observer: Observer, asked: str) -> Markup:
    t, matches = context.t, found(context, observer, asked)
    columns = [(t("Kind"), ""), (t("Name"), "")]
    rows: list[list[Markup | str]] = [[kind, link(name, *parts)] for kind, name, parts in matches[:MAX_ROWS]]
    heading = tag("h1", isolated(t("Search: {words}", words=asked)))
    more = len(matches) - MAX_ROWS
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    return join(heading, table(t("Search"), columns, rows, t("Nothing matches."), hidden=True), note)
