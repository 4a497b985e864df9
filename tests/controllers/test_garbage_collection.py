"""Garbage collection needs evidence: a NodeClaim whose Node is Ready is not collected for what a cloud leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.cloud.provider import Instance, InstanceNotFound
from dovetail.controllers.nodeclaim.garbage_collection import LISTED_AFTER_S, PERIOD_S
from dovetail.controllers.safemode import SafeModeCause
from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]
STILL = {"consolidateAfter": "Never"}
HOUR_S = 3600.0


async def _names(world: Any, kind: kinds.Resource) -> set[str]:
    return {each["metadata"]["name"] for each in await world.list(kind)}


async def _initialized(world: Any) -> bool:
    claims = [await world.conditions(claim) for claim in await world.list(kinds.NODECLAIMS)]
    return bool(claims) and all(claim.get("Initialized", "").startswith("True") for claim in claims)


@pytest.mark.parametrize("nodes", [1, 2, 3, 12])
def test_ready_nodes_outlive_a_cloud_that_lists_no_instances(run_scenario: RunScenario, nodes: int) -> None:
    """Credentials of another account or region see no instance: an hour of that deletes no NodeClaim and no Node."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(nodes, cpu="1500m")
        await world.until(lambda: _initialized(world))
        claims, bound = await _names(world, kinds.NODECLAIMS), await world.bound()
        assert len(claims) == nodes
        world.cloud.err("empty-instances", HOUR_S)
        looks = world.cloud.calls["instances"]
        await asyncio.sleep(HOUR_S)
        assert world.cloud.calls["instances"] - looks >= HOUR_S / PERIOD_S / 2
        assert await _names(world, kinds.NODECLAIMS) == claims
        assert await world.bound() == bound
        assert len(world.cloud.standing()) == nodes

    run_scenario(scenario, only=("m.large",))


def test_safe_mode_stands_while_the_cloud_leaves_out_many_nodeclaims_and_ends_when_it_lists_them(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(3, cpu="1500m")
        await world.until(lambda: _initialized(world))
        await asyncio.sleep(2 * PERIOD_S)
        scaler = world.autoscaler
        assert not scaler.safety.safe_mode
        world.cloud.err("empty-instances", 2 * PERIOD_S)
        await asyncio.sleep(PERIOD_S + 10)
        why = scaler.safety.causes()[SafeModeCause.CLOUD_EMPTY]
        assert "3 of 3 NodeClaims" in why and "region, account and role" in why
        assert scaler.remarks() == [f"safe mode, cloud-empty: {why}"]
        assert b'dovetail_safe_mode{cause="cloud-empty"} 1.0' in scaler.metrics.text()
        assert [line["cause"] for line in world.logged("entering safe mode, voluntary disruption stops")] == [
            "cloud-empty"
        ]
        events = [event["message"] for event in await world.list(kinds.CORE_EVENTS) if event["reason"] == "SafeMode"]
        assert any("cloud-empty" in message for message in events)
        await asyncio.sleep(2 * PERIOD_S)
        assert not scaler.safety.safe_mode
        assert b'dovetail_safe_mode{cause="cloud-empty"} 0.0' in scaler.metrics.text()

    run_scenario(scenario, only=("m.large",))


def test_many_nodeclaims_left_out_are_not_collected_though_their_nodes_are_not_ready(run_scenario: RunScenario) -> None:
    """A network partition and a wrong role at once: what is not described as terminated may be running."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(4, cpu="1500m")
        await world.until(lambda: _initialized(world))
        claims = await _names(world, kinds.NODECLAIMS)
        world.cloud.err("empty-instances", HOUR_S)
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        for name in await _names(world, kinds.NODES):
            body = {"status": {"conditions": [lost]}}
            await world.kube.patch(kinds.NODES, name, body, subresource="status", kind="strategic")
        await asyncio.sleep(LISTED_AFTER_S + 2 * PERIOD_S)
        assert SafeModeCause.CLOUD_EMPTY in world.autoscaler.safety.causes()
        assert await _names(world, kinds.NODECLAIMS) == claims

    run_scenario(scenario, only=("m.large",))


def test_nodeclaims_of_instances_described_as_terminated_are_collected_however_many(run_scenario: RunScenario) -> None:
    """A zone that fails ends many instances at once, and the cloud says so: that is evidence."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(4, cpu="1500m")
        await world.until(lambda: _initialized(world))
        for instance in world.cloud.standing():
            world.cloud.vanish(instance.provider_id)
        claims = await _names(world, kinds.NODECLAIMS)
        await asyncio.sleep(5 * PERIOD_S)
        assert not claims & await _names(world, kinds.NODECLAIMS)
        assert not world.logged("entering safe mode, voluntary disruption stops")

    run_scenario(scenario, only=("m.large",))


def test_one_nodeclaim_that_is_left_out_and_not_ready_is_collected(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(3, cpu="1500m")
        await world.until(lambda: _initialized(world))
        gone = world.cloud.standing()[0]
        world.cloud.vanish(gone.provider_id)
        world.cloud._terminated.clear()
        await asyncio.sleep(5 * PERIOD_S)
        left = {claim["status"]["providerID"] for claim in await world.list(kinds.NODECLAIMS)}
        assert len(left) >= 2 and gone.provider_id not in left
        assert not world.autoscaler.safety.safe_mode

    run_scenario(scenario, only=("m.large",))


def test_a_nodeclaim_that_only_the_list_left_out_is_not_missing(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(6, cpu="1500m")
        await world.until(lambda: _initialized(world))
        claims = await _names(world, kinds.NODECLAIMS)
        world.cloud.err("half-instances", HOUR_S)
        await asyncio.sleep(HOUR_S)
        assert not world.autoscaler.safety.safe_mode
        assert await _names(world, kinds.NODECLAIMS) == claims
        instance: Instance = world.cloud.standing()[0]
        with pytest.raises(InstanceNotFound) as nothing:
            await world.cloud.get("simulated:///a/i-never")
        assert nothing.value.why == "" and (await world.cloud.get(instance.provider_id)) == instance

    run_scenario(scenario, only=("m.large",))


def test_nodeclaims_that_are_left_out_are_asked_for_together(run_scenario: RunScenario) -> None:
    """One after the other, 5,000 NodeClaims in a foreign account would be 5,000 calls in every look."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(12, cpu="1500m")
        await world.until(lambda: _initialized(world))
        asked_at: list[float] = []

        async def get(provider_id: str) -> Instance:
            asked_at.append(world.clock.monotonic())
            await asyncio.sleep(1.0)
            raise InstanceNotFound(provider_id)

        world.cloud.get = get
        world.cloud.err("empty-instances", HOUR_S)
        await asyncio.sleep(PERIOD_S + 10)
        looks = {moment: asked_at.count(moment) for moment in asked_at}
        assert looks and set(looks.values()) == {12}

    run_scenario(scenario, only=("m.large",))
