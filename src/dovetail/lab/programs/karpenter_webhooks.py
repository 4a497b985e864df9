"""The admission and conversion webhooks that charts of Karpenter up to 1.0 register, answered by our controller.

Their configurations have failurePolicy Fail: where nothing answers, no Provisioner, NodePool or setting can be written.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from dovetail.lab.programs.context import ProgramContext
from dovetail.lab.webhook_services import joined
from dovetail.language import english
from dovetail.model.kinds import admission
from dovetail.model.kinds.convert import ConversionError, review
from dovetail.model.kinds.convert_v1alpha5 import assumed

Json = dict[str, Any]
#: The chart's name for the Service, where the pod's environment does not say it.
DEFAULT_SERVICE = "karpenter"


@contextmanager
def served(context: ProgramContext) -> Iterator[None]:
    """Answer for the Service of the chart while the program runs, where the API server is in this process."""
    if context.server is None:
        yield
        return
    service = context.environment.get("KARPENTER_SERVICE") or DEFAULT_SERVICE

    async def answer(path: str, body: bytes) -> tuple[int, bytes]:
        with english():
            return respond(path, body)

    with joined(context.server, context.namespace, service, answer):
        yield


def respond(path: str, body: bytes) -> tuple[int, bytes]:
    """The answer to a review: converted objects, defaults for the defaulting webhook, or whether an object is valid."""
    try:
        admission_review = msgspec.json.decode(body, type=dict[str, Any])
        if admission_review.get("kind") == "ConversionReview":
            return 200, msgspec.json.encode(review(admission_review))
        request = admission_review["request"]
    except (msgspec.DecodeError, ConversionError, KeyError) as problem:
        return 400, str(problem).encode()
    obj = request.get("object") or {}
    response: Json = {"uid": request.get("uid", ""), "allowed": True}
    if path.startswith("/default"):
        patches = _defaults(obj)
        if patches:
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patches)).decode()}
    elif request.get("operation") != "DELETE" and not request.get("subResource"):
        problems = admission.check(obj)  # other kinds than ours, such as ConfigMaps, are as they should be
        if problems:
            text = f"validation failed: {', '.join(map(str, problems))}"
            response |= {"allowed": False, "status": {"code": 400, "message": text, "reason": "BadRequest"}}
    head = {"apiVersion": admission_review.get("apiVersion"), "kind": admission_review.get("kind")}
    return 200, msgspec.json.encode({**head, "response": response})


def _defaults(obj: Mapping[str, Any]) -> list[Json]:
    """The requirements that the defaulting webhook adds to a Provisioner."""
    if obj.get("kind") != "Provisioner":
        return []
    spec = obj.get("spec") or {}
    said = list(spec.get("requirements") or ())
    added = assumed(said, spec.get("labels") or {})
    if not added:
        return []
    if not obj.get("spec"):
        return [{"op": "add", "path": "/spec", "value": {"requirements": added}}]
    return [{"op": "add", "path": "/spec/requirements", "value": [*said, *added]}]
