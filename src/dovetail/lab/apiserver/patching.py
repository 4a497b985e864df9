"""PATCH: a change instead of a state. Each kind of patch makes a new object; the rest is an update."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import documents, fielderror, respond, status, writes
from dovetail.lab.apiserver.call import Call
from dovetail.lab.apiserver.decode import media_type, to_object
from dovetail.lab.apiserver.options import WriteOptions, write_options
from dovetail.lab.apiserver.patches import jsonpatch
from dovetail.lab.apiserver.patches.merge import merge
from dovetail.lab.apiserver.patches.strategic import StrategicFailure, strategic
from dovetail.lab.apiserver.status import StatusError
from dovetail.lab.apiserver.store import Record

Json = dict[str, Any]
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
APPLY_CBOR = "application/apply-patch+cbor"
_encode = msgspec.json.Encoder(order="sorted").encode


def patch(call: Call) -> Response:
    media = media_type(call.content_type)
    accepted = [JSON, MERGE, APPLY] if call.resource.custom else [JSON, MERGE, STRATEGIC, APPLY]
    if media not in accepted:
        raise status.unsupported_media(accepted)
    call.wanted()
    options = write_options(call.request, "PatchOptions", apply=media == APPLY)
    if media == APPLY:
        from dovetail.lab.apiserver import apply

        return apply.apply(call, options)
    record = call.server.store.get(call.table, call.key)
    if record is None:
        raise status.not_found(call.resource.group, call.resource.plural, call.name)
    current = _shown(call, record)
    patched, repeated = changed(call, media, current, call.request.body)
    obj = read_back(call, patched, repeated, options)
    if call.door is not None and call.door.merge is not None:
        return _through_view(call, record, obj, options)
    check_identity(call, obj)
    return writes.updated(call, writes.update_object(call, record, obj, options, unconditional=True))


def _shown(call: Call, record: Record) -> Json:
    obj = respond.in_version(record.fresh(), call.resource)
    door = call.door
    return door.view(obj, call.resource) if door is not None and door.view is not None else obj


def changed(call: Call, media: str, current: Json, body: bytes) -> tuple[Json, list[str]]:
    """The object after the patch, and the patch's own duplicate keys."""
    try:
        document, repeated = documents.parse_json(body)
    except documents.SyntaxProblem as problem:
        raise bad_patch(media, body, str(problem)) from problem
    if media == JSON:
        return _json_patched(current, document), repeated
    if not isinstance(document, dict):
        raise not_a_map(media, document)
    if media == MERGE:
        return merge(current, document), repeated
    try:
        return strategic(current, document, call.expected().schema), repeated
    except StrategicFailure as failure:
        raise status.internal(str(failure)) from failure


def _json_patched(current: Json, document: Any) -> Json:
    try:
        patched = jsonpatch.apply(current, document)
    except jsonpatch.BadPatch as bad:
        raise status.bad_request(f"error decoding patch: {bad}") from bad
    except jsonpatch.PatchFailure as failure:
        raise status.rejected() from failure
    if not isinstance(patched, dict):
        raise status.rejected()
    return patched


def bad_patch(media: str, body: bytes, problem: str) -> StatusError:
    if media == JSON:
        return status.bad_request(f"error decoding patch: {problem}")
    return status.bad_request(f"error decoding patch: {problem}")


def not_a_map(media: str, document: Any) -> StatusError:
    from dovetail.lab.apiserver.normal import go_value

    target = "map[string]interface {}"
    return status.bad_request(
        f"error decoding patch: json: cannot unmarshal {go_value(document)} into Go value of type {target}"
    )


def read_back(call: Call, patched: Json, repeated: list[str], options: WriteOptions) -> Json:
    """The patched document as an object; what does not fit is 422, with the whole object in the message."""
    expected = call.expected()
    text = _encode(patched).decode()
    try:
        return to_object(patched, repeated, expected, options.validation, call.warn)
    except StatusError as error:
        prefix = f'{expected.kind} in version "{expected.version}" cannot be handled as a {expected.kind}: '
        cause = fielderror.invalid("patch", text, error.message.removeprefix(prefix))
        refused = status.invalid("", "", "", [cause])
        raise refused from error


def check_identity(call: Call, obj: Json) -> None:
    """A patch cannot rename or move."""
    metadata = obj["metadata"]
    if metadata.get("name", "") != call.name:
        given = metadata.get("name", "")
        raise status.bad_request(f"the name of the object ({given}) does not match the name on the URL ({call.name})")
    writes.check_namespace(call, obj)


def _through_view(call: Call, record: Record, view: Json, options: WriteOptions) -> Response:
    door = call.door
    assert door is not None and door.view is not None
    obj = writes.merge_view(call, record, view)
    stored = writes.update_object(call, record, obj, options, unconditional=True)
    shown = respond.in_version(stored.fresh(), call.resource)
    return respond.one(call, door.view(shown, call.resource), 200)
