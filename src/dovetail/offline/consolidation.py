"""What `dovetail plan --consolidate` may terminate: which nodes are held and why, and how many each NodePool lets go.

The same rules by which `dovetail run` disrupts, on the objects of the input. A NodePool whose manifest has no budgets
is not held to the default ones: they set the pace at which a plan is carried out, not how far it may go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from dovetail.cluster.pdb import PdbIndex
from dovetail.controllers.disruption import candidates, consolidation
from dovetail.language import message
from dovetail.model import duration
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import condition, stamp
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.offline.objects import Objects
from dovetail.planner.consolidate.candidates import movable_pods
from dovetail.planner.consolidate.policy import ConsolidationPolicy, RemovalQuota
from dovetail.planner.snapshot import NodeState, Snapshot

#: A pool with the Balanced policy wants at least this part of the share that is disturbed to be saved.
_BALANCED = 0.5
_AMOUNT = re.compile(r"([0-9]+)(%?)", re.ASCII)


def fleet(objects: Objects, snapshot: Snapshot, now: datetime) -> tuple[Snapshot, ConsolidationPolicy]:
    """The snapshot with all nodes that may not go held, and the consolidation policy."""
    pools = {pool.name: pool for pool in objects.of(NodePool)}
    nodes = {node.metadata.name: node for node in objects.of(Node)}
    claims = {claim.name: claim for claim in objects.of(NodeClaim)}
    pods = [pod for state in snapshot.nodes for pod in state.pods]
    ready = objects.counted
    pdbs = tuple(budget if budget.metadata.key in ready else _counted(budget, pods) for budget in snapshot.budgets)
    watch = PdbIndex(pdbs)
    held = []
    for state in snapshot.nodes:
        why = next(_reasons(state, nodes.get(state.name), claims.get(state.claim or ""), pools, watch, now), "")
        held.append(replace(state, movable=not why, held_by=why))
    snapshot = replace(snapshot, nodes=tuple(held), budgets=pdbs)
    return snapshot, _policy(objects, snapshot, nodes, now)


def _reasons(
    state: NodeState,
    node: Node | None,
    claim: NodeClaim | None,
    pools: Mapping[str, NodePool],
    watch: PdbIndex,
    now: datetime,
) -> Iterator[str]:
    """Everything that holds a node, what its pool says first."""
    if state.deleting:
        return
    if node is None:
        yield message("it has no node yet")
        return
    if not state.pool:
        yield message("it belongs to no NodePool")
    pool = pools.get(state.pool or "")
    if pools and pool is None and state.pool:
        yield message("its NodePool {pool} is not in the input", pool=state.pool)
    if pool is not None:
        yield from _of_pool(pool, state, claim, now)
    of_node = candidates.node_blockers(node, claim, terminating=False, nominated=False)
    blockers = of_node if claim is not None else candidates.forbidden(node, (), now)
    applicable = [blocker for blocker in blockers if not (blocker.code == "NOT_INITIALIZED" and state.initialized)]
    yield from map(candidates.describe, [*applicable, *candidates.pod_blockers(state.pods, watch, now)])


def _of_pool(pool: NodePool, state: NodeState, claim: NodeClaim | None, now: datetime) -> Iterator[str]:
    disruption = pool.spec.disruption
    if pool.static:
        yield message("its NodePool {pool} is static", pool=pool.name)
    if disruption.consolidate_after == "Never":
        yield message("its NodePool {pool} never consolidates (consolidateAfter: Never)", pool=pool.name)
        return
    if disruption.consolidation_policy == "WhenEmpty" and movable_pods(state):
        yield message("its NodePool {pool} terminate empty nodes only (consolidationPolicy: WhenEmpty)", pool=pool.name)
    if claim is not None and not claim.is_true("Consolidatable"):
        ready = claim.condition("Initialized")
        moments = (claim.status.last_pod_event_time, ready.last_transition_time if ready else None)
        since = max((moment for moment in moments if moment is not None and moment <= now), default=None)
        until = since + duration.parse(disruption.consolidate_after) if since else now
        if until > now:
            yield message(
                "it is quiet for less than {consolidate_after} (consolidateAfter), until {stamp}",
                consolidate_after=disruption.consolidate_after,
                stamp=stamp(until),
            )


def _policy(objects: Objects, snapshot: Snapshot, nodes: Mapping[str, Node], now: datetime) -> ConsolidationPolicy:
    quotas, min_savings = {}, {}
    eviction_units = {state.name: _eviction_units(state) for state in snapshot.nodes}
    for pool in objects.of(NodePool):
        mine = [state for state in snapshot.nodes if state.pool == pool.name and state.initialized]
        away = sum(state.deleting or _unready(nodes.get(state.name)) for state in mine)
        if pool.name in objects.budgeted:
            given = pool.spec.disruption.budgets
            empty, used = (budgets.allowance(given, why, len(mine), now).nodes for why in ("Empty", "Underutilized"))
            quotas[pool.name] = RemovalQuota(empty=max(0, empty - away), used=max(0, used - away))
        if pool.spec.disruption.consolidation_policy == "Balanced":
            cost, all_trouble = sum(state.price or 0.0 for state in mine), sum(1.0 + _moving(state) for state in mine)
            min_savings[pool.name] = _BALANCED * cost / all_trouble if all_trouble else 0.0
    return ConsolidationPolicy(budgets=quotas, min_savings=min_savings, eviction_units=eviction_units)


def _eviction_units(state: NodeState) -> float:
    return 1.0 + _moving(state) if movable_pods(state) else 0.0


def _moving(state: NodeState) -> float:
    return consolidation.node_disruption_cost(movable_pods(state)) - 1.0


def _unready(node: Node | None) -> bool:
    return node is None or (bool(node.status.conditions) and not node.ready)


def _counted(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> PodDisruptionBudget:
    """A budget as its controller would have it: a manifest does not say how many pods may go."""
    spec, watch = budget.spec, PdbIndex((budget,))
    mine = [pod for pod in pods if not pod.finished and watch.of(pod)]
    healthy = sum(not pod.terminating and _healthy(pod) for pod in mine)
    if spec.max_unavailable is not None:
        desired_healthy = len(mine) - _share(spec.max_unavailable, len(mine))
    else:
        desired_healthy = len(mine) if spec.min_available is None else _share(spec.min_available, len(mine))
    return replace(budget, status=replace(budget.status, disruptions_allowed=max(0, healthy - desired_healthy)))


def _healthy(pod: Pod) -> bool:
    ready = condition(pod.status.conditions, "Ready")
    return ready.status == "True" if ready is not None else pod.status.phase in ("", "Running")


def _share(amount: int | str, total: int) -> int:
    """A number, or a percentage rounded up; of what is neither, nothing."""
    read = _AMOUNT.fullmatch(str(amount))
    if read is None:
        return 0
    return -(-int(read[1]) * total // 100) if read[2] else int(read[1])
