"""The pods of one disruption budget, counted as they change: a look at five thousand pods costs what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from dovetail.lab.controllers.pods import ready, terminating
from dovetail.lab.controllers.views import Owner, PodFields


class Coverage:
    """Pods in the order they came, as they were when they last changed in a way that counts."""

    def __init__(self, pods: Iterable[PodFields] = ()) -> None:
        self._pods: dict[str, PodFields] = {}
        self._healthy = 0
        #: How many pods each owner manages, and how many (None) have no owner.
        self.owners: Counter[Owner | None] = Counter()
        for pod in pods:
            self.put(pod)

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[PodFields]:
        return iter(self._pods.values())

    def put(self, pod: PodFields) -> None:
        old = self._pods.get(pod.metadata.key)
        if old is not None:
            self._count(old, -1)
        self._pods[pod.metadata.key] = pod
        self._count(pod, 1)

    def drop(self, key: str) -> None:
        old = self._pods.pop(key, None)
        if old is not None:
            self._count(old, -1)

    def healthy(self, but: Collection[str]) -> int:
        """How many are ready and stay, but for those of these names."""
        if not but:
            return self._healthy
        return sum(_healthy(pod) and pod.metadata.name not in but for pod in self)

    def _count(self, pod: PodFields, step: int) -> None:
        self._healthy += step * _healthy(pod)
        owner = pod.metadata.controller
        self.owners[owner] += step
        if not self.owners[owner]:
            del self.owners[owner]


def _healthy(pod: PodFields) -> bool:
    return ready(pod) and not terminating(pod)
