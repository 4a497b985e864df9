"""Kubernetes events with Karpenter's reasons and messages, deduplicated and rate-limited."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from dovetail.clock import Clock
from dovetail.controllers.conditions import truncated
from dovetail.kube import resources as kinds
from dovetail.kube.events import EventRecorder, InvolvedObject, reference
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.runtime.token_bucket import TokenBucket

#: Identical events about one object within so many seconds are one.
DEDUPE_S = 120.0
_REMEMBERED = 10_000
#: Events of one rate limit: so many at once, then so many a second.
BURST, RATE_PER_S = 10.0, 5.0

Subject = Pod | Node | NodeClaim | NodePool


class EventPublisher:
    """Publishes events. `rate` names those that are limited together: five a second, ten at once."""

    def __init__(self, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._published: OrderedDict[tuple[tuple[str, ...], str, str], float] = OrderedDict()
        self._rates: dict[str, TokenBucket] = {}

    def publish(
        self,
        subject: Subject,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        dedupe: float = DEDUPE_S,
        same: str = "",
        rate: str = "",
        decision: str = "",
    ) -> bool:
        """Publish an event, unless it was published lately. `same` identifies equal events; by default the message."""
        about = reference(_resource(subject), subject)
        now = self._clock.monotonic()
        key = (about.identity, reason, same or message)
        if self._published.get(key, float("-inf")) > now or (rate and not self._take(rate, now)):
            return False
        self._published[key] = now + dedupe
        self._published.move_to_end(key)
        while len(self._published) > _REMEMBERED or next(iter(self._published.values())) <= now:
            self._published.popitem(last=False)
        annotations = {wellknown.DECISION: decision} if decision else None
        return self._recorder.record(about, kind, reason, truncated(message), annotations)

    def record(self, about: InvolvedObject, kind: Literal["Normal", "Warning"], reason: str, message: str) -> bool:
        """Publish an event about an object that we do not watch."""
        return self._recorder.record(about, kind, reason, truncated(message))

    # -- pods

    def nominated(self, pod: Pod, claim: str | None, node: str | None = None, decision: str = "") -> None:
        where = ", ".join(
            part for part in (f"nodeclaim/{claim}" if claim else "", f"node/{node}" if node else "") if part
        )
        message = f"Pod should schedule on: {where}"
        self.publish(pod, "Normal", "Nominated", message, same=pod.metadata.uid, rate="nominated", decision=decision)

    def failed_scheduling(self, pod: Pod, why: str, decision: str = "") -> None:
        message = f"Failed to schedule pod, {why}"
        self.publish(pod, "Warning", "FailedScheduling", message, dedupe=300.0, decision=decision)

    def no_capacity_for(self, pod: Pod, claim: NodeClaim, why: str) -> None:
        message = f"NodeClaim {claim.name} nominated for this pod failed to launch: {why}"
        self.publish(pod, "Warning", "InsufficientCapacityError", message, same=pod.metadata.uid, rate="no-capacity")

    def launch_failed_for(self, pod: Pod, claim: NodeClaim, reason: str, why: str) -> None:
        message = f"NodeClaim {claim.name} nominated for this pod failed to launch: {why}"
        self.publish(pod, "Warning", reason, message, same=pod.metadata.uid, rate="launch-failed")

    # -- claims and pools

    def no_capacity(self, claim: NodeClaim, why: str) -> None:
        self.publish(claim, "Warning", "InsufficientCapacityError", f"NodeClaim {claim.name} event: {why}")

    def launch_failed(self, claim: NodeClaim, reason: str, why: str) -> None:
        self.publish(claim, "Warning", reason, f"NodeClaim {claim.name} event: {why}", same=claim.metadata.uid)

    def class_not_ready(self, claim: NodeClaim, why: str) -> None:
        self.publish(claim, "Warning", "NodeClassNotReady", f"NodeClaim {claim.name} event: {why}")

    def publish_on_node_and_claim(
        self,
        node: Node | None,
        claim: NodeClaim | None,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        dedupe: float = DEDUPE_S,
        decision: str = "",
    ) -> bool:
        """The same event on a Node and on its NodeClaim: operators look at either. Whether anything was published."""
        about = [subject for subject in (node, claim) if subject is not None]
        return (
            sum(self.publish(subject, kind, reason, message, dedupe=dedupe, decision=decision) for subject in about) > 0
        )

    def blocked(self, node: Node | None, claim: NodeClaim | None, why: str) -> None:
        """Why a node may not be disrupted now."""
        self.publish_on_node_and_claim(node, claim, "Normal", "DisruptionBlocked", why[:1].upper() + why[1:])

    def unregistered_taint_missing(self, claim: NodeClaim, key: str) -> None:
        message = f"Missing {key} taint which prevents registration related race conditions on Karpenter-managed nodes"
        self.publish(claim, "Warning", "UnregisteredTaintMissing", message)

    def failed_consistency(self, claim: NodeClaim, why: str) -> None:
        self.publish(claim, "Warning", "FailedConsistencyCheck", why, dedupe=600.0)

    def no_types(self, pool: NodePool) -> bool:
        message = "NodePool requirements filtered out all compatible available instance types"
        return self.publish(pool, "Warning", "NoCompatibleInstanceTypes", message, dedupe=60.0)

    def _take(self, rate: str, now: float) -> bool:
        return self._rates.setdefault(rate, TokenBucket.full(BURST, RATE_PER_S, now)).take(now)


def _resource(subject: Subject) -> kinds.Resource:
    if isinstance(subject, Pod):
        return kinds.PODS
    if isinstance(subject, Node):
        return kinds.NODES
    return kinds.NODECLAIMS if isinstance(subject, NodeClaim) else kinds.NODEPOOLS
