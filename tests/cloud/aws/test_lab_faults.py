"""What the lab's AWS is asked to do wrong reaches the provider in AWS's own words, and ends by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError, Instance, InstanceNotFound
from dovetail.lab.aws.ec2 import Ec2
from dovetail.lab.aws.eventbridge import Bridge
from dovetail.lab.aws.fault_injection import AwsFaults
from dovetail.lab.durations import Seconds
from dovetail.lab.faults.injection import Faults
from dovetail.lab.faults.kinds import InjectedFault, UnknownFault
from tests.cloud.aws.conftest import Account


def _clock() -> Clock:
    return Clock(asyncio.get_running_loop())


def _faults(account: Account, instance: str = "i-1") -> Faults:
    """Faults of a lab with two instances, one of which EC2 knows."""
    seats = {name: SimpleNamespace(registered=True) for name in ("launched", "own")}
    fleet: Any = SimpleNamespace(seats=seats, vanish=seats.pop)
    nothing: Any = None
    instances = Ec2(account.endpoint, account.world, fleet, nothing, Chance(1))
    instances._joined[instance] = "launched"
    found = Faults(fleet, _clock(), Chance(1))
    bridge = Bridge(account.endpoint, account.world.queue, _clock())
    found.handlers |= AwsFaults(account.endpoint, bridge, _clock(), instances, found).kinds
    return found


async def _launched(account: Account, aws: Aws, token: str, kind: str = "on-demand") -> Instance:
    node_class = await account.ready(aws)
    return await aws.launch(await account.order(aws, token, node_class, "c5.large", kind=kind))


async def _mail(aws: Aws) -> list[tuple[str, tuple[str, ...]]]:
    async for batch in aws.interruptions():
        await aws.acknowledge(batch)
        return [(each.kind, each.provider_ids) for each in batch]
    raise AssertionError("the queue ended")


def test_a_instance_that_another_client_ends_is_reported_of_on_the_queue(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        Bridge(account.endpoint, account.world.queue, _clock()).state("i-1", "terminated")
        assert await _mail(aws) == [("instance-terminated", ("i-1",))] * 2

    account.run(talk)


def test_a_spot_instance_is_called_back_by_name(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        assert "i-1" in _faults(account).inject(InjectedFault(kind="spot-interruption", node="launched"))
        assert await _mail(aws) == [("spot-interruption", ("i-1",))]
        with pytest.raises(UnknownFault, match="own is no EC2 instance"):
            _faults(account).inject(InjectedFault(kind="spot-interruption", node="own"))

    account.run(talk)


def test_without_a_node_a_spot_instance_is_interrupted_and_no_other(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        on_demand, spot = await _launched(account, aws, "kept"), await _launched(account, aws, "taken", "spot")
        ids = [instance.provider_id.rsplit("/", 1)[-1] for instance in (on_demand, spot)]
        with pytest.raises(UnknownFault, match="no spot instance runs here; allow spot"):
            _faults(account, ids[0]).inject(InjectedFault(kind="spot-interruption"))
        assert ids[1] in _faults(account, ids[1]).inject(InjectedFault(kind="spot-interruption"))
        assert await _mail(aws) == [("spot-interruption", (ids[1],))]

    account.run(talk)


def test_without_a_node_an_instance_of_a_nodepool_is_struck_before_one_of_a_group(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        instance = (await _launched(account, aws, "pooled")).provider_id.rsplit("/", 1)[-1]
        faults = _faults(account, instance)
        nothing: Any = None
        other = Ec2(account.endpoint, account.world, faults._fleet, nothing, Chance(1))
        other._joined |= {"i-of-a-group": "first-by-name", instance: "launched"}
        bridge = Bridge(account.endpoint, account.world.queue, _clock())
        faults.handlers |= AwsFaults(account.endpoint, bridge, _clock(), other, faults).kinds
        assert "launched" in faults.inject(InjectedFault(kind="status-checks", seconds=Seconds(30)))

    account.run(talk)


def test_a_launched_instance_that_is_gone_has_ended_at_ec2(account: Account) -> None:
    """Else its claim would stay for ever: only EC2 can say that an instance is no more."""

    async def talk(aws: Aws) -> None:
        instance = await _launched(account, aws, "lost")
        faults = _faults(account, instance.provider_id.rsplit("/", 1)[-1])
        assert faults.inject(InjectedFault(kind="instance-gone", node="launched")) == "the instance of launched is gone"
        with pytest.raises(InstanceNotFound):
            await aws.get(instance.provider_id)
        assert faults.inject(InjectedFault(kind="instance-gone", node="own")) == "the instance of own is gone"

    account.run(talk)


def test_a_spot_instance_is_taken_two_minutes_after_it_is_called_back(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        instance = await _launched(account, aws, "called")
        _faults(account, instance.provider_id.rsplit("/", 1)[-1]).inject(
            InjectedFault(kind="spot-interruption", node="launched")
        )
        await asyncio.sleep(110)
        assert (await aws.get(instance.provider_id)).provider_id == instance.provider_id
        await asyncio.sleep(20)
        with pytest.raises(InstanceNotFound):
            await aws.get(instance.provider_id)

    account.run(talk)


def test_a_second_throttling_takes_the_place_of_the_first(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        faults = _faults(account)
        faults.inject(InjectedFault(kind="aws-throttled", amount=1.0, seconds=Seconds(30)))
        faults.inject(InjectedFault(kind="aws-throttled", amount=0.25, seconds=Seconds(30)))
        await asyncio.sleep(31)
        assert account.endpoint.trouble._rules == {}

    account.run(talk)


def test_failed_status_checks_are_found_after_two_minutes_and_heal(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        launched = await _launched(account, aws, "ill")
        instance = launched.provider_id.rsplit("/", 1)[-1]
        account.endpoint.market.impaired[instance] = aws._clock.now() - timedelta(minutes=3)
        (found,) = await aws.unhealthy()
        assert (found.kind, found.provider_ids) == ("status-check-failed", (instance,))
        account.endpoint.market.impaired.clear()
        assert await aws.unhealthy() == ()

    account.run(talk)


def test_refusals_last_as_long_as_they_were_asked_for(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        _faults(account).inject(InjectedFault(kind="aws-denied", seconds=Seconds(30)))
        with pytest.raises(CloudError, match="not authorized"):
            await aws.unhealthy()
        await asyncio.sleep(31)
        assert await aws.unhealthy() == ()
        _faults(account).inject(InjectedFault(kind="sold-out", seconds=Seconds(30)))
        assert account.endpoint.market.refusal("c5.large", "ap-northeast-2a", "spot")
        await asyncio.sleep(31)
        assert account.endpoint.market.refusal("c5.large", "ap-northeast-2a", "spot") is None

    account.run(talk)
