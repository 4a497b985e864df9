"""A page about one object: the answer of `explain`, its figures, events, decisions, and its manifest on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from dovetail.controllers import explain
from dovetail.controllers.explain import Answer
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.kube.resources import HPAS, NODECLAIMS, NODEPOOLS, NODES, PODS, Resource
from dovetail.language import speaking
from dovetail.model.nodes import Event
from dovetail.view.events import count_of, time_of
from dovetail.view.model import NodeView, PendingPod, PodView
from dovetail.view.observer import VPAS, Observer
from dovetail.view.totals import pod_money
from dovetail.web import figures
from dovetail.web.autoscaler_pages import hpa_facts, vpa_facts
from dovetail.web.blocks import STATES, target
from dovetail.web.catalogue import Catalogue
from dovetail.web.context import PageContext
from dovetail.web.funnel import funnels
from dovetail.web.layout import bar, card, decision_link, table
from dovetail.web.markup import Markup, isolated, join, link, path, tag

#: Kinds that have a page, with what is asked for their manifest.
RESOURCES: dict[str, Resource] = {
    "pod": PODS,
    "node": NODES,
    "nodeclaim": NODECLAIMS,
    "nodepool": NODEPOOLS,
    "hpa": HPAS,
    "vpa": VPAS,
}
TITLES = {"pod": "Pod", "node": "Node", "nodeclaim": "NodeClaim", "nodepool": "NodePool", "hpa": "HPA", "vpa": "VPA"}
MAX_DECISIONS = 50
MAX_EVENTS = 30


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
    facts = _facts(context, observer, kind, key)
    answer = _answer(context, observer, kind, key)
    if facts is None and answer is None:
        return None
    decisions = _about(context, observer, kind, key)
    return join(
        tag("p", tag("a", t("Fleet"), href="/"), " / ", t(TITLES[kind]), class_="crumbs"),
        tag("h1", isolated(key)),
        _explanation(answer, context, t),
        facts,
        card(t("Decisions"), decision_table(decisions, t)),
        _events(context, observer, kind, namespace, name),
        _manifest(kind, namespace, name, t) if facts is not None else None,
    )


def _answer(context: PageContext, observer: Observer, kind: str, key: str) -> Answer | None:
    """`explain` names pods of all namespaces and decisions: a viewer who may not read those gets no answer."""
    rights, state, now = context.rights, observer.state, context.now
    if not (rights.history and (rights.pods or kind == "nodepool")):
        return None
    asked: dict[str, Callable[..., Answer]] = {
        "pod": explain.pod,
        "node": explain.node,
        "nodeclaim": explain.claim,
        "nodepool": explain.nodepool,
    }
    if kind not in asked:
        return None
    try:
        with speaking(context.t.language):
            return asked[kind](state, observer.decisions.all(), key, now)
    except explain.Unknown:
        return None


def _explanation(answer: Answer | None, context: PageContext, t: Catalogue) -> Markup | None:
    if answer is None:
        if context.rights.everything:
            return None
        return tag("p", t("Why: needs the right to list pods and the decision history."), class_="empty")
    pools = answer.facts.get("pools")
    return card(
        t("Why"),
        tag("p", isolated(answer.line), class_="answer", data_figure="answer"),
        tag("ul", *(tag("li", isolated(line)) for line in answer.details), class_="details")
        if answer.details
        else None,
        funnels(pools, t) if isinstance(pools, dict) and pools else None,
        tag(
            "details",
            tag("summary", t("Every step")),
            tag("ul", *(tag("li", isolated(line)) for line in answer.deep), class_="details"),
        )
        if answer.deep
        else None,
    )


def _about(context: PageContext, observer: Observer, kind: str, key: str) -> list[Decision]:
    if not context.rights.history or not (context.rights.pods or kind == "nodepool"):
        return []
    names = {key}
    node = context.view.nodes.get(f"node/{key}")
    if kind == "node" and node is not None and node.claim:
        names.add(node.claim)
    return [decision for decision in observer.decisions.all() if any(concerns(decision, name) for name in names)]


def decision_table(decisions: Sequence[Decision], t: Catalogue) -> Markup:
    columns = [(t("Time"), ""), (t("Decision"), ""), (t("Kind"), ""), (t("Reason"), ""), (t("What"), "")]
    rows: list[list[Markup | str]] = [
        [
            tag("time", decision.time.replace("T", " ").removesuffix("Z"), datetime=decision.time),
            decision_link(decision.id),
            decision.kind,
            isolated(decision.reason),
            isolated(decision.summary),
        ]
        for decision in reversed(decisions[-MAX_DECISIONS:])
    ]
    return table(t("Decisions"), columns, rows, t("No decision is recorded."), hidden=True)


def decision_page(context: PageContext, decisions: Sequence[Decision], identity: str) -> Markup | None:
    """A decision, whole: a decision that is rolled back has the same id."""
    t = context.t
    found = [decision for decision in decisions if decision.id == identity]
    if not found or not (context.rights.history and context.rights.pods):
        return None
    return join(tag("h1", t("Decision {id}", id=identity)), *(_decision(decision, t) for decision in found))


def _decision(decision: Decision, t: Catalogue) -> Markup:
    facts: list[tuple[str, Markup | str]] = [
        (t("Time"), decision.time),
        (t("Kind"), decision.kind),
        (t("Reason"), isolated(decision.reason or "-")),
        (t("Before"), figures.dollars(decision.before, t)),
        (t("After"), figures.dollars(decision.cost, t)),
        (t("Lower bound"), figures.dollars(decision.bound, t)),
        (t("Evictions"), str(decision.evictions)),
    ]
    claims = [
        [
            link(made.claim, "nodeclaim", made.claim),
            link(made.pool, "nodepool", made.pool),
            made.instance_type,
            made.zone,
            made.capacity_type,
            figures.dollars(made.price, t),
            str(made.pods),
        ]
        for made in decision.node_claims
    ]
    columns = [
        ("NodeClaim", ""),
        ("NodePool", ""),
        (t("Type"), ""),
        (t("Zone"), ""),
        (t("Capacity type"), ""),
        (t("Cost an hour"), "num"),
        (t("Pods"), "num"),
    ]
    removed = [link(name, "node", name) for name in decision.removed]
    pods = [link(key, "pod", *key.split("/", 1)) for key in decision.pods if "/" in key]
    refusals = [
        tag(
            "div",
            tag(
                "p",
                tag("span", f"{refusal.count:,}", class_="count"),
                isolated(refusal.message),
                " ",
                tag("code", refusal.code),
            ),
            funnels(refusal.pools, t),
        )
        for refusal in decision.refusals
    ]
    return card(
        isolated(decision.summary or decision.kind),
        definition_list(facts),
        table(t("NodeClaims"), columns, claims, "") if claims else None,
        tag("p", t("Removed"), ": ", _listed(removed)) if removed else None,
        tag("p", t("Pods"), ": ", _listed(pods)) if pods else None,
        *refusals,
    )


def _listed(items: Sequence[Markup]) -> Markup:
    return join(*(join(", " if number else "", item) for number, item in enumerate(items)))


def definition_list(facts: Sequence[tuple[str, Markup | str]]) -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")


def _events(context: PageContext, observer: Observer, kind: str, namespace: str, name: str) -> Markup:
    t = context.t
    if not context.rights.events:
        return card(t("Events"), tag("p", t("Needs the right to list events."), class_="empty"))
    found = observer.events.about(RESOURCES[kind].kind, namespace, name)
    return card(t("Events"), event_table(found[:MAX_EVENTS], context.now, t))


def event_table(events: Sequence[Event], now: datetime, t: Catalogue) -> Markup:
    columns = [(t("Age"), "num"), (t("Type"), ""), (t("Reason"), ""), (t("Message"), ""), (t("Count"), "num")]
    rows: list[list[Markup | str]] = [
        [
            figures.age(time_of(event), now, t),
            event.type,
            isolated(event.reason),
            isolated(event.message),
            f"{count_of(event):,}",
        ]
        for event in events
    ]
    return table(t("Events"), columns, rows, t("There are no events."), hidden=True)


def _manifest(kind: str, namespace: str, name: str, t: Catalogue) -> Markup:
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


def _facts(context: PageContext, observer: Observer, kind: str, key: str) -> Markup | None:
    t, view = context.t, context.view
    match kind:
        case "node" | "nodeclaim":
            node = view.nodes.get(f"{kind}/{key}")
            if node is None and kind == "nodeclaim":
                node = next((node for node in view.nodes.values() if node.claim == key), None)
            return None if node is None else _node(node, context)
        case "pod":
            return _pod(context, key)
        case "nodepool":
            return _pool(context, key)
        case "hpa":
            hpa = observer.hpas.store.get(key)
            return None if hpa is None else hpa_facts(hpa, t)
        case _:
            hpa = observer.vpas.store.get(key)
            return None if hpa is None else vpa_facts(hpa, t)


def _node(node: NodeView, context: PageContext) -> Markup:
    t = context.t
    price = figures.dollars(node.price.per_hour, t) if node.price is not None else t("unknown")
    source = f" ({node.price.source})" if node.price is not None else ""
    facts: list[tuple[str, Markup | str]] = [
        (t("State"), t(STATES[node.state]) + (f": {node.reason}" if node.reason else "")),
        (t("Cost an hour"), price + source),
        ("NodePool", link(node.pool, "nodepool", node.pool) if node.pool else "-"),
        (t("Node group"), link(node.group, "group", node.group) if node.group else "-"),
        ("NodeClaim", link(node.claim, "nodeclaim", node.claim) if node.claim else "-"),
        (t("Type"), node.instance_type or t("unknown")),
        (t("Capacity type"), node.capacity_type or t("unknown")),
        (t("Zone"), node.zone or t("unknown")),
        (t("Architecture"), node.architecture or t("unknown")),
        (t("Age"), figures.age(node.created, context.now, t)),
        (t("Expires"), f"{node.expires:%Y-%m-%d %H:%M}" if node.expires is not None else t("never")),
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


def _pods(node: NodeView, t: Catalogue) -> Markup:
    columns = [
        (t("Pod"), ""),
        (t("Workload"), ""),
        (t("Phase"), ""),
        (t("CPU"), "num"),
        (t("Memory"), "num"),
        (t("Cost an hour"), "num"),
    ]
    rows = [_pod_row(node, pod, t) for pod in sorted(node.pods, key=lambda pod: pod.key)]
    return table(t("Pods"), columns, rows, t("There are no pods."), hidden=True)


def _pod_row(node: NodeView, pod: PodView, t: Catalogue) -> list[Markup | str]:
    asked = pod.requests
    return [
        link(pod.key, "pod", pod.namespace, pod.name),
        link(pod.workload, "workload", pod.namespace, *pod.workload.split("/", 1)),
        t("terminating") if pod.terminating else pod.phase,
        figures.cpu(None if asked is None else asked.get("cpu", 0), t),
        figures.memory(None if asked is None else asked.get("memory", 0), t),
        figures.money(pod_money(node, pod), t),
    ]


def _pod(context: PageContext, key: str) -> Markup | None:
    t, view = context.t, context.view
    waiting = view.pending.get(key)
    if waiting is not None:
        return _pending(waiting, context)
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
            ]
            return card(t("Facts"), definition_list(facts))
    return None


def _pending(pod: PendingPod, context: PageContext) -> Markup:
    t = context.t
    waits: Markup | str = "-"
    if pod.waits_for:
        waits = link(pod.waits_for, *pod.waits_for.split("/", 1))
    facts: list[tuple[str, Markup | str]] = [
        (t("Phase"), t("Pending")),
        (t("Reason"), join(isolated(pod.reason), " ", tag("code", pod.code) if pod.code else None)),
        (t("Remedy"), isolated(pod.remedy or "-")),
        (t("Waits for"), waits),
        (t("Workload"), link(pod.workload, "workload", pod.namespace, *pod.workload.split("/", 1))),
        (t("Age"), figures.age(pod.created, context.now, t)),
        *_requests(pod, t),
    ]
    return card(t("Facts"), definition_list(facts))


def _requests(pod: PodView | PendingPod, t: Catalogue) -> list[tuple[str, Markup | str]]:
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
        (t("State"), ready + (f": {pool.problem}" if pool.problem else "")),
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
        (t("Budgets"), isolated("; ".join(pool.budgets) or "-")),
    ]
    nodes = [node for node in context.view.nodes.values() if node.pool == name]
    columns = [(t("Node"), ""), (t("State"), ""), (t("Type"), ""), (t("Zone"), ""), (t("Cost an hour"), "num")]
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


def workload_page(context: PageContext, namespace: str, workload: str) -> Markup | None:
    """A workload: its pods, where they are, and what they cost."""
    t, rows = context.t, list[list[Markup | str]]()
    for node in context.view.nodes.values():
        for pod in node.pods:
            if pod.namespace == namespace and pod.workload == workload:
                rows.append([*_pod_row(node, pod, t), tag("a", isolated(node.name), href=target(node))])
    waiting = [pod for pod in context.view.pending.values() if (pod.namespace, pod.workload) == (namespace, workload)]
    if not rows and not waiting:
        return None
    columns = [
        (t("Pod"), ""),
        (t("Workload"), ""),
        (t("Phase"), ""),
        (t("CPU"), "num"),
        (t("Memory"), "num"),
        (t("Cost an hour"), "num"),
        (t("Node"), ""),
    ]
    total = context.view.totals.workloads.get(f"{namespace}/{workload}")
    facts: list[tuple[str, Markup | str]] = [
        (t("Pods"), str(len(rows))),
        (t("Pending"), str(len(waiting))),
        (t("Cost an hour"), figures.money(total.money, t) if total is not None else figures.dollars(0.0, t)),
    ]
    pending: list[list[Markup | str]] = [
        [link(pod.key, "pod", pod.namespace, pod.name), isolated(pod.reason)] for pod in waiting
    ]
    return join(
        tag("p", tag("a", t("Fleet"), href="/"), " / ", t("Workload"), class_="crumbs"),
        tag("h1", isolated(f"{namespace}/{workload}")),
        card(t("Facts"), definition_list(facts)),
        card(t("Pods"), table(t("Pods"), columns, rows, t("There are no pods."), hidden=True)),
        card(t("Pending"), table(t("Pending"), [(t("Pod"), ""), (t("Reason"), "")], pending, "", hidden=True))
        if pending
        else None,
    )
