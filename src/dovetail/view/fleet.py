"""The fleet, kept up with the cluster state: a new view costs what changed since the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cluster.nominations import NominationTarget
from dovetail.cluster.state import ClusterState
from dovetail.cluster.state_node import planned
from dovetail.controllers.history.decisions import Decision
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, PODS
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import Budget, NodePool
from dovetail.model.meta import Amount
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.quantity import QuantityError, amount
from dovetail.view.decisions import recent
from dovetail.view.model import (
    Amounts,
    BudgetView,
    FleetView,
    LowerBound,
    NodeView,
    PendingPod,
    PodView,
    PoolView,
    RecentDecision,
    WatchHealth,
)
from dovetail.view.nodes import claim_view, node_view
from dovetail.view.pods import Refused, pending_view, pod_view, workload
from dovetail.view.totals import RunningTotals


class Fleet:
    """Takes notes of what changes, and derives a view from them when asked.

    Everything that is no watched object is set from outside: usage, decisions, health, what kube-scheduler says.
    """

    def __init__(self, cluster_state: ClusterState) -> None:
        self._state = cluster_state
        self._dirty = cluster_state.notes()
        self._dirty.update((NominationTarget("node", name), None) for name in map(_name, cluster_state.nodes.store))
        self._dirty.update((NominationTarget("claim", name), None) for name in map(_name, cluster_state.claims.store))
        self._dirty_pods: dict[str, None] = {pod.metadata.key: None for pod in cluster_state.unbound()}
        self._dirty_pools = True
        self._sums = RunningTotals()
        self._nodes: dict[str, NodeView] = {}
        self._pending: dict[str, PendingPod] = {}
        self._alike: dict[tuple[str, str], dict[str, None]] = {}
        self._pod_views: dict[str, tuple[Pod, PodView]] = {}
        self._usage: Mapping[str, Amounts] = {}
        self._refused = Refused()
        self._scheduler_says: Callable[[str], str] = lambda key: ""
        self._bound: LowerBound | None = None
        self._saved: float | None = None
        self._recent: tuple[RecentDecision, ...] = ()
        self._view = FleetView()
        self._health = WatchHealth()
        self._totals_changed = True
        self._readable = False
        cluster_state.listen(PODS, self._pod)
        cluster_state.listen(NODECLAIMS, self._nodeclaim)
        cluster_state.listen(NODEPOOLS, self._pool)

    def _pod(self, change: CacheChange[Pod]) -> None:
        for pod in (change.old, change.new):
            if pod is not None and not pod.spec.node_name:
                self._dirty_pods[change.key] = None
        if change.new is None:
            self._pod_views.pop(change.object.metadata.uid, None)

    def _nodeclaim(self, change: CacheChange[NodeClaim]) -> None:
        """The pods that a NodeClaim was created for wait for it, or no longer do."""
        self._note_unbound(planned(change.object))

    def _note_unbound(self, uids: Iterable[str]) -> None:
        pods = filter(None, map(self._state.pod, uids))
        self._dirty_pods.update((pod.metadata.key, None) for pod in pods if not pod.spec.node_name)

    def _pool(self, change: CacheChange[NodePool]) -> None:
        self._dirty_pools = True

    # -- what is set from outside

    def set_usage(self, usage: Mapping[str, Amounts]) -> None:
        """The usage of every node that has metrics, by name."""
        for name in self._usage.keys() | usage.keys():
            if self._usage.get(name) != usage.get(name):
                self._dirty[NominationTarget("node", name)] = None
        self._usage = usage

    def set_decisions(self, decisions: Sequence[Decision]) -> None:
        """The decision history, oldest first."""
        self._refused = Refused(decisions)
        self._saved = saved_per_hour(decisions)
        self._recent = recent(decisions)
        self._dirty_pods.update(dict.fromkeys(self._pending))
        self._totals_changed = True

    def set_scheduler_messages(self, says: Callable[[str], str], changed: Sequence[str] = ()) -> None:
        """What kube-scheduler last said about a pod, by its key; `changed` are pods about which it said something."""
        self._scheduler_says = says
        self._dirty_pods.update((key, None) for key in changed if key in self._pending)

    def set_bound(self, bound: LowerBound | None) -> None:
        self._totals_changed |= bound != self._bound
        self._bound = bound

    def set_health(self, health: WatchHealth) -> None:
        self._health = health

    # -- the view

    def view(self) -> FleetView:
        """The fleet now; the same object while nothing has changed."""
        self._note_unbound(self._state.expire())
        self._check_readable()
        nodes_changed, pending_changed = self._update_nodes(), self._update_pending()
        old = self._view
        totals = old.totals
        if nodes_changed or self._totals_changed or len(self._pending) != totals.pending:
            totals = self._sums.totals(len(self._pending), self._bound, self._saved)
            totals = old.totals if totals == old.totals else totals
        self._totals_changed = False
        pools = old.pools
        if self._dirty_pools:
            self._dirty_pools = False
            pools = {pool.name: pool_view(pool) for pool in self._state.pools.store.all()}
            pools = old.pools if pools == old.pools else pools
        health = old.health if self._health == old.health else self._health
        if not nodes_changed and not pending_changed:
            if (totals, pools, health, self._recent) == (old.totals, old.pools, old.health, old.recent):
                return old
            self._view = msgspec.structs.replace(old, totals=totals, pools=pools, health=health, recent=self._recent)
            return self._view
        self._view = FleetView(
            nodes=dict(self._nodes) if nodes_changed else old.nodes,
            pending=dict(self._pending) if pending_changed else old.pending,
            totals=totals,
            pools=pools,
            health=health,
            recent=self._recent,
        )
        return self._view

    def _check_readable(self) -> None:
        """Whether pods may be read is part of every node: unknown requests are not zero."""
        if self._readable != self._state.pods.synced.is_set():
            self._readable = not self._readable
            self._dirty.update((NominationTarget("node", name), None) for name in map(_name, self._state.nodes.store))

    def _update_nodes(self) -> bool:
        changed = False
        for target in tuple(self._dirty):
            del self._dirty[target]
            new = self._node(target.name) if target.kind == "node" else self._claim(target.name)
            key = f"{'node' if target.kind == 'node' else 'nodeclaim'}/{target.name}"
            old = self._nodes.get(key)
            if new == old:
                continue
            changed = True
            if old is not None:
                self._sums.remove(old)
            if new is None:
                del self._nodes[key]
            else:
                self._nodes[key] = new
                self._sums.add(new)
        return changed

    def _node(self, name: str) -> NodeView | None:
        node = self._state.nodes.store.get(name)
        if node is None:
            return None
        claim = self._state.claim_for(node)
        pods = [self._seen(pod) for pod in self._state.pods_on(name) if not pod.finished] if self._readable else None
        return node_view(node, claim, pods, self._usage.get(name), self._state.is_terminating(claim, node))

    def _claim(self, name: str) -> NodeView | None:
        claim = self._state.claims.store.get(name)
        return None if claim is None or self._state.nodes_for(claim) else claim_view(claim)

    def _seen(self, pod: Pod) -> PodView:
        held = self._pod_views.get(pod.metadata.uid)
        if held is not None and held[0] is pod:
            return held[1]
        view = pod_view(pod)
        if held is not None and held[1] == view:
            view = held[1]
        self._pod_views[pod.metadata.uid] = (pod, view)
        return view

    def _update_pending(self) -> bool:
        changed = False
        for key in tuple(self._dirty_pods):
            del self._dirty_pods[key]
            pod = self._state.pods.store.get(key)
            waiting = pod if pod is not None and not pod.spec.node_name and not pod.finished else None
            old = self._pending.get(key)
            new = self._pending_pod(waiting) if waiting is not None else None
            if new == old:
                continue
            changed = True
            if old is not None:
                self._alike.get((old.namespace, old.workload), {}).pop(key, None)
            if new is None:
                del self._pending[key]
            else:
                self._pending[key] = new
                self._alike.setdefault((new.namespace, new.workload), {})[key] = None
        return changed

    def _pending_pod(self, pod: Pod) -> PendingPod:
        key = pod.metadata.key
        target = self._state.nominations.of(pod.metadata.uid)
        waits_for = f"{'nodeclaim' if target.kind == 'claim' else 'node'}/{target.name}" if target is not None else ""
        alike = frozenset((key, *self._alike.get((pod.metadata.namespace, workload(pod)), ())))
        return pending_view(pod, waits_for, self._refused.of(pod, alike), self._scheduler_says(key))


def _name(obj: Node | NodeClaim) -> str:
    return obj.metadata.name


def pool_view(pool: NodePool) -> PoolView:
    ready: Any = next((condition for condition in pool.status.conditions if condition.type == "Ready"), None)
    return PoolView(
        name=pool.name,
        ready=None if ready is None else {"True": True, "False": False}.get(ready.status),
        problem="" if ready is None or ready.status == "True" else ready.message or ready.reason,
        weight=pool.spec.weight or 0,
        limits=_amounts(pool.spec.limits),
        used=_amounts(pool.status.resources),
        budgets=tuple(map(_budget, pool.spec.disruption.budgets)),
    )


def _budget(budget: Budget) -> BudgetView:
    return BudgetView(str(budget.nodes), tuple(budget.reasons or ()), budget.schedule, budget.duration)


def _amounts(given: Mapping[str, Amount]) -> Amounts:
    amounts = {}
    for name, text in given.items():
        try:
            amounts[name] = amount(name, text)
        except QuantityError:
            continue  # absent from the view, so drawn as unknown
    return amounts


def saved_per_hour(decisions: Sequence[Decision]) -> float | None:
    """What consolidation took off the price an hour, over the decisions that are kept; None where none says."""
    undone = {decision.id for decision in decisions if decision.kind == "undo"}
    savings = [
        decision.before - decision.cost
        for decision in decisions
        if decision.kind == "disrupt"
        and decision.id not in undone
        and decision.before is not None
        and decision.cost is not None
    ]
    return sum(savings) if savings else None
