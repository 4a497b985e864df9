"""Validation: whether a command still holds.

A decision takes its time: the planner searches, taints are written, replacements boot. Meanwhile a NodePool may be
reverted, a pod may be created, a budget may close, an annotation may forbid it. So the command is validated again
before anything is written, when no pod can be scheduled there any more, and until the candidates are deleted. Expired
and unhealthy nodes are not validated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.candidates import MAX_SHOWN_BLOCKERS, blocking, candidate_of, forbidden, joined
from dovetail.controllers.disruption.types import Candidate, Command, DisruptionReason
from dovetail.language import source
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node

VOLUNTARY = frozenset({DisruptionReason.EMPTY, DisruptionReason.DRIFTED, DisruptionReason.UNDERUTILIZED})


class ValidationResult(NamedTuple):
    """The candidates that are still valid, and why the others are not."""

    candidates: tuple[Candidate, ...]
    why: str = ""


Check = Callable[[Context, DisruptionReason, Candidate, Node, NodeClaim], str]


def before(context: Context, command: Command) -> ValidationResult:
    """Before anything is written."""
    refusal = _validate(context, command, _before_taint)
    if not refusal.candidates or command.reason not in VOLUNTARY:
        return refusal
    allowed = RemainingBudgets.now(context, command.reason).trim(refusal.candidates)
    over_budget = {
        candidate.node: "the NodePool's disruption budget allows no more"
        for candidate in refusal.candidates
        if candidate not in allowed
    }
    return _result(command, refusal.candidates, over_budget, refusal.why)


def closed(context: Context, command: Command) -> ValidationResult:
    """Once the candidates are tainted, so that no pod is scheduled there; the command itself counts for the budgets."""
    return _validate(context, command, _before_taint)


def under_way(context: Context, command: Command) -> ValidationResult:
    """While the candidates wait for their replacements. Once the first is deleted there is no way back."""
    claims = map(context.cluster_state.claims.store.get, (candidate.claim for candidate in command.candidates))
    if any(claim is None or claim.metadata.deletion_timestamp is not None for claim in claims):
        return ValidationResult(command.candidates)
    return _validate(context, command, _after_taint)


def _validate(context: Context, command: Command, check: Check) -> ValidationResult:
    if command.reason not in VOLUNTARY:
        return ValidationResult(command.candidates)
    invalid: dict[str, str] = {}
    for candidate in command.candidates:
        node, claim = (
            context.cluster_state.nodes.store.get(candidate.node),
            context.cluster_state.claims.store.get(candidate.claim),
        )
        if node is None or claim is None:
            continue  # gone already, which the next write finds out
        text = check(context, command.reason, candidate, node, claim)
        if text:
            invalid[candidate.node] = text
    return _result(command, command.candidates, invalid)


def _result(
    command: Command, candidates: tuple[Candidate, ...], invalid: Mapping[str, str], earlier: str = ""
) -> ValidationResult:
    """Empty nodes are removed one by one; all others were planned for as a whole."""
    texts = [*filter(None, (earlier,)), *(f"{node}: {text}" for node, text in invalid.items())]
    valid = tuple(candidate for candidate in candidates if candidate.node not in invalid)
    if invalid and command.reason is not DisruptionReason.EMPTY:
        valid = ()
    more = f"; and {len(texts) - MAX_SHOWN_BLOCKERS} more" if len(texts) > MAX_SHOWN_BLOCKERS else ""
    return ValidationResult(valid, "; ".join(texts[:MAX_SHOWN_BLOCKERS]) + more)


def _before_taint(context: Context, reason: DisruptionReason, chosen: Candidate, node: Node, claim: NodeClaim) -> str:
    """What blocks a candidate before it is tainted."""
    reason_gone = _reason_gone(context, reason, node, claim)
    if reason_gone:
        return reason_gone
    if reason is DisruptionReason.UNDERUTILIZED and not set(candidate_of(context, node, claim, {}).pods) <= set(
        chosen.pods
    ):
        return "a pod was scheduled that was not planned for"
    waived = reason is DisruptionReason.DRIFTED
    return joined(blocking(context, node, claim, context.clock.now(), waive_pods=waived))


def _after_taint(context: Context, reason: DisruptionReason, chosen: Candidate, node: Node, claim: NodeClaim) -> str:
    """What blocks a candidate after it was tainted: annotations. A drain respects PDBs by itself."""
    reason_gone = _reason_gone(context, reason, node, claim)
    if reason_gone:
        return reason_gone
    dated = reason is DisruptionReason.DRIFTED and claim.spec.grace is not None
    pods = () if dated else context.cluster_state.pods_on(node.metadata.name)
    return joined(forbidden(node, pods, context.clock.now()))


def _reason_gone(context: Context, reason: DisruptionReason, node: Node, claim: NodeClaim) -> str:
    """Why there is no longer a reason to remove a node; empty if there is."""
    if reason is DisruptionReason.DRIFTED:
        return "" if claim.is_true("Drifted") else source("it is no longer drifted")
    if reason is DisruptionReason.EMPTY:
        return "" if candidate_of(context, node, claim, {}).empty else source("it is no longer empty")
    pool = context.cluster_state.pools.store.get(claim.node_pool or "")
    disruption = pool.spec.disruption if pool is not None else None
    if disruption is None or disruption.quiet_time is None or disruption.consolidation_policy == "WhenEmpty":
        return source("its NodePool no longer allows consolidation")
    return ""
