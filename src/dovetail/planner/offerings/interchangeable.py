"""NodePools that no pod can distinguish: one of them stands for all.

Two NodePools with the same instance types, requirements and taints whose labels look the same to every pod offer the
same nodes at the same prices. Planning with each of them would multiply the offerings and change nothing, so a plan
uses the first of them, heaviest first and then by name, as many as have limits that together cannot bind. The last of
these stands for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dovetail.model.labels import NODEPOOL
from dovetail.planner.requirements import Clause, Term, holds
from dovetail.planner.snapshot import Pool

#: Up to this many values of a label that pods ask about are all kept, so that explanations can name them.
_MAX_EXACT_VALUES = 8


class DistinctPools(NamedTuple):
    """The NodePools to plan with, in their order, and the names of those that each of them stands for."""

    pools: list[Pool]
    stands_for: Mapping[str, tuple[str, ...]]


def distinct_pools(
    pools: Sequence[Pool],
    terms: Iterable[Term],
    topology_keys: Iterable[str],
    share_of: Callable[[Pool], float],
) -> DistinctPools:
    """The NodePools that pods can distinguish by `terms` (all that any of them requests of labels) and `topology_keys`.

    `share_of` is the share of all that the pods could ever need for which a NodePool surely has room in its limits.
    """
    if len(pools) < 2:
        return DistinctPools(list(pools), {})
    view = _LabelView(pools, terms, topology_keys)
    sufficient: dict[object, Pool] = {}
    shares: dict[object, float] = {}
    kept: list[Pool] = []
    stands_for: dict[str, list[str]] = {}
    for pool in pools:
        key = (_offered(pool), pool.requirements, pool.taints, view.of(pool))
        first = sufficient.get(key)
        if first is not None:
            stands_for.setdefault(first.name, []).append(pool.name)
            continue
        kept.append(pool)
        shares[key] = shares.get(key, 0.0) + share_of(pool)
        if shares[key] >= 1:
            sufficient[key] = pool
    return DistinctPools(kept, {name: tuple(others) for name, others in stands_for.items()})


def _offered(pool: Pool) -> object:
    """What identifies the instance types of a NodePool: they keep their identity from one snapshot to the next."""
    return tuple(map(id, pool.types))


class _LabelView:
    """The labels of a NodePool as far as pods can distinguish them: the result of each clause that pods use."""

    def __init__(self, pools: Sequence[Pool], terms: Iterable[Term], topology_keys: Iterable[str]) -> None:
        self._clauses: dict[str, list[Clause]] = {}
        for clause in dict.fromkeys(clause for term in terms for clause in term):
            self._clauses.setdefault(clause[0], []).append(clause)
        exact = set(topology_keys)
        for key in self._clauses:
            if len({_label(pool, key) for pool in pools}) <= _MAX_EXACT_VALUES:
                exact.add(key)
        self._exact = sorted(exact)
        self._by_answers = [key for key in self._clauses if key not in exact]
        self._answers: dict[tuple[str, str | None], tuple[bool, ...]] = {}

    def of(self, pool: Pool) -> object:
        required = [requirement.key for requirement in pool.requirements]
        return (
            tuple(_label(pool, key) for key in self._exact),
            tuple(self._clause_answers(key, _label(pool, key)) for key in self._by_answers),
            tuple(pool.labels.get(key) for key in required),
        )

    def _clause_answers(self, key: str, value: str | None) -> tuple[bool, ...]:
        """Whether the label is there, and whether each clause about it holds."""
        answers = self._answers.get((key, value))
        if answers is None:
            answers = (value is not None, *(holds(clause, value) for clause in self._clauses[key]))
            self._answers[key, value] = answers
        return answers


def _label(pool: Pool, key: str) -> str | None:
    return pool.name if key == NODEPOOL else pool.labels.get(key)
