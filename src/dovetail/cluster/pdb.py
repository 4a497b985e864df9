"""Which PodDisruptionBudgets select a pod, computed once for all pods that share their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.pods import Pod
from dovetail.model.selector import matches
from dovetail.model.workloads import PodDisruptionBudget

#: More entries than this are dropped: most of them belong to pods that are gone.
MAX_ENTRIES = 10_000
_NO_PDBS: tuple[PodDisruptionBudget, ...] = ()


class PdbIndex:
    """The PDBs of one moment. Entries are keyed by the identity of the labels, and keep the labels alive."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._spaces: dict[str, list[PodDisruptionBudget]] = {}
        self._entries: dict[tuple[str, int], tuple[Mapping[str, str], tuple[PodDisruptionBudget, ...]]] = {}
        for budget in budgets:
            self._spaces.setdefault(budget.metadata.namespace, []).append(budget)

    def of(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """The PDBs that select a pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        candidates = self._spaces.get(namespace)
        if candidates is None:
            return _NO_PDBS
        entry = self._entries.get((namespace, id(labels)))
        if entry is None:
            if len(self._entries) > MAX_ENTRIES:
                self._entries.clear()
            selecting = tuple(budget for budget in candidates if matches(budget.spec.selector, labels))
            entry = self._entries[namespace, id(labels)] = (labels, selecting)
        return entry[1]
