"""The offering catalog: every node that could be launched, cheapest first; sets of entries are bit masks.

An entry is a NodePool, an instance type, an offering, and a value for each label that the pool or the type leaves open
and that some pod requires. So an entry has definite labels, a pod either accepts it or not, and requirements combine
by AND of their masks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, ZONE
from dovetail.planner.offerings.open_labels import (
    ALWAYS,
    RESERVATION,
    OpenLabels,
    fixed_label,
    left_open,
    open_label_values,
    pool_clauses,
)
from dovetail.planner.plan import OfferingOption
from dovetail.planner.requirements import NODE_NAME, Clause, Term, holds
from dovetail.planner.snapshot import Pool

#: The hostname of a new node: `Exists` and `NotIn` hold for it, `In` does not.
UNNAMED_NODE = "\0unborn"
#: Labels of every node, whatever its type and pool.
_OF_ALL = (ZONE, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, HOSTNAME, NODE_NAME, RESERVATION)
#: Cached results of one catalog.
_MAX_CACHED = 4096
_CAP = 1 << 62

T = TypeVar("T")
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]


class CatalogEntry:
    """One node that could be launched."""

    __slots__ = ("choice", "index", "offering", "open_labels", "pool", "type")

    def __init__(
        self, pool: int, kind: InstanceType, offering: Offering, open_labels: OpenLabels, choice: OfferingOption
    ) -> None:
        self.index = -1
        self.pool = pool
        self.type = kind
        self.offering = offering
        self.open_labels = open_labels
        self.choice = choice

    @property
    def sort_key(self) -> tuple[float, str, str, str, int, OpenLabels]:
        price = self.offering.price
        offering = self.offering
        return (
            price if price is not None else float("inf"),
            self.type.name,
            offering.capacity_type,
            f"{offering.zone}/{offering.reservation_id or ''}",
            self.pool,
            tuple((key, value or "") for key, value in self.open_labels),
        )


class LabelQueries:
    """The labels that pods use in requirements, and the values that they name: open labels must distinguish these."""

    def __init__(self, terms: Iterable[Term], keys: Iterable[str]) -> None:
        values: dict[str, set[str]] = {}
        for term in terms:
            for key, _, named in term:
                values.setdefault(key, set()).update(named)
        for key in keys:
            values.setdefault(key, set())
        self.values = {key: tuple(sorted(values[key])) for key in sorted(values)}


class OfferingCatalog:
    """The entries of all pools, and masks of them. Bit i is entry i; lower is cheaper."""

    def __init__(
        self, pools: Sequence[Pool], label_queries: LabelQueries, unavailable: frozenset[tuple[str, str, str]]
    ) -> None:
        self.pools = tuple(pools)
        self.asked = label_queries
        self._rules = [_by_key(pool_clauses(pool)) for pool in pools]
        catalog_entries: list[CatalogEntry] = []
        blocks = _EntriesByPool(label_queries)
        for index, (pool, rules) in enumerate(zip(pools, self._rules, strict=True)):
            catalog_entries += [CatalogEntry(index, *row) for row in blocks.of(pool, rules)]
        catalog_entries.sort(key=attrgetter("sort_key"))
        for position, entry in enumerate(catalog_entries):
            entry.index = position
        self.rows = catalog_entries
        self.size = len(catalog_entries)
        self.everything = (1 << self.size) - 1
        prices = [c.offering.price for c in catalog_entries]
        self.prices: Floats = np.array([np.inf if price is None else price for price in prices], dtype=np.float64)
        of_pool: list[list[int]] = [[] for _ in pools]
        for entry in catalog_entries:
            of_pool[entry.pool].append(entry.index)
        self.of_pool = [of_bits(where) for where in of_pool]
        self.available = self.mask(_launchable(c.offering, c.type, unavailable) for c in catalog_entries)
        self.overcommitted = 0
        """Offerings whose DaemonSets alone do not fit on a node."""
        self.reserved = self.mask(c.offering.capacity_type == "reserved" for c in catalog_entries)
        self._labels: dict[str, dict[str | None, int]] = {}
        self._label_keys = _label_keys(catalog_entries).union(*(pool.labels for pool in pools), *self._rules)
        """The labels that any node may have."""
        self._clauses: dict[Clause, int] = {}
        self._amounts: dict[str, Ints] = {}
        self._overhead: dict[str, Ints] = {}
        self._steps: dict[str, tuple[list[int], list[int]]] = {}
        self._bools: dict[int, Bools] = {}
        self.cached_results: dict[object, Any] = {}
        """Cached results for masks of these offerings; see `recall`."""

    def reservations(self) -> Mapping[str, int]:
        """Nodes that each reservation still has; the smallest figure counts where it is listed twice."""

        def capacities() -> Mapping[str, int]:
            left: dict[str, int] = {}
            for entry in self.rows:
                name, count = entry.offering.reservation_id, entry.offering.reservation_capacity
                if name is not None and count is not None:
                    left[name] = min(left.get(name, count), count)
            return left

        return self.recall("reservations", capacities)

    def recall(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached result of `make` for a key. A catalog outlives a plan, and later plans need the same results."""
        cached = self.cached_results.get(key)
        if cached is None:
            if len(self.cached_results) >= _MAX_CACHED:
                self.cached_results.clear()
            cached = self.cached_results[key] = make()
        value: T = cached
        return value

    @staticmethod
    def mask(bits: Iterable[bool]) -> int:
        return packed_mask(np.fromiter(bits, dtype=np.bool_))

    def bools(self, mask: int) -> Bools:
        """The mask as an array."""
        cached = self._bools.get(mask)
        if cached is None:
            raw = np.frombuffer(mask.to_bytes((self.size + 7) // 8 or 1, "little"), dtype=np.uint8)
            cached = self._bools[mask] = np.unpackbits(raw, bitorder="little")[: self.size].astype(np.bool_)
        return cached

    def by_label(self, key: str) -> dict[str | None, int]:
        """The offerings by the value of a label."""
        cached = self._labels.get(key)
        if cached is None and key not in self._label_keys:
            cached = self._labels[key] = {None: self.everything} if self.rows else {}
        if cached is None:
            bits: dict[str | None, list[int]] = {}
            for entry in self.rows:
                bits.setdefault(self.label(entry, key), []).append(entry.index)
            cached = self._labels[key] = {value: of_bits(where) for value, where in bits.items()}
        return cached

    def label(self, entry: CatalogEntry, key: str) -> str | None:
        """The value of a label on a node of this offering."""
        if key == ZONE:
            return entry.offering.zone
        if key == CAPACITY_TYPE:
            return entry.offering.capacity_type
        if key == INSTANCE_TYPE:
            return entry.type.name
        pool = self.pools[entry.pool]
        if key == NODEPOOL:
            return pool.name
        if key in (HOSTNAME, NODE_NAME):
            return UNNAMED_NODE
        for name, value in entry.open_labels:
            if name == key:
                return value
        if key == RESERVATION and entry.offering.reservation_id:
            return entry.offering.reservation_id
        return fixed_label(pool, self._rules[entry.pool].get(key, ()), entry.type, entry.offering, key)

    def clause(self, clause: Clause) -> int:
        """The offerings on which a clause holds."""
        cached = self._clauses.get(clause)
        if cached is None:
            cached = 0
            for value, mask in self.by_label(clause[0]).items():
                if holds(clause, value):
                    cached |= mask
            self._clauses[clause] = cached
        return cached

    def term(self, term: Term) -> int:
        mask = self.everything
        for clause in term:
            mask &= self.clause(clause)
            if not mask:
                break
        return mask

    def any_term(self, terms: Iterable[Term]) -> int:
        mask = 0
        for term in terms:
            mask |= self.term(term)
        return mask

    def add_overhead(self, mask: int, requests: Mapping[str, int]) -> None:
        """Subtract the requests of a DaemonSet from the offerings of a mask; called before anything reads amounts."""
        chosen = self.bools(mask)
        for name, amount in requests.items():
            held = self._overhead.setdefault(name, np.zeros(self.size, dtype=np.int64))
            held[chosen] += amount

    def exclude_overcommitted(self, ignored: tuple[str, ...]) -> None:
        """Leave out offerings whose DaemonSets alone need more of a resource than a node has, whatever pods ask for.

        Resources whose names begin with one of `ignored` are left to the packing.
        """
        for name in self._overhead:
            if not name.startswith(ignored):
                self.overcommitted |= self.mask((self.amounts(name) < 0).tolist())
        self.available &= ~self.overcommitted

    def overhead_resources(self) -> list[str]:
        """The resources that DaemonSets request."""
        return list(self._overhead)

    def overhead(self, name: str) -> Ints:
        return self._overhead[name]

    def amounts(self, name: str) -> Ints:
        """The amount of a resource that DaemonSets leave to other pods on each offering."""
        cached = self._amounts.get(name)
        if cached is None:
            cached = self._by_type(lambda entry_type: entry_type.allocatable.get(name, 0))
            if name in self._overhead:
                cached = cached - self._overhead[name]
            self._amounts[name] = cached
        return cached

    def capacity(self, name: str) -> Ints:
        """The capacity of a resource on each offering, before overhead and DaemonSets."""
        return self._by_type(lambda entry_type: entry_type.capacity.get(name, 0))

    def _by_type(self, amount_of: Callable[[InstanceType], int]) -> Ints:
        """An amount of each offering's instance type."""
        types, type_at = self._types
        amounts = [max(-_CAP, min(amount_of(entry_type), _CAP)) for entry_type in types]
        return np.array(amounts, dtype=np.int64)[type_at]

    @cached_property
    def _types(self) -> tuple[list[InstanceType], Ints]:
        """The instance types, and the index of each offering's; far fewer than offerings."""
        types = {id(entry.type): entry.type for entry in self.rows}
        index_of = {key: index for index, key in enumerate(types)}
        return [*types.values()], np.array([index_of[id(entry.type)] for entry in self.rows], dtype=np.int64)

    @cached_property
    def resource_names(self) -> frozenset[str]:
        """The resources that any type has."""
        return frozenset(name for pool in self.pools for kind in pool.types for name in kind.capacity)

    def largest(self, name: str, pool: int) -> int:
        """The largest capacity of a resource among the types that a pool may launch."""

        def largest_capacity() -> int:
            return max((kind.capacity.get(name, 0) for kind in possible_types(self.pools[pool])), default=0)

        return self.recall(("largest", pool, name), largest_capacity)

    def set_amounts(self, name: str, values: Ints) -> None:
        """Set the amounts of a dimension that is not in the type's capacity: attachable volumes, host ports."""
        self._amounts[name] = np.maximum(0, values - self._overhead[name] if name in self._overhead else values)

    def holding(self, name: str, amount: int) -> int:
        """The offerings with at least this much of a resource."""
        levels, masks = self.steps(name)
        return masks[bisect_left(levels, amount)]

    def with_most(self, name: str, among: int) -> int:
        """Of some offerings, those that have most of a resource."""
        _, masks = self.steps(name)
        beyond = bisect_left(masks, True, key=lambda mask: not mask & among)
        return masks[beyond - 1] & among

    def steps(self, name: str) -> tuple[list[int], list[int]]:
        """The amounts of a resource in rising order, and the offerings with at least as much; none at the end."""
        cached = self._steps.get(name)
        if cached is None:
            cached = self._steps[name] = self._price_indexes(name)
        return cached

    def _price_indexes(self, name: str) -> tuple[list[int], list[int]]:
        amounts = self.amounts(name)
        levels = np.unique(amounts)
        packed = np.packbits(amounts >= levels[:, None], axis=1, bitorder="little")
        return levels.tolist(), [*(int.from_bytes(row.tobytes(), "little") for row in packed), 0]

    def fits(self, requests: Mapping[str, int]) -> int:
        mask = self.everything
        for name, amount in requests.items():
            mask &= self.holding(name, amount)
            if not mask:
                break
        return mask

    def listed(self, mask: int) -> list[CatalogEntry]:
        """The offerings of a mask, cheapest first."""
        return [self.rows[index] for index in np.flatnonzero(self.bools(mask))] if mask else []


def of_bits(where: Iterable[int]) -> int:
    places = list(where)
    if not places:
        return 0
    buffer = bytearray(max(places) // 8 + 1)
    for place in places:
        buffer[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(buffer, "little")


def packed_mask(bools: Bools) -> int:
    """An array as a mask."""
    return int.from_bytes(np.packbits(bools, bitorder="little").tobytes(), "little")


def lowest(mask: int) -> int:
    """The cheapest offering of a mask that is not empty."""
    return (mask & -mask).bit_length() - 1


def _launchable(offering: Offering, kind: InstanceType, unavailable: frozenset[tuple[str, str, str]]) -> bool:
    if not offering.available or (kind.name, offering.zone, offering.capacity_type) in unavailable:
        return False
    return offering.capacity_type != "reserved" or offering.reservation_capacity != 0


def offered(pool: Pool, clauses: Iterable[Clause]) -> bool:
    """Whether any offering of a pool's types satisfies some of the pool's requirements."""
    by_key = _by_key(clauses)
    return any(
        _offering_allowed(offering, by_key) for kind in possible_types(pool, by_key) for offering in kind.offerings
    )


def possible_types(pool: Pool, rules_by_key: Mapping[str, list[Clause]] | None = None) -> Iterator[InstanceType]:
    """Yields the types of a pool that some of its requirements leave (all if not given), whatever their offerings."""
    by_key, defined = _by_key(pool_clauses(pool)) if rules_by_key is None else rules_by_key, _defined(pool)
    for kind in pool.types:
        if all(_possible(kind, key, rules, defined, pool) for key, rules in by_key.items()):
            yield kind


def _label_keys(catalog: Iterable[CatalogEntry]) -> set[str]:
    """The label keys that nodes have from types, offerings and open labels."""
    keys = {*_OF_ALL, *ALWAYS}
    keys.update(key for open_labels in {entry.open_labels for entry in catalog} for key, _ in open_labels)
    types = {id(entry.type): entry.type for entry in catalog}.values()
    return keys.union(
        *(instance_type.labels for instance_type in types),
        *(offering.labels for kind in types for offering in kind.offerings),
    )


def _by_key(clauses: Iterable[Clause]) -> dict[str, list[Clause]]:
    clauses_by_key: dict[str, list[Clause]] = {}
    for clause in clauses:
        clauses_by_key.setdefault(clause[0], []).append(clause)
    return clauses_by_key


def _defined(pool: Pool) -> set[str]:
    """The labels that types of a pool have."""
    return {key for kind in pool.types for key in kind.labels}


#: A catalog entry without its pool.
_Entry = tuple[InstanceType, Offering, OpenLabels, OfferingOption]


class _EntriesByPool:
    """The entries of a pool without the pool itself; pools with the same types and requirements share one list."""

    def __init__(self, label_queries: LabelQueries) -> None:
        self._asked = label_queries
        self._blocks: dict[object, list[_Entry]] = {}

    def of(self, pool: Pool, by_key: Mapping[str, list[Clause]]) -> list[_Entry]:
        own = frozenset(key for key in pool.labels if key in by_key or key in self._asked.values)
        key = (tuple(map(id, pool.types)), pool.requirements, own)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = _entries(pool, by_key, self._asked)
        return block


def _choice(kind: InstanceType, offering: Offering) -> OfferingOption:
    return OfferingOption(
        instance_type=kind.name,
        zone=offering.zone,
        capacity_type=offering.capacity_type,
        price=offering.price,
        reservation_id=offering.reservation_id,
    )


def _entries(pool: Pool, by_key: Mapping[str, list[Clause]], label_queries: LabelQueries) -> list[_Entry]:
    defined = _defined(pool)
    kinds = [
        kind
        for kind in pool.types
        if kind.offerings and all(_possible(kind, key, rules, defined, pool) for key, rules in by_key.items())
    ]
    left = [left_open(pool, kind, by_key, defined, label_queries.values) for kind in kinds]
    open_keys = [key for key in label_queries.values if any(key in open_labels for open_labels in left)]
    entries: list[_Entry] = []
    for kind, options in zip(kinds, left, strict=True):
        label_values = list(open_label_values(pool, kind, by_key, options, open_keys)) if open_keys else [()]
        for offering in kind.offerings:
            if _offering_allowed(offering, by_key):
                choice = _choice(kind, offering)
                entries += [(kind, offering, open_labels, choice) for open_labels in label_values]
    return entries


def _possible(kind: InstanceType, key: str, rules: list[Clause], defined: set[str], pool: Pool) -> bool:
    if key in (ZONE, CAPACITY_TYPE, RESERVATION) or key in pool.labels:
        return True
    if key == INSTANCE_TYPE:
        return all(holds(rule, kind.name) for rule in rules)
    values = kind.labels.get(key)
    if values:
        return any(all(holds(rule, value) for rule in rules) for value in values)
    if key in defined:
        return all(holds(rule, None) for rule in rules)
    return True


def _offering_allowed(offering: Offering, by_key: Mapping[str, list[Clause]]) -> bool:
    facts = {ZONE: offering.zone, CAPACITY_TYPE: offering.capacity_type, RESERVATION: offering.reservation_id}
    facts.update(offering.labels)
    return all(holds(rule, facts[key]) for key, rules in by_key.items() if key in facts for rule in rules)
