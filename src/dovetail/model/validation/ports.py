"""Container ports: names, numbers and protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, unsupported

PROTOCOLS = ("SCTP", "TCP", "UDP")


def container_ports(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(entries):
        at = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            texts = formats.port_name(name)
            found += [invalid(f"{at}.name", name, text) for text in texts]
            if not texts and name in names:
                found.append(duplicate(f"{at}.name", name))
            names.add(name)
        number = port.get("containerPort", 0)
        if not number:
            found.append(required(f"{at}.containerPort"))
        else:
            found += [invalid(f"{at}.containerPort", number, text) for text in formats.port_number(number)]
        if port.get("hostPort"):
            texts = formats.port_number(port["hostPort"])
            found += [invalid(f"{at}.hostPort", port["hostPort"], text) for text in texts]
        protocol = port.get("protocol", "")
        if protocol not in PROTOCOLS:
            found.append(unsupported(f"{at}.protocol", protocol, PROTOCOLS) if protocol else required(f"{at}.protocol"))
    return found
