"""PATCH: a change instead of a state. Each kind of patch makes a new object; the rest is an update."""

from __future__ import annotations

from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import (
    create_update,
    decode,
    json_yaml,
    responses,
    scale,
    server_side_apply,
    status_errors,
    subresource_views,
)
from dovetail.lab.apiserver.canonicalize import go_value
from dovetail.lab.apiserver.decode import Expected, media_type, to_object
from dovetail.lab.apiserver.gocompat import gorder
from dovetail.lab.apiserver.gocompat.goprint import plain
from dovetail.lab.apiserver.options import WriteOptions, write_options
from dovetail.lab.apiserver.patches import jsonpatch, unstructured
from dovetail.lab.apiserver.patches.merge import merge
from dovetail.lab.apiserver.patches.strategic import BadFormat, StrategicFailure, strategic
from dovetail.lab.apiserver.registry import RequestRefused
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import StoredVersion
from dovetail.model.validation import field_errors

Json = dict[str, Any]
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def patch(call: RequestCall) -> Response:
    media = media_type(call.content_type) if call.content_type else "application/json"
    custom = call.resource.custom
    accepted = [JSON, MERGE, APPLY] if custom else [JSON, MERGE, STRATEGIC, APPLY]
    if media not in accepted:
        if custom:
            raise status_errors.unsupported_media(accepted)
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    responses.check_form(call)
    options = write_options(call.request, "PatchOptions", apply=media == APPLY)
    if media == APPLY:
        if call.subresource_type is not None and call.subresource_type.merge is not None:
            return scale.apply(call, options)
        return server_side_apply.apply(call, options)
    record = call.server.store.get(call.table, call.key)
    if record is None:
        raise status_errors.not_found(call.resource.group, call.resource.plural, call.name)
    obj = changed(call, media, _shown(call, record), options)
    if call.subresource_type is not None and call.subresource_type.merge is not None:
        return _through_view(call, record, obj, options)
    check_identity(call, obj)
    return create_update.updated(call, create_update.update_object(call, record, obj, options, unconditional=True))


def _shown(call: RequestCall, record: StoredVersion) -> Json:
    obj = responses.in_version(record.fresh(), call.resource)
    subresource = call.subresource_type
    if subresource is None or subresource.view is None:
        return obj
    try:
        return subresource.view(obj, call.resource)
    except RequestRefused:
        if not call.resource.custom:
            raise
    filled = merge(obj, subresource_views.at_path(subresource_views.replicas_path(call.resource), 0))
    return subresource.view(filled, call.resource)


def changed(call: RequestCall, media: str, current: Json, options: WriteOptions) -> Json:
    """The object after the patch."""
    prefix = "" if media == STRATEGIC else "error decoding patch: "
    try:
        document, repeated = json_yaml.parse_json(call.request.body)
    except json_yaml.SyntaxProblem as problem:
        raise status_errors.bad_request(f"{prefix}{problem}") from problem
    if media == JSON:
        patched, touched = _json_patched(current, document), gorder.of_json(document)
        complaints = [f"json patch {complaint}" for complaint in [*jsonpatch.unknown(document), *repeated]]
        return read_back(call, patched, complaints, options, touched)
    if document is None and media == MERGE:
        raise status_errors.bad_request("Invalid JSON Patch")
    if not isinstance(document, dict):
        target = "map[string]interface {}"
        raise status_errors.bad_request(
            f"{prefix}json: cannot unmarshal {go_value(document)} into Go value of type {target}"
        )
    if media == MERGE:
        return read_back(call, merge(current, document), repeated, options, gorder.of_merge(document))
    return _strategic(call, current, document, repeated, options)


def _strategic(call: RequestCall, current: Json, document: Json, repeated: list[str], options: WriteOptions) -> Json:
    expected = call.expected()
    try:
        patched = strategic(current, document, expected.schema)
    except StrategicFailure as failure:
        raise status_errors.internal(str(failure)) from failure
    except BadFormat as bad:
        raise status_errors.bad_request(str(bad)) from bad
    problem = unstructured.problem(expected.schema, patched, current)
    if problem:
        raise misfit(plain(document), problem)
    patched["kind"], patched["apiVersion"] = expected.kind, expected.api_version
    try:
        return to_object(patched, [], expected, options.validation, call.warn, repeated, by_name=True)
    except StatusError as error:
        raise misfit(plain(document), _reason(expected, error)) from error


def _json_patched(current: Json, document: Any) -> Json:
    try:
        patched = jsonpatch.apply(current, document)
    except jsonpatch.BadPatch as bad:
        target = "[]handlers.jsonPatchOp" if not isinstance(document, list) else "handlers.jsonPatchOp"
        wrong = document
        if isinstance(document, list):
            wrong = next(item for item in document if not isinstance(item, dict | None))
        text = f"json: cannot unmarshal {go_value(wrong)} into Go value of type {target}"
        raise status_errors.bad_request(f"error decoding patch: {text}") from bad
    except jsonpatch.WrongField as wrong_field:
        kind = go_value(wrong_field.value)
        text = f"json: cannot unmarshal {kind} into Go struct field jsonPatchOp.{wrong_field.field} of type string"
        raise status_errors.bad_request(f"error decoding patch: {text}") from wrong_field
    except jsonpatch.PatchFailure as failure:
        raise status_errors.rejected() from failure
    if not isinstance(patched, dict):
        raise status_errors.rejected()
    return patched


def misfit(shown: str, problem: str) -> StatusError:
    return status_errors.invalid("", "", "", [field_errors.invalid("patch", shown, problem)])


def _reason(expected: Expected, error: StatusError) -> str:
    prefix = f'{expected.kind} in version "{expected.version}" cannot be handled as a {expected.kind}: '
    unread = f"the object provided is unrecognized (must be of type {expected.kind}): "
    return error.message.removeprefix(prefix).removeprefix(unread).removesuffix(f" ({decode.EMPTY})")


def read_back(call: RequestCall, patched: Json, complaints: list[str], options: WriteOptions, touched: Any) -> Json:
    """The patched document as an object; what does not fit is 422, with the whole object in the message."""
    expected = call.expected()
    before = dict(patched)
    if expected.custom:
        _keeps_identity(call, patched, expected)
    try:
        decode.check_identity(patched, expected, b"")
        return to_object(patched, [], expected, options.validation, call.warn, complaints)
    except StatusError as error:
        given = f"{patched.get('kind')} in version "
        reason = _reason(expected, error)
        if reason.startswith(given):
            reason = reason.partition(": ")[2]
        schema = None if expected.custom else expected.schema
        raise misfit(gorder.text(schema, before, touched), reason) from error


def _keeps_identity(call: RequestCall, patched: Json, expected: Expected) -> None:
    """A patch may leave a custom resource's kind and apiVersion as they are, or say the same."""
    for field, expected_value in (("kind", expected.kind), ("apiVersion", expected.api_version)):
        given = patched.get(field)
        if given and isinstance(given, str) and given != expected_value:
            error = field_errors.invalid(field, given, f"must be {expected_value}")
            raise status_errors.invalid(expected.group, str(patched.get("kind")), call.name, [error])


def check_identity(call: RequestCall, obj: Json) -> None:
    """A patch cannot rename or move."""
    given = obj["metadata"].get("name", "")
    if not given:
        raise create_update.no_name(call)
    create_update.check_namespace(call, obj)
    if given != call.name:
        raise status_errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({call.name})"
        )


def _through_view(call: RequestCall, record: StoredVersion, view: Json, options: WriteOptions) -> Response:
    stored = subresource_views.update(call, record, view, options, unconditional=True)
    return subresource_views.shown_view(call, stored)
