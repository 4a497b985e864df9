"""Container ports: names, numbers and protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, unsupported

PROTOCOLS = ("SCTP", "TCP", "UDP")


def container_ports(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(entries):
        field_path = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            texts = formats.port_name(name)
            errors += [invalid(f"{field_path}.name", name, text) for text in texts]
            if not texts and name in names:
                errors.append(duplicate(f"{field_path}.name", name))
            names.add(name)
        number = port.get("containerPort", 0)
        if not number:
            errors.append(required(f"{field_path}.containerPort"))
        else:
            errors += [invalid(f"{field_path}.containerPort", number, text) for text in formats.port_number(number)]
        if port.get("hostPort"):
            texts = formats.port_number(port["hostPort"])
            errors += [invalid(f"{field_path}.hostPort", port["hostPort"], text) for text in texts]
        protocol = port.get("protocol", "")
        if protocol not in PROTOCOLS:
            errors.append(
                unsupported(f"{field_path}.protocol", protocol, PROTOCOLS)
                if protocol
                else required(f"{field_path}.protocol")
            )
    return errors
