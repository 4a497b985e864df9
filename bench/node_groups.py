"""One loop of the Cluster Autoscaler on a large cluster: `python -m bench.node_groups`.

1,000 nodes in 50 groups, 30,000 running pods, 1,000 pending pods of 20 controllers. The time is processor time from
pending pods to the call to the cloud; the scale-down pass is measured apart.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.autoscalers.node_groups.actuation import ActuationSettings, Actuator, Reports
from dovetail.autoscalers.node_groups.autoscaler import NodeGroupAutoscaler
from dovetail.autoscalers.node_groups.cluster_watch import ClusterWatch
from dovetail.autoscalers.node_groups.cooldown import Cooldown
from dovetail.autoscalers.node_groups.decision_log import NodeGroupDecisions
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.klog import Klog
from dovetail.autoscalers.node_groups.metrics import ClusterAutoscalerMetrics
from dovetail.autoscalers.node_groups.options import options
from dovetail.autoscalers.node_groups.recording import LoopRecorder
from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.cloud.node_groups import GroupInitiatedTermination, GroupMember, NodeGroup, NodeTemplate
from dovetail.kube.client import Kube
from dovetail.kube.events import EventRecorder
from dovetail.kube.transport import Request, Response
from dovetail.model.meta import view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import ReplicaSet

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = (NOW - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Silent:
    """A server that takes everything."""

    async def send(self, request: Request) -> Response:
        return Response(status=200, body=b'{"metadata": {"name": "x", "uid": "x", "resourceVersion": "1"}}')

    async def close(self) -> None:
        return None


class Groups:
    """A cloud that remembers what was asked."""

    def __init__(self, groups: Sequence[NodeGroup]) -> None:
        self._groups = list(groups)
        self._of = {each.provider_id: group for group in groups for each in group.instances}
        self.increases: list[tuple[str, int, float]] = []

    async def refresh(self, *, force: bool = False) -> None:
        return None

    def groups(self) -> Sequence[NodeGroup]:
        return self._groups

    def group_of(self, provider_id: str) -> NodeGroup | None:
        return self._of.get(provider_id)

    async def template(self, group: NodeGroup) -> NodeTemplate:
        raise LookupError(group.id)

    async def increase(self, group: NodeGroup, delta: int) -> None:
        self.increases.append((group.id, delta, time.process_time()))

    async def decrease_target(self, group: NodeGroup, delta: int) -> None:
        return None

    async def delete(self, group: NodeGroup, provider_ids: Sequence[str]) -> None:
        return None

    def prices(self) -> Mapping[str, float]:
        return {}

    def group_initiated_terminations(self) -> Sequence[GroupInitiatedTermination]:
        return ()

    def spot_prices(self) -> Mapping[str, float]:
        return {}

    async def close(self) -> None:
        return None


def node(number: int, group: int, different: bool) -> Node:
    """`different`: the nodes of no two groups have the same memory, so that no packing serves two groups."""
    amounts = {"cpu": "15890m", "memory": f"{60 + group * different}Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": f"n{number}", "topology.kubernetes.io/zone": f"z{number % 3}",
              "group": f"g{group}"}  # fmt: skip
    return view(
        {"metadata": {"name": f"n{number}", "uid": f"n{number}", "resourceVersion": "1", "labels": labels,
                      "creationTimestamp": OLD},
         "spec": {"providerID": f"aws:///z/i-{number}"},
         "status": {"capacity": amounts, "allocatable": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}]}},
        Node,
    )  # fmt: skip


def pod(name: str, owner: str, on: str, cpu: int, memory: int) -> Pod:
    status: dict[str, Any] = {"phase": "Running"}
    if not on:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": OLD}
        status = {"phase": "Pending", "conditions": [condition]}
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    return view(
        {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                      "labels": {"app": owner}, "creationTimestamp": OLD, "ownerReferences": [reference]},
         "spec": {"nodeName": on, "containers": [{"name": "c", "image": "x", "resources": {
             "requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}}]},
         "status": status},
        Pod,
    )  # fmt: skip


def fill(
    watch: ClusterWatch, nodes: int, groups: int, pods: int, pending: int, share: int, different: bool
) -> list[NodeGroup]:
    """`share`: milli-CPU that each running pod requests."""
    per_group = nodes // groups
    members: dict[int, list[GroupMember]] = {}
    for number in range(nodes):
        watch.nodes._put(f"n{number}", node(number, number // per_group, different))
        members.setdefault(number // per_group, []).append(GroupMember(f"aws:///z/i-{number}"))
    for number in range(pods):
        owner = f"run-{number % 200}"
        watch.pods._put(f"default/r{number}", pod(f"r{number}", owner, f"n{number % nodes}", share, 500))
    for number in range(pending):
        kind = number % 20
        made = pod(f"p{number}", f"wait-{kind}", "", 900 + 100 * kind, 1000 + 100 * kind)
        watch.pods._put(f"default/p{number}", made)
    for owner in [f"run-{number}" for number in range(200)] + [f"wait-{number}" for number in range(20)]:
        body = {"metadata": {"name": owner, "namespace": "default", "uid": owner, "resourceVersion": "1"}}
        watch.replicasets._put(f"default/{owner}", view({**body, "spec": {"replicas": 150}}, ReplicaSet))
    return [
        NodeGroup(id=f"g{index}", max_size=1000, target_size=len(found), instances=tuple(found))
        for index, found in members.items()
    ]


async def loop(
    nodes: int, groups: int, pods: int, pending: int, share: int, different: bool
) -> tuple[float, float, Groups]:
    clock = Clock(asyncio.get_running_loop(), NOW)
    kube = Kube(Silent(), clock)
    watch = ClusterWatch(kube, lambda pod: None)
    cloud = Groups(fill(watch, nodes, groups, pods, pending, share, different))
    settings = parse([])
    metrics = ClusterAutoscalerMetrics()
    recording = LoopRecorder(
        kube, clock, EventRecorder(kube, "bench"), Klog(clock, 0, len), namespace="kube-system", name="status"
    )
    nothing = Reports(
        lambda *_: None, lambda *_: None, lambda *_: None, lambda _: None, lambda _: None, lambda _: None,
        lambda: None, lambda _: None, lambda *_: None,
    )  # fmt: skip
    chosen = options(settings)
    cooldown = Cooldown(chosen.delays, clock.now())
    decisions = NodeGroupDecisions(kube, "kube-system", clock, Chance(2), keep=False)
    async with asyncio.TaskGroup() as tasks:
        actuator = Actuator(kube, cloud, watch, clock, ActuationSettings(), nothing, tasks)
        autoscaler = NodeGroupAutoscaler(
            chosen, kube, cloud, watch, actuator, recording, metrics, cooldown, decisions, None, clock, Chance(1)
        )
        started = time.process_time()
        await autoscaler.run_once(clock.now())
        whole = time.process_time() - started
    call = cloud.increases[0][2] - started if cloud.increases else float("nan")
    return call, whole, cloud


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--pods", type=int, default=30_000)
    parser.add_argument("--pending", type=int, default=1000)
    parser.add_argument("--different", action="store_true", help="no two groups have nodes of the same size")
    asked = parser.parse_args()
    call, whole, cloud = run_virtual(loop(asked.nodes, asked.groups, asked.pods, asked.pending, 500, asked.different))
    grown = sum(delta for _, delta, _ in cloud.increases)
    print(f"scale-up: {call:.2f} s of processor time to the cloud call ({whole:.2f} s the loop), {grown} nodes")
    _, idle, _ = run_virtual(loop(asked.nodes, asked.groups, asked.pods, 0, 150, asked.different))
    print(f"scale-down: {idle:.2f} s of processor time for a loop in which every node is underutilised")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB at most")


if __name__ == "__main__":
    main()
