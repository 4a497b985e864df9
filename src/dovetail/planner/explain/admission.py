"""Admission: whether the template of a NodePool admits a pod, whatever instance types it has.

It is asked of NodePools whose types are unknown, because they are not ready, or have none left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.model.labels import HOSTNAME, WELL_KNOWN
from dovetail.model.pods import Toleration
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated
from dovetail.planner.offerings.open_labels import pool_clauses
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH
from dovetail.planner.requirements import NODE_NAME, Clause, Term, holds, text
from dovetail.planner.snapshot import Pool


def refusal(pool: Pool, terms: Sequence[Term], tolerations: Sequence[Toleration]) -> str:
    """The taint or the label for which the template of a pool refuses a pod; empty if it admits it."""
    missing = untolerated(pool.taints, tolerations, ("NoSchedule", "NoExecute"))
    if missing:
        return f"taint{'s' * (len(missing) != 1)} {', '.join(map(taint_text, missing))}"
    refused = [next((clause for clause in term if not _possible(pool, clause)), None) for term in terms]
    first = next(iter(refused), None)
    return text(first) if first is not None and None not in refused else ""


def _possible(pool: Pool, asked: Clause) -> bool:
    """Whether a node of the pool can have a label as it is asked for."""
    key, operator, values = asked
    if key in (HOSTNAME, NODE_NAME, ""):
        return False
    if key in pool.labels:
        return holds(asked, pool.labels[key])
    rules = [pool_clause for pool_clause in pool_clauses(pool) if pool_clause[0] == key]
    if not rules and key not in WELL_KNOWN:
        return operator in ("NotIn", "DoesNotExist")
    named = {value for rule in rules if rule[1] == "In" for value in rule[2]}
    candidates = set(values) if operator == "In" else named
    if not candidates:
        return operator != "DoesNotExist"
    return any(holds(asked, value) and all(holds(rule, value) for rule in rules) for value in candidates)


def roomy(pool: Pool, requests: Mapping[str, int]) -> bool:
    """Whether any type that the provider of a pool offers is large enough for a pod; so if it offers none."""
    amounts = {name: amount for name, amount in requests.items() if not name.startswith((PORT, ATTACH))}
    return not pool.types or any(
        all(kind.capacity.get(name, 0) - kind.overhead.get(name, 0) >= amount for name, amount in amounts.items())
        for kind in pool.types
    )
