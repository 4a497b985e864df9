"""What ten thousand pods do alike, done once by the API server and repeated here.

A transport like any other. A pod made from the same bytes as one before is a copy with another name; a binding, a
kubelet's status, a plain deletion, a patch of a node or NodeClaim and a renewed lease go to the store without the
general machinery. Whatever is not exactly so takes the usual way, with the usual answers. Who owns which field
(managedFields) is not followed. The lab's own parts come here without a request (`lab.direct_client`), and subscribe to
changes instead of watching them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from dovetail.kube.decode import decode
from dovetail.kube.resources import Resource
from dovetail.kube.transport import OnChange, Request, Response, Stop
from dovetail.lab.apiserver.kinds.pod.strategy import set_condition
from dovetail.lab.apiserver.store import StoredVersion, StoreEvent
from dovetail.lab.apiserver.webhooks.chain import may_concern
from dovetail.lab.controllers.interning import share_labels
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.fast_transport import lease_updates, node_patches, status_updates
from dovetail.lab.fast_transport.node_creations import NodeCreations
from dovetail.lab.pushed_changes import ObjectChange, ObjectMold, Parts, ViewDifference
from dovetail.lab.server import LabServer

T = TypeVar("T")
Json = dict[str, Any]

PODS, EVENTS = "/pods", "/events"
#: What admission of a pod depends on: a change here, and molds are made anew.
_ADMISSION = frozenset({"/namespaces", "/limitranges", "/resourcequotas", "scheduling.k8s.io/priorityclasses"})
_DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_KEPT_MOLDS = 4096
#: What a copy does not have in common with its mold.
_OWN = ("name", "uid", "creationTimestamp", "resourceVersion")
#: Changes remembered for watches that resume: few do here, and what is forgotten soon need never be encoded.
HISTORY = 250
_JSON = {"content-type": "application/json"}
_BOUND = Response(status=201, headers=_JSON, body=b'{"kind":"Status","apiVersion":"v1","status":"Success","code":201}')
_DONE = Response(status=200, headers=_JSON, body=b"{}")
_UNKNOWN: tuple[Parts | None, ObjectMold | None] = (None, None)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FastTransport:
    """Carries requests to a server in the same process, by the shorter way where there is one."""

    def __init__(self, server: LabServer) -> None:
        self._server = server
        self._store = server.store
        self._store.history_limit = HISTORY
        self._molds: dict[tuple[str, bytes], ObjectMold] = {}
        self._subscribers: dict[str, list[OnChange]] = {}
        #: What is new about the object that is being written, and what it is a copy of.
        self._writing: tuple[Parts | None, ObjectMold | None] = _UNKNOWN
        self._chance = server.chance.child("fastlane")
        self._recorded = _RecordedStatus()
        self._node_creations = NodeCreations(server)
        server.store.observers.append(self._changed)

    async def close(self) -> None:
        """Nothing to close."""

    # Hearing of changes

    def subscribe(self, group: str, plural: str, on_change: OnChange) -> Stop:
        """Deliver every change at once, before its author has an answer."""
        subscribers = self._subscribers.setdefault(f"{group}/{plural}", [])
        subscribers.append(on_change)
        return lambda: subscribers.remove(on_change)

    def _changed(self, event: StoreEvent) -> None:
        if event.table in _ADMISSION:
            self._molds.clear()
        elif event.table == _DEFINITIONS:
            self._node_creations.forget()
        (parts, mold), self._writing = self._writing, _UNKNOWN
        subscribers = self._subscribers.get(event.table)
        if subscribers:
            change = self._change(event, parts, mold)
            for on_change in tuple(subscribers):
                on_change(change)

    def _change(self, event: StoreEvent, parts: Parts | None, mold: ObjectMold | None) -> ObjectChange:
        record, before = event.record, event.previous
        if record is None:
            assert before is not None
            version = ViewDifference({"metadata": {"resourceVersion": str(event.rv)}}) if event.table == PODS else None
            return ObjectChange(
                before.key, event.rv, lambda: event.gone.raw, gone=True, difference=version, before=before.rv
            )
        difference = None
        if parts is not None:
            parts.setdefault("metadata", {})["resourceVersion"] = str(event.rv)
            difference = ViewDifference(parts)
        last_seen = before.rv if before is not None else 0
        return ObjectChange(
            record.key, event.rv, lambda: record.raw, difference=difference, mold=mold, before=last_seen
        )

    def _put(self, key: str, pod: Json, new: Parts, mold: ObjectMold | None = None) -> StoredVersion:
        """Write a pod of which only this is new."""
        self._writing = new, mold
        return self._store.put(PODS, key, pod)

    def _put_in(self, table: str, key: str, obj: Json, new: Parts | None) -> StoredVersion:
        """Write an object of which only this is new, if that is known."""
        self._writing = new, None
        return self._store.put(table, key, obj)

    # What is asked for by a request

    async def send(self, request: Request) -> Response:
        if request.method != "GET" and request.path.startswith("/api/v1/namespaces/"):
            short = await self._short(request, request.path.split("/")[4:])
            if short is not None:
                return short
        elif request.method == "PATCH":
            record = node_patches.merged(self._store, request, self._put_in)
            if record is not None:
                return Response(status=200, headers=_JSON, body=record.raw)
        elif request.method == "PUT" and request.path.startswith(lease_updates.PATH):
            record = self._renewed(request)
            if record is not None:
                return Response(status=200, headers=_JSON, body=record.raw)
        elif self._node_creations.concerns(request):
            return await self._create_for_node(request)
        return await self._server.handle(request)

    async def _create_for_node(self, request: Request) -> Response:
        record = self._node_creations.create(request)
        if record is not None:
            return Response(status=201, headers=_JSON, body=record.raw)
        response = await self._server.handle(request)
        if response.status == 201:
            self._node_creations.remember(request, response)
        return response

    def _renewed(self, request: Request) -> StoredVersion | None:
        if may_concern(self._server, "leases", group="coordination.k8s.io"):
            return None
        return lease_updates.renewed(self._store, request)

    async def _short(self, request: Request, parts: list[str]) -> Response | None:
        """The answer to a write to pods or events where there is a shorter way to it."""
        if len(parts) < 2 or may_concern(self._server, parts[1], parts[3] if len(parts) > 3 else ""):
            return None
        match request.method, parts:
            case "POST", [namespace, "pods"]:
                return await self._create(request, namespace)
            case "POST", [namespace, "pods", name, "binding"]:
                body = _decode(request.body)
                node, uid = body["target"]["name"], body.get("metadata", {}).get("uid")
                return _BOUND if self.bind(namespace, name, node, uid) else None
            case "PATCH", [namespace, "pods", name, "status"]:
                strategic = "strategic" in request.headers.get("content-type", "")
                return _DONE if strategic and self.report(namespace, name, _decode(request.body)) else None
            case "DELETE", [namespace, "pods", name]:
                for intercept in self._server.middleware:
                    await intercept(request)
                return self._delete(f"{namespace}/{name}", _decode(request.body) if request.body else {})
            case "POST", [namespace, "events"]:
                return self._publish(_decode(request.body), namespace)
            case "PATCH", [namespace, "events", name] if node_patches.merges(request):
                return self._publish_again(_decode(request.body), f"{namespace}/{name}")
        return None

    async def _create(self, request: Request, namespace: str) -> Response:
        record = self._copy(namespace, request.body)
        if record is not None:
            return Response(status=201, headers=_JSON, body=record.raw)
        response = await self._server.handle(request)
        if response.status == 201:
            made = ObjectMold(response.body)
            if "name" not in _decode(request.body)["metadata"]:
                if len(self._molds) >= _KEPT_MOLDS:
                    self._molds.clear()
                self._molds[namespace, request.body] = made
        return response

    def _delete(self, key: str, options: Json) -> Response | None:
        record = self._store.get(PODS, key)
        if record is None:
            return None
        pod = record.obj
        metadata = pod["metadata"]
        uid = options.get("preconditions", {}).get("uid")
        if metadata.get("finalizers") or (uid and uid != metadata["uid"]) or options.keys() - _PLAIN_DELETE:
            return None
        grace = options.get("gracePeriodSeconds")
        over = not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if grace == 0 or over:
            return Response(status=200, headers=_JSON, body=self._store.delete(PODS, record.key).raw)
        if grace is not None or "deletionTimestamp" in metadata:
            return None
        seconds = pod["spec"].get("terminationGracePeriodSeconds", 30)
        new = {
            "deletionTimestamp": stamp(self._server.clock.now() + timedelta(seconds=seconds)),
            "deletionGracePeriodSeconds": seconds,
            "generation": metadata.get("generation", 1) + 1,
        }
        marked = self._put(record.key, {**pod, "metadata": {**metadata, **new}}, {"metadata": new})
        return Response(status=200, headers=_JSON, body=marked.raw)

    def _publish(self, body: Json, namespace: str) -> Response | None:
        """An event of one of our own components, which write them whole."""
        metadata = body["metadata"]
        key = f"{namespace}/{metadata.get('name', '')}"
        home = self._store.get("/namespaces", namespace)
        if home is None or "deletionTimestamp" in home.obj["metadata"]:
            return None
        if metadata.keys() - {"annotations"} != _EVENT_METADATA or self._store.get(EVENTS, key) is not None:
            return None
        own = {**metadata, "uid": self._chance.uid(), "creationTimestamp": stamp(self._server.clock.now())}
        whole = {"kind": "Event", "apiVersion": "v1", "eventTime": None, **body, "metadata": own}
        record = self._store.put(EVENTS, key, whole)
        return Response(status=201, headers=_JSON, body=record.raw)

    def _publish_again(self, change: Json, key: str) -> Response | None:
        """The same event once more."""
        record = self._store.get(EVENTS, key)
        if record is None or change.keys() - _REPEATED_FIELDS:
            return None
        event = record.obj
        record = self._store.put(EVENTS, key, {**event, **change, "metadata": dict(event["metadata"])})
        return Response(status=200, headers=_JSON, body=record.raw)

    # What is asked for without one

    def cast(self, namespace: str, body: bytes, type: type[T]) -> T | None:
        record = self._copy(namespace, body)
        if record is None or not issubclass(type, msgspec.Struct):
            return None if record is None else decode(record.raw, type)
        metadata = record.obj["metadata"]
        own = ViewDifference({"metadata": {name: metadata[name] for name in _OWN}})
        copy: T = own.put_into(self._molds[namespace, body].view(type, None))
        return copy

    def _copy(self, namespace: str, body: bytes) -> StoredVersion | None:
        """A pod like the one that was made from these bytes before."""
        mold = self._molds.get((namespace, body))
        if mold is None or self._store.table("/resourcequotas").records or may_concern(self._server, "pods"):
            return None
        metadata = mold.obj["metadata"]
        taken = self._store.table(PODS).records
        name = metadata["generateName"] + self._chance.suffix()
        while f"{namespace}/{name}" in taken:
            name = metadata["generateName"] + self._chance.suffix()
        now = stamp(self._server.clock.now())
        new = {"name": name, "uid": self._chance.uid(), "creationTimestamp": now}
        own = {**metadata, **new}
        own.pop("managedFields", None)
        return self._put(f"{namespace}/{name}", {**mold.obj, "metadata": own}, {"metadata": new}, mold)

    def bind(self, namespace: str, name: str, node: str, uid: str | None) -> bool:
        record = self._store.get(PODS, f"{namespace}/{name}")
        if record is None:
            return False
        pod = record.obj
        metadata, spec = pod["metadata"], pod["spec"]
        if "deletionTimestamp" in metadata or spec.get("nodeName") or spec.get("schedulingGates"):
            return False
        if uid and uid != metadata["uid"]:
            return False
        status = dict(pod.get("status") or {})
        status.pop("nominatedNodeName", None)
        set_condition(status, {"type": "PodScheduled", "status": "True"}, self._server.clock.now())
        nodes = self._store.get("/nodes", node)
        labels = nodes.obj["metadata"].get("labels", {}) if nodes is not None else {}
        places = {key: labels[key] for key in _TOPOLOGY if key in labels}
        new = {"labels": share_labels({**metadata.get("labels", {}), **places})} if places else {}
        bound = {**pod, "metadata": {**metadata, **new}, "spec": {**spec, "nodeName": node}, "status": status}
        new_status = {"conditions": status["conditions"], "nominatedNodeName": ""}
        self._put(record.key, bound, {"metadata": new, "spec": {"nodeName": node}, "status": new_status})
        return True

    def update_status(self, resource: Resource, body: Mapping[str, Any]) -> bytes | None:
        """The stored object with the status of `body`; None where there is no shorter way."""
        if resource not in status_updates.KEPT_ZEROS:
            return None
        if may_concern(self._server, resource.plural, "status", group=resource.group):
            return None
        record = status_updates.updated(self._store, resource, body)
        return None if record is None else record.raw

    def report(self, namespace: str, name: str, body: Mapping[str, Any]) -> bool:
        """The patch of a kubelet, or of the scheduler."""
        record = self._store.get(PODS, f"{namespace}/{name}")
        given = body.get("status")
        if record is None or given is None:
            return False
        pod = record.obj
        if body.get("metadata", {}).get("uid") != pod["metadata"]["uid"]:
            return False
        old = pod.get("status") or {}
        if any("$patch" in item for item in given.get("conditions") or ()):
            return False
        if "$setElementOrder/conditions" in given:
            status = _as_kubelet(old, given, self._recorded(given["conditions"]))
        elif given.keys() <= _SCHEDULERS:
            status = _as_scheduler(old, given)
        else:
            return False
        if status != old:
            new = {part: status.get(part, "") for part in given if part[0] != "$"}
            changed = {**pod, "metadata": {**pod["metadata"]}, "status": status}
            self._put(record.key, changed, {"status": new})
        return True


class _RecordedStatus:
    """Conditions without what is not said. Pods that do the same at the same instant come with the same list."""

    def __init__(self) -> None:
        self._given: list[Json] = []
        self._kept: list[Json] = []

    def __call__(self, given: list[Json]) -> list[Json]:
        if given is not self._given:
            self._given, self._kept = given, [_condition(item) for item in given]
        return self._kept


def _as_kubelet(old: Json, given: Mapping[str, Any], conditions: list[Json]) -> Json:
    """Its conditions in its order, others' behind them, everything else replaced."""
    ours = {condition["type"] for condition in conditions}
    others = [condition for condition in old.get("conditions", ()) if condition["type"] not in ours]
    status = {**old, **given, "conditions": [*conditions, *others] if others else conditions}
    del status["$setElementOrder/conditions"]
    return status


def _as_scheduler(old: Json, given: Mapping[str, Any]) -> Json:
    """Its conditions in the place of those of their type, and its nominated node."""
    status = dict(old)
    if "conditions" in given:
        fresh = {condition["type"]: _condition(condition) for condition in given["conditions"]}
        kept = [fresh.pop(condition["type"], condition) for condition in old.get("conditions", ())]
        status["conditions"] = [*kept, *fresh.values()]
    if "nominatedNodeName" in given:
        status["nominatedNodeName"] = given["nominatedNodeName"]
        if not status["nominatedNodeName"]:
            del status["nominatedNodeName"]
    return status


def _condition(given: Json) -> Json:
    return {name: value for name, value in given.items() if value is not None or name == "lastProbeTime"}


_SCHEDULERS = {"conditions", "nominatedNodeName"}
_EVENT_METADATA = {"name", "namespace"}
_REPEATED_FIELDS = {"count", "lastTimestamp", "message"}
_PLAIN_DELETE = {"kind", "apiVersion", "gracePeriodSeconds", "preconditions", "propagationPolicy"}
