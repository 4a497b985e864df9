"""Answers: an object or a listing in the form the client wants."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver import tables
from dovetail.lab.apiserver.negotiation import PLAIN, ResponseForm, clauses
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import StoredVersion

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode
#: What a header cannot hold, or what would end it.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
JSON_HEADERS = {"content-type": "application/json", "cache-control": "no-cache, private"}


class _Yaml(yaml.CSafeDumper):
    """Texts that would read as something else stand between double quotes, and what is shared is written again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Yaml, text: str) -> yaml.ScalarNode:
    plain = dumper.resolve(yaml.ScalarNode, text, (True, False)) == _STRING  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(_STRING, text, style=None if plain or not text else '"')


_STRING = "tag:yaml.org,2002:str"
_Yaml.add_representer(str, _text)


def body_of(value: Any, form: ResponseForm) -> tuple[bytes, dict[str, str]]:
    if form.yaml:
        text = yaml.dump(value, Dumper=_Yaml, default_flow_style=False, allow_unicode=True)
        return text.encode(), {**JSON_HEADERS, "content-type": "application/yaml"}
    raw = _encode(value)
    if form.pretty:
        return msgspec.json.format(raw, indent=2), JSON_HEADERS
    return raw + b"\n", JSON_HEADERS


def value(content: Any, code: int = 200, form: ResponseForm = PLAIN, headers: dict[str, str] | None = None) -> Response:
    body, own = body_of(content, form)
    return Response(status=code, headers={**own, **headers} if headers else own, body=body)


def failure(request: Request, error: StatusError) -> Response:
    """A Status error; in YAML if the client accepts nothing else."""
    first = next(iter(clauses(request.headers.get("accept", ""))), None)
    form = ResponseForm(yaml=True) if first is not None and first.media == "application/yaml" else PLAIN
    return value(error.status(), error.code, form, error.headers or None)


def show(record: StoredVersion, resource: ResourceType) -> Json:
    """A stored object in the resource's version."""
    if is_stored_so(record, resource):
        return record.obj
    return in_version(record.fresh(), resource)


def is_stored_so(record: StoredVersion, resource: ResourceType) -> bool:
    """Whether the store's own bytes are what the resource's version shows."""
    if resource.storage != (resource.group, resource.version):
        return False
    return not resource.custom or resource.strategy.is_current(record.obj)


def tabled(record: StoredVersion, resource: ResourceType, options: tables.TableOptions) -> Json:
    """A stored object as the rows of a table are made of it: a built-in kind's is read before it is converted."""
    return show(record, resource) if resource.custom or options.include == "Object" else record.obj


def in_version(stored: Json, resource: ResourceType) -> Json:
    """A stored object, one's own copy, in the resource's version."""
    if resource.storage == (resource.group, resource.version) and resource.strategy.is_current(stored):
        return stored
    shown = resource.strategy.from_storage(stored, resource.version)
    return {**shown, "kind": resource.kind, "apiVersion": resource.api_version}


def check_form(call: RequestCall) -> None:
    """Refuse a form that cannot be given before anything is written; of Tables the real server finds out after."""
    if call.response_form().form == "Table":
        tables.TableOptions.of(call.request)


def one(call: RequestCall, obj: Json, code: int = 200, raw: bytes | None = None) -> Response:
    """An object; `raw` is its JSON where the store has it."""
    form = call.response_form()
    if form.form == "Table":
        options = tables.TableOptions.of(call.request)
        return value(tables.of_objects(call, [obj], {}, form, options), code, form)
    if form.form == "PartialObjectMetadata":
        return value(partial(obj, form.version), code, form)
    if raw is not None and not form.yaml and not form.pretty:
        return Response(status=code, headers=JSON_HEADERS, body=raw + b"\n")
    return value(obj, code, form)


def partial(obj: Json, version: str = "v1") -> Json:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj.get("metadata", {}),
    }


def quoted_warning(text: str) -> str:
    """A warning text as a quoted string of a header, which cannot hold control characters."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return '"' + _CONTROL.sub(lambda match: rf"\\x{ord(match[0]):02x}", escaped) + '"'


#: Warnings together have no more characters; where they would, each is cut, and the last ones are left out.
MAX_WARNING_CHARACTERS = 4 * 1024
MAX_CUT_WARNING_CHARACTERS = 256


def shortened_warnings(texts: list[str]) -> list[str]:
    """The warnings that a response has room for."""
    if sum(map(len, texts)) <= MAX_WARNING_CHARACTERS:
        return texts
    total = end = 0
    while end < len(texts) and total + len(texts[end]) <= MAX_WARNING_CHARACTERS:
        total += len(texts[end])
        end += 1
    shown = [text[:MAX_CUT_WARNING_CHARACTERS] for text in texts[: end + 1]]
    written = sum(map(len, shown))
    for text in texts[end + 1 :]:
        if written >= MAX_WARNING_CHARACTERS:
            break
        shown.append(text[:MAX_CUT_WARNING_CHARACTERS])
        written += len(shown[-1])
    return shown
