"""Prices: AWS's where it answers with sense, the package's otherwise, each with its source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud import price_estimates
from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.pricing import Pricing, endpoint_region

REGION = "ap-northeast-2"
KNOWN = catalog.on_demand(REGION, "m5.large")
assert KNOWN is not None
DOLLARS = KNOWN[0]


class Aws:
    """Quotes one price for m5.large, on demand and at `spot` (hour, zone, price)."""

    region = REGION

    def __init__(self, dollars: float | None = None, *spot: tuple[int, str, float]) -> None:
        self.dollars = dollars
        self.spot = spot

    async def pages(self, *what: str, **arguments: Any) -> AsyncIterator[str]:
        tenancy = {each["Field"]: each["Value"] for each in arguments["Filters"]}["tenancy"]
        if self.dollars is not None and tenancy == "Shared":
            currency = "CNY" if self.region.startswith("cn-") else "USD"
            price = {"priceDimensions": {"d": {"pricePerUnit": {currency: str(self.dollars)}}}}
            yield json.dumps(
                {"product": {"attributes": {"instanceType": "m5.large"}}, "terms": {"OnDemand": {"t": price}}}
            )

    async def all(self, *what: str, **arguments: Any) -> list[dict[str, Any]]:
        return [
            {
                "InstanceType": "m5.large",
                "AvailabilityZone": zone,
                "SpotPrice": str(dollars),
                "Timestamp": datetime(2026, 1, 1, hour, tzinfo=UTC),
            }
            for hour, zone, dollars in self.spot
        ]


def learnt(aws: Aws) -> Pricing:
    async def main() -> Pricing:
        pricing = Pricing(aws, Clock(asyncio.get_running_loop()))
        await pricing.refresh()
        return pricing

    return run_virtual(main())


@pytest.mark.parametrize(
    ("quoted", "believed"),
    [(DOLLARS * 2, True), (DOLLARS * 19, True), (DOLLARS * 21, False), (DOLLARS / 21, False), (0.0, False)],
)
def test_a_price_far_from_every_known_one_moves_no_money(quoted: float, believed: bool) -> None:
    price = learnt(Aws(quoted)).on_demand("m5.large")
    assert price is not None
    assert price.dollars == pytest.approx(quoted if believed else DOLLARS)
    assert price.source.startswith("aws price list" if believed else "catalogue")


def test_an_empty_answer_leaves_what_is_known() -> None:
    pricing = learnt(Aws())
    price = pricing.on_demand("m5.large")
    assert price is not None and price.dollars == DOLLARS
    assert pricing.on_demand("no.such") is None


def test_spot_is_an_estimate_until_ec2_tells_it_and_then_only_what_it_reported() -> None:
    before = learnt(Aws()).spot("m5.large", "a")
    assert before is not None and "estimated" in before.source
    half = DOLLARS / 2
    reported = learnt(Aws(None, (3, "a", half), (1, "a", half / 2), (1, "b", 1e-5)))
    price = reported.spot("m5.large", "a")
    assert price is not None and price.dollars == half  # the newest
    assert reported.spot("m5.large", "b") is None  # not offered at that price


def test_the_price_list_is_asked_where_it_answers() -> None:
    asked = {name: endpoint_region(name) for name in ("ap-northeast-2", "eu-west-1", "us-west-2", "cn-north-1")}
    assert list(asked.values()) == ["ap-south-1", "eu-central-1", "us-east-1", "cn-northwest-1"]


@pytest.mark.parametrize(
    ("region", "name", "dollars"),
    [("us-gov-west-1", "m5.large", 0.121), ("us-gov-east-1", "c5.large", 0.102), ("cn-north-1", "m5.large", 1.013)],
)
def test_a_region_without_packaged_prices_has_estimates_that_say_so(region: str, name: str, dollars: float) -> None:
    """Without a price no type would be launched there, and GovCloud can never ask for any."""
    aws = Aws()
    aws.region = region
    pricing = learnt(aws)
    price, spot = pricing.on_demand(name), pricing.spot(name, f"{region}a")
    assert price is not None and price.dollars == pytest.approx(dollars, rel=0.02) and "estimated" in price.source
    assert ("CNY" in price.source) is region.startswith("cn-")
    assert spot is not None and spot.dollars < price.dollars
    assert pricing.on_demand("no-such.type") is None


def test_the_price_list_of_china_is_in_yuan() -> None:
    aws = Aws(1.05)
    aws.region = "cn-north-1"
    price = learnt(aws).on_demand("m5.large")
    assert price is not None and (price.dollars, price.source) == (1.05, "aws price list, in CNY")


@pytest.mark.parametrize(("region", "asked"), [("us-gov-west-1", False), ("cn-north-1", True), (REGION, True)])
def test_the_price_list_is_not_asked_with_credentials_that_it_does_not_take(region: str, asked: bool) -> None:
    class Counting(Aws):
        count = 0

        async def pages(self, *what: str, **arguments: Any) -> AsyncIterator[str]:
            self.count += 1
            async for text in super().pages(*what, **arguments):
                yield text

    aws = Counting()
    aws.region = region
    learnt(aws)
    assert bool(aws.count) is asked


def test_a_type_that_the_list_of_a_priced_region_lacks_has_no_price() -> None:
    assert price_estimates.on_demand(REGION, "m5.large") == KNOWN
    only_elsewhere = next(
        name for name in catalog.specs() if catalog.on_demand("us-east-1", name) and not catalog.on_demand(REGION, name)
    )
    assert price_estimates.on_demand(REGION, only_elsewhere) is None
