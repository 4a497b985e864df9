"""Conversion webhooks with scripted answers: `host` and `port` of version v1 are `hostPort` in version v2."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.lab.apiserver.server_state import WebhookAnswer

Json = dict[str, Any]
GROUP = "conversion.example.com"


def converted(obj: Json, version: str) -> Json:
    """An object in another version."""
    made = copy.deepcopy(obj)
    made["apiVersion"] = version
    spec = made.get("spec") or {}
    if version.endswith("/v2") and "host" in spec:
        made["spec"] = {"hostPort": f"{spec['host']}:{spec.get('port', '')}"}
    elif version.endswith("/v1") and "hostPort" in spec:
        host, _, port = spec["hostPort"].partition(":")
        made["spec"] = {"host": host, "port": port}
    return made


def _changed(change: Callable[[Json], None]) -> Callable[[Json, str], Json]:
    def script(obj: Json, version: str) -> Json:
        made = converted(obj, version)
        change(made)
        return made

    return script


def _set(path: str, value: Any) -> Callable[[Json], None]:
    def change(obj: Json) -> None:
        *steps, last = path.split(".")
        for step in steps:
            obj = obj.setdefault(step, {})
        obj[last] = value

    return change


OBJECTS: dict[str, Callable[[Json, str], Json]] = {
    "convert": converted,
    "convert-wrong-version": _changed(_set("apiVersion", f"{GROUP}/v9")),
    "convert-wrong-kind": _changed(_set("kind", "Other")),
    "convert-renamed": _changed(_set("metadata.name", "renamed")),
    "convert-wrong-uid": _changed(_set("metadata.uid", "other")),
    "convert-labels": _changed(_set("metadata.labels", {"made": "here"})),
    "convert-bad-labels": _changed(_set("metadata.labels", {"a b": "c"})),
    "convert-metadata": _changed(_set("metadata.finalizers", ["a.b/c"])),
    "convert-no-metadata": _changed(lambda obj: obj.pop("metadata")),
    "convert-unknown": _changed(_set("spec.surprise", "x")),
}
RESPONSES: dict[str, Json] = {
    "convert-failed": {"result": {"status": "Failure", "message": "it cannot be"}},
    "convert-failed-silently": {"result": {"status": "Failure"}},
    "convert-no-result": {},
    "convert-none": {"result": {"status": "Success"}, "convertedObjects": []},
}


async def convert(name: str, review: Json) -> WebhookAnswer:
    """The answer of the script `name`."""
    request = review["request"]
    response: Json = {"uid": request["uid"], "result": {"status": "Success"}}
    if name == "convert-broken":
        return WebhookAnswer(500, b"broken\n", "text/plain")
    if name == "convert-garbage":
        return WebhookAnswer(200, b"nothing\n", "text/plain")
    if name in RESPONSES:
        response = {"uid": request["uid"], **RESPONSES[name]}
    elif name == "convert-wrong-review-uid":
        response["uid"] = "wrong"
    elif name in OBJECTS:
        version = request["desiredAPIVersion"]
        response["convertedObjects"] = [OBJECTS[name](obj, version) for obj in request["objects"]]
    else:
        return WebhookAnswer(404, b"no such script\n", "text/plain")
    whole = {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}
    if name == "convert-no-response":
        del whole["response"]
    return WebhookAnswer(200, msgspec.json.encode(whole))
