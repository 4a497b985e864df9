"""Pods are bound where they were planned, and left to the scheduler where they must be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.controllers.nodeclaim.binding import fitting
from dovetail.controllers.settings import BindingMode
from dovetail.kube import resources as kinds
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

RunScenario = Callable[..., None]


def _node(**spec: Any) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": "n", "labels": {"disk": "ssd"}},
            "spec": spec,
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}},
        },
        Node,
    )


def _pod(name: str, cpu: str = "500m", **spec: Any) -> Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}, **spec.pop("container", {})}]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"containers": containers, **spec}}, Pod)


def _names(pods: list[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def test_only_as_many_pods_as_the_real_node_holds_are_bound() -> None:
    there = [_pod("there", "1")]
    assert _names(fitting(_node(), there, [_pod("a"), _pod("b"), _pod("c")])) == ["a", "b"]
    assert _names(fitting(_node(), [], [_pod("big", "3"), _pod("small")])) == ["small"]


def test_taints_other_than_ours_count() -> None:
    placing = {"key": "dovetail.sh/placing", "effect": "NoSchedule"}
    foreign = {"key": "gpu", "effect": "NoSchedule"}
    assert fitting(_node(taints=[placing]), [], [_pod("a")])
    assert not fitting(_node(taints=[placing, foreign]), [], [_pod("a")])
    tolerant = _pod("a", tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert fitting(_node(taints=[placing, foreign]), [], [tolerant])


def test_selectors_affinity_and_host_ports_count() -> None:
    assert fitting(_node(), [], [_pod("a", nodeSelector={"disk": "ssd"})])
    assert not fitting(_node(), [], [_pod("a", nodeSelector={"disk": "hdd"})])
    terms = [{"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    assert not fitting(_node(), [], [_pod("a", affinity={"nodeAffinity": required})])
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    assert _names(fitting(_node(), [], [_pod("a", container=port), _pod("b", container=port)])) == ["a"]


def test_a_pod_deleted_meanwhile_is_left_alone_and_the_taint_is_removed(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(3)
        await asyncio.sleep(5)
        await world.kube.delete(kinds.PODS, "p1", "default", grace=0)
        await world.until(world.all_bound)
        await asyncio.sleep(30)
        assert set(await world.bound()) == {"p0", "p2"}
        (node,) = await world.list(kinds.NODES)
        assert not node["spec"].get("taints")

    run_scenario(scenario, market=SimulatedMarket(boot=(10, 10)))


def test_the_node_keeps_our_taint_until_the_scheduler_can_know_its_pods(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(2)
        await world.until(world.all_bound, step=0.05)
        (node,) = await world.list(kinds.NODES)
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["dovetail.sh/placing"]
        await asyncio.sleep(3)
        (node,) = await world.list(kinds.NODES)
        assert not node["spec"].get("taints")

    run_scenario(scenario)


def test_nominate_sets_nominated_node_name_and_off_leaves_it_to_the_scheduler(run_scenario: RunScenario) -> None:
    async def nominated(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(2)
        await asyncio.sleep(10)
        (node,) = await world.list(kinds.NODES)
        assert not node["spec"].get("taints")
        pods = await world.list(kinds.PODS)
        assert {pod["status"].get("nominatedNodeName") for pod in pods} == {node["metadata"]["name"]}
        bound = await world.bound()
        assert len(bound) == 2 and not any(bound.values())

    async def left(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(2)
        await asyncio.sleep(10)
        assert len(await world.list(kinds.NODES)) == 1
        pods = await world.list(kinds.PODS)
        assert len(pods) == 2
        assert not any(pod["status"].get("nominatedNodeName") or pod["spec"].get("nodeName") for pod in pods)

    run_scenario(nominated, place=BindingMode.NOMINATE)
    run_scenario(left, place=BindingMode.OFF)
