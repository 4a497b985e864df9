"""The fast lane of simulations: what ten thousand pods do alike, done once by the API server and repeated here.

A transport like any other. A pod made from the same bytes as one before is a copy with another name; a binding,
a kubelet's status, a plain deletion and a patch of a machine go to the store without the general machinery. Whatever
is not exactly so takes the usual way, with the usual answers. Who owns which field (managedFields) is not followed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from dovetail.kube.feed import News, Stop, Told
from dovetail.kube.transport import Request, Response
from dovetail.lab import machinepatches
from dovetail.lab.apiserver.kinds.pod.strategy import set_condition
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import Event, Record, with_version
from dovetail.lab.controllers.instants import stamp

Json = dict[str, Any]

PODS, EVENTS = "/pods", "/events"
#: What admission of a pod depends on: a change here, and molds are made anew.
_ADMISSION = frozenset({"/namespaces", "/limitranges", "/resourcequotas", "scheduling.k8s.io/priorityclasses"})
_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_KEPT_MOLDS = 4096
#: Changes remembered for watches that resume: the past of thirty thousand pods would be most of the memory.
HISTORY = 4000
_JSON = {"content-type": "application/json"}
_BOUND = Response(status=201, headers=_JSON, body=b'{"kind":"Status","apiVersion":"v1","status":"Success","code":201}')
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class FastLane:
    """Carries requests to a server in the same process, by the shorter way where there is one."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._store = server.store
        self._store.history_limit = HISTORY
        self._molds: dict[tuple[str, bytes], Json] = {}
        self._feeds: dict[str, list[Told]] = {}
        self._chance = server.chance.child("fastlane")
        server.store.observers.append(self._changed)

    def _changed(self, event: Event) -> None:
        if event.table in _ADMISSION:
            self._molds.clear()
        feeds = self._feeds.get(event.table)
        if feeds:
            gone = event.record is None
            record = event.record or event.previous
            assert record is not None
            news = News(with_version(record, event.rv).raw if gone else record.raw, gone)
            for told in tuple(feeds):
                told(news)

    async def close(self) -> None:
        """Nothing to close."""

    def feed(self, group: str, plural: str, told: Told) -> Stop:
        """Tell of every change at once, before whoever made it has an answer."""
        feeds = self._feeds.setdefault(f"{group}/{plural}", [])
        feeds.append(told)
        return lambda: feeds.remove(told)

    async def send(self, request: Request) -> Response:
        if request.method != "GET" and request.path.startswith("/api/v1/namespaces/"):
            parts = request.path.split("/")
            if len(parts) >= 6 and parts[5] == "pods":
                if request.method == "POST" and len(parts) == 6:
                    return await self._create(request, parts[4])
                short = self._short(request, parts)
                if short is not None:
                    return short
            elif request.method == "POST" and len(parts) == 6 and parts[5] == "events":
                told = self._tell(_decode(request.body), parts[4])
                if told is not None:
                    return told
            elif machinepatches.merges(request) and len(parts) == 7 and parts[5] == "events":
                told = self._tell_again(_decode(request.body), f"{parts[4]}/{parts[6]}")
                if told is not None:
                    return told
        elif request.method == "PATCH":
            record = machinepatches.merged(self._store, request)
            if record is not None:
                return Response(status=200, headers=_JSON, body=record.raw)
        return await self._server.handle(request)

    def _short(self, request: Request, parts: list[str]) -> Response | None:
        door = parts[7] if len(parts) > 7 else ""
        if len(parts) < 7:
            return None
        record = self._store.get(PODS, f"{parts[4]}/{parts[6]}")
        if record is None:
            return None
        if request.method == "POST" and door == "binding":
            return self._bind(record, _decode(request.body))
        if request.method == "PATCH" and door == "status":
            return self._status(record, request)
        if request.method == "DELETE" and not door:
            return self._delete(record, _decode(request.body) if request.body else {})
        return None

    async def _create(self, request: Request, namespace: str) -> Response:
        key = (namespace, request.body)
        mold = self._molds.get(key)
        if mold is not None and not self._store.table("/resourcequotas").records:
            return self._cast(mold, namespace)
        response = await self._server.handle(request)
        if response.status == 201:
            made = _decode(response.body)
            if "generateName" in made["metadata"]:
                if len(self._molds) >= _KEPT_MOLDS:
                    self._molds.clear()
                self._molds[key] = made
        return response

    def _cast(self, mold: Json, namespace: str) -> Response:
        metadata = mold["metadata"]
        taken = self._store.table(PODS).records
        name = metadata["generateName"] + self._chance.suffix()
        while f"{namespace}/{name}" in taken:
            name = metadata["generateName"] + self._chance.suffix()
        now = stamp(self._server.clock.now())
        own = {**metadata, "name": name, "uid": self._chance.uid(), "creationTimestamp": now}
        own.pop("managedFields", None)
        record = self._store.put(PODS, f"{namespace}/{name}", {**mold, "metadata": own})
        return Response(status=201, headers=_JSON, body=record.raw)

    def _tell(self, body: Json, namespace: str) -> Response | None:
        """An event of one of our own components, which write them whole."""
        metadata = body["metadata"]
        key = f"{namespace}/{metadata.get('name', '')}"
        home = self._store.get("/namespaces", namespace)
        if home is None or "deletionTimestamp" in home.obj["metadata"] or metadata.keys() != _EVENT_METADATA:
            return None
        if self._store.get(EVENTS, key) is not None:
            return None
        own = {**metadata, "uid": self._chance.uid(), "creationTimestamp": stamp(self._server.clock.now())}
        record = self._store.put(EVENTS, key, {"kind": "Event", "apiVersion": "v1", **body, "metadata": own})
        return Response(status=201, headers=_JSON, body=record.raw)

    def _tell_again(self, change: Json, key: str) -> Response | None:
        """The same event once more."""
        record = self._store.get(EVENTS, key)
        if record is None or change.keys() - _TOLD_AGAIN:
            return None
        event = record.obj
        record = self._store.put(EVENTS, key, {**event, **change, "metadata": dict(event["metadata"])})
        return Response(status=200, headers=_JSON, body=record.raw)

    def _bind(self, record: Record, body: Json) -> Response | None:
        pod = record.obj
        uid = body.get("metadata", {}).get("uid")
        if "deletionTimestamp" in pod["metadata"] or pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"):
            return None
        if uid and uid != pod["metadata"]["uid"]:
            return None
        node = body["target"]["name"]
        status = dict(pod.get("status") or {})
        status.pop("nominatedNodeName", None)
        set_condition(status, {"type": "PodScheduled", "status": "True"}, self._server.clock.now())
        own = dict(pod["metadata"])
        found = self._store.get("/nodes", node)
        labels = found.obj["metadata"].get("labels", {}) if found is not None else {}
        places = {key: labels[key] for key in _TOPOLOGY if key in labels}
        if places:
            own["labels"] = {**own.get("labels", {}), **places}
        spec = {**pod["spec"], "nodeName": node}
        self._store.put(PODS, record.key, {**pod, "metadata": own, "spec": spec, "status": status})
        return _BOUND

    def _status(self, record: Record, request: Request) -> Response | None:
        """The patch of a kubelet, or of the scheduler."""
        body = _decode(request.body)
        pod = record.obj
        given = body.get("status")
        if given is None or body.get("metadata", {}).get("uid") != pod["metadata"]["uid"]:
            return None
        old = pod.get("status") or {}
        if "$setElementOrder/conditions" in given:
            status = _as_kubelet(old, given)
        elif given.keys() <= _SCHEDULERS and "strategic" in request.headers.get("content-type", ""):
            status = _as_scheduler(old, given)
        else:
            return None
        if status != old:
            own = dict(pod["metadata"])
            record = self._store.put(PODS, record.key, {**pod, "metadata": own, "status": status})
        return Response(status=200, headers=_JSON, body=b"{}")

    def _delete(self, record: Record, options: Json) -> Response | None:
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
        own = {
            **metadata,
            "deletionTimestamp": stamp(self._server.clock.now() + timedelta(seconds=seconds)),
            "deletionGracePeriodSeconds": seconds,
            "generation": metadata.get("generation", 1) + 1,
        }
        marked = self._store.put(PODS, record.key, {**pod, "metadata": own})
        return Response(status=200, headers=_JSON, body=marked.raw)


def _as_kubelet(old: Json, given: Json) -> Json:
    """Its conditions in its order, others' behind them, everything else replaced."""
    conditions = [_condition(each) for each in given["conditions"]]
    ours = {each["type"] for each in conditions}
    others = [each for each in old.get("conditions", ()) if each["type"] not in ours]
    status = {**old, **given, "conditions": [*conditions, *others]}
    del status["$setElementOrder/conditions"]
    return status


def _as_scheduler(old: Json, given: Json) -> Json:
    """Its conditions in the place of those of their type, and the node that it promises."""
    status = dict(old)
    if "conditions" in given:
        fresh = {each["type"]: _condition(each) for each in given["conditions"]}
        kept = [fresh.pop(each["type"], each) for each in old.get("conditions", ())]
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
_TOLD_AGAIN = {"count", "lastTimestamp", "message"}
_PLAIN_DELETE = {"kind", "apiVersion", "gracePeriodSeconds", "preconditions", "propagationPolicy"}
