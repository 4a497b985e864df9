"""External deletions: Nodes, NodeClaims and NodePools that another actor deletes are in the history too.

A deletion by hand is a decision like ours, and an operator who asks later why a node is gone must find it.
Kubernetes does not record the actor; what was deleted, and when, it does.
"""

from __future__ import annotations

from typing import NamedTuple

from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.deletion import record
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODES
from dovetail.language import message
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node


class _Deleted(NamedTuple):
    kind: str
    reason: str


_NODE, _CLAIM = _Deleted("Node", "node_deleted"), _Deleted("NodeClaim", "nodeclaim_deleted")


class ExternalDeletions:
    """Records each deletion once: by what was deleted first."""

    def __init__(self, context: Context) -> None:
        self._context = context
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODES, self._node_changed)

    async def run(self) -> None:
        """Record what was deleted while no controller was running, unless a previous process has recorded it."""
        context = self._context
        terminations = [
            decision for decision in context.decision_history.decisions() if decision.kind in ("disrupt", "end")
        ]
        recorded = {name for termination in terminations for name in termination.about}
        for claim in context.cluster_state.claims.store.all():
            node = context.cluster_state.node_for(claim)
            deleted_at = claim.metadata.deletion_timestamp or (
                node.metadata.deletion_timestamp if node is not None else None
            )
            if deleted_at is None:
                continue
            if claim.name in recorded:
                context.deleted_claims.add(claim.metadata.uid)
            what, reason = _NODE if claim.metadata.deletion_timestamp is None else _CLAIM
            self._record(
                claim,
                reason,
                message(
                    "its {what} was deleted at {stamp}, while no controller was running",
                    what=what,
                    stamp=stamp(deleted_at),
                ),
            )

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        old, new = change.old, change.new
        was_deleted = old is None or old.metadata.deletion_timestamp is not None
        if not was_deleted and (new is None or new.metadata.deletion_timestamp is not None):
            self._claim_deleted(change.object)
        if new is None:
            self._context.deleted_claims.discard(change.object.metadata.uid)

    def _claim_deleted(self, claim: NodeClaim) -> None:
        pool = self._context.cluster_state.pools.store.get(claim.node_pool or "")
        if claim.node_pool and (pool is None or pool.metadata.deletion_timestamp is not None):
            self._record(
                claim, "nodepool_deleted", message("its NodePool {node_pool} was deleted", node_pool=claim.node_pool)
            )
        else:
            self._record(claim, _CLAIM.reason, message("its NodeClaim was deleted by another actor"))

    def _node_changed(self, change: CacheChange[Node]) -> None:
        """A Node that is deleted before its NodeClaim; one without our finalizer is not ours to record."""
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.deletion_timestamp or not new.metadata.deletion_timestamp:
            return
        claim = self._context.cluster_state.claim_for(new)
        if claim is not None and claim.metadata.deletion_timestamp is None:
            self._record(
                claim, _NODE.reason, message("its Node {change} was deleted by another actor", change=change.key)
            )

    def _record(self, claim: NodeClaim, reason: str, why: str) -> None:
        context = self._context
        if claim.metadata.uid in context.deleted_claims:
            return
        context.deleted_claims.add(claim.metadata.uid)
        context.log.info(
            message("nodeclaim deleted by another actor"),
            controller="external-deletions",
            NodeClaim=logs.ref(claim.name),
            Node=logs.ref(claim.status.node_name),
            reason=reason,
            decision=record(context, claim, reason, why),
        )
