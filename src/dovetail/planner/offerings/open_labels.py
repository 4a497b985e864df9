"""Open labels: labels whose value is chosen when a node is launched, and the values that pods distinguish.

A type may have several values of a label until a NodeClaim requires one of them, and a NodePool may require a label of
its own without fixing its value. Nodes of one type with different values of such a label are different entries of the
catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, NODEPOOL, WELL_KNOWN, ZONE
from dovetail.model.selector import integer
from dovetail.planner.requirements import NODE_NAME, Clause, clause, holds
from dovetail.planner.snapshot import Pool

RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
ALWAYS = {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}

#: A value for a label that must exist and that no pod asked about.
ANY_VALUE = "dovetail"
#: More combinations of open labels than this for one type, and only the first are kept.
MAX_LABEL_COMBINATIONS = 256

OpenLabels = tuple[tuple[str, str | None], ...]


def fixed_label(pool: Pool, rules: Sequence[Clause], kind: InstanceType, offering: Offering, key: str) -> str | None:
    """The value of a label that is not open, or None. `rules` are the pool's requirements on it."""
    if key in offering.labels:
        return offering.labels[key]
    if key in pool.labels:
        return pool.labels[key]
    values = kind.labels.get(key)
    if values:
        kept = [v for v in values if all(holds(rule, v) for rule in rules)]
        return kept[0] if kept else None
    for rule in rules:
        if rule[1] == "In" and rule[2]:
            return rule[2][0]
    return ALWAYS.get(key)


def pool_clauses(pool: Pool) -> list[Clause]:
    return [clause(requirement.key, requirement.operator, requirement.values) for requirement in pool.requirements]


def is_well_known(key: str) -> bool:
    """Whether a provider may set the label without a requirement of the pool."""
    return key in WELL_KNOWN


def left_open(
    pool: Pool,
    kind: InstanceType,
    by_key: Mapping[str, list[Clause]],
    defined: set[str],
    queried_values: Mapping[str, tuple[str, ...]],
) -> dict[str, list[str | None]]:
    """The open labels of this type that pods use in requirements, with their possible values.

    `by_key` are the pool's requirements, `defined` the labels that any of its types has.
    """
    left_open: dict[str, list[str | None]] = {}
    for key, named in queried_values.items():
        if not (key in defined or key in by_key or is_well_known(key)):
            continue
        if key in (ZONE, CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, HOSTNAME, NODE_NAME, RESERVATION, ""):
            continue
        if key in pool.labels or any(key in offering.labels for offering in kind.offerings):
            continue
        rules = by_key.get(key, ())
        options = _options(kind, key, rules, named, defined)
        if options != [fixed_label(pool, rules, kind, kind.offerings[0], key)]:
            left_open[key] = options
    return left_open


def open_label_values(
    pool: Pool,
    kind: InstanceType,
    by_key: Mapping[str, list[Clause]],
    left: Mapping[str, list[str | None]],
    open_keys: Sequence[str],
) -> Iterable[OpenLabels]:
    """Every combination of values for the labels that are open on any type of the pool.

    They include labels that are open on other types only: a node keeps its labels if it changes to another type.
    """
    keys = [key for key in open_keys if key in left or not any(key in offering.labels for offering in kind.offerings)]
    first = kind.offerings[0]
    options = [
        [(key, value) for value in left.get(key) or [fixed_label(pool, by_key.get(key, ()), kind, first, key)]]
        for key in keys
    ]
    for count, combination in enumerate(product(*options)):
        if count == MAX_LABEL_COMBINATIONS:
            return
        yield combination


def _options(
    kind: InstanceType, key: str, rules: Sequence[Clause], named: tuple[str, ...], defined: set[str]
) -> list[str | None]:
    values = kind.labels.get(key)
    if values:
        return [value for value in values if all(holds(rule, value) for rule in rules)]
    if key in defined:
        return [None]
    if rules:
        return _open_values(rules, named)
    return [None, *named] if is_well_known(key) else [None]


def _open_values(rules: Sequence[Clause], named: tuple[str, ...]) -> list[str | None]:
    """The values that a pool's requirements leave open for a label of its own."""
    listed = [set(rule[2]) for rule in rules if rule[1] == "In"]
    if listed:
        pool_values = sorted(set.intersection(*listed))
        return [value for value in pool_values if all(holds(rule, value) for rule in rules)]
    if any(rule[1] == "DoesNotExist" for rule in rules):
        return [None]
    bounds = [integer(rule[2][0]) for rule in rules if rule[1] in ("Gt", "Gte", "Lt", "Lte") and rule[2]]
    spare = [str(bound + step) for bound in bounds if bound is not None for step in (-1, 0, 1)]
    candidates = [*named, *spare, ANY_VALUE]
    kept: list[str | None] = [v for v in dict.fromkeys(candidates) if all(holds(rule, v) for rule in rules)]
    return kept[: len(named) + 1]
