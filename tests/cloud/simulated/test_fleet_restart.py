"""The process that simulates instances is killed: they are there again once it is back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from dovetail.chance import Chance
from dovetail.clock import EPOCH, run_virtual
from dovetail.cloud.provider import Instance
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.kubelets import SimulatedKubelets
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import CRDS, NODECLAIMS, NODES, PODS
from dovetail.lab.cluster import Lab
from dovetail.model.kinds import crds
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

MARKET = SimulatedMarket(boot=(2.0, 2.0), ready=(12.0, 12.0))
LABELS = {
    "node.kubernetes.io/instance-type": "m",
    "topology.kubernetes.io/zone": "a",
    "karpenter.sh/capacity-type": "on-demand",
    "karpenter.sh/nodepool": "default",
}


def _node(name: str) -> Instance:
    return Instance(
        provider_id=f"simulated:///a/i-{name}",
        instance_type="m",
        zone="a",
        capacity_type="on-demand",
        image_id="i",
        capacity={"cpu": 4000, "pods": 110},
        allocatable={"cpu": 4000, "pods": 110},
        labels=LABELS,
        created=EPOCH,
        claim_uid=name,
        claim_name=name,
        node_pool="default",
    )


async def _claim(lab: Lab, name: str) -> None:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    body = {"metadata": {"name": name, "labels": LABELS}, "spec": {"nodeClassRef": reference, "requirements": []}}
    await lab.kube.create(NODECLAIMS, body)
    launched = {"status": {"providerID": f"simulated:///a/i-{name}"}}
    await lab.kube.patch(NODECLAIMS, name, launched, subresource="status", kind="merge")


class Process:
    """A cloud and its fleet, as `dovetail run --cloud simulated` has them, until killed."""

    def __init__(self, lab: Lab, life: str) -> None:
        self.cloud = SimulatedCloud(lab.clock, Chance(1).child(life), (), MARKET)
        self.fleet = SimulatedKubelets(lab.kube, self.cloud, lab.clock, Chance(2).child(life))
        hear, see = self.fleet.pod_changed, self.fleet.node_changed
        work = (
            Reflector(lab.kube, PODS, Pod, on_event=lambda change: hear(change.old, change.new)).run(),
            Reflector(lab.kube, NODES, Node, on_event=lambda change: see(change.new)).run(),
        )
        self.tasks = [asyncio.ensure_future(each) for each in work]

    async def run(self) -> None:
        await asyncio.sleep(1.0)  # the cluster state reads before the lease is taken
        await self.fleet.recover()
        self.tasks.append(asyncio.ensure_future(self.fleet.run()))

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
            with suppress(BaseException):
                await task


def _ready(obj: dict[str, Any]) -> str:
    return str(next(each["status"] for each in obj["status"]["conditions"] if each["type"] == "Ready"))


def test_instances_that_had_joined_come_back_ready() -> None:
    """They stayed NotReady for good, their pods were evicted, and the fleet was launched again."""

    async def story() -> None:
        async with Lab.embedded(seed=1) as lab:
            for definition in crds.definitions():
                await lab.kube.create(CRDS, definition)
            await asyncio.sleep(1.0)
            first = Process(lab, "first")
            await first.run()
            for name in ("early", "late"):
                await _claim(lab, name)
                first.cloud.adopt([_node(name)])
                await asyncio.sleep(20.0 if name == "early" else 5.0)
            spec = {
                "nodeName": "early",
                "containers": [{"name": "c", "image": "pause"}],
                "tolerations": [{"key": "karpenter.sh/unregistered", "operator": "Exists"}],
            }
            await lab.kube.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
            await asyncio.sleep(2.0)
            assert [_ready(node) for node in (await lab.kube.list(NODES)).items] == ["True", "False"]
            await first.kill()
            await asyncio.sleep(60.0)
            assert [_ready(node) for node in (await lab.kube.list(NODES)).items] == ["Unknown", "Unknown"]
            assert _ready(await lab.kube.get(PODS, "p", "default")) == "False"
            second = Process(lab, "second")
            await second.run()
            await asyncio.sleep(30.0)
            assert [_ready(node) for node in (await lab.kube.list(NODES)).items] == ["True", "True"]
            assert _ready(await lab.kube.get(PODS, "p", "default")) == "True"
            assert len(second.cloud.standing()) == 2
            await second.kill()
            await asyncio.sleep(5.0)
            third = Process(lab, "third")
            await third.run()
            await asyncio.sleep(400.0)  # longer than pods tolerate a node that is not ready
            assert _ready(await lab.kube.get(PODS, "p", "default")) == "True"
            assert third.cloud.sold == 0
            await third.kill()

    run_virtual(story())


def test_an_instance_that_was_not_ready_yet_takes_its_time_after_a_restart() -> None:
    async def story() -> None:
        async with Lab.embedded(seed=1) as lab:
            for definition in crds.definitions():
                await lab.kube.create(CRDS, definition)
            await asyncio.sleep(1.0)
            first = Process(lab, "first")
            await first.run()
            await _claim(lab, "late")
            first.cloud.adopt([_node("late")])
            await asyncio.sleep(5.0)
            await first.kill()
            second = Process(lab, "second")
            await second.run()
            await asyncio.sleep(5.0)
            assert _ready(await lab.kube.get(NODES, "late")) == "False"
            await asyncio.sleep(10.0)
            assert _ready(await lab.kube.get(NODES, "late")) == "True"
            await second.kill()

    run_virtual(story())
