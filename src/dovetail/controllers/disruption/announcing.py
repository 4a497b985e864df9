"""What is told of a wish to consolidate while it is held, on every machine it is about: that there is one, or no more.

Karpenter's words, so that whoever watches its events needs no others.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.commands import Candidate
from dovetail.controllers.disruption.consolidation import Proposal, Rejection

_WHY = {"BUDGET": "budget", "PODS_WOULD_NOT_FIT": "scheduling"}


def wished(context: Context, proposal: Proposal) -> None:
    """The wish has just turned up."""
    for each in proposal.candidates:
        _tell(context, proposal, each, "ConsolidationCandidate", f"Consolidation candidate: {_words(proposal, each)}")


def dropped(context: Context, proposal: Proposal, stays: Mapping[str, Rejection]) -> None:
    """The wish did not hold."""
    for each in proposal.candidates:
        why = _WHY.get(stays[each.node].code, "churn") if each.node in stays else "churn"
        text = f"Consolidation rejected: {_words(proposal, each)}, reason: {why}"
        _tell(context, proposal, each, "ConsolidationRejected", text)


def _words(proposal: Proposal, candidate: Candidate) -> str:
    count, bought = len(proposal.candidates), len(proposal.plan.machines)
    how = "replace" if bought else "delete"
    if count > 1:
        return f"{how}: [{candidate.node}] (part of {count}-node consolidation)"
    come = f" -> [{bought} replacement{'' if bought == 1 else 's'}]" if bought else ""
    return f"{how}: nodepools=[{candidate.pool}]: [{candidate.node}]{come}"


def _tell(context: Context, proposal: Proposal, candidate: Candidate, reason: str, text: str) -> None:
    node, claim = context.mirror.nodes.store.get(candidate.node), context.mirror.claims.store.get(candidate.claim)
    context.notices.machine(node, claim, "Normal", reason, f"{text} (savings: ${proposal.saving:.2f})")
