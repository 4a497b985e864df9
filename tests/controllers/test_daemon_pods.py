"""Which pods of a new node are bound first, which are bound at all, and how an expired taint is removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.controllers.nodeclaim.daemon_pods import MAX_WAIT_FOR_DAEMON_PODS_S, expected
from dovetail.kube import resources as kinds
from dovetail.lab.apiserver.store import StoreEvent
from dovetail.model import wellknown
from dovetail.model.nodes import Node
from dovetail.model.workloads import DaemonSet

RunScenario = Callable[..., None]
STILL = {"consolidateAfter": "Never"}
ALLOWED = {"node.kubernetes.io/unschedulable"}


async def _daemonset(world: Any, **spec: Any) -> str:
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": [{"name": "c", "image": "pause"}], **spec},
    }
    body = {
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
    }
    made = await world.kube.create(kinds.DAEMONSETS, body, "kube-system")
    return str(made["metadata"]["uid"])


async def _control(world: Any, uid: str) -> None:
    """The DaemonSet controller and the scheduler: a pod for each ready node whose taints daemons tolerate."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": uid, "controller": True}
    served: set[str] = set()
    while True:
        for node in (await world.kube.list(kinds.NODES, type=Node)).items:
            name = node.metadata.name
            hard = {taint.key for taint in node.spec.taints if taint.effect != "PreferNoSchedule"}
            if node.ready and hard <= ALLOWED and name not in served:
                served.add(name)
                body = {
                    "metadata": {"name": f"agent-{name}"[:63].rstrip("-."), "ownerReferences": [owner]},
                    "spec": {"nodeName": name, "containers": [{"name": "c", "image": "pause"}]},
                }
                await world.kube.create(kinds.PODS, body, "kube-system")
        await asyncio.sleep(1.0)


def _follow_bindings(world: Any) -> list[str]:
    """The names of pods in the order in which they are bound."""
    seen: list[str] = []

    def note(event: StoreEvent) -> None:
        if event.table == "/pods" and event.record is not None and event.record.obj["spec"].get("nodeName"):
            name = event.record.obj["metadata"]["name"]
            if name not in seen:
                seen.append(name)

    world.server.store.observers.append(note)
    return seen


async def _open(world: Any) -> bool:
    nodes = await world.list(kinds.NODES)
    return bool(nodes) and not any(node["spec"].get("taints") or node["spec"].get("unschedulable") for node in nodes)


def test_daemonset_pods_of_a_new_node_are_bound_before_the_planned_pods(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        bindings = _follow_bindings(world)
        controller = asyncio.ensure_future(_control(world, await _daemonset(world)))
        await world.served(3)
        assert bindings[0].startswith("agent-") and sorted(bindings[1:]) == ["p0", "p1", "p2"]
        await world.until(lambda: _open(world), within=30)
        assert not world.logged("placing pods before daemonset pods")
        controller.cancel()

    run_scenario(scenario, only=("m.xlarge",))


def test_planned_pods_wait_for_daemonset_pods_that_do_not_come_only_for_a_while(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await _daemonset(world)
        await world.served(1)
        (line,) = world.logged("placing pods before daemonset pods")
        assert line["DaemonSets"] == "kube-system/agent" and line["waited"] >= MAX_WAIT_FOR_DAEMON_PODS_S
        await world.until(lambda: _open(world), within=30)

    run_scenario(scenario)


def _node(*taints: dict[str, str], **labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": list(taints)}}, Node)


@pytest.mark.parametrize(
    ("spec", "node", "comes"),
    [
        ({}, _node(), True),
        ({}, _node({"key": "dovetail.sh/placing", "effect": "NoSchedule"}), True),
        ({}, _node({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}), True),
        ({}, _node({"key": "team", "value": "a", "effect": "NoSchedule"}), False),
        ({"tolerations": [{"operator": "Exists"}]}, _node({"key": "team", "effect": "NoSchedule"}), True),
        ({"nodeSelector": {"gpu": "yes"}}, _node(), False),
        ({"nodeSelector": {"gpu": "yes"}}, _node(gpu="yes"), True),
        ({"schedulerName": "mine"}, _node(), False),
    ],
)
def test_which_daemonsets_a_node_expects(spec: dict[str, Any], node: Node, comes: bool) -> None:
    daemonset = msgspec.convert({"metadata": {"name": "d"}, "spec": {"template": {"spec": spec}}}, DaemonSet)
    assert bool(list(expected(node, [daemonset]))) is comes


@pytest.mark.parametrize(("listed", "bound"), [("default-scheduler", False), ("default-scheduler, volcano", True)])
def test_only_pods_of_the_listed_schedulers_are_bound(run_scenario: RunScenario, listed: str, bound: bool) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        world.start()
        await world.pods(1, schedulerName="volcano", prefix="v")
        await world.pods(1, prefix="p")
        await asyncio.sleep(120)
        found = await world.bound()
        assert found["p0"] and bool(found["v0"]) is bound
        assert await _open(world), "the node is left to the other scheduler"

    run_scenario(scenario, place_schedulers=listed)


async def _placing(world: Any) -> set[str]:
    """The nodes that carry our taint."""
    return {
        node["metadata"]["name"]
        for node in await world.list(kinds.NODES)
        if wellknown.PLACING in {taint["key"] for taint in node["spec"].get("taints", ())}
    }


def test_a_taint_that_outlived_its_writer_is_removed_when_it_expires(run_scenario: RunScenario) -> None:
    """Also from a node without a NodeClaim, and one that was cordoned with it."""

    async def scenario(world: Any) -> None:
        now = world.clock.now()
        for name, effect in (("plain", "NoSchedule"), ("cordoned", "PreferNoSchedule")):
            taint = msgspec.to_builtins(wellknown.placing_taint(now, effect))
            spec = {"taints": [taint], **({"unschedulable": True} if effect != "NoSchedule" else {})}
            await world.kube.create(kinds.NODES, {"metadata": {"name": name}, "spec": spec})
        old = {"key": "dovetail.sh/placing", "effect": "NoSchedule"}
        await world.kube.create(kinds.NODES, {"metadata": {"name": "without-expiry"}, "spec": {"taints": [old]}})
        world.start()
        await asyncio.sleep(60)
        assert await _placing(world) == {"plain", "cordoned"}
        await asyncio.sleep(wellknown.PLACING_LIFETIME_S)
        assert await _placing(world) == set()
        nodes = await world.list(kinds.NODES)
        assert len(nodes) == 3 and not any(node["spec"].get("unschedulable") for node in nodes)
        assert len(world.logged("removing expired taint")) == 3

    run_scenario(scenario)


def test_the_next_leader_removes_expired_taints_within_seconds(run_scenario: RunScenario) -> None:
    """No replica led for hours: the node takes pods again within seconds of the next election, among many others."""

    async def scenario(world: Any) -> None:
        world.start()
        await asyncio.sleep(5)
        await world.stop()
        for number in range(200):
            await world.kube.create(kinds.NODES, {"metadata": {"name": f"n{number}"}, "spec": {}})
        taint = msgspec.to_builtins(wellknown.placing_taint(world.clock.now(), "PreferNoSchedule"))
        spec = {"taints": [taint], "unschedulable": True}
        await world.kube.create(kinds.NODES, {"metadata": {"name": "z-closed"}, "spec": spec})
        await asyncio.sleep(3 * 3600)
        assert await _placing(world) == {"z-closed"}
        world.start()

        async def opened() -> bool:
            return not await _placing(world)

        assert await world.until(opened, within=60) <= 3
        assert not (await world.kube.get(kinds.NODES, "z-closed"))["spec"].get("unschedulable")
        (line,) = world.logged("removing expired taint")
        assert line["Node"] == {"name": "z-closed"}

    run_scenario(scenario)
