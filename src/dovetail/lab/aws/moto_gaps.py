"""Services and calls that moto lacks, answered before it is asked: prices, access entries, reservations, groups."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.instance_type_info import Spec
from dovetail.lab.aws.capacity_reservations import Book
from dovetail.lab.aws.http_forms import Answer, Environ
from dovetail.lab.aws.http_forms import body_of as _body
from dovetail.lab.aws.injected_errors import Trouble
from dovetail.lab.aws.offerings import Market
from dovetail.lab.aws.placement_groups import Groups

StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]

_PAGE = 100
_ENTRY = re.compile(r"^/clusters/(?P<cluster>[^/]+)/access-entries(?:/(?P<arn>.+?))?(?P<policies>/access-policies)?$")


class Front:
    """A WSGI application around moto's."""

    def __init__(self, inner: Wsgi, market: Market, book: Book, groups: Groups, trouble: Trouble) -> None:
        self._inner = inner
        self._market = market
        self._book = book
        self._groups = groups
        self.entries: dict[str, dict[str, dict[str, Any]]] = {}
        #: Parts of AWS that answer their own requests, asked in turn.
        self.services: list[Callable[[Environ], Answer | None]] = [
            trouble.answer,
            self._prices,
            self._access,
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
        asked = json.loads(_body(environ) or b"{}")
        wanted = {f["Field"]: f["Value"] for f in asked.get("Filters", ())}
        metal = "metal" in wanted.get("productFamily", "")
        region = wanted.get("regionCode", self._market.region)
        rows = [
            _product(spec, region, quote[0])
            for spec in catalog.specs().values()
            if spec.bare_metal == metal and (quote := catalog.on_demand(region, spec.name))
        ]
        start = int(asked.get("NextToken") or 0)
        page: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": rows[start : start + _PAGE]}
        if start + _PAGE < len(rows):
            page["NextToken"] = str(start + _PAGE)
        return 200, "application/x-amz-json-1.1", json.dumps(page).encode()

    def _access(self, environ: Environ) -> Answer | None:
        """EKS access entries: who may join or use the cluster without aws-auth."""
        match = _ENTRY.match(environ.get("PATH_INFO", ""))
        if not match:
            return None
        kept = self.entries.setdefault(match["cluster"], {})
        arn, method = unquote(match["arn"] or ""), environ["REQUEST_METHOD"]
        if match["policies"]:
            return _json(200, {"clusterName": match["cluster"], "principalArn": arn, "associatedAccessPolicies": []})
        if method == "GET" and not arn:
            return _json(200, {"accessEntries": sorted(kept)})
        if method == "POST":
            body = json.loads(_body(environ) or b"{}")
            arn = body["principalArn"]
            if arn in kept:
                return _json(
                    409,
                    {"message": "The specified access entry resource is already in use on this cluster."},
                    "ResourceInUseException",
                )
            kept[arn] = _entry(match["cluster"], arn, body)
            return _json(200, {"accessEntry": kept[arn]})
        if arn not in kept:
            return _json(
                404, {"message": f"The specified principalArn could not be found: {arn}"}, "ResourceNotFoundException"
            )
        if method == "DELETE":
            kept.pop(arn)
            return _json(200, {})
        return _json(200, {"accessEntry": kept[arn]})

    def _ec2(self, environ: Environ) -> Answer | None:
        """Capacity reservations and placement groups."""
        if environ.get("REQUEST_METHOD") != "POST" or "form" not in environ.get("CONTENT_TYPE", ""):
            return None
        return self._book.answer(environ) or self._groups.answer(environ)


def _json(status: int, value: Mapping[str, Any], error: str = "") -> Answer:
    body = dict(value) | ({"__type": error, "code": error} if error else {})
    return status, "application/json", json.dumps(body).encode()


def _entry(cluster: str, arn: str, body: Mapping[str, Any]) -> dict[str, Any]:
    kind = body.get("type", "STANDARD")
    user = body.get("username") or ("system:node:{{EC2PrivateDNSName}}" if kind.startswith("EC2") else arn)
    groups = ["system:nodes"] if kind.startswith("EC2") else list(body.get("kubernetesGroups") or ())
    account = arn.split(":")[4] if arn.count(":") > 4 else "123456789012"
    return {
        "clusterName": cluster,
        "principalArn": arn,
        "type": kind,
        "username": user,
        "kubernetesGroups": groups,
        "accessEntryArn": f"arn:aws:eks:::access-entry/{cluster}/{account}",
        "tags": dict(body.get("tags") or {}),
    }


def _product(spec: Spec, region: str, dollars: float) -> str:
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
