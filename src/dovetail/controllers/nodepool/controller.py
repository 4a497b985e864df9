"""The status of a NodePool: validation, readiness of its NodeClass, usage, registration health.

One controller writes all of it, in one patch, so that no write overwrites another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.cluster.nodepool_usage import NodePoolUsage
from dovetail.controllers.conditions import FALSE, POOL, TRUE, Conditions, manifest
from dovetail.controllers.context import Context
from dovetail.controllers.nodepool.hash import rehash
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS
from dovetail.language import source
from dovetail.model.duration import DurationError
from dovetail.model.kinds import nodepool_hash
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.kinds.validation import pool_problems
from dovetail.model.quantity import format_resources, resources

#: Usage is updated this many seconds after a change at the latest.
COUNT_AFTER = 1.0


class NodePools:
    """The controllers `nodepool.*` in one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._usage = NodePoolUsage(context.cluster_state)
        self._worker = Worker(
            "nodepool",
            self.reconcile,
            context.log,
            context.chance,
            workers=5,
            resource=NODEPOOLS,
            metrics=context.metrics,
        )
        context.cluster_state.listen(NODEPOOLS, self._pool_changed)
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(EC2NODECLASSES, self._class_changed)
        context.health.listen(lambda pool: self._worker.add(pool, after=COUNT_AFTER))

    async def run(self) -> None:
        self._all()
        await self._worker.run()

    def _all(self) -> None:
        for pool in self._context.cluster_state.pools.store.all():
            self._worker.add(pool.name)

    def _pool_changed(self, change: CacheChange[NodePool]) -> None:
        if change.new is not None:
            self._worker.add(change.key)
            return
        metrics = self._context.metrics
        for gauge in (metrics.allowed_disruptions, metrics.consuming_budgets, metrics.pending_deletion_costs):
            gauge.remove_by_labels({"nodepool": change.key})

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        pool, old, new = change.object.node_pool, change.old, change.new
        if pool and (old is None or new is None or old.status.capacity != new.status.capacity):
            self._worker.add(pool, after=COUNT_AFTER)

    def _class_changed(self, change: CacheChange[Any]) -> None:
        self._all()

    async def reconcile(self, name: str) -> Again:
        context = self._context
        pool = context.cluster_state.pools.store.get(name)
        if pool is None:
            return None
        await self._hash(pool)
        conditions = Conditions(
            POOL,
            pool.status.conditions,
            now=context.clock.now(),
            created=pool.metadata.creation_timestamp,
            generation=pool.metadata.generation,
        )
        self._validate(pool, conditions)
        node_class = context.instance_types.node_class(pool)
        self._class(node_class, conditions)
        self._health(pool, node_class, conditions)
        await self._write(pool, conditions, self._counted(pool, node_class))
        return None

    async def _hash(self, pool: NodePool) -> None:
        try:
            hash_annotations = {
                nodepool_hash.HASH_ANNOTATION: nodepool_hash.pool_hash(pool),
                nodepool_hash.VERSION_ANNOTATION: nodepool_hash.VERSION,
            }
        except DurationError:
            return  # too long to be counted: ValidationSucceeded reports it
        annotations = pool.metadata.annotations
        if annotations.get(nodepool_hash.VERSION_ANNOTATION) != nodepool_hash.VERSION:
            cluster_state = self._context.cluster_state
            await rehash(
                self._context.kube,
                cluster_state.claims_of(pool.name),
                hash_annotations,
                nodepool_hash.VERSION_ANNOTATION,
            )
        if any(annotations.get(key) != value for key, value in hash_annotations.items()):
            try:
                await self._context.kube.patch(NODEPOOLS, pool.name, {"metadata": {"annotations": hash_annotations}})
            except NotFound:
                return

    @staticmethod
    def _validate(pool: NodePool, conditions: Conditions) -> None:
        problems = pool_problems(pool)
        if problems:
            conditions.false("ValidationSucceeded", "NodePoolValidationFailed", "; ".join(problems))
        else:
            conditions.true("ValidationSucceeded")

    @staticmethod
    def _class(node_class: Mapping[str, Any] | None, conditions: Conditions) -> None:
        if node_class is None:
            conditions.false("NodeClassReady", "NodeClassNotFound", source("NodeClass not found on cluster"))
            return
        if (node_class.get("metadata") or {}).get("deletionTimestamp"):
            conditions.false("NodeClassReady", "NodeClassTerminating", source("NodeClass is Terminating"))
            return
        if not node_class:
            conditions.true("NodeClassReady")
            return
        ready = _ready(node_class)
        if ready is None or ready.get("status") == "Unknown":
            conditions.false("NodeClassReady", "NodeClassReadinessUnknown", source("Node Class Readiness Unknown"))
        elif ready.get("status") == FALSE:
            conditions.false("NodeClassReady", ready.get("reason") or "NodeClassNotReady", ready.get("message") or "")
        else:
            conditions.true("NodeClassReady")

    def _health(self, pool: NodePool, node_class: Mapping[str, Any] | None, conditions: Conditions) -> None:
        health, kind = self._context.health, "NodeRegistrationHealthy"
        current = next((condition for condition in pool.status.conditions if condition.type == kind), None)
        if not health.known(pool.name) and current is not None and current.status != "Unknown":
            health.reset(pool.name, current.status == TRUE)
        changed = current is None or current.observed_generation != pool.metadata.generation
        if changed or pool.status.node_class_observed_generation != _generation(node_class):
            health.reset(pool.name)
        status = health.status(pool.name)
        if status is None:
            conditions.unknown(kind, "AwaitingReconciliation", "object is awaiting reconciliation")
        elif status:
            conditions.true(kind)
        else:
            conditions.false(kind, *health.why(pool.name))

    def _counted(self, pool: NodePool, node_class: Mapping[str, Any] | None) -> dict[str, Any]:
        used = self._usage.of(pool.name)
        return {
            "resources": format_resources(used),
            "nodes": used["nodes"],
            "nodeClassObservedGeneration": _generation(node_class),
        }

    async def _write(self, pool: NodePool, conditions: Conditions, fields: dict[str, Any]) -> None:
        same = (
            resources(pool.status.resources) == resources(fields["resources"])
            and pool.status.nodes == fields["nodes"]
            and pool.status.node_class_observed_generation == fields["nodeClassObservedGeneration"]
        )
        if same and not conditions.changed:
            return
        gone = {name: None for name in pool.status.resources if name not in fields["resources"]}
        body = {
            "status": {
                **fields,
                "resources": {**fields["resources"], **gone},
                "conditions": [manifest(condition) for condition in conditions.all()],
            }
        }
        try:
            await self._context.kube.patch(NODEPOOLS, pool.name, body, subresource="status")
        except NotFound:
            return


def _ready(node_class: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = (node_class.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Ready"), None)


def _generation(node_class: Mapping[str, Any] | None) -> int:
    return int(((node_class or {}).get("metadata") or {}).get("generation") or 0)
