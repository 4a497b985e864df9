"""Addresses: what launches under way and other classes' looks make of them."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.network import Network, Subnet

SHARED, OTHER = [{"id": "subnet-1"}], [{"id": "subnet-1"}, {"id": "subnet-2"}]


class _Ec2:
    """Two subnets of 100 addresses each, as far as anybody has taken some."""

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
        network.landed(spoken, set(), 60)
        assert network.room(subnet) == 100

    run_virtual(story())


def test_what_was_taken_counts_for_every_class_until_one_has_looked_again() -> None:
    async def story() -> None:
        network, ec2 = _network()
        (subnet,) = await network.subnets(SHARED)
        network.landed(network.by_zone((subnet,), 60), {subnet.id}, 60)
        network.exhausted("subnet-2")
        assert network.room(subnet) == 40
        ec2.free["subnet-1"] = 45
        await asyncio.sleep(61)
        await network.subnets(SHARED)
        assert network.room(subnet) == 45, "by a fresh look, though the class that asks holds an older one"
        assert network.room(Subnet("subnet-2", "z", "", 100, "")) < 0, "nobody has looked at it since"

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
