"""Machines: the NodeClaims of a Provisioner's NodePool, shown as the v1alpha5 kind.

They are views, owned by their NodeClaims; `provisioner` converts the Provisioners and AWSNodeTemplates.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import MACHINES, NODECLAIMS
from dovetail.model.kinds import convert
from dovetail.model.kinds.adopt import PROVISIONER_ANNOTATION
from dovetail.model.kinds.nodeclaim import NodeClaim

Json = dict[str, Any]


class MachineViews:
    """The controller `legacy`. A cluster without Provisioners costs it nothing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker(
            "legacy",
            self._show,
            context.log,
            context.chance,
            workers=4,
            resource=MACHINES,
            metrics=context.metrics,
        )
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)

    async def run(self) -> None:
        for claim in self._context.cluster_state.claims.store.all():
            self._note(claim)
        await self._worker.run()

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        if change.new is not None:
            self._note(change.new)

    def _note(self, claim: NodeClaim) -> None:
        pool = self._context.cluster_state.pools.store.get(claim.node_pool or "")
        if pool is not None and PROVISIONER_ANNOTATION in pool.metadata.annotations:
            self._worker.add(claim.name)

    async def _show(self, name: str) -> Again:
        """Write the NodeClaim as a Machine, for clients that only know v1alpha5."""
        context = self._context
        claim = context.cluster_state.claims.store.get(name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return None
        plain: Json = msgspec.to_builtins(claim)
        machine = convert.from_v1({**plain, "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}, "v1alpha5")
        owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": claim.metadata.uid}
        labels = machine["metadata"].get("labels") or {}
        body = {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}, "spec": machine["spec"]}
        try:
            await context.kube.create(MACHINES, body)
        except AlreadyExists:
            await context.kube.patch(MACHINES, name, {"metadata": {"labels": labels}})
        except NotFound:
            return None  # the kind is not installed
        if machine.get("status"):
            await context.kube.patch(MACHINES, name, {"status": machine["status"]}, subresource="status")
        return None
