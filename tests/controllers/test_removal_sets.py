"""Moves follow the plan: a replacement pod takes the slot of an evicted one, and a fleet is reduced as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cluster.nominations import Nominations, NominationTarget, Slot
from dovetail.controllers.disruption import removal_sets
from dovetail.controllers.disruption.removal_sets import FreeCapacity
from dovetail.controllers.disruption.types import Candidate
from dovetail.kube import resources as kinds
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import ReportingDetail
from dovetail.lab.scenario.autoscaler import Autoscaled, AutoscalerRequest
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.meta import ObjectMeta
from dovetail.model.pods import Container, Pod, PodSpec, ResourceRequirements
from dovetail.planner.cache import PlannerCache
from dovetail.planner.snapshot import NodeState

GIB = 2**30
MARKET = SimulatedMarket(boot=(1.0, 2.0), ready=(1.0, 2.0))
POOL = {
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "Never",
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
            }
        },
        "disruption": {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]},
    },
}


def test_a_replacement_pod_takes_one_slot_of_its_own_owner_in_time() -> None:
    nominations, (first, second) = Nominations(), (NominationTarget("node", "n1"), NominationTarget("claim", "n2"))
    nominations.expect_replacement("web", Slot(first, "old-1", until=10.0))
    nominations.expect_replacement("web", Slot(second, "old-2", until=30.0))
    nominations.expect_replacement("web", Slot(second, "old-2", until=40.0))
    assert nominations.take_slot("other", 0.0) is None and nominations.awaits_replacement([first], 0.0)
    assert nominations.take_slot("web", 20.0) == Slot(second, "old-2", 30.0)
    assert nominations.take_slot("web", 20.0) is None and not nominations.awaits_replacement([second], 20.0)


def node_with_pods(
    name: str, cpu: int, memory: int, price: float, *pods: tuple[str, str]
) -> tuple[Candidate, NodeState]:
    there = tuple(
        Pod(
            metadata=ObjectMeta(name=f"{name}-{n}", namespace="default", uid=f"{name}-{n}"),
            spec=PodSpec(
                containers=(
                    Container(name="c", resources=ResourceRequirements(requests={"cpu": wanted, "memory": size})),
                )
            ),
        )
        for n, (wanted, size) in enumerate(pods)
    )
    node = NodeState(
        name=name, labels={}, allocatable={"cpu": cpu, "memory": memory, "pods": 50}, price=price, pods=there
    )
    candidate = Candidate(
        node=name,
        claim=name,
        provider_id=name,
        pool="default",
        instance_type="m",
        zone="a",
        capacity_type="on-demand",
        price=price,
        cost=1.0 + len(there),
        pods=tuple(each.metadata.key for each in there),
    )
    return candidate, node


def removal_sets_of(
    *nodes_with_pods: tuple[Candidate, NodeState], allowed: int = 9, charge: float = 0.1
) -> list[set[str]]:
    nodes = [node for _, node in nodes_with_pods]
    pods = {node.name: list(node.pods) for node in nodes}
    there, candidates = FreeCapacity(nodes, PlannerCache()), [each for each, _ in nodes_with_pods]
    sets = removal_sets.removals(candidates, pods, there, {"default": allowed}, charge)
    return [{each.node for each in one} for one in sets]


def test_what_stays_is_short_of_nothing_though_another_choice_would_move_fewer_pods() -> None:
    """`cores` has CPU to spare and `gib` memory; the pods that are left need memory."""
    cores = node_with_pods("cores", 8000, 8 * GIB, 1.0, ("100m", "3Gi"), ("100m", "3Gi"))
    gib = node_with_pods("gib", 2000, 32 * GIB, 1.0, ("100m", "3Gi"))
    assert removal_sets_of(cores, gib) == [{"cores"}]


def test_no_set_is_larger_than_the_budget() -> None:
    fleet = [node_with_pods(f"n{i}", 4000, 8 * GIB, 1.0, ("100m", "128Mi")) for i in range(6)]
    limited = removal_sets_of(*fleet, allowed=2)
    assert limited and all(len(removed) == 2 for removed in limited)
    assert max(map(len, removal_sets_of(*fleet, allowed=9))) > 2, "only the budget limits them"


def test_a_node_that_costs_less_than_its_moves_stays() -> None:
    fleet = [node_with_pods(f"n{i}", 4000, 8 * GIB, 1.0, *[("100m", "128Mi")] * 8) for i in range(2)]
    assert removal_sets_of(*fleet, charge=0.1) == [{"n0"}] or removal_sets_of(*fleet, charge=0.1) == [{"n1"}]
    assert removal_sets_of(*fleet, charge=0.2) == []


def kind(cpu: int) -> InstanceType:
    offering = Offering(zone="a", capacity_type="on-demand", price=0.05 * cpu)
    labels = {"kubernetes.io/arch": ("amd64",), "kubernetes.io/os": ("linux",)}
    capacity = {"cpu": 1000 * cpu, "memory": 4 * cpu * GIB, "pods": 110}
    return InstanceType(name=f"m.{cpu}", capacity=capacity, overhead={"cpu": 100}, labels=labels, offerings=(offering,))


def deployment(name: str, cpu: str, memory: str, replicas: int) -> dict[str, Any]:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


SIZES = (("small", "250m", "512Mi"), ("wide", "1", "2Gi"), ("tall", "500m", "5Gi"))


@asynccontextmanager
async def fleet(replicas: int, market: SimulatedMarket = MARKET) -> AsyncIterator[tuple[Lab, Autoscaled, list[str]]]:
    """A lab whose pods have their nodes, and the evictions from then on."""
    parts = LabParts(
        pace=ReportingDetail(lean=True, heartbeat_seconds=None, grid_seconds=0.5), quiet=True, faults=False, check=True
    )
    scaler = Autoscaled(AutoscalerRequest(types=tuple(map(kind, (2, 4, 8))), market=market))
    evicted: list[str] = []

    async def intercept(request: Any) -> None:
        if request.path.endswith("/eviction"):
            evicted.append(request.path)

    async with Lab.embedded(7, parts, clock=Clock(asyncio.get_running_loop(), EPOCH)) as lab:
        lab.add(scaler.run)
        await asyncio.sleep(3.0)
        lab.server.middleware.append(intercept)
        await lab.kube.create(kinds.NODEPOOLS, POOL)
        for name, cpu, memory in SIZES:
            await lab.kube.create(kinds.DEPLOYMENTS, deployment(name, cpu, memory, replicas), "default")
        await asyncio.sleep(60.0)
        yield lab, scaler, evicted


async def settled(lab: Lab, pods: int) -> None:
    """All pods run, and no node is tainted."""
    found = (await lab.kube.list(kinds.PODS)).items
    assert len(found) == pods and all(each["status"].get("phase") == "Running" for each in found)
    nodes = (await lab.kube.list(kinds.NODES)).items
    assert nodes and not any(node["spec"].get("taints") for node in nodes)


async def scaled_down() -> tuple[list[int], int, int]:
    """(instances launched before and by the scale-down, evictions, instances left)."""
    async with fleet(replicas=40) as (lab, scaler, evicted):
        launched = [scaler.totals["instances launched"]]
        for name, _, _ in SIZES:
            await lab.kube.patch(kinds.DEPLOYMENTS, name, {"spec": {"replicas": 14}}, "default")
        await asyncio.sleep(300.0)
        launched.append(scaler.totals["instances launched"] - launched[0])
        await settled(lab, 42)
        assert scaler.cloud is not None
        return launched, len(evicted), len(scaler.cloud.standing())


async def replaced() -> tuple[int, int]:
    """Instances launched at first, and for the replacement pods when all nodes are deleted and drained gradually."""
    async with fleet(replicas=20, market=SimulatedMarket()) as (lab, scaler, _):
        before = scaler.totals["instances launched"]
        for name, _, _ in SIZES:
            spec = {"maxUnavailable": 3, "selector": {"matchLabels": {"app": name}}}
            await lab.kube.create(kinds.PDBS, {"metadata": {"name": name}, "spec": spec}, "default")
        await asyncio.sleep(1.0)
        for claim in (await lab.kube.list(kinds.NODECLAIMS)).items:
            await lab.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await asyncio.sleep(90.0)
        await settled(lab, 60)
        return before, scaler.totals["instances launched"] - before


def test_deleted_nodes_are_replaced_by_as_many_as_were_planned() -> None:
    before, after = run_virtual(replaced())
    assert after == before


async def drifted() -> list[float]:
    """How many seconds each replacement of a drifted node takes from registration to initialization."""
    async with fleet(replicas=10) as (lab, _, _):
        before = {claim["metadata"]["name"] for claim in (await lab.kube.list(kinds.NODECLAIMS)).items}
        labels = {"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}}
        await lab.kube.patch(kinds.NODEPOOLS, "default", labels)
        await asyncio.sleep(300.0)
        await settled(lab, 30)
        claims = (await lab.kube.list(kinds.NODECLAIMS)).items
        return [
            _since(claim, "Initialized") - _since(claim, "Registered")
            for claim in claims
            if claim["metadata"]["name"] not in before
        ]


def _since(claim: dict[str, Any], kind: str) -> float:
    (found,) = (each for each in claim["status"]["conditions"] if each["type"] == kind)
    return datetime.fromisoformat(found["lastTransitionTime"]).timestamp()


def test_a_replacement_waits_for_no_pod_that_is_only_evicted_when_it_is_ready() -> None:
    took = run_virtual(drifted())
    assert took
    assert max(took) < 10.0


def test_a_scale_down_moves_few_pods_and_launches_nothing_for_their_replacements() -> None:
    (before, after), evicted, left = run_virtual(scaled_down())
    assert left < before / 2
    assert after == 0
    assert evicted <= 25
