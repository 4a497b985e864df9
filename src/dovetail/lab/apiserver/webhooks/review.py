"""AdmissionReviews: what a webhook is asked, and how its answer is read."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from dovetail.lab.apiserver.patches import jsonpatch
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.status_errors import StatusError, bad_request, internal_error
from dovetail.lab.apiserver.webhooks.matching import Asked, Phase, Webhook

Json = dict[str, Any]
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}


class CallFailed(Exception):
    """A webhook that could not be asked, or whose answer is none; the failure policy decides what that means."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A readable answer."""

    allowed: bool
    status: Json
    patch: list[Any]
    warnings: list[str]
    audit: dict[str, str]


def request_of(
    uid: str, asked: Asked, seen: ResourceType, name: str, user: str, groups: tuple[str, ...], dry_run: bool
) -> Json:
    """The `request` of a review; `seen` is the resource in the version that the webhook's rule names."""
    kind = {"group": seen.group, "version": seen.version, "kind": seen.kind}
    resource = {"group": seen.group, "version": seen.version, "resource": seen.plural}
    own = asked.resource
    request: Json = {
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": {"group": own.group, "version": own.version, "kind": own.kind},
        "requestResource": {"group": own.group, "version": own.version, "resource": own.plural},
        "name": name,
        "operation": asked.operation,
        "userInfo": {"username": user, "groups": list(groups)},
        "object": asked.object,
        "oldObject": asked.old_object,
        "dryRun": dry_run,
        "options": {
            "kind": _OPTIONS.get(asked.operation, "CreateOptions"),
            "apiVersion": "meta.k8s.io/v1",
        },
    }
    if asked.subresource:
        request["subResource"] = request["requestSubResource"] = asked.subresource
    if own.namespaced:
        request["namespace"] = asked.namespace
    return request


def review_body(webhook: Webhook, request: Json) -> bytes:
    """The review in the first version that the webhook and this server speak."""
    version = next((name for name in webhook.versions if name in ("v1", "v1beta1")), None)
    if version is None:
        raise CallFailed(f"webhook does not accept v1 or v1beta1 AdmissionReview, only {webhook.versions}")
    review = {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}
    return msgspec.json.encode(review)


def read_answer(body: bytes, uid: str, phase: Phase, sent: bytes) -> Verdict:
    """Raises CallFailed unless the answer is one to the review that was sent."""
    version = msgspec.json.decode(sent)["apiVersion"]
    try:
        review = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise CallFailed(f"failed to call webhook: {error}") from error
    if not isinstance(review, dict):
        raise CallFailed("received invalid webhook response: expected webhook response to be an object")
    given = f"{review.get('apiVersion', '')}, Kind={review.get('kind', '')}"
    if version.endswith("/v1") and given != f"{version}, Kind=AdmissionReview":
        wanted = f"{version}, Kind=AdmissionReview"
        raise _invalid(f"expected webhook response of {wanted}, got {given}")
    response = review.get("response")
    if not isinstance(response, dict):
        raise _invalid("webhook response was absent")
    if version.endswith("/v1") and response.get("uid") != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    return Verdict(
        allowed=bool(response.get("allowed")),
        status=response.get("status") or {},
        patch=_patch(response, phase, version),
        warnings=[str(text) for text in response.get("warnings") or ()],
        audit={str(key): str(value) for key, value in (response.get("auditAnnotations") or {}).items()},
    )


def _patch(response: Json, phase: Phase, version: str) -> list[Any]:
    text, kind = response.get("patch"), response.get("patchType")
    if not text:
        if kind and version.endswith("/v1"):
            raise _invalid("webhook returned response.patchType but not response.patch")
        return []
    if phase == "validating":
        raise _invalid("webhook response.patch is not allowed for a validating webhook")
    if version.endswith("/v1") and kind is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if kind not in (None, "JSONPatch"):
        raise _invalid(f'webhook returned invalid response.patchType of "{kind}"')
    try:
        operations = msgspec.json.decode(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, TypeError) as error:
        raise internal_error(f"invalid patch: {error}") from error
    if not isinstance(operations, list):
        raise internal_error("invalid patch: not a list of operations")
    return operations


def _invalid(text: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {text}")


def patched(webhook: Webhook, obj: Json | None, operations: list[Any]) -> Json:
    """The object after a webhook's patch. A patch that does not apply fails the request, whatever the policy."""
    if obj is None:
        raise internal_error(
            f'admission webhook "{webhook.name}" attempted to modify the object, which is not supported '
            "for this operation"
        )
    try:
        changed = jsonpatch.apply(obj, operations)
    except (jsonpatch.PatchFailure, jsonpatch.BadPatch, jsonpatch.WrongField) as error:
        raise internal_error(str(error)) from error
    if not isinstance(changed, dict):
        raise internal_error("the patched object is not an object")
    return changed


def denial(webhook: Webhook, status: Json) -> StatusError:
    """A refusal in the webhook's words, with a code that is one."""
    head = f'admission webhook "{webhook.name}" denied the request'
    why = status.get("message") or status.get("reason")
    message = f"{head}: {why}" if why else f"{head} without explanation"
    code = int(status.get("code") or 0)
    code = code if code >= 400 else 400
    return StatusError(code, str(status.get("reason") or ""), message, status.get("details"))


def failure(webhook: Webhook, problem: str) -> StatusError:
    return internal_error(f'failed calling webhook "{webhook.name}": {problem}')


def no_dry_run(webhook: Webhook) -> StatusError:
    return bad_request(f'admission webhook "{webhook.name}" does not support dry run')
