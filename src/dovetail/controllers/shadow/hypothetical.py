"""Launches that did not happen: kept in memory, so that the next plan sees their room and no pod is counted twice.

A hypothetical node lives as long as a pod that it was planned for is pending. Once the cluster's own autoscaler has
served them, the real nodes stand for what happened, and the hypothetical one would only be room that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dovetail.cluster.state_node import Types, type_of
from dovetail.model import wellknown
from dovetail.model.nodes import Taint
from dovetail.model.pods import Pod
from dovetail.planner.plan import Plan, PlannedNode
from dovetail.planner.snapshot import NodeState, Pool


class HypotheticalNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that would have been launched, and the UIDs of the pods that would run on it."""

    decision: str
    launch: PlannedNode
    taints: tuple[Taint, ...]
    pods: frozenset[str]

    @property
    def name(self) -> str:
        return f"shadow-{self.decision}-{self.launch.name}"


class HypotheticalFleet(msgspec.Struct, frozen=True, kw_only=True):
    """All of them. `existing` has the pods that were planned onto real nodes, by UID."""

    nodes: tuple[HypotheticalNode, ...] = ()
    existing: Mapping[str, str] = {}

    @property
    def planned(self) -> frozenset[str]:
        """UIDs of the pods that have a place and are not planned for again."""
        return frozenset(self.existing).union(*(node.pods for node in self.nodes))

    def with_plan(self, decision: str, plan: Plan, pods: Mapping[str, Pod], pools: Sequence[Pool]) -> HypotheticalFleet:
        """The fleet once a plan is carried out; `pods` are those planned for, by key."""
        taints = {pool.name: pool.taints for pool in pools}
        launched = tuple(
            HypotheticalNode(
                decision=decision,
                launch=launch,
                taints=taints.get(launch.pool, ()),
                pods=frozenset(pods[key].metadata.uid for key in launch.pods if key in pods),
            )
            for launch in plan.nodes
        )
        by_name = {node.name: node for node in self.nodes}
        existing = dict(self.existing)
        for key, place in plan.placements.items():
            if place.node is None or key not in pods:
                continue
            uid = pods[key].metadata.uid
            node = by_name.get(place.node)
            if node is None:
                existing[uid] = place.node
            else:
                by_name[node.name] = msgspec.structs.replace(node, pods=node.pods | {uid})
        return HypotheticalFleet(nodes=(*by_name.values(), *launched), existing=existing)

    def pruned(self, pending: Iterable[Pod]) -> HypotheticalFleet:
        """Without the pods that are bound or gone, and without the nodes that stand for none any more."""
        alive = {pod.metadata.uid for pod in pending}
        nodes = tuple(msgspec.structs.replace(node, pods=node.pods & alive) for node in self.nodes if node.pods & alive)
        existing = {uid: node for uid, node in self.existing.items() if uid in alive}
        return HypotheticalFleet(nodes=nodes, existing=existing)

    def states(self, types: Types, pending: Iterable[Pod]) -> tuple[NodeState, ...]:
        """The hypothetical nodes as the planner sees nodes that are on their way."""
        by_uid = {pod.metadata.uid: pod for pod in pending}
        return tuple(_state(node, types, by_uid) for node in self.nodes)

    def charged(self, nodes: Sequence[NodeState], pending: Iterable[Pod]) -> tuple[NodeState, ...]:
        """Real nodes with the pods that were planned onto them and are not bound yet."""
        by_uid = {pod.metadata.uid: pod for pod in pending}
        extra: dict[str, list[Pod]] = {}
        for uid, name in self.existing.items():
            if uid in by_uid:
                extra.setdefault(name, []).append(by_uid[uid])
        return tuple(
            msgspec.structs.replace(node, pods=(*node.pods, *extra[node.name])) if node.name in extra else node
            for node in nodes
        )


def _state(node: HypotheticalNode, types: Types, pods: Mapping[str, Pod]) -> NodeState:
    choice = node.launch.choice
    labels = {
        **node.launch.labels,
        wellknown.NODEPOOL: node.launch.pool,
        wellknown.INSTANCE_TYPE: choice.instance_type,
        wellknown.ZONE: choice.zone,
        wellknown.CAPACITY_TYPE: choice.capacity_type,
        wellknown.HOSTNAME: node.name,
    }
    instance_type = type_of(labels, types)
    if instance_type is not None:
        single = {key: values[0] for key, values in instance_type.labels.items() if len(values) == 1}
        labels = {**single, **labels}
    return NodeState(
        name=node.name,
        labels=labels,
        allocatable=instance_type.allocatable if instance_type else node.launch.requests,
        capacity=instance_type.capacity if instance_type else node.launch.requests,
        taints=node.taints,
        pods=tuple(pods[uid] for uid in sorted(node.pods) if uid in pods),
        attach_limits=instance_type.attach_limits if instance_type else {},
        pool=node.launch.pool,
        claim=node.name,
        initialized=False,
        price=choice.price,
        movable=False,
    )
