"""Spread order: which pods can be bound after the owners of which spreads.

kube-scheduler checks a spread only for its owners, so pods that it only counts may be bound later and exceed maxSkew.
That order is impossible if the owners have an affinity to those pods or are counted by a spread of theirs. Pods in such
a cycle are counted by each other's spreads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dovetail.planner.problem.pod_classes import ConstraintClass
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD, TopologyGroup


class BindPrecedence:
    """The spreads that need not count pods of a kind, because these can be bound after the owners."""

    def __init__(self, kinds: Sequence[ConstraintClass]) -> None:
        self._kinds = kinds
        owned = {group for kind in kinds for group in kind.levels[0].hard if group.kind == SPREAD}
        self._counted = {kind: (owned & kind.members).difference(kind.levels[0].hard) for kind in kinds}
        self.matters = any(self._counted.values())

    def foreign(self, kind: ConstraintClass) -> set[TopologyGroup]:
        """The spreads that count pods of a kind but are not theirs, and whose owners can all be bound before them."""
        after = self._after(kind)
        return {group for group in self._counted[kind] if after.isdisjoint(self._owners[group])}

    @cached_property
    def _owners(self) -> dict[TopologyGroup, set[ConstraintClass]]:
        owners: dict[TopologyGroup, set[ConstraintClass]] = {}
        for kind in self._kinds:
            for group in kind.levels[0].hard:
                if group.kind == SPREAD:
                    owners.setdefault(group, set()).add(kind)
        return owners

    @cached_property
    def _later(self) -> dict[ConstraintClass, set[ConstraintClass]]:
        """The kinds bound after each kind: those that its spreads do not count, and its affinity dependents."""
        later: dict[ConstraintClass, set[ConstraintClass]] = {kind: set() for kind in self._kinds}
        for kind, groups in self._counted.items():
            for group in groups:
                for owner in self._owners[group]:
                    later[owner].add(kind)
        for kind in self._kinds:
            needed = {group for group in kind.levels[0].hard if group.kind == AFFINITY}
            for other in self._kinds if needed else ():
                if other is not kind and needed & other.members:
                    later[other].add(kind)
        return later

    def _after(self, kind: ConstraintClass) -> set[ConstraintClass]:
        """The kinds that are bound after this one, directly or indirectly."""
        kinds: set[ConstraintClass] = set()
        left = [kind]
        while left:
            more = self._later[left.pop()] - kinds
            kinds |= more
            left += more
        return kinds
