"""The safe mode monitor: age of the view and health of the nodes, for safe mode, metrics and the decision history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dovetail.controllers.context import Context
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.rights import OF_WATCHES, WRITE_HISTORY
from dovetail.controllers.safemode import SafeModeCause
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.kube.errors import Forbidden, KubeError, Unauthorized
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODES
from dovetail.language import source
from dovetail.model.nodes import Node

PERIOD_S = 5.0
#: Seconds between two writes of decisions, at least.
MIN_SAVE_INTERVAL_S = 1.0
FORGET_INTERVAL_S = 3600.0


class SafeModeMonitor:
    """Checks every few seconds, and saves new decisions."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "observer")
        self._forgot = context.clock.monotonic()
        self._published: dict[SafeModeCause, str] = {}
        #: NodeClaims that changed since the last check, and of all initialized ones whether their node is ready.
        self._changed = {claim.name for claim in context.cluster_state.claims.store.all()}
        self._well: dict[str, bool] = {}
        context.cluster_state.listen(NODECLAIMS, lambda change: self._changed.add(change.key))
        context.cluster_state.listen(NODES, self._node_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._save_soon(), name="decision history")
            await every(PERIOD_S, self.check, "observer", self._context.log, self._ids)

    async def _save_soon(self) -> None:
        """Save new decisions a moment later, so that an operator who has just seen an event can read them."""
        while True:
            await self._context.decision_history.recorded()
            await every(MIN_SAVE_INTERVAL_S, self._write, "observer", self._context.log, self._ids, times=1)

    async def _write(self) -> None:
        try:
            await self._context.decision_history.save()
        except KubeError:
            self._context.metrics.runtime.history_failures.inc()
            raise
        except OSError as problem:
            self._not_written(problem)

    async def _forget(self) -> None:
        try:
            await self._context.decision_history.forget()
        except OSError as problem:
            self._not_written(problem)

    def _not_written(self, problem: OSError) -> None:
        """A full disk is no reason to restart the controller, or the process."""
        self._context.metrics.runtime.history_failures.inc()
        self._context.log.error("history not written", controller="observer", error=str(problem))

    def _node_changed(self, change: CacheChange[Node]) -> None:
        claims = (self._context.cluster_state.claim_for(node) for node in (change.old, change.new) if node is not None)
        self._changed.update(claim.name for claim in claims if claim is not None)

    async def check(self) -> None:
        context = self._context
        cluster_state, metrics = context.cluster_state, context.metrics
        age, failures = cluster_state.age(), cluster_state.failures()
        context.safety.view(age, ", ".join(map(str, failures.values())))
        metrics.view_age.set(age)
        metrics.synced.set(int(cluster_state.synced.is_set()))
        metrics.unsynced_seconds.set(0.0 if cluster_state.synced.is_set() else age)
        metrics.node_count.set(len(cluster_state.nodes.store))
        if self._changed:
            self._health()
        context.safety.review()
        self._review_rights()
        self._publish()
        await self._save(failures.values())
        if context.clock.monotonic() - self._forgot > FORGET_INTERVAL_S:
            self._forgot = context.clock.monotonic()
            await self._forget()

    def _review_rights(self) -> None:
        """Name the watches that are forbidden, and do without."""
        forbidden = self._context.cluster_state.forbidden()
        for resource, right in OF_WATCHES.items():
            if resource in forbidden:
                self._context.rights.deny(right, str(forbidden[resource]))
            else:
                self._context.rights.allow(right)

    async def _save(self, failures: Iterable[KubeError]) -> None:
        """Save decisions. A denial, there or by a watch, shows that we may no longer act."""
        denied = next((str(failure) for failure in failures if isinstance(failure, Unauthorized | Forbidden)), None)
        rights = self._context.rights
        if not rights.is_denied(WRITE_HISTORY):
            try:
                await self._write()
            except Unauthorized as problem:
                denied = problem.message
            except Forbidden as problem:
                rights.deny(WRITE_HISTORY, problem.message)
            else:
                rights.allow(WRITE_HISTORY)
        self._context.safety.set(SafeModeCause.NOT_AUTHORISED, denied)

    def _health(self) -> None:
        cluster_state = self._context.cluster_state
        for name in self._changed:
            claim = cluster_state.claims.store.get(name)
            self._well.pop(name, None)
            if claim is not None and claim.is_true("Initialized") and claim.metadata.deletion_timestamp is None:
                node = cluster_state.node_for(claim)
                self._well[name] = node is not None and node.ready
        self._changed.clear()
        well = sum(self._well.values())
        self._context.safety.health(len(self._well) - well, len(self._well))

    def _publish(self) -> None:
        """Publish safe mode when it begins, changes and ends: on every NodePool, and in the decision history."""
        context, causes = self._context, self._context.safety.causes()
        if causes.keys() == self._published.keys():
            return
        self._published = causes
        why = "; ".join(f"{cause}: {message}" for cause, message in causes.items())
        stops = source("Voluntary disruption has stopped: {why}").format(why=why)
        text = stops if causes else source("Voluntary disruption resumes")
        for pool in context.cluster_state.pools.store.all():
            context.event_publisher.publish(pool, "Warning" if causes else "Normal", "SafeMode", text)
        context.decision_history.record(
            Decision(
                id=context.decision_history.new_id(),
                kind="safe-mode",
                time=context.decision_history.now(),
                summary=text,
                reason=",".join(sorted(causes)),
                view_age=context.cluster_state.age(),
            )
        )
