"""Precedence: whose spreads are asked before whom.

The scheduler asks a spread of its owners alone, so pods that it only counts may come after them and tip the balance.
That works unless those owners need them near, or are counted by a spread of theirs: no pod comes after himself. Pods in
such a circle see each other's spreads; all other pods has a node in line.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dovetail.planner.problem.pod_classes import Kind
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD, Group


class Precedence:
    """Which spreads need not see the pods of a kind, because those can wait until the owners are placed."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        owned = {group for kind in kinds for group in kind.levels[0].hard if group.kind == SPREAD}
        self._counted = {kind: (owned & kind.members).difference(kind.levels[0].hard) for kind in kinds}
        self.matters = any(self._counted.values())

    def foreign(self, kind: Kind) -> set[Group]:
        """The spreads that count pods of a kind without binding them, and whose owners can all come before them."""
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
        """The kinds that must wait for each kind: those its spreads are not to see, and those that need it near."""
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
        """The kinds that must wait for this one, and for those that wait for it."""
        kinds: set[Kind] = set()
        left = [kind]
        while left:
            more = self._later[left.pop()] - kinds
            kinds |= more
            left += more
        return kinds
