"""Suggestions: the existing labels, values and amounts, for a pod that requires others.

Most unschedulable pods require a label that no offering has, a mistyped value, or too much of a resource.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set

from dovetail.language import message, plural
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, WELL_KNOWN, ZONE
from dovetail.model.selector import integer
from dovetail.model.spelling import nearest
from dovetail.planner.explain.filters import known, labels_of, shown
from dovetail.planner.offerings.catalog import UNBORN, OfferingCatalog
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH
from dovetail.planner.requirements import NEVER, NODE_NAME, Term
from dovetail.planner.snapshot import Pool

#: So many values are listed; of more, the one that was meant.
_MAX_LISTED = 6


def of_labels(catalog: OfferingCatalog, pools: Sequence[Pool], pool: Pool, asked: Term, among: int) -> str:
    """What is to be had instead of what is `asked` of a label, among offerings; empty where nothing is to be said.

    The label or the value that was meant may be that of any of the pools.
    """
    if not asked or NEVER in asked:
        return ""
    key = asked[0][0]
    if key in (HOSTNAME, NODE_NAME):
        return message("a new node gets a name of its own")
    if not known(catalog, pool, key):
        every = catalog.recall("every label", lambda: frozenset[str]().union(*(labels_of(catalog, p) for p in pools)))
        if key in every:
            return message("its nodes do not have that label")
        meant = catalog.recall(("meant", key), lambda: tuple(_meant_label(key, every)))
        return "; ".join((message("no node has that label"), *meant))
    if contradictory(asked):
        return message("no value is both")
    there = [value for value, mask in catalog.by_label(key).items() if value and value != UNBORN and mask & among]
    return catalog.recall(("hint", pool.name, asked, among), lambda: _of_pools(pools, pool, asked, there))


def _of_pools(pools: Sequence[Pool], pool: Pool, asked: Term, there: Iterable[str]) -> str:
    """The values of a label in a pool; and where the value that was meant is another pool's, that one."""
    key, found = asked[0][0], of_values(asked, there, values(pool, asked[0][0]))
    wanted = [value for _, operator, named in asked if operator == "In" for value in named]
    if "did you mean" in found or len(wanted) != 1 or wanted[0] in values(pool, key):
        return found
    elsewhere = {value: other.name for other in reversed(pools) for value in _declared(other, key) if other is not pool}
    meant = nearest(wanted[0], elsewhere) if wanted[0] not in elsewhere else None
    hint = (
        message("did you mean {meant} of NodePool {elsewhere}?", meant=meant, elsewhere=elsewhere[meant])
        if meant
        else ""
    )
    return "; ".join(filter(None, (found, hint)))


def _declared(pool: Pool, key: str) -> set[str]:
    """The values that a pool itself gives to a label."""
    own = {pool.labels[key]} if key in pool.labels else set[str]()
    return own.union(*(need.values for need in pool.requirements if need.key == key and need.operator == "In"))


def of_values(asked: Term, there: Iterable[str], offered: Set[str]) -> str:
    """The values that there are, if few; else the one that was meant, unless what is asked is offered elsewhere."""
    found = sorted(there, key=lambda value: (integer(value) or 0, value))
    if not found:
        return message("there is none")
    numbers = all(integer(value) is not None for value in found)
    wanted = [value for _, operator, named in asked if operator == "In" for value in named]
    meant = nearest(wanted[0], found) if len(wanted) == 1 and wanted[0] not in offered and not numbers else None
    if meant:
        return message("did you mean {meant}?", meant=meant)
    if len(found) <= _MAX_LISTED:
        return plural("there is {values}", "there are {values}", n=len(found), values=", ".join(found))
    return message("there are {first} to {last}", first=found[0], last=found[-1]) if numbers else ""


def of_amounts(catalog: OfferingCatalog, pool: Pool, name: str, at: int) -> str:
    """How much the most is that there is of a resource, which is what offering `at` has."""
    if name.startswith(PORT):
        return message("daemons use it")
    most = int(catalog.amounts(name)[at])
    if most <= 0 and name not in catalog.charged() and not name.startswith(ATTACH):
        meant = catalog.recall(("meant", pool.name, name), lambda: tuple(_meant_resource(name, catalog)))
        return "; ".join((message("no type has any"), *meant))
    daemons = int(catalog.overhead(name)[at]) if name in catalog.charged() else 0
    amount = shown(name, max(0, most))
    if daemons:
        return message("at most {amount}, daemons take {daemons}", amount=amount, daemons=shown(name, daemons))
    return message("at most {amount}", amount=amount)


def contradictory(asked: Term) -> bool:
    """Whether no value at all could be what is asked."""
    named = [set(values) for _, operator, values in asked if operator == "In"]
    return len(named) > 1 and not set.intersection(*named)


def values(pool: Pool, key: str) -> set[str]:
    """The values that a label has on what a pool's provider offers."""
    return {value for kind in pool.types for value in _values_of(kind, key)}


def _values_of(kind: InstanceType, key: str) -> Collection[str]:
    if key == INSTANCE_TYPE:
        return (kind.name,)
    if key == ZONE:
        return {offering.zone for offering in kind.offerings}
    if key == CAPACITY_TYPE:
        return {offering.capacity_type for offering in kind.offerings}
    return kind.labels.get(key, ())


def _meant_label(key: str, there: Set[str]) -> Iterator[str]:
    """The label that was meant: by its name alone, since all of a domain look alike."""
    names = {_name(each): each for each in sorted(there | WELL_KNOWN)}
    meant = names.get(_name(key)) or names.get(nearest(_name(key), names) or "")
    if meant:
        yield message("did you mean {meant}?", meant=meant)


def _meant_resource(name: str, catalog: OfferingCatalog) -> Iterator[str]:
    meant = nearest(name, catalog.stock)
    if meant:
        yield message("did you mean {meant}?", meant=meant)


def _name(key: str) -> str:
    return key.rpartition("/")[2]
