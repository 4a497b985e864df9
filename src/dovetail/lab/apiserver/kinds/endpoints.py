"""Endpoints and their slices: the addresses behind a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.registry import Context, Object
from dovetail.model import formats
from dovetail.model.validation.addresses import endpoint_ip, valid_ip, version
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, unsupported
from dovetail.model.validation.selectors import label_name

Spec = Mapping[str, Any]
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = {"IPv4": 4, "IPv6": 6}


def _port(port: Spec, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    if port.get("protocol", "") not in _PROTOCOLS:
        found.append(unsupported(f"{at}.protocol", port.get("protocol", ""), _PROTOCOLS))
    return found + (label_name(port["appProtocol"], f"{at}.appProtocol") if "appProtocol" in port else [])


def _names(entry: Spec, at: str, fields: Mapping[str, Any]) -> list[FieldError]:
    """The fields of an entry that name something, each with its rule."""
    return [
        invalid(f"{at}.{field}", entry[field], text)
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

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        found: list[FieldError] = []
        for index, subset in enumerate(obj.get("subsets") or ()):
            at = f"subsets[{index}]"
            if not subset.get("addresses") and not subset.get("notReadyAddresses"):
                found.append(required(at, "must specify `addresses` or `notReadyAddresses`"))
            for field in ("addresses", "notReadyAddresses"):
                for number, address in enumerate(subset.get(field) or ()):
                    found += self._address(address, f"{at}.{field}[{number}]")
            found += self._ports(subset.get("ports") or (), f"{at}.ports")
        return found

    def _address(self, address: Spec, at: str) -> list[FieldError]:
        text = address.get("ip", "")
        named = _names(address, at, {"hostname": formats.label, "nodeName": formats.subdomain})
        return valid_ip(text, f"{at}.ip") + named + endpoint_ip(text, f"{at}.ip")

    def _ports(self, ports: Sequence[Spec], path: str) -> list[FieldError]:
        found: list[FieldError] = []
        for index, port in enumerate(ports):
            at, number = f"{path}[{index}]", port.get("port", 0)
            if len(ports) > 1 and not port.get("name"):
                found.append(required(f"{at}.name"))
            found += _names(port, at, {"name": formats.label})
            found += [invalid(f"{at}.port", number, text) for text in formats.port_number(number)]
            found += _port(port, at)
        return found


class EndpointSliceStrategy(KindStrategy):
    rechecks_all = True
    rechecks_change = False
    generation = True

    def default(self, obj: Object) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def prepare_update(self, obj: Object, old: Object, ctx: Context) -> None:
        """It has no spec: all that is not metadata counts, and so do the labels."""
        after, before = ({k: v for k, v in one.items() if k != "metadata"} for one in (obj, old))
        labels, were = (one["metadata"].get("labels") for one in (obj, old))
        if after != before or labels != were:
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        return self._shape(obj) + self._endpoints(obj)

    def _shape(self, obj: Object) -> list[FieldError]:
        kind = obj.get("addressType", "")
        known = ("FQDN", "IPv4", "IPv6")
        found: list[FieldError] = []
        if not kind:
            found.append(required("addressType"))
        elif kind not in known:
            found.append(unsupported("addressType", kind, known))
        return found + self._ports(obj.get("ports") or ())

    def _endpoints(self, obj: Object) -> list[FieldError]:
        kind, found = obj.get("addressType", ""), list[FieldError]()
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            found += self._endpoint(endpoint, kind, f"endpoints[{index}]")
        return found

    def _ports(self, ports: Sequence[Spec]) -> list[FieldError]:
        found: list[FieldError] = []
        seen: set[str] = set()
        for index, port in enumerate(ports):
            at, name = f"ports[{index}]", port.get("name", "")
            found += _names(port, at, {"name": formats.label})
            if name in seen:
                found.append(duplicate(f"{at}.name", name))
            seen.add(name)
            found += _port(port, at)
        return found

    def _endpoint(self, endpoint: Spec, kind: str, path: str) -> list[FieldError]:
        addresses = endpoint.get("addresses") or ()
        at, found = f"{path}.addresses", list[FieldError]()
        if not addresses:
            found.append(required(at, "must contain at least 1 address"))
        for index, address in enumerate(addresses):
            if kind in _FAMILIES:
                found += self._address(address, kind, at, index)
        return found + _names(endpoint, path, {"nodeName": formats.subdomain, "hostname": formats.label})

    def _address(self, address: str, kind: str, path: str, index: int) -> list[FieldError]:
        at = f"{path}[{index}]"
        found = valid_ip(address, at)
        if found:
            return found
        if version(address) != _FAMILIES[kind]:
            found.append(invalid(path, address, f"must be an {kind} address"))
        return found + endpoint_ip(address, at)

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        found = self._shape(obj) + (self._endpoints(obj) if obj.get("endpoints") != old.get("endpoints") else [])
        return found + immutable(obj.get("addressType"), old.get("addressType"), "addressType")

    def warnings(self, obj: Object, old: Object | None, ctx: Context) -> list[str]:
        if old is None and obj.get("addressType") == "FQDN":
            return ["spec.addressType: FQDN endpoints are deprecated"]
        return []
