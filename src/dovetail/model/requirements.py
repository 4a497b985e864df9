"""Requirements: one requirement a label, and whether two sets of them get along.

The question is asymmetric. A node's side says what it has, a pod's side what it wants; a label the node's
side does not know satisfies nobody, except who asks for its absence, and except labels that every machine
will have once it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from dovetail.model.labels import RESTRICTED
from dovetail.model.requirement import OPERATORS, Requirement, requirement

__all__ = ["OPERATORS", "Requirement", "Requirements", "Selecting", "requirement"]

_NOBODY: frozenset[str] = frozenset()


class Selecting(Protocol):
    """An entry of a selector, whatever kind it stands in."""

    @property
    def key(self) -> str: ...

    @property
    def operator(self) -> str: ...

    @property
    def values(self) -> Sequence[str]: ...


class Requirements(Mapping[str, Requirement]):
    """An immutable set of requirements by key; adding intersects."""

    __slots__ = ("_by_key",)

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        for each in requirements:
            known = by_key.get(each.key)
            by_key[each.key] = each if known is None else each.intersection(known)
        self._by_key = by_key

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> Requirements:
        """What a node with these labels is."""
        return cls(requirement(key, "In", (value,)) for key, value in labels.items())

    @classmethod
    def of_entries(cls, entries: Iterable[Selecting]) -> Requirements:
        """The entries of a NodePool, a NodeClaim or a node-selector term; minValues where the entry has them."""
        return cls(
            requirement(each.key, each.operator, each.values, getattr(each, "min_values", None)) for each in entries
        )

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __hash__(self) -> int:
        return hash(frozenset(self._by_key.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def of(self, key: str) -> Requirement:
        """The requirement of a key; one that nobody mentioned may be anything."""
        return self._by_key.get(key) or requirement(key, "Exists")

    def add(self, *more: Requirement) -> Requirements:
        """These and more."""
        return Requirements((*self._by_key.values(), *more)) if more else self

    def merge(self, other: Requirements) -> Requirements:
        """What both sides ask."""
        return self.add(*other.values())

    def without(self, *keys: str) -> Requirements:
        return Requirements(each for each in self._by_key.values() if each.key not in keys)

    def intersects(self, other: Requirements) -> bool:
        """Whether the keys of both sides overlap."""
        mine = self._by_key
        for key, want in other._by_key.items():
            have = mine.get(key)
            if have is not None and not have.intersects(want) and not (have.negative and want.negative):
                return False
        return True

    def compatible(self, incoming: Requirements, allow_undefined: frozenset[str] = _NOBODY) -> bool:
        """Whether this side can hold who brings `incoming`."""
        mine = self._by_key
        for key, want in incoming._by_key.items():
            have = mine.get(key)
            if have is None:
                if key not in allow_undefined and not want.negative:
                    return False
            elif not have.intersects(want) and not (have.negative and want.negative):
                return False
        return True

    def entries(self) -> list[dict[str, object]]:
        """As they stand in a NodeClaim's spec, keys in order."""
        return [entry for key in sorted(self._by_key) for entry in self._by_key[key].entries()]

    def __str__(self) -> str:
        return ", ".join(sorted(str(each) for each in self._by_key.values() if each.key not in RESTRICTED))

    __repr__ = __str__
