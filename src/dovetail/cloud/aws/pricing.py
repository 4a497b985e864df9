"""Prices: what AWS says now, else what the package knows, each with its source and age. Unknown stays unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud import price_estimates
from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.client import Calls

REFRESH = 12 * 3600.0

#: Prices that differ from the packaged list by more than this factor are not believed.
BELIEVABLE = 20.0

_FILTERS = {
    "serviceCode": "AmazonEC2",
    "preInstalledSw": "NA",
    "operatingSystem": "Linux",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_KINDS = (("Shared", "Compute Instance"), ("Dedicated", "Compute Instance (bare metal)"))


class RegionPrice(msgspec.Struct, frozen=True):
    dollars: float
    source: str
    at: datetime | None = None


def endpoint_region(region: str) -> str:
    """The price list answers in four places only."""
    if region.startswith("ap-"):
        return "ap-south-1"
    if region.startswith("cn-"):
        return "cn-northwest-1"
    return "eu-central-1" if region.startswith("eu-") else "us-east-1"


def has_price_list(region: str) -> bool:
    """Whether the price list takes credentials of the region's partition: those of AWS and of China alone."""
    return not region.startswith(("us-gov-", "us-iso", "eu-isoe", "eusc-"))


class Pricing:
    """`on_demand` and `spot` never wait; `refresh` asks AWS and keeps what it had where an answer is empty."""

    def __init__(self, calls: Calls, clock: Clock, *, isolated: bool = False) -> None:
        self._calls = calls
        self._clock = clock
        self._isolated = isolated
        self._on_demand: Mapping[str, RegionPrice] = {}
        self._spot: Mapping[tuple[str, str], RegionPrice] = {}

    def on_demand(self, instance_type: str) -> RegionPrice | None:
        if price := self._on_demand.get(instance_type):
            return price
        packaged = price_estimates.on_demand(self._calls.region, instance_type)
        return RegionPrice(packaged[0], f"catalogue: {packaged[1]}") if packaged else None

    def spot(self, instance_type: str, zone: str) -> RegionPrice | None:
        """Until EC2 has reported spot prices once, an estimate; afterwards a zone without a price has none."""
        if self._spot:
            return self._spot.get((instance_type, zone))
        packaged = price_estimates.on_demand(self._calls.region, instance_type)
        if packaged is None:
            return None
        dollars, source = catalog.spot_estimate(packaged, instance_type)
        return RegionPrice(dollars, f"catalogue: {source}")

    async def refresh(self) -> None:
        await self.refresh_spot()
        await self.refresh_on_demand()

    async def refresh_on_demand(self) -> None:
        """Nothing where the price list cannot be asked: an isolated VPC, GovCloud, the isolated partitions."""
        if self._isolated or not has_price_list(self._calls.region):
            return
        prices: dict[str, RegionPrice] = {}
        for tenancy, family in _KINDS:
            prices |= await self._list(tenancy, family)
        if prices:
            self._on_demand = prices

    async def refresh_spot(self) -> None:
        rows = await self._calls.all(
            "ec2",
            "describe_spot_price_history",
            "SpotPriceHistory",
            StartTime=self._clock.now(),
            ProductDescriptions=["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        )
        newest: dict[tuple[str, str], tuple[datetime, float]] = {}
        for row in rows:
            key = (row["InstanceType"], row["AvailabilityZone"])
            time, dollars = row["Timestamp"], float(row["SpotPrice"])
            if self._believable(key[0], dollars) and (key not in newest or time >= newest[key][0]):
                newest[key] = (time, dollars)
        if newest:
            now = self._clock.now()
            self._spot = {
                key: RegionPrice(dollars, "ec2 spot price history", now) for key, (_, dollars) in newest.items()
            }

    async def _list(self, tenancy: str, family: str) -> dict[str, RegionPrice]:
        search = _FILTERS | {"regionCode": self._calls.region, "tenancy": tenancy, "productFamily": family}
        arguments = {
            "ServiceCode": "AmazonEC2",
            "Filters": [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in search.items()],
        }
        prices: dict[str, RegionPrice] = {}
        now = self._clock.now()
        where = endpoint_region(self._calls.region)
        source = "aws price list, in CNY" if where.startswith("cn-") else "aws price list"
        async for text in self._calls.pages("pricing", "get_products", "PriceList", region=where, **arguments):
            name, dollars = _product(json.loads(text) if isinstance(text, str) else text)
            if name and dollars and self._believable(name, dollars):
                prices[name] = RegionPrice(dollars, source, now)
        return prices

    def _believable(self, instance_type: str, dollars: float) -> bool:
        """A price of nothing, or far from every known one, moves no money."""
        if not 0 < dollars < 1e5:
            return False
        packaged = price_estimates.on_demand(self._calls.region, instance_type)
        return packaged is None or packaged[0] / BELIEVABLE <= dollars <= packaged[0] * BELIEVABLE


def _product(product: Mapping[str, Any]) -> tuple[str, float]:
    name = product.get("product", {}).get("attributes", {}).get("instanceType", "")
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            price = dimension.get("pricePerUnit", {})
            return name, float(price.get("USD") or price.get("CNY") or 0)
    return name, 0.0
