"""Launch: one instance for a NodeClaim, exactly once.

The NodeClaim's UID is the idempotency token, so that a retry (after a crash, a lost answer, a conflict) gets
the instance that was already launched. The launch options follow from the NodeClaim alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.cloud.provider import (
    CloudError,
    Instance,
    InsufficientCapacity,
    LaunchOption,
    LaunchRequest,
    NodeClassNotReady,
    Remedy,
)
from dovetail.cluster import nodepools
from dovetail.cluster.nominations import NominationTarget
from dovetail.controllers import logs
from dovetail.controllers.conditions import Conditions, truncated
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.nodeclaim.offerings import custom_labels, labels, options
from dovetail.kube.backoff import doubled
from dovetail.language import source
from dovetail.model import wellknown
from dovetail.model.kinds.kubelet import with_kubelet
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.pods import Pod
from dovetail.model.quantity import format_resources

#: How long a NodePool whose launches fail is left out of planning, in seconds.
NODEPOOL_PAUSE_S = 180.0
#: The longest pause between two tries of one launch, in seconds.
MAX_RETRY_PAUSE_S = 60.0


class InstanceLauncher:
    """Remembers instances until their NodeClaim's status has them, so that no cloud call is repeated."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._launched: dict[str, Instance] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def forget(self, uid: str) -> None:
        self._launched.pop(uid, None)
        self._failures.pop(uid, None)

    def pause(self, uid: str) -> float:
        """Seconds until a failed launch may be tried again."""
        return max(0.0, self._failures.get(uid, (0, 0.0))[1] - self._context.clock.monotonic())

    async def launch(self, claim: NodeClaim, conditions: Conditions) -> Instance | None:
        """The NodeClaim's instance; None if there is none yet (the condition says why) or the NodeClaim was deleted."""
        uid = claim.metadata.uid
        remembered = self._launched.get(uid)
        if remembered is not None or self.pause(uid) > 0:
            return remembered
        try:
            instance = await self._launch(claim)
        except CloudError as problem:
            await self._failed(claim, conditions, problem)
            return None
        self._context.safety.launch(True)
        self._launched[uid] = instance
        self._log_launched(claim, instance)
        return instance

    async def _failed(self, claim: NodeClaim, conditions: Conditions, problem: CloudError) -> None:
        context = self._context
        context.safety.launch(False, problem.message)
        self._count(claim, problem)
        if await self._delete_hopeless(claim, problem):
            self._failures[claim.metadata.uid] = (0, context.clock.monotonic() + MAX_RETRY_PAUSE_S)
            return
        failures = self._failures.get(claim.metadata.uid, (0, 0.0))[0] + 1
        seconds = doubled(1.0, MAX_RETRY_PAUSE_S, failures) * (1.0 + 0.2 * context.chance.random())
        self._failures[claim.metadata.uid] = (failures, context.clock.monotonic() + seconds)
        conditions.unknown("Launched", _reason(problem), truncated(problem.message))
        context.event_publisher.launch_failed(claim, _reason(problem), problem.message)
        for pod in waiting_for(context, claim):
            context.event_publisher.launch_failed_for(pod, claim, _reason(problem), problem.message)
        context.log.error(
            "launching nodeclaim",
            controller="nodeclaim.lifecycle",
            NodeClaim=logs.ref(claim.name),
            error=problem.detail,
            retry=round(seconds, 1),
        )

    async def _launch(self, claim: NodeClaim) -> Instance:
        context = self._context
        reference = claim.spec.node_class_ref
        node_class = context.cluster_state.node_classes.store.get(reference.name)
        if node_class is None and context.cloud.node_class_required:
            raise NodeClassNotReady(
                source("{kind} {name!r} not found").format(kind=reference.kind, name=reference.name)
            )
        pool = context.cluster_state.pools.store.get(claim.node_pool or "")
        if node_class is not None and pool is not None:
            node_class = dict(with_kubelet(node_class, pool.metadata.annotations))
        types = await context.cloud.instance_types(self._pool(claim), node_class or {})
        choices = options(claim, context.instance_types.corrected(types, claim.node_pool or ""))
        if not choices:
            raise InsufficientCapacity(source("all requested instance types were unavailable during launch"))
        labels_ = {**custom_labels(claim, types), **labels(claim)}
        began = context.clock.monotonic()
        request = LaunchRequest(
            token=claim.metadata.uid,
            claim=msgspec.to_builtins(claim),
            node_class=node_class or {},
            options=choices,
            labels=labels_,
            taints=_taints(claim),
            tags={"karpenter.sh/nodeclaim": claim.name, **_pool_tag(claim)},
        )
        try:
            instance = await context.cloud.launch(request)
        except InsufficientCapacity as refusal:
            if not refusal.offerings:  # none is named, so it refuses all: else the next plan would ask for the same
                for choice in choices:
                    offering = choice.offering
                    context.cloud.unavailable.mark((choice.instance_type.name, offering.zone, offering.capacity_type))
            raise
        context.metrics.cloud_seconds.labels("nodeclaim.lifecycle", "Create", context.cloud.name).observe(
            context.clock.monotonic() - began
        )
        owner = context.cluster_state.owner(instance.provider_id)
        if owner is not None and owner.metadata.uid != claim.metadata.uid:
            raise CloudError("InstanceTaken", f"{instance.provider_id} belongs to NodeClaim {owner.name}", Remedy.RETRY)
        return _priced(msgspec.structs.replace(instance, labels={**labels_, **instance.labels}), choices)

    def _pool(self, claim: NodeClaim) -> dict[str, Any]:
        nodepool = self._context.cluster_state.pools.store.get(claim.node_pool or "")
        answer: dict[str, Any] = msgspec.to_builtins(nodepool) if nodepool else {}
        return answer

    async def _delete_hopeless(self, claim: NodeClaim, problem: CloudError) -> bool:
        """Whether this NodeClaim will never launch, so that its pods are better planned anew."""
        context = self._context
        if problem.remedy is Remedy.NEXT_OFFERING:
            reason = "insufficient_capacity"
            context.event_publisher.no_capacity(claim, problem.message)
            for pod in waiting_for(context, claim):
                context.event_publisher.no_capacity_for(pod, claim, problem.message)
        elif isinstance(problem, NodeClassNotReady):
            reason = "nodeclass_not_ready"
            context.event_publisher.class_not_ready(claim, problem.message)
        elif problem.remedy is Remedy.NEXT_POOL or (
            problem.remedy is Remedy.OPERATOR and self._has_other_nodepools(claim)
        ):
            reason = "launch_failed"
            context.event_publisher.launch_failed(claim, problem.reason, problem.message)
            if claim.node_pool:
                context.instance_types.pause(claim.node_pool, NODEPOOL_PAUSE_S, problem.message)
        else:
            return False
        decision = await delete(context, claim, reason, why=problem.message)
        context.log.error(
            "failed launching nodeclaim",
            controller="nodeclaim.lifecycle",
            NodeClaim=logs.ref(claim.name),
            error=problem.detail,
            decision=decision,
        )
        return True

    def _has_other_nodepools(self, claim: NodeClaim) -> bool:
        """Whether another NodePool is usable for the pods of a NodeClaim that only an operator can help."""
        instance_types = self._context.instance_types
        return any(
            nodepools.usable(pool) and pool.name != claim.node_pool and not instance_types.paused(pool.name)
            for pool in self._context.cluster_state.pools.store.all()
        )

    def _count(self, claim: NodeClaim, problem: CloudError) -> None:
        error, pool = problem.reason or "unknown", claim.node_pool or ""
        self._context.metrics.cloud_errors.labels(
            "nodeclaim.lifecycle", "Create", self._context.cloud.name, error, pool
        ).inc()

    def _log_launched(self, claim: NodeClaim, instance: Instance) -> None:
        created = claim.metadata.creation_timestamp
        if created is not None:
            waited = (self._context.clock.now() - created).total_seconds()
            self._context.metrics.launch_latency.labels(claim.node_pool or "").observe(max(0.0, waited))
        self._context.log.info(
            "launched nodeclaim",
            controller="nodeclaim.lifecycle",
            controllerGroup="karpenter.sh",
            controllerKind="NodeClaim",
            NodeClaim=logs.ref(claim.name),
            namespace="",
            name=claim.name,
            **{
                "provider-id": instance.provider_id,
                "instance-type": instance.instance_type,
                "zone": instance.zone,
                "capacity-type": instance.capacity_type,
                "allocatable": format_resources(instance.allocatable),
                "decision": claim.metadata.annotations.get(wellknown.DECISION, ""),
            },
        )


def waiting_for(context: Context, claim: NodeClaim) -> list[Pod]:
    """The pods a NodeClaim was created for that still have no node."""
    pods = (
        context.cluster_state.pod(uid)
        for uid in tuple(context.cluster_state.nominations.on(NominationTarget("claim", claim.name)))
    )
    return [pod for pod in pods if pod and not pod.spec.node_name and not pod.finished and not pod.terminating]


def _priced(instance: Instance, choices: Sequence[LaunchOption]) -> Instance:
    """The instance with the price of the offering it was launched as, which need not be the planned one."""
    launched = (instance.instance_type, instance.zone, instance.capacity_type)
    prices = (
        choice.offering.price
        for choice in choices
        if (choice.instance_type.name, choice.offering.zone, choice.offering.capacity_type) == launched
    )
    price = next(prices, None)
    if price is None:
        return instance
    return msgspec.structs.replace(instance, annotations={**instance.annotations, wellknown.PRICE: f"{price:.6g}"})


def _reason(problem: CloudError) -> str:
    return problem.reason if problem.reason.isalnum() else "LaunchFailed"


def _taints(claim: NodeClaim) -> tuple[dict[str, str], ...]:
    """The taints a node starts with: the NodeClaim's, and the one that keeps all pods off until it is registered."""
    written = [(t.key, t.value, t.effect) for t in (*claim.spec.taints, *claim.spec.startup_taints)]
    written.append((wellknown.UNREGISTERED_TAINT.key, "", wellknown.UNREGISTERED_TAINT.effect))
    return tuple(
        {"key": key, **({"value": value} if value else {}), "effect": effect} for key, value, effect in written
    )


def _pool_tag(claim: NodeClaim) -> dict[str, str]:
    return {wellknown.NODEPOOL: claim.node_pool} if claim.node_pool else {}
