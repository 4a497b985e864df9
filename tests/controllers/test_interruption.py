"""Interrupted instances: their nodes are drained at once, and their offering is unavailable for a while."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.cloud.provider import CloudError, Remedy
from dovetail.kube import resources as kinds
from dovetail.model.labels import RESERVATION
from tests.controllers.conftest import types
from tests.controllers.test_termination_and_disruption import RunScenario, gone, running


def test_the_node_of_an_interrupted_instance_is_drained_within_seconds(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2)
        (instance,) = world.cloud.standing()
        world.cloud.interrupt([instance.provider_id.rsplit("/", 1)[-1], "i-unknown"])
        world.cloud.interrupt([instance.provider_id.rsplit("/", 1)[-1]])

        async def draining() -> bool:
            return any(node["metadata"].get("deletionTimestamp") for node in await world.list(kinds.NODES))

        assert await world.until(draining, within=30) <= 5

    run_scenario(scenario)


def test_a_missing_queue_is_logged_at_doubling_intervals_and_counted_each_time(run_scenario: RunScenario) -> None:
    """Otherwise a queue that was renamed fills the log with a line every five seconds."""

    async def scenario(world: Any) -> None:
        missing = [True]
        plain = world.cloud.interruptions

        async def interruptions() -> Any:
            if missing:
                raise CloudError("QueueNotFound", "SQS has no queue 'demo'", Remedy.OPERATOR)
            async for batch in plain():
                yield batch

        world.cloud.interruptions = interruptions
        await running(world, 2)
        await asyncio.sleep(3600)

        def failures() -> list[dict[str, Any]]:
            return [line for line in world.logged("Reconciler error") if "SQS has no queue" in line["error"]]

        assert 5 <= len(failures()) <= 8, "after 0, 1, 3, 7, 15, 31 minutes"
        assert failures()[-1]["failures"] > 300
        text = world.autoscaler.metrics.text().decode()
        (counted,) = [line for line in text.splitlines() if line.startswith("dovetail_interruption_queue_failures_t")]
        assert 'reason="QueueNotFound"' in counted and float(counted.rpartition(" ")[2]) > 600
        missing.clear()
        (instance,) = world.cloud.standing()
        world.cloud.interrupt([instance.provider_id])
        await asyncio.sleep(30)
        (answered,) = world.logged("interruption queue answers")
        assert answered["failures"] > 600
        (deleted,) = world.logged("initiating delete from interruption message")
        assert deleted["controller"] == "interruption" and deleted["reconcileID"]

    run_scenario(scenario)


def test_an_interrupted_offering_is_unavailable_for_a_while(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2)
        (instance,) = world.cloud.standing()
        world.cloud.interrupt([instance.provider_id], "reservation-interruption")
        await asyncio.sleep(5)
        assert world.cloud.unavailable.has(instance.instance_type, instance.zone, "reserved")
        assert not world.cloud.unavailable.has(instance.instance_type, instance.zone, "spot")

    run_scenario(scenario)


def test_of_reserved_offerings_only_the_interrupted_reservation_is_unavailable(run_scenario: RunScenario) -> None:
    """The next launch may use another reservation of the same type in the same zone, at once."""
    sold = types("m.large")
    sold[0]["offerings"] = [
        {
            "zone": "a",
            "capacityType": "reserved",
            "price": price,
            "reservationId": name,
            "reservationCapacity": 2,
            "labels": {RESERVATION: name},
        }
        for name, price in (("cr-1", 0.001), ("cr-2", 0.002))
    ]

    async def scenario(world: Any) -> None:
        kind = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]}
        await running(world, 1, requirements=[kind])
        (instance,) = world.cloud.standing()
        assert instance.labels[RESERVATION] == "cr-1"
        world.cloud.interrupt([instance.provider_id], "reservation-interruption")
        await world.until(lambda: gone(world), within=60)
        await world.pods(1, prefix="q")
        await world.until(world.all_bound)
        assert [instance.labels[RESERVATION] for instance in world.cloud.standing()] == ["cr-2"]

    run_scenario(scenario, sold=sold)
