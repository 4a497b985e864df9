"""Rate limit of moves: a workload is not moved for cost more often than a set number of times an hour."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.types import Candidate
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import PODS
from dovetail.model.pods import Pod

HOUR_S = 3600.0
#: Moves an hour for each pod of a workload.
MOVES_PER_HOUR = 2


class MoveRateLimit:
    """Counts moves by workload, since a moved pod is recreated under another name."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._moved: dict[str, deque[float]] = {}
        self._sizes = Counter(map(owner, context.cluster_state.pods.store.all()))
        context.cluster_state.listen(PODS, self._pod_changed)

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        for pod, by in ((change.new, 1), (change.old, -1)):
            if pod is not None:
                owner_uid = owner(pod)
                self._sizes[owner_uid] += by
                if not self._sizes[owner_uid]:
                    del self._sizes[owner_uid]

    def free(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates whose pods may all still be moved this hour."""
        self._forget()
        if not self._moved:
            return list(candidates)
        left = {
            owner_uid: MOVES_PER_HOUR * max(1, self._sizes[owner_uid]) - len(moved)
            for owner_uid, moved in self._moved.items()
        }
        most = min(left.values())  # a candidate with fewer pods than that cannot exceed any owner's limit
        return [candidate for candidate in candidates if len(candidate.pods) <= most or self._may(candidate, left)]

    def _may(self, candidate: Candidate, left: Mapping[str, int]) -> bool:
        return all(count <= left.get(owner_uid, count) for owner_uid, count in self._owners(candidate).items())

    def _forget(self) -> None:
        before = self._context.clock.monotonic() - HOUR_S
        for moved in self._moved.values():
            while moved and moved[0] <= before:
                moved.popleft()
        self._moved = {owner_uid: moved for owner_uid, moved in self._moved.items() if moved}

    def note(self, candidates: Iterable[Candidate]) -> None:
        now = self._context.clock.monotonic()
        for candidate in candidates:
            for owner_uid, count in self._owners(candidate).items():
                self._moved.setdefault(owner_uid, deque()).extend([now] * count)
        self._forget()

    def _owners(self, candidate: Candidate) -> Counter[str]:
        """The owners of the pods that would be moved, and how many pods of each."""
        moved_keys = set(candidate.pods)
        pods = self._context.cluster_state.pods_on(candidate.node)
        return Counter(owner(pod) for pod in pods if pod.metadata.key in moved_keys)


def owner(pod: Pod) -> str:
    """The owner of a pod: its controller, by UID, or the pod itself."""
    controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
    return controller.uid if controller is not None else pod.metadata.key
