"""Precedence: whose spreads are asked before whom.

The scheduler asks a spread of its owners alone, so pods that it only counts may come after them and tip the balance.
That works unless those owners need them near, or are counted by a spread of theirs: nobody comes after himself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from dovetail.planner.classes import Kind, PodClass
from dovetail.planner.groups import AFFINITY, SPREAD, Group


class Precedence:
    """Which spreads need not see the pods of a class, because those can wait until the owners are placed."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self._classes = classes
        kinds = dict.fromkeys(one.kind for one in classes)
        owned = {group for kind in kinds for group in kind.levels[0].hard if group.kind == SPREAD}
        self._seen = {kind: (owned & kind.members).difference(kind.levels[0].hard) for kind in kinds}
        self.matters = any(self._seen.values())

    @cached_property
    def _foreign(self) -> dict[int, set[Group]]:
        return {one.index: self._seen[one.kind] for one in self._classes}

    @cached_property
    def _owners(self) -> dict[Group, list[PodClass]]:
        found: dict[Group, list[PodClass]] = {}
        for one in self._classes:
            for group in one.levels[0].hard:
                if group.kind == SPREAD:
                    found.setdefault(group, []).append(one)
        return found

    @cached_property
    def _later(self) -> dict[int, set[int]]:
        """The classes that must wait for each class: those its spreads are not to see, and those that need it near."""
        found: dict[int, set[int]] = {index: set() for index in self._foreign}
        for index, groups in self._foreign.items():
            for group in groups:
                for owner in self._owners[group]:
                    found[owner.index].add(index)
        for one in self._classes:
            needed = {group for group in one.levels[0].hard if group.kind == AFFINITY}
            for other in self._classes if needed else ():
                if other is not one and needed & other.members:
                    found[other.index].add(one.index)
        return found

    def foreign(self, kind: Kind) -> set[Group]:
        """The spreads that count pods of a kind without binding them."""
        return self._seen[kind]

    def clear(self) -> bool:
        """Whether everybody that a spread only counts can come after its owners."""
        return all(
            owner.index not in self._after(index)
            for index, groups in self._foreign.items()
            if groups
            for group in groups
            for owner in self._owners[group]
        )

    def _after(self, index: int) -> set[int]:
        """The classes that must wait for this one, and for those that wait for it."""
        found: set[int] = set()
        left = [index]
        while left:
            more = self._later[left.pop()] - found
            found |= more
            left += more
        return found
