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
from dovetail.controllers.disruption.budgets import Allowances
from dovetail.controllers.disruption.candidates import SHOWN, blocking, candidate, forbidden, together
from dovetail.controllers.disruption.types import Candidate, Command, Reason
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node

VOLUNTARY = frozenset({Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED})


class Verdict(NamedTuple):
    """The candidates that are still valid, and why the others are not."""

    candidates: tuple[Candidate, ...]
    why: str = ""


Objection = Callable[[Context, Reason, Candidate, Node, NodeClaim], str]


def before(context: Context, command: Command) -> Verdict:
    """Before anything is written."""
    found = _judged(context, command, _objection)
    if not found.candidates or command.reason not in VOLUNTARY:
        return found
    allowed = Allowances.now(context, command.reason).trim(found.candidates)
    shut = {
        each.node: "the NodePool's disruption budget allows no more" for each in found.candidates if each not in allowed
    }
    return _left(command, found.candidates, shut, found.why)


def closed(context: Context, command: Command) -> Verdict:
    """Once the candidates are tainted, so that no pod is scheduled there; the command itself counts for the budgets."""
    return _judged(context, command, _objection)


def under_way(context: Context, command: Command) -> Verdict:
    """While the candidates wait for their replacements. Once the first is deleted there is no way back."""
    claims = map(context.cluster_state.claims.store.get, (each.claim for each in command.candidates))
    if any(claim is None or claim.metadata.deletion_timestamp is not None for claim in claims):
        return Verdict(command.candidates)
    return _judged(context, command, _withdrawal)


def _judged(context: Context, command: Command, objection: Objection) -> Verdict:
    if command.reason not in VOLUNTARY:
        return Verdict(command.candidates)
    objections: dict[str, str] = {}
    for each in command.candidates:
        node, claim = (
            context.cluster_state.nodes.store.get(each.node),
            context.cluster_state.claims.store.get(each.claim),
        )
        if node is None or claim is None:
            continue  # gone already, which the next write finds out
        text = objection(context, command.reason, each, node, claim)
        if text:
            objections[each.node] = text
    return _left(command, command.candidates, objections)


def _left(
    command: Command, candidates: tuple[Candidate, ...], objections: Mapping[str, str], said: str = ""
) -> Verdict:
    """Empty nodes are removed one by one; all others were planned for as a whole."""
    told = [*filter(None, (said,)), *(f"{node}: {text}" for node, text in objections.items())]
    left = tuple(each for each in candidates if each.node not in objections)
    if objections and command.reason is not Reason.EMPTY:
        left = ()
    more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return Verdict(left, "; ".join(told[:SHOWN]) + more)


def _objection(context: Context, reason: Reason, chosen: Candidate, node: Node, claim: NodeClaim) -> str:
    """What blocks a candidate before it is tainted."""
    baseless = _baseless(context, reason, node, claim)
    if baseless:
        return baseless
    if reason is Reason.UNDERUTILIZED and not set(candidate(context, node, claim, {}).pods) <= set(chosen.pods):
        return "a pod was scheduled that was not planned for"
    waived = reason is Reason.DRIFTED
    return together(blocking(context, node, claim, context.clock.now(), waive_pods=waived))


def _withdrawal(context: Context, reason: Reason, chosen: Candidate, node: Node, claim: NodeClaim) -> str:
    """What blocks a candidate after it was tainted: annotations. A drain respects PDBs by itself."""
    baseless = _baseless(context, reason, node, claim)
    if baseless:
        return baseless
    dated = reason is Reason.DRIFTED and claim.spec.grace is not None
    pods = () if dated else context.cluster_state.pods_on(node.metadata.name)
    return together(forbidden(node, pods, context.clock.now()))


def _baseless(context: Context, reason: Reason, node: Node, claim: NodeClaim) -> str:
    """Why there is no longer a reason to remove a node; empty if there is."""
    if reason is Reason.DRIFTED:
        return "" if claim.is_true("Drifted") else "it is no longer drifted"
    if reason is Reason.EMPTY:
        return "" if candidate(context, node, claim, {}).empty else "it is no longer empty"
    pool = context.cluster_state.pools.store.get(claim.node_pool or "")
    disruption = pool.spec.disruption if pool is not None else None
    if disruption is None or disruption.quiet_time is None or disruption.consolidation_policy == "WhenEmpty":
        return "its NodePool no longer allows consolidation"
    return ""
