"""The simulated provider keeps its books and obeys its configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.provider import CloudError, InstanceNotFound, InsufficientCapacity, LaunchOption, LaunchRequest
from dovetail.cloud.simulated import catalog_file, config
from dovetail.cloud.simulated.config import PriceCurve, SimulatedMarket, Stock
from dovetail.cloud.simulated.provider import SimulatedCloud

TYPES = [
    {
        "name": name,
        "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "29"},
        "overhead": {"cpu": "100m", "memory": "1Gi"},
        "labels": {"kubernetes.io/arch": ["amd64"]},
        "offerings": [
            {"zone": "a", "capacityType": "on-demand", "price": price},
            {"zone": "a", "capacityType": "spot", "price": price / 2},
            {"zone": "b", "capacityType": "on-demand", "price": None, "available": False},
            {
                "zone": "a",
                "capacityType": "reserved",
                "price": 0.0,
                "reservationId": f"cr-{name}",
                "reservationCapacity": 1,
            },
        ],
    }
    for name, cpu, price in (("small", "2", 0.1), ("big", "8", 0.4))
]


def _run(story: Callable[[SimulatedCloud, Clock], Awaitable[None]], sells: SimulatedMarket | None = None) -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        await story(SimulatedCloud(clock, Chance(1), catalog_file.parse(json.dumps(TYPES).encode()), sells), clock)

    run_virtual(main())


async def _launch(cloud: SimulatedCloud, token: str, *wanted: tuple[str, str, str]) -> Any:
    types = {t.name: t for t in await cloud.instance_types({}, {})}
    options = tuple(
        LaunchOption(
            instance_type=types[name],
            offering=next(o for o in types[name].offerings if (o.zone, o.capacity_type) == (zone, kind)),
        )
        for name, zone, kind in wanted
    )
    claim = {"metadata": {"name": f"claim-{token}", "labels": {"karpenter.sh/nodepool": "default"}}}
    return await cloud.launch(
        LaunchRequest(token=token, claim=claim, node_class={}, options=options, labels={"team": "x"})
    )


SMALL = ("small", "a", "on-demand")


def test_a_repeated_launch_is_the_same_instance() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        first = await _launch(cloud, "t", SMALL)
        again = await _launch(cloud, "t", ("big", "a", "on-demand"))
        assert first == again
        assert cloud.sold == 1
        assert first.labels["topology.kubernetes.io/zone"] == "a"
        assert first.labels["team"] == "x"
        assert first.allocatable["cpu"] == 1900

    _run(story)


def test_an_offering_out_of_stock_is_skipped_remembered_and_forgotten() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        instance = await _launch(cloud, "t", SMALL, ("big", "a", "on-demand"))
        assert instance.instance_type == "big"
        small = (await cloud.instance_types({}, {}))[0]
        assert not small.offerings[0].available
        assert small.offerings[1].available
        await asyncio.sleep(181)
        assert (await cloud.instance_types({}, {}))[0].offerings[0].available

    _run(story, SimulatedMarket(stock=(Stock(instance_type="small", capacity_type="on-demand", instances=0),)))


def test_no_stock_at_all_names_what_was_refused() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        with pytest.raises(InsufficientCapacity) as refusal:
            await _launch(cloud, "t", SMALL)
        assert refusal.value.offerings == (SMALL,)

    _run(story, SimulatedMarket(stock=(Stock(instances=0),)))


def test_a_reservation_is_used_up() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        reserved = ("small", "a", "reserved")
        assert (await _launch(cloud, "one", reserved)).capacity_type == "reserved"
        small = (await cloud.instance_types({}, {}))[0]
        assert small.offerings[3].reservation_capacity == 0
        with pytest.raises(InsufficientCapacity):
            await _launch(cloud, "two", reserved)

    _run(story)


def test_a_terminated_instance_is_gone_after_its_shutdown() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        instance = await _launch(cloud, "t", SMALL)
        await cloud.terminate(instance.provider_id)
        assert (await cloud.get(instance.provider_id)).state == "shutting-down"
        await asyncio.sleep(31)
        with pytest.raises(InstanceNotFound):
            await cloud.terminate(instance.provider_id)
        assert await cloud.instances() == ()

    _run(story, SimulatedMarket(shutdown=30.0))


def test_calls_take_their_time_and_are_throttled() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        await _launch(cloud, "1", SMALL)
        assert clock.monotonic() == pytest.approx(0.5)
        with pytest.raises(CloudError, match="request limit"):
            await _launch(cloud, "2", SMALL)
        await asyncio.sleep(10)
        await _launch(cloud, "2", SMALL)

    _run(story, SimulatedMarket(latency=(0.5, 0.5), launches_per_second=0.1, launch_burst=1))


def test_prices_follow_their_curve() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        assert cloud.price("small", "a", "spot") == pytest.approx(0.05)
        before = await cloud.instance_types({}, {})
        assert await cloud.instance_types({}, {}) is before
        await asyncio.sleep(100)
        assert (await cloud.instance_types({}, {}))[0].offerings[1].price == pytest.approx(0.15)
        assert cloud.price("small", "a", "on-demand") == pytest.approx(0.1)

    _run(story, SimulatedMarket(curves=(PriceCurve(capacity_type="spot", steps=((60.0, 3.0),)),)))


def test_another_curve_of_the_same_steepness_is_another_price() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        first = await cloud.instance_types({}, {})
        assert await cloud.instance_types({}, {}) is first
        cloud.market = SimulatedMarket(curves=(PriceCurve(capacity_type="on-demand", steps=((0.0, 2.0),)),))
        second = await cloud.instance_types({}, {})
        before, after = (
            {o.capacity_type: o.price or 0.0 for o in types[0].offerings if o.zone == "a"} for types in (first, second)
        )
        assert after["spot"] == pytest.approx(before["spot"] / 2)
        assert after["on-demand"] == pytest.approx(before["on-demand"] * 2)

    _run(story, SimulatedMarket(curves=(PriceCurve(capacity_type="spot", steps=((0.0, 2.0),)),)))


def test_spot_instances_are_called_back_with_notice() -> None:
    async def story(cloud: SimulatedCloud, clock: Clock) -> None:
        spot = await _launch(cloud, "s", ("small", "a", "spot"))
        sure = await _launch(cloud, "d", SMALL)
        calling = asyncio.create_task(cloud.call_back_spot())
        async for messages in cloud.interruptions():
            assert messages[0].provider_ids == (spot.provider_id,)
            break
        assert len(cloud.standing()) == 2
        await asyncio.sleep(240)
        assert [m.provider_id for m in cloud.standing()] == [sure.provider_id]
        calling.cancel()

    _run(story, SimulatedMarket(interruptions_per_hour=59.0))


def test_a_market_file_with_an_unknown_field_is_refused() -> None:
    assert config.read("boot: [30, 60]\nstock: [{instanceType: small, instances: 2}]").boot == (30.0, 60.0)
    assert config.read("stock: [{instanceType: small, machines: 2}]").stock[0].instances == 2, "the former key"
    with pytest.raises(config.MarketError, match="machines"):
        config.read("stock: [{instances: 1, machines: 2}]")
    for text, field in ("bootz: 3", "bootz"), ("stock: [{instanceTyp: small}]", "instanceTyp"):
        with pytest.raises(config.MarketError, match=field):
            config.read(text)
