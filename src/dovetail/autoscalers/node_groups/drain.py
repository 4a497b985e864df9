"""Drain rules: which pods of a node move when it goes, which pods may stay behind, and which keep the node.

The rules are asked in order and the first verdict counts. A pod that no rule speaks about moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from dovetail.autoscalers.node_groups.annotations import (
    SAFE_TO_EVICT,
    SAFE_TO_EVICT_LOCAL_VOLUMES,
    is_daemonset,
    is_mirror_pod,
)
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.language import source
from dovetail.model.pods import Pod, Volume

SYSTEM_NAMESPACE = "kube-system"
#: A pod that outlives its deletion by its grace period and this much is not going to leave by itself.
TERMINATION_SLACK_S = 30.0
DEFAULT_GRACE_S = 30
REPLICATED_KINDS = frozenset({"ReplicationController", "ReplicaSet", "Job", "StatefulSet"})


class DrainabilityOutcome(Enum):
    """What becomes of a pod when its node is drained."""

    UNDEFINED = "no rule speaks about it"
    DRAIN = "it moves, or ends with its node"
    SKIP = "it needs no draining"
    WAIT = "the node waits until it has completed"
    BLOCK = "the node stays because of it"


class BlockingReason(Enum):
    """Why a pod keeps its node; the values are the names that logs and metrics show."""

    CONTROLLER_NOT_FOUND = "ControllerNotFound"
    MIN_REPLICAS_REACHED = "MinReplicasReached"
    NOT_REPLICATED = "NotReplicated"
    LOCAL_STORAGE_REQUESTED = "LocalStorageRequested"
    NOT_SAFE_TO_EVICT = "NotSafeToEvictAnnotation"
    UNMOVABLE_SYSTEM_POD = "UnmovableKubeSystemPod"
    NOT_ENOUGH_PDB = "NotEnoughPdb"
    UNEXPECTED_ERROR = "UnexpectedError"


REMEDIES: Mapping[BlockingReason, str] = {
    BlockingReason.CONTROLLER_NOT_FOUND: source("delete the pod, or restore its controller"),
    BlockingReason.MIN_REPLICAS_REACHED: source("raise the controller's replicas, or lower --min-replica-count"),
    BlockingReason.NOT_REPLICATED: source("run it under a controller, or annotate it {annotation}=true").format(
        annotation=SAFE_TO_EVICT
    ),
    BlockingReason.LOCAL_STORAGE_REQUESTED: source(
        "list the volume in {annotation}, or set --skip-nodes-with-local-storage=false"
    ).format(annotation=SAFE_TO_EVICT_LOCAL_VOLUMES),
    BlockingReason.NOT_SAFE_TO_EVICT: source("remove the annotation {annotation}=false").format(
        annotation=SAFE_TO_EVICT
    ),
    BlockingReason.UNMOVABLE_SYSTEM_POD: source(
        "give it a PodDisruptionBudget, or set --skip-nodes-with-system-pods=false"
    ),
    BlockingReason.NOT_ENOUGH_PDB: source(
        "its PodDisruptionBudget allows no disruption now; add replicas or relax the budget"
    ),
    BlockingReason.UNEXPECTED_ERROR: source("see the log"),
}


class DrainabilityStatus(msgspec.Struct, frozen=True):
    """`reason` and `message` only where the pod blocks."""

    outcome: DrainabilityOutcome
    reason: BlockingReason | None = None
    message: str = ""


class Controllers(msgspec.Struct, frozen=True):
    """The controllers that exist: (kind, namespace, name) to the replicas they ask for (0 where that means nothing)."""

    replicas: Mapping[tuple[str, str, str], int] = {}

    def find(self, kind: str, namespace: str, name: str) -> int | None:
        """The controller's replicas, or None if it is not there."""
        return self.replicas.get((kind, namespace, name))


class DrainRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say about draining. Without `controllers` the existence of controllers is not checked."""

    skip_system_pods: bool = True
    skip_local_storage: bool = True
    skip_custom_controller_pods: bool = True
    min_replica_count: int = 0
    system_pod_timeout_s: float = 3600.0


class DrainContext(msgspec.Struct, frozen=True):
    """The cluster as the rules see it."""

    now: datetime
    budgets: RemainingPdbs
    controllers: Controllers | None = None


class BlockingPod(msgspec.Struct, frozen=True):
    """The pod that keeps a node, and why."""

    pod: Pod
    reason: BlockingReason
    message: str


class PodsToMove(msgspec.Struct, frozen=True):
    """What draining a node means. With a blocking pod nothing moves."""

    pods: tuple[Pod, ...] = ()
    daemonset_pods: tuple[Pod, ...] = ()
    on_completion: tuple[Pod, ...] = ()
    blocking: BlockingPod | None = None


def pods_to_move(pods: Iterable[Pod], rules: DrainRules, context: DrainContext) -> PodsToMove:
    """Sort a node's pods by what its removal means for them."""
    moving: list[Pod] = []
    daemonset_pods: list[Pod] = []
    on_completion: list[Pod] = []
    for pod in pods:
        verdict = drainability(pod, rules, context)
        match verdict.outcome:
            case DrainabilityOutcome.UNDEFINED | DrainabilityOutcome.DRAIN:
                (daemonset_pods if is_daemonset(pod) else moving).append(pod)
            case DrainabilityOutcome.WAIT:
                on_completion.append(pod)
            case DrainabilityOutcome.BLOCK:
                reason = verdict.reason or BlockingReason.UNEXPECTED_ERROR
                return PodsToMove(blocking=BlockingPod(pod, reason, verdict.message))
            case DrainabilityOutcome.SKIP:
                continue
    return PodsToMove(tuple(moving), tuple(daemonset_pods), tuple(on_completion))


def is_empty(pods: Iterable[Pod], rules: DrainRules, now: datetime) -> bool:
    """Whether a node with these pods goes without moving one; budgets and controllers are not asked."""
    context = DrainContext(now, RemainingPdbs())
    return all(
        is_daemonset(pod)
        or drainability(pod, rules, context).outcome in (DrainabilityOutcome.SKIP, DrainabilityOutcome.WAIT)
        for pod in pods
    )


def drainability(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus:
    """The verdict of the first rule that has one."""
    for rule in RULES:
        verdict = rule(pod, rules, context)
        if verdict is not None:
            return verdict
    return DrainabilityStatus(DrainabilityOutcome.UNDEFINED)


def _mirror_pod(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    return DrainabilityStatus(DrainabilityOutcome.SKIP) if is_mirror_pod(pod) else None


def _long_terminating(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    return DrainabilityStatus(DrainabilityOutcome.SKIP) if is_long_terminating(pod, context.now) else None


def _replica_count(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    """Only controllers of the core groups are looked up: of others we could not tell whether they exist."""
    owner = pod.metadata.controller
    if not rules.skip_custom_controller_pods or context.controllers is None or owner is None:
        return None
    group = owner.api_version.rpartition("/")[0]
    if is_daemonset(pod) and owner.kind != "ReplicationController":
        if owner.kind != "DaemonSet" or group != "apps":
            return None
    elif owner.kind not in REPLICATED_KINDS or (owner.kind == "StatefulSet" and group != "apps"):
        return None
    replicas = context.controllers.find(owner.kind, pod.metadata.namespace, owner.name)
    if replicas is None:
        return _blocked(
            BlockingReason.CONTROLLER_NOT_FOUND, f"{owner.kind} {owner.name} of pod {pod.metadata.key} does not exist"
        )
    if owner.kind in ("ReplicaSet", "ReplicationController") and replicas < rules.min_replica_count:
        return _blocked(
            BlockingReason.MIN_REPLICAS_REACHED,
            f"{owner.kind} {owner.name} of pod {pod.metadata.key} asks for {replicas} replicas, "
            f"fewer than {rules.min_replica_count}",
        )
    return None


def _daemonset(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    return DrainabilityStatus(DrainabilityOutcome.DRAIN) if is_daemonset(pod) else None


def _safe_to_evict(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    return DrainabilityStatus(DrainabilityOutcome.DRAIN) if _annotation(pod) == "true" else None


def _terminal(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    return DrainabilityStatus(DrainabilityOutcome.DRAIN) if is_terminal(pod) else None


def _on_completion(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    return DrainabilityStatus(DrainabilityOutcome.WAIT) if _annotation(pod) == "on-completion" else None


def _replicated(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    owner = pod.metadata.controller
    if owner is not None and (not rules.skip_custom_controller_pods or owner.kind in REPLICATED_KINDS):
        return None
    return _blocked(BlockingReason.NOT_REPLICATED, f"pod {pod.metadata.key} is not replicated")


def _system(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    if not rules.skip_system_pods or pod.metadata.namespace != SYSTEM_NAMESPACE or context.budgets.matching(pod):
        return None
    created = pod.metadata.creation_timestamp
    timeout = timedelta(seconds=rules.system_pod_timeout_s)
    if created is not None and rules.system_pod_timeout_s > 0 and context.now - created > timeout:
        return None
    return _blocked(
        BlockingReason.UNMOVABLE_SYSTEM_POD,
        source("kube-system pod {pod} has no PodDisruptionBudget").format(pod=pod.metadata.name),
    )


def _not_safe_to_evict(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    if _annotation(pod) != "false":
        return None
    return _blocked(
        BlockingReason.NOT_SAFE_TO_EVICT,
        source("pod {pod} is annotated {annotation}=false").format(pod=pod.metadata.key, annotation=SAFE_TO_EVICT),
    )


def _local_storage(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    if not rules.skip_local_storage or not has_blocking_local_storage(pod):
        return None
    return _blocked(
        BlockingReason.LOCAL_STORAGE_REQUESTED, source("pod {pod} has local storage").format(pod=pod.metadata.key)
    )


def _budget(pod: Pod, rules: DrainRules, context: DrainContext) -> DrainabilityStatus | None:
    if all(budget.allowed >= 1 for budget in context.budgets.matching(pod)):
        return None
    return _blocked(
        BlockingReason.NOT_ENOUGH_PDB, source("no disruption is allowed for pod {pod}").format(pod=pod.metadata.key)
    )


Rule = Callable[[Pod, DrainRules, DrainContext], DrainabilityStatus | None]
RULES: Sequence[Rule] = (
    _mirror_pod,
    _long_terminating,
    _replica_count,
    _daemonset,
    _safe_to_evict,
    _terminal,
    _on_completion,
    _replicated,
    _system,
    _not_safe_to_evict,
    _local_storage,
    _budget,
)


def _blocked(reason: BlockingReason, message: str) -> DrainabilityStatus:
    return DrainabilityStatus(DrainabilityOutcome.BLOCK, reason, message)


def _annotation(pod: Pod) -> str:
    return pod.metadata.annotations.get(SAFE_TO_EVICT, "")


def is_terminal(pod: Pod) -> bool:
    """Whether the pod's containers have ended and will not be started again."""
    phase, policy = pod.status.phase, pod.spec.restart_policy
    if phase == "Failed":
        return True
    return phase == "Succeeded" and policy in ("Never", "OnFailure")


def is_long_terminating(pod: Pod, now: datetime) -> bool:
    """Whether the pod should have ended before now."""
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return False
    grace = pod.spec.termination_grace_period_seconds
    return now > deleted + timedelta(seconds=(DEFAULT_GRACE_S if grace is None else grace) + TERMINATION_SLACK_S)


def has_blocking_local_storage(pod: Pod) -> bool:
    """Whether the pod would lose data with its node, in a volume that its owner did not declare safe to lose."""
    listed = pod.metadata.annotations.get(SAFE_TO_EVICT_LOCAL_VOLUMES)
    safe = set(listed.split(",")) if listed is not None else set()
    return any(_is_local(volume) and volume.name not in safe for volume in pod.spec.volumes)


def _is_local(volume: Volume) -> bool:
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
