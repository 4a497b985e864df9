"""Addresses: what launches under way and other classes' looks make of them."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.subnets import Network, Subnet, filters

SHARED, OTHER = [{"id": "subnet-1"}], [{"id": "subnet-1"}, {"id": "subnet-2"}]


class _Ec2:
    """Two subnets of 100 addresses each, less those taken."""

    def __init__(self) -> None:
        self.free = {"subnet-1": 100, "subnet-2": 100}

    async def all(self, service: str, operation: str, field: str, Filters: list[dict[str, Any]]) -> list[Any]:
        return [
            {"SubnetId": name, "AvailabilityZone": f"zone-{name}", "AvailableIpAddressCount": self.free[name]}
            for name in Filters[0]["Values"]
        ]


def _network() -> tuple[Network, _Ec2]:
    ec2: Any = _Ec2()
    return Network(ec2, Clock(asyncio.get_running_loop())), ec2


def test_a_look_of_another_class_forgets_no_launch_under_way() -> None:
    async def story() -> None:
        network, _ = _network()
        (subnet,) = await network.subnets(SHARED)
        spoken = network.by_zone((subnet,), 60)
        await network.subnets(OTHER)
        assert network.room(subnet) == 40
        network.finish_launch(spoken, set(), 60)
        assert network.room(subnet) == 100

    run_virtual(story())


def test_what_was_taken_counts_for_every_class_until_one_has_looked_again() -> None:
    async def story() -> None:
        network, ec2 = _network()
        (subnet,) = await network.subnets(SHARED)
        network.finish_launch(network.by_zone((subnet,), 60), {subnet.id}, 60)
        network.exhausted("subnet-2")
        assert network.room(subnet) == 40
        ec2.free["subnet-1"] = 45
        await asyncio.sleep(61)
        await network.subnets(SHARED)
        assert network.room(subnet) == 45, "by a fresh look, though the class that asks holds an older one"
        assert not network.has_addresses(Subnet("subnet-2", "z", "", 100, "")), "no look at it since"

    run_virtual(story())


def test_in_each_zone_the_subnet_with_most_room_is_taken_and_a_full_one_never() -> None:
    async def story() -> None:
        network, _ = _network()
        roomy, tight = Subnet("s-1", "a", "", 50, "v"), Subnet("s-2", "a", "", 40, "v")
        full = Subnet("s-3", "b", "", 0, "v")
        first = network.by_zone((tight, roomy, full), 20)
        assert {zone: subnet.id for zone, subnet in first.items()} == {"a": "s-1"}
        assert network.by_zone((tight, roomy), 20)["a"].id == "s-2"  # 30 are left of the first, 40 of this one
        network.exhausted("s-2")
        network.exhausted("s-1")
        assert network.by_zone((tight, roomy), 20) == {}

    run_virtual(story())


def test_addresses_in_flight_rank_subnets_and_exclude_none() -> None:
    """Fifty instances of 110 pods on one /24: EC2 has an address for each, whatever maxPods predicts."""

    async def story() -> None:
        network, _ = _network()
        subnet = Subnet("s-1", "a", "", 251, "v")
        for _ in range(50):
            assert network.by_zone((subnet,), 110) == {"a": subnet}
        assert network.has_addresses(subnet) and network.room(subnet) < 0

    run_virtual(story())


def test_a_subnet_is_excluded_when_as_many_instances_landed_as_it_had_addresses() -> None:
    async def story() -> None:
        network, ec2 = _network()
        ec2.free["subnet-1"] = 2
        (subnet,) = await network.subnets(SHARED)
        for _ in range(2):
            network.finish_launch(network.by_zone((subnet,), 30), {subnet.id}, 30)
        assert network.by_zone((subnet,), 30) == {}
        ec2.free["subnet-1"] = 1
        await asyncio.sleep(61)
        (subnet,) = await network.subnets(SHARED)
        assert network.by_zone((subnet,), 30) == {subnet.zone: subnet}

    run_virtual(story())


def test_a_comma_is_part_of_a_tags_value() -> None:
    """v1 takes it literally; only the first generation's maps have comma lists, and those become terms of their own."""
    assert filters({"tags": {"owner": "a, b", "team": "*"}}) == [
        {"Name": "tag:owner", "Values": ["a, b"]},
        {"Name": "tag-key", "Values": ["team"]},
    ]
