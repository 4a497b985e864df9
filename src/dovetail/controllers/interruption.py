"""Interruption: the cloud reports that an instance will end. Its node is drained at once, without any budget.

Messages come more than once, out of order, late, and sometimes malformed. Each is handled once per NodeClaim and
acknowledged afterwards; one that cannot be handled now is delivered again. Instances whose status checks fail are
polled every minute; they have no time left for a drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dovetail.cloud.provider import CloudError, Interruption, Remedy
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.node.termination import deadline
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.worker import reconcile_ids
from dovetail.kube.errors import KubeError
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import INSTANCE_TYPE, RESERVATION, RESERVED, SPOT, ZONE

#: kind -> (event, message, reason in metrics); a rebalance recommendation terminates nothing.
_MEANING = {
    "spot-interruption": ("SpotInterrupted", "Spot interruption warning was triggered", "spot_interrupted"),
    "reservation-interruption": (
        "CapacityReservationInstanceInterrupted",
        "Capacity Reservation interruption warning was triggered",
        "capacity_reservation_interrupted",
    ),
    "scheduled-change": (
        "InstanceUnhealthy",
        "An unhealthy warning was triggered for the instance",
        "scheduled_change",
    ),
    "instance-stopped": ("InstanceStopping", "Instance is stopping", "instance_stopped"),
    "instance-terminated": ("InstanceTerminating", "Instance is terminating", "instance_terminated"),
    "status-check-failed": ("InstanceUnhealthy", "The instance fails its status checks", "instance_status"),
    "scheduled-event": ("InstanceUnhealthy", "An event is scheduled for the instance", "event_status"),
}
#: What messages are called in log and metrics that terminate nothing.
_HARMLESS = {"rebalance": "rebalance_recommendation", "no-op": "no_op"}
#: The capacity type that becomes unavailable with an interruption.
_UNAVAILABLE = {"spot-interruption": SPOT, "reservation-interruption": RESERVED}
#: The category of an unhealthy instance in metrics.
_CATEGORY = {"status-check-failed": "InstanceStatus", "scheduled-event": "EventStatus"}
#: Messages that leave no time for a drain.
FORCED = frozenset({"status-check-failed"})
RETRY_INTERVAL_S, POLL_INTERVAL_S, DENIED_POLL_INTERVAL_S = 5.0, 60.0, 600.0
#: A queue that keeps failing is logged at doubling intervals: the first and the longest, in seconds.
MIN_LOG_INTERVAL_S, MAX_LOG_INTERVAL_S = 60.0, 3600.0
#: A queue that has not failed for so many seconds has recovered, though no message came: longer than a slow failure.
RECOVERED_AFTER_S = 300.0


class Interruptions:
    """The controllers `interruption` and `interruption.instancestatus`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: UIDs of NodeClaims we have deleted; the watch reports it a moment later.
        self._deleted: set[str] = set()
        self._queue_failures = QueueFailures(context)
        self._ids = reconcile_ids(context.chance, "interruption")

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="interruption messages")
            group.create_task(self._poll_status(), name="interruption status")

    async def _poll_status(self) -> None:
        """Poll unhealthy instances. Where that is denied, log it once and poll seldom: it may be granted later."""
        logged = ""
        while True:
            pause = POLL_INTERVAL_S
            try:
                statuses = await self._context.cloud.unhealthy()
                for message in statuses:
                    self._context.metrics.unhealthy_instances.labels(_CATEGORY[message.kind]).inc(
                        len(message.provider_ids)
                    )
                await self._handle(statuses)
                logged = ""
            except CloudError as problem:
                denied = problem.remedy is Remedy.OPERATOR
                pause = DENIED_POLL_INTERVAL_S if denied else POLL_INTERVAL_S
                if problem.message != logged:
                    log = self._context.log.error if denied else self._context.log.info
                    log("instance status unknown", controller="interruption.instancestatus", error=problem.message)
                logged = problem.message
            await asyncio.sleep(pause)

    async def _listen(self) -> None:
        while True:
            try:
                async for batch in self._context.cloud.interruptions():
                    with logs.reconciling("interruption", self._ids.uid()):
                        await self._take(batch)
            except CloudError as problem:
                self._queue_failures.note(problem)
            await asyncio.sleep(RETRY_INTERVAL_S)  # the queue ended or failed; ask again

    async def _take(self, batch: Sequence[Interruption]) -> None:
        self._queue_failures.end()
        self._count(batch)
        await self._context.cloud.acknowledge(done := await self._handle(batch))
        self._context.metrics.interruptions_deleted.inc(len(done))

    def _count(self, batch: Sequence[Interruption]) -> None:
        metrics = self._context.metrics
        for message in batch:
            metrics.interruptions_received.labels(_label(message)).inc()
            if message.sent is not None:
                metrics.interruption_latency.observe(max(0.0, (message.received - message.sent).total_seconds()))

    async def _handle(self, batch: Sequence[Interruption]) -> list[Interruption]:
        """Handle messages; return those that can be acknowledged."""
        done: list[Interruption] = []
        if not batch:
            return done
        claims = tuple(self._context.cluster_state.claims.store.all())
        by_id = {_instance_id(claim.status.provider_id): claim for claim in claims}
        self._deleted &= {claim.metadata.uid for claim in claims}
        for message in batch:
            try:
                await self._act(message, by_id)
            except KubeError as problem:  # stays on the queue and comes back
                self._context.log.error("Reconciler error", controller="interruption", error=str(problem))
                continue
            done.append(message)
        return done

    async def _act(self, message: Interruption, by_id: dict[str, NodeClaim]) -> None:
        context = self._context
        for identity in message.provider_ids:
            claim = by_id.get(_instance_id(identity))
            if claim is None or message.kind == "no-op":
                continue  # state changes to running are sent as well
            node = context.cluster_state.node_for(claim)
            if message.kind == "rebalance":
                text = "Spot rebalance recommendation was triggered"
                context.event_publisher.publish_on_node_and_claim(
                    node, claim, "Normal", "SpotRebalanceRecommendation", text
                )
            if message.kind not in _MEANING:
                self._log("received interruption", claim, message)
                continue
            event, text, reason = _MEANING[message.kind]
            terminating = claim.metadata.deletion_timestamp is not None or claim.metadata.uid in self._deleted
            if terminating and message.kind == "instance-terminated":
                continue  # that is what we asked for
            context.event_publisher.publish_on_node_and_claim(node, claim, "Warning", event, text)
            if message.kind in _UNAVAILABLE:
                context.cloud.unavailable.mark(_unavailable(claim, _UNAVAILABLE[message.kind]))
            if not terminating:
                await self._delete(claim, message, reason)

    async def _delete(self, claim: NodeClaim, message: Interruption, reason: str) -> None:
        context = self._context
        decision = await (deadline.force_now if message.kind in FORCED else delete)(context, claim, reason)
        self._deleted.add(claim.metadata.uid)
        if not decision:
            return  # it was gone already
        self._log("initiating delete from interruption message", claim, message, decision=decision)
        for subject, kind in ((claim, "NodeClaim"), (context.cluster_state.node_for(claim), "Node")):
            if subject is not None:
                text = f"Interruption triggered termination for the {kind}"
                context.event_publisher.publish(
                    subject, "Warning", "TerminatingOnInterruption", text, decision=decision
                )

    def _log(self, text: str, claim: NodeClaim, message: Interruption, **more: str) -> None:
        self._context.log.info(
            text,
            controller="interruption",
            NodeClaim=logs.ref(claim.name),
            Node=logs.ref(claim.status.node_name),
            messageKind=_label(message),
            **more,
        )


class QueueFailures:
    """Failures of the interruption queue: each is counted; an equal one in a row is logged ever more rarely."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._message = ""
        self._in_a_row = 0
        self._last = self._log_at = 0.0
        self._interval = MIN_LOG_INTERVAL_S

    def note(self, problem: CloudError) -> None:
        now = self._context.clock.monotonic()
        self._context.metrics.interruption_queue_failures.labels(problem.reason).inc()
        if now - self._last > RECOVERED_AFTER_S:
            self.end()
        self._last = now
        self._in_a_row += 1
        repeated = problem.message == self._message
        if repeated and now < self._log_at:
            return
        self._interval = min(2 * self._interval, MAX_LOG_INTERVAL_S) if repeated else MIN_LOG_INTERVAL_S
        self._message, self._log_at = problem.message, now + self._interval
        self._context.log.error(
            "Reconciler error", controller="interruption", error=problem.message, failures=self._in_a_row
        )

    def end(self) -> None:
        """The queue answers."""
        if self._in_a_row:
            self._context.log.info("interruption queue answers", controller="interruption", failures=self._in_a_row)
        self._message, self._in_a_row = "", 0


def _unavailable(claim: NodeClaim, kind: str) -> tuple[str, str, str]:
    """The offering that is unavailable for a while: of reserved capacity, only the reservation of the instance."""
    labels = claim.metadata.labels
    where = labels.get(INSTANCE_TYPE, "*"), labels.get(ZONE, "*")
    return (*where, labels.get(RESERVATION, kind) if kind == RESERVED else kind)


def _label(message: Interruption) -> str:
    """What Karpenter calls such a message."""
    return _MEANING[message.kind][2] if message.kind in _MEANING else _HARMLESS.get(message.kind, message.kind)


def _instance_id(provider_id: str) -> str:
    """The part of a provider id that the cloud's messages carry."""
    return provider_id.rsplit("/", 1)[-1]
