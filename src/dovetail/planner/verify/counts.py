"""Counts for spreads and pod affinities, updated incrementally as pods are placed.

`bind_order` checks thousands of pods with `dovetail.model.fit`, one after another, and one pod is placed between two of
them. So pods with equal constraints share one count, to which only the pods placed since are added, and of these only
the ones that it depends on. The rules themselves are those of `dovetail.model.fit`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from dovetail.model.fit.affinity import AffinityState
from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.fit import Fit
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.fit.spread import SpreadState

State = TypeVar("State", SpreadState, AffinityState)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class _PlacedPods:
    """Placed pods that are equal for every count, in the order in which they were placed."""

    def __init__(self, first: PodInfo) -> None:
        self.first = first
        self.placed: list[tuple[PodInfo, NodeInfo]] = []


class _IncrementalCount(Generic[State]):
    """A count, the groups of placed pods that it depends on, and how many pods of each it includes.

    `groups` grows as pods of other kinds are placed.
    """

    def __init__(self, state: State, groups: list[_PlacedPods]) -> None:
        self._state: State = state
        self._groups = groups
        self._groups_seen = 0
        self._dependencies: list[_PlacedPods] = []
        self._progress: list[int] = []
        self._add_new_groups()
        self._progress = [len(group.placed) for group in self._dependencies]

    def _add_new_groups(self) -> None:
        for group in self._groups[self._groups_seen :]:
            if self._state.is_affected_by(group.first):
                self._dependencies.append(group)
                self._progress.append(0)
        self._groups_seen = len(self._groups)

    def now(self) -> State:
        """The count including every pod placed so far."""
        if self._groups_seen < len(self._groups):
            self._add_new_groups()
        for index, group in enumerate(self._dependencies):
            if self._progress[index] < len(group.placed):
                for pod, node in group.placed[self._progress[index] :]:
                    self._state.move(pod, node, 1)
                self._progress[index] = len(group.placed)
        return self._state


class _CacheKeys(msgspec.Struct, frozen=True):
    """Cache keys of a pod: of its spreads, of its pod affinities, and of itself where others count it."""

    spread: bytes
    affinity: bytes
    group: tuple[int, bytes]


class PlacedPodCounts:
    """The counts of one cluster, to which pods are added and never removed."""

    def __init__(self, cluster: ClusterNodes) -> None:
        self._cluster = cluster
        self._groups: dict[tuple[int, bytes], _PlacedPods] = {}
        self._all: list[_PlacedPods] = []
        self._with_anti_affinity: list[_PlacedPods] = []
        """Groups of pods with anti-affinity: a pod without rules of its own depends only on these."""
        self._spreads: dict[bytes, _IncrementalCount[SpreadState]] = {}
        self._affinities: dict[bytes, _IncrementalCount[AffinityState]] = {}
        self._cache_keys: dict[tuple[int, int], tuple[_CacheKeys, PodInfo]] = {}

    def fit(self, pod: PodInfo) -> Fit:
        """The scheduling check of a pod against the nodes with all pods placed so far."""
        return Fit(pod, self._cluster, self._spread(pod), self._affinity(pod))

    def _spread(self, pod: PodInfo) -> SpreadState | None:
        """The count of the pod's spreads; None if it must be computed again.

        A spread with an empty selector counts no pod, but an incremental update would add every pod.
        """
        if not pod.shape.spread or any(spread.counts_nothing for spread in pod.shape.spread):
            return None
        key = self._keys_of(pod).spread
        cached = self._spreads.get(key)
        if cached is None:
            cached = self._spreads[key] = _IncrementalCount(SpreadState(pod, self._cluster), self._all)
        return cached.now().asked_by(pod)

    def _affinity(self, pod: PodInfo) -> AffinityState:
        key = self._keys_of(pod).affinity
        cached = self._affinities.get(key)
        if cached is None:
            groups = self._all if pod.shape.affinity or pod.shape.anti_affinity else self._with_anti_affinity
            cached = self._affinities[key] = _IncrementalCount(AffinityState(pod, self._cluster), groups)
        return cached.now()

    def place(self, pod: PodInfo, name: str) -> None:
        key = self._keys_of(pod).group
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _PlacedPods(pod)
            self._all.append(group)
            if pod.shape.anti_affinity:
                self._with_anti_affinity.append(group)
        self._cluster.place(pod, name)
        group.placed.append((pod, self._cluster.nodes[name]))

    def _keys_of(self, pod: PodInfo) -> _CacheKeys:
        cached = self._cache_keys.get((id(pod.shape), id(pod.kind)))
        if cached is None:
            cached = self._cache_keys[id(pod.shape), id(pod.kind)] = (_cache_keys(pod), pod)
        return cached[0]


def _cache_keys(pod: PodInfo) -> _CacheKeys:
    shape = pod.shape
    return _CacheKeys(
        _encode((shape.namespace, shape.spread, shape.node_selector, shape.node_terms, shape.tolerations)),
        _encode((shape.namespace, shape.labels, shape.affinity, shape.anti_affinity)),
        (id(pod.kind), _encode(shape.anti_affinity)),
    )
