"""The Cluster Autoscaler under faults in virtual time: bounds hold, budgets hold, nothing of others is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

import pytest

from dovetail.autoscalers.node_groups import options, program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.chance import Chance
from dovetail.clock import run_virtual
from dovetail.cloud.node_groups import NodeGroup
from dovetail.kube.client import Kube
from dovetail.kube.resources import DEPLOYMENTS, NODES, PDBS, PODS
from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.processes import CrashInjection, ReplicaConnection
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups

BOUNDS = {"a": (1, 6), "b": (0, 5), "c": (0, 3)}
FAULTS = ("scale", "scale", "scale", "capacity", "join", "rebalance", "throttle", "stale", "write", "crash")
FLAGS = (
    "--leader-elect=false", "--scale-down-unneeded-time=3m", "--scale-down-delay-after-add=3m",
    "--max-node-provision-time=4m", "--unremovable-node-recheck-timeout=1m", "--expander=random",
)  # fmt: skip


class CrashingGroups(SimulatedGroups):
    """Groups whose calls count as writes of the program."""

    injection: CrashInjection | None = None

    async def increase(self, group: NodeGroup, delta: int) -> None:
        await super().increase(group, delta)
        await self._count()

    async def decrease_target(self, group: NodeGroup, delta: int) -> None:
        await super().decrease_target(group, delta)
        await self._count()

    async def delete(self, group: NodeGroup, provider_ids: Sequence[str]) -> None:
        await super().delete(group, provider_ids)
        await self._count()

    async def _count(self) -> None:
        if self.injection is not None:
            await self.injection.count_call()


class Storm:
    """Deployments that come and go, and faults, by seed."""

    def __init__(self, lab: Lab, groups: CrashingGroups, chance: Chance) -> None:
        self.lab, self.groups, self.chance = lab, groups, chance
        self.starts = 0
        self.work: asyncio.Task[None] | None = None
        self.killed = asyncio.Event()
        self.injection = groups.injection = CrashInjection(self.killed.set)
        self.connection = ReplicaConnection(lab.transport, self.injection)

    async def deploy(self, name: str, replicas: int) -> None:
        labels = {"app": name}
        cpu = self.chance.choice(("200m", "500m", "900m"))
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        await self.lab.kube.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec}, "default")
        budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        await self.lab.kube.create(PDBS, {"metadata": {"name": name}, "spec": budget}, "default")

    def start(self) -> None:
        """The program, anew: nothing of it is kept but what the cluster and the cloud hold."""
        self.starts += 1
        chance = self.lab.chance.child("ca", str(self.starts))
        name = "cluster-autoscaler"
        kube = Kube(self.connection, self.lab.clock, chance=chance.child("client"), manager=name, user_agent=name)
        self.work = asyncio.create_task(program.run(parse(FLAGS), kube, self.groups, self.lab.clock, chance, write=len))

    async def stop(self) -> None:
        assert self.work is not None
        assert not self.work.done() or self.work.cancelled(), self.work.exception()
        self.work.cancel()
        with suppress(asyncio.CancelledError):
            await self.work

    async def inject(self) -> None:
        match self.chance.choice(FAULTS):
            case "scale":
                name = self.chance.choice(("web", "api", "jobs"))
                replicas = self.chance.randint(0, 8)
                await self.lab.kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, "default")
            case "capacity":
                name = self.chance.choice(tuple(BOUNDS))
                self.groups.out_of_capacity.add(name)
                asyncio.get_running_loop().call_later(300, self.groups.restore, name)
            case "join":
                name = self.chance.choice(tuple(BOUNDS))
                self.groups.never_join.add(name)
                asyncio.get_running_loop().call_later(200, self.groups.never_join.discard, name)
            case "rebalance":
                await self.groups.rebalance(self.chance.choice(tuple(BOUNDS)))
            case "throttle":
                self.groups.throttled += 5
            case "stale":
                self.connection.hold(self.chance.uniform(20, 120))
            case "write":
                self.injection.set(self.chance.randint(1, 5))
            case _:
                await self.restart()

    async def restart(self) -> None:
        await self.stop()
        self.killed.clear()
        self.injection.set(0)
        self.start()

    async def pass_time(self, seconds: float) -> None:
        """A process that was killed after a write is started again, as its Deployment would."""
        end = self.lab.clock.monotonic() + seconds
        while self.lab.clock.monotonic() < end:
            await asyncio.sleep(min(5.0, end - self.lab.clock.monotonic()))
            if self.killed.is_set():
                await self.restart()
            self.check()

    def check(self) -> None:
        for name, (least, most) in BOUNDS.items():
            assert least <= self.groups.size(name) <= most, name


def survive(seed: int) -> None:
    async def main() -> None:
        async with Lab.embedded(seed) as lab:
            groups = CrashingGroups(lab, defaults=options.group_options(parse(FLAGS)))
            await lab.nodes(1)
            [stranger] = [node["metadata"]["name"] for node in (await lab.kube.list(NODES)).items]
            types = {"a": "m5.large", "b": "c5.large", "c": "m5.xlarge"}
            for name, (least, most) in BOUNDS.items():
                spec = GroupSpec(name=name, min_size=least, max_size=most, size=least, instance_type=types[name])
                await groups.create(spec)
            storm = Storm(lab, groups, Chance(seed).child("storm"))
            for name in ("web", "api", "jobs"):
                await storm.deploy(name, 1)
            storm.start()
            for _ in range(30):
                await storm.inject()
                await storm.pass_time(120)
            storm.injection.set(0)
            groups.throttled = 0
            for name in BOUNDS:
                groups.never_join.discard(name)
                groups.restore(name)
            for name in ("web", "api", "jobs"):
                await lab.kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": 1}}, "default")
            await storm.pass_time(4000)
            await storm.stop()
            nodes = {node["metadata"]["name"]: node for node in (await lab.kube.list(NODES)).items}
            assert stranger in nodes
            assert not nodes[stranger]["spec"].get("taints")
            pods = (await lab.kube.list(PODS, "default")).items
            assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
            members = {group.id: {instance.provider_id for instance in group.instances} for group in groups.groups()}
            registered = {node["spec"]["providerID"] for name, node in nodes.items() if name != stranger}
            assert registered <= {*chain.from_iterable(members.values())}  # no node without an instance
            for name, (least, _) in BOUNDS.items():  # no instance leaked; the minimum is kept even if one never joined
                assert members[name] <= registered or len(members[name]) == least
            assert sum(map(len, members.values())) <= 2
            await groups.close()

    run_virtual(main())


def crash_after(writes: int) -> int:
    """A scale-up and a scale-down with a crash after so many writes; how often the program was started."""
    starts = 0

    async def main() -> None:
        nonlocal starts
        async with Lab.embedded(writes) as lab:
            groups = CrashingGroups(lab, defaults=options.group_options(parse(FLAGS)))
            await groups.create(GroupSpec(name="a", min_size=1, max_size=6, size=1))
            for name in ("b", "c"):
                await groups.create(GroupSpec(name=name, max_size=BOUNDS[name][1], labels={"team": name}))
            storm = Storm(lab, groups, Chance(writes).child("storm"))
            storm.start()
            storm.injection.set(writes)
            await storm.deploy("web", 6)
            await storm.pass_time(240)
            web = (await lab.kube.list(PODS, "default")).items
            assert [pod["status"]["phase"] for pod in web] == ["Running"] * 6
            await lab.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")
            await storm.pass_time(2400)
            await storm.stop()
            assert groups.size("a") == 1
            [node] = (await lab.kube.list(NODES)).items
            taints = {taint["key"] for taint in node["spec"].get("taints", ())}
            assert "ToBeDeletedByClusterAutoscaler" not in taints and not node["spec"].get("unschedulable")
            starts = storm.starts
            await groups.close()

    run_virtual(main())
    return starts


@pytest.mark.parametrize("writes", [1, 4, 9, 14])
def test_a_crash_after_a_write_leaves_nothing_behind(writes: int) -> None:
    assert crash_after(writes) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("writes", range(1, 40))
def test_a_crash_after_every_write_leaves_nothing_behind(writes: int) -> None:
    assert crash_after(writes) in (1, 2)


@pytest.mark.parametrize("seed", range(3))
def test_faults_by_seed(seed: int) -> None:
    survive(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 400))
def test_faults_by_many_seeds(seed: int) -> None:
    survive(seed)
