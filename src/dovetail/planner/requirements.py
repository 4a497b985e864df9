"""Clauses: single label requirements, in a form that can be compared and cached.

A node selector, a node affinity term, a pool's requirement and a label selector are all conjunctions of
clauses. Required node affinity is a disjunction of conjunctions. Values are sorted, so equal requirements compare
equal. `tolerates_all` tests tolerations against a set of taints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.labels import ALIASES
from dovetail.model.nodes import Taint
from dovetail.model.pods import Toleration
from dovetail.model.selector import LabelSelector, integer
from dovetail.model.taints import PREFER_NO_SCHEDULE, tolerates

#: (key, operator, values)
Clause = tuple[str, str, tuple[str, ...]]
#: Every clause must hold.
Term = tuple[Clause, ...]

#: A clause nothing satisfies: a missing selector, a node selector without terms.
NEVER: Clause = ("", "Never", ())

#: The key of a node's own name in a clause (matchFields).
NODE_NAME = "metadata.name"


def clause(key: str, operator: str, values: Iterable[str] = ()) -> Clause:
    return ALIASES.get(key, key), operator, tuple(sorted(set(values)))


def holds(clause: Clause, value: str | None) -> bool:
    """Whether a label with this value (None: no such label) satisfies the clause."""
    _, operator, values = clause
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return operator != "Never" and _compares(operator, values, value)


def _compares(operator: str, values: tuple[str, ...], value: str | None) -> bool:
    mine = integer(value) if value is not None else None
    bound = integer(values[0]) if len(values) == 1 else None
    if mine is None or bound is None:
        return False
    return {"Gt": mine > bound, "Lt": mine < bound, "Gte": mine >= bound, "Lte": mine <= bound}.get(operator, False)


def all_hold(term: Term, labels: Mapping[str, str]) -> bool:
    return all(holds(clause, labels.get(clause[0])) for clause in term)


def text(clause: Clause) -> str:
    """The clause as text for a funnel."""
    key, operator, values = clause
    shown = ", ".join(values[:5]) + (f" and {len(values) - 5} others" if len(values) > 5 else "")
    return f"{key} {operator} [{shown}]" if values else f"{key} {operator}"


def of_selector(
    selector: LabelSelector | None,
    labels: Mapping[str, str],
    same: Iterable[str] = (),
    other: Iterable[str] = (),
) -> Term:
    """A label selector as clauses; `same` and `other` are (mis)matchLabelKeys, read from the pod's own labels."""
    if selector is None:
        return (NEVER,)
    parts: list[Clause] = [(key, "In", (value,)) for key, value in selector.match_labels.items()]
    parts += [
        (expression.key, expression.operator, tuple(sorted(set(expression.values))))
        for expression in selector.match_expressions
    ]
    parts += [(key, "In", (labels[key],)) for key in same if key in labels]
    parts += [(key, "NotIn", (labels[key],)) for key in other if key in labels]
    return tuple(sorted(parts))


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint], prefer: bool) -> bool:
    """Whether every taint is tolerated. `prefer`: PreferNoSchedule taints do not count."""
    held = tuple(tolerations)
    binding = [taint for taint in taints if not (prefer and taint.effect == PREFER_NO_SCHEDULE)]
    return all(any(tolerates(toleration, taint) for toleration in held) for taint in binding)
