"""AdmissionReviews: what a webhook is sent, and how its answer is read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.lab.apiserver import json_yaml
from dovetail.lab.apiserver.canonicalize import go_value
from dovetail.lab.apiserver.decode import PEEK
from dovetail.lab.apiserver.patches import jsonpatch
from dovetail.lab.apiserver.status_errors import StatusError, bad_request, internal_error
from dovetail.lab.apiserver.webhooks.configurations import Phase, Webhook
from dovetail.model.validation.field_errors import quoted

Json = dict[str, Any]
_VERSIONS = ("v1", "v1beta1")
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


class CallFailed(Exception):
    """A webhook that could not be asked, or whose answer is none; the failure policy decides what that means."""


class ReviewResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A readable answer. `patch_type` is what the answer calls its patch."""

    allowed: bool
    status: Json | None
    patch: bytes
    patch_type: str
    warnings: list[str]
    audit: dict[str, str]


def review_body(versions: Sequence[str], request: Json) -> bytes:
    """The review in the first version that the webhook and this server speak."""
    version = next((name for name in versions if name in _VERSIONS), None)
    if version is None:
        text = "webhook does not accept known AdmissionReview versions (v1, v1beta1)"
        raise CallFailed(f"could not create admission objects: {text}")
    review = {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}
    return msgspec.json.encode(review)


def read_answer(body: bytes, uid: str, phase: Phase, version: str) -> ReviewResponse:
    """Raises CallFailed unless the answer is one to the review with this uid, which was sent in `version`."""
    try:
        review = read_object(body)
        check_kind(review, "AdmissionReview", "admission.k8s.io", version)
        response = _field(review, "response", dict, "AdmissionReview")
    except CallFailed as problem:
        raise CallFailed(f"failed to call webhook: {problem}") from problem
    if response is None:
        raise _invalid("webhook response was absent")
    api_version, kind = review["apiVersion"], review["kind"]
    if version == "v1":
        if response.get("uid", "") != uid:
            raise _invalid(f"expected response.uid={quoted(uid)}, got {quoted(str(response.get('uid', '')))}")
        api_version_and_kind = "admission.k8s.io/v1, Kind=AdmissionReview"
        if f"{api_version}, Kind={kind}" != api_version_and_kind:
            raise _invalid(
                f"expected webhook response of {api_version_and_kind}, got {api_version or '/'}, Kind={kind}"
            )
    patch, patch_type = _patch(response, phase, version)
    return ReviewResponse(
        allowed=bool(response.get("allowed")),
        status=response.get("status"),
        patch=patch,
        patch_type=patch_type,
        warnings=[str(text) for text in response.get("warnings") or ()],
        audit={str(key): str(value) for key, value in (response.get("auditAnnotations") or {}).items()},
    )


def read_object(body: bytes) -> Json:
    """A document with its kind and version. Raises CallFailed with the decoder's words."""
    parse = json_yaml.parse_json if body.lstrip()[:1] == b"{" else json_yaml.parse_yaml
    try:
        review, _ = parse(body)
    except json_yaml.SyntaxProblem as error:
        raise CallFailed(f"couldn't get version/kind; json parse error: {error}") from error
    if not isinstance(review, dict):
        text = f"json: cannot unmarshal {go_value(review)} into Go value of type {PEEK}"
        raise CallFailed(f"couldn't get version/kind; json parse error: {text}")
    review.setdefault("apiVersion", "")
    review.setdefault("kind", "")
    return review


def check_kind(review: Json, kind: str, group: str, version: str) -> None:
    """Raises CallFailed for a document of another kind or version; one that names neither is taken for right."""
    given, api_version = review["kind"], review["apiVersion"]
    if (given, api_version) == (kind, f"{group}/{version}") or not api_version or not given:
        return
    shown = api_version.rpartition("/")[2]
    if (given, api_version) == ("Status", "v1") or (given == kind and api_version in _known(group)):
        raise CallFailed(f"converting ({shown}.{given}) to ({version}.{kind}): unknown conversion")
    raise CallFailed(
        f'no kind "{given}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
    )


def _known(group: str) -> list[str]:
    return [f"{group}/{version}" for version in _VERSIONS]


def _field(value: Json, name: str, kind: type, struct: str) -> Any:
    field = value.get(name)
    if field is not None and not isinstance(field, kind):
        raise CallFailed(f"json: cannot unmarshal {type(field).__name__} into Go struct field {struct}.{name}")
    return field


def _patch(response: Json, phase: Phase, version: str) -> tuple[bytes, str]:
    try:
        patch = base64.b64decode(response.get("patch") or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        given = str(response.get("patch"))
        place = next((index for index, char in enumerate(given) if char not in _BASE64), len(given))
        raise CallFailed(f"failed to call webhook: illegal base64 data at input byte {place}") from error
    kind = response.get("patchType")
    if version != "v1":
        return (patch, "JSONPatch" if patch else "") if phase == "mutating" else (b"", "")
    if phase == "validating":
        if patch:
            raise _invalid("validating webhook may not return response.patch")
        if kind is not None:
            raise _invalid("validating webhook may not return response.patchType")
        return b"", ""
    if patch and kind is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if not patch and kind is not None:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if kind == "":
        raise _invalid('webhook returned invalid response.patchType of ""')
    return patch, str(kind or "")


def _invalid(text: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {text}")


def operations(patch: bytes) -> list[Any]:
    """The operations of a patch. Raises CallFailed."""
    if not patch:
        return []
    try:
        document, _ = json_yaml.parse_json(patch)
    except json_yaml.SyntaxProblem as error:
        raise CallFailed(f"received undecodable patch in webhook response: {error}") from error
    if document is None:
        return []
    if not isinstance(document, list):
        text = f"json: cannot unmarshal {go_value(document)} into Go value of type jsonpatch.Patch"
        raise CallFailed(f"received undecodable patch in webhook response: {text}")
    return document


def patched(obj: Json, patch: list[Any]) -> Json:
    """The object after a webhook's patch. A patch that does not apply fails the request, whatever the policy."""
    try:
        changed = jsonpatch.apply(obj, patch)
    except (jsonpatch.PatchFailure, jsonpatch.BadPatch, jsonpatch.WrongField) as error:
        raise internal_error(str(error)) from error
    if not isinstance(changed, dict):
        raise internal_error("the patched object is not an object")
    return changed


def denial(webhook: Webhook, status: Json | None) -> StatusError:
    """A refusal in the webhook's words, with a code that is one."""
    status = status or {}
    head = f"admission webhook {quoted(webhook.name)} denied the request"
    why = status.get("message") or status.get("reason")
    message = f"{head}: {why}" if why else f"{head} without explanation"
    code = int(status.get("code") or 0)
    error = StatusError(max(code, 400), str(status.get("reason") or ""), message, status.get("details"))
    error.metadata = status.get("metadata") or {}
    return error


def failure(webhook: Webhook, problem: str) -> StatusError:
    return internal_error(f"failed calling webhook {quoted(webhook.name)}: {problem}")


def no_dry_run(webhook: Webhook) -> StatusError:
    return bad_request(f"admission webhook {quoted(webhook.name)} does not support dry run")
