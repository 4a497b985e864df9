"""The pods of one ReplicaSet, counted as they change: a look at five thousand pods costs what changed among them.

Pods share equal labels (`sharing`), so what depends on labels alone is asked once a map, not once a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.controllers.pods import active, finished, ready_since
from dovetail.lab.controllers.timestamps import parse
from dovetail.lab.controllers.views import PodFields
from dovetail.model.selector import LabelSelector


class _LabelCount(msgspec.Struct):
    """A map of labels, and how many wear it: of all pods, and of the living."""

    labels: dict[str, str]
    members: int = 0
    living: int = 0


class ReplicaSetIndex:
    """All pods a ReplicaSet controls. `living` are the pods that count toward its number, the first come first."""

    def __init__(self, pods: Iterable[PodFields] = ()) -> None:
        self.living: dict[str, PodFields] = {}
        self.going = 0
        #: Living pods by node, none included; and the ready ones by the instant they turned ready.
        self.nodes: Counter[str] = Counter()
        self.ready: Counter[str | None] = Counter()
        self._members: dict[str, PodFields] = {}
        self._worn: dict[int, _LabelCount] = {}
        for pod in pods:
            self.change(pod.metadata.key, pod)

    def __len__(self) -> int:
        return len(self._members)

    def change(self, key: str, pod: PodFields | None) -> None:
        """A pod came, changed, or (None) is no longer ours."""
        old = self._members.get(key)
        if old is not None:
            self._count(old, -1)
        if pod is None:
            self._members.pop(key, None)
        else:
            self._members[key] = pod
        if pod is not None and self._count(pod, 1):
            self.living[key] = pod
        else:
            self.living.pop(key, None)

    def _count(self, pod: PodFields, step: int) -> bool:
        """Count a pod in, or out; whether it is among the living."""
        labels = pod.metadata.labels
        worn = self._worn.get(id(labels))
        if worn is None:
            worn = self._worn[id(labels)] = _LabelCount(labels)
        worn.members += step
        living = active(pod)
        if living:
            worn.living += step
            _add(self.nodes, pod.spec.node_name, step)
            is_ready, since = ready_since(pod)
            if is_ready:
                _add(self.ready, since, step)
        elif not finished(pod):
            self.going += step
        if not worn.members:
            del self._worn[id(labels)]
        return living

    def labelled(self, labels: dict[str, str]) -> int:
        """How many of the living wear all of these labels."""
        return sum(worn.living for worn in self._worn.values() if labels.items() <= worn.labels.items())

    def unmatched_pods(self, selector: LabelSelector) -> list[PodFields]:
        """The owned pods that the selector no longer matches, except terminating ones."""
        left = {number for number, worn in self._worn.items() if not selector.matches(worn.labels)}
        if not left:
            return []
        return [
            pod
            for pod in self._members.values()
            if id(pod.metadata.labels) in left and not pod.metadata.deletion_timestamp
        ]

    def availability(self, min_ready: int, now: datetime) -> tuple[int, float | None]:
        """How many are ready for long enough, and the seconds until the next one is (None: no pod is about to be)."""
        if not min_ready:
            return self.ready.total(), None
        count, soonest = 0, None
        for since, pods in self.ready.items():
            if since is None:
                continue
            wait = min_ready - (now - parse(since)).total_seconds()
            if wait <= 0:
                count += pods
            elif soonest is None or wait < soonest:
                soonest = wait
        return count, soonest


def _add(counts: Counter[Any], key: str | None, step: int) -> None:
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        del counts[key]
