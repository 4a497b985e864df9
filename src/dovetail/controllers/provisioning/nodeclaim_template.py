"""The NodeClaim of a planned node.

It carries everything that its launch, its registration and its binding need, so that the next process can
continue after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.cluster import nodepools
from dovetail.model import wellknown
from dovetail.model.kinds import nodepool_hash
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.quantity import format_resources
from dovetail.planner.plan import PlannedNode


def manifest(planned: PlannedNode, pool: NodePool, decision: str, pods: Sequence[str]) -> dict[str, Any]:
    """`pods` are the UIDs of the pods it is created for."""
    template = pool.spec.template
    spec: dict[str, Any] = {
        "requirements": [dict(requirement) for requirement in planned.requirements],
        "resources": {"requests": format_resources(planned.requests)},
        "nodeClassRef": msgspec.to_builtins(template.spec.node_class_ref),
        "expireAfter": template.spec.expire_after,
    }
    if template.spec.taints:
        spec["taints"] = msgspec.to_builtins(template.spec.taints)
    if template.spec.startup_taints:
        spec["startupTaints"] = msgspec.to_builtins(template.spec.startup_taints)
    if template.spec.termination_grace_period is not None:
        spec["terminationGracePeriod"] = template.spec.termination_grace_period
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "generateName": f"{pool.name}-",
            "labels": {**planned.labels, **nodepools.labels(pool)},
            "annotations": _annotations(planned, pool, decision, pods),
            "finalizers": [wellknown.FINALIZER],
            "ownerReferences": [owner(pool)],
        },
        "spec": spec,
    }


def static(pool: NodePool, decision: str) -> dict[str, Any]:
    """One more NodeClaim of a static NodePool: whatever its template allows, for no pod in particular."""
    template = pool.spec.template
    spec: dict[str, Any] = msgspec.to_builtins(template.spec)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "generateName": f"{pool.name}-",
            "labels": nodepools.labels(pool),
            "annotations": {
                **template.metadata.annotations,
                nodepool_hash.HASH_ANNOTATION: nodepool_hash.pool_hash(pool),
                nodepool_hash.VERSION_ANNOTATION: nodepool_hash.VERSION,
                wellknown.NODEPOOL_GENERATION: str(pool.metadata.generation),
                wellknown.DECISION: decision,
            },
            "finalizers": [wellknown.FINALIZER],
            "ownerReferences": [owner(pool)],
        },
        "spec": {
            **{key: value for key, value in spec.items() if value not in (None, [], {})},
            "requirements": spec.get("requirements") or [],
        },
    }


def owner(pool: NodePool) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "name": pool.name,
        "uid": pool.metadata.uid,
        "blockOwnerDeletion": True,
    }


def _annotations(planned: PlannedNode, pool: NodePool, decision: str, pods: Sequence[str]) -> dict[str, str]:
    return {
        **pool.spec.template.metadata.annotations,
        nodepool_hash.HASH_ANNOTATION: nodepool_hash.pool_hash(pool),
        nodepool_hash.VERSION_ANNOTATION: nodepool_hash.VERSION,
        wellknown.NODEPOOL_GENERATION: str(pool.metadata.generation),
        wellknown.MIN_VALUES_RELAXED: str(planned.min_values_relaxed).lower(),
        wellknown.DECISION: decision,
        wellknown.PRICE: f"{planned.price:.6g}",
        **({wellknown.PODS: ",".join(pods)} if pods else {}),
    }
