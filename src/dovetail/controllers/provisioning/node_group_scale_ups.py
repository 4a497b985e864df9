"""Node groups beside NodePools: pods for which Cluster Autoscaler grows a group are not provisioned for as well.

Its events on a pod tell: after `TriggeredScaleUp` a node is on its way, after `NotTriggerScaleUp` none is. The newest
counts, and a scale-up for no longer than the node may take to join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import CORE_EVENTS

COMPONENT = "cluster-autoscaler"
TRIGGERED, NOT_TRIGGERED = "TriggeredScaleUp", "NotTriggerScaleUp"
#: Cluster Autoscaler's own default for the time in which a node has to join.
PROVISION_TIME = timedelta(minutes=15)
_SIZES = re.compile(r"\{(\S+) (\d+)->(\d+) \(max: (\d+)\)\}")


class GroupScaleUp(msgspec.Struct, frozen=True):
    """What Cluster Autoscaler last reported of a pod."""

    reason: str
    message: str
    time: datetime

    def is_underway(self, now: datetime) -> bool:
        return self.reason == TRIGGERED and now < self.time + PROVISION_TIME

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that grow, by name."""
        return tuple(match[1] for match in _SIZES.finditer(self.message))


def of_event(event: Mapping[str, Any]) -> tuple[str, GroupScaleUp] | None:
    """The pod's UID and what the event tells; None for other events."""
    about = event.get("involvedObject") or {}
    if about.get("kind") != "Pod" or not about.get("uid") or event.get("reason") not in (TRIGGERED, NOT_TRIGGERED):
        return None
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return str(about["uid"]), GroupScaleUp(str(event["reason"]), str(event.get("message", "")), time)


class NodeGroupScaleUps:
    """By the UID of the pod. Where events may not be read, no scale-up is known."""

    def __init__(self, kube: Kube) -> None:
        self._events: Reflector[dict[str, Any]] = Reflector(
            kube, CORE_EVENTS, fields=f"source={COMPONENT}", on_event=self._changed
        )
        self._events.optional = True
        self._of: dict[str, dict[str, GroupScaleUp]] = {}

    async def run(self) -> None:
        await self._events.run()

    @property
    def forbidden(self) -> Forbidden | None:
        failure = self._events.failure
        return failure if isinstance(failure, Forbidden) else None

    def _changed(self, change: CacheChange[dict[str, Any]]) -> None:
        reported = of_event(change.object)
        if reported is None:
            return
        uid, scale_up = reported
        if change.new is not None:
            self._of.setdefault(uid, {})[change.key] = scale_up
            return
        self._of.get(uid, {}).pop(change.key, None)
        if not self._of.get(uid):
            self._of.pop(uid, None)

    def underway(self, uid: str, now: datetime) -> GroupScaleUp | None:
        """The scale-up that a pod waits for."""
        reported = self._of.get(uid)
        if not reported:
            return None
        newest = max(reported.values(), key=lambda scale_up: (scale_up.time, scale_up.reason == NOT_TRIGGERED))
        return newest if newest.is_underway(now) else None
