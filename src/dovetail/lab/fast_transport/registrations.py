"""Objects that a kubelet creates as it joins, the short way: those of a second node differ in a few strings.

What the API server made of the first Node, Lease and CSINode of a kind is remembered as text with holes in place of
those strings (its own name, addresses, ids and times), which are filled in for the next. Whatever differs elsewhere
takes the usual way, with the usual answers, and is remembered in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.store import StoredVersion
from dovetail.lab.apiserver.webhooks.chain import may_concern
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.server import LabServer
from dovetail.model import formats

Json = dict[str, Any]

#: Bodies remembered: one for each instance type, zone and set of taints.
_KEPT_TEMPLATES = 1024
_NODE_IDS = ("machineID", "systemUUID", "bootID")
_decode = msgspec.json.Decoder(Json).decode
_encode = msgspec.json.Encoder().encode


def _of_node(body: Json) -> Iterator[str]:
    status = body["status"]
    yield body["spec"]["providerID"]
    for address in status["addresses"]:
        yield address["address"]
    for condition in status["conditions"]:
        yield from (condition["lastHeartbeatTime"], condition["lastTransitionTime"])
    for name in _NODE_IDS:
        yield status["nodeInfo"][name]


def _of_lease(body: Json) -> Iterator[str]:
    yield from (owner["uid"] for owner in body["metadata"]["ownerReferences"])
    yield body["spec"]["renewTime"]


def _of_csi_node(body: Json) -> Iterator[str]:
    yield from (owner["uid"] for owner in body["metadata"]["ownerReferences"])
    yield from (driver["nodeID"] for driver in body["spec"]["drivers"])


#: By path: group and plural, the namespace, and the strings beside the name in which such objects differ.
_KINDS: dict[str, tuple[str, str, str, Callable[[Json], Iterator[str]]]] = {
    "/api/v1/nodes": ("", "nodes", "", _of_node),
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": (
        "coordination.k8s.io",
        "leases",
        "kube-node-lease",
        _of_lease,
    ),
    "/apis/storage.k8s.io/v1/csinodes": ("storage.k8s.io", "csinodes", "", _of_csi_node),
}


class Registrations:
    """Remembers what the API server made of the objects of one kubelet, and makes those of the next."""

    def __init__(self, server: LabServer) -> None:
        self._server = server
        self._templates: dict[tuple[str, bytes], bytes] = {}

    def concerns(self, request: Request) -> bool:
        """Whether a request is one to create such an object."""
        return request.path in _KINDS and request.method == "POST"

    def create(self, request: Request) -> StoredVersion | None:
        """The object that is created; None for a request that must take the usual way."""
        cut = self._cut(request)
        if cut is None:
            return None
        key, text, own = cut
        template = self._templates.get((request.path, text))
        if template is None or self._server.store.get(_table(request.path), key) is not None:
            return None
        for number, value in enumerate(own):
            template = template.replace(_hole(number), value)
        created = _decode(template)
        created["metadata"] |= {
            "uid": self._server.chance.uid(),
            "creationTimestamp": stamp(self._server.clock.now()),
        }
        return self._server.store.put(_table(request.path), key, created)

    def remember(self, request: Request, response: Response) -> None:
        """A request has created its object the usual way: the next is to be a copy of it."""
        cut = self._cut(request)
        if cut is None:
            return
        created = _decode(response.body)
        created["metadata"].pop("managedFields", None)
        if len(self._templates) >= _KEPT_TEMPLATES:
            self._templates.clear()
        self._templates[request.path, cut[1]] = _with_holes(_encode(created), cut[2])

    def _cut(self, request: Request) -> tuple[str, bytes, list[bytes]] | None:
        """The key of the object in the store, its text with holes, and what stood there."""
        group, plural, namespace, differing = _KINDS[request.path]
        server = self._server
        if server.middleware or request.parameter("dryRun") or may_concern(server, plural, group=group):
            return None
        home = server.store.get("/namespaces", namespace) if namespace else None
        if namespace and (home is None or "deletionTimestamp" in home.obj["metadata"]):
            return None
        body = _decode(request.body)
        try:
            name = body["metadata"]["name"]
            values = dict.fromkeys((name, *differing(body)))
        except (KeyError, TypeError, AttributeError):
            return None  # not as a kubelet of ours writes it
        if formats.subdomain(name) or "/" in name or not all(isinstance(value, str) and value for value in values):
            return None
        own = [_encode(value) for value in values]
        return f"{namespace}/{name}" if namespace else name, _with_holes(request.body, own), own


def _table(path: str) -> str:
    group, plural, *_ = _KINDS[path]
    return f"{group}/{plural}"


def _hole(number: int) -> bytes:
    """No JSON text has a NUL."""
    return b"\0%d\0" % number


def _with_holes(text: bytes, own: list[bytes]) -> bytes:
    """Every string of these, quotes included, is replaced."""
    for number, value in enumerate(own):
        text = text.replace(value, _hole(number))
    return text
