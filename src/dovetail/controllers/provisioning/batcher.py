"""The batch window: pods come in bursts, and one plan for a burst is cheaper than many for its parts.

The window opens with the first pod, is extended by `idle` with every pod not seen in it yet, and never
stays open beyond `longest`. The same pod again extends nothing, so unschedulable pods cannot hold it open.
A gap in a burst does not close it while an owner is still creating pods, unless the gap is a long one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from dovetail.clock import Clock
from dovetail.cluster.state import ClusterState
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import JOBS, REPLICASETS, REPLICATIONCONTROLLERS, STATEFULSETS, Resource
from dovetail.model.meta import OwnerReference, condition
from dovetail.model.workloads import Job, ReplicaSet, ReplicationController, StatefulSet

#: After so many seconds without a new pod there will likely be none.
LULL_S = 0.25
#: How many idle periods may pass without a new pod while an owner is still creating some.
MAX_IDLE_PERIODS = 3.0


async def _no_owner(uids: Iterable[str]) -> bool:
    return False


class Batcher:
    """Collects triggers into batches. `filling` says whether the owners of a batch are still creating pods.

    `lull` is set when no pod has come for a moment and the window is still open.
    """

    def __init__(
        self,
        clock: Clock,
        idle: float = 1.0,
        longest: float = 10.0,
        still_creating: Callable[[Iterable[str]], Awaitable[bool]] = _no_owner,
    ) -> None:
        self._clock = clock
        self._idle = idle
        self._longest = longest
        self._still_creating = still_creating
        self._seen: dict[str, None] = {}
        self._last = 0.0
        self._open = False
        self._arrived = asyncio.Event()
        self.lull = asyncio.Event()

    def trigger(self, uid: str) -> None:
        """A pod (or anything with a UID) requests a plan."""
        if uid not in self._seen:
            self._seen[uid] = None
            self._last = self._clock.monotonic()
            self._arrived.set()

    def extend(self, uid: str) -> None:
        """A pod that opens no window, but extends one that is open."""
        if self._open:
            self.trigger(uid)

    async def wait(self) -> frozenset[str]:
        """The UIDs of the next batch, when its window has closed."""
        if not self._seen:
            self._arrived.clear()
            await self._arrived.wait()
        opened = self._clock.monotonic()
        self._open = True
        still_creating = False
        while (left := self._left(opened, still_creating)) > 0:
            self._arrived.clear()
            if await self._came(min(left, LULL_S)):
                continue
            self.lull.set()
            if not await self._came(min(left, self._idle) - LULL_S):
                still_creating = self._left(opened, True) > 0 and await self._still_creating(self._seen)
        batch = frozenset(self._seen)
        self._seen.clear()
        self._open = False
        return batch

    async def _came(self, within: float) -> bool:
        """Whether another pod comes within so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def _left(self, opened: float, still_creating: bool) -> float:
        """Seconds that the window stays open if no pod comes."""
        idle = self._idle * MAX_IDLE_PERIODS if still_creating else self._idle
        return min(max(opened, self._last) + idle, opened + self._longest) - self._clock.monotonic()


# Owners that are still creating pods: those with more replicas than pods.
#
# A slow control plane leaves gaps in a burst that look like its end, and launching for a part of a Deployment costs
# more than launching for all of it. Owners are read only when a batch is about to close: a watch on every ReplicaSet
# would cost more than it is worth.

Owner = ReplicaSet | ReplicationController | StatefulSet | Job

_KINDS: Mapping[str, tuple[Resource, Any]] = {
    "ReplicaSet": (REPLICASETS, ReplicaSet),
    "ReplicationController": (REPLICATIONCONTROLLERS, ReplicationController),
    "StatefulSet": (STATEFULSETS, StatefulSet),
    "Job": (JOBS, Job),
}
#: How many owners are read at once: the last to have created a pod.
MAX_OWNERS = 20


def wanted(owner: Owner) -> int:
    """How many pods an owner should have at once; 0 if it creates them one by one, or cannot create any."""
    if isinstance(owner, Job):
        spec = owner.spec
        left = spec.parallelism if spec.completions is None else spec.completions - owner.status.succeeded
        return 0 if spec.suspend else max(0, min(spec.parallelism, left))
    if isinstance(owner, StatefulSet) and owner.spec.pod_management_policy != "Parallel":
        return 0
    refused = condition(owner.status.conditions, "ReplicaFailure")
    return 0 if refused is not None and refused.status == "True" else owner.spec.replicas


class OwnersStillCreating:
    """Checks whether the owners of some pods are about to create more."""

    def __init__(self, kube: Kube, cluster_state: ClusterState) -> None:
        self._kube = kube
        self._cluster_state = cluster_state

    async def __call__(self, uids: Iterable[str]) -> bool:
        """`uids` of pods in order of arrival; other UIDs among them have no owner."""
        owners = self._owners(uids)
        counts = await asyncio.gather(*(self._wanted_pods(namespace, owner) for namespace, owner in owners.values()))
        wanting_owners = {uid: count for uid, count in zip(owners, counts, strict=True) if count}
        there = self._there(wanting_owners) if wanting_owners else Counter()
        return any(there[uid] < count for uid, count in wanting_owners.items())

    def _owners(self, uids: Iterable[str]) -> dict[str, tuple[str, OwnerReference]]:
        counts: dict[str, tuple[str, OwnerReference]] = {}
        for pod in map(self._cluster_state.pod, reversed(list(uids))):
            owner = pod.metadata.controller if pod is not None else None
            if pod is not None and owner is not None and owner.kind in _KINDS:
                counts.setdefault(owner.uid, (pod.metadata.namespace, owner))
                if len(counts) == MAX_OWNERS:
                    break
        return counts

    async def _wanted_pods(self, namespace: str, owner: OwnerReference) -> int:
        """How many pods it should have. A batch does not wait for an owner that cannot be read."""
        resource, view = _KINDS[owner.kind]
        try:
            return wanted(await self._kube.get(resource, owner.name, namespace, type=view))
        except KubeError:
            return 0

    def _there(self, owners: Mapping[str, int]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for pod in self._cluster_state.pods.store.all():
            owner = pod.metadata.controller
            if owner is not None and owner.uid in owners and not pod.finished and not pod.terminating:
                counts[owner.uid] += 1
        return counts
