"""Capacity reservations over real HTTP: selected, counted, used, used up, ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.clock import wall
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import InsufficientCapacity
from dovetail.model.instance_type import Offering
from tests.cloud.aws.conftest import Account

ZONE = "ap-northeast-2a"
TERMS = [{"tags": {"team": "shop"}}]
ID = "karpenter.k8s.aws/capacity-reservation-id"
TYPE = "karpenter.k8s.aws/capacity-reservation-type"


async def _reserved(aws: Aws, node_class: dict[str, Any], name: str = "m5.large") -> list[Offering]:
    types = {t.name: t for t in await aws.instance_types({}, node_class)}
    return [o for o in types[name].offerings if o.capacity_type == "reserved"]


def test_a_reservation_is_an_offering_with_a_count_that_launches_use_up_and_terminations_give_back(
    account: Account,
) -> None:
    held = account.endpoint.book.put("m5.large", ZONE, 2, tags={"team": "shop"})
    account.endpoint.book.put("m5.large", ZONE, 9, tags={"team": "other"})

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, capacityReservationSelectorTerms=TERMS)
        (shown,) = node_class["status"]["capacityReservations"]
        assert (shown["id"], shown["state"], shown["reservationType"]) == (held.id, "active", "default")
        (offering,) = await _reserved(aws, node_class)
        assert (offering.reservation_capacity, offering.zone, offering.available) == (2, ZONE, True)
        assert offering.price is not None and offering.price < 1e-6
        launched = [
            await aws.launch(await account.order(aws, f"r-{n}", node_class, "m5.large", kind="any")) for n in range(2)
        ]
        assert {m.capacity_type for m in launched} == {"reserved"}
        assert {m.labels[ID] for m in launched} == {held.id} and launched[0].labels[TYPE] == "default"
        read = await aws.get(launched[0].provider_id)
        assert (read.capacity_type, read.labels[ID]) == ("reserved", held.id)
        (offering,) = await _reserved(aws, node_class)
        assert (offering.reservation_capacity, offering.available) == (0, True)
        await aws.terminate(launched[0].provider_id)
        (offering,) = await _reserved(aws, node_class)
        assert offering.reservation_capacity == 1

    account.run(talk)


def test_instances_launched_otherwise_leave_open_reservations_alone(account: Account) -> None:
    held = account.endpoint.book.put("m5.large", ZONE, 2)

    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "r-10", await account.ready(aws), "m5.large", kind="on-demand")
        assert (await aws.launch(order)).capacity_type == "on-demand"
        rows = await aws.calls.all("ec2", "describe_capacity_reservations", "CapacityReservations")
        assert [(r["CapacityReservationId"], r["AvailableInstanceCount"]) for r in rows] == [(held.id, 2)]

    account.run(talk)


def test_with_the_gate_closed_on_demand_instances_may_fill_open_reservations(account: Account) -> None:
    """Karpenter leaves it to EC2 then: an open reservation would lie idle beside on-demand instances otherwise."""

    async def talk(plain: Aws) -> None:
        aws = Aws(msgspec.structs.replace(plain._settings, reserved_capacity=False), plain._clock, plain.calls)
        account.endpoint.book.put("m5.large", ZONE, 1, tags={"team": "shop"})
        node_class = await account.ready(aws, capacityReservationSelectorTerms=TERMS)
        types = await aws.instance_types({}, node_class)
        assert types and not [o for t in types for o in t.offerings if o.capacity_type == "reserved"]
        assert not node_class["status"].get("capacityReservations")
        await aws.launch(await account.order(aws, "r-open", node_class, "m5.large", kind="on-demand"))
        templates = account.endpoint.backend("ec2").launch_templates.values()
        written = [each.get_version("$Latest").data for each in templates]
        (data,) = [d for d in written if "CapacityReservationSpecification" not in d and d.get("IamInstanceProfile")]
        assert data["ImageId"]

    account.run(talk)


def test_a_reservation_that_others_used_up_is_refused_once_and_then_known_to_be_full(account: Account) -> None:
    held = account.endpoint.book.put("m5.large", ZONE, 1, tags={"team": "shop"})

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, capacityReservationSelectorTerms=TERMS)
        first = await account.order(aws, "r-20", node_class, "m5.large", kind="reserved")
        account.endpoint.book.put("m5.large", ZONE, 0, id=held.id, tags={"team": "shop"})
        with pytest.raises(InsufficientCapacity, match="RESERVATION_FULL"):
            await aws.launch(first)
        (offering,) = await _reserved(aws, node_class)
        assert offering.reservation_capacity == 0

    account.run(talk)


def test_a_capacity_block_is_launched_on_its_market_and_not_started_upon_in_its_last_minutes(account: Account) -> None:
    long, short = wall() + timedelta(hours=6), wall() + timedelta(minutes=30)
    book = account.endpoint.book
    block = book.put("m5.large", ZONE, 1, tags={"team": "shop"}, kind="capacity-block", end=long)
    book.put("c5.large", ZONE, 1, tags={"team": "shop"}, kind="capacity-block", end=short)

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, capacityReservationSelectorTerms=TERMS)
        states = {r["instanceType"]: r["state"] for r in node_class["status"]["capacityReservations"]}
        assert states == {"m5.large": "active", "c5.large": "expiring"}
        (ending,) = await _reserved(aws, node_class, "c5.large")
        assert not ending.available
        order = await account.order(aws, "r-30", node_class, "m5.large", "c5.large", kind="reserved")
        launched = await aws.launch(order)
        assert (launched.labels[ID], launched.labels[TYPE]) == (block.id, "capacity-block")
        backend = account.endpoint.backend("ec2")
        (data,) = [
            data
            for template in backend.launch_templates.values()
            if "InstanceMarketOptions" in (data := template.get_version("$Latest").data)
        ]
        assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
        assert data["CapacityReservationSpecification"]["CapacityReservationTarget"] == {
            "CapacityReservationId": block.id
        }

    account.run(talk)


def test_an_instance_whose_reservation_is_no_longer_selected_drifts_and_one_that_lost_it_is_on_demand(
    account: Account,
) -> None:
    account.endpoint.book.put("m5.large", ZONE, 1, tags={"team": "shop"})

    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws, capacityReservationSelectorTerms=TERMS)
        launched = await aws.launch(await account.order(aws, "r-40", node_class, "m5.large", kind="reserved"))
        instance = await aws.get(launched.provider_id)
        claim = {"metadata": {"name": "c", "labels": dict(launched.labels)}}
        assert await aws.drift(claim, instance, node_class) is None
        status = node_class["status"]
        without = {key: value for key, value in status.items() if key != "capacityReservations"}
        assert await aws.drift(claim, instance, node_class | {"status": without}) is None, (
            "nothing said, nothing drifts"
        )
        other = status | {"capacityReservations": []}
        assert await aws.drift(claim, instance, node_class | {"status": other}) == "CapacityReservationDrift"
        (converted,) = [i for i in account.endpoint.instances() if i.id == launched.provider_id.rsplit("/", 1)[-1]]
        converted.capacity_reservation_id = None  # the reservation ended; the instance runs on, at the usual price
        assert (await aws.get(launched.provider_id)).capacity_type == "on-demand"

    account.run(talk)


def test_reservations_are_made_and_cancelled_with_the_usual_calls(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        made = await aws.calls(
            "ec2",
            "create_capacity_reservation",
            InstanceType="m5.large",
            InstancePlatform="Linux/UNIX",
            AvailabilityZone=ZONE,
            InstanceCount=3,
            InstanceMatchCriteria="targeted",
            TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": [{"Key": "team", "Value": "shop"}]}],
        )
        name = made["CapacityReservation"]["CapacityReservationId"]
        for terms in ([{"id": name}], [{"instanceMatchCriteria": "targeted"}], [{"tags": {"team": "*"}}], TERMS):
            (found,) = await aws._reservations.select(terms)
            assert (found.id, found.free, found.criteria) == (name, 3, "targeted")
        assert await aws._reservations.select([{"ownerID": "000000000000", "tags": {"team": "*"}}]) == ()
        await aws.calls("ec2", "cancel_capacity_reservation", CapacityReservationId=name)
        aws._reservations._found.forget()
        assert await aws._reservations.select(TERMS) == ()

    account.run(talk)
