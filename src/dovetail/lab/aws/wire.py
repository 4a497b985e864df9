"""Requests to the lab's AWS as they come over the wire, for those who answer before moto is asked."""

from __future__ import annotations

import io
from collections.abc import MutableMapping
from typing import Any

Environ = MutableMapping[str, Any]
#: Status, content type, body.
Answer = tuple[int, str, bytes]

EC2_NAMESPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def body_of(environ: Environ) -> bytes:
    """The request's body, put back for whoever reads it next."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    data: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(data)
    return data


def members(form: dict[str, list[str]], prefix: str) -> list[dict[str, list[str]]]:
    """The elements of a list in a query form: `Filter.1.Name=…` becomes one small form for each number."""
    found: dict[int, dict[str, list[str]]] = {}
    for key, values in form.items():
        head, _, rest = key.partition(".")
        number, _, name = rest.partition(".")
        if head == prefix and number.isdigit():
            found.setdefault(int(number), {})[name] = values
    return [found[number] for number in sorted(found)]
