"""The controller `nodeclaim.disruption`: writes the Consolidatable and Drifted conditions of each NodeClaim.

Consolidatable: no pod event for the NodePool's consolidateAfter. The time of the last pod event is written to the
NodeClaim's status, so that a restart forgets nothing. The cloud is asked about drift in rounds over all instances;
a NodeClaim is reconciled again only where the answer has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.cloud.provider import Instance, InstanceNotFound
from dovetail.controllers import logs
from dovetail.controllers.conditions import Conditions, of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import drift
from dovetail.controllers.disruption.drift_loops import DriftLoops, Stop, version
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.worker import Again, Worker, every, reconcile_ids
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS, PODS
from dovetail.language import source
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp
from dovetail.model.pods import Pod
from dovetail.model.reasons import REASONS

#: Seconds between two rounds of asking the cloud.
DRIFT_ROUND_INTERVAL_S = 300.0
#: Pod events closer together than this are one, and so are requests for the instance types.
DEDUPE_WINDOW = timedelta(seconds=10)


class _Opinion(msgspec.Struct, frozen=True):
    """What the cloud reported of an instance, when, and for which versions of NodePool, NodeClass and NodeClaim."""

    about: tuple[object, ...]
    since: float
    reported: str | None


class _Demand(msgspec.Struct, frozen=True):
    """What NodeClaims are compared with: their NodePool and its NodeClass, and the versions of both."""

    pool: NodePool
    node_class: Mapping[str, Any]
    version: tuple[object, ...]


class DisruptionConditions:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._suspects: dict[str, tuple[str, float]] = {}
        self._opinions: dict[str, _Opinion] = {}
        self._loops = DriftLoops()
        self._events: dict[str, datetime] = {}
        self._offered: dict[str, tuple[tuple[object, ...], float, Mapping[str, InstanceType]]] = {}
        self._round_ids = reconcile_ids(context.chance, "nodeclaim.disruption.round")
        self._worker = Worker(
            "nodeclaim.disruption",
            self._reconcile,
            context.log,
            context.chance,
            resource=NODECLAIMS,
            metrics=context.metrics,
        )
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODEPOOLS, self._pool_changed)
        context.cluster_state.listen(EC2NODECLASSES, self._class_changed)
        context.cluster_state.listen(PODS, self._pod_changed)

    async def run(self) -> None:
        self._all()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._worker.run(), name="marks")
            await asyncio.sleep(DRIFT_ROUND_INTERVAL_S)
            await every(DRIFT_ROUND_INTERVAL_S, self._round, "nodeclaim.disruption", self._context.log, self._round_ids)

    def _all(self) -> None:
        for claim in self._context.cluster_state.claims.store.all():
            self._worker.add(claim.name)

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        if change.new is None:
            self._suspects.pop(change.object.metadata.uid, None)
            self._opinions.pop(change.object.metadata.uid, None)
            self._events.pop(change.object.name, None)
        else:
            self._worker.add(change.new.name)

    def _pool_changed(self, change: CacheChange[NodePool]) -> None:
        """Reconcile the NodeClaims of a NodePool whose spec or annotations changed; its status does not matter."""
        old, new = change.old, change.new
        if new is None:
            self._offered.pop(change.key, None)
            self._loops.forget(change.key)
            return
        if old and old.spec == new.spec and old.metadata.annotations == new.metadata.annotations:
            return
        for claim in self._context.cluster_state.claims_of(new.name):
            self._worker.add(claim.name)

    def _class_changed(self, change: CacheChange[dict[str, object]]) -> None:
        self._all()

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        """A pod that was bound to a node, ended there or began to terminate. What was there at start is no event."""
        old, new = change.old, change.new
        pod = new or old
        if pod is None or not pod.spec.node_name or any(o.kind == "DaemonSet" for o in pod.metadata.owner_references):
            return
        came = new is not None and old is not None and not old.spec.node_name
        ended = bool(new and old) and _ending(new) != _ending(old)
        if came or ended or new is None:
            node = self._context.cluster_state.nodes.store.get(pod.spec.node_name)
            claim = self._context.cluster_state.claim_for(node) if node is not None else None
            if claim is not None:
                self._events[claim.name] = self._context.clock.now()
                self._worker.add(claim.name)

    async def _reconcile(self, name: str) -> Again:
        context = self._context
        claim = context.cluster_state.claims.store.get(name)
        if claim is None or claim.metadata.deletion_timestamp is not None or claim.node_pool is None:
            return None
        pool = context.cluster_state.pools.store.get(claim.node_pool)
        if pool is None:
            return None
        now = context.clock.now()
        conditions = of_claim(claim, now)
        event, since = self._event(claim, now), _since(claim, conditions, now)
        if event is None and since is None:
            event = now
        consolidatable_in = self._update_consolidatable(claim, pool, conditions, event or since or now)
        again = await self._drift(claim, pool, conditions)
        fields = {"lastPodEventTime": stamp(event)} if event is not None else {}
        if conditions.changed or fields:
            body = status_patch(claim.metadata.resource_version, conditions, **fields)
            try:
                written = await context.kube.patch(NODECLAIMS, name, body, subresource="status", type=NodeClaim)
            except NotFound:
                return None
            context.cluster_state.assume(written)
            if event is not None and self._events.get(name) == event:
                self._events.pop(name)
        return min((delay_s for delay_s in (consolidatable_in, again) if delay_s is not None), default=None)

    def _event(self, claim: NodeClaim, now: datetime) -> datetime | None:
        """A pod event that the NodeClaim's status does not have yet."""
        event, opinion = self._events.get(claim.name), claim.status.last_pod_event_time
        if event is None or (opinion is not None and opinion <= now and event - opinion < DEDUPE_WINDOW):
            return None
        return event

    def _update_consolidatable(
        self, claim: NodeClaim, pool: NodePool, conditions: Conditions, last: datetime
    ) -> float | None:
        """Set Consolidatable, or return in how many seconds it may be set."""
        after = pool.spec.disruption.quiet_time
        if pool.static or after is None or not claim.is_true("Initialized"):
            conditions.clear("Consolidatable")
            return None
        left = after - (self._context.clock.now() - last)
        if left > timedelta(0):
            conditions.clear("Consolidatable")
            return left.total_seconds()
        conditions.true("Consolidatable")
        return None

    async def _drift(self, claim: NodeClaim, pool: NodePool, conditions: Conditions) -> float | None:
        """Set or clear Drifted; seconds until a first report must be confirmed."""
        if not claim.is_true("Launched"):
            conditions.clear("Drifted")
            return None
        if pool.name in self._loops.stopped:
            self._review_stop(pool)
        reason = drift.static(claim, pool)
        again = None
        if reason is None:
            reason, again = await self._confirmed_cloud_drift(claim, pool)
        if reason is None or self._repeats(claim, pool, reason, marked=conditions.status("Drifted") == "True"):
            conditions.clear("Drifted")
        elif conditions.status("Drifted") != "True":
            conditions.true("Drifted", reason, reason)
            self._context.log.info(
                "marking drifted", controller="nodeclaim.disruption", NodeClaim=logs.ref(claim.name), reason=reason
            )
        return again

    def _repeats(self, claim: NodeClaim, pool: NodePool, reason: str, *, marked: bool) -> bool:
        """Whether drift has stopped for a NodePool, or must stop now because it would only repeat."""
        if pool.name in self._loops.stopped:
            self._review_stop(pool)
        if marked or pool.name in self._loops.stopped:
            return pool.name in self._loops.stopped
        current = version(pool, self._context.instance_types.node_class(pool) or {})
        stop = self._loops.observe(claim, pool, current, reason, self._context.clock.now())
        if stop is not None:
            self._report_stop(pool, stop)
            for other in self._context.cluster_state.claims_of(pool.name):
                self._worker.add(other.name)
        return stop is not None

    def _review_stop(self, pool: NodePool) -> None:
        """Let drift resume where the NodePool or its NodeClass has changed."""
        if not self._loops.is_stopped(pool.name, version(pool, self._context.instance_types.node_class(pool) or {})):
            self._context.metrics.drift_stopped.labels(pool.name).set(0)
            self._context.event_publisher.publish(
                pool, "Normal", "DriftResumed", "Drift resumes: the NodePool or its NodeClass has changed"
            )
            self._record(pool, source("drift resumes: the NodePool or its NodeClass has changed"))

    def _report_stop(self, pool: NodePool, stop: Stop) -> None:
        context, code = self._context, REASONS["DRIFT_REPEATS"]
        why = f"{code.message(claim=stop.claim, reason=stop.reason)} (DRIFT_REPEATS)"
        context.metrics.drift_stopped.labels(pool.name).set(1)
        context.event_publisher.publish(pool, "Warning", "DriftStopped", f"Drift has stopped: {why}; {code.remedy}")
        context.log.error(
            "drift stopped for nodepool",
            controller="nodeclaim.disruption",
            NodePool=logs.ref(pool.name),
            code="DRIFT_REPEATS",
            error=why,
            remedy=code.remedy,
        )
        self._record(pool, f"{source('drift has stopped')}: {why}; {code.remedy}", "DRIFT_REPEATS")

    def _record(self, pool: NodePool, summary: str, reason: str = "") -> None:
        decision_history = self._context.decision_history
        decision_history.record(
            Decision(
                id=decision_history.new_id(),
                kind="drift-stop",
                time=decision_history.now(),
                reason=reason,
                subject=pool.name,
                summary=f"{pool.name}: {summary}",
                about=(pool.name,),
            )
        )

    async def _confirmed_cloud_drift(self, claim: NodeClaim, pool: NodePool) -> tuple[str | None, float | None]:
        """The drift that the cloud reports, once it has been asked again after a while and reports the same.

        A Drifted condition that a previous process left is the first report.
        """
        demand = self._demanded(pool) if claim.status.provider_id else None
        reported = await self._opinion(claim, demand) if demand is not None else None
        uid = claim.metadata.uid
        if reported is None:
            self._suspects.pop(uid, None)
            return None, None
        reported_at, opinion = self._opinions[uid].since, self._suspects.get(uid)
        if opinion is None or opinion[0] != reported:
            marked = claim.condition("Drifted")
            before = (
                drift.CONFIRM_AFTER_S
                if marked is not None and (marked.status, marked.reason) == ("True", reported)
                else 0.0
            )
            self._suspects[uid] = opinion = (reported, reported_at - before)
        if reported_at - opinion[1] >= drift.CONFIRM_AFTER_S:
            return reported, None
        return None, reported_at + drift.CONFIRM_AFTER_S - self._context.clock.monotonic()

    async def _round(self) -> None:
        """Ask the cloud again about all instances; a NodeClaim is reconciled where the answer changed."""
        context = self._context
        demands = {pool.name: self._demanded(pool) for pool in context.cluster_state.pools.store.all()}
        for instance in await context.cloud.instances():
            claim = context.cluster_state.owner(instance.provider_id)
            opinion = self._opinions.get(claim.metadata.uid) if claim is not None else None
            demand = demands.get(claim.node_pool or "") if claim is not None else None
            if claim is None or demand is None or opinion is None:
                continue
            if await self._opinion(claim, demand, instance) != opinion.reported:
                self._worker.add(claim.name)

    def _demanded(self, pool: NodePool) -> _Demand | None:
        """None while the NodePool's NodeClass is missing."""
        node_class = self._context.instance_types.node_class(pool)
        if node_class is None:
            return None
        version = node_class.get("metadata", {}).get("resourceVersion")
        return _Demand(pool, node_class, (pool.metadata.generation, version))

    async def _opinion(self, claim: NodeClaim, demand: _Demand, instance: Instance | None = None) -> str | None:
        """The cloud's report. It is asked again for new versions, or after a while; pod events are neither."""
        about = (*demand.version, claim.is_true("Initialized"))
        now, uid = self._context.clock.monotonic(), claim.metadata.uid
        opinion = self._opinions.get(uid)
        if opinion is None or opinion.about != about or now - opinion.since >= drift.CONFIRM_AFTER_S:
            opinion = _Opinion(about, now, await self._cloud_drift(claim, demand, instance))
            self._opinions[uid] = opinion
        return opinion.reported

    async def _cloud_drift(self, claim: NodeClaim, demand: _Demand, instance: Instance | None) -> str | None:
        context, meta = self._context, claim.metadata
        if (
            meta.creation_timestamp is not None
            and context.clock.now() - meta.creation_timestamp > drift.MIN_AGE_WITHOUT_TYPE
        ):
            type_gone = drift.type_gone(claim, await self._types(demand))
            if type_gone is not None:
                return type_gone
        if not demand.node_class:
            return None
        try:
            described = instance or await context.cloud.get(claim.status.provider_id)
        except InstanceNotFound:
            return None  # garbage collection handles it
        body = {"metadata": {"name": meta.name, "labels": meta.labels, "annotations": meta.annotations}}
        return await context.cloud.drift(body, described, demand.node_class)

    async def _types(self, demand: _Demand) -> Mapping[str, InstanceType]:
        """The instance types by name; NodeClaims that are reconciled together are compared with the same list."""
        name, now = demand.pool.name, self._context.clock.monotonic()
        opinion = self._offered.get(name)
        if opinion is None or opinion[0] != demand.version or now - opinion[1] >= DEDUPE_WINDOW.total_seconds():
            types = {
                instance_type.name: instance_type
                for instance_type in await self._context.instance_types.types(demand.pool)
            }
            opinion = self._offered[name] = (demand.version, now, types)
        return opinion[2]


def _since(claim: NodeClaim, conditions: Conditions, now: datetime) -> datetime | None:
    """The last pod event, or the initialization of the node. A date in the future was written by a wrong clock."""
    moments = (claim.status.last_pod_event_time, conditions.since("Initialized"))
    return max((moment for moment in moments if moment is not None and moment <= now), default=None)


def _ending(pod: Pod | None) -> bool:
    return pod is not None and (pod.finished or pod.terminating)
