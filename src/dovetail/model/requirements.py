"""Requirements: one requirement a label, and whether two sets of them get along.

The question is asymmetric. A node's side says what it has, a pod's side what it wants; a label the node's
side does not know satisfies nothing but a demand for its absence, and except labels that every node
will have once it exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from dovetail.model.labels import RESTRICTED, normalise
from dovetail.model.selector import integer

# A requirement: the values one label may take.
#
# A set of values or its complement, with optional whole-number bounds. Everything a selector can say about
# one key is such a set, so any two requirements meet in exactly one.

_MAX = (1 << 63) - 1
_MIN = -(1 << 63)
_SHOWN = 5

OPERATORS = ("DoesNotExist", "Exists", "Gt", "Gte", "In", "Lt", "Lte", "NotIn")


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """The values allowed for `key`: `values`, or with `complement` everything but them, within the bounds."""

    key: str
    complement: bool
    values: frozenset[str]
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    def intersection(self, other: Requirement) -> Requirement:
        """What both allow."""
        gte, lte = _largest(self.gte, other.gte), _smallest(self.lte, other.lte)
        min_values = _largest(self.min_values, other.min_values)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(self.key, False, _NONE, None, None, min_values)
        if self.complement:
            values = self.values | other.values if other.complement else other.values - self.values
        else:
            values = self.values - other.values if other.complement else self.values & other.values
        if gte is not None or lte is not None:
            values = frozenset(value for value in values if _within(value, gte, lte))
        if self.complement and other.complement:
            return Requirement(self.key, True, values, gte, lte, min_values)
        return Requirement(self.key, False, values, None, None, min_values)

    def intersects(self, other: Requirement) -> bool:
        """Whether both allow something. Two complements always do: labels have no end of values."""
        if self.gte is self.lte is other.gte is other.lte is None and not self.complement and not other.complement:
            return not self.values.isdisjoint(other.values)
        gte, lte = _largest(self.gte, other.gte), _smallest(self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return False
        if self.complement:
            if other.complement:
                return True
            common = other.values - self.values
        else:
            common = self.values - other.values if other.complement else self.values & other.values
        if gte is None and lte is None:
            return bool(common)
        return any(_within(value, gte, lte) for value in common)

    def has(self, value: str) -> bool:
        """Whether the value is allowed."""
        return (value in self.values) != self.complement and _within(value, self.gte, self.lte)

    def any(self) -> str:
        """One allowed value, always the same: the first of a set, the smallest number of a complement."""
        if not self.complement:
            return min(self.values, default="")
        number = self.gte if self.gte is not None else min(0, self.lte if self.lte is not None else 0)
        while str(number) in self.values:
            number += 1
        return str(number)

    @property
    def operator(self) -> str:
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def negative(self) -> bool:
        """Content with a label that is not there."""
        return self.complement == bool(self.values)

    def __len__(self) -> int:
        return _MAX - len(self.values) if self.complement else len(self.values)

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        text = f"{self.key} {self.operator}"
        if self.values:
            shown = sorted(self.values)
            if len(shown) > _SHOWN:
                shown = [*shown[:_SHOWN], f"and {len(shown) - _SHOWN} others"]
            text += f" [{' '.join(shown)}]"
        if self.gte is not None:
            text += f" >={self.gte}"
        if self.lte is not None:
            text += f" <={self.lte}"
        if self.min_values is not None:
            text += f" minValues {self.min_values}"
        return text

    def entries(self) -> list[dict[str, object]]:
        """The requirement as entries of a NodeClaim's spec; bounds and exclusions are separate entries."""
        entries: list[dict[str, object]] = []
        if self.gte is not None:
            entries.append({"key": self.key, "operator": "Gte", "values": [str(self.gte)]})
        if self.lte is not None:
            entries.append({"key": self.key, "operator": "Lte", "values": [str(self.lte)]})
        if self.values:
            entries.append({"key": self.key, "operator": self.operator, "values": sorted(self.values)})
        entries = entries or [{"key": self.key, "operator": self.operator}]
        if self.min_values is not None:
            entries = [{**entry, "minValues": self.min_values} for entry in entries]
        return entries


_NONE: frozenset[str] = frozenset()


def requirement(key: str, operator: str, values: Sequence[str] = (), min_values: int | None = None) -> Requirement:
    """Read one entry of a selector; old label names become the new ones."""
    key = normalise(key)
    match operator:
        case "In":
            return Requirement(key, False, frozenset(values), None, None, min_values)
        case "NotIn":
            return Requirement(key, True, frozenset(values), None, None, min_values)
        case "DoesNotExist":
            return Requirement(key, False, _NONE, None, None, min_values)
        case "Gt" if _bound(values) == _MAX:
            return Requirement(key, False, _NONE)
        case "Gt":
            return Requirement(key, True, _NONE, _bound(values) + 1, None, min_values)
        case "Gte":
            return Requirement(key, True, _NONE, _bound(values), None, min_values)
        case "Lt":
            bound = _bound(values)
            return Requirement(key, True, _NONE, None, bound - 1 if bound > _MIN else _MAX, min_values)
        case "Lte":
            return Requirement(key, True, _NONE, None, _bound(values), min_values)
        case _:
            return Requirement(key, True, _NONE, None, None, min_values)


def _bound(values: Sequence[str]) -> int:
    """The number of a Gt or Lt; validation has seen it before, so anything else counts as Go counts it."""
    text = values[0] if values else ""
    number = integer(text)
    if number is not None:
        return number
    digits = text.lstrip("+-")
    if not (digits.isascii() and digits.isdigit()) or len(text) - len(digits) > 1:
        return 0
    return _MIN if text.startswith("-") else _MAX


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    if gte is None and lte is None:
        return True
    number = integer(value)
    if number is None:
        return False
    return (gte is None or number >= gte) and (lte is None or number <= lte)


def _largest(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _smallest(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


__all__ = ["OPERATORS", "Requirement", "Requirements", "SelectorEntry", "requirement"]

_NO_KEYS: frozenset[str] = frozenset()


class SelectorEntry(Protocol):
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
        for requirement in requirements:
            existing = by_key.get(requirement.key)
            by_key[requirement.key] = requirement if existing is None else requirement.intersection(existing)
        self._by_key = by_key

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> Requirements:
        """What a node with these labels is."""
        return cls(requirement(key, "In", (value,)) for key, value in labels.items())

    @classmethod
    def of_entries(cls, entries: Iterable[SelectorEntry]) -> Requirements:
        """The entries of a NodePool, a NodeClaim or a node-selector term; minValues where the entry has them."""
        return cls(
            requirement(entry.key, entry.operator, entry.values, getattr(entry, "min_values", None))
            for entry in entries
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
        """The requirement of a key; one that is not mentioned may be anything."""
        return self._by_key.get(key) or requirement(key, "Exists")

    def add(self, *more: Requirement) -> Requirements:
        """These and more."""
        return Requirements((*self._by_key.values(), *more)) if more else self

    def merge(self, other: Requirements) -> Requirements:
        """What both sides ask."""
        return self.add(*other.values())

    def without(self, *keys: str) -> Requirements:
        return Requirements(requirement for requirement in self._by_key.values() if requirement.key not in keys)

    def intersects(self, other: Requirements) -> bool:
        """Whether the keys of both sides overlap."""
        mine = self._by_key
        for key, want in other._by_key.items():
            have = mine.get(key)
            if have is not None and not have.intersects(want) and not (have.negative and want.negative):
                return False
        return True

    def compatible(self, incoming: Requirements, allow_undefined: frozenset[str] = _NO_KEYS) -> bool:
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
        return ", ".join(
            sorted(str(requirement) for requirement in self._by_key.values() if requirement.key not in RESTRICTED)
        )

    __repr__ = __str__
