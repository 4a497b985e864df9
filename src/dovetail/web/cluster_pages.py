"""Pages about the whole cluster: cost, time, health, and what a search finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from dovetail.controllers.history.decisions import Decision
from dovetail.install.doctor.facts import Finding, Status
from dovetail.language import source
from dovetail.view.decisions import MARKED
from dovetail.view.model import Sum
from dovetail.view.observer import Observer
from dovetail.view.totals import IDLE, NONE
from dovetail.web import figures
from dovetail.web.context import PageContext
from dovetail.web.decision_pages import decision_table
from dovetail.web.layout import bar, card, table
from dovetail.web.markup import Markup, isolated, join, link, tag
from dovetail.web.page_language import PageLanguage
from dovetail.web.series import Point

MAX_ROWS = 200
MAX_FOUND = 30
MAX_POINT_ROWS = 60


#: A NodePool of which no controller has said whether it is ready is neither.
_POOL_STATES = {True: source("ready"), False: source("not ready"), None: source("unknown")}


# Cost.


def cost(context: PageContext) -> Markup:
    t, totals = context.t, context.view.totals
    return join(
        tag("h1", t("Cost")),
        tag("p", t("A node's price is divided among its pods by their requests, half by CPU and half by memory.")),
        tag(
            "div",
            tag(
                "div",
                _costs(t("NodePool"), "pools", totals.pools, context),
                _costs(t("Capacity type"), "capacity_types", totals.capacity_types, context),
            ),
            _costs(t("Namespace"), "namespaces", totals.namespaces, context),
            class_="columns",
        ),
        _costs(t("Workload"), "workloads", totals.workloads, context),
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
        (label, "long"),
        (counted, "num"),
        (t("Cost an hour"), "num"),
        (t("Cost a month"), "num"),
        (t("Share"), "num"),
    ]
    more = len(ordered) - MAX_ROWS
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    return card(t("By {label}", label=label), table(label, columns, rows, t("There are none."), hidden=True), note)


def _named(dimension: str, name: str, t: PageLanguage) -> Markup | str:
    if name == IDLE:
        return t("idle: requested by no pod")
    if name == NONE:
        return t("unknown") if dimension == "capacity_types" else t("none")
    if dimension == "pools":
        return link(name, "nodepool", name)
    if dimension == "workloads":
        namespace, kind, workload = name.split("/", 2)
        return link(name, "workload", namespace, kind, workload)
    return isolated(name)


# Time.


def time(context: PageContext, decisions: Sequence[Decision], points: Sequence[Point]) -> Markup:
    t = context.t
    points = points if context.rights.nodes and context.rights.pods else ()
    permitted = context.rights.history and context.rights.pods
    marked = [decision for decision in decisions if decision.kind in MARKED] if permitted else []
    hint = t(
        "Since this page's server started. Upright lines mark decisions: point to one to read it, click to open it."
        " Times are UTC."
    )
    return join(
        tag("h1", t("Time")),
        plots(t, hint),
        _points(points, t),
        card(
            t("Decisions"),
            decision_table(marked, t)
            if permitted
            else tag("p", t("Needs the right to read the decision history."), class_="empty"),
            id_="decisions",
        ),
    )


def _points(points: Sequence[Point], t: PageLanguage) -> Markup | None:
    """The newest points of the series, as a table behind the pictures."""
    if not points:
        return None
    rows: list[list[Markup | str]] = [
        [
            f"{datetime.fromtimestamp(point.time, UTC):%Y-%m-%d %H:%M:%S}",
            figures.dollars(point.cost, t),
            f"{point.nodes:,}",
            f"{point.pending:,}",
            t("unknown") if point.pods is None else f"{point.pods:,}",
        ]
        for point in reversed(points[-MAX_POINT_ROWS:])
    ]
    columns = [
        (t("Time"), ""),
        (t("Cost an hour"), "num"),
        (t("Nodes"), "num"),
        (t("Pending"), "num"),
        (t("Pods"), "num"),
    ]
    listed = table(t("Series"), columns, rows, "", hidden=True)
    return tag("details", tag("summary", t("As a table")), listed, class_="card", id="points")


def plots(t: PageLanguage, hint: str) -> Markup:
    """The frames that the script draws the series into; `hint` stands where a value is read while one points."""
    names = {"cost": t("Cost an hour"), "nodes": t("Nodes"), "pending": t("Pending"), "evictions": t("Evictions")}
    frames = [
        tag(
            "figure",
            tag("figcaption", label),
            tag("div", class_="plot", data_plot=name, data_label=label, data_whole=None if name == "cost" else "1"),
            class_="card",
        )
        for name, label in names.items()
    ]
    return join(
        tag("div", hint, id="hover", aria_live="polite", class_="hover", data_hint=hint),
        tag("div", *frames, id="plots", data_chart="/data/time", role="group", aria_label=t("Time")),
    )


# Health.


def health_page(context: PageContext, findings: Sequence[Finding] | None, problem: str) -> Markup:
    t, state = context.t, context.view.health
    unknown = t("unknown")
    safe = unknown if state.safe_mode is None else t.recorded(state.safe_mode) or t("off")
    autoscaler = unknown if state.autoscaler is None else t.recorded(state.autoscaler) or t("renews its lease")
    recording = t("recording") if context.moment is not None else ""
    answers = t("answers") if state.connected else t("does not answer")
    errors = f"{state.api_errors:,} {state.last_api_error}".strip()
    metrics = t("not recorded") if recording and state.metrics else t.recorded(state.metrics)
    facts = [
        (t("API server"), recording or answers, None if recording else state.connected),
        (t("Safe mode"), safe, None if state.safe_mode is None else not state.safe_mode),
        (t("Autoscaler"), autoscaler, None if state.autoscaler is None else not state.autoscaler),
        (t("Metrics of nodes"), metrics or t("measured"), None if recording and metrics else not metrics),
        (t("API errors"), recording or errors, None if recording else state.api_errors == 0),
    ]
    kubelets = ", ".join(f"{version} ({count})" for version, count in sorted(state.kubelets.items()))
    versions = (("Kubernetes", state.kubernetes), ("Dovetail", state.dovetail), ("kubelet", kubelets))
    rows: list[list[Markup | str]] = [[name, isolated(value), _mark(good, t)] for name, value, good in facts]
    rows += [[name, isolated(value or unknown), "" if value else _mark(None, t)] for name, value in versions]
    columns = [(t("What"), "key"), (t("State"), "long"), ("", "")]
    kinds: list[list[Markup | str]] = []
    kinds += [
        [isolated(name), isolated(t.recorded(why)), _mark(False, t)] for name, why in sorted(state.problems.items())
    ]
    kinds += [
        [isolated(name), t("not recorded") if recording else t(why), _mark(None, t)]
        for name, why in sorted(state.unread.items())
    ]
    pools: list[list[Markup | str]] = [
        [
            link(pool.name, "nodepool", pool.name),
            isolated(t.recorded(pool.problem)) if pool.problem else t(_POOL_STATES[pool.ready]),
            _mark(pool.ready, t),
        ]
        for pool in context.view.pools.values()
    ]
    return join(
        tag("h1", t("Health")),
        tag(
            "div",
            card(t("State"), table(t("State"), columns, rows, "", hidden=True)),
            tag(
                "div",
                card("NodePools", table("NodePools", columns, pools, t("There are no NodePools."), hidden=True)),
                card(
                    t("Kinds that are not read"),
                    table(t("Kinds that are not read"), columns, kinds, t("All are read."), hidden=True),
                ),
            ),
            class_="columns",
        ),
        _doctor(context, findings, problem),
    )


def _mark(good: bool | None, t: PageLanguage) -> Markup:
    text, kind = {True: (t("good"), "good"), False: (t("bad"), "bad"), None: (t("unknown"), "unknown")}[good]
    return tag("span", text, class_=f"mark {kind}")


def _doctor(context: PageContext, findings: Sequence[Finding] | None, problem: str) -> Markup:
    t = context.t
    if context.moment is not None:
        return card("doctor", tag("p", t("A recording: doctor checks clusters."), class_="empty"))
    if not context.rights.everything:
        return card("doctor", tag("p", t("Needs the right to list every kind."), class_="empty"))
    if findings is None:
        text = (
            isolated(t.recorded(problem))
            if problem
            else t("The checks are running; they are shown here when they are done.")
        )
        return card("doctor", tag("p", text, class_="empty", data_pending=None if problem else "1"))
    order = {Status.FAILED: 0, Status.WARNING: 1, Status.NOT_CHECKED: 2, Status.PASSED: 3}
    marks = {Status.FAILED: _mark(False, t), Status.WARNING: tag("span", t("warning"), class_="mark warn")}
    rows: list[list[Markup | str]] = [
        [
            finding.id,
            isolated(finding.object),
            isolated(t.recorded(finding.message)),
            isolated(t.recorded(finding.remedy)),
            marks.get(finding.status, _mark(None, t)),
        ]
        for finding in sorted(findings, key=lambda finding: (order[finding.status], finding.id))
        if finding.status is not Status.PASSED
    ]
    passed = sum(1 for finding in findings if finding.status is Status.PASSED)
    columns = [(t("Check"), ""), (t("Object"), "key"), (t("Message"), "long"), (t("Remedy"), "long"), ("", "")]
    return card(
        "doctor",
        tag("p", t("{count} checks passed.", count=passed)),
        table("doctor", columns, rows, t("Nothing was found."), hidden=True),
    )


# Search.


def found(context: PageContext, observer: Observer, query: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Kind, name and path of what matches: names that begin with it first."""
    words = query.strip().lower()
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


def search_results(context: PageContext, observer: Observer, query: str) -> Markup:
    """The list below the field."""
    t, matches = context.t, found(context, observer, query)
    items = [tag("li", tag("small", kind), " ", link(name, *parts)) for kind, name, parts in matches[:MAX_FOUND]]
    if not query.strip():
        return Markup("")
    if not items:
        return tag("p", t("Nothing matches."), class_="empty")
    more = len(matches) - len(items)
    return join(tag("ul", *items), tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None)


def search_page(context: PageContext, observer: Observer, query: str) -> Markup:
    t, matches = context.t, found(context, observer, query)
    columns = [(t("Kind"), ""), (t("Name"), "key")]
    rows: list[list[Markup | str]] = [[kind, link(name, *parts)] for kind, name, parts in matches[:MAX_ROWS]]
    heading = tag("h1", isolated(t("Search: {words}", words=query)))
    more = len(matches) - MAX_ROWS
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    return join(heading, table(t("Search"), columns, rows, t("Nothing matches."), hidden=True), note)
