"""Nodes, pods and groups for the tests of the Cluster Autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot, placed_info
from dovetail.cloud.node_groups import GroupMember, GroupOptions, NodeGroup
from dovetail.model.fit import ClusterNodes, NodeInfo
from dovetail.model.meta import view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MIB = 1 << 20
GIB = 1 << 30


def iso(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def node(
    name: str,
    cpu: int = 1000,
    memory: int = 1000 * MIB,
    *,
    ready: bool = True,
    since: datetime = NOW - timedelta(hours=1),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    pods: int = 110,
    **resources: int,
) -> Node:
    amounts = {"cpu": f"{cpu}m", "memory": str(memory), "pods": str(pods)}
    amounts |= {key.replace("__", "/").replace("_", "."): str(value) for key, value in resources.items()}
    return view(
        {
            "metadata": {
                "name": name,
                "creationTimestamp": iso(since),
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                "annotations": dict(annotations or {}),
            },
            "spec": {"providerID": f"aws:///zone-a/{name}", "taints": taints or []},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [
                    {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": iso(since)}
                ],
            },
        },
        Node,
    )


def pod(
    name: str,
    cpu: int = 100,
    memory: int = 100 * MIB,
    *,
    namespace: str = "default",
    owner: str | None = "ReplicaSet/rs",
    owner_api: str = "",
    on: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    phase: str = "",
    deleted: datetime | None = None,
    created: datetime | None = None,
    spec: Mapping[str, Any] | None = None,
    requests: Mapping[str, str] | None = None,
) -> Pod:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if owner is not None:
        kind, owner_name = owner.split("/")
        api = owner_api or {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
        metadata["ownerReferences"] = [
            {"apiVersion": api, "kind": kind, "name": owner_name, "uid": f"uid-{owner_name}", "controller": True}
        ]
    if deleted is not None:
        metadata["deletionTimestamp"] = iso(deleted)
    if created is not None:
        metadata["creationTimestamp"] = iso(created)
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": f"{cpu}m", "memory": str(memory), **(requests or {})}},
    }
    return view(
        {
            "metadata": metadata,
            "spec": {"containers": [container], "nodeName": on, **(spec or {})},
            "status": {"phase": phase or ("Running" if on else "Pending")},
        },
        Pod,
    )


def info(of: Node, *pods: Pod) -> NodeInfo:
    made = NodeInfo(of)
    for each in pods:
        made.add(placed_info(each))
    return made


def snapshot(*nodes: NodeInfo) -> ClusterSnapshot:
    cluster = ClusterNodes()
    for each in nodes:
        cluster.set_node(each.node)
        for placed in each.pods.values():
            cluster.place(placed, each.name)
    return ClusterSnapshot(cluster)


def group(name: str, least: int = 0, most: int = 10, target: int = 0, *nodes: Node, **options: Any) -> NodeGroup:
    return NodeGroup(
        id=name,
        min_size=least,
        max_size=most,
        target_size=target,
        instances=tuple(GroupMember(each.spec.provider_id) for each in nodes),
        options=GroupOptions(**options),
    )


def pdb(name: str, allowed: int, labels: Mapping[str, str], namespace: str = "default") -> PodDisruptionBudget:
    return view(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": dict(labels)}},
            "status": {"disruptionsAllowed": allowed},
        },
        PodDisruptionBudget,
    )
