"""Endpoints and their slices: the addresses behind a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation.addresses import endpoint_ip, valid_ip, version
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, unsupported
from dovetail.model.validation.selectors import label_name

Spec = Mapping[str, Any]
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = {"IPv4": 4, "IPv6": 6}


def _port(port: Spec, field_path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if port.get("protocol", "") not in _PROTOCOLS:
        errors.append(unsupported(f"{field_path}.protocol", port.get("protocol", ""), _PROTOCOLS))
    return errors + (label_name(port["appProtocol"], f"{field_path}.appProtocol") if "appProtocol" in port else [])


def _names(entry: Spec, field_path: str, fields: Mapping[str, Any]) -> list[FieldError]:
    """The fields of an entry that name something, each with its rule."""
    return [
        invalid(f"{field_path}.{field}", entry[field], text)
        for field, rule in fields.items()
        if entry.get(field)
        for text in rule(entry[field])
    ]


class EndpointsStrategy(KindStrategy):
    rechecks_all = True

    def default(self, obj: Object) -> None:
        for subset in obj.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")


class EndpointSliceStrategy(KindStrategy):
    rechecks_all = True
    rechecks_change = False
    generation = True

    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        """It has no spec: all that is not metadata counts, and so do the labels."""
        after, before = ({k: v for k, v in version.items() if k != "metadata"} for version in (obj, old))
        labels, were = (version["metadata"].get("labels") for version in (obj, old))
        if after != before or labels != were:
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return self._shape(obj) + self._endpoints(obj)

    def _shape(self, obj: Object) -> list[FieldError]:
        kind = obj.get("addressType", "")
        address_types = ("FQDN", "IPv4", "IPv6")
        errors: list[FieldError] = []
        if not kind:
            errors.append(required("addressType"))
        elif kind not in address_types:
            errors.append(unsupported("addressType", kind, address_types))
        return errors + self._ports(obj.get("ports") or ())

    def _endpoints(self, obj: Object) -> list[FieldError]:
        kind, errors = obj.get("addressType", ""), list[FieldError]()
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            errors += self._endpoint(endpoint, kind, f"endpoints[{index}]")
        return errors

    def _ports(self, ports: Sequence[Spec]) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, port in enumerate(ports):
            field_path, name = f"ports[{index}]", port.get("name", "")
            errors += _names(port, field_path, {"name": formats.label})
            if name in seen:
                errors.append(duplicate(f"{field_path}.name", name))
            seen.add(name)
            errors += _port(port, field_path)
        return errors

    def _endpoint(self, endpoint: Spec, kind: str, path: str) -> list[FieldError]:
        addresses = endpoint.get("addresses") or ()
        field_path, errors = f"{path}.addresses", list[FieldError]()
        if not addresses:
            errors.append(required(field_path, "must contain at least 1 address"))
        for index, address in enumerate(addresses):
            if kind in _FAMILIES:
                errors += self._address(address, kind, field_path, index)
        return errors + _names(endpoint, path, {"nodeName": formats.subdomain, "hostname": formats.label})

    def _address(self, address: str, kind: str, path: str, index: int) -> list[FieldError]:
        field_path = f"{path}[{index}]"
        errors = valid_ip(address, field_path)
        if errors:
            return errors
        if version(address) != _FAMILIES[kind]:
            errors.append(invalid(path, address, f"must be an {kind} address"))
        return errors + endpoint_ip(address, field_path)

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self._shape(obj) + (self._endpoints(obj) if obj.get("endpoints") != old.get("endpoints") else [])
        return errors + immutable(obj.get("addressType"), old.get("addressType"), "addressType")

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if old is None and obj.get("addressType") == "FQDN":
            return ["spec.addressType: FQDN endpoints are deprecated"]
        return []
