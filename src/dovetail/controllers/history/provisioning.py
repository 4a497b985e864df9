"""The decision history of a batch: what was launched and why, and which pods are unschedulable and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.cluster.state import ClusterState
from dovetail.controllers.history.decisions import SHOWN, CreatedNodeClaim, Decision, DecisionHistory, Refusal
from dovetail.language import message
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.planner.plan import Plan, PlannedNode, Unschedulable


def launched(
    decision_history: DecisionHistory, cluster_state: ClusterState, plan: Plan, names: Mapping[str, str], decision: str
) -> Decision:
    """`names` are the NodeClaims' names by the plan's own; one that has none was not created."""
    created = [planned for planned in plan.nodes if planned.name in names]
    complete = len(created) == len(plan.nodes)
    cost = plan.cost.per_hour if complete else sum(planned.price for planned in created)
    pods = [pod for planned in created for pod in planned.pods]
    placed = [key for key, place in plan.placements.items() if place.node is not None]
    return Decision(
        id=decision,
        kind="provision",
        time=decision_history.now(),
        summary=_summary(len(created), len(pods), cost, len(placed)),
        view_age=cluster_state.age(),
        cost=cost,
        bound=plan.cost.lower_bound,
        gap=plan.cost.gap,
        bound_of=plan.cost.bound_of,
        tier=plan.tier,
        seconds=plan.seconds,
        pods=tuple((*pods, *placed)[:SHOWN]),
        pod_count=len(pods) + len(placed),
        node_claims=tuple(_created(planned, names[planned.name]) for planned in created[:SHOWN]),
    )


def refused(
    decision_history: DecisionHistory, cluster_state: ClusterState, pods: Mapping[str, Unschedulable], decision: str
) -> Decision:
    """Pods with the same reason in every NodePool are one entry; the reasons that most of them have are shown."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for key, why in pods.items():
        funnels = tuple(f"{name}: {funnel.emptied_by}" for name, funnel in why.pools.items())
        groups.setdefault((why.code, why.message, funnels), []).append(key)
    shown = sorted(groups.items(), key=lambda item: -len(item[1]))[:SHOWN]
    messages = list(dict.fromkeys(message for (_, message, _), _ in shown))
    return Decision(
        id=decision,
        kind="refuse",
        time=decision_history.now(),
        summary=message("{count} pod(s) are unschedulable: {reasons}", count=len(pods), reasons=_reasons(messages)),
        view_age=cluster_state.age(),
        pod_count=len(pods),
        refusals=tuple(
            Refusal(
                pods=tuple(alike[:SHOWN]),
                count=len(alike),
                code=code,
                message=message,
                pools=pods[alike[0]].pools,
                object=pods[alike[0]].object,
                remedy=pods[alike[0]].remedy,
            )
            for (code, message, _), alike in shown
        ),
    )


def never_joined(
    decision_history: DecisionHistory, cluster_state: ClusterState, claim: NodeClaim, pods: Sequence[str], why: str
) -> Decision:
    """An instance that runs and cannot join the cluster: its pods wait in vain."""
    refusal = Refusal(
        pods=tuple(pods[:SHOWN]),
        count=len(pods),
        code="NEVER_JOINED",
        message=f"NodeClaim {claim.name}: {why}",
        object=f"nodeclaim/{claim.name}",
    )
    return Decision(
        id=decision_history.new_id(),
        kind="refuse",
        time=decision_history.now(),
        summary=message("{count} pod(s) wait for NodeClaim {claim}: {why}", count=len(pods), claim=claim.name, why=why),
        reason="NEVER_JOINED",
        view_age=cluster_state.age(),
        pod_count=len(pods),
        refusals=(refusal,),
        about=(claim.name, *([claim.node_pool] if claim.node_pool else ())),
    )


def _summary(created: int, pods: int, cost: float, placed: int) -> str:
    """Only the parts that are not empty: most plans either launch or fill."""
    launched = (
        message("{created} node(s) for {pods} pod(s) at ${cost:.4f}/h", created=created, pods=pods, cost=cost)
        if created
        else ""
    )
    filled = message("{placed} pod(s) on existing nodes", placed=placed) if placed else ""
    return ", ".join(filter(None, (launched, filled)))


def _reasons(messages: Sequence[str]) -> str:
    """The reason that most of them have."""
    more = message("; and {count} other reason(s)", count=len(messages) - 1) if len(messages) > 1 else ""
    return messages[0] + more


def _created(planned: PlannedNode, claim: str) -> CreatedNodeClaim:
    choice = planned.choice
    return CreatedNodeClaim(
        claim=claim,
        pool=planned.pool,
        instance_type=choice.instance_type,
        zone=choice.zone,
        capacity_type=choice.capacity_type,
        price=choice.price,
        pods=len(planned.pods),
        options=len(planned.offerings),
        cheaper=tuple(
            f"{other.choice.instance_type}/{other.choice.zone}/{other.choice.capacity_type}: {other.because}"
            for other in planned.cheaper[:10]
        ),
    )
