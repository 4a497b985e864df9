"""The instances of the simulated cloud as a cluster sees them: they join, and their leases are kept fresh."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.provider import Instance
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.kubelets import SimulatedKubelets
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.kube.client import Kube
from dovetail.kube.resources import LEASES, NODES
from dovetail.model.meta import Condition, ObjectMeta
from dovetail.model.nodes import Node, NodeStatus
from dovetail.model.pods import Pod, PodSpec


class Hearing:
    """An API server that only listens: when each lease was last heard of."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heard: dict[str, float] = {}
        self.longest = 0.0
        self.reported: dict[str, Any] = {}

    async def create(self, resource: Any, body: Any, namespace: str | None = None) -> None:
        self._note(resource, body["metadata"]["name"])

    async def patch(self, resource: Any, name: str, body: Any, *rest: Any, **more: Any) -> None:
        self._note(resource, name)
        if resource is NODES:
            self.reported[name] = body

    async def delete(self, resource: Any, name: str, *rest: Any, **more: Any) -> None:
        if resource is LEASES:
            self.heard.pop(name, None)

    def _note(self, resource: Any, name: str) -> None:
        if resource is LEASES:
            now = self._clock.monotonic()
            self.longest = max(self.longest, now - self.heard.get(name, now))
            self.heard[name] = now


def instance(number: int) -> Instance:
    return Instance(
        provider_id=f"simulated:///a/i-{number}",
        instance_type="m",
        zone="a",
        capacity_type="on-demand",
        image_id="i",
        capacity={},
        allocatable={},
        labels={},
        created=EPOCH,
        claim_uid=str(number),
        claim_name=f"n{number}",
        node_pool="default",
    )


def test_no_lease_grows_old_while_the_fleet_shrinks() -> None:
    """Kubernetes gives up on a node after 40 seconds; who comes and goes must not delay those who stay."""

    async def story() -> float:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        cloud = SimulatedCloud(clock, Chance(1), ())
        server = Hearing(clock)
        fleet = SimulatedKubelets(cast(Kube, server), cloud, clock, Chance(2))
        cloud.adopt(instance(number) for number in range(60))
        running = asyncio.create_task(fleet.run())
        for number in range(59):
            await asyncio.sleep(7.0)
            cloud.vanish(f"simulated:///a/i-{number}")
        running.cancel()
        return server.longest

    assert 0.0 < run_virtual(story()) <= 30.0


def test_instances_and_pods_that_are_gone_are_forgotten() -> None:
    """A fleet that runs for months keeps nothing of those who came and went, whether they joined or never did."""

    async def story(market: SimulatedMarket) -> tuple[SimulatedKubelets, SimulatedCloud]:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        cloud = SimulatedCloud(clock, Chance(1), (), market)
        fleet = SimulatedKubelets(cast(Kube, Hearing(clock)), cloud, clock, Chance(2))
        cloud.adopt([instance(0)])
        running = asyncio.create_task(fleet.run())
        await asyncio.sleep(1.0)
        await cloud.reboot(instance(0).provider_id, "once")
        pod = Pod(metadata=ObjectMeta(name="p", namespace="d"), spec=PodSpec(node_name="n0"))
        fleet.pod_changed(None, pod)
        await asyncio.sleep(1.0)
        fleet.pod_changed(pod, None)
        cloud.vanish(instance(0).provider_id)
        await asyncio.sleep(60.0)
        running.cancel()
        return fleet, cloud

    for market in SimulatedMarket(), SimulatedMarket(never_joins=1.0):
        fleet, cloud = run_virtual(story(market))
        for name in "_joining", "_restarted", "_nodes", "_names", "_pods", "_on", "_beats":
            assert not getattr(fleet, name), name
        assert not cloud.restarts


def test_a_node_that_was_given_up_says_that_it_is_ready_again() -> None:
    """On a busy control plane a lease may be late; a kubelet that finds itself given up says so at once."""

    async def story() -> dict[str, Any]:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        cloud = SimulatedCloud(clock, Chance(1), ())
        server = Hearing(clock)
        fleet = SimulatedKubelets(cast(Kube, server), cloud, clock, Chance(2))
        cloud.adopt([instance(0), instance(1)])
        running = asyncio.create_task(fleet.run())
        await asyncio.sleep(1.0)
        for name, ready in ("n0", "Unknown"), ("n1", "True"), ("of another cloud", "Unknown"):
            status = NodeStatus(conditions=(Condition(type="Ready", status=ready),))
            fleet.node_changed(Node(metadata=ObjectMeta(name=name), status=status))
        await asyncio.sleep(1.0)
        running.cancel()
        return server.reported

    reported = run_virtual(story())
    assert list(reported) == ["n0"]
    assert [each["status"] for each in reported["n0"]["status"]["conditions"] if each["type"] == "Ready"] == ["True"]
