"""What protects a pod from disruption: its do-not-disrupt annotation, for ever or for a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import PODS
from dovetail.model import duration, wellknown
from dovetail.model.meta import stamp
from dovetail.model.pods import Pod


class ProtectionKind(StrEnum):
    NONE = "none"
    FOREVER = "forever"
    UNTIL = "until"
    INVALID = "invalid"


class Protection(msgspec.Struct, frozen=True):
    """`until` is None while the pod has not started: its time has not begun to run."""

    kind: ProtectionKind
    until: datetime | None = None
    text: str = ""

    def holds(self, now: datetime) -> bool:
        if self.kind is ProtectionKind.FOREVER:
            return True
        return self.kind is ProtectionKind.UNTIL and (self.until is None or now < self.until)


NONE = Protection(ProtectionKind.NONE)


def of(pod: Pod) -> Protection:
    """The pod's do-not-disrupt annotation: `true`, or a duration after its start."""
    text = pod.metadata.annotations.get(wellknown.DO_NOT_DISRUPT)
    if text is None or text == "false":
        return NONE
    if text == "true":
        return Protection(ProtectionKind.FOREVER, text=text)
    try:
        length = duration.parse(text)
    except ValueError:
        return Protection(ProtectionKind.INVALID, text=text)
    if length <= timedelta(0):
        return Protection(ProtectionKind.INVALID, text=text)
    started = pod.status.start_time
    return Protection(ProtectionKind.UNTIL, started + length if started else None, text)


# Events about a pod's do-not-disrupt annotation: that it is unreadable, until when it holds, and that it is over.

#: Each is published once a day at most.
DEDUPE_S = 86400.0
#: What ended longer ago than this is not published.
PUBLISHED_WITHIN = timedelta(minutes=1)


class DoNotDisruptController:
    """The controller `pod.donotdisrupt`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker(
            "pod.donotdisrupt",
            self._reconcile,
            context.log,
            context.chance,
            resource=PODS,
            metrics=context.metrics,
        )
        context.cluster_state.listen(PODS, self._changed)

    async def run(self) -> None:
        for pod in self._context.cluster_state.pods.store.all():
            self._consider(pod)
        await self._worker.run()

    def _changed(self, change: CacheChange[Pod]) -> None:
        if change.new is not None:
            self._consider(change.new)

    def _consider(self, pod: Pod) -> None:
        if wellknown.DO_NOT_DISRUPT in pod.metadata.annotations and pod.spec.node_name:
            self._worker.add(pod.metadata.key)

    async def _reconcile(self, key: str) -> Again:
        pod = self._context.cluster_state.pods.store.get(key)
        if pod is None or pod.terminating or pod.finished:
            return None
        protection, now = of(pod), self._context.clock.now()
        if protection.kind is ProtectionKind.INVALID:
            problem = f'"{protection.text}" is neither "true" nor a duration above 0'
            text = f"Invalid {wellknown.DO_NOT_DISRUPT} annotation: {problem}, ignoring annotation"
            self._publish(pod, "InvalidDoNotDisruptAnnotation", text, warn=True)
        if protection.kind is not ProtectionKind.UNTIL or protection.until is None:
            return None
        if now < protection.until:
            text = f"The {wellknown.DO_NOT_DISRUPT} grace period will elapse at {stamp(protection.until)}"
            self._publish(pod, "DoNotDisruptUntil", text)
            return (protection.until - now).total_seconds() + 0.001
        if now - protection.until < PUBLISHED_WITHIN:
            text = f"The {wellknown.DO_NOT_DISRUPT} grace period has elapsed, pod is now disruptable"
            self._publish(pod, "DoNotDisruptGracePeriodElapsed", text)
        return None

    def _publish(self, pod: Pod, reason: str, text: str, *, warn: bool = False) -> None:
        self._context.event_publisher.publish(pod, "Warning" if warn else "Normal", reason, text, dedupe=DEDUPE_S)
