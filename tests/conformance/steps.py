"""Requests as a corpus writes them: one short line each.

Text in braces is filled in when the step runs: `{ns}` is the topic's own namespace, `{x.metadata.uid}` a field
of the answer that an earlier step saved as `x`.
"""

from __future__ import annotations

from typing import Any

import msgspec

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = {}
    body: Any = None
    save: str = ""
    #: Seconds to keep listening to a watch that does not end by itself; 0 for plain requests.
    listen: float = 0.0
    #: Opens a watch that later steps add to and `hear` reads.
    opens: str = ""
    hears: str = ""
    anonymous: bool = False
    token: str = ""
    #: Only the code is written down: the body is ours to change.
    brief: bool = False
    #: Seconds to wait afterwards: a real server acts on a new configuration when its watch has brought it.
    pause: float = 0.0
    #: What the scripted webhooks were sent since the last such step.
    calls: bool = False

    @property
    def title(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query)
        return f"{self.method} {self.path}{'?' + query if query else ''}"


def _step(method: str, path: str, body: Any = None, options: dict[str, Any] | None = None) -> Step:
    rest = dict(options or {})
    own = {
        name: rest.pop(name)
        for name in ("save", "listen", "opens", "hears", "anonymous", "token", "pause")
        if name in rest
    }
    headers = dict(rest.pop("headers", {}))
    accept, content = rest.pop("accept", ""), rest.pop("content", "")
    if accept:
        headers["accept"] = accept
    if content:
        headers["content-type"] = content
    elif body is not None and "content-type" not in headers:
        headers["content-type"] = "application/json"
    query = tuple(rest.pop("query", ())) + tuple((name.rstrip("_"), str(value)) for name, value in rest.items())
    return Step(method=method, path=path, query=query, headers=headers, body=body, **own)


def get(path: str, **options: Any) -> Step:
    return _step("GET", path, None, options)


def table(path: str, **options: Any) -> Step:
    return _step("GET", path, None, {"accept": TABLE, **options})


def post(path: str, body: Any, **options: Any) -> Step:
    return _step("POST", path, body, options)


def put(path: str, body: Any, **options: Any) -> Step:
    return _step("PUT", path, body, options)


def delete(path: str, body: Any = None, **options: Any) -> Step:
    return _step("DELETE", path, body, options)


def patch(path: str, body: Any, kind: str = "merge", **options: Any) -> Step:
    return _step("PATCH", path, body, {"content": _PATCHES[kind], **options})


def apply(path: str, body: Any, manager: str = "one", **options: Any) -> Step:
    return _step("PATCH", path, body, {"content": _PATCHES["apply"], "fieldManager": manager, **options})


def watch(path: str, seconds: int = 1, **options: Any) -> Step:
    """A watch to its end: whatever is there to hear within `seconds`."""
    return _step("GET", path, None, {"watch": "true", "timeoutSeconds": seconds, "listen": seconds + 3.0, **options})


def call(method: str, path: str, body: Any = None, **options: Any) -> Step:
    return _step(method, path, body, options)


def open_watch(name: str, path: str, **options: Any) -> Step:
    return _step("GET", path, None, {"watch": "true", "opens": name, **options})


def hear(name: str) -> Step:
    """What the open watch has said by now; closes it."""
    return Step(method="HEAR", path=name, hears=name)


def calls() -> Step:
    """What the scripted webhooks were sent since the last such step."""
    return Step(method="CALLS", path="webhooks", calls=True)


NS = "/api/v1/namespaces/{ns}"


def core(plural: str, name: str = "", subresource: str = "") -> str:
    return "/".join(part for part in (NS, plural, name, subresource) if part)


def named(group: str, plural: str, name: str = "", subresource: str = "") -> str:
    """A namespaced path: `named("apps/v1", "deployments", "d", "scale")`."""
    return "/".join(part for part in (f"/apis/{group}/namespaces/{{ns}}", plural, name, subresource) if part)


def cluster(group: str, plural: str, name: str = "", subresource: str = "") -> str:
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return "/".join(part for part in (base, plural, name, subresource) if part)
