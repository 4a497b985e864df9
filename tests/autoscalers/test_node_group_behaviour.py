"""What users of Cluster Autoscaler 1.36 see, fact by fact: order, times, events and texts, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.kube.resources import CONFIGMAPS, NODES
from dovetail.lab.simulated_groups import GroupSpec
from tests.autoscalers.test_node_group_autoscaler import World, play

ONE = GroupSpec(name="a", min_size=1, max_size=10, size=1)
GPU = {"nvidia.com/gpu": "1"}


def loops(world: World) -> int:
    return sum("Starting main loop" in line for line in world.lines)


def test_the_first_loop_comes_one_interval_after_the_start() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(24)
        assert (await world.status())["autoscalerStatus"] == "Initializing"
        assert loops(world) == 0
        await asyncio.sleep(2)
        assert loops(world) == 1
        assert (await world.status())["autoscalerStatus"] == "Running"

    play(body, ONE, flags=("--scan-interval=25s",), settled_s=0.0)


def test_a_scale_up_is_followed_by_the_next_loop_at_once() -> None:
    """Pods for two groups: one group grows in a loop, the other in the loop right after it."""

    async def body(world: World) -> None:
        await asyncio.gather(*(world.deploy(name, 2, cpu="1500m", nodeSelector={"team": name}) for name in "ab"))
        waited = 0.0
        while not world.groups.sizes:
            assert waited < 120
            await asyncio.sleep(0.1)
            waited += 0.1
        await asyncio.sleep(1)
        assert sorted(world.groups.sizes) == [("a", 2), ("b", 2)]
        reported = sorted(await world.events("TriggeredScaleUp"))
        assert [text.partition("{")[2].partition("}")[0] for text in reported] == ["a 1->2 (max: 5)", "b 1->2 (max: 5)"]

    play(
        body,
        *(GroupSpec(name=name, max_size=5, size=1, labels={"team": name}) for name in "ab"),
        flags=("--scan-interval=60s",),
    )


def test_a_fresh_gpu_pod_holds_every_pod_back_for_half_a_minute() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 4)
        await world.deploy("learn", 1, extended=GPU)
        await asyncio.sleep(25)
        assert world.groups.size("a") == 1
        await asyncio.sleep(25)
        assert world.groups.size("a") == 2
        assert await world.events("NotTriggerScaleUp") == ["pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu"]

    play(body, ONE)


def test_a_pod_that_waits_takes_room_on_nodes_that_will_come() -> None:
    """It triggers nothing itself; but with its place taken, others need one node more."""

    async def body(world: World) -> None:
        delay = {"annotations": {"cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "10m"}}
        await world.deploy("full", 1, cpu="1500m")
        await asyncio.sleep(30)
        await world.deploy("late", 1, cpu="1500m", pod_metadata=delay)
        await asyncio.sleep(60)
        assert world.groups.size("a") == 1
        await world.deploy("web", 1, cpu="1500m")
        await asyncio.sleep(90)
        triggered = await world.objects_with("TriggeredScaleUp")
        assert triggered and all(name.startswith("web-") for name in triggered)
        assert world.groups.size("a") == 3
        assert await world.running_pods("late") == await world.running_pods("web") == 1

    play(body, ONE)


def test_an_empty_group_is_not_similar_to_one_with_nodes() -> None:
    """Nodes that run have a little less memory than their type, so nothing is shared with the empty group."""

    async def body(world: World) -> None:
        await world.deploy("web", 12, nodeSelector={"team": "web"})
        await asyncio.sleep(60)
        assert sorted((world.groups.size("a"), world.groups.size("b"))) == [0, 4]

    play(
        body,
        GroupSpec(name="a", max_size=9, labels={"team": "web"}),
        GroupSpec(name="b", max_size=9, size=1, labels={"team": "web"}),
        GroupSpec(name="system", min_size=1, max_size=1, size=1),
        flags=("--balance-similar-node-groups", "--expander=least-nodes"),
    )


def test_cores_total_cuts_a_scale_up_and_tells_the_pods_left_over() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 9)
        await asyncio.sleep(180)
        assert world.groups.size("a") == 2
        triggered = await world.objects_with("TriggeredScaleUp")
        refused = await world.objects_with("NotTriggerScaleUp")
        assert len(triggered) >= 6  # also pods for which the size was cut
        assert set(refused) <= set(triggered)
        assert set(await world.events("NotTriggerScaleUp")) == {
            'pod didn\'t trigger scale-up: 1 exceeded quota: "cluster-wide", resources: cpu'
        }

    play(body, ONE, flags=("--cores-total=0:4",))


@pytest.mark.parametrize(
    ("flags", "spec", "text"),
    [
        (("--max-nodes-total=1",), {}, "max total nodes in cluster reached"),
        ((), {"nodeSelector": {"team": "none"}}, "1 node(s) didn't match Pod's node affinity/selector"),
        ((), {"nodeSelector": {"tainted": "yes"}}, "1 node(s) had untolerated taint(s)"),
    ],
)
def test_why_a_pod_triggers_nothing(flags: tuple[str, ...], spec: dict[str, object], text: str) -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 5, **spec)
        await asyncio.sleep(60)
        found = set(await world.events("NotTriggerScaleUp"))
        assert found and all(text in message for message in found)
        reached = await world.events("MaxNodesTotalReached")
        assert reached == (["Max total nodes in cluster reached: 1"] if flags else [])

    tainted = GroupSpec(
        name="a",
        max_size=4,
        labels={"tainted": "yes"} if "tainted" in str(spec) else {},
        taints=({"key": "k", "value": "v", "effect": "NoSchedule"},) if "tainted" in str(spec) else (),
    )
    play(body, tainted, GroupSpec(name="system", min_size=1, max_size=1, size=1), flags=flags)


def test_at_the_limit_of_nodes_fresh_pods_get_their_event_at_once() -> None:
    """Where no group may grow there are no further pods to wait for, and nodes that are unneeded may go."""

    async def body(world: World) -> None:
        await world.deploy("web", 5)
        await asyncio.sleep(1.5)
        assert await world.events("MaxNodesTotalReached")
        assert await world.events("NotTriggerScaleUp")

    play(body, ONE, flags=("--max-nodes-total=1",))


@pytest.mark.parametrize(("data", "invalid"), [({"priorities": "x: y"}, True), ({}, True), (None, False)])
def test_a_priority_config_map_that_cannot_be_used_leaves_all_groups(
    data: dict[str, str] | None, invalid: bool
) -> None:
    async def body(world: World) -> None:
        if data is not None:
            name = {"name": "cluster-autoscaler-priority-expander"}
            await world.kube.create(CONFIGMAPS, {"metadata": name, "data": data}, "kube-system")
        await world.deploy("web", 6)
        await asyncio.sleep(60)
        assert world.groups.size("a") == 2
        assert bool(await world.events("PriorityConfigMapInvalid")) is invalid

    play(body, ONE, flags=("--expander=priority",))


def test_an_unhealthy_cluster_is_left_alone() -> None:
    """Nodes younger than --max-node-startup-time count as starting, so the nodes here are older."""

    async def body(world: World) -> None:
        for node in (await world.kube.list(NODES)).items[:4]:
            world.lab.fleet.silence(node["metadata"]["name"])
        await asyncio.sleep(600)
        await world.deploy("web", 30)
        await asyncio.sleep(120)
        assert "Cluster is unhealthy" in await world.events("ClusterUnhealthy")
        assert world.groups.size("a") == 6
        assert (await world.status())["clusterWide"]["health"]["status"] == "Unhealthy"

    play(body, GroupSpec(name="a", min_size=6, max_size=10, size=6), settled_s=1000.0)


def test_a_group_that_mixes_sizes_is_named_once() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(600)
        [message] = await world.events("MixedInstanceSizes")
        assert message.startswith("Auto Scaling group a mixes sizes: t2.small (1 vCPU, 2 GiB) and t3.small")
        assert message.endswith("give each size a group of its own")

    play(
        body,
        GroupSpec(name="a", min_size=1, size=1, mixed_sizes="t2.small (1 vCPU, 2 GiB) and t3.small (2 vCPU, 2 GiB)"),
    )


def test_minimum_cores_hold_while_deletions_are_under_way() -> None:
    """A node whose deletion has begun is no reserve for the next one, although its group still counts it."""

    async def body(world: World) -> None:
        await asyncio.sleep(1500)
        assert world.groups.size("a") == 2

    group = GroupSpec(name="a", max_size=4, size=4)
    play(body, group, flags=("--cores-total=4:100", "--node-delete-delay-after-taint=30s"))
