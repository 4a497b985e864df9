"""Taints that this program puts on nodes and takes off, each with the node's newest version as precondition.

The whole node is written back: the roles of Cluster Autoscaler's manifests grant `update` of nodes, and no `patch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dovetail.autoscalers.node_groups.annotations import DELETION_CANDIDATE, TO_BE_DELETED
from dovetail.kube.client import Kube
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.resources import NODES
from dovetail.model.taints import NO_SCHEDULE, PREFER_NO_SCHEDULE

MAX_CONFLICTS = 5


async def mark_to_be_deleted(kube: Kube, node: str, now: datetime, *, cordon: bool) -> bool:
    """No new pods from now on. False if the node is gone."""
    taint = {"key": TO_BE_DELETED, "value": str(int(now.timestamp())), "effect": NO_SCHEDULE}
    return await _edit(kube, node, add=taint, cordon=True if cordon else None)


async def unmark_to_be_deleted(kube: Kube, node: str, *, cordon: bool) -> bool:
    """The node stays after all."""
    return await _edit(kube, node, remove=(TO_BE_DELETED,), cordon=False if cordon else None)


async def mark_candidate(kube: Kube, node: str, now: datetime) -> bool:
    """Pods should rather go elsewhere."""
    taint = {"key": DELETION_CANDIDATE, "value": str(int(now.timestamp())), "effect": PREFER_NO_SCHEDULE}
    return await _edit(kube, node, add=taint)


async def unmark_candidate(kube: Kube, node: str) -> bool:
    return await _edit(kube, node, remove=(DELETION_CANDIDATE,))


async def _edit(
    kube: Kube,
    name: str,
    *,
    add: dict[str, str] | None = None,
    remove: Sequence[str] = (),
    cordon: bool | None = None,
) -> bool:
    for attempt in range(MAX_CONFLICTS):
        try:
            node = await kube.get(NODES, name, type=dict)
        except NotFound:
            return False
        spec: dict[str, Any] = node.get("spec") or {}
        before = list(spec.get("taints") or ())
        taints = [taint for taint in before if taint.get("key") not in remove]
        if add is not None and not any(taint.get("key") == add["key"] for taint in taints):
            taints.append(add)
        if taints == before:
            return True
        changed = {key: value for key, value in spec.items() if key != "taints"}
        if taints:
            changed["taints"] = taints
        if cordon is not None:
            changed.pop("unschedulable", None)
            changed |= {"unschedulable": True} if cordon else {}
        try:
            await kube.update(NODES, {**node, "spec": changed})
        except NotFound:
            return False
        except Conflict:
            if attempt == MAX_CONFLICTS - 1:
                raise
            continue
        return True
    return False
