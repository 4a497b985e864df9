"""Suggestions: the existing labels, values and amounts, for a pod that requires others.

Most unschedulable pods require a label that no offering has, a mistyped value, or too much of a resource.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from typing import NamedTuple

from dovetail.language import message, plural
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import ARCH, CAPACITY_TYPE, CAPACITY_TYPES, HOSTNAME, INSTANCE_TYPE, OS, WELL_KNOWN, ZONE
from dovetail.model.selector import integer
from dovetail.model.spelling import nearest
from dovetail.planner.explain.filters import all_label_keys, amount_text, is_known_label
from dovetail.planner.offerings.catalog import UNNAMED_NODE, OfferingCatalog
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH
from dovetail.planner.requirements import NEVER, NODE_NAME, Term
from dovetail.planner.snapshot import Pool

#: Values that a text lists; of more, only a similar one.
_MAX_LISTED = 6
#: Labels with few values, all known: one of them is no other one misspelt.
_ALL_VALUES = {ARCH: ("amd64", "arm64"), OS: ("linux", "windows"), CAPACITY_TYPE: CAPACITY_TYPES}


class Suggestion(NamedTuple):
    """What there is instead, in words and as data (`Exclusion`)."""

    words: str = ""
    meant: str = ""
    meant_of: str = ""
    unknown_label: bool = False
    available: int | None = None


def label_suggestion(catalog: OfferingCatalog, pools: Sequence[Pool], pool: Pool, term: Term, among: int) -> Suggestion:
    """The values of a label that exist `among` some offerings, for a pod that requires others (`term`); may be empty.

    A similar label or value of any of the pools is suggested.
    """
    if not term or NEVER in term:
        return Suggestion()
    key = term[0][0]
    if key in (HOSTNAME, NODE_NAME):
        return Suggestion(message("a new node gets a name of its own"))
    if not is_known_label(catalog, pool, key):
        every = all_label_keys(catalog, pools)
        if key in every:
            return _of_another_pool(pools, pool, term, Suggestion(message("its nodes do not have that label")))
        meant = catalog.recall(("meant", key), lambda: _similar_label(key, every))
        words = "; ".join((message("no node has that label"), *_did_you_mean(meant)))
        return Suggestion(words, meant, unknown_label=True)
    if contradictory(term):
        return Suggestion(message("no value is both"))
    there = [value for value, mask in catalog.by_label(key).items() if value and value != UNNAMED_NODE and mask & among]
    return catalog.recall(("hint", pool.name, term, among), lambda: _suggestion_from_pools(pools, pool, term, there))


def _suggestion_from_pools(pools: Sequence[Pool], pool: Pool, term: Term, there: Iterable[str]) -> Suggestion:
    """The values of a label in a pool, and a similar value of another pool if this one has none."""
    key = term[0][0]
    own = value_suggestion(term, there, values(pool, key))
    required_values = [value for _, operator, named in term if operator == "In" for value in named]
    if own.meant or len(required_values) != 1 or required_values[0] in values(pool, key):
        return own
    return _of_another_pool(pools, pool, term, own)


def _of_another_pool(pools: Sequence[Pool], pool: Pool, term: Term, own: Suggestion) -> Suggestion:
    """`own`, and a similar value that another pool gives to the label."""
    key = term[0][0]
    required_values = [value for _, operator, named in term if operator == "In" for value in named]
    if len(required_values) != 1:
        return own
    elsewhere = {value: other.name for other in reversed(pools) for value in _declared(other, key) if other is not pool}
    meant = nearest(required_values[0], elsewhere) if required_values[0] not in elsewhere else None
    if meant is None:
        return own
    hint = message("did you mean {meant} of NodePool {elsewhere}?", meant=meant, elsewhere=elsewhere[meant])
    return Suggestion("; ".join(filter(None, (own.words, hint))), meant, elsewhere[meant])


def _declared(pool: Pool, key: str) -> set[str]:
    """The values that a pool itself gives to a label."""
    own = {pool.labels[key]} if key in pool.labels else set[str]()
    return own.union(*(need.values for need in pool.requirements if need.key == key and need.operator == "In"))


def value_suggestion(term: Term, there: Iterable[str], offered: Set[str]) -> Suggestion:
    """The existing values, if they are few; else a similar one, unless the required value is `offered` otherwise."""
    existing = sorted(there, key=lambda value: (integer(value) or 0, value))
    if not existing:
        return Suggestion(message("there is none"))
    numbers = all(integer(value) is not None for value in existing)
    required_values = [value for _, operator, named in term if operator == "In" for value in named]
    right = {*offered, *_ALL_VALUES.get(term[0][0], ())}
    meant = (
        nearest(required_values[0], existing)
        if len(required_values) == 1 and required_values[0] not in right and not numbers
        else None
    )
    if meant:
        return Suggestion(message("did you mean {meant}?", meant=meant), meant)
    if len(existing) <= _MAX_LISTED:
        return Suggestion(
            plural("there is {values}", "there are {values}", n=len(existing), values=", ".join(existing))
        )
    return Suggestion(message("there are {first} to {last}", first=existing[0], last=existing[-1]) if numbers else "")


def amount_suggestion(catalog: OfferingCatalog, pool: Pool, name: str, largest: int) -> Suggestion:
    """The largest amount of a resource on any offering; `largest` is the index of that offering."""
    if name.startswith(PORT):
        return Suggestion(message("daemons use it"))
    most = int(catalog.amounts(name)[largest])
    if most <= 0 and name not in catalog.overhead_resources() and not name.startswith(ATTACH):
        meant = catalog.recall(("meant", pool.name, name), lambda: nearest(name, catalog.resource_names) or "")
        return Suggestion("; ".join((message("no type has any"), *_did_you_mean(meant))), meant)
    daemons = int(catalog.overhead(name)[largest]) if name in catalog.overhead_resources() else 0
    available = max(0, most)
    amount = amount_text(name, available)
    words = (
        message("at most {amount}, daemons take {daemons}", amount=amount, daemons=amount_text(name, daemons))
        if daemons
        else message("at most {amount}", amount=amount)
    )
    return Suggestion(words, available=available)


def contradictory(term: Term) -> bool:
    """Whether no value satisfies all clauses on a label."""
    named = [set(values) for _, operator, values in term if operator == "In"]
    excluded = set[str]().union(*(values for _, operator, values in term if operator == "NotIn"))
    return bool(named) and len(term) > 1 and not set.intersection(*named) - excluded


def values(pool: Pool, key: str) -> set[str]:
    """The values of a label on the types of a pool."""
    return {value for kind in pool.types for value in _values_of(kind, key)}


def _values_of(kind: InstanceType, key: str) -> Collection[str]:
    if key == INSTANCE_TYPE:
        return (kind.name,)
    if key == ZONE:
        return {offering.zone for offering in kind.offerings}
    if key == CAPACITY_TYPE:
        return {offering.capacity_type for offering in kind.offerings}
    return kind.labels.get(key, ())


def _similar_label(key: str, there: Set[str]) -> str:
    """A label with a similar name, whatever its prefix: labels with one prefix look alike. Empty if there is none."""
    names = {_name(label): label for label in sorted(there | WELL_KNOWN)}
    return names.get(_name(key)) or names.get(nearest(_name(key), names) or "") or ""


def _did_you_mean(meant: str) -> list[str]:
    return [message("did you mean {meant}?", meant=meant)] if meant else []


def _name(key: str) -> str:
    return key.rpartition("/")[2]
