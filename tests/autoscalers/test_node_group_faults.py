"""The Cluster Autoscaler under faults in virtual time: bounds hold, budgets hold, nothing of others is touched."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dovetail.autoscalers.node_groups import program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.chance import Chance
from dovetail.clock import run_virtual
from dovetail.kube.resources import DEPLOYMENTS, NODES, PDBS, PODS
from dovetail.lab.cluster import Lab
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups

BOUNDS = {"a": (1, 6), "b": (0, 5), "c": (0, 3)}
FLAGS = (
    "--leader-elect=false", "--scale-down-unneeded-time=3m", "--scale-down-delay-after-add=3m",
    "--max-node-provision-time=4m", "--unremovable-node-recheck-timeout=1m", "--expander=random",
)  # fmt: skip


class Storm:
    """Deployments that come and go, and faults, by seed."""

    def __init__(self, lab: Lab, groups: SimulatedGroups, chance: Chance) -> None:
        self.lab, self.groups, self.chance = lab, groups, chance
        self.starts = 0
        self.work: asyncio.Task[None] | None = None

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
        kube = self.lab.client("cluster-autoscaler")
        chance = self.lab.chance.child("ca", str(self.starts))
        self.work = asyncio.create_task(program.run(parse(FLAGS), kube, self.groups, self.lab.clock, chance, write=len))

    async def stop(self) -> None:
        assert self.work is not None
        assert not self.work.done() or self.work.cancelled(), self.work.exception()
        self.work.cancel()
        with suppress(asyncio.CancelledError):
            await self.work

    async def strike(self) -> None:
        match self.chance.choice(("scale", "scale", "scale", "capacity", "join", "rebalance", "throttle", "crash")):
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
            case _:
                await self.stop()
                self.start()

    def check(self) -> None:
        for name, (least, most) in BOUNDS.items():
            assert least <= self.groups.size(name) <= most, name


def survive(seed: int) -> None:
    async def main() -> None:
        async with Lab.embedded(seed) as lab:
            groups = SimulatedGroups(lab)
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
                await storm.strike()
                for _ in range(6):
                    await asyncio.sleep(20)
                    storm.check()
            groups.throttled = 0
            for name in BOUNDS:
                groups.never_join.discard(name)
                groups.restore(name)
            for name in ("web", "api", "jobs"):
                await lab.kube.patch(DEPLOYMENTS, name, {"spec": {"replicas": 1}}, "default")
            await asyncio.sleep(4000)
            storm.check()
            await storm.stop()
            nodes = {node["metadata"]["name"]: node for node in (await lab.kube.list(NODES)).items}
            assert stranger in nodes
            assert not nodes[stranger]["spec"].get("taints")
            pods = (await lab.kube.list(PODS, "default")).items
            assert [pod["status"]["phase"] for pod in pods] == ["Running"] * 3
            living = sum(groups.size(name) for name in BOUNDS)
            assert len(nodes) == 1 + living  # no instance leaked, no node without one
            assert living <= 2
            await groups.close()

    run_virtual(main())


@pytest.mark.parametrize("seed", range(3))
def test_faults_by_seed(seed: int) -> None:
    survive(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_faults_by_many_seeds(seed: int) -> None:
    survive(seed)
