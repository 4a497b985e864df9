"""Questions: what a pod asks of an offering, one after the other, in words and as the columns that pass.

Those here concern the offering alone; what other pods and limits have to say about it is in `obstacles`. They tell why
a pod has no place, and why a cheaper offering was not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from dovetail.model.labels import HOSTNAME, WELL_KNOWN
from dovetail.model.quantity import format_resources
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated
from dovetail.planner.asks import Ask
from dovetail.planner.clauses import NEVER, NODE_NAME, Clause, Term, text
from dovetail.planner.columns import Columns
from dovetail.planner.ports import EVERYWHERE, PORT
from dovetail.planner.problem import Problem
from dovetail.planner.shape import DISK
from dovetail.planner.sharing import ATTACH, driver_of
from dovetail.planner.snapshot import Pool

#: So many alternatives are told in words.
_TOLD = 3
#: Amounts that take more letters than this are rounded, to one of these units.
_LONG = 6
_UNITS = {"Ti": 1 << 40, "Gi": 1 << 30, "Mi": 1 << 20}


class Question(NamedTuple):
    """`code` is the reason if it turns away the last, `mask` the columns that pass."""

    code: str
    words: str
    mask: int
    resource: str = ""
    """What it asks for an amount of; `absent` if the pool has none at all."""
    absent: bool = False
    clauses: Term = ()
    """What it asks of one label."""


def of_offerings(problem: Problem, ask: Ask, pool: int) -> Iterator[Question]:
    """Every question asked of an offering of a pool, in order."""
    columns, own = problem.columns, problem.columns.of_pool[pool]
    yield from of_kind(problem, ask, pool)
    for name, amount in sorted(ask.cls.requests.items()):
        mask = columns.holding(name, amount)
        absent = not mask & own and not name.startswith((PORT, ATTACH)) and not columns.holding(name, 1) & own
        yield Question(_size_code(name), size_words(name, amount), mask, name, absent)
    unpriced = columns.recall("unpriced", lambda: _unpriced(columns))
    if unpriced:
        yield Question("NO_PRICE", "a known price", columns.everything & ~unpriced)
    yield Question("NO_OFFERING", "capacity to be had now", columns.available | unpriced)


def _unpriced(columns: Columns) -> int:
    """What cannot be had, and has no price that is known."""
    return columns.mask(each.offering.price is None for each in columns.rows) & ~columns.available


def of_kind(problem: Problem, ask: Ask, pool: int) -> Iterator[Question]:
    """The questions about the kind of machine, whatever its size: taints, labels, where volumes are."""
    columns, template = problem.columns, problem.pools[pool]
    missing = untolerated(template.taints, ask.cls.shape.tolerations, ("NoSchedule", "NoExecute"))
    words = f"taint{'s' * (len(missing) != 1)} {', '.join(map(taint_text, missing))}".rstrip()
    yield Question("UNTOLERATED_TAINT", words, 0 if missing else columns.everything)
    terms = ask.level.terms
    if len(terms) == 1:
        for together in _by_key(terms[0]):
            words = _all_of(together)
            yield Question(_label_code(columns, template, together), words, columns.term(together), clauses=together)
    else:
        unknown = all(_label_code(columns, template, term) == "UNKNOWN_LABEL" for term in terms)
        yield Question("UNKNOWN_LABEL" if unknown else "NO_TYPE_MATCHES", _any_of(terms), columns.any_term(terms))
    storage = ask.cls.storage.alternatives
    if storage != ((),):
        yield Question("VOLUME_ZONE", f"volumes in {_any_of(storage)}", columns.any_term(storage))


def known(columns: Columns, pool: Pool, key: str) -> bool:
    """Whether machines of a pool can have a label at all."""
    return key in WELL_KNOWN or key in (HOSTNAME, NODE_NAME, "") or key in labels_of(columns, pool)


def labels_of(columns: Columns, pool: Pool) -> frozenset[str]:
    """The labels that a pool and what its provider sells speak of."""

    def found() -> frozenset[str]:
        own = {*pool.labels, *(need.key for need in pool.requirements)}
        return frozenset(own.union(*(kind.labels for kind in pool.types)))

    return columns.recall(("labels", pool.name), found)


def _by_key(term: Term) -> list[Term]:
    """What is asked of each label: questions of one label may contradict each other."""
    found: dict[str, list[Clause]] = {}
    for each in term:
        found.setdefault(each[0], []).append(each)
    return [tuple(together) for together in found.values()]


def _all_of(together: Term) -> str:
    """What is asked of one label, with its name once."""
    first, *others = together
    told = text(first) if first != NEVER else "an empty node selector"
    return " and ".join([told, *(text(each).removeprefix(f"{each[0]} ") for each in others)])


def _any_of(terms: tuple[Term, ...]) -> str:
    told = [", ".join(map(_all_of, _by_key(term))) for term in terms[:_TOLD]]
    return " or ".join([*told, "others"] if len(terms) > _TOLD else told)


def _label_code(columns: Columns, pool: Pool, term: Term) -> str:
    return "NO_TYPE_MATCHES" if all(known(columns, pool, each[0]) for each in term) else "UNKNOWN_LABEL"


def _size_code(name: str) -> str:
    if name.startswith(ATTACH):
        return "VOLUME_LIMIT"
    return "HOST_PORT_TAKEN" if name.startswith(PORT) else "NO_TYPE_FITS"


def size_words(name: str, amount: int) -> str:
    if name.startswith(ATTACH):
        return f"{amount} volume{'s' * (amount != 1)} of {driver_of(name)}"
    if name.startswith(PORT):
        protocol, number, address = name.removeprefix(PORT).rsplit("/", 2)
        if protocol.startswith(DISK):
            return f"disk {protocol.removeprefix(DISK)}"
        return f"host port {number}/{protocol}{'' if address == EVERYWHERE else f' of {address}'}"
    return f"{name} {shown(name, amount)}"


@lru_cache(maxsize=4096)
def shown(name: str, amount: int) -> str:
    """An amount of a resource as people write it; bytes that would take a long number are rounded."""
    text = format_resources({name: amount})[name]
    unit = next((unit for unit, size in _UNITS.items() if amount >= size), "")
    long = len(text) > _LONG and name in ("memory", "ephemeral-storage")
    return f"{amount / _UNITS[unit]:.1f}{unit}" if long and unit else text
