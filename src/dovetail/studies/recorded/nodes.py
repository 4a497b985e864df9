"""Recorded nodes in the lab: they join, are tainted, drained and lost, and go when they did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec

from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.resources import NODES, PODS
from dovetail.lab.cluster import Lab
from dovetail.lab.controllers.nodelifecycle import GRACE_SECONDS
from dovetail.lab.instances import SimulatedInstance, region_of
from dovetail.lab.scenario.actors import drain
from dovetail.lab.scenario.schema import ScenarioStep
from dovetail.model import wellknown
from dovetail.model.quantity import resources
from dovetail.offline.recording import Recording
from dovetail.offline.timeline import CountedNodes, labels_of, uid_of
from dovetail.view.prices import capacity_type

Json = dict[str, Any]
Act = Literal["join", "taint", "drain", "lose", "remove"]

#: How often, and how many seconds apart, it is looked whether a node has registered that changes as it joins.
REGISTRATION_ATTEMPTS, REGISTRATION_PAUSE_S = 100, 0.1
#: Cluster Autoscaler drains a node that has this taint; Karpenter one that is being deleted.
_TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
#: Taints that the lab's own controllers set, or that only the controller that set them can remove in time.
_OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", wellknown.PLACING)


class RecordedNodeChange(msgspec.Struct, frozen=True):
    """What happens to a node, seconds after the recording's start."""

    at: float
    act: Act
    node: str
    source: Json


def changes(recording: Recording, counts: Callable[[Json], bool]) -> list[RecordedNodeChange]:
    """What happened to the nodes that count, in order."""
    changes: list[RecordedNodeChange] = []
    nodes: dict[str, Json] = {}
    last = _last_labels(recording)
    for source in recording.objects_at(recording.start):
        if source["kind"] == "Node" and counts(_labelled(source, last)):
            nodes[source["metadata"]["name"]] = source
            changes.append(RecordedNodeChange(0.0, "join", source["metadata"]["name"], _labelled(source, last)))
    for event in recording.events(recording.start, recording.end):
        if event.object["kind"] != "Node":
            continue
        now, name = (event.time - recording.start).total_seconds(), event.object["metadata"]["name"]
        old = nodes.get(name)
        if event.type == "DELETED":
            if nodes.pop(name, None) is not None:
                changes.append(RecordedNodeChange(now, "remove", name, event.object))
        elif old is not None or counts(_labelled(event.object, last)):
            changes += _between(old, _labelled(event.object, last), now)
            nodes[name] = event.object
    return sorted(changes, key=lambda change: change.at)


def _last_labels(recording: Recording) -> dict[str, Json]:
    """The labels that each node had last, by UID: an autoscaler sets some only after a node has joined."""
    labels: dict[str, Json] = {}
    for source in recording.objects_at(recording.start):
        if source["kind"] == "Node":
            labels[uid_of(source)] = labels_of(source)
    for event in recording.events(recording.start, recording.end):
        if event.object["kind"] == "Node":
            labels[uid_of(event.object)] = labels_of(event.object)
    return labels


def _labelled(node: Json, last: Mapping[str, Json]) -> Json:
    return {**node, "metadata": {**node["metadata"], "labels": last[uid_of(node)]}}


def _between(old: Json | None, new: Json, now: float) -> Iterator[RecordedNodeChange]:
    name = new["metadata"]["name"]
    if old is None:
        yield RecordedNodeChange(now, "join", name, new)
        return
    if _is_silent(new) and not _is_silent(old):
        # So long after its kubelet was last heard of a node is NotReady.
        yield RecordedNodeChange(max(0.0, now - GRACE_SECONDS), "lose", name, new)
    if taints_of(old) != taints_of(new) or _cordoned(old) != _cordoned(new):
        yield RecordedNodeChange(now, "taint", name, new)
    if _is_leaving(new) and not _is_leaving(old):
        yield RecordedNodeChange(now, "drain", name, new)


def _is_silent(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "Unknown" for condition in conditions)


def _is_leaving(node: Json) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    return bool(node["metadata"].get("deletionTimestamp")) or any(taint["key"] == _TO_BE_DELETED for taint in taints)


def _cordoned(node: Json) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def taints_of(node: Json) -> list[Json]:
    """The taints that are followed: without those that the lab sets by itself."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return [
        {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)}
        for taint in taints
        if not taint["key"].startswith(_OWN_TAINTS)
    ]


def instance_of(node: Json, number: int) -> SimulatedInstance:
    """The instance that a recorded node ran on."""
    labels, status = labels_of(node), node.get("status") or {}
    zone = labels.get(wellknown.ZONE, "")
    addresses = {entry.get("type"): entry.get("address", "") for entry in status.get("addresses") or ()}
    allocatable = resources(status.get("allocatable") or status.get("capacity") or {})
    name = node["metadata"]["name"]
    return SimulatedInstance(
        name=name,
        provider_id=(node.get("spec") or {}).get("providerID") or f"recorded:///{zone}/{name}",
        instance_type=labels.get(wellknown.INSTANCE_TYPE, ""),
        zone=zone,
        region=labels.get(wellknown.REGION) or region_of(zone),
        ip=addresses.get("InternalIP") or f"10.128.{number // 250 % 250}.{number % 250 + 1}",
        capacity=resources(status.get("capacity") or {}) or allocatable,
        allocatable=allocatable,
        capacity_type=capacity_type(labels) or "on-demand",
        arch=labels.get("kubernetes.io/arch", "amd64"),
        os=labels.get("kubernetes.io/os", "linux"),
        labels=labels,
        annotations={
            key: value for key, value in (node["metadata"].get("annotations") or {}).items() if key == wellknown.PRICE
        },
        taints=tuple(taints_of(node)),
    )


def ready_seconds(recording: Recording) -> dict[str, float]:
    """How long each node took from joining to Ready."""
    joined: dict[str, float] = {}
    lifetimes: dict[str, float] = {}
    for event in recording.events(recording.start, recording.end):
        if event.object["kind"] != "Node" or event.type == "DELETED":
            continue
        name, now = event.object["metadata"]["name"], (event.time - recording.start).total_seconds()
        if event.type == "ADDED":
            joined[name] = now
        conditions = (event.object.get("status") or {}).get("conditions") or ()
        is_ready = any(entry.get("type") == "Ready" and entry.get("status") == "True" for entry in conditions)
        if is_ready and name in joined:
            lifetimes[name] = round(now - joined.pop(name), 3)
    return lifetimes


def standing_nodes(recording: Recording, lead_s: float) -> RecordedNodes:
    """The nodes that no autoscaler launched."""
    fleet = CountedNodes(recording)
    planned = changes(recording, lambda node: not fleet.has(node))
    return RecordedNodes(planned, lead_s, ready_seconds(recording), drains=True)


class RecordedNodes:
    """An extra of the lab: makes the changes, `lead_s` seconds after it starts.

    `ready_s` says how long a node of that name takes from joining to Ready. With `drains` pods are evicted from a node
    that leaves; without, the recorded pods go by themselves.
    """

    def __init__(
        self, planned: Iterable[RecordedNodeChange], lead_s: float, ready_s: Mapping[str, float], *, drains: bool
    ) -> None:
        self._drains = drains
        self._planned = list(planned)
        self._lead_s = lead_s
        self._ready_s = ready_s
        self._numbers: dict[str, int] = {}
        self.joined: dict[str, str] = {}

    async def run(self, lab: Lab) -> None:
        start = lab.clock.monotonic()
        first = [change for change in self._planned if change.at <= 0.0 and change.act == "join"]
        for change in first:
            self._join(lab, change, ready_s=0.0)
        for change in self._planned[len(first) :]:
            left = start + self._lead_s + change.at - lab.clock.monotonic()
            if left > 0:
                await asyncio.sleep(left)
            await self._do(lab, change)
        await asyncio.Event().wait()

    async def _do(self, lab: Lab, change: RecordedNodeChange) -> None:
        if change.act == "join":
            self._join(lab, change, self._ready_s.get(change.node, 0.0))
        elif change.node not in self.joined:
            return
        elif change.act == "taint":
            lab.add(lambda _: self._taint(lab, change))
        elif change.act == "drain":
            if self._drains:
                lab.add(lambda _: drain(lab.kube, change.node))
        elif change.act == "lose":
            lab.fleet.vanish(change.node)
        else:
            await self._remove(lab, change.node)

    def _join(self, lab: Lab, change: RecordedNodeChange, ready_s: float) -> None:
        number = self._numbers.setdefault(change.node, len(self._numbers))
        instance = msgspec.structs.replace(instance_of(change.source, number), ready_seconds=ready_s)
        self.joined[change.node] = instance.provider_id

        async def join(lab: Lab) -> None:
            await lab.fleet.join(instance)
            if _cordoned(change.source):
                await self._taint(lab, change)

        lab.add(join)

    async def _taint(self, lab: Lab, change: RecordedNodeChange) -> None:
        for _ in range(REGISTRATION_ATTEMPTS):
            try:
                node = await lab.kube.get(NODES, change.node)
            except NotFound:  # it is about to register
                await asyncio.sleep(REGISTRATION_PAUSE_S)
                continue
            own = [taint for taint in node["spec"].get("taints") or () if taint["key"].startswith(_OWN_TAINTS)]
            spec = {"taints": [*own, *taints_of(change.source)], "unschedulable": _cordoned(change.source) or None}
            with suppress(NotFound):
                await lab.kube.patch(NODES, change.node, {"spec": spec})
            return

    async def _remove(self, lab: Lab, name: str) -> None:
        if not self._drains:
            await self._create_again(lab, name)
        lab.fleet.vanish(name)
        self.joined.pop(name, None)
        try:
            await lab.kube.delete(NODES, name)
        except ApiError:
            return  # a controller of the lab was first

    async def _create_again(self, lab: Lab, node: str) -> None:
        """Pods that were elsewhere when this node went come back, as their controllers would see to."""
        pods = (await lab.kube.list(PODS, fields=f"spec.nodeName={node}")).items
        for pod in pods:
            metadata, spec = pod["metadata"], pod["spec"]
            if metadata.get("deletionTimestamp") or _is_bound_to_node(spec, node):
                continue
            body = {
                "metadata": {
                    key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if key in metadata
                },
                "spec": {key: value for key, value in spec.items() if key != "nodeName"},
            }
            with suppress(NotFound):
                await lab.kube.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"], grace=0)
                await lab.kube.create(PODS, body)


def _is_bound_to_node(spec: Json, node: str) -> bool:
    """Whether a pod can run on this node alone, as that of a DaemonSet."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    return any(node in (field.get("values") or ()) for term in terms for field in term.get("matchFields") or ())


class ReplayedFleet:
    """A `ScenarioFleet` without an autoscaler: the nodes are those of the recording."""

    def __init__(self, nodes: RecordedNodes) -> None:
        self._nodes = nodes
        self.totals: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.changed = 0.0

    async def run(self, lab: Lab) -> None:
        await self._nodes.run(lab)

    async def leaks(self, lab: Lab) -> list[str]:
        return []

    def bill(self, now: float) -> float:
        return 0.0  # what was paid is in the recording

    def rate(self) -> float:
        return 0.0

    def provider_ids(self) -> frozenset[str]:
        return frozenset(self._nodes.joined.values())

    def calls(self) -> Mapping[str, int]:
        return {"kubernetes": 0, "cloud": 0}

    def give_up(self, provider_ids: Iterable[str]) -> None:
        """No autoscaler has to explain what ends."""

    def inject(self, lab: Lab, step: ScenarioStep) -> str:
        """Instances can vanish; there is no autoscaler or cloud to break."""
        if step.vanish is None and step.interrupt is None:
            return "does not concern a cluster without an autoscaler"
        count = step.vanish.instances if step.vanish is not None else step.interrupt.instances if step.interrupt else 0
        chosen = list(self._nodes.joined)[:count]
        for name in chosen:
            lab.fleet.vanish(name)
        return f"{len(chosen)} instance(s) vanish"
