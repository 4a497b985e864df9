"""Webhooks with scripted answers, which both servers call: the path of a webhook's URL names its script.

In virtual time the lab calls the scripts directly; otherwise they are served over HTTPS.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dovetail.kube.certificates import ServingCertificate, make_certificate
from dovetail.lab.apiserver.server_state import WebhookAnswer
from dovetail.lab.apiserver.webhooks.connection import Unreachable
from tests.conformance.scripted_conversions import convert

Json = dict[str, Any]
#: Seconds after which a webhook that hangs answers after all; every timeout is shorter.
HANG_S = 45.0


class Raw(msgspec.Struct):
    """An answer that is more, or less, than a review."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


Script = Callable[[Json], "Json | Raw"]


def patch(*operations: Json, **response: Any) -> Json:
    text = base64.b64encode(msgspec.json.encode(list(operations))).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text, **response}


def label(name: str, value: str) -> Callable[[Json], Json]:
    """Sets a label, whether or not there are labels."""

    def script(request: Json) -> Json:
        labels = (request["object"]["metadata"].get("labels") or {}) | {name: value}
        return patch({"op": "add", "path": "/metadata/labels", "value": labels})

    return script


def appending(text: str) -> Script:
    """Appends to the annotation `order`, so that it shows who ran when."""

    def script(request: Json) -> Json:
        annotations = dict(request["object"]["metadata"].get("annotations") or {})
        annotations["order"] = annotations.get("order", "") + text
        return patch({"op": "add", "path": "/metadata/annotations", "value": annotations})

    return script


def once(text: str) -> Script:
    """Sets the annotation of its name, which changes nothing the second time."""

    def script(request: Json) -> Json:
        annotations = dict(request["object"]["metadata"].get("annotations") or {})
        annotations[text] = "here"
        return patch({"op": "add", "path": "/metadata/annotations", "value": annotations})

    return script


def constant(**response: Any) -> Script:
    return lambda request: {"allowed": True, **response}


def denied(**status: Any) -> Script:
    return lambda request: {"allowed": False, **({"status": status} if status else {})}


def encoded(document: Any) -> str:
    return base64.b64encode(document if isinstance(document, bytes) else msgspec.json.encode(document)).decode()


def _raw(body: bytes, status: int = 200, content_type: str = "application/json") -> Script:
    return lambda request: Raw(body, status, content_type)


def _review(**parts: Any) -> Script:
    """A whole review of the script's own; `uid` is filled in where it says so."""

    def script(request: Json) -> Raw:
        made = copy.deepcopy(parts)
        if isinstance(made.get("response"), dict) and made["response"].get("uid") == "right":
            made["response"]["uid"] = request["uid"]
        return Raw(msgspec.json.encode(made))

    return script


V1 = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
LABELS = "/metadata/labels/made"
SCRIPTS: dict[str, Script] = {
    "allow": constant(),
    "warn": constant(warnings=["first warning", "second\nwarning", "first warning", ""]),
    "warn-long": constant(warnings=["long " + "x" * 300, "longer " + "y" * 5000, "short"]),
    "warn-many": constant(warnings=[f"{number:03} " + "z" * 100 for number in range(60)]),
    "audit": constant(auditAnnotations={"key": "value"}),
    "deny": denied(),
    "deny-message": denied(message="not today"),
    "deny-reason": denied(reason="TooLate"),
    "deny-code": denied(code=418),
    "deny-low-code": denied(code=200, message="low"),
    "deny-all": denied(
        status="Success",
        code=409,
        message="all of it",
        reason="Conflict",
        details={"name": "x", "kind": "y", "causes": [{"reason": "r", "message": "m", "field": "f"}]},
    ),
    "deny-warn": lambda request: {"allowed": False, "status": {"message": "no"}, "warnings": ["and a warning"]},
    "label-a": label("a", "1"),
    "patch-always": lambda request: patch({"op": "add", "path": "/metadata/labels", "value": {"a": "1"}}),
    "label-b": label("b", "2"),
    "order-a": appending("a"),
    "order-b": appending("b"),
    "order-c": appending("c"),
    "once-a": once("a"),
    "once-b": once("b"),
    "remove-missing": lambda request: patch({"op": "remove", "path": "/spec/nothing"}),
    "replace-missing": lambda request: patch({"op": "replace", "path": "/nothing/below", "value": 1}),
    "add-deep": lambda request: patch({"op": "add", "path": "/nothing/below/this", "value": 1}),
    "test-fails": lambda request: patch({"op": "test", "path": "/metadata/name", "value": "other"}),
    "bad-operation": lambda request: patch({"op": "bend", "path": "/metadata/labels", "value": {}}),
    "no-path": lambda request: patch({"op": "add", "value": {}}),
    "bad-index": lambda request: patch({"op": "add", "path": "/metadata/finalizers/9", "value": "a.b/c"}),
    "patch-number": lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded(7)},
    "patch-object": lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded({"a": 1})},
    "patch-text": lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded(b"{{")},
    "patch-empty": lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded([])},
    "patch-null": lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded(None)},
    "patch-not-base64": lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": "!!"},
    "patch-without-type": lambda request: {"allowed": True, "patch": encoded([])},
    "type-without-patch": lambda request: {"allowed": True, "patchType": "JSONPatch"},
    "merge-patch": lambda request: {"allowed": True, "patchType": "MergePatch", "patch": encoded([{"op": "add"}])},
    "empty-type": lambda request: {"allowed": True, "patchType": "", "patch": encoded([{"op": "add"}])},
    "denied-patch": lambda request: {**label("made", "1")(request), "allowed": False},
    "wrong-type": lambda request: patch({"op": "add", "path": "/metadata/labels", "value": {"a": 7}}),
    "wrong-struct": lambda request: patch({"op": "add", "path": "/metadata", "value": "x"}),
    "unknown-field": lambda request: patch({"op": "add", "path": "/surprise", "value": {"a": 1}}),
    "bad-label": lambda request: patch({"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}}),
    "rename": lambda request: patch({"op": "add", "path": "/metadata/name", "value": "renamed"}),
    "move": lambda request: patch({"op": "add", "path": "/metadata/namespace", "value": "elsewhere"}),
    "set-uid": lambda request: patch(
        {"op": "add", "path": "/metadata/uid", "value": "01234567-89ab-cdef-0123-456789abcdef"}
    ),
    "set-generation": lambda request: patch({"op": "add", "path": "/metadata/generation", "value": 77}),
    "drop-managed": lambda request: patch({"op": "add", "path": "/metadata/managedFields", "value": []}),
    "set-kind": lambda request: patch({"op": "replace", "path": "/kind", "value": "Pod"}),
    "finalize": lambda request: patch({"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]}),
    "owners": lambda request: patch(
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "same"}] * 2,
        }
    ),
    "sidecar": lambda request: patch(
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "proxy"}}
    ),
    "default-replicas": lambda request: patch({"op": "add", "path": "/spec/replicas", "value": 3}),
    "scale-seven": lambda request: patch({"op": "replace", "path": "/spec/replicas", "value": 7}),
    "wrong-uid": _review(**V1, response={"uid": "wrong", "allowed": True}),
    "no-uid": _review(**V1, response={"allowed": True}),
    "no-response": _review(**V1),
    "null-response": _review(**V1, response=None),
    "wrong-kind": _review(kind="Review", apiVersion="admission.k8s.io/v1", response={"uid": "right", "allowed": True}),
    "wrong-version": _review(
        kind="AdmissionReview", apiVersion="admission.k8s.io/v1beta1", response={"uid": "right", "allowed": True}
    ),
    "unknown-version": _review(
        kind="AdmissionReview", apiVersion="admission.k8s.io/v9", response={"uid": "right", "allowed": True}
    ),
    "no-kind": _review(response={"uid": "right", "allowed": True}),
    "no-version": _review(kind="AdmissionReview", response={"uid": "right", "allowed": True}),
    "status-body": _raw(b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"out of order","code":500}'),
    "status-500": _raw(
        b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"out of order","code":500}', 500
    ),
    "garbage": _raw(b"<html>no</html>", 200, "text/html"),
    "garbage-json": _raw(b"nothing"),
    "number": _raw(b"7"),
    "list": _raw(b"[]"),
    "empty": _raw(b""),
    "truncated": _raw(b'{"kind": "AdmissionReview", "apiVersion"'),
    "http-400": _raw(b"bad", 400, "text/plain"),
    "http-401": _raw(b"who", 401, "text/plain"),
    "http-403": _raw(b"no entry", 403, "text/plain"),
    "http-404": _raw(b"404 page not found", 404, "text/plain"),
    "http-409": _raw(b"clash", 409, "text/plain"),
    "http-418": _raw(b"tea", 418, "text/plain"),
    "http-422": _raw(b"what", 422, "text/plain"),
    "http-500": _raw(b"broken\n", 500, "text/plain"),
    "http-500-json": _raw(b'{"error": "broken"}', 500),
    "http-503": _raw(b"later", 503, "text/plain"),
    "http-504": _raw(b"too late", 504, "text/plain"),
    "http-204": _raw(b"", 204),
}


class ScriptedWebhooks:
    """The scripts, what they were sent, and where they are reached."""

    def __init__(self, base: str = "https://localhost:9443") -> None:
        self.base = base
        names = ("localhost",)
        self.certificate: ServingCertificate = make_certificate(names, datetime.now(UTC))
        self.calls: list[tuple[str, Json]] = []

    async def answer(self, path: str, body: bytes) -> WebhookAnswer:
        name = urlsplit(path).path.strip("/")
        review = msgspec.json.decode(body)
        if review["kind"] == "ConversionReview":
            return await convert(name, review)
        self.calls.append((path, review))
        if name == "hang":
            await asyncio.sleep(HANG_S)
            name = "allow"
        if name not in SCRIPTS:
            return WebhookAnswer(404, b"no such script\n", "text/plain")
        made = SCRIPTS[name](review["request"])
        if isinstance(made, Raw):
            return WebhookAnswer(made.status, made.body, made.content_type)
        response = {"uid": review["request"]["uid"], **made}
        whole = {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}
        return WebhookAnswer(200, msgspec.json.encode(whole))

    async def post(
        self, url: str, body: bytes, *, authorities: bytes, server_name: str, target: tuple[str, int] | None
    ) -> WebhookAnswer:
        """What the lab's API server uses in place of the network, in virtual time."""
        parts = urlsplit(url)
        if parts.port not in (9443, 443):
            raise Unreachable(f"dial tcp {parts.netloc}: connect: connection refused")
        if authorities != self.certificate.authorities:
            raise Unreachable("tls: failed to verify certificate: x509: certificate signed by unknown authority")
        return await self.answer(f"{parts.path}?{parts.query}", body)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ScriptedWebhooks]:
        """Over HTTPS, at a free port."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            answer = await self.answer(request.path_qs, await request.read())
            return web.Response(status=answer.status, body=answer.body, headers={"content-type": answer.content_type})

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certificate.load_into(context)
        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.base = f"https://localhost:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def saved(self) -> Json:
        """What steps may name in braces."""
        return {"hooks": self.base, "bundle": self.certificate.bundle}

    def hide(self, text: bytes) -> bytes:
        """A text without what differs from run to run."""
        for found, shown in (
            (self.base, "https://localhost:9443"),
            (self.certificate.bundle, "<bundle>"),
        ):
            text = text.replace(found.encode(), shown.encode())
        return text

    def take_calls(self) -> list[Json]:
        """The calls since the last time, each with its path."""
        calls, self.calls = self.calls, []
        return [{"path": path, "review": review} for path, review in calls]
