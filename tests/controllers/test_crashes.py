"""The process is killed after every write of the path: nothing leaks, nothing is launched twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.kubelets import SimulatedKubelets
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.controllers.nodeclaim.garbage_collection import MANY_ORPHANS_AGE_S, PERIOD_S
from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]
STILL = {"consolidateAfter": "Never"}


async def _settled(world: Any) -> tuple[int, int, int, set[str]]:
    """Counts of instances, NodeClaims and Nodes, and their Ready conditions, once settled."""
    await world.until(world.all_bound, within=600, step=2)
    await asyncio.sleep(PERIOD_S + 70)
    claims = await world.list(kinds.NODECLAIMS)
    instances = world.cloud.standing()
    assert {m.provider_id for m in instances} == {c["status"]["providerID"] for c in claims}
    nodes = await world.list(kinds.NODES)
    assert {n["spec"]["providerID"] for n in nodes} == {m.provider_id for m in instances}
    assert nodes and not any(n["spec"].get("taints") for n in nodes)
    ready = {(await world.conditions(claim))["Ready"] for claim in claims}
    return len(instances), len(claims), len(nodes), ready


async def _undisturbed(world: Any) -> tuple[tuple[int, int, int, set[str]], int]:
    await world.pool(disruption=STILL)
    world.start()
    await world.pods(4, cpu="1500m")
    end = await _settled(world)
    return end, world.transport.writes


@pytest.mark.parametrize("moment", ["die_after", "die_before"])
def test_killed_at_any_write_the_process_ends_in_the_same_state(run_scenario: RunScenario, moment: str) -> None:
    ends: list[tuple[tuple[int, int, int, set[str]], int]] = []

    async def undisturbed(world: Any) -> None:
        ends.append(await _undisturbed(world))

    run_scenario(undisturbed)
    end, writes = ends[0]
    assert end[3] == {"True/Ready"}
    assert writes > 10
    for number in range(1, writes + 1):

        async def killed(world: Any, number: int = number) -> None:
            await world.pool(disruption=STILL)
            world.start(**{moment: number})
            await world.pods(4, cpu="1500m")
            if await world.died(within=60):
                await asyncio.sleep(3)
                world.start()
            assert await _settled(world) == end, f"killed at write {number}"
            assert world.cloud.sold == end[0], f"killed at write {number}: {world.cloud.sold} instances launched"

        run_scenario(killed)


async def _one_nodeclaim(world: Any) -> Any:
    """A NodeClaim with its instance and its pod, and a stopped process."""
    await world.pool(disruption=STILL)
    await world.served(1)
    await world.stop()
    (claim,) = await world.list(kinds.NODECLAIMS)
    return claim


async def _take_away(world: Any, claim: Any) -> None:
    """Remove a NodeClaim past its finalizer."""
    name = claim["metadata"]["name"]
    await world.kube.patch(kinds.NODECLAIMS, name, {"metadata": {"finalizers": None}})
    await world.kube.delete(kinds.NODECLAIMS, name)


def test_an_instance_whose_nodeclaim_is_gone_is_terminated(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(1)
        await world.stop()
        (claim,) = await world.list(kinds.NODECLAIMS)
        await _take_away(world, claim)
        world.start()
        await asyncio.sleep(2 * PERIOD_S + 90)
        assert not [m for m in world.cloud.standing() if m.provider_id == claim["status"]["providerID"]]

    run_scenario(scenario)


def test_an_instance_of_one_nodeclaim_is_never_used_by_another(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        claim = await _one_nodeclaim(world)
        (instance,) = world.cloud.standing()
        metadata = {key: claim["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
        body = {**claim, "metadata": {"name": "default-other", **metadata}, "status": {}}
        other = await world.kube.create(kinds.NODECLAIMS, body)
        # The cloud's state is wrong: it says that the instance was launched for the new NodeClaim.
        world.cloud.adopt([msgspec.structs.replace(instance, claim_uid=other["metadata"]["uid"])])
        world.start()

        async def gone() -> bool:
            return "default-other" not in {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}

        await world.until(gone, within=900, step=5)
        assert [instance.provider_id for instance in world.cloud.standing()] == [claim["status"]["providerID"]]
        assert world.cloud.sold == 1

    run_scenario(scenario)


def test_a_second_instance_of_a_nodeclaim_is_terminated(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        claim = await _one_nodeclaim(world)
        (first,) = world.cloud.standing()
        second = msgspec.structs.replace(first, provider_id=f"{first.provider_id}2")
        world.cloud.adopt([second])
        world.start()

        async def alone() -> bool:
            return [instance.provider_id for instance in world.cloud.standing()] == [claim["status"]["providerID"]]

        await world.until(alone, within=PERIOD_S)

    run_scenario(scenario)


def test_a_fleet_that_lost_all_its_nodeclaims_is_kept_for_an_hour(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(3, cpu="1500m")
        await world.stop()
        for claim in await world.list(kinds.NODECLAIMS):
            await _take_away(world, claim)
        before = {instance.provider_id for instance in world.cloud.standing()}
        assert len(before) == 3
        world.start()
        await asyncio.sleep(MANY_ORPHANS_AGE_S - 60)
        assert before <= {instance.provider_id for instance in world.cloud.standing()}
        assert {each["code"] for each in world.logged("keeping instances without a NodeClaim")} == {"MANY_ORPHANS"}
        await asyncio.sleep(2 * PERIOD_S + 60)
        assert not before & {instance.provider_id for instance in world.cloud.standing()}
        ends = [decision for decision in world.autoscaler.decision_history.about("default") if decision.kind == "end"]
        assert {each.subject for each in ends if each.reason == "garbage_collected"} == before
        # The lab's own invariant gives an orphan ten minutes: here another actor removed the NodeClaims.
        assert world.invariants.violations and all(each.startswith("I4") for each in world.invariants.violations)
        world.invariants.violations.clear()

    run_scenario(scenario)


def test_a_nodeclaim_whose_instance_vanished_is_deleted(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(1)
        await asyncio.sleep(5)
        (claim,) = await world.list(kinds.NODECLAIMS)
        (node,) = await world.list(kinds.NODES)
        await world.kube.patch(kinds.NODES, node["metadata"]["name"], {"metadata": {"finalizers": None}})
        world.cloud.vanish(claim["status"]["providerID"])

        async def gone() -> bool:
            names = {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}
            return claim["metadata"]["name"] not in names

        await world.until(gone, within=3 * PERIOD_S)

    run_scenario(scenario)


def test_a_nodeclaim_whose_instance_vanished_before_it_joined_is_deleted_despite_restarts(
    run_scenario: RunScenario,
) -> None:
    """The doubt is about instances launched lately; it does not begin again with every process."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        world.start()
        await world.pods(1)
        await asyncio.sleep(30)
        (claim,) = await world.list(kinds.NODECLAIMS)
        world.cloud.vanish(claim["status"]["providerID"])
        for _ in range(4):
            await world.stop()
            world.start()
            await asyncio.sleep(100)
        names = {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}
        assert claim["metadata"]["name"] not in names

    run_scenario(scenario, market=SimulatedMarket(never_joins=1.0))


@pytest.mark.parametrize("sold", [True, False])
def test_a_simulated_cloud_that_lost_its_state_recovers_its_instances_from_the_cluster(
    run_scenario: RunScenario, sold: bool
) -> None:
    """Also those whose type it no longer offers."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        world.start()
        await world.pods(3, cpu="1500m")
        before = await _settled(world)
        instances = {instance.provider_id for instance in world.cloud.standing()}
        await world.stop()
        gone = {instance.instance_type for instance in world.cloud.standing()}
        types = [each for each in await world.cloud.instance_types({}, {}) if sold or each.name not in gone]
        world.cloud = SimulatedCloud(world.clock, world.chance.child("again"), types)
        fleet = SimulatedKubelets(world.kube, world.cloud, world.clock, world.chance.child("fleet again"))
        await fleet.recover()
        assert {instance.provider_id for instance in world.cloud.standing()} == instances
        world.start()
        assert await _settled(world) == before
        assert world.cloud.sold == 0

    run_scenario(scenario)
