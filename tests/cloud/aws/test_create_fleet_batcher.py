"""Equal purchases in one call: who shares a call, whose instance is which, and that no life launches twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dovetail.clock import EPOCH, run_virtual
from dovetail.cloud.aws.client import TRIES
from dovetail.cloud.aws.create_fleet import FleetInstance, RefusedOffering
from dovetail.cloud.aws.create_fleet_batcher import (
    LONGEST_TAG,
    MOST_TAGS,
    Attempts,
    FleetBatcher,
    Order,
    OrderResult,
    order_of_instance,
    orders_of,
    tags_of,
)
from dovetail.cloud.aws.instances import with_owners
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError, Instance, InsufficientCapacity, LaunchRequest
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account

UID = "1f7a7a3c-0d4f-4e2e-9d0b-6a1d7c0f8{:03}"


def _orders(count: int) -> list[Order]:
    return [Order(UID.format(number), f"default-{number:05}") for number in range(count)]


def test_the_claims_of_a_call_are_read_back_from_its_tags() -> None:
    tags = tags_of(_orders(17))
    assert tags and all(len(value) <= LONGEST_TAG for value in tags.values())
    assert orders_of(tags | {"Name": "x"}) == tuple(_orders(17))
    assert orders_of({"Name": "x"}) == ()


def test_dealing_goes_by_id_and_uid_any_caller_deals_and_in_which_order() -> None:
    assert order_of_instance(["i-3", "i-1"], reversed(_orders(3))) == {"i-1": _orders(3)[0], "i-3": _orders(3)[1]}


def _node(provider_id: str, tags: dict[str, str], uid: str | None = None) -> Instance:
    return Instance(
        provider_id=provider_id,
        instance_type="m5.large",
        zone="",
        capacity_type="spot",
        image_id="",
        capacity={},
        allocatable={},
        labels={},
        created=EPOCH,
        claim_uid=uid,
        claim_name=None,
        node_pool="default",
        tags=tags,
    )


def test_instances_read_back_are_dealt_as_their_buyer_dealt_them_in_whatever_zone_they_are() -> None:
    first, second, third = _orders(3)
    tags = tags_of([first, second, third])
    found = with_owners(
        [
            _node("aws:///b/i-1", tags),
            _node("aws:///a/i-3", tags),
            _node("aws:///a/i-2", tags, second.uid),
            _node("aws:///a/i-9", {}),
        ]
    )
    assert [each.claim_uid for each in found] == [first.uid, third.uid, second.uid, None]


def test_a_token_depends_on_the_claims_the_request_and_what_ec2_refused() -> None:
    one, two, three = _orders(3)
    attempts = Attempts()
    first = attempts.token([one, two], {"a": 1})
    assert first == attempts.token([two, one], {"a": 1}) and len(first) <= 64
    assert len({first, attempts.token([one, three], {"a": 1}), attempts.token([one, two], {"a": 2})}) == 3
    attempts.refused([two])
    second = attempts.token([one, two], {"a": 1})
    assert second != first and attempts.token([one], {"a": 1}) == Attempts().token([one], {"a": 1})
    attempts.launched(two)
    assert attempts.token([one, two], {"a": 1}) == first


class Shop:
    """Sells up to `stock` instances and remembers who came together."""

    def __init__(self, stock: int = 1000) -> None:
        self.stock = stock
        self.calls: list[list[Order]] = []

    async def __call__(self, orders: Sequence[Order]) -> tuple[list[FleetInstance], tuple[RefusedOffering, ...]]:
        self.calls.append(list(orders))
        call = len(self.calls)
        await asyncio.sleep(0.3)
        count = min(self.stock, len(orders))
        self.stock -= count
        refusal = RefusedOffering("InsufficientInstanceCapacity", "none left", ("m5.large", "a", "spot"))
        found = [FleetInstance(f"i-{call}-{n:02}", "m5.large", "a", "ami", "subnet") for n in range(count)]
        return found, () if count == len(orders) else (refusal,)


def _launched_by_claim(shop: Shop, goods: Sequence[bytes], orders: Sequence[Order]) -> list[OrderResult]:
    async def main() -> list[OrderResult]:
        joint = FleetBatcher()
        return await asyncio.gather(
            *(joint.order(good, order, shop) for good, order in zip(goods, orders, strict=True))
        )

    return run_virtual(main())


def test_equal_orders_share_a_call_and_others_do_not() -> None:
    shop = Shop()
    sales = _launched_by_claim(shop, [b"a", b"a", b"b", b"a"], _orders(4))
    assert sorted(len(call) for call in shop.calls) == [1, 3]
    assert len({sale.launched.instance_id for sale in sales if sale.launched}) == 4


def test_a_call_takes_as_many_as_its_tags_can_name() -> None:
    shop = Shop()
    sales = _launched_by_claim(shop, [b"a"] * 50, _orders(50))
    assert sales and all(sale.launched for sale in sales)
    assert all(len(tags_of(call)) <= MOST_TAGS for call in shop.calls)
    assert len(shop.calls) == 3


def test_any_caller_gets_no_instance_of_a_call_hears_what_was_refused() -> None:
    first, second, third = _launched_by_claim(Shop(stock=2), [b"a"] * 3, _orders(3))
    assert first.launched is not None and second.launched is not None
    assert third.launched is None and third.refusals[0].code == "InsufficientInstanceCapacity"


def test_a_call_that_fails_fails_for_all_who_share_it() -> None:
    async def broken(orders: Sequence[Order]) -> tuple[list[FleetInstance], tuple[RefusedOffering, ...]]:
        raise RuntimeError(f"{len(orders)} orders")

    async def main() -> list[OrderResult | BaseException]:
        joint = FleetBatcher()
        return await asyncio.gather(*(joint.order(b"a", each, broken) for each in _orders(2)), return_exceptions=True)

    assert [str(each) for each in run_virtual(main())] == ["2 orders", "2 orders"]


# -- at AWS


def test_instances_launched_together_are_found_dealt_and_named(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        orders = [await account.order(aws, f"j-{n}", node_class, "m5.large", kind="on-demand") for n in range(4)]
        launched = await asyncio.gather(*(aws.launch(order) for order in orders))
        assert [record.operation for record in account.records].count("create_fleet") == 1
        assert await _whose(aws) == {instance.claim_uid: instance.provider_id for instance in launched}
        await aws.name_instances()
        found = [instance for instance in await aws.instances() if (instance.claim_uid or "").startswith("j-")]
        assert {instance.tags["Name"] for instance in found} == {f"default/claim-j-{n}" for n in range(4)}
        assert {instance.claim_uid: instance.provider_id for instance in found} == await _whose(aws)

    account.run(talk)


async def _whose(aws: Aws, prefix: str = "j-") -> dict[str | None, str]:
    found = await aws.instances()
    return {each.claim_uid: each.provider_id for each in found if (each.claim_uid or "").startswith(prefix)}


def test_another_life_finds_what_was_launched_together_and_launches_nothing(account: Account) -> None:
    async def launch_fleet(aws: Aws) -> list[Instance]:
        node_class = await account.ready(aws)
        orders = [await account.order(aws, f"k-{n}", node_class, "m5.large", kind="on-demand") for n in range(3)]
        return await asyncio.gather(*(aws.launch(order) for order in orders))

    first = {instance.claim_uid: instance.provider_id for instance in account.run(launch_fleet)}
    assert {instance.claim_uid: instance.provider_id for instance in account.run(launch_fleet)} == first


def test_claims_left_without_a_instance_by_a_full_zone_are_reported_so(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        account.endpoint.market.refuse(("*", "*", "*"))
        node_class = await account.ready(aws)
        orders = [await account.order(aws, f"l-{n}", node_class, "m5.large", kind="on-demand") for n in range(2)]
        found = await asyncio.gather(*(aws.launch(order) for order in orders), return_exceptions=True)
        assert found and all(isinstance(each, InsufficientCapacity) for each in found)

    account.run(talk)


def test_a_purchase_whose_answer_was_lost_is_found_before_another_is_made(account: Account) -> None:
    async def orders(aws: Aws) -> list[LaunchRequest]:
        node_class = await account.ready(aws)
        return [await account.order(aws, f"n-{n}", node_class, "m5.large", kind="on-demand") for n in range(2)]

    async def elsewhere(aws: Aws) -> set[str]:
        return {each.provider_id for each in await asyncio.gather(*(aws.launch(o) for o in await orders(aws)))}

    async def talk(aws: Aws) -> None:
        await aws.launch(await account.order(aws, "n-x", await account.ready(aws), "m5.large", kind="on-demand"))
        sold = await asyncio.to_thread(account.run, elsewhere)  # EC2 sold them, and we never heard of it
        account.endpoint.trouble.add(ErrorRule("ec2", "CreateFleet", "InternalError", "oops", times=TRIES, status=500))
        first, second = await orders(aws)
        with pytest.raises(CloudError):
            await aws.launch(first)
        assert {(await aws.launch(each)).provider_id for each in (first, second)} == sold

    account.run(talk)
