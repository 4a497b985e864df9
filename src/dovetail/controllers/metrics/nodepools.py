"""Limits, usage and cost of NodePools, and decisions by kind."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from prometheus_client import Counter

from dovetail.cluster.nodepool_usage import NodePoolUsage
from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import launch_price, price
from dovetail.controllers.history.decisions import DecisionHistory
from dovetail.controllers.metrics.exposition import gauge
from dovetail.controllers.metrics.nodes import amount, plain
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.quantity import resources


def pools(cluster_state: ClusterState, unpriced: Counter) -> Iterator[str]:
    """`unpriced` counts NodeClaims whose price was not known when the cost was computed."""
    nodepool_usage = NodePoolUsage(cluster_state)
    limit = {pool.name: resources(pool.spec.limits) for pool in cluster_state.pools.store.all()}
    usage = {name: nodepool_usage.of(name) for name in limit}
    for what, text, amounts_of in (
        ("limit", "Limits of a NodePool.", limit),
        ("usage", "Resources of a NodePool.", usage),
    ):
        rows = [
            (f'nodepool="{name}",resource_type="{plain(kind)}"', amount(kind, value))
            for name, amounts in amounts_of.items()
            for kind, value in amounts.items()
        ]
        yield from gauge(f"karpenter_nodepools_{what}", text, rows)
    cost: dict[str, float] = {}
    for claim in cluster_state.claims.store.all():
        if claim.node_pool:
            price_now = _price(cluster_state, claim)
            if price_now is None:
                unpriced.inc()
            cost[claim.node_pool] = cost.get(claim.node_pool, 0.0) + (price_now or 0.0)
    costs = [(f'nodepool="{name}"', dollars) for name, dollars in cost.items()]
    yield from gauge("karpenter_nodepools_cost_total", "Price of a NodePool's nodes per hour.", costs)


def decisions(decision_history: DecisionHistory) -> Iterator[str]:
    decisions_made = decision_history.decisions()
    count = Tally(decision.kind for decision in decisions_made)
    rows = [(f'kind="{kind}"', float(number)) for kind, number in count.items()]
    yield from gauge("dovetail_decisions", "Decisions in the history, by kind.", rows)
    last = {decision.kind: decision.id for decision in decisions_made}
    latest = [(f'kind="{kind}",decision="{decision}"', 1.0) for kind, decision in last.items()]
    yield from gauge("dovetail_last_decision_info", "The latest decision of a kind.", latest)


def _price(cluster_state: ClusterState, claim: NodeClaim) -> float | None:
    """Today's price, or the planned one while today's is unknown."""
    today = price(claim.metadata.labels, cluster_state.types)
    return today if today is not None else launch_price(claim)
