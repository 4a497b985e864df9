"""The Cluster Autoscaler ends no instance for lack of evidence, and no failure ends the program."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from dovetail.autoscalers.node_groups import program
from dovetail.autoscalers.node_groups.backoff import GroupBackoff
from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState, HealthLimits
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.clock import run_virtual
from dovetail.cloud.node_groups import NodeGroup
from dovetail.kube.client import Kube
from dovetail.kube.resources import NODES
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.cluster import Lab
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups
from tests.autoscalers.node_group_objects import NOW, group, node
from tests.autoscalers.test_node_group_autoscaler import World
from tests.kube.scripted import status

MINUTE = timedelta(minutes=1)
LATER = NOW + 40 * MINUTE
TAINT = "ToBeDeletedByClusterAutoscaler"


class RefusingTransport:
    """The API server without the requests that `refuses` names; nothing is pushed, so watches can fail."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.refuses: Callable[[Request], bool] = lambda request: False

    async def send(self, request: Request) -> Response:
        if self.refuses(request):
            return status(403, "Forbidden", "refused by the test")
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


class FailingGroups(SimulatedGroups):
    """Groups whose calls raise what AWS's library raises, or whose instances the cluster does not know."""

    error: Exception | None = None

    async def delete(self, group: NodeGroup, provider_ids: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        await super().delete(group, provider_ids)

    async def decrease_target(self, group: NodeGroup, delta: int) -> None:
        if self.error is not None:
            raise self.error
        await super().decrease_target(group, delta)


class EvidenceWorld(World):
    """`transport` is the program's own connection, `groups` fail on request."""

    transport: RefusingTransport
    groups: FailingGroups


def play(
    body: Callable[[EvidenceWorld], Awaitable[None]],
    *groups: GroupSpec,
    flags: tuple[str, ...] = (),
    prepare: Callable[[Lab, FailingGroups], Awaitable[None]] | None = None,
) -> None:
    async def main() -> None:
        async with Lab.embedded(1) as lab:
            cloud, lines = FailingGroups(lab), list[str]()
            for spec in groups:
                await cloud.create(spec)
            if prepare is not None:
                await prepare(lab, cloud)
            transport, running = RefusingTransport(lab.transport), program.ProgramHandle()
            kube = Kube(transport, lab.clock, chance=lab.chance.child("client"))
            settings = parse(["--leader-elect=false", *flags])
            work = asyncio.create_task(
                program.run(settings, kube, cloud, lab.clock, lab.chance, write=lines.append, running=running)
            )
            await asyncio.sleep(60)
            world = EvidenceWorld(lab, cloud, running, lines)
            world.transport, world.groups = transport, cloud
            await body(world)
            assert not work.done()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await cloud.close()

    run_virtual(main())


def state() -> GroupClusterState:
    return GroupClusterState(HealthLimits(), GroupBackoff())


# What is no evidence


def test_instances_of_another_cluster_are_not_ended() -> None:
    """A wrong kubeconfig: the groups' instances run, and none of them is a Node of this cluster."""
    watched = state()
    theirs = [node(f"theirs-{index}") for index in range(4)]
    ours = [node(f"ours-{index}") for index in range(4)]
    for now in (NOW, LATER):
        watched.update(ours, [group("g", 0, 10, 4, *theirs)], now)
    assert watched.overdue_instances(LATER) == {}
    [(reason, kept)] = watched.unproven_instances(LATER).items()
    assert "no instance of any group is a Node of this cluster" in reason
    assert len(kept) == 4


def test_an_instance_that_never_joined_is_ended_where_others_are_nodes() -> None:
    watched = state()
    there, broken = node("there"), node("broken")
    for now in (NOW, LATER):
        watched.update([there], [group("g", 0, 10, 2, there, broken)], now)
    assert watched.overdue_instances(LATER) == {"g": [broken.spec.provider_id]}
    assert watched.unproven_instances(LATER) == {}


def test_the_first_instances_of_an_empty_cluster_are_ended_if_they_never_join() -> None:
    watched = state()
    broken = [node(f"broken-{index}") for index in range(3)]
    watched.update([], [group("g", 0, 10, 0)], NOW)
    for now in (NOW + MINUTE, LATER):
        watched.update([], [group("g", 0, 10, 3, *broken)], now)
    assert len(watched.overdue_instances(LATER)["g"]) == 3


def test_nodes_that_vanish_at_once_keep_their_instances() -> None:
    """Up to two may be gone; more than that, and more than a tenth, is a broken view of the cluster."""
    watched = state()
    nodes = [node(f"n{index}") for index in range(10)]
    full = group("g", 0, 10, 10, *nodes)
    watched.update(nodes, [full], NOW)
    for now in (NOW + MINUTE, LATER):
        watched.update(nodes[3:], [full], now)
    assert watched.overdue_instances(LATER) == {}
    assert [len(kept) for kept in watched.unproven_instances(LATER).values()] == [3]
    watched.update(nodes[2:], [full], LATER + MINUTE)
    assert len(watched.overdue_instances(LATER + MINUTE)["g"]) == 2


def test_a_group_of_another_cluster_is_left_alone_and_the_operator_is_notified() -> None:
    async def prepare(lab: Lab, cloud: FailingGroups) -> None:
        cloud.never_join.add("a")
        await cloud.refresh()
        await cloud.increase(cloud.groups()[0], 4)

    async def body(world: EvidenceWorld) -> None:
        await asyncio.sleep(3600)
        assert world.groups.ended == []
        assert world.groups.size("a") == 4
        [message] = set(await world.events("UnregisteredNodesKept"))
        assert message.startswith("4 instances without a Node are not ended: no instance of any group is a Node")

    play(body, GroupSpec(name="a", min_size=0, max_size=10), prepare=prepare)


def test_nothing_is_ended_on_a_view_that_is_too_old() -> None:
    """Pods cannot be read any more: the nodes look empty, and are not."""

    async def body(world: EvidenceWorld) -> None:
        await world.deploy("web", 6)
        await asyncio.sleep(200)
        assert world.groups.size("a") == 2
        await world.scale("web", 0)
        await asyncio.sleep(30)
        world.transport.refuses = lambda request: request.method == "GET" and request.path == "/api/v1/pods"
        await asyncio.sleep(600)  # a watch that is open goes on until its end
        await world.scale("web", 6)
        await asyncio.sleep(3000)
        assert world.groups.ended == []
        assert await world.running_pods("web") == 6
        assert any("pods were last read" in line for line in world.lines)
        world.transport.refuses = lambda request: False
        await world.scale("web", 0)
        await asyncio.sleep(2000)
        assert world.groups.size("a") == 1

    play(body, GroupSpec(name="a", min_size=1, size=1), flags=("--scale-down-unneeded-time=30m",))


# One failure does not stop the rest


def test_an_error_of_the_cloud_library_ends_neither_the_program_nor_its_loop() -> None:
    """What nothing here explains is reported with its traceback once, counted, and tried again."""

    async def body(world: EvidenceWorld) -> None:
        world.groups.never_join.add("a")
        await world.deploy("web", 6)
        await asyncio.sleep(60)
        world.groups.error = ConnectionError("Could not connect to the endpoint URL")
        await asyncio.sleep(1500)
        assert sum("Traceback" in line for line in world.lines) <= 2  # two places call the cloud
        assert any("ConnectionError: Could not connect" in line for line in world.lines)
        metrics = world.running.metrics
        assert metrics is not None
        assert 'cluster_autoscaler_errors_total{type="internalError"}' in metrics.text().decode()
        world.groups.error = None
        world.groups.never_join.clear()
        await asyncio.sleep(1500)
        assert await world.running_pods("web") == 6

    play(body, GroupSpec(name="a", min_size=1, size=1))


def test_a_node_whose_deletion_raises_an_unexpected_error_is_given_back() -> None:
    async def body(world: EvidenceWorld) -> None:
        await world.deploy("web", 6)
        await asyncio.sleep(200)
        assert world.groups.size("a") == 2
        world.groups.error = RuntimeError("a defect")
        await world.scale("web", 0)
        await asyncio.sleep(700)
        assert any("RuntimeError: a defect" in line for line in world.lines)
        await asyncio.sleep(20)
        world.groups.error = None
        await asyncio.sleep(1500)
        assert world.groups.size("a") == 1

    play(body, GroupSpec(name="a", min_size=1, size=1))


def tainted(nodes: Sequence[dict[str, object]]) -> list[str]:
    return [
        each["metadata"]["name"]  # type: ignore[index]
        for each in nodes
        if any(taint["key"] == TAINT for taint in each["spec"].get("taints", ()))  # type: ignore[attr-defined]
    ]


def test_a_taint_that_could_not_be_taken_back_is_taken_back_later() -> None:
    """Also one of an earlier program: a refusal at the first pass does not leave the node closed for ever."""

    async def prepare(lab: Lab, cloud: FailingGroups) -> None:
        [there] = (await lab.kube.list(NODES)).items
        taint = {"key": TAINT, "value": "1", "effect": "NoSchedule"}
        await lab.kube.patch(NODES, there["metadata"]["name"], {"spec": {"unschedulable": True, "taints": [taint]}})

    async def body(world: EvidenceWorld) -> None:
        assert not tainted((await world.kube.list(NODES)).items)
        await world.deploy("web", 6)
        await asyncio.sleep(200)
        assert world.groups.size("a") == 2
        world.groups.error = RuntimeError("a defect")
        await world.scale("web", 0)
        while not tainted((await world.kube.list(NODES)).items):  # noqa: ASYNC110
            await asyncio.sleep(1)
        world.transport.refuses = lambda request: request.method == "PUT" and "/nodes/" in request.path
        await asyncio.sleep(60)
        assert tainted((await world.kube.list(NODES)).items)
        world.transport.refuses = lambda request: False
        await world.deploy("keep", 6)
        await asyncio.sleep(30)
        assert not tainted((await world.kube.list(NODES)).items)

    async def refused_first(world: EvidenceWorld) -> None:
        assert not tainted((await world.kube.list(NODES)).items)

    play(body, GroupSpec(name="a", min_size=1, size=1), prepare=prepare)
    refuse_at_first(refused_first, prepare)


def refuse_at_first(
    body: Callable[[EvidenceWorld], Awaitable[None]], prepare: Callable[[Lab, FailingGroups], Awaitable[None]]
) -> None:
    """The API server refuses the first three writes of nodes."""
    left = 3

    def refuses(request: Request) -> bool:
        nonlocal left
        left -= request.method == "PUT" and "/nodes/" in request.path
        return request.method == "PUT" and "/nodes/" in request.path and left >= 0

    async def main() -> None:
        async with Lab.embedded(1) as lab:
            cloud = FailingGroups(lab)
            await cloud.create(GroupSpec(name="a", min_size=1, size=1))
            await prepare(lab, cloud)
            transport = RefusingTransport(lab.transport)
            transport.refuses = refuses
            kube = Kube(transport, lab.clock, chance=lab.chance.child("client"))
            settings = parse(["--leader-elect=false"])
            work = asyncio.create_task(program.run(settings, kube, cloud, lab.clock, lab.chance, write=len))
            await asyncio.sleep(90)
            await body(EvidenceWorld(lab, cloud, program.ProgramHandle(), []))
            assert left < 0
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await cloud.close()

    run_virtual(main())
