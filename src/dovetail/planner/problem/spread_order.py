"""Spread order: which pods can be bound after the owners of which spreads.

kube-scheduler checks a spread only for its owners, so pods that it only counts may be bound later and exceed maxSkew.
That order is impossible if the owners have an affinity to those pods or are counted by a spread of theirs. Pods in such
a cycle are counted by each other's spreads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dovetail.planner.problem.pod_classes import Kind
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD, Group


class Precedence:
    """The spreads that need not count pods of a kind, because these can be bound after the owners."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        owned = {group for kind in kinds for group in kind.levels[0].hard if group.kind == SPREAD}
        self._counted = {kind: (owned & kind.members).difference(kind.levels[0].hard) for kind in kinds}
        self.matters = any(self._counted.values())

    def foreign(self, kind: Kind) -> set[Group]:
        """The spreads that count pods of a kind but are not theirs, and whose owners can all be bound before them."""
        after = self._after(kind)
        return {group for group in self._counted[kind] if after.isdisjoint(self._owners[group])}

    @cached_property
    def _owners(self) -> dict[Group, set[Kind]]:
        owners: dict[Group, set[Kind]] = {}
        for kind in self._kinds:
            for group in kind.levels[0].hard:
                if group.kind == SPREAD:
                    owners.setdefault(group, set()).add(kind)
        return owners

    @cached_property
    def _later(self) -> dict[Kind, set[Kind]]:
        """The kinds bound after each kind: those that its spreads do not count, and its affinity dependents."""
        later: dict[Kind, set[Kind]] = {kind: set() for kind in self._kinds}
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

    def _after(self, kind: Kind) -> set[Kind]:
        """The kinds that are bound after this one, directly or indirectly."""
        kinds: set[Kind] = set()
        left = [kind]
        while left:
            more = self._later[left.pop()] - kinds
            kinds |= more
            left += more
        return kinds
