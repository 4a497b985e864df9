"""The pod cache: at a hundred thousand pods, what is kept of each decides how much memory the process needs.

Everything that planning, binding and disruption read stays; commands, probes, mounts, token volumes and most
of the status are dropped. Parts that pods of one template share are kept once. A pod whose kept part did not
change keeps its identity, so that nothing derived from it has to be derived again.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from dovetail.model.meta import Condition, ObjectMeta
from dovetail.model.nodes import Node, NodeStatus
from dovetail.model.pods import Container, Pod, PodSpec, PodStatus, Volume

#: Annotations that any of our decisions reads.
KEPT_ANNOTATIONS = frozenset(
    {
        "karpenter.sh/do-not-disrupt",
        "karpenter.sh/disruption-cost",
        "controller.kubernetes.io/pod-deletion-cost",
        "kubernetes.io/config.mirror",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
    }
)
KEPT_CONDITIONS = frozenset({"PodScheduled", "Ready", "DisruptionTarget", "PodResizePending"})

#: Every Job has labels of its own, so that after a while most parts are of owners that are gone.
MOST_PARTS = 20_000
_NO_CONDITIONS: tuple[Condition, ...] = ()
_NO_ANNOTATIONS: dict[str, str] = {}


class PodTransform:
    """Turns decoded pods into kept ones. One per cluster state: it remembers the shared parts."""

    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}
        self._encode = msgspec.json.Encoder().encode
        #: The template and status of the last pod, and what was kept of them: the next pod often has the same.
        self._last_template: tuple[Any, tuple[Any, ...]] = (None, ())
        self._last_status: tuple[Any, PodStatus] = (None, PodStatus())

    def keep(self, new: Pod, old: Pod | None) -> Pod:
        """The pod to keep: the old one, if nothing that is kept has changed."""
        if old is not None and new.spec is old.spec and _of_the_same(new.metadata, old.metadata):
            slim = Pod(metadata=new.metadata, spec=new.spec, status=self._status(new))
        else:
            slim = Pod(metadata=self._metadata(new.metadata), spec=self._spec(new.spec), status=self._status(new))
        if old is not None and _same(slim, old):
            return old
        return slim

    def _metadata(self, full: ObjectMeta) -> ObjectMeta:
        labels, owners = self._share((full.labels, full.owner_references))
        kept = full.annotations.keys() & KEPT_ANNOTATIONS
        return ObjectMeta(
            name=full.name,
            namespace=self._share(full.namespace),
            uid=full.uid,
            resource_version=full.resource_version,
            creation_timestamp=full.creation_timestamp,
            deletion_timestamp=full.deletion_timestamp,
            deletion_grace_period_seconds=full.deletion_grace_period_seconds,
            labels=labels,
            annotations={key: full.annotations[key] for key in kept} if kept else _NO_ANNOTATIONS,
            owner_references=owners,
        )

    def _spec(self, full: PodSpec) -> PodSpec:
        shared = self._template(full)
        return PodSpec(
            node_name=self._share(full.node_name),
            node_selector=shared[0],
            affinity=shared[1],
            tolerations=shared[2],
            topology_spread_constraints=shared[3],
            containers=shared[4],
            init_containers=shared[5],
            overhead=shared[6],
            resources=shared[7],
            scheduling_gates=shared[8],
            resource_claims=shared[9],
            volumes=tuple(filter(_matters, full.volumes)),
            priority=full.priority,
            priority_class_name=self._share(full.priority_class_name),
            preemption_policy=full.preemption_policy,
            scheduler_name=self._share(full.scheduler_name),
            termination_grace_period_seconds=full.termination_grace_period_seconds,
            host_network=full.host_network,
            runtime_class_name=full.runtime_class_name,
        )

    def _template(self, full: PodSpec) -> tuple[Any, ...]:
        """What pods of one template have in common."""
        template_fields = (
            full.node_selector,
            full.affinity,
            full.tolerations,
            full.topology_spread_constraints,
            full.containers,
            full.init_containers,
            full.overhead,
            full.resources,
            full.scheduling_gates,
            full.resource_claims,
        )
        last, kept = self._last_template
        if template_fields != last:
            slim = tuple(map(_container, full.containers)), tuple(map(_container, full.init_containers))
            kept = self._share((*template_fields[:4], *slim, *template_fields[6:]))
            self._last_template = template_fields, kept
        return kept

    def _status(self, full: Pod) -> PodStatus:
        status = full.status
        status_fields = (
            status.phase,
            status.conditions,
            status.reason,
            status.nominated_node_name,
            status.start_time,
            status.container_statuses,
            status.init_container_statuses,
            status.allocated_resources,
            status.resources,
        )
        last, kept = self._last_status
        if status_fields != last:
            kept = self._kept_status(status)
            self._last_status = status_fields, kept
        return kept

    def _kept_status(self, status: PodStatus) -> PodStatus:
        conditions = tuple(
            Condition(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                last_transition_time=condition.last_transition_time,
            )
            for condition in status.conditions
            if condition.type in KEPT_CONDITIONS
        )
        resized = any(container.allocated_resources or container.resources for container in status.container_statuses)
        return PodStatus(
            phase=self._share(status.phase),
            conditions=conditions or _NO_CONDITIONS,
            reason=self._share(status.reason),
            nominated_node_name=status.nominated_node_name,
            start_time=status.start_time,
            container_statuses=self._share(tuple(map(_resize, status.container_statuses))) if resized else (),
            init_container_statuses=(
                self._share(tuple(map(_resize, status.init_container_statuses))) if resized else ()
            ),
            allocated_resources=status.allocated_resources,
            resources=status.resources,
        )

    def keep_node(self, new: Node, old: Node | None) -> Node:
        """The node to keep: the old one after a heartbeat. Images, most of a node's size, are read by no decision."""
        if old is not None and _same_node(new, old):
            return old
        status = NodeStatus(
            capacity=self._share(new.status.capacity),
            allocatable=self._share(new.status.allocatable),
            conditions=new.status.conditions,
            node_info=new.status.node_info,
        )
        labels = {sys.intern(name): sys.intern(value) for name, value in new.metadata.labels.items()}
        return Node(metadata=msgspec.structs.replace(new.metadata, labels=labels), spec=new.spec, status=status)

    def _share(self, part: Any) -> Any:
        """The first equal part seen. Forgetting them all now and then is safe and keeps the memory bounded."""
        if not part:
            return part
        if isinstance(part, str):
            return sys.intern(part)
        if len(self._parts) > MOST_PARTS:
            self._parts.clear()
        return self._parts.setdefault(self._encode(part), part)


def _container(full: Container) -> Container:
    """What a container requests, and nothing of what it runs."""
    return Container(
        name=full.name,
        image=full.image,
        resources=full.resources,
        ports=full.ports,
        restart_policy=full.restart_policy,
    )


def _resize(full: Any) -> Any:
    return type(full)(name=full.name, allocated_resources=full.allocated_resources, resources=full.resources)


def _matters(volume: Volume) -> bool:
    return bool(
        volume.persistent_volume_claim
        or volume.ephemeral
        or volume.csi
        or volume.aws_elastic_block_store
        or volume.gce_persistent_disk
    )


def _of_the_same(new: ObjectMeta, old: ObjectMeta) -> bool:
    """Whether metadata was made from metadata that is slim already."""
    ours = (new.labels, new.annotations, new.owner_references)
    return all(mine is its for mine, its in zip(ours, (old.labels, old.annotations, old.owner_references), strict=True))


def _same(new: Pod, old: Pod) -> bool:
    """Equal but for the resource version, which changes with every status write."""
    return (
        new.spec == old.spec
        and new.status == old.status
        and msgspec.structs.replace(new.metadata, resource_version=old.metadata.resource_version) == old.metadata
    )


def _same_node(new: Node, old: Node) -> bool:
    """Heartbeats change nothing that is derived from a node."""
    return (
        new.spec == old.spec
        and new.metadata.labels == old.metadata.labels
        and new.metadata.annotations == old.metadata.annotations
        and new.metadata.deletion_timestamp == old.metadata.deletion_timestamp
        and new.metadata.finalizers == old.metadata.finalizers
        and new.status.capacity == old.status.capacity
        and new.status.allocatable == old.status.allocatable
        and _beats(new) == _beats(old)
        and new.status.node_info == old.status.node_info
    )


def _beats(node: Node) -> list[tuple[str, str, str, Any]]:
    return [
        (condition.type, condition.status, condition.reason, condition.last_transition_time)
        for condition in node.status.conditions
    ]
