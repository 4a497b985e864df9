"""Why this node: why not a cheaper one, why not a spot instance, why this zone.

From the decision that launched it where that is kept; else from what its NodeClaim, NodePool and pods require.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import dollars, shortened
from dovetail.controllers.history.decisions import CreatedNodeClaim, Decision
from dovetail.language import message
from dovetail.model import wellknown
from dovetail.model.kinds.common import Term
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

QUESTIONS = ("cheaper", "spot", "zone")


def why(
    question: str, cluster_state: ClusterState, decisions: Sequence[Decision], node: Node, claim: NodeClaim
) -> list[str]:
    """Answers to one of the questions, the most important first."""
    made = launched(decisions, claim.name)
    pods = [pod for pod in cluster_state.pods_on(node.metadata.name) if not _daemon(pod)]
    labels = node.metadata.labels
    if question == "cheaper":
        return list(_cheaper(made, claim, labels.get(wellknown.INSTANCE_TYPE, "?")))
    key, shown = {
        "spot": (wellknown.CAPACITY_TYPE, message("capacity type")),
        "zone": (wellknown.ZONE, message("zone")),
    }[question]
    value = labels.get(key, "?")
    if question == "spot" and value == "spot":
        return [message("it is a spot instance")]
    return list(_of_label(cluster_state, claim, pods, key, shown, value, made))


def launched(decisions: Sequence[Decision], claim: str) -> CreatedNodeClaim | None:
    return next(
        (made for decision in reversed(decisions) for made in decision.node_claims if made.claim == claim), None
    )


def _daemon(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def _cheaper(made: CreatedNodeClaim | None, claim: NodeClaim, kind: str) -> Iterator[str]:
    if made is None:
        yield message(
            "the decision that launched it is not in the history; dovetail plan shows what would be launched now"
        )
        return
    if not made.cheaper:
        price = dollars(made.price)
        yield message(
            "nothing cheaper than {instance_type} would have held its {pods} pod(s) ({price})",
            instance_type=made.instance_type,
            pods=made.pods,
            price=price,
        )
    elif made.instance_type != kind:
        yield message(
            "{instance_type} was planned; EC2 chose {kind} among the {options} offerings that were sent",
            instance_type=made.instance_type,
            kind=kind,
            options=made.options,
        )
    yield from shortened([message("cheaper, but {lost}", lost=lost) for lost in made.cheaper], 10)


def _of_label(
    cluster_state: ClusterState,
    claim: NodeClaim,
    pods: Sequence[Pod],
    key: str,
    shown: str,
    value: str,
    made: CreatedNodeClaim | None,
) -> Iterator[str]:
    """Who decided a label of a node: a pod, its volumes, a spread, the NodePool, or the price."""
    asking = [pod for pod in pods if pod.spec.node_selector.get(key) == value or _requires(pod, key)]
    if asking:
        yield message("{shown} {value}: {some} asks for it", shown=shown, value=value, some=_some(asking))
    pinned = [pod for pod in pods if key == wellknown.ZONE and any(v.persistent_volume_claim for v in pod.spec.volumes)]
    if pinned:
        yield message(
            "{shown} {value}: volumes of {some} are bound to a zone", shown=shown, value=value, some=_some(pinned)
        )
    spread = [
        pod
        for pod in pods
        if any(
            topology_spread_constraint.topology_key == key
            and topology_spread_constraint.when_unsatisfiable == "DoNotSchedule"
            for topology_spread_constraint in pod.spec.topology_spread_constraints
        )
    ]
    if spread:
        yield message(
            "{shown} {value}: {some} is spread over {key}", shown=shown, value=value, some=_some(spread), key=key
        )
    pool = cluster_state.pools.store.get(claim.node_pool or "")
    needs: Sequence[Term] = pool.spec.template.spec.requirements if pool is not None else ()
    own = next((need for need in needs if need.key == key), None)
    if own is not None:
        values = ", ".join(own.values)
        rule = (
            message("only {values}", values=values)
            if own.operator == "In"
            else f"{shown} {own.operator} {values}".rstrip()
        )
        yield message("NodePool {node_pool} allows {rule}", node_pool=claim.node_pool, rule=rule)
    elif key == wellknown.CAPACITY_TYPE:
        default = message("on-demand is the default; allow spot in its requirements")
        yield message(
            "NodePool {node_pool} names no capacity type: {default}", node_pool=claim.node_pool, default=default
        )
    refused = [lost for lost in made.cheaper if _differs_in(lost, key, made)] if made is not None else []
    yield from shortened([message("cheaper, but {lost}", lost=lost) for lost in refused], 5)
    if not asking and not pinned and not spread and (own is None or len(own.values) > 1):
        yield message(
            "{shown} {value}: the cheapest that EC2 had of the offerings that were sent to it", shown=shown, value=value
        )


def _differs_in(lost: str, key: str, made: CreatedNodeClaim) -> bool:
    """Whether a cheaper offering, `c5.large/ap-northeast-2d/on-demand: …`, speaks for this label: not another type."""
    if key == wellknown.CAPACITY_TYPE:
        return "/spot" in lost.partition(":")[0]
    return lost.startswith(f"{made.instance_type}/")


def _requires(pod: Pod, key: str) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return required is not None and any(
        match_expression.key == key
        for term in required.node_selector_terms
        for match_expression in term.match_expressions
    )


def _some(pods: Sequence[Pod]) -> str:
    more = message(" and {count} more", count=len(pods) - 1) if len(pods) > 1 else ""
    return message("pod {name}{more}", name=pods[0].metadata.key, more=more)
