"""Which PodDisruptionBudgets select a pod, computed once for all pods that share their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.pods import Pod
from dovetail.model.selector import matches
from dovetail.model.workloads import PodDisruptionBudget

#: More entries than this are dropped: most of them belong to pods that are gone.
MOST = 10_000
_NOBODY: tuple[PodDisruptionBudget, ...] = ()


class PdbIndex:
    """The PDBs of one moment. Entries are keyed by the identity of the labels, and keep the labels alive."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._spaces: dict[str, list[PodDisruptionBudget]] = {}
        self._known: dict[tuple[str, int], tuple[Mapping[str, str], tuple[PodDisruptionBudget, ...]]] = {}
        for each in budgets:
            self._spaces.setdefault(each.metadata.namespace, []).append(each)

    def of(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """The PDBs that select a pod."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        there = self._spaces.get(namespace)
        if there is None:
            return _NOBODY
        known = self._known.get((namespace, id(labels)))
        if known is None:
            if len(self._known) > MOST:
                self._known.clear()
            found = tuple(each for each in there if matches(each.spec.selector, labels))
            known = self._known[namespace, id(labels)] = (labels, found)
        return known[1]
