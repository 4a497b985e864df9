"""Registration: a new node gets its NodeClaim's labels, annotations, taints and finalizer.

The unregistered taint is removed in the same write. If pods were planned for the node, our taint takes
its place in that very write, so that no other pod is scheduled in between.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node, Taint
from dovetail.model.taints import PREFER_NO_SCHEDULE, merge, same


def patch(node: Node, claim: NodeClaim, *, placing: Taint | None = None) -> dict[str, Any]:
    """The merge patch that registers a node; it loses to any write in between, because it replaces lists.

    `placing` is the taint of a node that planned pods will be bound to. One that keeps no pod away goes with a cordon.
    """
    metadata: dict[str, Any] = {
        "resourceVersion": node.metadata.resource_version,
        "labels": {**claim.metadata.labels, wellknown.REGISTERED: "true"},
        "annotations": {k: v for k, v in claim.metadata.annotations.items() if k not in wellknown.PRIVATE},
        "finalizers": list(dict.fromkeys((*node.metadata.finalizers, wellknown.FINALIZER))),
        "ownerReferences": _owners(node, claim),
    }
    spec: dict[str, Any] = {"taints": [manifest(t) for t in taints(node, claim, placing)]}
    if placing is not None and placing.effect == PREFER_NO_SCHEDULE:
        spec["unschedulable"] = True
    return {"metadata": metadata, "spec": spec}


def taints(node: Node, claim: NodeClaim, placing: Taint | None = None) -> tuple[Taint, ...]:
    """The taints of a registered node."""
    kept = tuple(taint for taint in node.spec.taints if not same(taint, wellknown.UNREGISTERED_TAINT))
    if node.metadata.labels.get(wellknown.DO_NOT_SYNC_TAINTS) != "true":
        kept = merge(kept, map(_taint, (*claim.spec.taints, *claim.spec.startup_taints)))
    return merge(kept, (placing,)) if placing is not None else kept


def manifest(taint: Taint) -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(taint)
    return written


def taint_missing(node: Node) -> bool:
    """An unregistered node without the unregistered taint: pods may have been scheduled too early."""
    return node.metadata.labels.get(wellknown.REGISTERED) != "true" and not any(
        same(taint, wellknown.UNREGISTERED_TAINT) for taint in node.spec.taints
    )


def _taint(taint: object) -> Taint:
    return msgspec.convert(taint, Taint, from_attributes=True)


def _owners(node: Node, claim: NodeClaim) -> list[dict[str, Any]]:
    others = [msgspec.to_builtins(owner) for owner in node.metadata.owner_references if owner.uid != claim.metadata.uid]
    mine = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": claim.name,
        "uid": claim.metadata.uid,
        "blockOwnerDeletion": True,
    }
    return [*others, mine]
