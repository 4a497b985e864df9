"""The decision history of a command: what is removed, what replaces it, at what price, and that it was rolled back."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.cluster.state_node import launch_price
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.types import Candidate, Command, Copy, legacy_log_text
from dovetail.controllers.history.decisions import CreatedNodeClaim, Decision
from dovetail.language import message
from dovetail.planner.plan import Plan, total_price


def started(context: Context, command: Command, plan: Plan | None, copy: Copy | None) -> Decision:
    created = _created(command.replacements, plan, copy)
    return Decision(
        id=command.id,
        kind="disrupt",
        time=context.decision_history.now(),
        reason=command.reason,
        summary=_summary(command),
        view_age=context.cluster_state.age(),
        cost=_cost(command, plan, created),
        before=total_price(_price(context, candidate) for candidate in command.candidates),
        bound=plan.cost.lower_bound if plan else None,
        gap=plan.cost.gap if plan else None,
        removed=tuple(candidate.node for candidate in command.candidates),
        evictions=command.evictions,
        about=_about(command),
        node_claims=created,
        detail={"cause": cause} if (cause := _cause(command)) else {},
    )


def undone(context: Context, command: Command, why: str) -> Decision:
    return Decision(
        id=command.id,
        kind="undo",
        time=context.decision_history.now(),
        reason=command.reason,
        summary=message("rolled back, {why}: {summary}", why=why, summary=_summary(command)),
        view_age=context.cluster_state.age(),
        removed=tuple(candidate.node for candidate in command.candidates),
        about=_about(command),
    )


def _cause(command: Command) -> str:
    """What drifted, or which condition of the node; empty for neither."""
    return command.drift or command.condition or ""


def _summary(command: Command) -> str:
    cause = _cause(command)
    return f"{legacy_log_text(command)} ({cause})" if cause else legacy_log_text(command)


def _created(names: Sequence[str], plan: Plan | None, copy: Copy | None) -> tuple[CreatedNodeClaim, ...]:
    """The replacements, by the names of their NodeClaims."""
    if copy is not None and copy.likely is not None:
        kind, offering = copy.likely.instance_type.name, copy.likely.offering
        return tuple(
            CreatedNodeClaim(
                claim=name,
                pool=copy.pool.name,
                instance_type=kind,
                zone=offering.zone,
                capacity_type=offering.capacity_type,
                price=offering.price,
                pods=0,
            )
            for name in names
        )
    return tuple(
        CreatedNodeClaim(
            claim=name,
            pool=planned.pool,
            instance_type=planned.choice.instance_type,
            zone=planned.choice.zone,
            capacity_type=planned.choice.capacity_type,
            price=planned.choice.price,
            pods=len(planned.pods),
        )
        for name, planned in zip(names, plan.nodes if plan else (), strict=False)
    )


def _cost(command: Command, plan: Plan | None, created: Sequence[CreatedNodeClaim]) -> float | None:
    """The price of the replacements per hour; unknown where a later decision launches them, or a price is unknown."""
    if plan is not None:
        return plan.cost.per_hour
    if command.terminate_first or len(created) < len(command.replacements):
        return None
    return total_price(node_claim.price for node_claim in created)


def _price(context: Context, candidate: Candidate) -> float | None:
    """The price of a node today; or at its launch, where its offering no longer exists."""
    claim = context.cluster_state.claims.store.get(candidate.claim)
    return candidate.price if candidate.price is not None or claim is None else launch_price(claim)


def _about(command: Command) -> tuple[str, ...]:
    """The NodeClaims that are removed and their NodePools: either may be searched for."""
    return (
        *(candidate.claim for candidate in command.candidates),
        *sorted({candidate.pool for candidate in command.candidates}),
    )
