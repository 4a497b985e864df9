"""Binding, a step of the NodeClaim lifecycle: its pods are bound to its node before others can be scheduled there.

The scheduler spreads where the plan has packed, and then more nodes are needed than were planned. So a
node registers under a taint of ours, its pods are bound, and the taint is removed. A pod that changed, was bound
elsewhere, or needs the scheduler (volumes to be provisioned, devices) is left alone.

The scheduler learns of nodes and of pods by two different watches. If the taint were removed at once, it could see an
open node before it sees the pods on it, and fill it twice. So the taint stays until the scheduler has had time
to receive them, and longer while it is visibly behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from dovetail.cluster.nominations import REPLACEMENT_POD_TIMEOUT_S, NominationTarget, Slot
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim import daemon_pods, initialization
from dovetail.controllers.nodeclaim.binding_check import BindingCheck
from dovetail.controllers.nodeclaim.registration import manifest
from dovetail.controllers.provisioning.provisionable_pods import queued
from dovetail.controllers.rights import BIND_PODS
from dovetail.controllers.settings import BindingMode
from dovetail.controllers.worker import Again
from dovetail.kube.errors import ApiError, Conflict, Forbidden, NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODES, PODS
from dovetail.model import wellknown
from dovetail.model.host_ports import HostPort, clash, host_ports
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import requests
from dovetail.model.pods import NodeSelectorTerm, Pod
from dovetail.model.quantity import resources
from dovetail.model.requirements import Requirements
from dovetail.model.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, UNSCHEDULABLE, untolerated

#: Taints of a node that is being filled, which keep no planned pod away.
FILLING = frozenset({wellknown.PLACING, UNSCHEDULABLE})
#: Seconds between two checks whether the DaemonSet pods of a node exist.
DAEMON_PODS_CHECK_INTERVAL_S = 0.25
#: Concurrent bindings, over all nodes.
MAX_CONCURRENT_BINDINGS = 32
#: The taint stays at least and at most so many seconds after the last binding.
MIN_TAINT_S, MAX_TAINT_S = 2.0, 20.0
#: A pod that has waited this long, in seconds, for the scheduler's first attempt shows that it is behind.
SCHEDULER_BEHIND_S = 1.0


class Binding:
    """The step between registration and initialization; `requeue` has the lifecycle look at a NodeClaim again.

    It comes back for an initialized node that a consolidation closes for the pods it moves there.
    """

    def __init__(self, context: Context, requeue: Callable[[str], None]) -> None:
        self._context = context
        self._requeue = requeue
        self._gate = asyncio.Semaphore(MAX_CONCURRENT_BINDINGS)
        self._placed: dict[str, float] = {}
        self._check = BindingCheck(context.cluster_state, context.clock)
        #: Pods whose planned binding did not hold at the last check, by node.
        self._refused: dict[str, frozenset[str]] = {}
        #: Since when nodes could have had their DaemonSet pods.
        self._ready: dict[str, float] = {}
        self._schedulers = frozenset(filter(None, context.settings.place_schedulers.replace(" ", "").split(",")))
        #: Planned and bound pods of each node whose pods are being bound: one log line when that is over.
        self._progress: dict[str, tuple[int, int]] = {}
        #: Pods that are bound, though the watch has not reported it yet.
        self._bound: set[str] = set()
        context.cluster_state.listen(NODES, self._node_changed)
        context.cluster_state.listen(PODS, self._pod_changed)

    def _node_changed(self, change: CacheChange[Node]) -> None:
        if change.new is None:
            self._placed.pop(change.key, None)
            self._ready.pop(change.key, None)
            self._refused.pop(change.key, None)
            self._progress.pop(change.key, None)

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is None or pod.spec.node_name:
            self._bound.discard(change.object.metadata.uid)
        if pod is None or pod.metadata.controller is None:
            return
        if pod.spec.node_name and pod.terminating:
            self._expect_replacement(pod, pod.metadata.controller.uid)
        elif not pod.spec.node_name and change.old is None:
            self._nominate_replacement(pod, pod.metadata.controller.uid)

    def _expect_replacement(self, pod: Pod, owner: str) -> None:
        """The nomination of a pod that is evicted from a terminating node goes to its replacement."""
        target = self._context.cluster_state.nominations.of(pod.metadata.uid)
        if target is not None and _is_replaced(pod) and self._context.settings.place is BindingMode.BIND:
            until = self._context.clock.monotonic() + REPLACEMENT_POD_TIMEOUT_S
            self._context.cluster_state.nominations.expect_replacement(owner, Slot(target, pod.metadata.uid, until))

    def _nominate_replacement(self, pod: Pod, owner: str) -> None:
        """A replacement pod gets the nomination of an evicted pod of its owner."""
        context = self._context
        slot = context.cluster_state.nominations.take_slot(owner, context.clock.monotonic())
        if slot is None:
            return
        context.cluster_state.withdraw_nomination(slot.uid)
        claim = context.cluster_state.claims.store.get(slot.target.name) if slot.target.kind == "claim" else None
        starting = claim is not None and not claim.is_true("Initialized")
        context.cluster_state.nominate(pod, slot.target, None if starting else slot.until)
        name = node_of(context, slot.target)
        node = context.cluster_state.nodes.store.get(name) if name is not None else None
        claim = context.cluster_state.claim_for(node) if node is not None else None
        if claim is not None:
            self._requeue(claim.name)

    async def bind(self, claim: NodeClaim, node: Node) -> Again:
        """Bind what is nominated for the node and open it; seconds until the next look, None when it is open."""
        context, name = self._context, node.metadata.name
        if context.cluster_state.is_terminating(claim, node):
            return None
        if context.settings.place is BindingMode.NOMINATE:
            await self._nominate(claim, node)
        if not initialization.placing(node):
            self._placed.pop(name, None)
            self._ready.pop(name, None)
            self._refused.pop(name, None)
            return None
        missing = initialization.missing(node, claim)
        if missing is not None and missing.reason != "ResourceNotRegistered":
            return None
        if missing is None:
            if self._awaits_daemon_pods(node):
                return DAEMON_PODS_CHECK_INTERVAL_S
            bound = await self._bind_nominated(claim, node)
            if bound or name not in self._placed:
                self._placed[name] = context.clock.monotonic()
            wait = self._settling(claim, node)
            if wait > 0:
                return wait
        self._log_bound(claim, node)
        await open_node(context, node)
        return None

    def _log_bound(self, claim: NodeClaim, node: Node) -> None:
        planned, bound = self._progress.pop(node.metadata.name, (0, 0))
        if planned:
            self._context.log.info(
                "placed pod(s)",
                NodeClaim=logs.ref(claim.name),
                planned=planned,
                bound=bound,
                decision=claim.metadata.annotations.get(wellknown.DECISION, ""),
            )

    def _awaits_daemon_pods(self, node: Node) -> bool:
        """Whether a node that is cordoned for DaemonSet pods still waits for them."""
        taint, name = initialization.placing_taint(node), node.metadata.name
        if taint is None or taint.effect != PREFER_NO_SCHEDULE:
            return False
        now, cluster_state = self._context.clock.monotonic(), self._context.cluster_state
        since = self._ready.setdefault(name, now)
        awaited = daemon_pods.missing(node, cluster_state.daemonsets.store.all(), cluster_state.pods_on(name))
        if awaited and now - since < daemon_pods.MAX_WAIT_FOR_DAEMON_PODS_S:
            return True
        if awaited and name not in self._placed:
            self._context.log.warning(
                "placing pods before daemonset pods",
                Node=logs.ref(name),
                DaemonSets=", ".join(awaited),
                waited=round(now - since, 1),
            )
        return False

    def _settling(self, claim: NodeClaim, node: Node) -> float:
        """Seconds to wait until the scheduler surely knows the node's pods, and expected replacement pods exist."""
        now = self._context.clock.monotonic()
        since = now - self._placed[node.metadata.name]
        if since < MIN_TAINT_S:
            return MIN_TAINT_S - since
        if self._context.cluster_state.nominations.awaits_replacement(_targets(claim, node), now):
            return 0.5
        if since < REPLACEMENT_POD_TIMEOUT_S and any(map(self._is_draining, self._nominated_pods(claim, node))):
            return 0.5
        waits = self._scheduler_is_behind() or bool(self._refused.get(node.metadata.name))
        return 0.5 if since < MAX_TAINT_S and waits else 0.0

    def _is_draining(self, pod: Pod) -> bool:
        """Whether a pod is being drained and will be replaced. Not where the drain itself waits for this very node."""
        if not pod.spec.node_name or not _is_replaced(pod):
            return False
        node = self._context.cluster_state.nodes.store.get(pod.spec.node_name)
        claim = self._context.cluster_state.claim_for(node) if node else None
        return any(obj is not None and obj.metadata.deletion_timestamp is not None for obj in (node, claim))

    def _scheduler_is_behind(self) -> bool:
        """Whether the scheduler has not tried a pod yet that exists for a while."""
        oldest = self._context.clock.now() - timedelta(seconds=SCHEDULER_BEHIND_S)
        return any(
            pod.metadata.creation_timestamp is not None and pod.metadata.creation_timestamp < oldest and queued(pod)
            for pod in self._context.cluster_state.unbound()
        )

    async def _bind_nominated(self, claim: NodeClaim, node: Node) -> int:
        """Bind the nominated pods to their node; how many were bound."""
        waiting = [pod for pod in self._nominated_pods(claim, node) if not pod.spec.node_name]
        pods = [pod for pod in waiting if pod.metadata.uid not in self._bound]
        there = self._context.cluster_state.pods_on(node.metadata.name)
        ready = fitting(node, there, (pod for pod in pods if self._bindable(pod)))
        rejected = self._check.rejections(ready, node)
        self._refuse(node, [pod for pod in ready if pod.metadata.uid in rejected], rejected)
        ready = [pod for pod in ready if pod.metadata.uid not in rejected]
        outcomes = await asyncio.gather(*(self._bind_one(pod, node) for pod in ready))
        for pod, done in zip(ready, outcomes, strict=True):
            if not done:
                self._check.withdraw(pod)
        bound = sum(outcomes)
        self._context.metrics.pods_placed.labels("bound").inc(bound)
        self._context.metrics.pods_placed.labels("left").inc(len(pods) - bound)
        if pods:
            before = self._progress.get(node.metadata.name, (0, 0))
            self._progress[node.metadata.name] = (before[0] + len(pods), before[1] + bound)
        return bound

    def _refuse(self, node: Node, pods: Sequence[Pod], why: Mapping[str, str]) -> None:
        """Note pods whose planned binding does not hold now; they are checked again while the node is closed."""
        name = node.metadata.name
        refused_before = self._refused.get(name, frozenset())
        self._refused[name] = frozenset(pod.metadata.uid for pod in pods)
        for pod in pods:
            if pod.metadata.uid not in refused_before:
                self._context.log.info(
                    "planned binding does not hold",
                    Node=logs.ref(name),
                    Pod=logs.ref(pod.metadata.name, pod.metadata.namespace),
                    reason=why[pod.metadata.uid],
                )

    def _nominated_pods(self, claim: NodeClaim, node: Node) -> Iterator[Pod]:
        cluster_state = self._context.cluster_state
        for target in _targets(claim, node):
            yield from filter(None, map(cluster_state.pod, tuple(cluster_state.nominations.on(target))))

    def _bindable(self, pod: Pod) -> bool:
        """Still pending as planned, and without anything that only the scheduler can arrange."""
        if pod.finished or pod.terminating or pod.spec.scheduling_gates or pod.spec.resource_claims:
            return False
        if pod.spec.scheduler_name not in self._schedulers:
            return False  # its scheduler has state of its own, and may start pods together or not at all
        claims = self._context.cluster_state.volume_claims.store
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None:
                return False
            if volume.persistent_volume_claim is not None:
                claim = claims.get(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}")
                if claim is None or not claim.bound:
                    return False
        return True

    async def _bind_one(self, pod: Pod, node: Node) -> bool:
        meta = pod.metadata
        async with self._gate:
            try:
                await self._context.kube.bind(meta.name, meta.namespace, node.metadata.name, uid=meta.uid)
            except (Conflict, NotFound):
                return False  # it was bound elsewhere, or deleted: it is left alone
            except Forbidden as problem:
                self._context.rights.deny(BIND_PODS, problem.message)
                return False
            except ApiError as problem:
                self._context.log.error(
                    "could not place pod", Pod=logs.ref(meta.name, meta.namespace), error=problem.message
                )
                return False
        self._context.rights.allow(BIND_PODS)
        self._bound.add(meta.uid)
        return True

    async def _nominate(self, claim: NodeClaim, node: Node) -> None:
        """Set nominatedNodeName on the nominated pods, as a hint to the scheduler."""
        cluster_state = self._context.cluster_state
        body = {"status": {"nominatedNodeName": node.metadata.name}}
        for uid in tuple(cluster_state.nominations.on(NominationTarget("claim", claim.name))):
            pod = cluster_state.pod(uid)
            if pod is None or pod.spec.node_name or pod.status.nominated_node_name or pod.finished:
                continue
            try:
                await self._context.kube.patch(
                    PODS, pod.metadata.name, body, pod.metadata.namespace, subresource="status"
                )
            except NotFound:
                continue


def node_of(context: Context, target: NominationTarget) -> str | None:
    """The name of a target's node, if it has one yet."""
    if target.kind == "node":
        return target.name
    claim = context.cluster_state.claims.store.get(target.name)
    node = context.cluster_state.node_for(claim) if claim else None
    return node.metadata.name if node else None


def _targets(claim: NodeClaim, node: Node) -> tuple[NominationTarget, NominationTarget]:
    """The targets that mean one node."""
    return NominationTarget("claim", claim.name), NominationTarget("node", node.metadata.name)


def _is_replaced(pod: Pod) -> bool:
    """Whether a replacement is created, under another name, as soon as this pod is deleted."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "ReplicaSet" and not pod.finished


async def close_node(context: Context, name: str) -> bool:
    """Put our taint on a node that will receive pods of a plan; False if it is gone or changes meanwhile."""
    try:
        node = await context.kube.get(NODES, name, type=Node)
        if not initialization.placing(node):
            taints = [manifest(taint) for taint in (*node.spec.taints, wellknown.placing_taint(context.clock.now()))]
            body = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}}
            await context.kube.patch(NODES, name, body)
    except (Conflict, NotFound):
        return False
    return True


async def open_node(context: Context, node: Node) -> None:
    """Remove our taint from a node, as it is now."""
    try:
        fresh = await context.kube.get(NODES, node.metadata.name, type=Node)
    except NotFound:
        return
    taint = initialization.placing_taint(fresh)
    if taint is None:
        return
    ours = {wellknown.PLACING, UNSCHEDULABLE} if taint.effect == PREFER_NO_SCHEDULE else {wellknown.PLACING}
    remaining = [manifest(taint) for taint in fresh.spec.taints if taint.key not in ours]
    spec: dict[str, Any] = {"taints": remaining or None}
    if taint.effect == PREFER_NO_SCHEDULE:
        spec["unschedulable"] = None
    body = {"metadata": {"resourceVersion": fresh.metadata.resource_version}, "spec": spec}
    await context.kube.patch(NODES, node.metadata.name, body)


def fitting(node: Node, there: Iterable[Pod], pods: Iterable[Pod]) -> list[Pod]:
    """Those of `pods` that the node as it is can take together with its pods, in their order."""
    free = dict(resources(node.status.allocatable))
    ports: list[HostPort] = []
    for pod in there:
        if not pod.finished:
            _take(free, pod)
            ports.extend(host_ports(pod))
    ours = FILLING if initialization.placing(node) else ()
    taints = [taint for taint in node.spec.taints if taint.key not in ours]
    own = Requirements.of_labels({wellknown.HOSTNAME: node.metadata.name, **node.metadata.labels})
    chosen = []
    for pod in pods:
        pod_ports = host_ports(pod)
        if (
            _fits(free, pod)
            and not untolerated(taints, pod.spec.tolerations, (NO_SCHEDULE, NO_EXECUTE))
            and clash(pod_ports, ports) is None
            and _selects(pod, own)
        ):
            _take(free, pod)
            ports.extend(pod_ports)
            chosen.append(pod)
    return chosen


def _fits(free: dict[str, int], pod: Pod) -> bool:
    return free.get("pods", 0) >= 1 and all(
        free.get(name, 0) >= amount for name, amount in requests(pod).items() if amount and name != "pods"
    )


def _take(free: dict[str, int], pod: Pod) -> None:
    free["pods"] = free.get("pods", 0) - 1
    for name, amount in requests(pod).items():
        if name != "pods":
            free[name] = free.get(name, 0) - amount


def _selects(pod: Pod, own: Requirements) -> bool:
    """Whether the pod's selector and required node affinity hold for the node's labels."""
    if not own.compatible(Requirements.of_labels(pod.spec.node_selector)):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(_term_holds(term, own) for term in affinity.required.node_selector_terms)


def _term_holds(term: NodeSelectorTerm, own: Requirements) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    name = own.of(wellknown.HOSTNAME)
    if any(field.key != "metadata.name" or not any(map(name.has, field.values)) for field in term.match_fields):
        return False
    return own.compatible(Requirements.of_entries(term.match_expressions))
