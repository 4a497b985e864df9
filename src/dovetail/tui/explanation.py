"""Why: what is known about one row, as lines. The answer of `dovetail explain`, then facts, pods, events, decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from dovetail.controllers import explain
from dovetail.controllers.explain import Answer
from dovetail.controllers.history.decisions import Decision, concerns
from dovetail.language import message
from dovetail.language.recognition import recognized
from dovetail.model.nodes import Event
from dovetail.tui import figures
from dovetail.tui.tables import NodePoolRow, PlacedPod, node_state, pod_price, pod_state
from dovetail.view.events import count_of, time_of
from dovetail.view.model import NodeView, PendingPod
from dovetail.view.observer import Observer

EVENTS_SHOWN, DECISIONS_SHOWN = 10, 8


class SelectedObject(NamedTuple):
    """`name` is namespace/name for a pod."""

    kind: str
    name: str


class Evidence(Protocol):
    """What explanations are made from."""

    def answer(self, subject: SelectedObject) -> Answer | None: ...

    def events(self, subject: SelectedObject) -> Sequence[Event]: ...

    def decisions(self, subject: SelectedObject) -> Sequence[Decision]: ...


class ObserverEvidence:
    """What an observer has read; nothing more is asked for."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def answer(self, subject: SelectedObject) -> Answer | None:
        ask: dict[str, Any] = {
            "pod": explain.pod,
            "node": explain.node,
            "nodeclaim": explain.claim,
            "nodepool": explain.nodepool,
        }
        observer = self._observer
        try:
            answer: Answer = ask[subject.kind](
                observer.state, observer.decisions.all(), subject.name, observer.clock.now()
            )
        except explain.Unknown:
            return None
        return answer

    def events(self, subject: SelectedObject) -> Sequence[Event]:
        kind = {"pod": "Pod", "node": "Node", "nodeclaim": "NodeClaim", "nodepool": "NodePool"}[subject.kind]
        namespace, _, name = subject.name.rpartition("/")
        return self._observer.events.about(kind, namespace, name)

    def decisions(self, subject: SelectedObject) -> Sequence[Decision]:
        return [decision for decision in self._observer.decisions.all() if concerns(decision, subject.name)]


def subject_of(row: NodeView | PlacedPod | PendingPod | NodePoolRow) -> SelectedObject | None:
    """What a row is explained as; nodes of no NodePool have nothing to explain together."""
    match row:
        case NodeView():
            return SelectedObject("node" if row.has_node else "nodeclaim", row.name)
        case PlacedPod():
            return SelectedObject("pod", row.pod.key)
        case PendingPod():
            return SelectedObject("pod", row.key)
        case NodePoolRow():
            return SelectedObject("nodepool", row.name) if row.view is not None else None


def explanation(subject: SelectedObject, row: Any, evidence: Evidence, now: datetime) -> Iterator[str]:
    """Lines of any length; `row` is None once the object is gone."""
    answer = evidence.answer(subject)
    if answer is not None:
        lines = (*answer.details, *answer.deep)
        yield f"{answer.subject} {recognized(answer.line)}"
        yield from (f"  {recognized(text)}" for text in lines)
        if answer.remedy and not any(answer.remedy in text for text in lines):
            yield message("remedy: {remedy}", remedy=recognized(answer.remedy))
        yield from (f"  $ {command}" for command in answer.commands)
    else:
        yield message("{subject} is not in the cluster any more", subject=f"{subject.kind}/{subject.name}")
    if row is not None:
        yield ""
        yield from _facts(row, now)
    events = evidence.events(subject)[:EVENTS_SHOWN]
    if events:
        yield ""
        yield message("Events, newest first")
        for event in events:
            times = f" x{count_of(event)}" if count_of(event) > 1 else ""
            yield f"  {figures.age(time_of(event), now):>4}  {event.reason}{times}: {event.message}"
    decisions = evidence.decisions(subject)[-DECISIONS_SHOWN:]
    if decisions:
        yield ""
        yield message("Decisions, newest first")
        yield from (f"  {decision.time}  {decision.id}  {decision.kind}" for decision in reversed(decisions))


def _facts(row: Any, now: datetime) -> Iterator[str]:
    match row:
        case NodeView():
            yield from _node(row, now)
        case PlacedPod():
            yield message(
                "on {node}, {state}, requests {requests}, {price}/hour",
                node=row.node.name,
                state=pod_state(row.pod),
                requests=_amounts(row.pod.requests),
                price=figures.dollars(pod_price(row)),
            )
            yield message("workload {workload}", workload=row.pod.workload)
        case PendingPod():
            yield message("workload {workload}", workload=row.workload)
            yield message("requests {requests}", requests=_amounts(row.requests))
        case NodePoolRow() if row.view is not None:
            budgets = "; ".join(budget.words(message) for budget in row.view.budgets)
            yield message("budgets {budgets}", budgets=budgets or "-")
            yield message("limits {limits}", limits=_amounts(row.view.limits) or "-")


def _node(node: NodeView, now: datetime) -> Iterator[str]:
    source = node.price.source if node.price is not None else message("no price is known for it")
    yield message(
        "{type} in {zone}, {capacity}, {price}/hour ({source})",
        type=node.instance_type or figures.UNKNOWN,
        zone=node.zone or figures.UNKNOWN,
        capacity=node.capacity_type or figures.UNKNOWN,
        price=figures.dollars(node.price.per_hour if node.price is not None else None),
        source=source,
    )
    yield message("state {state} {reason}", state=node_state(node), reason=recognized(node.reason)).rstrip()
    if node.expires is not None:
        yield message("expires in {time}", time=figures.span((node.expires - now).total_seconds()))
    for name, most in sorted(node.allocatable.items()):
        requested = None if node.requests is None else node.requests.get(name, 0)
        used = None if node.usage is None else node.usage.get(name)
        use = "" if name not in ("cpu", "memory") else message(", {used} used", used=figures.amount(name, used))
        yield (
            f"  {name}: "
            + message(
                "{requested} of {total} requested",
                requested=figures.amount(name, requested),
                total=figures.amount(name, most),
            )
            + use
        )
    if node.pods:
        yield ""
        yield message("Pods, largest first")
        for pod in sorted(node.pods, key=lambda pod: (-(pod.requests or {}).get("cpu", 0), pod.key)):
            yield f"  {pod.key}  {pod_state(pod)}  {_amounts(pod.requests)}"


def _amounts(amounts: Any) -> str:
    if amounts is None:
        return figures.UNKNOWN
    return ", ".join(f"{name} {figures.amount(name, count)}" for name, count in amounts.items() if name != "pods")
