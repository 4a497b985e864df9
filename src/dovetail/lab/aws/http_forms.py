"""Requests to the lab's AWS as they come over the wire, for the handlers that answer before moto."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, MutableMapping
from typing import Any
from xml.sax.saxutils import escape

Environ = MutableMapping[str, Any]
#: Status, content type, body.
Answer = tuple[int, str, bytes]
#: A query form: each name with the values it was given.
Form = dict[str, list[str]]

EC2_NAMESPACE = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'


def take_body(environ: Environ, limit: int) -> int:
    """The length of the body, as far as it is claimed or, in chunks, read. A body past the limit is dropped."""
    if not environ.pop("wsgi.input_terminated", False):
        claimed = environ.get("CONTENT_LENGTH") or "0"
        size = int(claimed) if claimed.isascii() and claimed.isdigit() else limit + 1
        if size > limit:
            environ["CONTENT_LENGTH"] = "0"
        return size
    data = b""
    environ["CONTENT_LENGTH"] = "0"
    while len(data) <= limit and (chunk := environ["wsgi.input"].read(1 << 16)):
        data += chunk
    if len(data) <= limit:
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        environ["CONTENT_LENGTH"] = str(len(data))
        environ["wsgi.input"] = io.BytesIO(data)
    return len(data)


def body_of(environ: Environ) -> bytes:
    """The request's body, put back for the next reader."""
    claimed = environ.get("CONTENT_LENGTH") or ""
    length = int(claimed) if claimed.isascii() and claimed.isdigit() else 0
    data: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = io.BytesIO(data)
    return data


def json_answer(status: int, value: Mapping[str, Any], error: str = "") -> Answer:
    """An answer of a REST service; `error` is the code of a refusal."""
    body = dict(value) | ({"__type": error, "code": error} if error else {})
    return status, "application/json", json.dumps(body).encode()


def members(form: Form, prefix: str) -> list[Form]:
    """The elements of a list in a query form: `Filter.1.Name=…` becomes one small form for each number."""
    forms: dict[int, Form] = {}
    for key, values in form.items():
        head, _, rest = key.partition(".")
        number, _, name = rest.partition(".")
        if head == prefix and number.isdigit():
            forms.setdefault(int(number), {})[name] = values
    return [forms[number] for number in sorted(forms)]


def one(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0]


def values(form: Form, prefix: str) -> list[str]:
    """The elements of a list of plain values: `GroupName.1=…`."""
    return [value for key, values in form.items() if key.startswith(f"{prefix}.") for value in values]


def xml(action: str, content: str) -> Answer:
    """An answer of EC2's."""
    body = f"<{action}Response {EC2_NAMESPACE}><requestId>lab</requestId>{content}</{action}Response>"
    return 200, "text/xml", body.encode()


def refused(code: str, message: str, status: int = 400) -> Answer:
    """An error of EC2's."""
    text = f"<Errors><Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error></Errors>"
    return status, "text/xml", f"<Response>{text}<RequestID>lab</RequestID></Response>".encode()
