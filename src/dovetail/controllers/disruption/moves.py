"""Hysteresis: a workload is not moved for cost more often than a set number of times an hour."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.commands import Candidate
from dovetail.model.pods import Pod

HOUR = 3600.0
#: Moves an hour for each pod of a workload.
AN_HOUR = 2


class Moves:
    """Counts moves by workload, since a moved pod comes back under another name."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._moved: dict[str, deque[float]] = {}

    def may(self, candidate: Candidate) -> bool:
        """Whether everybody on the machine may still be moved this hour."""
        if not self._moved:
            return True
        now = self._context.clock.monotonic()
        for whose, count in self._owners(self._pods(candidate)).items():
            moved = self._moved.get(whose)
            while moved and moved[0] <= now - HOUR:
                moved.popleft()
            if moved and len(moved) + count > AN_HOUR * self._size(whose):
                return False
        return True

    def note(self, candidates: Iterable[Candidate]) -> None:
        now = self._context.clock.monotonic()
        for candidate in candidates:
            for whose, count in self._owners(self._pods(candidate)).items():
                self._moved.setdefault(whose, deque()).extend([now] * count)
        self._moved = {whose: times for whose, times in self._moved.items() if times and times[-1] > now - HOUR}

    def _pods(self, candidate: Candidate) -> list[Pod]:
        wanted = set(candidate.pods)
        return [pod for pod in self._context.mirror.pods_on(candidate.node) if pod.metadata.key in wanted]

    def _size(self, whose: str) -> int:
        """How many pods the workload has now, at least one."""
        pods = self._context.mirror.pods.store.all()
        return max(1, sum(owner(pod) == whose for pod in pods))

    def _owners(self, pods: Iterable[Pod]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for pod in pods:
            counts[owner(pod)] = counts.get(owner(pod), 0) + 1
        return counts


def owner(pod: Pod) -> str:
    """Whose pod it is: of its controller, by UID, or its own."""
    controller = next((each for each in pod.metadata.owner_references if each.controller), None)
    return controller.uid if controller is not None else pod.metadata.key
