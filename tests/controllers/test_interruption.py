"""Interrupted instances: their nodes are drained at once, and their offering is unavailable for a while."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.kube import resources as kinds
from dovetail.model.labels import RESERVATION
from tests.controllers.conftest import types
from tests.controllers.test_termination_and_disruption import Tell, gone, running


def test_the_node_of_an_interrupted_instance_is_drained_within_seconds(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await running(world, 2)
        (machine,) = world.cloud.standing()
        world.cloud.interrupt([machine.provider_id.rsplit("/", 1)[-1], "i-unknown"])
        world.cloud.interrupt([machine.provider_id.rsplit("/", 1)[-1]])

        async def draining() -> bool:
            return any(each["metadata"].get("deletionTimestamp") for each in await world.list(kinds.NODES))

        assert await world.until(draining, within=30) <= 5

    tell(story)


def test_an_interrupted_offering_is_unavailable_for_a_while(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await running(world, 2)
        (machine,) = world.cloud.standing()
        world.cloud.interrupt([machine.provider_id], "reservation-interruption")
        await asyncio.sleep(5)
        assert world.cloud.unavailable.has(machine.instance_type, machine.zone, "reserved")
        assert not world.cloud.unavailable.has(machine.instance_type, machine.zone, "spot")

    tell(story)


def test_of_reserved_offerings_only_the_interrupted_reservation_is_unavailable(tell: Tell) -> None:
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

    async def story(world: Any) -> None:
        kind = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]}
        await running(world, 1, requirements=[kind])
        (machine,) = world.cloud.standing()
        assert machine.labels[RESERVATION] == "cr-1"
        world.cloud.interrupt([machine.provider_id], "reservation-interruption")
        await world.until(lambda: gone(world), within=60)
        await world.pods(1, prefix="q")
        await world.until(world.all_bound)
        assert [each.labels[RESERVATION] for each in world.cloud.standing()] == ["cr-2"]

    tell(story, sold=sold)
