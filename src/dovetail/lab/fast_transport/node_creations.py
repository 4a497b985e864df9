"""What is created for every node, the short way: objects of a second node differ from the first in a few strings.

What the API server made of the first NodeClaim, Node, Lease and CSINode of a kind is remembered as text with holes in
place of those strings (names, addresses, ids, times, annotations of the plan), which are filled in for the next.
Whatever differs elsewhere takes the usual way, with the usual answers, and is remembered in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.create_update import GENERATED_PREFIX
from dovetail.lab.apiserver.store import StoredVersion
from dovetail.lab.apiserver.webhooks.chain import may_concern
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.server import LabServer
from dovetail.model import formats

Json = dict[str, Any]

#: Bodies remembered: one for each set of instance types, zones, taints and requests.
_KEPT_TEMPLATES = 1024
_PLANNED = ("dovetail.sh/decision", "dovetail.sh/price", "dovetail.sh/pods")
_NODE_IDS = ("machineID", "systemUUID", "bootID")
_decode = msgspec.json.Decoder(Json).decode
_encode = msgspec.json.Encoder().encode


def _of_claim(body: Json) -> Iterator[str]:
    annotations = body["metadata"]["annotations"]
    yield from (annotations[name] for name in _PLANNED if name in annotations)


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
    "/apis/karpenter.sh/v1/nodeclaims": ("karpenter.sh", "nodeclaims", "", _of_claim),
    "/api/v1/nodes": ("", "nodes", "", _of_node),
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": (
        "coordination.k8s.io",
        "leases",
        "kube-node-lease",
        _of_lease,
    ),
    "/apis/storage.k8s.io/v1/csinodes": ("storage.k8s.io", "csinodes", "", _of_csi_node),
}


class NodeCreations:
    """Remembers what the API server made of the objects of one node, and makes those of the next."""

    def __init__(self, server: LabServer) -> None:
        self._server = server
        self._templates: dict[tuple[str, bytes], bytes] = {}

    def concerns(self, request: Request) -> bool:
        """Whether a request is one to create such an object."""
        return request.path in _KINDS and request.method == "POST"

    def forget(self) -> None:
        """What the API server makes of a body may be different from now on."""
        self._templates.clear()

    def create(self, request: Request) -> StoredVersion | None:
        """The object that is created; None for a request that must take the usual way."""
        cut = self._cut(request)
        template = self._templates.get((request.path, cut.text)) if cut is not None else None
        if cut is None or template is None:
            return None
        table = self._server.store.table(_table(request.path)).records
        if cut.name and cut.key(cut.name) in table:
            return None
        name = cut.name or self._generated(cut.prefix)
        while cut.key(name) in table:
            name = self._generated(cut.prefix)
        for number, value in enumerate(cut.own):
            template = template.replace(_hole(number), value)
        created = _decode(template)
        created["metadata"] |= {
            "name": name,
            "uid": self._server.chance.uid(),
            "creationTimestamp": stamp(self._server.clock.now()),
        }
        return self._server.store.put(_table(request.path), cut.key(name), created)

    def _generated(self, prefix: str) -> str:
        return prefix[:GENERATED_PREFIX] + self._server.chance.suffix()

    def remember(self, request: Request, response: Response) -> None:
        """A request has created its object the usual way: the next is to be a copy of it."""
        cut = self._cut(request)
        if cut is None:
            return
        created = _decode(response.body)
        created["metadata"].pop("managedFields", None)
        if len(self._templates) >= _KEPT_TEMPLATES:
            self._templates.clear()
        self._templates[request.path, cut.text] = _with_holes(_encode(created), cut.own)

    def _cut(self, request: Request) -> _Cut | None:
        group, plural, namespace, differing = _KINDS[request.path]
        server = self._server
        if request.parameter("dryRun") or may_concern(server, plural, group=group):
            return None
        home = server.store.get("/namespaces", namespace) if namespace else None
        if namespace and (home is None or "deletionTimestamp" in home.obj["metadata"]):
            return None
        try:
            body = _decode(request.body)
            metadata = body["metadata"]
            name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
            values = dict.fromkeys((*((name,) if name else ()), *differing(body)))
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            return None  # not as a component of ours writes it
        if not all(isinstance(value, str) and value for value in values):
            return None
        if (name and formats.subdomain(name)) or not (name or (isinstance(prefix, str) and prefix)):
            return None
        own = [_encode(value) for value in values]
        return _Cut(namespace, name, prefix, _with_holes(request.body, own), own)


class _Cut(msgspec.Struct, frozen=True):
    """A body as text with holes, and what stood there."""

    namespace: str
    name: str
    prefix: str
    text: bytes
    own: list[bytes]

    def key(self, name: str) -> str:
        """Of the object in the store."""
        return f"{self.namespace}/{name}" if self.namespace else name


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
