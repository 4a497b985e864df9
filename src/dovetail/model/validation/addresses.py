"""IP addresses and ranges inside objects, checked."""

from __future__ import annotations

import ipaddress

from dovetail.model.validation.field_errors import FieldError, invalid

_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_RANGE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_FIRST_MULTICAST = ipaddress.ip_network("224.0.0.0/24")


def valid_ip(text: str, path: str) -> list[FieldError]:
    return [] if _parsed(text) is not None else [invalid(path, text, _ADDRESS)]


def endpoint_ip(text: str, path: str) -> list[FieldError]:
    """An address that traffic from elsewhere can reach."""
    address = _parsed(text)
    if address is None:
        return [invalid(path, text, "must be a valid IP address")]
    errors: list[FieldError] = []
    if address.is_unspecified:
        errors.append(invalid(path, text, f"may not be unspecified ({text})"))
    if address.is_loopback:
        errors.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        errors.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if _link_local_multicast(address):
        errors.append(invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
    return errors


def valid_cidr(text: str, path: str) -> list[FieldError]:
    return [] if network(text) is not None else [invalid(path, text, _RANGE)]


def network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The range a CIDR names, None if it names none."""
    if "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_ip(text: str) -> bool:
    return _parsed(text) is not None


def version(text: str) -> int:
    """4 or 6; 0 for no address."""
    address = _parsed(text)
    return address.version if address is not None else 0


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _link_local_multicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address in _FIRST_MULTICAST
    return address.is_multicast and address.packed[1] & 0x0F == 2
