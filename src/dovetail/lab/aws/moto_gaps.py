"""Services and calls that moto lacks, answered before it is asked: prices, access entries, reservations, groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.instance_type_info import InstanceTypeSpec
from dovetail.lab.aws.access_entries import AccessEntries
from dovetail.lab.aws.capacity_reservations import Book
from dovetail.lab.aws.http_forms import Answer, Environ
from dovetail.lab.aws.http_forms import body_of as _body
from dovetail.lab.aws.injected_errors import InjectedErrors
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.placement_groups import LabPlacementGroups

StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]

_PAGE = 100


class Front:
    """A WSGI application around moto's."""

    def __init__(
        self, inner: Wsgi, market: LabOfferings, book: Book, groups: LabPlacementGroups, trouble: InjectedErrors
    ) -> None:
        self._inner = inner
        self._market = market
        self._book = book
        self._groups = groups
        self.access = AccessEntries()
        self.entries = self.access.entries
        #: Parts of AWS that answer their own requests, asked in turn.
        self.services: list[Callable[[Environ], Answer | None]] = [
            trouble.answer,
            self._prices,
            self.access.answer,
            self._ec2,
        ]
        self._written: dict[tuple[str, bytes], tuple[Any, Any, bytes]] = {}

    def __call__(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        answers = (service(environ) for service in self.services)
        answer = next((answer for answer in answers if answer is not None), None)
        if answer is None:
            return self._remembered(environ, start)
        status, kind, body = answer
        start(
            f"{status} {'OK' if status < 300 else 'Error'}",
            [("Content-Type", kind), ("Content-Length", str(len(body)))],
        )
        return [body]

    def _remembered(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        """What never changes and takes seconds to write out is written out once."""
        body = _body(environ)
        if b"Action=DescribeInstanceTypes&" not in body or b"InstanceType.1" in body:
            return self._inner(environ, start)
        key = (self._market.region, body)
        if key not in self._written:
            kept: list[Any] = []
            content = b"".join(self._inner(environ, lambda *head, **more: kept.extend(head)))
            self._written[key] = (kept[0], kept[1], content)
        status, headers, content = self._written[key]
        start(status, headers)
        return [content]

    def _prices(self, environ: Environ) -> Answer | None:
        if environ.get("HTTP_X_AMZ_TARGET") != "AWSPriceListService.GetProducts":
            return None
        price_request = json.loads(_body(environ) or b"{}")
        attributes = {f["Field"]: f["Value"] for f in price_request.get("Filters", ())}
        metal = "metal" in attributes.get("productFamily", "")
        region = attributes.get("regionCode", self._market.region)
        rows = [
            _product(spec, region, quote[0])
            for spec in catalog.specs().values()
            if spec.bare_metal == metal and (quote := catalog.on_demand(region, spec.name))
        ]
        start = int(price_request.get("NextToken") or 0)
        page: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": rows[start : start + _PAGE]}
        if start + _PAGE < len(rows):
            page["NextToken"] = str(start + _PAGE)
        return 200, "application/x-amz-json-1.1", json.dumps(page).encode()

    def _ec2(self, environ: Environ) -> Answer | None:
        """Capacity reservations and placement groups."""
        if environ.get("REQUEST_METHOD") != "POST" or "form" not in environ.get("CONTENT_TYPE", ""):
            return None
        return self._book.answer(environ) or self._groups.answer(environ)


def _product(spec: InstanceTypeSpec, region: str, dollars: float) -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{dollars:.10f}"}}
    return json.dumps(
        {
            "product": {
                "productFamily": "Compute Instance (bare metal)" if spec.bare_metal else "Compute Instance",
                "attributes": {"instanceType": spec.name, "regionCode": region, "operatingSystem": "Linux"},
            },
            "terms": {"OnDemand": {f"{spec.name}.list": {"priceDimensions": {f"{spec.name}.list.hour": dimension}}}},
        }
    )
