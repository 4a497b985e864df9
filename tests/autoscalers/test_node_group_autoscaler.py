"""The Cluster Autoscaler in a lab, in virtual time: pods pend, groups grow, idle nodes go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from dovetail.autoscalers.node_groups import options, program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.program import ProgramHandle
from dovetail.clock import run_virtual
from dovetail.cloud.node_groups import GroupOptions
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS, CORE_EVENTS, DEPLOYMENTS, NODES, PDBS, PODS, PRIORITYCLASSES
from dovetail.lab.cluster import Lab
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups


class World:
    """A lab with node groups and the program."""

    def __init__(self, lab: Lab, groups: SimulatedGroups, running: ProgramHandle, lines: list[str]) -> None:
        self.lab, self.kube, self.groups, self.running, self.lines = lab, lab.kube, groups, running, lines

    async def deploy(self, name: str, replicas: int, cpu: str = "500m", memory: str = "512Mi", **spec: Any) -> None:
        labels = {"app": name}
        asked = {"cpu": cpu, "memory": memory, **spec.pop("extended", {})}
        resources = {"requests": asked, "limits": {key: asked[key] for key in asked if "/" in key}}
        container = {"name": "c", "image": "nginx", "resources": resources}
        metadata = {"labels": labels, **spec.pop("pod_metadata", {})}
        template = {"metadata": metadata, "spec": {"containers": [container], **spec}}
        body = {
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        }
        await self.kube.create(DEPLOYMENTS, body, "default")

    async def scale(self, name: str, replicas: int) -> None:
        await self.kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, "default")

    async def running_pods(self, app: str) -> int:
        pods = (await self.kube.list(PODS, "default", labels=f"app={app}")).items
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    async def events(self, reason: str) -> list[str]:
        return [each["message"] for each in (await self.kube.list(CORE_EVENTS)).items if each["reason"] == reason]

    async def objects_with(self, reason: str) -> list[str]:
        """The objects that have an event of this reason, in order."""
        events = (await self.kube.list(CORE_EVENTS)).items
        return sorted(each["involvedObject"]["name"] for each in events if each["reason"] == reason)

    async def status(self) -> dict[str, Any]:
        found = await self.kube.get(CONFIGMAPS, "cluster-autoscaler-status", "kube-system")
        return dict(yaml.safe_load(found["data"]["status"]))


def play(
    body: Callable[[World], Awaitable[None]],
    *groups: GroupSpec,
    flags: tuple[str, ...] = (),
    seed: int = 1,
    settled_s: float = 90.0,
) -> None:
    async def main() -> None:
        async with Lab.embedded(seed) as lab:
            settings = parse(["--leader-elect=false", "--v=4", *flags])
            cloud = SimulatedGroups(lab, defaults=options.group_options(settings))
            for spec in groups:
                await cloud.create(spec)
            running = ProgramHandle()
            lines: list[str] = []
            kube = lab.client("cluster-autoscaler")
            work = asyncio.create_task(
                program.run(
                    settings, kube, cloud, lab.clock, lab.chance.child("ca"), write=lines.append, running=running
                )
            )
            try:
                await asyncio.sleep(settled_s)  # the first nodes become templates
                await body(World(lab, cloud, running, lines))
            finally:
                ended = work.done()
                work.cancel()
                [outcome] = await asyncio.gather(work, return_exceptions=True)
                await cloud.close()
                if ended:
                    raise AssertionError("the program ended by itself") from outcome

    run_virtual(main())


def test_a_group_grows_for_pending_pods_and_shrinks_when_they_are_gone() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 10)
        await asyncio.sleep(120)
        assert await world.running_pods("web") == 10
        assert world.groups.size("a") == 4  # a node of two cores holds three such pods beside its own
        assert "pod triggered scale-up: [{a 1->4 (max: 10)}]" in await world.events("TriggeredScaleUp")
        assert any("Scale-up: setting group a size to 4" in each for each in await world.events("ScaledUpGroup"))
        status = await world.status()
        assert status["autoscalerStatus"] == "Running"
        assert status["clusterWide"]["health"]["status"] == "Healthy"
        [group] = status["nodeGroups"]
        assert group["health"]["cloudProviderTarget"] == 4
        assert group["health"]["nodeCounts"]["registered"]["ready"] == 4
        busy = "cpu requested (77.7202% of allocatable) is above the scale-down utilization threshold"
        assert any(busy in line for line in world.lines)
        await world.scale("web", 0)
        await asyncio.sleep(300)
        assert world.groups.size("a") == 4
        assert (await world.status())["clusterWide"]["scaleDown"]["status"] == "CandidatesPresent"
        assert any(line.endswith(" was unneeded for 4m40s") for line in world.lines)
        assert any("scaleDownForbidden=false scaleDownInCooldown=true" in line for line in world.lines)
        grown = "type: 'Normal' reason: 'ScaledUpGroup' Scale-up: group a size set to 4 instead of 1 (max: 10)"
        assert sum(grown in line for line in world.lines) == 1
        await asyncio.sleep(900)
        assert world.groups.size("a") == 1
        assert len((await world.kube.list(NODES)).items) == 1
        reported = await world.events("ScaleDownEmpty")
        assert any("removing empty node" in each for each in reported)
        assert any(each.startswith("Scale-down: empty node ") and each.endswith(" removed") for each in reported)
        # One event for a reason about a node: that it was removed is not written after that it was marked.
        assert set(await world.events("ScaleDown")) == {"marked the node as toBeDeleted/unschedulable"}

    play(body, GroupSpec(name="a", min_size=1, max_size=10, size=1))


def test_a_node_is_drained_when_its_pods_fit_elsewhere() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 6)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 2
        await world.deploy("fill", 3)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 3
        await world.scale("web", 3)
        await world.scale("fill", 1)
        await asyncio.sleep(1500)
        assert world.groups.size("a") == 2
        assert await world.running_pods("web") + await world.running_pods("fill") == 4
        reported = await world.events("ScaleDown")
        [removal] = [each for each in reported if "pods to reschedule" in each]
        assert "pods to reschedule: fill-" in removal or "pods to reschedule: web-" in removal  # names alone
        assert any(each.endswith("removed with drain") for each in reported)
        assert "deleting pod for node scale down" in reported

    play(body, GroupSpec(name="a", min_size=1, max_size=10, size=1))


def test_expendable_pods_keep_no_node_and_are_not_evicted() -> None:
    """They end with their node, as pods below --expendable-pods-priority-cutoff do everywhere else."""

    async def body(world: World) -> None:
        await world.kube.create(PRIORITYCLASSES, {"metadata": {"name": "spare"}, "value": -11})
        await world.deploy("web", 6)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 2
        await world.scale("web", 0)
        await world.deploy("spare", 6, priorityClassName="spare")
        await asyncio.sleep(1500)
        assert world.groups.size("a") == 1
        assert not await world.events("ScaleDownFailed")
        assert "deleting pod for node scale down" not in await world.events("ScaleDown")

    play(body, GroupSpec(name="a", min_size=1, max_size=10, size=1))


def test_pods_that_no_group_can_help_are_reported_why() -> None:
    async def body(world: World) -> None:
        await world.deploy("huge", 1, cpu="64")
        await asyncio.sleep(30)
        assert await world.events("NotTriggerScaleUp") == ["pod didn't trigger scale-up: 2 Insufficient cpu"]
        await world.deploy("web", 30)
        await asyncio.sleep(200)
        assert (world.groups.size("a"), world.groups.size("small")) == (3, 2)
        expected = "pod didn't trigger scale-up: 2 max node group size reached"
        assert expected in await world.events("NotTriggerScaleUp")

    play(
        body,
        GroupSpec(name="a", min_size=1, max_size=3, size=1),
        GroupSpec(name="small", instance_type="c5.large", max_size=2, labels={"x": "y"}),
    )


def test_an_exhausted_group_backs_off_and_another_takes_over() -> None:
    """Capacity that runs out costs one loop, not fifteen minutes."""

    async def body(world: World) -> None:
        world.groups.out_of_capacity.add("first")
        await world.deploy("web", 4)
        await asyncio.sleep(200)
        assert await world.running_pods("web") == 4
        assert world.groups.size("first") == 0
        assert any("placeholder-cannot-be-fulfilled" in each for each in await world.events("ScaleUpFailed"))
        states = {each["name"]: each["scaleUp"] for each in (await world.status())["nodeGroups"]}
        assert states["first"]["status"] == "Backoff"
        assert states["first"]["backoffInfo"]["errorCode"] == "placeholder-cannot-be-fulfilled"

    priorities = {"priorities": "10: ['.*']\n20: ['first']"}

    async def with_priorities(world: World) -> None:
        await world.kube.create(
            CONFIGMAPS,
            {"metadata": {"name": "cluster-autoscaler-priority-expander"}, "data": priorities},
            "kube-system",
        )
        await body(world)

    play(
        with_priorities,
        GroupSpec(name="first", max_size=5),
        GroupSpec(name="second", max_size=5),
        GroupSpec(name="system", min_size=1, max_size=1, size=1, instance_type="t3.micro"),
        flags=("--expander=priority",),
    )


def test_an_instance_that_never_joins_is_given_up() -> None:
    async def body(world: World) -> None:
        world.groups.never_join.add("a")
        await world.deploy("web", 8)
        await asyncio.sleep(60)
        assert world.groups.size("a") > 1
        await asyncio.sleep(1200)
        assert any("failed to register within" in each for each in await world.events("ScaleUpTimedOut"))
        assert await world.events("DeleteUnregistered")
        assert len(world.groups.ended) >= 2

    play(body, GroupSpec(name="a", min_size=1, max_size=4, size=1))


def test_budgets_and_annotations_keep_nodes() -> None:
    async def body(world: World) -> None:
        budget = {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}}
        await world.kube.create(PDBS, {"metadata": {"name": "web"}, "spec": budget}, "default")
        spread = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [spread]}}
        await world.deploy("web", 4, cpu="100m", affinity=anti)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 4
        loop = world.running.autoscaler
        assert loop is not None
        await asyncio.sleep(1200)
        assert world.groups.size("a") == 4
        reasons = {each.reason.value for each in loop.planner.unremovable}
        assert reasons <= {"BlockedByPod", "RecentlyUnremovable", "NoPlaceToMovePods"} and reasons

    play(body, GroupSpec(name="a", min_size=1, max_size=6, size=1))


def test_a_drain_that_fails_gives_the_node_back_and_holds_no_other_node() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 3)
        await world.deploy("more", 1)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 2
        await world.scale("web", 1)
        doomed: list[dict[str, Any]] = []
        for _ in range(1500):
            doomed = [each for each in (await world.kube.list(NODES)).items if _is_going(each)]
            if doomed:
                break
            await asyncio.sleep(1)
        budget = {"minAvailable": 2, "selector": {}}
        await world.kube.create(PDBS, {"metadata": {"name": "web"}, "spec": budget}, "default")
        await asyncio.sleep(20)
        [reported] = await world.events("ScaleDownFailed")
        assert reported.startswith("failed to drain and delete node: ") and "no disruption is allowed" in reported
        name = doomed[0]["metadata"]["name"]
        kept = await world.kube.get(NODES, name)
        assert not _is_going(kept) and not kept["spec"].get("unschedulable")
        assert world.groups.size("a") == 2
        loop = world.running.autoscaler
        assert loop is not None and not loop.cooldown.is_active(world.lab.clock.now())

    play(body, GroupSpec(name="a", min_size=1, max_size=6, size=1))


def test_a_refused_eviction_is_reported_in_the_words_of_the_api_server() -> None:
    async def body(world: World) -> None:
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await world.kube.create(PDBS, {"metadata": {"name": "web"}, "spec": budget}, "default")
        unmovable = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}
        await world.deploy("more", 3, pod_metadata=unmovable)
        await asyncio.sleep(60)
        await world.deploy("web", 2, cpu="600m")
        await asyncio.sleep(120)
        assert world.groups.size("a") == 2
        await world.scale("more", 1)
        await asyncio.sleep(1500)
        words = "Cannot evict pod as it would violate the pod's disruption budget."
        refused = f"within allowed timeout (last error: {words})"
        reported = await world.events("ScaleDownFailed")
        [node] = [message for message in reported if message.startswith("failed to drain and delete node: ")]
        assert node.startswith("failed to drain and delete node: Failed to drain node /")
        assert ", due to following errors: [failed to evict pod default/web-" in node and node.endswith(f"{refused}]")
        assert "failed to delete pod for ScaleDown" in reported

    options = GroupOptions(scale_down_utilization_threshold=0.9)
    group = GroupSpec(name="a", min_size=1, max_size=6, size=1, options=options)
    play(body, group, flags=("--max-pod-eviction-time=5s",))


def _is_going(node: dict[str, Any]) -> bool:
    return any(each["key"] == "ToBeDeletedByClusterAutoscaler" for each in node["spec"].get("taints", ()))


def test_a_cluster_without_ready_nodes_grows_unless_it_is_forbidden() -> None:
    async def body(world: World) -> None:
        await world.deploy("web", 1)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 0
        assert "Cluster has no nodes." in await world.events("ClusterUnhealthy")
        status = await world.status()
        assert (status["autoscalerStatus"], status["message"]) == ("Initializing", "Cluster has no nodes.")

    async def allowed(world: World) -> None:
        await world.deploy("web", 1)
        await asyncio.sleep(120)
        assert world.groups.size("a") == 1

    play(body, GroupSpec(name="a", max_size=3), flags=("--scale-up-from-zero=false",), settled_s=1.0)
    play(allowed, GroupSpec(name="a", max_size=3), settled_s=1.0)


def test_an_empty_group_grows_although_scaling_from_zero_nodes_is_forbidden() -> None:
    """The flag is about a cluster without ready nodes, not about groups without nodes."""

    async def body(world: World) -> None:
        await world.deploy("web", 1, memory="2Gi")
        await asyncio.sleep(120)
        assert world.groups.size("a") == 1

    play(
        body,
        GroupSpec(name="a", max_size=3),
        GroupSpec(name="system", min_size=1, max_size=1, size=1, instance_type="t3.micro"),
        flags=("--scale-up-from-zero=false",),
    )


def test_minimum_sizes_are_enforced_on_request() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(60)
        assert world.groups.size("a") == 3

    play(body, GroupSpec(name="a", min_size=3, max_size=6, size=1), flags=("--enforce-node-group-min-size",))


def test_the_status_goes_with_the_program() -> None:
    async def main() -> None:
        async with Lab.embedded(1) as lab:
            cloud = SimulatedGroups(lab)
            await cloud.create(GroupSpec(name="a", size=1))
            settings = parse(["--leader-elect=true"])
            kube = lab.client("cluster-autoscaler")
            work = asyncio.create_task(program.run(settings, kube, cloud, lab.clock, lab.chance, write=len))
            await asyncio.sleep(30)
            assert await lab.kube.get(CONFIGMAPS, "cluster-autoscaler-status", "kube-system")
            events = (await lab.kube.list(CORE_EVENTS, "kube-system")).items
            [elected] = [event for event in events if event["reason"] == "LeaderElection"]
            assert (elected["involvedObject"]["kind"], elected["involvedObject"]["name"]) == (
                "Lease",
                "cluster-autoscaler",
            )
            assert elected["message"] == "cluster-autoscaler became leader"
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            with pytest.raises(NotFound):
                await lab.kube.get(CONFIGMAPS, "cluster-autoscaler-status", "kube-system")
            await cloud.close()

    run_virtual(main())


def test_a_deletion_cut_short_is_undone_at_the_next_start() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(60)
        [node] = (await world.kube.list(NODES)).items
        assert not [each for each in node["spec"].get("taints", ()) if each["key"].startswith("ToBeDeleted")]
        assert not node["spec"].get("unschedulable")

    async def main() -> None:
        async with Lab.embedded(1) as lab:
            cloud = SimulatedGroups(lab)
            await cloud.create(GroupSpec(name="a", min_size=1, size=1))
            [node] = (await lab.kube.list(NODES)).items
            taint = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
            patch = {"spec": {"unschedulable": True, "taints": [taint]}}
            await lab.kube.patch(NODES, node["metadata"]["name"], patch)
            running: ProgramHandle = ProgramHandle()
            work = asyncio.create_task(
                program.run(
                    parse(["--leader-elect=false"]),
                    lab.client("ca"),
                    cloud,
                    lab.clock,
                    lab.chance,
                    write=len,
                    running=running,
                )
            )
            await body(World(lab, cloud, running, []))
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await cloud.close()

    run_virtual(main())


def test_options_of_a_group_win() -> None:
    async def body(world: World) -> None:
        await asyncio.sleep(100)
        assert world.groups.size("quick") == 0
        assert world.groups.size("slow") == 1

    options = GroupOptions(scale_down_unneeded_s=60.0)
    play(body, GroupSpec(name="quick", size=1, options=options), GroupSpec(name="slow", size=1), settled_s=0.0)
