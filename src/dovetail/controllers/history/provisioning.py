"""The decision history of a batch: what was launched and why, and which pods are unschedulable and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.cluster.state import ClusterState
from dovetail.controllers.history.decisions import SHOWN, Bought, Decision, DecisionHistory, Refusal
from dovetail.planner.plan import Machine, Plan, Unschedulable


def bought(
    decision_history: DecisionHistory, cluster_state: ClusterState, plan: Plan, names: Mapping[str, str], decision: str
) -> Decision:
    """`names` are the NodeClaims' names by the plan's own; one that has none was not created."""
    machines = [machine for machine in plan.machines if machine.name in names]
    whole = len(machines) == len(plan.machines)
    cost = plan.cost.per_hour if whole else sum(machine.price for machine in machines)
    pods = [pod for machine in machines for pod in machine.pods]
    placed = [key for key, place in plan.placements.items() if place.node is not None]
    return Decision(
        id=decision,
        kind="provision",
        time=decision_history.now(),
        summary=_summary(len(machines), len(pods), cost, len(placed)),
        view_age=cluster_state.age(),
        cost=cost,
        bound=plan.cost.lower_bound,
        gap=plan.cost.gap,
        bound_of=plan.cost.bound_of,
        tier=plan.tier,
        seconds=plan.seconds,
        pods=tuple((*pods, *placed)[:SHOWN]),
        pod_count=len(pods) + len(placed),
        machines=tuple(_bought(machine, names[machine.name]) for machine in machines[:SHOWN]),
    )


def refused(
    decision_history: DecisionHistory, cluster_state: ClusterState, pods: Mapping[str, Unschedulable], decision: str
) -> Decision:
    """Pods with the same reason are one entry; the reasons that most of them have are shown."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, why in pods.items():
        groups.setdefault((why.code, why.message), []).append(key)
    shown = sorted(groups.items(), key=lambda item: -len(item[1]))[:SHOWN]
    return Decision(
        id=decision,
        kind="refuse",
        time=decision_history.now(),
        summary=f"{len(pods)} pod(s) are unschedulable: {_reasons([message for (_, message), _ in shown])}",
        view_age=cluster_state.age(),
        pod_count=len(pods),
        refusals=tuple(
            Refusal(
                pods=tuple(alike[:SHOWN]),
                count=len(alike),
                code=code,
                message=message,
                pools=msgspec.to_builtins(pods[alike[0]].pools),
            )
            for (code, message), alike in shown
        ),
    )


def _summary(machines: int, pods: int, cost: float, placed: int) -> str:
    """Only the parts that are not empty: most plans either launch or fill."""
    bought = f"{machines} node(s) for {pods} pod(s) at ${cost:.4f}/h" if machines else ""
    filled = f"{placed} pod(s) on existing nodes" if placed else ""
    return ", ".join(filter(None, (bought, filled)))


def _reasons(messages: Sequence[str]) -> str:
    """The reason that most of them have."""
    more = f"; and {len(messages) - 1} other reason(s)" if len(messages) > 1 else ""
    return messages[0] + more


def _bought(machine: Machine, claim: str) -> Bought:
    choice = machine.choice
    return Bought(
        claim=claim,
        pool=machine.pool,
        instance_type=choice.instance_type,
        zone=choice.zone,
        capacity_type=choice.capacity_type,
        price=choice.price,
        pods=len(machine.pods),
        options=len(machine.offerings),
        cheaper=tuple(
            f"{lost.choice.instance_type}/{lost.choice.zone}/{lost.choice.capacity_type}: {lost.because}"
            for lost in machine.cheaper[:10]
        ),
    )
