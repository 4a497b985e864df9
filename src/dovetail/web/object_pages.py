"""A page about one object: the answer of `explain`, its figures, events, decisions, and its manifest on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.controllers import explain
from dovetail.controllers.explain import Answer
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import HPAS, NODECLAIMS, NODEPOOLS, NODES, PODS, Resource
from dovetail.language import in_language, source
from dovetail.model.nodes import Event
from dovetail.planner.plan import Funnel
from dovetail.view.events import count_of, time_of
from dovetail.view.model import FleetView, NodeView, PendingPod, PodView
from dovetail.view.observer import VPAS, ContainerUsage, Observer
from dovetail.view.totals import pod_money
from dovetail.web import figures
from dovetail.web.autoscaler_pages import container_requests, hpa_facts, hpa_plots, vpa_facts
from dovetail.web.blocks import STATES, target
from dovetail.web.context import PageContext
from dovetail.web.decision_pages import decision_table
from dovetail.web.fleet_page import table_of
from dovetail.web.funnel import funnels
from dovetail.web.layout import bar, card, decision_link, definition_list, table
from dovetail.web.markup import Markup, isolated, join, link, path, tag
from dovetail.web.page_language import PageLanguage
from dovetail.web.view_options import ViewOptions

#: Kinds that have a page, with what is asked for their manifest.
RESOURCES: dict[str, Resource] = {
    "pod": PODS,
    "node": NODES,
    "nodeclaim": NODECLAIMS,
    "nodepool": NODEPOOLS,
    "hpa": HPAS,
    "vpa": VPAS,
}
TITLES = {
    "pod": source("Pod"),
    "node": source("Node"),
    "nodeclaim": source("NodeClaim"),
    "nodepool": source("NodePool"),
    "hpa": source("HPA"),
    "vpa": source("VPA"),
}
MAX_EVENTS = 30
_DECISION_ID = re.compile(r"\b(d-[0-9a-z]{8})\b")
_OUR_COMPONENTS = frozenset(("karpenter", "cluster-autoscaler", "vpa-updater"))


def permitted(context: PageContext, kind: str, namespace: str) -> bool:
    """Whether the viewer may see an object of the kind: they could get it with kubectl."""
    rights = context.rights
    return {
        "pod": rights.sees_pods_of(namespace),
        "node": rights.nodes,
        "nodeclaim": rights.nodeclaims,
        "nodepool": rights.nodepools,
        "hpa": rights.hpas,
        "vpa": rights.vpas,
    }[kind]


def object_page(context: PageContext, observer: Observer, kind: str, namespace: str, name: str) -> Markup | None:
    """The page; None where there is no such object, and no decision that names it."""
    t = context.t
    key = f"{namespace}/{name}" if namespace else name
    answer = _answer(context, observer, kind, key)
    facts = _facts(context, observer, kind, key, explained=answer is not None)
    if facts is None and answer is None:
        return None
    decisions = _about(context, observer, kind, key)
    return join(
        tag("p", tag("a", t("Fleet"), href="/"), " / ", t(TITLES[kind]), class_="crumbs"),
        tag("h1", isolated(key)),
        explanation(answer, context, t),
        facts,
        card(t("Decisions"), decision_table(decisions, t)),
        _events(context, observer, kind, namespace, name),
        _manifest(kind, namespace, name, t) if facts is not None else None,
    )


def _answer(context: PageContext, observer: Observer, kind: str, key: str) -> Answer | None:
    """`explain` names pods of all namespaces and decisions: a viewer who may not read those gets no answer."""
    rights, state, now = context.rights, observer.state, context.now
    if kind in ("hpa", "vpa"):
        return _autoscaler_answer(context, observer, kind, key)
    if not (rights.history and (rights.pods or kind == "nodepool")):
        return None
    explainers: dict[str, Callable[..., Answer]] = {
        "pod": explain.pod,
        "node": explain.node,
        "nodeclaim": explain.claim,
        "nodepool": explain.nodepool,
    }
    if kind not in explainers:
        return None
    try:
        with in_language(context.t.language):
            return explainers[kind](state, observer.decisions.all(), key, now)
    except explain.Unknown:
        return None


def _autoscaler_answer(context: PageContext, observer: Observer, kind: str, key: str) -> Answer | None:
    """Of an HPA or a VPA; the other autoscalers of its namespace count where the viewer may list them."""
    namespace, rights = key.partition("/")[0], context.rights

    def alike(reflector: Reflector[dict[str, Any]], allowed: bool) -> list[dict[str, Any]]:
        objects = reflector.store.all() if allowed else ()
        return [obj for obj in objects if obj["metadata"].get("namespace") == namespace]

    obj = (observer.hpas if kind == "hpa" else observer.vpas).store.get(key)
    if obj is None:
        return None
    with in_language(context.t.language):
        if kind == "hpa":
            return explain.hpa(obj, vpas=alike(observer.vpas, rights.vpas))
        pods = len(_requested_by(context, obj)) if rights.sees_pods_of(namespace) else None
        return explain.vpa(obj, pods, hpas=alike(observer.hpas, rights.hpas))


def explanation(answer: Answer | None, context: PageContext, t: PageLanguage) -> Markup | None:
    if answer is None:
        if context.rights.everything:
            return None
        return tag("p", t("Why: needs the right to list pods and the decision history."), class_="empty")
    pools = msgspec.convert(answer.facts.get("pools", {}), dict[str, Funnel])
    return card(
        t("Why"),
        tag("p", isolated(t.recorded(answer.line)), class_="answer", data_figure="answer"),
        tag("ul", *(tag("li", _with_links(t.recorded(line))) for line in answer.details), class_="details")
        if answer.details
        else None,
        tag("pre", "\n".join(answer.commands), class_="commands", tabindex="0") if answer.commands else None,
        funnels(pools, t) if pools else None,
        tag(
            "details",
            tag("summary", t("Every step")),
            tag("ul", *(tag("li", _with_links(line)) for line in answer.deep), class_="details"),
        )
        if answer.deep
        else None,
    )


def _with_links(line: str) -> Markup:
    """A line of an answer; the decisions that it names are links."""
    parts = _DECISION_ID.split(line)
    return tag("bdi", *(decision_link(part) if number % 2 else part for number, part in enumerate(parts)))


def _about(context: PageContext, observer: Observer, kind: str, key: str) -> list[Decision]:
    if not context.rights.history or not (context.rights.pods or kind == "nodepool"):
        return []
    names = {key}
    if kind in ("node", "nodeclaim"):
        alike = (node for node in context.view.nodes.values() if key in (node.name, node.claim))
        names |= {name for node in alike for name in (node.name, node.claim) if name}
    return [decision for decision in observer.decisions.all() if any(concerns(decision, name) for name in names)]


def _events(context: PageContext, observer: Observer, kind: str, namespace: str, name: str) -> Markup:
    t = context.t
    if not context.rights.events:
        return card(t("Events"), tag("p", t("Needs the right to list events."), class_="empty"))
    events = observer.events.about(RESOURCES[kind].kind, namespace, name)
    older = t("Only the {n} newest events are shown.", n=str(MAX_EVENTS)) if len(events) >= MAX_EVENTS else ""
    note = tag("p", older, class_="empty") if older else None
    return card(t("Events"), event_table(events[:MAX_EVENTS], context.now, t), note)


def _is_ours(event: Event) -> bool:
    """Whether our controllers wrote it: what another program says is shown as it says it."""
    return (event.source.component or event.reporting_component) in _OUR_COMPONENTS


def event_table(events: Sequence[Event], now: datetime, t: PageLanguage) -> Markup:
    columns = [(t("Age"), "num"), (t("Type"), ""), (t("Reason"), ""), (t("Message"), "long"), (t("Count"), "num")]
    rows: list[list[Markup | str]] = [
        [
            figures.age(time_of(event), now, t),
            event.type,
            isolated(event.reason),
            isolated(t.recorded(event.message) if _is_ours(event) else event.message),
            f"{count_of(event):,}",
        ]
        for event in events
    ]
    return table(t("Events"), columns, rows, t("There are no events."), hidden=True)


def _manifest(kind: str, namespace: str, name: str, t: PageLanguage) -> Markup:
    parts = [part for part in (kind, namespace, name) if part]
    return tag(
        "details",
        tag("summary", t("Manifest")),
        tag(
            "div",
            tag("a", t("Show the manifest"), href=path("manifest", *parts)),
            hx_get=path("manifest", *parts),
            hx_trigger="toggle from:closest details once",
        ),
        class_="card",
    )


# What the view itself knows of an object.


def _facts(context: PageContext, observer: Observer, kind: str, key: str, *, explained: bool) -> Markup | None:
    """`explained` says that the page has the reason already, in the answer of `explain`."""
    t, view = context.t, context.view
    match kind:
        case "node" | "nodeclaim":
            node = view.nodes.get(f"{kind}/{key}")
            if node is None and kind == "nodeclaim":
                node = next((node for node in view.nodes.values() if node.claim == key), None)
            return None if node is None else _node(node, context)
        case "pod":
            return _pod(context, key, explained=explained)
        case "nodepool":
            return _pool(context, key)
        case "hpa":
            hpa = observer.hpas.store.get(key)
            if hpa is None:
                return None
            return join(hpa_facts(hpa, t), hpa_plots(hpa, t) if observer.scaling.of(key) else None)
        case _:
            vpa = observer.vpas.store.get(key)
            return None if vpa is None else vpa_facts(vpa, _requested_by(context, vpa), context.pod_usage, t)


def _requested_by(context: PageContext, vpa: Mapping[str, Any]) -> dict[str, ContainerUsage]:
    """The requests of the containers of a VPA's pods, those that the viewer may see."""
    namespace = vpa["metadata"].get("namespace", "")
    reference = (vpa.get("spec") or {}).get("targetRef") or {}
    target = f"{reference.get('kind', '')}/{reference.get('name', '')}"
    state = context.observer.state
    names = [
        pod.key
        for node in context.view.nodes.values()
        for pod in node.pods
        if pod.namespace == namespace and pod.workload == target
    ]
    return container_requests(pod for name in names if (pod := state.pods.store.get(name)) is not None)


def _node(node: NodeView, context: PageContext) -> Markup:
    t = context.t
    price = figures.dollars(node.price.per_hour, t) if node.price is not None else t("unknown")
    source = f" ({t.recorded(node.price.source)})" if node.price is not None else ""
    facts: list[tuple[str, Markup | str]] = [
        (t("State"), t(STATES[node.state]) + (f": {t.recorded(node.reason)}" if node.reason else "")),
        (t("Cost an hour"), price + source),
        ("NodePool", link(node.pool, "nodepool", node.pool) if node.pool else "-"),
        (t("Node group"), link(node.group, "group", node.group) if node.group else "-"),
        ("NodeClaim", link(node.claim, "nodeclaim", node.claim) if node.claim else "-"),
        (t("Type"), node.instance_type or t("unknown")),
        (t("Capacity type"), node.capacity_type or t("unknown")),
        (t("Zone"), node.zone or t("unknown")),
        (t("Architecture"), node.architecture or t("unknown")),
        (t("Age"), figures.age(node.created, context.now, t)),
        (t("Expires"), f"{node.expires:%Y-%m-%d %H:%M} UTC" if node.expires is not None else t("never")),
        ("kubelet", node.kubelet_version or t("unknown")),
    ]
    names = [name for name in ("cpu", "memory", "pods", *sorted(node.allocatable)) if name in node.allocatable]
    rows: list[list[Markup | str]] = [
        [
            isolated(name),
            figures.amount(name, node.requests.get(name, 0) if node.requests is not None else None, t),
            figures.amount(name, node.allocatable.get(name), t),
            bar(node.share(name), t, node.usage_share(name)),
            figures.percent(node.usage_share(name), t) if name in ("cpu", "memory") else "",
        ]
        for name in dict.fromkeys(names)
    ]
    columns = [
        (t("Resource"), ""),
        (t("Requested"), "num"),
        (t("Allocatable"), "num"),
        (t("Share"), "num"),
        (t("Used"), "num"),
    ]
    return join(
        card(t("Facts"), definition_list(facts)),
        card(t("Resources"), table(t("Resources"), columns, rows, t("unknown"), hidden=True)),
        card(join(t("Pods"), tag("small", str(len(node.pods)))), _pods(node, t)),
    )


def _pods(node: NodeView, t: PageLanguage) -> Markup:
    columns = [
        (t("Pod"), "key"),
        (t("Workload"), "key"),
        (t("Phase"), ""),
        (t("CPU"), "num"),
        (t("Memory"), "num"),
        (t("Cost an hour"), "num"),
    ]
    rows = [_pod_row(node, pod, t) for pod in sorted(node.pods, key=lambda pod: pod.key)]
    return table(t("Pods"), columns, rows, t("There are no pods."), hidden=True)


def _pod_row(node: NodeView, pod: PodView, t: PageLanguage) -> list[Markup | str]:
    requests = pod.requests
    return [
        link(pod.key, "pod", pod.namespace, pod.name),
        link(pod.workload, "workload", pod.namespace, *pod.workload.split("/", 1)),
        t("terminating") if pod.terminating else pod.phase,
        figures.cpu(None if requests is None else requests.get("cpu", 0), t),
        figures.memory(None if requests is None else requests.get("memory", 0), t),
        figures.money(pod_money(node, pod), t),
    ]


def _pod(context: PageContext, key: str, *, explained: bool) -> Markup | None:
    t, view = context.t, context.view
    waiting = view.pending.get(key)
    if waiting is not None:
        return _pending(waiting, context, explained=explained)
    for node in view.nodes.values():
        pod = next((pod for pod in node.pods if pod.key == key), None)
        if pod is not None:
            facts: list[tuple[str, Markup | str]] = [
                (t("Phase"), t("terminating") if pod.terminating else pod.phase),
                (t("Node"), tag("a", isolated(node.name), href=target(node))),
                (t("Workload"), link(pod.workload, "workload", pod.namespace, *pod.workload.split("/", 1))),
                (t("Cost an hour"), figures.money(pod_money(node, pod), t)),
                (t("Age"), figures.age(pod.created, context.now, t)),
                *_requests(pod, t),
                *_used(context, pod),
            ]
            return card(t("Facts"), definition_list(facts))
    return None


def _used(context: PageContext, pod: PodView) -> list[tuple[str, Markup | str]]:
    """What the pod uses, beside what it requests; unknown without metrics."""
    t, used = context.t, pod_usage(context, pod)
    return [
        (t("{resource} used", resource=name), figures.amount(name, used.get(name) if used is not None else None, t))
        for name in ("cpu", "memory")
    ]


def pod_usage(context: PageContext, pod: PodView) -> dict[str, int] | None:
    """The sum over the containers; None where there are no metrics of the pod."""
    containers = (context.pod_usage or {}).get(pod.name)
    if not containers:
        return None
    summed: dict[str, int] = {}
    for amounts in containers.values():
        for name, count in amounts.items():
            summed[name] = summed.get(name, 0) + count
    return summed


def _pending(pod: PendingPod, context: PageContext, *, explained: bool) -> Markup:
    t = context.t
    waits: Markup | str = "-"
    if pod.waits_for:
        waits = link(pod.waits_for, *pod.waits_for.split("/", 1))
    facts: list[tuple[str, Markup | str]] = [
        (t("Phase"), t("Pending")),
        (t("Waits for"), waits),
        (t("Workload"), link(pod.workload, "workload", pod.namespace, *pod.workload.split("/", 1))),
        (t("Age"), figures.age(pod.created, context.now, t)),
        *_requests(pod, t),
    ]
    if explained:
        return card(t("Facts"), definition_list(facts))
    code = tag("code", pod.code) if pod.code else None
    said = tag("p", isolated(t.recorded(pod.reason)), " ", code, data_figure="reason")
    remedy = tag("p", t("Remedy"), ": ", isolated(t.recorded(pod.remedy))) if pod.remedy else None
    return card(t("Facts"), definition_list(facts), said, remedy)


def _requests(pod: PodView | PendingPod, t: PageLanguage) -> list[tuple[str, Markup | str]]:
    if pod.requests is None:
        return [(t("Requests"), t("unknown"))]
    return [(name, figures.amount(name, count, t)) for name, count in sorted(pod.requests.items())]


def _pool(context: PageContext, name: str) -> Markup | None:
    t, pool = context.t, context.view.pools.get(name)
    if pool is None:
        return None
    total = context.view.totals.pools.get(name)
    ready = {True: t("ready"), False: t("not ready"), None: t("unknown")}[pool.ready]
    facts: list[tuple[str, Markup | str]] = [
        (t("State"), isolated(f"{ready}: {t.recorded(pool.problem)}") if pool.problem else ready),
        (t("Nodes"), str(total.nodes if total is not None else 0)),
        (t("Cost an hour"), figures.money(total.money, t) if total is not None else figures.dollars(0.0, t)),
        (t("Weight"), str(pool.weight)),
        *(
            (
                t("Limit of {resource}", resource=resource),
                t(
                    "{used} of {limit}",
                    used=figures.amount(resource, pool.used.get(resource), t),
                    limit=figures.amount(resource, limit, t),
                ),
            )
            for resource, limit in sorted(pool.limits.items())
        ),
        (t("Budgets"), isolated("; ".join(budget.words(t) for budget in pool.budgets) or "-")),
    ]
    nodes = [node for node in context.view.nodes.values() if node.pool == name]
    columns = [(t("Node"), "key"), (t("State"), ""), (t("Type"), ""), (t("Zone"), ""), (t("Cost an hour"), "num")]
    rows: list[list[Markup | str]] = [
        [
            tag("a", isolated(node.name), href=target(node)),
            t(STATES[node.state]),
            node.instance_type or t("unknown"),
            node.zone or t("unknown"),
            figures.dollars(node.price.per_hour if node.price is not None else None, t),
        ]
        for node in sorted(nodes, key=lambda node: node.name)
    ]
    listed = table(t("Nodes"), columns, rows, t("There are no nodes."), hidden=True)
    return join(card(t("Facts"), definition_list(facts)), card(t("Nodes"), listed))


def _is_scaled(context: PageContext, namespace: str, workload: str) -> bool:
    """Whether an HPA or a VPA that the viewer may see is for the workload: it then exists without pods too."""
    observer, rights = context.observer, context.rights
    watches = ((observer.hpas, rights.hpas, "scaleTargetRef"), (observer.vpas, rights.vpas, "targetRef"))
    for reflector, allowed, field in watches:
        for obj in reflector.store.all() if allowed else ():
            reference = (obj.get("spec") or {}).get(field) or {}
            named = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if (obj["metadata"].get("namespace", ""), named) == (namespace, workload):
                return True
    return False


def workload_page(context: PageContext, namespace: str, workload: str) -> Markup | None:
    """A workload: its pods, where they are, and what they cost."""
    t, rows = context.t, list[list[Markup | str]]()
    for node in context.view.nodes.values():
        for pod in node.pods:
            if pod.namespace == namespace and pod.workload == workload:
                used = pod_usage(context, pod)
                amounts = [
                    figures.amount(name, used.get(name) if used is not None else None, t) for name in ("cpu", "memory")
                ]
                rows.append([*_pod_row(node, pod, t), *amounts, tag("a", isolated(node.name), href=target(node))])
    waiting = [pod for pod in context.view.pending.values() if (pod.namespace, pod.workload) == (namespace, workload)]
    if not rows and not waiting and not _is_scaled(context, namespace, workload):
        return None
    columns = [
        (t("Pod"), "key"),
        (t("Workload"), "key"),
        (t("Phase"), ""),
        (t("CPU"), "num"),
        (t("Memory"), "num"),
        (t("Cost an hour"), "num"),
        (t("CPU used"), "num"),
        (t("Memory used"), "num"),
        (t("Node"), "key"),
    ]
    total = context.view.totals.workloads.get(f"{namespace}/{workload}")
    facts: list[tuple[str, Markup | str]] = [
        (t("Pods"), str(len(rows))),
        (t("Pending"), str(len(waiting))),
        (t("Cost an hour"), figures.money(total.money, t) if total is not None else figures.dollars(0.0, t)),
    ]
    pending: list[list[Markup | str]] = [
        [link(pod.key, "pod", pod.namespace, pod.name), isolated(t.recorded(pod.reason))] for pod in waiting
    ]
    return join(
        tag("p", tag("a", t("Fleet"), href="/"), " / ", t("Workload"), class_="crumbs"),
        tag("h1", isolated(f"{namespace}/{workload}")),
        card(t("Facts"), definition_list(facts)),
        card(t("Pods"), table(t("Pods"), columns, rows, t("There are no pods."), hidden=True)),
        card(t("Pending"), table(t("Pending"), [(t("Pod"), "key"), (t("Reason"), "long")], pending, "", hidden=True))
        if pending
        else None,
    )


def group_page(context: PageContext, name: str) -> Markup | None:
    """A node group: what its autoscaler says of it, and its nodes."""
    t = context.t
    nodes = {node.key: node for node in context.view.nodes.values() if node.group == name}
    answer = _group_answer(context, name)
    if not nodes and answer is None:
        return None
    options = ViewOptions(group="group", form="table", filter="")
    return join(
        tag(
            "p",
            tag("a", t("Fleet"), href=f"/{ViewOptions(group='group', filter=name).query()}"),
            " / ",
            t("Node group"),
            class_="crumbs",
        ),
        tag("h1", isolated(name)),
        explanation(answer, context, t) if answer is not None else None,
        card(t("Nodes"), table_of(FleetView(nodes=nodes), options, t)),
    )


def _group_answer(context: PageContext, name: str) -> Answer | None:
    written = context.group_status
    if written is None:
        return None
    labels = {node.metadata.name: node.metadata.labels for node in context.observer.state.nodes.store}
    try:
        with in_language(context.t.language):
            return explain.group_answer(written, name, labels)
    except explain.Unknown:
        return None
