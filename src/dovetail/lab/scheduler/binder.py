"""What the scheduler writes: bindings, the PodScheduled condition, and the deletion of preemption victims."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS
from dovetail.lab.controllers.timestamps import stamp
from dovetail.model.fit import ClusterNodes
from dovetail.model.fit.binding import find_volume
from dovetail.model.fit.storage import claim_volumes
from dovetail.model.meta import condition
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolumeClaim

_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_VOLUME_BIND_TIMEOUT_S = 600.0
_VOLUME_POLL_S = 0.5


class BindFailed(RuntimeError):
    """The pod's volumes did not come in time."""


def unscheduled(clock: Clock, pod: Pod, reason: str, message: str, node: str | None) -> dict[str, Any]:
    """The status patch of a pod without a node, with its nominated node (an empty name withdraws the nomination).

    Empty where the status has it already.
    """
    status: dict[str, Any] = {}
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or (scheduled.status, scheduled.reason, scheduled.message) != ("False", reason, message):
        since = scheduled.last_transition_time if scheduled is not None and scheduled.status == "False" else None
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastProbeTime": None,
                "lastTransitionTime": stamp(since or clock.now()),
                "observedGeneration": pod.metadata.generation or None,
            }
        ]
    if node is not None and node != pod.status.nominated_node_name:
        status["nominatedNodeName"] = node or None
    return status


async def evict_for(kube: Kube, clock: Clock, victim: Pod) -> None:
    """Delete a preemption victim."""
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastProbeTime": None,
        "lastTransitionTime": stamp(clock.now()),
        "observedGeneration": victim.metadata.generation or None,
    }
    await patch_status(kube, victim, {"conditions": [target]})
    await kube.delete(PODS, victim.metadata.name, victim.metadata.namespace, uid=victim.metadata.uid or None)


async def patch_status(kube: Kube, pod: Pod, status: dict[str, Any]) -> None:
    """Write a part of a pod's status."""
    meta = pod.metadata
    body = {"metadata": {"uid": meta.uid}, "status": status}
    await kube.patch(PODS, meta.name, body, meta.namespace, kind="strategic", subresource="status")


async def bind_volumes(kube: Kube, clock: Clock, cluster: ClusterNodes, pod: Pod, node: str) -> None:
    """Have the waiting volumes of a pod made or chosen for its node; returns when all are bound."""
    claims = [
        claim
        for _, name in claim_volumes(pod)
        if (claim := cluster.storage.claim(pod.metadata.namespace, name)) is not None and not claim.bound
    ]
    taken: set[str] = set()
    for claim in claims:
        await _choose(kube, cluster, claim, node, taken)
    deadline = clock.monotonic() + _VOLUME_BIND_TIMEOUT_S
    while claims:
        if clock.monotonic() >= deadline:
            raise BindFailed("binding volumes: timed out waiting for the condition")
        await asyncio.sleep(_VOLUME_POLL_S)
        claims = [claim for claim in claims if not _bound(cluster, claim)]


async def _choose(kube: Kube, cluster: ClusterNodes, claim: PersistentVolumeClaim, node: str, taken: set[str]) -> None:
    """Bind a claim to the volume found for it, or name the node for which one must be provisioned."""
    info = cluster.nodes.get(node)
    volume = find_volume(claim, cluster.storage, info.labels if info else {}, taken)
    meta = claim.metadata
    if volume is None:
        body = {"metadata": {"annotations": {_SELECTED_NODE: node}}}
        await kube.patch(PERSISTENTVOLUMECLAIMS, meta.name, body, meta.namespace)
        return
    taken.add(volume.metadata.name)
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
    marks = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    await kube.patch(PERSISTENTVOLUMES, volume.metadata.name, {"metadata": marks, "spec": {"claimRef": reference}})


def _bound(cluster: ClusterNodes, claim: PersistentVolumeClaim) -> bool:
    now = cluster.storage.claims.get(claim.metadata.key)
    if now is None:
        raise NotFound(404, "NotFound", f'persistentvolumeclaim "{claim.metadata.name}" not found')
    return now.bound
