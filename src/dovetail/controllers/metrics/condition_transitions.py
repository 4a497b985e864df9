"""Condition transitions: a changed condition, or a removed finalizer, is published as an event and counted.

So `kubectl describe nodeclaim` shows the lifecycle of a NodeClaim, and alerts on conditions work. What changed
while no process led is counted by the next leader, without an event. These events are many where many nodes
start at once, so they have a queue of their own: no other event waits behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.controllers.context import Context
from dovetail.controllers.metrics.condition_kinds import AnyCondition, ConditionKind, Seen, seen, watched
from dovetail.kube.events import EventRecorder, reference
from dovetail.kube.reflector import CacheChange

UNKNOWN = "Unknown"


class ConditionTransitions:
    """The controllers `operatorpkg.*.status`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._recorder = EventRecorder(
            context.kube, "karpenter", "status", on_drop=context.metrics.runtime.events_dropped.inc
        )
        for kind, reflector in watched(context.cluster_state):
            for obj in tuple(reflector.store.all()):
                self._compare(kind, obj, None, seen(kind, obj))
            context.cluster_state.listen(kind.resource, self._listener(kind))

    async def run(self) -> None:
        await self._recorder.run()

    def _listener(self, kind: ConditionKind) -> Callable[[CacheChange[Any]], None]:
        def changed(change: CacheChange[Any]) -> None:
            if _is_unchanged(change.old, change.new):
                return
            old = seen(kind, change.old) if change.old is not None else None
            if change.new is not None:
                self._compare(kind, change.new, old, seen(kind, change.new))
            elif old is not None:
                self._deleted(kind, change.old, old)

        return changed

    def _compare(self, kind: ConditionKind, obj: Any, old: Seen | None, new: Seen) -> None:
        for finalizer in old.finalizers if old is not None else ():
            if finalizer not in new.finalizers:
                self._publish(kind, obj, "Finalized", f"Finalized {finalizer}")
        for name, now in new.conditions.items():
            before = old.conditions.get(name) if old is not None else None
            if now.status == (before.status if before is not None else UNKNOWN):
                continue
            self._context.metrics.conditions.count_transition(kind, new.values, name, now.status, now.reason)
            if before is not None:
                self._turned(kind, obj, new, before, now)

    def _turned(self, kind: ConditionKind, obj: Any, new: Seen, before: AnyCondition, now: AnyCondition) -> None:
        since, changed = before.last_transition_time, now.last_transition_time
        if since is not None and changed is not None:
            lasted = (changed - since).total_seconds()
            self._context.metrics.conditions.observe_duration(
                kind, new.values, now.type, (before.status, now.status), lasted
            )
        text = f"Type: {now.type}, Status: {before.status} -> {now.status}, Reason: {now.reason}"
        message = f", Message: {now.message}" if now.message else ""
        self._publish(kind, obj, now.type, f"Status condition transitioned, {text}{message}")

    def _deleted(self, kind: ConditionKind, obj: Any, old: Seen) -> None:
        for finalizer in old.finalizers:
            self._publish(kind, obj, "Finalized", f"Finalized {finalizer}")
        if old.deleted is not None:
            took = (self._context.clock.now() - old.deleted).total_seconds()
            self._context.metrics.conditions.observe_termination(kind, old.values, took)

    def _publish(self, kind: ConditionKind, obj: Any, reason: str, text: str) -> None:
        self._recorder.record(reference(kind.resource, obj), "Normal", reason, text)


def _is_unchanged(old: Any, new: Any) -> bool:
    """Most changes are of something else and cost nothing. NodeClasses are few and always compared."""
    if old is None or new is None or isinstance(new, dict):
        return False
    return bool(old.status.conditions == new.status.conditions and old.metadata.finalizers == new.metadata.finalizers)
