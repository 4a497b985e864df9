"""What PodDisruptionBudgets still allow while several removals are planned one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dovetail.model.pods import Pod
from dovetail.model.selector import matches
from dovetail.model.workloads import PodDisruptionBudget


class RemainingBudget(msgspec.Struct):
    """A budget and how many disruptions of it are left."""

    pdb: PodDisruptionBudget
    allowed: int

    def covers(self, pod: Pod) -> bool:
        same = pod.metadata.namespace == self.pdb.metadata.namespace
        return same and matches(self.pdb.spec.selector, pod.metadata.labels)


class RemainingPdbs:
    """Counts down as removals are planned; made anew from the cluster's budgets in every loop."""

    def __init__(self, pdbs: Iterable[PodDisruptionBudget] = ()) -> None:
        self._by_namespace: dict[str, list[RemainingBudget]] = {}
        for pdb in pdbs:
            budget = RemainingBudget(pdb, pdb.status.disruptions_allowed)
            self._by_namespace.setdefault(pdb.metadata.namespace, []).append(budget)

    def matching(self, pod: Pod) -> Sequence[RemainingBudget]:
        """The budgets that cover a pod."""
        return [budget for budget in self._by_namespace.get(pod.metadata.namespace, ()) if budget.covers(pod)]

    def can_remove(self, pods: Sequence[Pod]) -> tuple[bool, bool, Pod | None]:
        """Whether the pods may go at all, whether all at once, and the pod that is in the way."""
        at_once, blocking = True, None
        counts: dict[int, int] = {}
        for pod in pods:
            for budget in self.matching(pod):
                counts[id(budget)] = count = counts.get(id(budget), 0) + 1
                if budget.allowed < 1:
                    return False, False, pod
                if budget.allowed < count:
                    at_once, blocking = False, pod
        return True, at_once, blocking

    def remove(self, pods: Iterable[Pod]) -> None:
        """Count the disruption of these pods."""
        for pod in pods:
            for budget in self.matching(pod):
                budget.allowed -= 1
