"""DaemonSets that change: old pods go within maxUnavailable, or new ones come first within maxSurge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.lab.controllers.controller_revisions import HASH_LABEL
from dovetail.lab.controllers.daemonset.decide import DaemonSetPlan, belongs
from dovetail.lab.controllers.deployment.rollout import share
from dovetail.lab.controllers.pods import available_in, finished, ready, terminating
from dovetail.lab.controllers.views import Json, NodeFields, PodFields

ByNode = Mapping[str, Sequence[PodFields]]


class DaemonSetUpdate(msgspec.Struct, frozen=True):
    """A DaemonSet on its way to a revision, at an instant."""

    workload: Json
    revision: str
    now: datetime

    @property
    def surging(self) -> bool:
        return self._limit("maxSurge", 0, 100) > 0

    def surplus(self, running: Sequence[PodFields]) -> list[PodFields]:
        """Of a node's pods, the oldest first: all but one, or while surging all but an old and a new one."""
        if not self.surging:
            return [*running[1:]]
        new = [pod for pod in running if self._is_new(pod)]
        old = [pod for pod in running if not self._is_new(pod)]
        over = [pod for pod in running if pod not in (*new[:1], *old[:1])]
        if new and old and (not ready(old[0]) or self._available(new[0])):
            over.append(old[0])
        return over

    def step(self, nodes: Sequence[NodeFields], by_node: ByNode) -> DaemonSetPlan:
        """What the update does next."""
        if self.workload["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") != "RollingUpdate":
            return DaemonSetPlan([], [])
        node_names = [node.metadata.name for node in nodes if belongs(self.workload, node)[0]]
        surge = self._limit("maxSurge", 0, len(node_names))
        if surge:
            return self._surge(node_names, by_node, surge)
        return DaemonSetPlan(
            [], self._replace(node_names, by_node, max(1, self._limit("maxUnavailable", 1, len(node_names))))
        )

    def _replace(self, node_names: Sequence[str], by_node: ByNode, allowed: int) -> list[PodFields]:
        """Old pods that may go: those that are of no use, and as many others as may be missing."""
        gone, sick, fine = 0, list[PodFields](), list[PodFields]()
        for _, new, old in self._pairs(node_names, by_node):
            if old is None:
                gone += new is None or not self._available(new)
            elif self._available(old):
                fine.append(old)
            else:
                sick.append(old)
                gone += 1
        return [*sick, *fine[: max(0, allowed - gone)]]

    def _surge(self, node_names: Sequence[str], by_node: ByNode, surge: int) -> DaemonSetPlan:
        """Nodes that get a new pod beside the old one, and old pods whose successor is there."""
        under_way, needed, candidates, delete = 0, list[str](), list[str](), list[PodFields]()
        for node, new, old in self._pairs(node_names, by_node):
            if old is None:
                continue
            if new is None:
                (candidates if self._available(old) else needed).append(node)
            elif self._available(new):
                delete.append(old)
            else:
                under_way += 1
        return DaemonSetPlan([*needed, *candidates[: max(0, surge - under_way)]], delete)

    def _pairs(self, nodes: Sequence[str], by_node: ByNode) -> Iterator[tuple[str, PodFields | None, PodFields | None]]:
        """Every node with its new and its old pod."""
        for node in nodes:
            pods = [pod for pod in by_node.get(node, ()) if not finished(pod) and not terminating(pod)]
            new = next((pod for pod in pods if self._is_new(pod)), None)
            yield node, new, next((pod for pod in pods if not self._is_new(pod)), None)

    def _limit(self, field: str, default: int, total: int) -> int:
        rolling = self.workload["spec"].get("updateStrategy", {}).get("rollingUpdate") or {}
        return share(rolling.get(field, default), total, up=True)

    def _is_new(self, pod: PodFields) -> bool:
        return pod.metadata.labels.get(HASH_LABEL) == self.revision

    def _available(self, pod: PodFields) -> bool:
        return available_in(pod, int(self.workload["spec"].get("minReadySeconds", 0)), self.now) <= 0
