"""The status of an EC2NodeClass: what its selectors select now, whether it can launch instances, and its finalizer.

The cloud resolves the selectors and reports problems; here they are written, resolved again every minute, and
the finalizer is removed when the last NodeClaim that used it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.controllers import logs
from dovetail.controllers.conditions import FALSE, TRUE, Conditions, ConditionSet
from dovetail.controllers.context import Context
from dovetail.controllers.nodepool.hash import rehash
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import EC2NODECLASSES, NODECLAIMS
from dovetail.model.kinds import nodeclass_hash
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Condition, ObjectMeta

FINALIZER = "karpenter.k8s.aws/termination"
#: Between two resolutions of the selectors, in seconds.
RESOLVE_INTERVAL_S = 60.0


class NodeClasses:
    """The controller `nodeclass`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker(
            "nodeclass",
            self.reconcile,
            context.log,
            context.chance,
            workers=5,
            resource=EC2NODECLASSES,
            metrics=context.metrics,
        )
        context.cluster_state.listen(EC2NODECLASSES, self._class_changed)
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)

    async def run(self) -> None:
        for node_class in self._context.cluster_state.node_classes.store.all():
            self._worker.add(_meta(node_class).name)
        await self._worker.run()

    def _class_changed(self, change: CacheChange[dict[str, Any]]) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or _resolution_inputs(old) != _resolution_inputs(new)):
            self._worker.add(change.key)

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        """Reconcile a NodeClass that waits for its NodeClaims whenever one is gone."""
        name = change.object.spec.node_class_ref.name
        node_class = self._context.cluster_state.node_classes.store.get(name)
        if change.new is None and node_class is not None and _meta(node_class).deletion_timestamp is not None:
            self._worker.add(name)

    async def reconcile(self, name: str) -> Again:
        context = self._context
        node_class = context.cluster_state.node_classes.store.get(name)
        if node_class is None:
            return None
        meta = _meta(node_class)
        if meta.deletion_timestamp is not None:
            return await self._finalize(node_class, meta)
        if FINALIZER not in meta.finalizers:
            body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": [*meta.finalizers, FINALIZER]}}
            await context.kube.patch(EC2NODECLASSES, name, body)
        await self._write(node_class, meta)
        return RESOLVE_INTERVAL_S

    async def _write(self, node_class: Mapping[str, Any], meta: ObjectMeta) -> None:
        resolution = await self._context.cloud.resolve(node_class, self._pools(meta.name))
        if any(meta.annotations.get(key) != value for key, value in resolution.annotations.items()):
            await self._rehash(meta, resolution.annotations)
            carried = {"metadata": {"annotations": dict(resolution.annotations)}}
            await self._context.kube.patch(EC2NODECLASSES, meta.name, carried)
        conditions = Conditions(
            ConditionSet(tuple(condition[0] for condition in resolution.conditions)),
            _conditions(node_class),
            now=self._context.clock.now(),
            created=meta.creation_timestamp,
            generation=meta.generation,
        )
        for kind, status, reason, message in resolution.conditions:
            if status == TRUE:
                conditions.true(kind, reason, message)
            elif status == FALSE:
                conditions.false(kind, reason or kind, message)
            else:
                conditions.unknown(kind, reason or kind, message)
        old_status = node_class.get("status") or {}
        if not conditions.changed and all(old_status.get(key) == value for key, value in resolution.status.items()):
            return
        for kind, detail in resolution.details.items():
            self._context.log.error(
                "validating nodeclass",
                controller="nodeclass",
                NodeClass=logs.ref(meta.name),
                condition=kind,
                error=detail,
            )
        body = {"status": {**resolution.status, "conditions": conditions.manifest()}}
        try:
            await self._context.kube.patch(EC2NODECLASSES, meta.name, body, subresource="status")
        except NotFound:
            return

    async def _rehash(self, meta: ObjectMeta, marks: Mapping[str, str]) -> None:
        """NodeClaims of a NodePool with kubelet settings of its own have another hash, and keep it until their end."""
        version, cluster_state = nodeclass_hash.VERSION_ANNOTATION, self._context.cluster_state
        if version not in marks or meta.annotations.get(version) == marks[version]:
            return
        own = {pool.name for pool in cluster_state.pools.store.all() if KUBELET_ANNOTATION in pool.metadata.annotations}
        plain = [claim for claim in self._users(meta.name) if claim.node_pool not in own]
        await rehash(self._context.kube, plain, marks, version)

    def _pools(self, name: str) -> list[dict[str, Any]]:
        """The NodePools that use a NodeClass."""
        pools = self._context.cluster_state.pools.store.all()
        return [
            msgspec.to_builtins(pool)
            for pool in sorted(pools, key=lambda pool: pool.name)
            if pool.spec.template.spec.node_class_ref.name == name
        ]

    def _users(self, name: str) -> list[NodeClaim]:
        return [
            claim
            for claim in self._context.cluster_state.claims.store.all()
            if claim.spec.node_class_ref.name == name and claim.spec.node_class_ref.kind == "EC2NodeClass"
        ]

    async def _finalize(self, node_class: Mapping[str, Any], meta: ObjectMeta) -> Again:
        context = self._context
        if FINALIZER not in meta.finalizers:
            return None
        users = [claim.name for claim in self._users(meta.name)]
        if users:
            context.log.info(
                "waiting on nodeclaims",
                controller="nodeclass",
                NodeClass=logs.ref(meta.name),
                NodeClaims=logs.some(users),
            )
            return RESOLVE_INTERVAL_S
        await context.cloud.release(node_class)
        left = [finalizer for finalizer in meta.finalizers if finalizer != FINALIZER]
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}}
        try:
            await context.kube.patch(EC2NODECLASSES, meta.name, body)
        except NotFound:
            return None
        return None


def _meta(node_class: Mapping[str, Any]) -> ObjectMeta:
    return msgspec.convert(node_class.get("metadata") or {}, ObjectMeta)


def _conditions(node_class: Mapping[str, Any]) -> tuple[Condition, ...]:
    return msgspec.convert((node_class.get("status") or {}).get("conditions") or (), tuple[Condition, ...])


def _resolution_inputs(node_class: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a resolution depends on: not our own status. Annotating a NodeClass requests one."""
    metadata = node_class.get("metadata") or {}
    notes = nodeclass_hash.unmarked(metadata.get("annotations"))
    return node_class.get("spec"), notes, metadata.get("deletionTimestamp"), metadata.get("finalizers")
