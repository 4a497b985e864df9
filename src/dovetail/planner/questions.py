"""Questions: what a pod asks of an offering, one after the other, in words and as the columns that pass.

Those here concern the offering alone; what other pods and limits have to say about it is in `obstacles`. They tell why
a pod has no place, and why a cheaper offering was not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.model.labels import HOSTNAME, WELL_KNOWN
from dovetail.model.quantity import format_resources
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated
from dovetail.planner.asks import Ask
from dovetail.planner.clauses import NEVER, NODE_NAME, Clause, Term, text
from dovetail.planner.columns import Asked, Columns
from dovetail.planner.flavours import pool_clauses
from dovetail.planner.ports import PORT
from dovetail.planner.problem import Problem
from dovetail.planner.sharing import ATTACH
from dovetail.planner.snapshot import Pool

#: So many alternatives are told in words.
_TOLD = 3


class Question(NamedTuple):
    """`code` is the reason if it turns away the last, `mask` the columns that pass."""

    code: str
    words: str
    mask: int
    size: bool = False
    """Whether it asks for an amount of something."""


def of_offerings(problem: Problem, ask: Ask, pool: int) -> Iterator[Question]:
    """Every question asked of an offering of a pool, in order."""
    columns = problem.columns
    yield from of_kind(problem, ask, pool)
    for name, amount in sorted(ask.cls.requests.items()):
        words = _size_words(name, amount) if columns.holding(name, 1) else f"{name} (no type has any)"
        yield Question(_size_code(name), words, columns.holding(name, amount), size=True)
    yield Question("NO_TYPE_FITS", "all requests together", columns.fits(ask.cls.requests), size=True)
    priced = columns.recall("priced", lambda: columns.mask(each.offering.price is not None for each in columns.rows))
    if priced != columns.everything:
        yield Question("NO_PRICE", "a known price", columns.available | priced)
    yield Question("NO_OFFERING", "capacity to be had now", columns.available)


def of_kind(problem: Problem, ask: Ask, pool: int) -> Iterator[Question]:
    """The questions about the kind of machine, whatever its size: taints, labels, where volumes are."""
    columns, template = problem.columns, problem.pools[pool]
    missing = untolerated(template.taints, ask.cls.shape.tolerations, ("NoSchedule", "NoExecute"))
    words = f"taint {taint_text(missing[0])}" if missing else "taints"
    yield Question("UNTOLERATED_TAINT", words, 0 if missing else columns.everything)
    terms = ask.level.terms
    if len(terms) == 1:
        for each in terms[0]:
            yield Question(_label_code(template, (each,)), _asked(each), columns.clause(each))
    else:
        unknown = all(_label_code(template, term) == "UNKNOWN_LABEL" for term in terms)
        yield Question("UNKNOWN_LABEL" if unknown else "NO_TYPE_MATCHES", _any_of(terms), columns.any_term(terms))
    storage = ask.cls.storage.alternatives
    if storage != ((),):
        yield Question("VOLUME_ZONE", f"volumes in {_any_of(storage)}", columns.any_term(storage))


def known(pool: Pool, key: str) -> bool:
    """Whether machines of a pool can have a label at all."""
    if key in WELL_KNOWN or key in pool.labels or key in (HOSTNAME, NODE_NAME, ""):
        return True
    return any(need.key == key for need in pool.requirements) or any(key in kind.labels for kind in pool.types)


def own_requirements(pool: Pool) -> str:
    """Why a pool has nothing to offer to anybody, in words."""
    if not pool.types:
        return "its NodeClass (it offers no types)"
    for need, words in zip(pool.requirements, map(text, pool_clauses(pool)), strict=True):
        alone = Columns([_only(pool, need.key)], Asked((), ()), frozenset())
        if not alone.size:
            return f"its own requirement {words}"
    return "its own requirements together"


def _only(pool: Pool, key: str) -> Pool:
    return replace(pool, requirements=tuple(each for each in pool.requirements if each.key == key))


def _asked(each: Clause) -> str:
    return text(each) if each != NEVER else "an empty node selector"


def _any_of(terms: tuple[Term, ...]) -> str:
    told = [", ".join(map(_asked, term)) for term in terms[:_TOLD]]
    return " or ".join([*told, "others"] if len(terms) > _TOLD else told)


def _label_code(pool: Pool, term: Term) -> str:
    return "NO_TYPE_MATCHES" if all(known(pool, each[0]) for each in term) else "UNKNOWN_LABEL"


def _size_code(name: str) -> str:
    if name.startswith(ATTACH):
        return "VOLUME_LIMIT"
    return "HOST_PORT_TAKEN" if name.startswith(PORT) else "NO_TYPE_FITS"


def _size_words(name: str, amount: int) -> str:
    if name.startswith(ATTACH):
        return f"{amount} volumes of {name.removeprefix(ATTACH)}"
    if name.startswith(PORT):
        return f"host port {name.removeprefix(PORT)}"
    return f"{name} {shown(name, amount)}"


@lru_cache(maxsize=4096)
def shown(name: str, amount: int) -> str:
    """An amount of a resource as people write it."""
    return format_resources({name: amount})[name]
