"""The plan of a migration: NodePools for the groups, the nodes that replace theirs, prices, and what forbids it.

Pure: the cluster's manifests and the groups come in. The planner that `dovetail run` uses places the pods of the
groups' nodes as if those were going, so that the plan has its prices and its lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.autoscalers.node_groups.pricing import CAPACITY_TYPE_LABELS
from dovetail.language import english, message
from dovetail.migration.drain_blockers import EvictionRules, MoveBlocker, blockers, moves
from dovetail.migration.groups import TERMINATE, Group, are_strangers
from dovetail.migration.proposals import NodePoolProposal, ProposalSettings, described_by_nodes, proposals
from dovetail.migration.record import MigrationRecord, Phase
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ON_DEMAND, SPOT, ZONE
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod, returning
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.offline import snapshot as snapshots
from dovetail.offline.objects import Objects
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Snapshot

HOURS_PER_MONTH = 730.0
PROVISIONER_LABEL = ("app.kubernetes.io/name", "karpenter")
_PLANNED_SECONDS = 2.0


class MigrationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for: groups to move (all, if none is named), groups to keep, and how."""

    groups: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    batch_size: int = 1
    eviction: EvictionRules = EvictionRules()
    proposal: ProposalSettings = ProposalSettings()
    has_provisioner: bool = True


class GroupStep(msgspec.Struct, frozen=True, kw_only=True):
    """One group: its nodes in the order in which they are drained, the pods that move, and what its nodes cost."""

    group: Group
    node_pool: str
    nodes: tuple[str, ...]
    evictions: int
    per_hour: float
    unpriced: int = 0


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is the price of the nodes that NodePools would launch for the pods of the groups' nodes."""

    steps: tuple[GroupStep, ...]
    kept: tuple[str, ...]
    proposals: tuple[NodePoolProposal, ...]
    before: float
    after: float
    lower_bound: float | None
    new_nodes: tuple[Mapping[str, Any], ...]
    blockers: tuple[MoveBlocker, ...] = ()
    unpriced: int = 0

    @property
    def evictions(self) -> int:
        return sum(step.evictions for step in self.steps)


class UnknownGroup(ValueError):
    """A group that was named is not there; the text lists those that are."""


def plan(
    manifests: Sequence[Mapping[str, Any]],
    groups: Sequence[Group],
    types: tuple[InstanceType, ...],
    region: str,
    request: MigrationRequest,
    now: datetime,
) -> MigrationPlan:
    """Raises `UnknownGroup`."""
    objects = Objects()
    for manifest in manifests:
        objects.add(manifest)
    nodes, pods = objects.of(Node), objects.of(Pod)
    moving, kept = _chosen(groups, nodes, pods, request)
    described = [described_by_nodes(group, nodes, pods) for group in moving]
    proposed = proposals(described, request.proposal)
    for proposal in proposed:
        for body in proposal.objects:
            objects.add(dict(body))
    leaving = _leaving(moving, nodes)
    on = {name: [pod for pod in pods if pod.spec.node_name == name] for name in leaving}
    planned = _replacement(objects, types, region, frozenset(leaving))
    pool_of = {name: str(proposal.node_pool["metadata"]["name"]) for proposal in proposed for name in proposal.groups}
    prices = {
        (kind.name, offering.zone, offering.capacity_type): offering.price
        for kind in types
        for offering in kind.offerings
    }
    steps = tuple(_step(group, nodes, on, pool_of[group.name], prices) for group in described)
    blocking = [
        *_general_blockers(described, moving, kept, nodes, pods, request),
        *blockers(
            [pod for name in leaving for pod in on[name]], objects.of(PodDisruptionBudget), request.eviction, now
        ),
        *_unplaced(planned),
    ]
    return MigrationPlan(
        steps=steps,
        kept=tuple(group.title for group in kept),
        proposals=tuple(proposed),
        before=sum(step.per_hour for step in steps),
        after=planned.cost.per_hour,
        lower_bound=planned.cost.lower_bound,
        new_nodes=tuple(
            {
                "nodePool": node.pool,
                "instanceType": node.choice.instance_type,
                "zone": node.choice.zone,
                "capacityType": node.choice.capacity_type,
                "perHour": node.choice.price,
                "pods": len(node.pods),
            }
            for node in planned.nodes
        ),
        blockers=tuple(blocking),
        unpriced=sum(step.unpriced for step in steps),
    )


def _chosen(
    groups: Sequence[Group], nodes: Sequence[Node], pods: Sequence[Pod], request: MigrationRequest
) -> tuple[list[Group], list[Group]]:
    """The groups to move and those that stay. Without a word about it, the provisioner's own groups stay."""
    names = {name: group for group in groups for name in (group.managed, group.name) if name}
    for name in (*request.groups, *request.keep):
        if name not in names:
            listed = ", ".join(sorted(group.title for group in groups)) or message("none")
            raise UnknownGroup(message("no node group {name!r}; there are: {listed}", name=name, listed=listed))
    keep = {names[name].name for name in request.keep}
    group_names = {names[name].name for name in request.groups} or {group.name for group in groups}
    if not request.keep and not request.groups:
        homes = {pod.spec.node_name for pod in pods if _is_provisioner(pod)}
        ids = {node.spec.provider_id for node in nodes if node.metadata.name in homes}
        keep |= {group.name for group in groups if ids & {*group.instances}}
    moving = [group for group in groups if group.name in group_names - keep and _is_usable(group)]
    return moving, [group for group in groups if group not in moving]


def _is_usable(group: Group) -> bool:
    """A group without instances that may not grow has nothing to move."""
    return bool(group.instances) or group.sizes.most > group.least_maximum


def _is_provisioner(pod: Pod) -> bool:
    label, name = PROVISIONER_LABEL
    return pod.metadata.labels.get(label) == name


def _leaving(groups: Sequence[Group], nodes: Sequence[Node]) -> list[str]:
    ids = {provider_id for group in groups for provider_id in group.instances}
    return [node.metadata.name for node in nodes if node.spec.provider_id in ids]


def _replacement(objects: Objects, types: tuple[InstanceType, ...], region: str, leaving: frozenset[str]) -> Plan:
    """Place the pods of the leaving nodes on what stays and on new nodes."""
    from dovetail.planner.optimise.improve import better_by_work
    from dovetail.planner.provision import provision

    whole = snapshots.snapshot(objects, types, any_type=False, region=region)
    pending = tuple(
        pod for state in whole.nodes if state.name in leaving for pod in state.pods if returning(pod) and moves(pod)
    )
    nodes = tuple(replace(state, deleting=True) if state.name in leaving else state for state in whole.nodes)
    going: Snapshot = replace(whole, nodes=nodes, pending=pending)
    with english():  # a plan is data: its texts are translated where they are shown
        return provision(going, seed=0, deadline=_PLANNED_SECONDS, optimiser=better_by_work)


def _step(
    group: Group,
    nodes: Sequence[Node],
    on: Mapping[str, Sequence[Pod]],
    pool: str,
    prices: Mapping[tuple[str, str, str], float | None],
) -> GroupStep:
    mine = [node for node in nodes if node.spec.provider_id in group.instances]
    movable = {node.metadata.name: sum(map(moves, on.get(node.metadata.name, ()))) for node in mine}
    costs = [_price(node, group, prices) for node in mine]
    return GroupStep(
        group=group,
        node_pool=pool,
        nodes=tuple(sorted(movable, key=lambda name: (movable[name], name))),
        evictions=sum(movable.values()),
        per_hour=sum(cost for cost in costs if cost is not None),
        unpriced=sum(cost is None for cost in costs),
    )


def _price(node: Node, group: Group, prices: Mapping[tuple[str, str, str], float | None]) -> float | None:
    """A node of a group that mixes both capacity types counts as on-demand unless a label says otherwise."""
    labels = node.metadata.labels
    spot = any(labels.get(label) == SPOT.upper() for label in CAPACITY_TYPE_LABELS)
    usual = SPOT if spot or group.capacity_types == (SPOT,) else ON_DEMAND
    kind = labels.get(CAPACITY_TYPE, usual)
    return prices.get((labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, ""), kind))


def _general_blockers(
    described: Sequence[Group],
    moving: Sequence[Group],
    kept: Sequence[Group],
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    request: MigrationRequest,
) -> list[MoveBlocker]:
    blocking = []
    if not request.has_provisioner:
        blocking.append(
            MoveBlocker(
                code="NoProvisioner",
                object="lease/karpenter-leader-election",
                why=message("no Dovetail or Karpenter runs here: NodePools would launch nothing"),
                remedy=message("run dovetail install first"),
            )
        )
    ids = {provider_id for group in moving for provider_id in group.instances}
    homes = {node.metadata.name for node in nodes if node.spec.provider_id in ids}
    staying = [node for node in nodes if node.metadata.name not in homes and NODEPOOL not in node.metadata.labels]
    provisioners = [pod for pod in pods if _is_provisioner(pod) and pod.spec.node_name in homes]
    if provisioners and not staying:
        blocking.append(
            MoveBlocker(
                code="ProvisionerOnGroup",
                object=f"pod/{provisioners[0].metadata.key}",
                why=message("the controller of the NodePools would run on nodes that it manages itself"),
                remedy=message("keep a group for it with --keep GROUP"),
            )
        )
    blocking += _foreign_groups(moving, nodes)
    blocking += [_process_blocker(group) for group in moving if TERMINATE in group.suspended]
    if not request.proposal.node_class:
        blocking += [
            _class_blocker(group, request.proposal) for group in described if _lacks_class(group, request.proposal)
        ]
    return blocking


def _foreign_groups(moving: Sequence[Group], nodes: Sequence[Node]) -> list[MoveBlocker]:
    """Groups whose instances are no Nodes here: the kubeconfig may be that of another cluster."""
    registered = {node.spec.provider_id for node in nodes}
    ours = any(registered & {*group.instances} for group in moving)
    blocking = []
    for group in moving:
        unknown = [provider_id for provider_id in group.instances if provider_id not in registered]
        if are_strangers(group.sizes.desired, len(unknown)) or (unknown and not ours):
            why = message(
                "{count} of its {total} instances are no Nodes of this cluster",
                count=len(unknown),
                total=len(group.instances),
            )
            remedy = message(
                "check that kubeconfig and --cluster name the same cluster, or wait until they have joined"
            )
            blocking.append(
                MoveBlocker(code="InstancesWithoutNodes", object=f"nodegroup/{group.title}", why=why, remedy=remedy)
            )
    return blocking


def _process_blocker(group: Group) -> MoveBlocker:
    command = f"aws autoscaling resume-processes --auto-scaling-group-name {group.name} --scaling-processes Terminate"
    return MoveBlocker(
        code="ProcessSuspended",
        object=f"nodegroup/{group.title}",
        why=message("the process Terminate of its Auto Scaling group is suspended: its instances would not end"),
        remedy=message("resume it: {command}", command=command),
    )


def _lacks_class(group: Group, settings: ProposalSettings) -> bool:
    has_role = bool(settings.role or settings.instance_profile)
    return not (group.family and group.subnets and group.security_groups and has_role)


def _class_blocker(group: Group, settings: ProposalSettings) -> MoveBlocker:
    missing = [
        name
        for name, value in (
            (message("its image family"), group.family),
            (message("its subnets"), group.subnets),
            (message("its security groups"), group.security_groups),
            (message("a role for nodes"), settings.role or settings.instance_profile),
        )
        if not value
    ]
    return MoveBlocker(
        code="NoNodeClass",
        object=f"nodegroup/{group.title}",
        why=message("an EC2NodeClass for it cannot be written: {missing} not known", missing=", ".join(missing)),
        remedy=message("create an EC2NodeClass and name it with --node-class"),
    )


def _unplaced(planned: Plan) -> list[MoveBlocker]:
    return [
        MoveBlocker(
            code=f"NoNodePool.{reason.code}",
            object=f"pod/{pod}",
            why=message("no NodePool and no node that stays can hold pod {pod}: {why}", pod=pod, why=reason.message),
            remedy=reason.remedy or message("see dovetail explain pod/{pod}", pod=pod),
        )
        for pod, reason in planned.unschedulable.items()
    ]


def record_of(planned: MigrationPlan, request: MigrationRequest, now: datetime) -> MigrationRecord:
    """What is kept before the first change."""
    return MigrationRecord(
        phase=Phase.FORWARD,
        started=stamp(now),
        order=tuple(step.group.name for step in planned.steps),
        sizes={step.group.name: step.group.sizes for step in planned.steps},
        objects=tuple(body for proposal in planned.proposals for body in proposal.objects),
        batch_size=request.batch_size,
        force=request.eviction.force,
        delete_emptydir_data=request.eviction.delete_emptydir_data,
    )


def after(done: MigrationRecord | None, record: MigrationRecord) -> MigrationRecord:
    """The record of a migration that follows one that is done: going back undoes both."""
    if done is None:
        return record
    return replace(
        record,
        started=done.started,
        order=tuple(dict.fromkeys((*done.order, *record.order))),
        sizes={**record.sizes, **done.sizes},
        objects=(*done.objects, *(body for body in record.objects if body not in done.objects)),
    )
