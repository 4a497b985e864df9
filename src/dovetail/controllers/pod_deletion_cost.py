"""Pod deletion cost: a scale-down empties the nodes that consolidation would like to remove.

A ReplicaSet that shrinks deletes the pods with the lowest `controller.kubernetes.io/pod-deletion-cost` first. So
nodes are put in the order in which they should be removed, and their pods carry that order: most of the moving is then
done by the scale-down itself, at no cost. Behind the gate PodDeletionCostManagement; a cycle writes to the pods of
a bounded number of nodes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.candidates import blocking, candidate_of, prices
from dovetail.controllers.disruption.consolidation import DELETION_COST
from dovetail.controllers.disruption.types import Candidate, DisruptionReason
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODES, PODS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.taints import same

#: Seconds between cycles, and while a cycle had to leave something for the next one.
PERIOD_S, BUSY_PERIOD_S = 60.0, 10.0
#: Nodes whose pods are written to in a cycle.
MAX_NODES_PER_CYCLE = 50
MAX_CONCURRENT_WRITES = 16
#: The pods of a terminating node are the first to be deleted.
LOWEST_COST = -(2**31)
#: Controllers whose pods do not pin a node.
_LOOSE = frozenset({("apps/v1", "ReplicaSet"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job")})


class Ranked(msgspec.Struct, frozen=True):
    """A node and the deletion cost of its pods; None for no annotation."""

    node: str
    value: int | None


class DeletionCosts:
    """The controller `pod.deletioncost`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._changed = True
        self._gate = asyncio.Semaphore(MAX_CONCURRENT_WRITES)
        context.cluster_state.listen(PODS, self._pod_changed)
        for kind in (NODES, NODECLAIMS):
            context.cluster_state.listen(kind, self._object_changed)

    async def run(self) -> None:
        if not self._context.settings.gate("PodDeletionCostManagement"):
            return
        while True:
            pending = await self.once()
            await asyncio.sleep(BUSY_PERIOD_S if pending else PERIOD_S)

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        old, new = change.old, change.new
        self._changed |= old is None or new is None or old.spec.node_name != new.spec.node_name

    def _object_changed(self, change: CacheChange[Any]) -> None:
        self._changed = True

    async def once(self) -> bool:
        """One cycle; whether something was left for the next."""
        if not self._changed:
            return False
        self._changed = False
        stale = [ranked_node for ranked_node in await self._rank() if any(self._stale(ranked_node))]
        terminating = [ranked for ranked in stale if ranked.value == LOWEST_COST]
        others = [ranked for ranked in stale if ranked.value != LOWEST_COST]
        writing = (*terminating, *others[:MAX_NODES_PER_CYCLE])
        self._count(writing)
        async with asyncio.TaskGroup() as group:
            for ranked_node in writing:
                for pod in self._stale(ranked_node):
                    group.create_task(self._write(pod, ranked_node.value))
        pending = len(others) > MAX_NODES_PER_CYCLE
        self._changed |= pending
        return pending

    def _count(self, writing: Iterable[Ranked]) -> None:
        cluster_state, pending = self._context.cluster_state, self._context.metrics.pending_deletion_costs
        nodes = (cluster_state.nodes.store.get(ranked_node.node) for ranked_node in writing)
        pools = Counter(node.metadata.labels.get(wellknown.NODEPOOL, "") for node in nodes if node is not None)
        for pool in cluster_state.pools.store.all():
            pending.labels(pool.name).set(pools[pool.name])

    async def _rank(self) -> list[Ranked]:
        """Every node with its value: terminating ones, drifted ones, consolidation candidates, and the rest."""
        context = self._context
        known_prices = prices(await context.instance_types.all())
        terminating: list[str] = []
        drifted: list[Candidate] = []
        free: list[Candidate] = []
        rest: list[str] = []
        for claim in context.cluster_state.claims.store.all():
            node = context.cluster_state.node_for(claim)
            if node is None:
                continue
            name = node.metadata.name
            if context.cluster_state.is_terminating(claim, node) or any(
                same(t, wellknown.DISRUPTED_TAINT) for t in node.spec.taints
            ):
                terminating.append(name)
                continue
            candidate = candidate_of(context, node, claim, known_prices)
            if candidate.price is None or blocking(context, node, claim, context.clock.now()) or self._pinned(node):
                rest.append(name)
            elif claim.is_true("Drifted") and not self._static(claim):
                drifted.append(candidate)
            elif self._never(claim):
                rest.append(name)
            else:
                free.append(candidate)
        first = RemainingBudgets.now(context, DisruptionReason.DRIFTED).trim(sorted(drifted, key=_order))
        then = RemainingBudgets.now(context, DisruptionReason.UNDERUTILIZED).trim(sorted(free, key=_order))
        ordered = [candidate.node for candidate in (*first, *then)]
        rest += sorted({candidate.node for candidate in (*drifted, *free)} - set(ordered))
        return [
            *(Ranked(name, LOWEST_COST) for name in terminating),
            *(Ranked(name, index - len(ordered)) for index, name in enumerate(ordered)),
            *(Ranked(name, None) for name in rest),
        ]

    def _pinned(self, node: Node) -> bool:
        """Whether a pod runs there that no scale-down would delete."""
        for pod in self._context.cluster_state.pods_on(node.metadata.name):
            owner = pod.metadata.controller
            kind = (owner.api_version, owner.kind) if owner is not None else None
            if not pod.finished and pod.metadata.namespace != "kube-system" and kind not in _LOOSE:
                return True
        return False

    def _static(self, claim: NodeClaim) -> bool:
        pool = self._context.cluster_state.pools.store.get(claim.node_pool or "")
        return pool is not None and pool.static

    def _never(self, claim: NodeClaim) -> bool:
        pool = self._context.cluster_state.pools.store.get(claim.node_pool or "")
        return pool is None or pool.spec.disruption.consolidate_after == "Never"

    def _stale(self, ranked: Ranked) -> Iterator[Pod]:
        """Pods of ReplicaSets on the node with another annotation."""
        deletion_cost = None if ranked.value is None else str(ranked.value)
        for pod in self._context.cluster_state.pods_on(ranked.node):
            owner = pod.metadata.controller
            ours = owner is not None and (owner.api_version, owner.kind) == ("apps/v1", "ReplicaSet")
            if ours and not pod.finished and pod.metadata.annotations.get(DELETION_COST) != deletion_cost:
                yield pod

    async def _write(self, pod: Pod, value: int | None) -> None:
        meta = pod.metadata
        annotations = {DELETION_COST: None if value is None else str(value)}
        async with self._gate:
            try:
                body = {"metadata": {"uid": meta.uid, "annotations": annotations}}
                await self._context.kube.patch(PODS, meta.name, body, meta.namespace)
                result = "updated"
            except (Conflict, NotFound) as problem:  # gone or replaced by now: the next cycle sees it
                result = "skipped_notfound" if isinstance(problem, NotFound) else "skipped_conflict"
            except KubeError as problem:  # one of many at once: it must not stop the others, nor the process
                self._context.log.error("Reconciler error", controller="pod.deletioncost", error=str(problem))
                self._changed = True
                result = "error"
        self._context.metrics.deletion_costs.labels(result).inc()


def _order(candidate: Candidate) -> tuple[float, str]:
    return (-(candidate.price or 0.0) / candidate.cost, candidate.node)
