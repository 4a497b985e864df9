"""Records a cluster: watches what planners and pages read, samples usage and prices, and writes nothing to it.

Kinds that are not served, or that may not be read, are left out and named; the rest is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import (
    AWSNODETEMPLATES,
    CORE_EVENTS,
    CRONJOBS,
    CSINODES,
    DAEMONSETS,
    DEPLOYMENTS,
    EC2NODECLASSES,
    HPAS,
    JOBS,
    MACHINES,
    NAMESPACES,
    NODECLAIMS,
    NODEOVERLAYS,
    NODEPOOLS,
    NODES,
    PDBS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    PRIORITYCLASSES,
    PROVISIONERS,
    REPLICASETS,
    STATEFULSETS,
    STORAGECLASSES,
    Resource,
)
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import view
from dovetail.model.quantity import QuantityError, parse
from dovetail.offline.recording.anonymity import Anonymiser
from dovetail.offline.recording.kept_fields import kept
from dovetail.offline.recording.records import ObjectKey, OfferingKey, key_of
from dovetail.offline.recording.writer import Writer
from dovetail.view.observer import NODE_METRICS, VPAS
from dovetail.view.prices import capacity_type, price

Json = dict[str, Any]

POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")

#: What is watched, whatever else a cluster has. Kinds of Karpenter are asked for in the newest version that is served.
KINDS: tuple[Resource, ...] = (
    NAMESPACES,
    PRIORITYCLASSES,
    STORAGECLASSES,
    NODES,
    CSINODES,
    PERSISTENTVOLUMES,
    PERSISTENTVOLUMECLAIMS,
    DEPLOYMENTS,
    REPLICASETS,
    STATEFULSETS,
    DAEMONSETS,
    JOBS,
    CRONJOBS,
    PDBS,
    HPAS,
    VPAS,
    NODEPOOLS,
    NODECLAIMS,
    NODEOVERLAYS,
    EC2NODECLASSES,
    PROVISIONERS,
    MACHINES,
    AWSNODETEMPLATES,
    CORE_EVENTS,
    PODS,
)
#: Versions of kinds that were served under several, newest first.
_VERSIONS = {
    NODEPOOLS: ("v1", "v1beta1"),
    NODECLAIMS: ("v1", "v1beta1"),
    EC2NODECLASSES: ("v1", "v1beta1"),
}
#: Events are recorded if they are of these components.
EVENT_SOURCES = frozenset(
    {
        "karpenter",
        "dovetail",
        "cluster-autoscaler",
        "horizontal-pod-autoscaler",
        "vpa-updater",
        "vpa-recommender",
        "vpa-admission-controller",
        "default-scheduler",
    }
)
#: Events of kube-scheduler that say why a pod waits; that it was bound is seen at the pod.
_SCHEDULER_REASONS = frozenset({"FailedScheduling", "Preempted"})
#: How long the first lists may take, and how often it is asked whether they are in.
LIST_TIMEOUT_S, SETTLE_INTERVAL_S = 120.0, 0.05


class RecorderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals in seconds."""

    usage_interval_s: float = 300.0
    flush_interval_s: float = 5.0


class Recorder:
    """Runs until cancelled. `now` is the server's time, which dates all that it sends."""

    def __init__(
        self,
        kube: Kube,
        writer: Writer,
        now: Callable[[], datetime] | None = None,
        *,
        anonymiser: Anonymiser | None = None,
        settings: RecorderSettings | None = None,
    ) -> None:
        self.kube = kube.read_only()
        self.writer = writer
        self._clock: Clock = kube.clock
        self._now = now or kube.clock.now
        self._anonymiser = anonymiser
        self._settings = settings or RecorderSettings()
        self._reflectors: list[Reflector[Json]] = []
        #: Set once the first state is written.
        self.begun = asyncio.Event()
        self.usage_problem = ""
        #: When the NodeClaim was created whose price an offering has.
        self._priced_at: dict[OfferingKey, datetime] = {}

    async def run(self, on_flush: Callable[[], None] = lambda: None) -> None:
        """Record until cancelled; `on_flush` is called whenever something was written."""
        self._reflectors = [self._reflector(resource) for resource in await self._served()]
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"record {reflector.resource.name}")
            await self._settle()
            self._forget_absent()
            if not self.writer.begun:
                self.writer.begin()
            self.begun.set()
            group.create_task(self._measure(), name="record usage")
            while True:
                await asyncio.sleep(self._settings.flush_interval_s)
                self.writer.note_time(self._now())
                self.writer.flush()
                on_flush()

    @property
    def counts(self) -> dict[str, int]:
        """How many objects of each kind there are now."""
        return {
            reflector.resource.kind: len(reflector.store) for reflector in self._reflectors if reflector.synced.is_set()
        }

    @property
    def unread(self) -> dict[str, str]:
        """Kinds that are not recorded, and why."""
        return {
            reflector.resource.name: "not served" if isinstance(reflector.failure, NotFound) else str(reflector.failure)
            for reflector in self._reflectors
            if reflector.failure is not None and not reflector.synced.is_set()
        }

    async def _served(self) -> list[Resource]:
        """The kinds in the newest version that this cluster serves."""
        resources: list[Resource] = []
        for resource in KINDS:
            versions = _VERSIONS.get(resource, ())
            served = await self._versions(resource.group) if versions else frozenset()
            chosen = next((version for version in versions if version in served), resource.version)
            resources.append(msgspec.structs.replace(resource, version=chosen))
        return resources

    async def _versions(self, group: str) -> frozenset[str]:
        try:
            body = msgspec.json.decode((await self.kube.request("GET", f"/apis/{group}")).body)
        except NotFound:
            return frozenset()
        return frozenset(entry["version"] for entry in body.get("versions") or ())

    def _reflector(self, resource: Resource) -> Reflector[Json]:
        def keep(new: Json, old: Json | None) -> Json:
            return self._record(resource, new)

        reflector: Reflector[Json] = Reflector(self.kube, resource, keep=keep, on_event=self._on_event(resource))
        reflector.optional = True
        return reflector

    def _record(self, resource: Resource, source: Json) -> Json:
        """Record a version as it comes, and keep only its identity."""
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **source}
        if resource is not CORE_EVENTS or _is_autoscaling(source):
            self.writer.put(self._now(), self._shown(typed))
            self._note_price(resource, typed)
        metadata = source["metadata"]
        return {"metadata": {key: metadata[key] for key in _IDENTITY if metadata.get(key)}}

    def _on_event(self, resource: Resource) -> Callable[[CacheChange[Json]], None]:
        def deleted(change: CacheChange[Json]) -> None:
            if change.kind != "deleted":
                return
            source = {"apiVersion": resource.api_version, "kind": resource.kind, **change.object}
            shown = self._shown(source)
            # A list that no longer has it leaves only its identity.
            last = shown if "spec" in source or "status" in source else None
            self.writer.delete(self._now(), key_of(shown), last)

        return deleted

    def _shown(self, source: Json) -> Json:
        recorded = kept(source)
        return recorded if self._anonymiser is None else self._anonymiser.object(recorded)

    def _forget_absent(self) -> None:
        """What an earlier run recorded and is gone by now."""
        for reflector in self._reflectors:
            if not reflector.synced.is_set():
                continue
            resource = reflector.resource
            present = {self._key(resource, head) for head in reflector.store.all()}
            keys = [key for key in self.writer.state.numbers if key[:2] == (resource.group, resource.kind)]
            for key in keys:
                if key not in present:
                    self.writer.delete(self._now(), key)

    def _key(self, resource: Resource, head: Json) -> ObjectKey:
        return key_of(self._shown({"apiVersion": resource.api_version, "kind": resource.kind, **head}))

    async def _settle(self) -> None:
        """Wait until every kind is listed, or known not to be readable. Nodes and pods must be."""
        needed = {NODES.name, PODS.name}
        async with asyncio.timeout(LIST_TIMEOUT_S):
            while not self._listed():  # noqa: ASYNC110 (many watches, each with its own event)
                await asyncio.sleep(SETTLE_INTERVAL_S)
        for reflector in self._reflectors:
            if reflector.resource.name in needed and not reflector.synced.is_set():
                assert reflector.failure is not None
                raise reflector.failure

    def _listed(self) -> bool:
        return all(reflector.synced.is_set() or reflector.failure is not None for reflector in self._reflectors)

    # Prices and usage

    def _note_price(self, resource: Resource, source: Json) -> None:
        """The price of a node at its launch, or of its type in the packaged list; unknown is not recorded."""
        if resource.kind == NODECLAIMS.kind:
            with suppress(msgspec.ValidationError):
                claim = view(source, NodeClaim)
                self._price_of(claim.metadata.labels, claim)
        elif resource is NODES:
            self._price_of(source["metadata"].get("labels") or {}, None)

    def _price_of(self, labels: Any, claim: NodeClaim | None) -> None:
        region, instance_type = labels.get(wellknown.REGION, ""), labels.get(wellknown.INSTANCE_TYPE, "")
        offered = capacity_type(labels)
        quote = price(labels, claim)
        if quote is None or not offered or not instance_type:
            return
        key = OfferingKey(region, instance_type, labels.get(wellknown.ZONE, ""), offered)
        if claim is None and key in self.writer.state.prices:
            return  # what its NodeClaim was launched at says more than a list
        if claim is not None:
            launched = claim.metadata.creation_timestamp
            if launched is not None and launched < self._priced_at.get(key, launched):
                return  # a newer NodeClaim was launched at another price
            if launched is not None:
                self._priced_at[key] = launched
        self.writer.price(self._now(), key, quote.per_hour, quote.source)

    async def _measure(self) -> None:
        while True:
            try:
                nodes = (await self.kube.list(NODE_METRICS)).items
                pods = (await self.kube.list(POD_METRICS)).items
                self.writer.usage(self._now(), dict(self._usages(nodes, pods)))
                self.usage_problem = ""
            except NotFound:
                self.usage_problem = "metrics.k8s.io is not served"
            except Forbidden as problem:
                self.usage_problem = str(problem)
            except KubeError as problem:
                self.usage_problem = str(problem)
            await asyncio.sleep(self._settings.usage_interval_s)

    def _usages(self, nodes: Iterable[Json], pods: Iterable[Json]) -> Iterator[tuple[ObjectKey, tuple[int, int]]]:
        for source in nodes:
            yield self._key(NODES, {"metadata": source["metadata"]}), _amounts([source.get("usage") or {}])
        for source in pods:
            usages = [container.get("usage") or {} for container in source.get("containers") or ()]
            yield self._key(PODS, {"metadata": source["metadata"]}), _amounts(usages)


_IDENTITY = ("name", "namespace", "uid", "resourceVersion")


def _is_autoscaling(event: Json) -> bool:
    component = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    if component == "default-scheduler":
        return event.get("reason") in _SCHEDULER_REASONS
    return component in EVENT_SOURCES


def _amounts(usages: Iterable[Json]) -> tuple[int, int]:
    """Nanocores and bytes; an amount that is none counts as nothing measured."""
    cpu = memory = 0
    for usage in usages:
        with suppress(QuantityError):
            cpu += parse(str(usage.get("cpu") or "0")).nano
        with suppress(QuantityError):
            memory += parse(str(usage.get("memory") or "0")).nano // 10**9
    return cpu, memory
