"""Who is still making pods: owners that want more of them than there are.

A control plane that is slow leaves gaps in a burst that look like its end, and buying for a part of a Deployment costs
more than buying for all of it. Owners are asked for only when a batch is about to close: a watch on every ReplicaSet
would cost more than it tells.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.cluster.mirror import Mirror
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import JOBS, REPLICASETS, REPLICATIONCONTROLLERS, STATEFULSETS, Resource
from dovetail.model.meta import OwnerReference, condition
from dovetail.model.workloads import Job, ReplicaSet, ReplicationController, StatefulSet

Owner = ReplicaSet | ReplicationController | StatefulSet | Job

_KINDS: Mapping[str, tuple[Resource, Any]] = {
    "ReplicaSet": (REPLICASETS, ReplicaSet),
    "ReplicationController": (REPLICATIONCONTROLLERS, ReplicationController),
    "StatefulSet": (STATEFULSETS, StatefulSet),
    "Job": (JOBS, Job),
}
#: How many owners are asked for at once: the last to have made a pod.
MOST = 20


def wanted(owner: Owner) -> int:
    """How many pods an owner means to have at once; none if it makes them one by one, or cannot make any."""
    if isinstance(owner, Job):
        spec = owner.spec
        left = spec.parallelism if spec.completions is None else spec.completions - owner.status.succeeded
        return 0 if spec.suspend else max(0, min(spec.parallelism, left))
    if isinstance(owner, StatefulSet) and owner.spec.pod_management_policy != "Parallel":
        return 0
    refused = condition(owner.status.conditions, "ReplicaFailure")
    return 0 if refused is not None and refused.status == "True" else owner.spec.replicas


class Filling:
    """Asks whether more pods are about to come from the owners of some."""

    def __init__(self, kube: Kube, mirror: Mirror) -> None:
        self._kube = kube
        self._mirror = mirror

    async def __call__(self, uids: Iterable[str]) -> bool:
        """`uids` of pods in the order they came; whatever else is among them has no owner."""
        owners = self._owners(uids)
        found = await asyncio.gather(*(self._asked(namespace, owner) for namespace, owner in owners.values()))
        short = {uid: count for uid, count in zip(owners, found, strict=True) if count}
        there = self._there(short) if short else Counter()
        return any(there[uid] < count for uid, count in short.items())

    def _owners(self, uids: Iterable[str]) -> dict[str, tuple[str, OwnerReference]]:
        found: dict[str, tuple[str, OwnerReference]] = {}
        for pod in map(self._mirror.pod, reversed(list(uids))):
            owner = pod.metadata.controller if pod is not None else None
            if pod is not None and owner is not None and owner.kind in _KINDS:
                found.setdefault(owner.uid, (pod.metadata.namespace, owner))
                if len(found) == MOST:
                    break
        return found

    async def _asked(self, namespace: str, owner: OwnerReference) -> int:
        """How many pods it wants. Nobody is waited for whom we cannot ask: a batch closes whatever the server says."""
        resource, view = _KINDS[owner.kind]
        try:
            return wanted(await self._kube.get(resource, owner.name, namespace, type=view))
        except KubeError:
            return 0

    def _there(self, owners: Mapping[str, int]) -> Counter[str]:
        found: Counter[str] = Counter()
        for pod in self._mirror.pods.store.all():
            owner = pod.metadata.controller
            if owner is not None and owner.uid in owners and not pod.finished and not pod.terminating:
                found[owner.uid] += 1
        return found
