"""Admission: whether the template of a NodePool admits a pod, whatever instance types it has.

It is checked for NodePools whose types are unknown, because they are not ready or have no type left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.model.labels import HOSTNAME, NODEPOOL, WELL_KNOWN
from dovetail.model.pods import Toleration
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated
from dovetail.planner.offerings.open_labels import pool_clauses
from dovetail.planner.requirements import NODE_NAME, Clause, Term, holds, text
from dovetail.planner.snapshot import Pool


def refusal(pool: Pool, terms: Sequence[Term], tolerations: Sequence[Toleration]) -> tuple[str, str]:
    """The taint or label requirement that keeps a pod off a pool's nodes: reason code and text; empty if none does."""
    missing = untolerated(pool.taints, tolerations, ("NoSchedule", "NoExecute"))
    if missing:
        return "UNTOLERATED_TAINT", f"taint{'s' * (len(missing) != 1)} {', '.join(map(taint_text, missing))}"
    refused = [next((clause for clause in term if not possible(pool, clause)), None) for term in terms]
    first = next(iter(refused), None)
    if first is None or None in refused:
        return "", ""
    key = first[0]
    declared = key in WELL_KNOWN or key in pool.labels or any(rule[0] == key for rule in pool_clauses(pool))
    return "NO_TYPE_MATCHES" if declared else "UNKNOWN_LABEL", text(first)


def possible(pool: Pool, clause: Clause) -> bool:
    """Whether a node of the pool can have a label that satisfies the clause."""
    key, operator, values = clause
    if key in (HOSTNAME, NODE_NAME, ""):
        return False
    if key in pool.labels:
        return holds(clause, pool.labels[key])
    rules = [pool_clause for pool_clause in pool_clauses(pool) if pool_clause[0] == key]
    if not rules and key not in WELL_KNOWN:
        return operator in ("NotIn", "DoesNotExist")
    named = {value for rule in rules if rule[1] == "In" for value in rule[2]}
    candidates = set(values) if operator == "In" else named
    if not candidates:
        return operator != "DoesNotExist"
    return any(holds(clause, value) and all(holds(rule, value) for rule in rules) for value in candidates)


class LabelAdmission(NamedTuple):
    """The labels of the operator's own, and names of pools, that a pod asks for: where they are, and where not."""

    others: frozenset[str]
    """Pools without a label that another pool has: they are meant for other pods."""
    nowhere: frozenset[str]
    """Labels that no pool has: no change of one pool's taints, limits or types helps the pod."""


def label_admission(pools: Sequence[Pool], terms: Sequence[Term]) -> LabelAdmission:
    others, nowhere = set[str](), set[str]()
    for clause in terms[0] if len(terms) == 1 else ():
        if clause[0] in WELL_KNOWN - {NODEPOOL}:
            continue
        without = {pool.name for pool in pools if not possible(pool, clause)}
        if len(without) < len(pools):
            others |= without
        else:
            nowhere.add(clause[0])
    return LabelAdmission(frozenset(others), frozenset(nowhere))
