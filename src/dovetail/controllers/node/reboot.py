"""Rebooting a node in place, from the request on its NodeClaim to its return. The controller `nodeclaim.reboot`.

A taint against new pods, a drain that forces no pod, the boot id recorded, the cloud's call, and then the wait
for another boot that is ready. All state is on the NodeClaim, so that the next process continues; a reboot
that fails deletes the NodeClaim, because an unhealthy node that does not return must be replaced.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from dovetail.cloud.provider import CloudError, InstanceNotFound, RebootRejected, RebootUnsupported
from dovetail.controllers import logs
from dovetail.controllers.conditions import Conditions, instant, of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.node import taints
from dovetail.controllers.node.termination import deadline, drain
from dovetail.controllers.node.termination.evictions import Evictions
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODES
from dovetail.model import duration, wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node

REQUESTED, ISSUED, SUCCEEDED, FAILED = "RebootRequested", "RebootIssued", "RebootSucceeded", "RebootFailed"
#: Seconds: between two checks of a drain and of a boot; the shortest drain.
DRAIN_CHECK_INTERVAL_S, BOOT_CHECK_INTERVAL_S, MIN_DRAIN_S = 1.0, 5.0, 5.0
#: How long the cloud may take to accept a reboot, and a node to return.
ISSUANCE_TIMEOUT, RECOVERY_TIMEOUT = timedelta(minutes=5), timedelta(minutes=20)
#: Result and message when one of these phases times out.
NOT_ACCEPTED = "provider_error", "reboot was not issued within the issuance timeout"
NOT_BACK = "recovery_timeout", "node did not recover within the observation window"
#: After so many reboots within a day a node is replaced instead.
MAX_REBOOTS_PER_DAY, DAY = 2, timedelta(hours=24)


def exhausted(claim: NodeClaim, now: datetime) -> bool:
    """Whether a node was rebooted so often lately that another reboot would not help."""
    return len(_recent_reboots(claim, now)) >= MAX_REBOOTS_PER_DAY


async def commit(context: Context, claim: NodeClaim, why: str, grace: float | None) -> bool:
    """Request a reboot on the NodeClaim; False if it is rebooting or deleted already. Conflicts go to the caller."""
    try:
        claim = await context.kube.get(NODECLAIMS, claim.name, type=NodeClaim)
    except NotFound:
        return False
    if claim.is_true("Rebooting") or claim.metadata.deletion_timestamp is not None:
        return False
    now, own = context.clock.now(), claim.spec.termination_grace_period
    bound = duration.format_duration(timedelta(seconds=grace)) if grace is not None else own
    history = ",".join([*map(stamp, _recent_reboots(claim, now)), stamp(now)])
    claim = await _annotate(context, claim, {wellknown.REBOOT_GRACE: bound, wellknown.REBOOTS: history})
    conditions = of_claim(claim, now)
    conditions.true("DisruptionReason", "Unhealthy", "Unhealthy")
    conditions.true("Rebooting", REQUESTED, f"rebooting for {why}")
    await _write(context, claim, conditions)
    context.log.info("committed node reboot", controller="disruption", NodeClaim=logs.ref(claim.name))
    return True


class Reboots:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._evictions = Evictions(context)
        #: Since when the cloud call is tried, by NodeClaim; a new process begins to count anew.
        self._asking: dict[str, datetime] = {}
        self._worker = Worker(
            "nodeclaim.reboot",
            self._reconcile,
            context.log,
            context.chance,
            workers=10,
            resource=NODECLAIMS,
            metrics=context.metrics,
        )
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODES, self._node_changed)

    async def run(self) -> None:
        for claim in self._context.cluster_state.claims.store.all():
            self._consider(claim)
        await self._worker.run()

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        if change.new is None:
            self._asking.pop(change.object.metadata.uid, None)
        else:
            self._consider(change.new)

    def _node_changed(self, change: CacheChange[Node]) -> None:
        claim = self._context.cluster_state.claim_for(change.object)
        if claim is not None:
            self._consider(claim)

    def _consider(self, claim: NodeClaim) -> None:
        if claim.is_true("Rebooting"):
            self._worker.add(claim.name)

    async def _reconcile(self, name: str) -> Again:
        context = self._context
        claim = context.cluster_state.claims.store.get(name)
        rebooting = claim.condition("Rebooting") if claim is not None else None
        if claim is None or rebooting is None or rebooting.status != "True" or claim.metadata.deletion_timestamp:
            return None
        issued = rebooting.reason == ISSUED
        node = context.cluster_state.node_for(claim)
        end = self._deadline(claim, issued=issued, lost=node is None)
        if end is not None and context.clock.now() > end:
            return await self._failed(claim, *(NOT_BACK if issued else NOT_ACCEPTED))
        if node is None:
            return BOOT_CHECK_INTERVAL_S
        return await (self._observe(claim, node) if issued else self._issue(claim, node))

    def _deadline(self, claim: NodeClaim, *, issued: bool, lost: bool) -> datetime | None:
        """When this phase must be over; a drain may last, unless there is no node to drain."""
        if issued:
            return _issued_at(claim) + RECOVERY_TIMEOUT
        asking = self._asking.get(claim.metadata.uid)
        if asking is None and lost:
            asking = _requested_at(claim)
        return asking + ISSUANCE_TIMEOUT if asking is not None else None

    # -- until the cloud has accepted it

    async def _issue(self, claim: NodeClaim, node: Node) -> Again:
        context, name = self._context, node.metadata.name
        try:
            grace = _grace(claim)
        except ValueError as problem:
            return await self._failed(claim, "invalid_request", f"invalid reboot request: {problem}")
        if not taints.tainted(node, wellknown.REBOOTING_TAINT):
            await taints.add(context, name, wellknown.REBOOTING_TAINT)
        before = claim.metadata.annotations.get(wellknown.REBOOT_PRE_BOOT_ID)
        if before is None:
            wait = await self._drain(claim, node, grace)
            if wait > 0:
                return wait
            before = node.status.node_info.boot_id
            claim = await _annotate(context, claim, {wellknown.REBOOT_PRE_BOOT_ID: before})
        elif node.status.node_info.boot_id != before:
            return await self._accepted(claim, node)
        self._asking.setdefault(claim.metadata.uid, context.clock.now())
        operation = f"{claim.metadata.uid}-{int(_requested_at(claim).timestamp() * 1e9)}-{before}"
        try:
            await context.cloud.reboot(claim.status.provider_id, operation)
        except RebootUnsupported:
            return await self._failed(claim, "provider_error", "reboot not implemented by the cloud provider")
        except (RebootRejected, InstanceNotFound) as problem:
            return await self._failed(claim, "provider_error", f"reboot rejected by the cloud provider: {problem}")
        except CloudError as problem:
            context.metrics.cloud_errors.labels(
                "nodeclaim.reboot", "Reboot", context.cloud.name, problem.reason or "unknown", claim.node_pool or ""
            ).inc()
            raise
        return await self._accepted(claim, node)

    async def _drain(self, claim: NodeClaim, node: Node, grace: float | None) -> float:
        """Evict pods, force none; the seconds until the next check, 0 once it is over."""
        if grace == 0:
            return 0.0
        now, requested_at = self._context.clock.now(), _requested_at(claim)
        spent = (now - requested_at).total_seconds()
        todo = drain.decide(self._context.cluster_state.pods_on(node.metadata.name), now, None)
        if todo.done or (grace is not None and spent >= max(grace, MIN_DRAIN_S)):
            return max(0.0, MIN_DRAIN_S - spent)
        await self._evictions.evict(node, todo.evict, "Unhealthy")
        return DRAIN_CHECK_INTERVAL_S

    async def _accepted(self, claim: NodeClaim, node: Node) -> Again:
        conditions = of_claim(claim, self._context.clock.now())
        before_ = conditions.get("Rebooting")
        conditions.true("Rebooting", ISSUED, before_.message if before_ else "")
        conditions.unknown("Initialized", "Rebooting", "node is rebooting")
        await _write(self._context, claim, conditions)
        await self._uninitialize(node)
        return BOOT_CHECK_INTERVAL_S

    async def _uninitialize(self, node: Node) -> None:
        if wellknown.INITIALIZED in node.metadata.labels:
            body = {"metadata": {"labels": {wellknown.INITIALIZED: None}}}
            await self._context.kube.patch(NODES, node.metadata.name, body)

    # -- until the node is back

    async def _observe(self, claim: NodeClaim, node: Node) -> Again:
        context = self._context
        await self._uninitialize(node)
        if node.status.node_info.boot_id == claim.metadata.annotations.get(wellknown.REBOOT_PRE_BOOT_ID):
            return BOOT_CHECK_INTERVAL_S
        await taints.remove(context, node.metadata.name, wellknown.REBOOTING_TAINT)
        text = "New boot observed (bootID changed); awaiting node readiness"
        context.event_publisher.publish(claim, "Normal", "RebootObserved", text, dedupe=1800.0, same=_episode(claim))
        if not node.ready:
            return BOOT_CHECK_INTERVAL_S
        took, since = context.clock.now() - _requested_at(claim), context.clock.now() - _issued_at(claim)
        await self._finish(claim, SUCCEEDED, "node rebooted and rejoined the cluster")
        self._count("succeeded", took)
        context.metrics.reboot_recovery.observe(since.total_seconds())
        return None

    async def _finish(self, claim: NodeClaim, reason: str, message: str) -> None:
        context = self._context
        self._asking.pop(claim.metadata.uid, None)
        if wellknown.REBOOT_PRE_BOOT_ID in claim.metadata.annotations:
            claim = await _annotate(context, claim, {wellknown.REBOOT_PRE_BOOT_ID: None})
        conditions = of_claim(claim, context.clock.now())
        conditions.false("Rebooting", reason, message)
        await _write(context, claim, conditions)
        context.log.info(
            "reboot reached terminal outcome",
            controller="nodeclaim.reboot",
            NodeClaim=logs.ref(claim.name),
            reason=reason,
        )

    async def _failed(self, claim: NodeClaim, result: str, why: str) -> Again:
        """Remove the taint. An unreadable request ends there; a node that does not return is replaced."""
        context, took = self._context, self._context.clock.now() - _requested_at(claim)
        node = context.cluster_state.node_for(claim)
        if node is not None:
            await taints.remove(context, node.metadata.name, wellknown.REBOOTING_TAINT)
        if result == "invalid_request":
            await self._finish(claim, FAILED, why)
        else:
            grace = _bound(claim)
            if grace is not None:
                await deadline.tighten(context, claim, grace)
            await delete(context, claim, "unhealthy", bound=grace)
            context.log.info(
                "reboot failed, replacing node",
                controller="nodeclaim.reboot",
                NodeClaim=logs.ref(claim.name),
                result=result,
                error=why,
            )
        context.event_publisher.publish(claim, "Warning", "RebootFailed", why, dedupe=1800.0, same=_episode(claim))
        self._count(result, took)
        return None

    def _count(self, result: str, took: timedelta) -> None:
        self._context.metrics.reboots.labels(result).inc()
        self._context.metrics.reboot_duration.labels(result).observe(took.total_seconds())


def _recent_reboots(claim: NodeClaim, now: datetime) -> list[datetime]:
    """The reboots of the last day."""
    texts = filter(None, claim.metadata.annotations.get(wellknown.REBOOTS, "").split(","))
    return [time for time in map(instant, texts) if time is not None and now - time < DAY]


def _grace(claim: NodeClaim) -> float | None:
    """Seconds that the drain may take; None does not bound it. ValueError if it is unreadable."""
    text = claim.metadata.annotations.get(wellknown.REBOOT_GRACE)
    if text is None:
        return None
    seconds = duration.parse(text).total_seconds()
    if seconds < 0:
        raise ValueError(f"reboot termination grace period must be non-negative, got {text!r}")
    return seconds


def _bound(claim: NodeClaim) -> float | None:
    """The same for a terminating node: an unreadable value bounds nothing."""
    try:
        return _grace(claim)
    except ValueError:
        return None


def _requested_at(claim: NodeClaim) -> datetime:
    condition = claim.condition("Rebooting")
    assert condition is not None and condition.last_transition_time is not None
    return condition.last_transition_time


def _issued_at(claim: NodeClaim) -> datetime:
    """When the node ceased to be initialized, and in no case before the reboot was requested."""
    condition = claim.condition("Initialized")
    last_transition_time = (
        condition.last_transition_time if condition is not None and condition.status == "Unknown" else None
    )
    return max(last_transition_time, _requested_at(claim)) if last_transition_time is not None else _requested_at(claim)


def _episode(claim: NodeClaim) -> str:
    return stamp(_requested_at(claim))


async def _annotate(context: Context, claim: NodeClaim, notes: dict[str, Any]) -> NodeClaim:
    if all(claim.metadata.annotations.get(key) == text for key, text in notes.items()):
        return claim
    meta = {"resourceVersion": claim.metadata.resource_version, "annotations": notes}
    fresh = await context.kube.patch(NODECLAIMS, claim.name, {"metadata": meta}, type=NodeClaim)
    context.cluster_state.assume(fresh)
    return fresh


async def _write(context: Context, claim: NodeClaim, conditions: Conditions) -> None:
    if conditions.changed:
        body = status_patch(claim.metadata.resource_version, conditions)
        fresh = await context.kube.patch(NODECLAIMS, claim.name, body, subresource="status", type=NodeClaim)
        context.cluster_state.assume(fresh)
