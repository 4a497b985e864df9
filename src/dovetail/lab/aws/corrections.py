"""Everything the lab changes about moto, in one list.

Each correction replaces one method of moto by one that answers as AWS does. They are put in once, for
the life of the process: `install` may be called again with another market.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.clock import wall
from dovetail.lab.aws import fleet
from dovetail.lab.aws.market import Market
from dovetail.lab.aws.reservations import Book

_shop: tuple[Market, Book] | None = None


def install(market: Market, book: Book) -> None:
    """Correct moto; the market decides what can be had and at what price, the book what is reserved."""
    global _shop
    first = _shop is None
    _shop = (market, book)
    if first:
        _correct()


def _open_shop() -> tuple[Market, Book]:
    assert _shop is not None, "corrections.install comes first"
    return _shop


def _selling() -> Market:
    return _open_shop()[0]


def _correct() -> None:
    from moto.core.responses import ActionResult
    from moto.ec2.models.instances import Instance
    from moto.ec2.responses.fleets import Fleets
    from moto.ec2.responses.instances import InstanceResponse
    from moto.ec2.responses.spot_instances import SpotInstances

    plain_fleet: Callable[[Any], Any] = Fleets.create_fleet
    plain_describe: Callable[[Any], Any] = InstanceResponse.describe_instances
    plain_types: Callable[[Any], Any] = InstanceResponse.describe_instance_types

    def create_fleet(self: Any) -> Any:
        if self._get_param("Type") != "instant":
            return plain_fleet(self)
        self.error_on_dryrun()
        names = ("LaunchTemplateConfigs", "TargetCapacitySpecification", "TagSpecifications", "ClientToken")
        asked = {name: self._get_param(name) for name in names}
        return ActionResult(fleet.create(self.ec2_backend, *_open_shop(), asked))

    def describe_instance_types(self: Any) -> Any:
        """Only what the region sells; moto shows every type everywhere."""
        answer = plain_types(self)
        named = self._get_param("InstanceTypes", [])
        if not named:
            answer.result["InstanceTypes"] = [
                t for t in answer.result["InstanceTypes"] if _selling().sells(t["InstanceType"])
            ]
        return answer

    def describe_spot_price_history(self: Any) -> Any:
        wanted = self._get_param("InstanceTypes", [])
        rows = self.ec2_backend.describe_spot_price_history(wanted, self._filters_from_querystring())
        now = wall().strftime("%Y-%m-%dT%H:%M:%S.000Z")
        history = []
        for row in rows:
            if not _selling().sells(row["InstanceType"]):
                continue
            price = _selling().spot(row["InstanceType"], row["Location"])
            if price is not None:
                history.append({
                    "InstanceType": row["InstanceType"], "AvailabilityZone": row["Location"], "Timestamp": now,
                    "ProductDescription": "Linux/UNIX", "SpotPrice": f"{price:.6f}",
                })
        return ActionResult({"SpotPriceHistory": history})

    def describe_instances(self: Any) -> Any:
        # moto lets the last of two filters of one name win; EC2 wants both.
        filters: dict[str, list[str]] = {}
        keys: list[list[str]] = []
        for entry in self._get_param("Filters", []):
            if entry["Name"] == "tag-key":
                keys.append(entry["Values"])
            filters[entry["Name"]] = entry["Values"]
        answer = plain_describe(self)
        if len(keys) > 1:
            for reservation in answer.result["Reservations"]:
                reservation.instances[:] = [
                    i for i in reservation.instances
                    if all(any(tag["key"] in values for tag in i.get_tags()) for values in keys)
                ]
        return answer

    def private_dns(self: Any) -> str:
        address = str(self.private_ip).replace(".", "-")
        region = self.region_name
        return f"ip-{address}.ec2.internal" if region == "us-east-1" else f"ip-{address}.{region}.compute.internal"

    Fleets.create_fleet = create_fleet
    SpotInstances.describe_spot_price_history = describe_spot_price_history
    InstanceResponse.describe_instances = describe_instances
    InstanceResponse.describe_instance_types = describe_instance_types
    Instance.private_dns = property(private_dns)
    Instance.private_dns_name = property(private_dns)
    Instance.spot_instance_request_id = None
    Instance.capacity_reservation_id = None
    Instance.capacity_reservation_specification = None
