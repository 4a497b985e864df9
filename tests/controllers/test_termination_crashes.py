"""The process is killed after every write of a disruption: nothing leaks, no surplus node, no pod lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from dovetail.controllers.nodeclaim.binding import fitting
from dovetail.controllers.nodeclaim.garbage_collection import PERIOD_S
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

RunScenario = Callable[..., None]
GATES = {**Settings().feature_gates, "NodeRepair": True}
ALL = [{"nodes": "100%"}]
QUICK = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": ALL}
STILL = {"consolidateAfter": "Never", "budgets": ALL}


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is the size of the workload at the end; `begin` is what starts the disruption."""

    name: str
    pool: dict[str, Any]
    before: int
    after: int
    cpu: str
    begin: Callable[[Any], Awaitable[None]]
    done: Callable[[Any, frozenset[str]], Awaitable[bool]]
    instances: int


class Workload:
    """Keeps its pods, like a ReplicaSet: a missing pod is created again under the same name."""

    def __init__(self, world: Any, size: int, cpu: str) -> None:
        self._world = world
        self.size = size
        self._cpu = cpu

    async def run(self) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
        requests = {"cpu": self._cpu, "memory": "256Mi"}
        while True:
            pods = (await self._world.kube.list(kinds.PODS, type=Pod)).items
            there = {pod.metadata.name for pod in pods}
            for name in (f"w{number}" for number in range(self.size)):
                if name not in there:
                    body = {
                        "metadata": {"name": name, "labels": {"app": "w"}, "ownerReferences": [owner]},
                        "spec": {
                            "terminationGracePeriodSeconds": 1,
                            "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}],
                        },
                    }
                    try:
                        await self._world.kube.create(kinds.PODS, body, "default")
                    except AlreadyExists:
                        continue
            if any(not pod.spec.node_name for pod in pods):
                await self._schedule(pods)
            await asyncio.sleep(2.0)

    async def _schedule(self, pods: Sequence[Pod]) -> None:
        """Bind pending pods to untainted nodes that they fit, as the scheduler does."""
        kube = self._world.kube
        for node in (await kube.list(kinds.NODES, type=Node)).items:
            if node.spec.taints or not node.ready:
                continue
            there = [pod for pod in pods if pod.spec.node_name == node.metadata.name]
            for pod in fitting(node, there, (pod for pod in pods if not pod.spec.node_name)):
                with suppress(Conflict, NotFound):
                    await kube.bind(pod.metadata.name, "default", node.metadata.name)
            pods = (await kube.list(kinds.PODS, type=Pod)).items

    async def shrink(self, size: int) -> None:
        gone = [f"w{number}" for number in range(size, self.size)]
        self.size = size
        for name in gone:
            await self._world.kube.delete(kinds.PODS, name, "default", grace=0)


async def nodes(world: Any) -> frozenset[str]:
    return frozenset(node["metadata"]["name"] for node in await world.list(kinds.NODES))


async def drift(world: Any) -> None:
    label = {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
    await world.kube.patch(kinds.NODEPOOLS, "default", label)


async def nothing(world: Any) -> None:
    return None


async def delete_node(world: Any) -> None:
    for name in await nodes(world):
        await world.kube.delete(kinds.NODES, name)


async def interrupt(world: Any) -> None:
    world.cloud.interrupt([instance.provider_id for instance in world.cloud.standing()])


async def sicken(world: Any, kind: str, status: str = "True") -> None:
    now = stamp(world.clock.now())
    condition = {"type": kind, "status": status, "reason": "Test", "message": "", "lastTransitionTime": now}
    for name in await nodes(world):
        body = {"status": {"conditions": [condition]}}
        await world.kube.patch(kinds.NODES, name, body, subresource="status", kind="strategic")


async def become_unhealthy(world: Any) -> None:
    await sicken(world, "KWOKUnhealthy")


async def require_reboot(world: Any) -> None:
    await sicken(world, "KWOKRebootRequired")


async def rebooted(world: Any, old: frozenset[str]) -> bool:
    """Back with another boot id, and healthy again."""
    claims = [await world.conditions(claim) for claim in await world.list(kinds.NODECLAIMS)]
    if any(claim.get("Rebooting") == "False/RebootSucceeded" for claim in claims):
        await sicken(world, "KWOKRebootRequired", "False")
        return await nodes(world) == old
    return False


async def replaced(world: Any, old: frozenset[str]) -> bool:
    now = await nodes(world)
    return bool(now) and not now & old


async def fewer(world: Any, old: frozenset[str]) -> bool:
    return len(await nodes(world)) < len(old)


async def empty(world: Any, old: frozenset[str]) -> bool:
    return not await nodes(world)


SCENARIOS = (
    Scenario(
        name="drift", pool={"disruption": STILL}, before=2, after=2, cpu="500m", begin=drift, done=replaced, instances=1
    ),
    Scenario(
        name="consolidation",
        pool={"disruption": QUICK},
        before=3,
        after=1,
        cpu="1500m",
        begin=nothing,
        done=fewer,
        instances=1,
    ),
    Scenario(
        name="emptiness",
        pool={"disruption": QUICK},
        before=2,
        after=0,
        cpu="500m",
        begin=nothing,
        done=empty,
        instances=0,
    ),
    Scenario(
        name="expiry",
        pool={"disruption": STILL, "template": {"expireAfter": "120s"}},
        before=2,
        after=2,
        cpu="500m",
        begin=nothing,
        done=replaced,
        instances=1,
    ),
)
BY_OTHERS = (
    Scenario(
        name="node deleted",
        pool={"disruption": STILL},
        before=2,
        after=2,
        cpu="500m",
        begin=delete_node,
        done=replaced,
        instances=1,
    ),
    Scenario(
        name="interruption",
        pool={"disruption": STILL},
        before=2,
        after=2,
        cpu="500m",
        begin=interrupt,
        done=replaced,
        instances=1,
    ),
    Scenario(
        name="repair",
        pool={"disruption": STILL},
        before=2,
        after=2,
        cpu="500m",
        begin=become_unhealthy,
        done=replaced,
        instances=1,
    ),
    Scenario(
        name="reboot",
        pool={"disruption": STILL},
        before=2,
        after=2,
        cpu="500m",
        begin=require_reboot,
        done=rebooted,
        instances=1,
    ),
)


async def _play(world: Any, scenario: Scenario, kill: int | None) -> int:
    """Start, then the disruption with a new process that may be killed, then settle. The writes that it took."""
    await world.pool(**scenario.pool)
    load = Workload(world, scenario.before, scenario.cpu)
    keeper = asyncio.ensure_future(load.run())
    try:
        world.start()
        await asyncio.sleep(2.5)
        await world.until(world.all_bound, within=300, step=2)
        await asyncio.sleep(10)
        await world.stop()
        old = await nodes(world)
        await load.shrink(scenario.after)
        await scenario.begin(world)
        world.start(die_after=kill)
        if kill is not None and await world.died(within=400):
            await asyncio.sleep(3)
            world.start()
        await world.until(lambda: scenario.done(world, old), within=900, step=3)
        writes: int = world.transport.writes
        if scenario.name == "expiry":  # once only: the replacement would expire as well
            never = {"spec": {"template": {"spec": {"expireAfter": "Never"}}}}
            await world.kube.patch(kinds.NODEPOOLS, "default", never)
        await _rested(world, scenario, kill)
        return writes
    finally:
        keeper.cancel()


async def _rested(world: Any, scenario: Scenario, kill: int | None) -> None:
    await asyncio.sleep(PERIOD_S + 80)
    logged = f"{scenario.name}, killed after write {kill}"
    bound = await world.bound()
    assert len(bound) == scenario.after and all(bound.values()), f"{logged}: {bound}"
    instances = world.cloud.standing()
    claims = await world.list(kinds.NODECLAIMS)
    assert {m.provider_id for m in instances} == {c["status"]["providerID"] for c in claims}, logged
    assert len(instances) == scenario.instances, f"{logged}: {len(instances)} instances"
    if scenario.done is rebooted and kill is None:
        assert world.cloud.sold == 1, "its pods waited for it"
    for node in await world.list(kinds.NODES):
        assert not node["spec"].get("taints"), f"{logged}: {node['spec']['taints']}"
    for claim in claims:
        assert "DisruptionReason" not in await world.conditions(claim), logged


def _slow(scenario: Scenario) -> Any:
    return pytest.param(scenario, marks=pytest.mark.slow)


@pytest.mark.timeout(900)  # dozens of processes: seconds of work, minutes on a shared host
@pytest.mark.parametrize("scenario", [*SCENARIOS, *map(_slow, BY_OTHERS)], ids=lambda scenario: scenario.name)
def test_killed_after_any_write_the_disruption_ends_as_it_should(run_scenario: RunScenario, scenario: Scenario) -> None:
    writes: list[int] = []

    async def undisturbed(world: Any) -> None:
        writes.append(await _play(world, scenario, None))

    run_scenario(undisturbed, feature_gates=GATES)
    for number in range(1, writes[0] + 1):

        async def killed(world: Any, number: int = number) -> None:
            await _play(world, scenario, number)

        run_scenario(killed, feature_gates=GATES)
