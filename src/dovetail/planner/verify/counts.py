"""Tallies: what pods ask about other pods, counted once and kept up as pods are placed.

The replay asks `dovetail.model.fit` about thousands of pods, one after another, and between two of them one pod has
come. So a pod that asks what was asked before gets the same count, brought up to date by the pods placed since, and of
those only by the ones that it heeds. Nothing is decided here: the rules are the model's own.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from dovetail.model.fit.affinity import AffinityState
from dovetail.model.fit.cluster import Cluster
from dovetail.model.fit.fit import Fit
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.fit.spread import SpreadState

State = TypeVar("State", SpreadState, AffinityState)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class _Line:
    """Pods that any count takes alike, in the order they were placed."""

    def __init__(self, first: PodInfo) -> None:
        self.first = first
        self.came: list[tuple[PodInfo, NodeInfo]] = []


class _Tally(Generic[State]):
    """A count, the lines it heeds, and how far along each of them it is. `lines` grows as new kinds of pods come."""

    def __init__(self, state: State, lines: list[_Line]) -> None:
        self._state: State = state
        self._lines = lines
        self._looked = 0
        self._heeded: list[_Line] = []
        self._counted: list[int] = []
        self._look()
        self._counted = [len(line.came) for line in self._heeded]

    def _look(self) -> None:
        for line in self._lines[self._looked :]:
            if self._state.heeds(line.first):
                self._heeded.append(line)
                self._counted.append(0)
        self._looked = len(self._lines)

    def now(self) -> State:
        """The count including every pod placed so far."""
        if self._looked < len(self._lines):
            self._look()
        for index, line in enumerate(self._heeded):
            if self._counted[index] < len(line.came):
                for pod, node in line.came[self._counted[index] :]:
                    self._state.move(pod, node, 1)
                self._counted[index] = len(line.came)
        return self._state


class _Marks(msgspec.Struct, frozen=True):
    """What reports a pod's questions about spreads and about co-located pods from others', and itself where others
    count it.
    """

    spread: bytes
    affinity: bytes
    line: tuple[int, bytes]


class Tallies:
    """The counts of one cluster, into which pods are only ever put."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lines: dict[tuple[int, bytes], _Line] = {}
        self._all: list[_Line] = []
        self._wary: list[_Line] = []
        """Lines of pods with anti-affinity: a pod without rules of its own depends only on these."""
        self._spreads: dict[bytes, _Tally[SpreadState]] = {}
        self._affinities: dict[bytes, _Tally[AffinityState]] = {}
        self._marks: dict[tuple[int, int], tuple[_Marks, PodInfo]] = {}

    def fit(self, pod: PodInfo) -> Fit:
        """What a pod requests of the nodes as they are now."""
        return Fit(pod, self._cluster, self._spread(pod), self._affinity(pod))

    def _spread(self, pod: PodInfo) -> SpreadState | None:
        """Of an empty selector the model counts no pod, but would move every pod: such a spread is counted anew."""
        if not pod.shape.spread or any(spread.counts_nothing for spread in pod.shape.spread):
            return None
        mark = self._marked(pod).spread
        cached = self._spreads.get(mark)
        if cached is None:
            cached = self._spreads[mark] = _Tally(SpreadState(pod, self._cluster), self._all)
        return cached.now().asked_by(pod)

    def _affinity(self, pod: PodInfo) -> AffinityState:
        mark = self._marked(pod).affinity
        cached = self._affinities.get(mark)
        if cached is None:
            lines = self._all if pod.shape.affinity or pod.shape.anti_affinity else self._wary
            cached = self._affinities[mark] = _Tally(AffinityState(pod, self._cluster), lines)
        return cached.now()

    def place(self, pod: PodInfo, name: str) -> None:
        mark = self._marked(pod).line
        line = self._lines.get(mark)
        if line is None:
            line = self._lines[mark] = _Line(pod)
            self._all.append(line)
            if pod.shape.anti_affinity:
                self._wary.append(line)
        self._cluster.place(pod, name)
        line.came.append((pod, self._cluster.nodes[name]))

    def _marked(self, pod: PodInfo) -> _Marks:
        cached = self._marks.get((id(pod.shape), id(pod.kind)))
        if cached is None:
            cached = self._marks[id(pod.shape), id(pod.kind)] = (_marks(pod), pod)
        return cached[0]


def _marks(pod: PodInfo) -> _Marks:
    shape = pod.shape
    return _Marks(
        _encode((shape.namespace, shape.spread, shape.node_selector, shape.node_terms, shape.tolerations)),
        _encode((shape.namespace, shape.labels, shape.affinity, shape.anti_affinity)),
        (id(pod.kind), _encode(shape.anti_affinity)),
    )
