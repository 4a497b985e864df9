"""The next thing to do in a migration: a pure function of the record and of what the cluster and the cloud show.

Nothing is remembered between two actions but the record, so that an interruption after any write loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.autoscalers.node_groups.annotations import SAFE_TO_EVICT
from dovetail.language import message
from dovetail.migration.drain_blockers import EvictionRules, MoveBlocker, blockers, moves
from dovetail.migration.groups import LAUNCH, UNATTENDED, Group, Sizes, are_strangers
from dovetail.migration.record import ALREADY_CORDONED, CORDONED, MigrationRecord, Phase
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget

ON_COMPLETION = "on-completion"


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the cloud at one moment. `objects` are the NodePools and EC2NodeClasses by kind and name."""

    now: datetime
    groups: Mapping[str, Group]
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    pdbs: tuple[PodDisruptionBudget, ...] = ()
    objects: Mapping[tuple[str, str], Mapping[str, Any]] = {}
    #: NodeClaims by the NodePool that they belong to.
    claims: Mapping[str, tuple[str, ...]] = {}


class CreateObject(msgspec.Struct, frozen=True):
    body: Mapping[str, Any]


class DeleteObject(msgspec.Struct, frozen=True):
    kind: str
    name: str


class SetSizes(msgspec.Struct, frozen=True):
    group: Group
    sizes: Sizes


class Suspend(msgspec.Struct, frozen=True):
    """Stop processes that end instances of the group's own choice, drained or not."""

    group: Group
    processes: tuple[str, ...]


class Resume(msgspec.Struct, frozen=True):
    group: Group
    processes: tuple[str, ...]


class Cordon(msgspec.Struct, frozen=True):
    """`already`: it was cordoned before, and stays so when the migration stops."""

    node: str
    group: str
    already: bool = False


class Uncordon(msgspec.Struct, frozen=True):
    node: str
    stays: bool = False


class Remember(msgspec.Struct, frozen=True):
    """Write the record."""

    record: MigrationRecord


class Evict(msgspec.Struct, frozen=True):
    """Evict these pods; those that a PodDisruptionBudget protects are tried again."""

    pods: tuple[Pod, ...]


class Terminate(msgspec.Struct, frozen=True):
    group: Group
    provider_id: str
    node: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing can be done until the cluster or the cloud has done `what`."""

    what: str


class Refuse(msgspec.Struct, frozen=True):
    """A pod that came after the plan was made keeps a node."""

    blockers: tuple[MoveBlocker, ...]


class Finish(msgspec.Struct, frozen=True):
    """Nothing is left to do. `forget`: the record goes as well."""

    forget: bool = False


Action = (
    CreateObject
    | DeleteObject
    | SetSizes
    | Suspend
    | Resume
    | Cordon
    | Uncordon
    | Remember
    | Evict
    | Terminate
    | Wait
    | Refuse
    | Finish
)


def next_action(record: MigrationRecord, seen: Observed) -> Action:
    match record.phase:
        case Phase.FORWARD:
            return _forward(record, seen)
        case Phase.STOPPING:
            return _stop(record, seen)
        case Phase.BACK:
            return _back(record, seen)
        case _:
            return Finish()


# Forward


def _forward(record: MigrationRecord, seen: Observed) -> Action:
    groups = _groups(record, seen)
    for body in record.objects:
        if (body["kind"], body["metadata"]["name"]) not in seen.objects:
            return CreateObject(body)
    for body in record.objects:
        why = _unready(seen.objects[body["kind"], body["metadata"]["name"]])
        if why:
            return Wait(f"{body['kind']} {body['metadata']['name']}: {why}")
    action = _suspend(groups, record) or _freeze(groups) or _finish_batch(record, seen)
    if action is not None:
        return action
    for group in groups:
        action = _empty(group, record, seen)
        if action is not None:
            return action
    action = _resume(groups, record) or _missing(record, seen, record.order)
    return action or Remember(replace(record, phase=Phase.DONE, batch=(), owners=(), suspends={}))


def _missing(record: MigrationRecord, seen: Observed, names: Sequence[str]) -> Wait | None:
    """A group that AWS does not list is no empty group while nodes of it stand, or are to come back."""
    standing = {node.metadata.annotations.get(CORDONED) for node in seen.nodes}
    for name in names:
        returning = record.phase is Phase.BACK and record.sizes[name].desired > 0
        if name not in seen.groups and (name in standing or returning):
            return Wait(message("group {group} is not among the groups that AWS lists", group=name))
    return None


def _groups(record: MigrationRecord, seen: Observed) -> list[Group]:
    return [seen.groups[name] for name in record.order if name in seen.groups]


def _suspend(groups: Sequence[Group], record: MigrationRecord) -> Action | None:
    """Processes that would end a node that is not drained; what is to run again is remembered before."""
    for group in groups:
        running = tuple(process for process in UNATTENDED if process not in group.suspended)
        if not running or not group.instances:
            continue
        before = record.suspends.get(group.name, ())
        ours = tuple(process for process in UNATTENDED if process in before or process in running)
        if ours != before:
            return Remember(replace(record, suspends={**record.suspends, group.name: ours}))
        return Suspend(group, running)
    return None


def _resume(groups: Sequence[Group], record: MigrationRecord) -> Action | None:
    """What the migration suspended runs again."""
    for group in groups:
        ours = tuple(process for process in record.suspends.get(group.name, ()) if process in group.suspended)
        if ours:
            return Resume(group, ours)
    return None


def _freeze(groups: Sequence[Group]) -> Action | None:
    """Keep a group from growing for the pods that leave another, and from filling up what has left."""
    for group in groups:
        if group.sizes != group.frozen:
            return SetSizes(group, group.frozen)
    return None


def _unready(obj: Mapping[str, Any]) -> str:
    """Why an object of ours cannot be used yet."""
    rows = (obj.get("status") or {}).get("conditions") or ()
    ready = next((row for row in rows if row.get("type") == "Ready"), None)
    if ready is None:
        return message("it is not Ready yet; a controller (dovetail run or Karpenter) has to look at it")
    return "" if ready.get("status") == "True" else str(ready.get("message") or ready.get("reason") or "not Ready")


def _members(group: Group, seen: Observed) -> list[Node]:
    """The nodes of a group's instances, also of those that end."""
    ids = {*group.instances, *group.leaving}
    return [node for node in seen.nodes if node.spec.provider_id in ids]


def _empty(group: Group, record: MigrationRecord, seen: Observed) -> Action | None:
    """The first thing to do until the group has no instance; None once that is so."""
    nodes = _members(group, seen)
    for node in nodes:
        if CORDONED not in node.metadata.annotations:
            return Cordon(node.metadata.name, group.name, node.spec.unschedulable)
    standing = [node for node in nodes if node.spec.provider_id in group.instances]
    if standing:
        return _begin_batch(standing, record, seen)
    size = record.sizes[group.name].desired
    if group.instances and (not seen.nodes or are_strangers(size, len(group.instances))):
        return Wait(
            message(
                "{count} instances of group {group} are no Nodes of this cluster and may run pods of another; "
                "end them if they do not",
                count=len(group.instances),
                group=group.title,
            )
        )
    if group.instances:  # an instance that never joined has no pods to move
        return Terminate(group, group.instances[0], "")
    if group.leaving:
        return Wait(message("instances of group {group} are ending", group=group.title))
    if group.sizes.desired > 0:
        return SetSizes(group, Sizes(0, group.least_maximum, 0))
    return None


def _begin_batch(standing: Sequence[Node], record: MigrationRecord, seen: Observed) -> Action:
    """The nodes with the fewest pods go first: they cost the fewest evictions."""
    on = _by_node(seen.pods)
    order = sorted(standing, key=lambda node: (len(on.get(node.metadata.name, ())), node.metadata.name))
    names = tuple(node.metadata.name for node in order[: record.batch_size])
    rules = EvictionRules(force=record.force, delete_emptydir_data=record.delete_emptydir_data)
    pods = [pod for name in names for pod in on.get(name, ())]
    blocking = blockers(pods, seen.pdbs, rules, seen.now)
    if blocking:
        return Refuse(tuple(blocking))
    owners = {pod.metadata.controller.uid for pod in pods if pod.metadata.controller is not None}
    return Remember(replace(record, batch=names, owners=tuple(sorted(owners))))


def _by_node(pods: Sequence[Pod]) -> dict[str, list[Pod]]:
    """The pods that have to leave, by node."""
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.spec.node_name and moves(pod):
            on.setdefault(pod.spec.node_name, []).append(pod)
    return on


def _finish_batch(record: MigrationRecord, seen: Observed) -> Action | None:
    """What is left to do about the nodes of the batch; None once they are gone."""
    nodes = {node.metadata.name: node for node in seen.nodes}
    batch = [nodes[name] for name in record.batch if name in nodes]
    if not batch:
        return None
    on = _by_node(seen.pods)
    left = [pod for node in batch for pod in on.get(node.metadata.name, ()) if not pod.terminating]
    evictable = tuple(pod for pod in left if not _completes(pod))
    if evictable:
        return Evict(evictable)
    if left:
        names = _some([pod.metadata.key for pod in left])
        return Wait(message("{pods} may only be removed on completion", pods=names))
    for node in batch:
        if on.get(node.metadata.name):
            return Wait(message("pods of node {node} are ending", node=node.metadata.name))
    waiting = _unplaced(record, seen)
    if waiting:
        return Wait(message("{count} evicted pods wait for a node: {pods}", count=len(waiting), pods=_some(waiting)))
    owner = {provider_id: group for group in seen.groups.values() for provider_id in group.instances}
    for node in batch:
        group = owner.get(node.spec.provider_id)
        if group is not None:
            return Terminate(group, node.spec.provider_id, node.metadata.name)
    return Wait(message("node {node} is leaving the cluster", node=batch[0].metadata.name))


def _completes(pod: Pod) -> bool:
    return pod.metadata.annotations.get(SAFE_TO_EVICT) == ON_COMPLETION


def _unplaced(record: MigrationRecord, seen: Observed) -> list[str]:
    """Pods of the evicted pods' controllers that do not run yet, or run on a node that is not ready."""
    ready = {node.metadata.name for node in seen.nodes if node.ready}
    return sorted(
        pod.metadata.key
        for pod in seen.pods
        if pod.metadata.controller is not None
        and pod.metadata.controller.uid in record.owners
        and not pod.finished
        and not pod.terminating
        and (pod.status.phase != "Running" or pod.spec.node_name not in ready)
    )


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


# Stopping and going back


def _stop(record: MigrationRecord, seen: Observed) -> Action:
    """Finish the nodes that are being drained, and let the others take pods again."""
    underway = _finish_batch(record, seen) or _freeze(_groups(record, seen))
    if underway is not None:
        return underway
    return release(record, seen) or Remember(replace(record, phase=Phase.STOPPED, batch=(), owners=(), suspends={}))


def release(record: MigrationRecord, seen: Observed) -> Action | None:
    """Uncordon a node that we cordoned, or resume what we suspended; None once nothing of that is left."""
    for node in seen.nodes:
        if CORDONED in node.metadata.annotations:
            return Uncordon(node.metadata.name, node.metadata.annotations[CORDONED] == ALREADY_CORDONED)
    return _resume(_groups(record, seen), record)


def _back(record: MigrationRecord, seen: Observed) -> Action:
    missing = _missing(record, seen, record.order)
    if missing is not None:
        return missing
    groups = _groups(record, seen)
    for group in groups:
        before = record.sizes[group.name]
        restored = replace(before, desired=max(before.desired, min(group.sizes.desired, before.most)))
        if group.sizes != restored:
            return SetSizes(group, restored)
    action = release(record, seen)
    if action is not None:
        return action
    for group in groups:
        ready = sum(node.ready and node.spec.provider_id in group.instances for node in _members(group, seen))
        wanted_nodes = record.sizes[group.name].desired
        if ready < wanted_nodes and LAUNCH in group.suspended:
            return Wait(message("group {group}: its process Launch is suspended; resume it", group=group.title))
        if ready < wanted_nodes:
            return Wait(
                message(
                    "group {group}: {ready} of {wanted} nodes are ready",
                    group=group.title,
                    ready=ready,
                    wanted=wanted_nodes,
                )
            )
    return _remove_objects(record, seen)


def _remove_objects(record: MigrationRecord, seen: Observed) -> Action:
    """NodePools first: their controller drains the nodes under PodDisruptionBudgets while the class is still there."""
    for kind in ("NodePool", "EC2NodeClass"):
        names = [str(body["metadata"]["name"]) for body in record.objects if body["kind"] == kind]
        for name in names:
            existing = seen.objects.get((kind, name))
            if existing is not None and not existing["metadata"].get("deletionTimestamp"):
                return DeleteObject(kind, name)
        for name in names:
            left = len(seen.claims.get(name, ())) if kind == "NodePool" else 0
            if left:
                return Wait(message("NodePool {name}: {count} nodes are being drained", name=name, count=left))
            if (kind, name) in seen.objects:
                return Wait(message("{kind} {name} is being deleted", kind=kind, name=name))
    return Finish(forget=True)
