"""How a node goes: taint and cordon, a wait, evictions with their grace, pods of DaemonSets, and who may hold it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dovetail.kube.resources import DAEMONSETS, NODES
from dovetail.kube.transport import Request, Response
from dovetail.lab.simulated_groups import GroupSpec
from tests.autoscalers.test_node_group_autoscaler import World, play

QUICK = ("--scale-down-delay-after-add=1m", "--scale-down-unneeded-time=1m")
ONE = GroupSpec(name="a", min_size=1, max_size=6, size=1)
HELD = "delay-deletion.cluster-autoscaler.kubernetes.io/backup"
EVICTION = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"


def watched_evictions(world: World) -> dict[str, int]:
    """The grace period of every eviction by the pod's name, filled in as they come."""
    graces: dict[str, int] = {}

    async def intercept(request: Request) -> Response | None:
        if request.method == "POST" and request.path.endswith("/eviction"):
            name = request.path.split("/")[-2]
            graces[name] = json.loads(request.body)["deleteOptions"]["gracePeriodSeconds"]
        return None

    assert world.lab.server is not None
    world.lab.server.middleware.insert(0, intercept)
    return graces


async def run_daemonset(world: World, name: str, **annotations: str) -> None:
    labels = {"app": name}
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "10m"}}}
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    await world.kube.create(DAEMONSETS, {"metadata": {"name": name}, "spec": spec}, "default")


async def drain_one_node(world: World, **spec: Any) -> None:
    """Pods of two nodes shrink to what one of them holds: the emptier node is drained."""
    await world.deploy("web", 3, **spec)
    await asyncio.sleep(60)
    await world.deploy("more", 1, **spec)
    await asyncio.sleep(90)
    assert world.groups.size("a") == 2
    await world.scale("web", 1)


@pytest.mark.parametrize(("own_s", "asked_s"), [(5, 5), (599, 599), (3600, 600)])
def test_an_evicted_pod_has_its_own_grace_period_and_ten_minutes_at_most(own_s: int, asked_s: int) -> None:
    async def body(world: World) -> None:
        graces = watched_evictions(world)
        await drain_one_node(world, terminationGracePeriodSeconds=own_s)
        await asyncio.sleep(240)
        assert list(graces.values()) == [asked_s]

    play(body, ONE, flags=QUICK)


def test_pods_of_daemonsets_are_evicted_from_drained_nodes_unless_they_object() -> None:
    async def body(world: World) -> None:
        graces = watched_evictions(world)
        await run_daemonset(world, "agent")
        await run_daemonset(world, "logs", **{EVICTION: "false"})
        await drain_one_node(world)
        await asyncio.sleep(240)
        assert world.groups.size("a") == 1
        assert sorted(name.partition("-")[0] for name in graces) in (["agent", "more"], ["agent", "web"])

    play(body, ONE, flags=QUICK)


@pytest.mark.parametrize(
    ("flag", "annotation", "evicted"),
    [("false", None, False), ("false", "true", True), ("true", None, True), ("true", "false", False)],
)
def test_pods_of_daemonsets_leave_empty_nodes_by_flag_or_annotation(
    flag: str, annotation: str | None, evicted: bool
) -> None:
    async def body(world: World) -> None:
        graces = watched_evictions(world)
        await run_daemonset(world, "agent", **({} if annotation is None else {EVICTION: annotation}))
        await asyncio.sleep(300)
        assert world.groups.size("a") == 0
        assert bool(graces) is evicted

    play(
        body,
        GroupSpec(name="a", size=1),
        GroupSpec(name="system", min_size=1, max_size=1, size=1),
        flags=(*QUICK, f"--daemonset-eviction-for-empty-nodes={flag}"),
        settled_s=20.0,
    )


@pytest.mark.parametrize(("removed_after_s", "least_s", "most_s"), [(40.0, 40.0, 60.0), (None, 120.0, 140.0)])
def test_an_annotation_holds_the_deletion_until_it_goes_and_two_minutes_at_most(
    removed_after_s: float | None, least_s: float, most_s: float
) -> None:
    async def body(world: World) -> None:
        [name] = await group_nodes(world)
        await world.kube.patch(NODES, name, {"metadata": {"annotations": {HELD: "true"}}})
        marked = await wait_for_taint(world, name)
        assert int(marked) == pytest.approx(world.lab.clock.now().timestamp(), abs=1.0)
        since = world.lab.clock.monotonic()
        if removed_after_s is not None:
            await asyncio.sleep(removed_after_s)
            assert world.groups.size("a") == 1
            await world.kube.patch(NODES, name, {"metadata": {"annotations": {HELD: None}}})
        await wait_for_the_end(world)
        assert least_s <= world.lab.clock.monotonic() - since <= most_s

    play(body, GroupSpec(name="a", size=1), GroupSpec(name="b", min_size=1, size=1), flags=QUICK, settled_s=20.0)


@pytest.mark.parametrize(("flag", "cordoned"), [((), True), (("--cordon-node-before-terminating=false",), False)])
def test_the_instance_is_ended_five_seconds_after_the_taint(flag: tuple[str, ...], cordoned: bool) -> None:
    async def body(world: World) -> None:
        [name] = await group_nodes(world)
        await wait_for_taint(world, name)
        node = await world.kube.get(NODES, name)
        assert bool(node["spec"].get("unschedulable")) is cordoned
        since = world.lab.clock.monotonic()
        await wait_for_the_end(world)
        assert world.lab.clock.monotonic() - since == pytest.approx(5.0, abs=0.5)

    play(
        body,
        GroupSpec(name="a", size=1),
        GroupSpec(name="b", min_size=1, size=1),
        flags=(*QUICK, *flag),
        settled_s=20.0,
    )


async def group_nodes(world: World) -> list[str]:
    """The nodes of group a."""
    [group] = [group for group in world.groups.groups() if group.id == "a"]
    members = {member.provider_id for member in group.instances}
    nodes = (await world.kube.list(NODES)).items
    return [node["metadata"]["name"] for node in nodes if node["spec"]["providerID"] in members]


async def wait_for_taint(world: World, name: str) -> str:
    """Returns the value of the taint once the node is being deleted."""
    for _ in range(6000):
        node = await world.kube.get(NODES, name)
        for taint in node["spec"].get("taints", ()):
            if taint["key"] == "ToBeDeletedByClusterAutoscaler":
                assert taint["effect"] == "NoSchedule"
                return str(taint["value"])
        await asyncio.sleep(0.1)
    raise AssertionError("the node is not being deleted")


async def wait_for_the_end(world: World) -> None:
    """Returns when group a has no instance any more."""
    for _ in range(6000):
        if not world.groups.size("a"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the instance is not ended")
