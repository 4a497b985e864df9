"""A recording as a scenario: workloads come, change and go when they did, and the lab's controllers make their pods.

Deployments, StatefulSets, DaemonSets and Jobs are applied with the replicas that they had at each moment, so the work
of HorizontalPodAutoscalers is in it and they are left out. Pods without such an owner come and go one by one.
Containers take as long to start, and Jobs as long to run, as they did on the median.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from dovetail.lab.durations import Seconds
from dovetail.lab.kubelet.container_model import PREFIX
from dovetail.lab.scenario.schema import (
    AutoscalerPart,
    ClusterPart,
    ObjectPart,
    ScaleStep,
    Scenario,
    ScenarioError,
    ScenarioStep,
)
from dovetail.lab.simulated_groups import GroupSpec
from dovetail.language import message
from dovetail.model import wellknown
from dovetail.model.kinds.convert import ConversionError, expand
from dovetail.offline.recording import Recording
from dovetail.offline.timeline import (
    CLAIM_KINDS,
    OF_NODE_ANNOTATION,
    controller,
    is_evicted,
    is_live,
    labels_of,
    managed_by,
    of_node,
    percentile,
    uid_of,
)
from dovetail.studies.workloads import node_groups
from dovetail.studies.workloads.workload import Workload, check_groups

Json = dict[str, Any]

#: What is applied, in this order.
_APPLIED = (
    "Namespace",
    "PriorityClass",
    "StorageClass",
    "EC2NodeClass",
    "AWSNodeTemplate",
    "NodePool",
    "Provisioner",
    "NodeOverlay",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "DaemonSet",
    "Deployment",
    "StatefulSet",
    "ReplicaSet",
    "Job",
    "Pod",
)
#: Karpenter's kinds.
NODE_KINDS = frozenset({"NodePool", "Provisioner", "EC2NodeClass", "AWSNodeTemplate", "NodeOverlay"})
#: Owners whose controllers the lab runs.
_CONTROLLERS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"})
#: Objects that every lab has by itself.
_PRESENT = frozenset(
    {
        ("Namespace", "default"),
        ("Namespace", "kube-system"),
        ("Namespace", "kube-public"),
        ("Namespace", "kube-node-lease"),
        ("PriorityClass", "system-node-critical"),
        ("PriorityClass", "system-cluster-critical"),
        ("StorageClass", "gp3"),
    }
)
_TEMPLATED = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"})
#: Labels that the Job controller sets on pods, and refuses from users.
_JOB_LABELS = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)
#: Labels that a pod gets from its node when it is bound.
_BOUND_LABELS = frozenset({wellknown.ZONE, wellknown.REGION})
_LEFT_ANNOTATIONS = ("deployment.kubernetes.io/", "autoscaling.alpha.kubernetes.io/", "pv.kubernetes.io/")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
#: How long a fleet gets to form before the recording starts, if there was one then, in seconds; and otherwise.
WARM_LEAD_S, LEAD_S = 600.0, 5.0
DEFAULT_REGION = "ap-northeast-2"


class Durations(msgspec.Struct, frozen=True):
    """In seconds, by pod and as medians by workload: from binding to ready, the run of a finished pod, from the request
    to delete a pod to its end; and spans of how long instances took to join and then to be ready."""

    start_s: dict[str, float] = {}
    run_s: dict[str, float] = {}
    stop_s: dict[str, float] = {}
    #: The node that each pod was bound to.
    bound_to: dict[str, str] = {}
    boot_s: tuple[float, float] | None = None
    ready_s: tuple[float, float] | None = None


class RecordedWorkload(msgspec.Struct, frozen=True):
    """The workload, and seconds of it that pass before the recording begins."""

    workload: Workload
    lead_s: float


def build(
    recording: Recording,
    pools: Iterable[Json] = (),
    steps: Iterable[ScenarioStep] = (),
    *,
    warm: bool = True,
    one_by_one: bool = False,
) -> RecordedWorkload:
    """`pools` take the place of the recorded NodePools and node classes; `steps` count from the recording's start.

    `one_by_one` leaves workloads out: every recorded pod comes and goes by itself, also those that were evicted. It
    runs on the node it ran on; where `steps` may take that away, elsewhere if need be.
    """
    first = recording.objects_at(recording.start)
    own_pools = tuple(pools)
    recorded = durations(recording)
    formed = any(source["kind"] in CLAIM_KINDS or _is_fleet_node(source) for source in first)
    lead_s = WARM_LEAD_S if warm and formed else LEAD_S
    own_steps = tuple(steps)
    changes = Changes(recording, recorded, replaced=bool(own_pools), one_by_one=one_by_one, movable=bool(own_steps))
    # NodePools that came later are there from the start: they launch nothing by themselves.
    later = [source for source in _added(recording) if source["kind"] in NODE_KINDS]
    manifests = (*(item for item in changes.manifests([*first, *later])), *own_pools)
    ordered = tuple(sorted(manifests, key=lambda item: _APPLIED.index(item["kind"])))
    own = [msgspec.structs.replace(step, at=Seconds(step.at + lead_s)) for step in own_steps]
    happened = sorted([*changes.steps(lead_s), *own], key=lambda step: step.at)
    market: Json = {}
    if recorded.boot_s is not None:
        market["boot"] = list(recorded.boot_s)
    if recorded.ready_s is not None:
        market["ready"] = list(recorded.ready_s)
    scenario = Scenario(
        name=recording.path.name,
        duration=Seconds((recording.end - recording.start).total_seconds() + lead_s),
        start=_earlier(recording.start, lead_s),
        cluster=ClusterPart(pools=(), detail="low", events="warnings"),
        autoscaler=AutoscalerPart(region=region_of(recording), market=market),
        manifests=ordered,
        steps=tuple(happened),
    )
    title = recording.path.stem
    workload = Workload(name=title, title=title, scenario=scenario, manifests=ordered, groups=())
    return RecordedWorkload(workload, lead_s)


def with_groups(workload: Workload, where: Path) -> Workload:
    """The workload with the node groups that a platform team would make for the same NodePools."""
    if not workload.node_pools():
        raise ScenarioError(f"{where}: " + message("there is no NodePool in it; name one with --nodepool"))
    groups: tuple[GroupSpec, ...] = node_groups.derived(workload.manifests, tuple(workload.types().values()))
    check_groups(groups, workload.types(), str(where))
    return msgspec.structs.replace(workload, groups=groups)


def region_of(recording: Recording) -> str:
    """The region that most nodes ever were in."""
    regions: Counter[str] = Counter()
    for source in _every(recording):
        if source["kind"] in ("Node", *CLAIM_KINDS):
            regions[labels_of(source).get(wellknown.REGION, "")] += 1
    del regions[""]
    return max(sorted(regions), key=lambda region: regions[region]) if regions else DEFAULT_REGION


def durations(recording: Recording) -> Durations:
    """How long things took in a recording."""
    return _DurationTracker(recording).found()


def workload_of(pod: Json, owners: dict[tuple[str, str, str], Json]) -> str:
    """`Kind/namespace/name` of the workload that a pod belongs to."""
    namespace = pod["metadata"].get("namespace") or ""
    owner = controller(pod)
    while owner:
        key = owner.get("kind", ""), namespace, owner.get("name", "")
        above = controller(owners[key]) if key in owners else {}
        if not above or above.get("kind") not in _CONTROLLERS:
            return "/".join(key)
        owner = above
    return f"Pod/{namespace}/{pod['metadata']['name']}"


class Changes:
    """Turns recorded objects into manifests and steps."""

    def __init__(
        self, recording: Recording, recorded: Durations, *, replaced: bool, one_by_one: bool, movable: bool
    ) -> None:
        self._recording = recording
        self._movable = movable
        self._one_by_one = one_by_one
        self._durations = recorded
        self._replaced = replaced
        #: What is applied now, by kind, namespace and name.
        self._applied: dict[tuple[str, str, str], Json] = {}

    def manifests(self, first: Iterable[Json]) -> Iterator[Json]:
        """What is there at the start."""
        for source in first:
            yield from self._put(source)

    def steps(self, lead_s: float) -> Iterator[ScenarioStep]:
        """What happens then, after `manifests`."""
        start = self._recording.start
        for event in self._recording.events(start, self._recording.end):
            when = Seconds(round((event.time - start).total_seconds() + lead_s, 3))
            source = event.object
            if event.type == "DELETED" or source["metadata"].get("deletionTimestamp") or self._evicted(source):
                target = self._remove(source)
                if target is not None:
                    yield (
                        ScenarioStep(at=when, evict=target)
                        if self._evicted(source)
                        else ScenarioStep(at=when, delete=target)
                    )
                continue
            before = {key: self._applied.get(key) for key in self._keys(source)}
            for item in self._put(source):
                scale = _scale(before.get(_key(item)), item)
                yield ScenarioStep(at=when, scale=scale) if scale is not None else ScenarioStep(at=when, apply=item)

    def _evicted(self, source: Json) -> bool:
        """Whether a recorded pod is evicted in the replay too.

        A kubelet under pressure leaves the pod there as Failed. An autoscaler that is replayed evicts by itself.
        """
        if not self._one_by_one or source["kind"] != "Pod" or not is_evicted(source):
            return False
        return bool(source["metadata"].get("deletionTimestamp")) or not is_live(source)

    def _put(self, source: Json) -> Iterator[Json]:
        """The manifests that an object stands for, where they differ from what is applied."""
        if not self._counts(source):
            return
        for item in self._current(source):
            key, manifest = _key(item), self._manifest(item)
            if self._applied.get(key) != manifest:
                self._applied[key] = manifest
                yield manifest

    def _remove(self, source: Json) -> ObjectPart | None:
        for key in self._keys(source):
            if self._applied.pop(key, None) is not None:
                return ObjectPart(kind=key[0], name=key[2], namespace=key[1] or "default")
        return None

    def _keys(self, source: Json) -> list[tuple[str, str, str]]:
        return [_key(item) for item in self._current(source)] if source["kind"] in _APPLIED else []

    def _counts(self, source: Json) -> bool:
        kind, metadata = source["kind"], source["metadata"]
        if kind not in _APPLIED or (kind, metadata["name"]) in _PRESENT or metadata.get("deletionTimestamp"):
            return False
        if self._replaced and kind in NODE_KINDS:
            return False
        owner = controller(source).get("kind")
        if self._one_by_one and kind in (*_TEMPLATED, "Pod", "PodDisruptionBudget"):
            return kind == "Pod" and owner != "Node" and is_live(source)
        if kind in ("ReplicaSet", "Pod"):
            # A pod that runs already is applied when it is first seen; one of a controller is made by it.
            return owner not in _CONTROLLERS and owner != "Node" and (kind != "Pod" or is_live(source))
        return kind != "PersistentVolumeClaim" or not owner

    def _current(self, source: Json) -> list[Json]:
        """An object of Karpenter in its newest version, others as they are."""
        if source["kind"] not in NODE_KINDS:
            return [source]
        try:
            return [item for item in expand(source) if item["kind"] in _APPLIED]
        except ConversionError as problem:
            raise ScenarioError(f"{source['kind']} {source['metadata']['name']}: {problem}") from problem

    def _manifest(self, source: Json) -> Json:
        kind, metadata = source["kind"], source["metadata"]
        item: Json = {"apiVersion": source["apiVersion"], "kind": kind, "metadata": _metadata(metadata)}
        for field, value in source.items():
            if field not in ("apiVersion", "kind", "metadata", "status"):
                item[field] = value
        name = _name(source)
        if kind == "Pod":
            item["spec"] = {key: value for key, value in (source.get("spec") or {}).items() if key != "nodeName"}
            for field in ("priority", "preemptionPolicy"):  # admission derives them from the class
                item["spec"].pop(field, None)
            if self._one_by_one and name in self._durations.bound_to:
                place = preferring if self._movable else pinned
                item["spec"] = place(item["spec"], self._durations.bound_to[name])
            annotations = item["metadata"].setdefault("annotations", {})
            annotations.update(self._behaviour(name))
            if of_node(source):
                annotations[OF_NODE_ANNOTATION] = "true"
            labels = item["metadata"].get("labels") or {}
            item["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in _BOUND_LABELS}
        elif kind in _TEMPLATED:
            item["spec"] = self._templated(kind, name, source.get("spec") or {})
        elif kind == "PersistentVolumeClaim":
            item["spec"] = {key: value for key, value in (source.get("spec") or {}).items() if key != "volumeName"}
        return item

    def _templated(self, kind: str, name: str, source: Json) -> Json:
        spec = dict(source)
        template = spec.get("template") or {}
        metadata = dict(template.get("metadata") or {})
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in _JOB_LABELS}
        metadata.pop("creationTimestamp", None)
        metadata["labels"] = labels
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **self._behaviour(name)}
        spec["template"] = {**template, "metadata": metadata}
        if kind == "Job":
            spec.pop("selector", None)
        if kind == "StatefulSet":
            spec.setdefault("serviceName", "")
        return spec

    def _behaviour(self, name: str) -> dict[str, str]:
        """How long its containers take, for the lab's kubelets."""
        annotations: dict[str, str] = {}
        recorded = self._durations
        start_s, run_s, stop_s = recorded.start_s.get(name), recorded.run_s.get(name), recorded.stop_s.get(name)
        if start_s is not None:
            annotations |= {
                f"{PREFIX}pull-seconds": "0.3s",
                f"{PREFIX}start-seconds": f"{max(0.1, start_s - 0.5):.1f}s",
            }
        if run_s is not None:
            annotations[f"{PREFIX}run-seconds"] = f"{run_s:.1f}s"
        if stop_s is not None:
            annotations[f"{PREFIX}stop-seconds"] = f"{stop_s:.1f}s"
        return annotations


def pinned(spec: Json, node: str) -> Json:
    """The pod spec, for one node alone."""
    affinity = spec.get("affinity") or {}
    own = affinity.get("nodeAffinity") or {}
    required = own.get(_REQUIRED) or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), field]}
        for term in required.get("nodeSelectorTerms") or [{}]
    ]
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**own, _REQUIRED: {"nodeSelectorTerms": terms}}}}


def preferring(spec: Json, node: str) -> Json:
    """The pod spec with a preference for a node: it goes there if it can, and elsewhere if that is sooner."""
    affinity = spec.get("affinity") or {}
    own = affinity.get("nodeAffinity") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [*(own.get(_PREFERRED) or ()), {"weight": 100, "preference": {"matchFields": [field]}}]
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**own, _PREFERRED: terms}}}


class _DurationTracker:
    """Measures durations in one pass."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._owners: dict[tuple[str, str, str], Json] = {}
        self._bound: dict[str, datetime] = {}
        self._ready: dict[str, datetime] = {}
        self._starts: dict[str, list[float]] = {}
        self._runs: dict[str, list[float]] = {}
        self._stops: dict[str, list[float]] = {}
        self._deleted: dict[str, datetime] = {}
        self._bound_to: dict[str, str] = {}
        self._claims: dict[str, datetime] = {}
        self._joined: dict[str, datetime] = {}
        self._boots: list[float] = []
        self._readies: list[float] = []

    def found(self) -> Durations:
        recording = self._recording
        for source in recording.objects_at(recording.start):
            if source["kind"] == "ReplicaSet":
                self._owners[_key(source)] = source
            elif source["kind"] == "Pod":
                self._pod(source, recording.start, gone=False)
        for event in recording.events(recording.start, recording.end):
            kind = event.object["kind"]
            if kind == "ReplicaSet":
                self._owners[_key(event.object)] = event.object
            elif kind == "Pod":
                self._pod(event.object, event.time, event.type == "DELETED")
            elif kind in CLAIM_KINDS and event.type != "DELETED":
                self._claim(event.object, event.time)
            elif kind == "Node" and event.type != "DELETED":
                self._node(event.object, event.time, event.type == "ADDED")
        return Durations(
            start_s=_medians(self._starts),
            run_s=_medians(self._runs),
            stop_s=_medians(self._stops),
            bound_to=self._bound_to,
            boot_s=_span(self._boots),
            ready_s=_span(self._readies),
        )

    def _pod(self, pod: Json, now: datetime, gone: bool) -> None:
        uid, status = uid_of(pod), pod.get("status") or {}
        if pod["metadata"].get("deletionTimestamp"):
            self._deleted.setdefault(uid, now)
        if gone:
            if uid in self._deleted and uid in self._bound:
                self._note(self._stops, pod, (now - self._deleted[uid]).total_seconds())
            return
        if not (pod.get("spec") or {}).get("nodeName"):
            return
        first = uid not in self._bound
        self._bound.setdefault(uid, now)
        self._bound_to[_name(pod)] = pod["spec"]["nodeName"]
        if first and status.get("phase") not in ("Pending", None):
            self._ready[uid] = now  # it ran when it was first seen: nothing was measured
        if uid not in self._ready and _is_ready(status):
            self._ready[uid] = now
            self._note(self._starts, pod, (now - self._bound[uid]).total_seconds())
        if status.get("phase") in ("Succeeded", "Failed") and uid in self._ready:
            ran = (now - self._ready.pop(uid)).total_seconds()
            if ran > 0:
                self._note(self._runs, pod, ran)

    def _note(self, durations: dict[str, list[float]], pod: Json, seconds: float) -> None:
        """Of its workload, and of the pod itself."""
        for name in {_name(pod), workload_of(pod, self._owners)}:
            durations.setdefault(name, []).append(seconds)

    def _claim(self, claim: Json, now: datetime) -> None:
        provider = (claim.get("status") or {}).get("providerID")
        if provider:
            self._claims.setdefault(provider, now)

    def _node(self, node: Json, now: datetime, added: bool) -> None:
        name, provider = node["metadata"]["name"], (node.get("spec") or {}).get("providerID")
        if added:
            self._joined[name] = now
            if provider in self._claims:
                self._boots.append((now - self._claims[provider]).total_seconds())
        if name in self._joined and _is_ready(node.get("status") or {}):
            self._readies.append((now - self._joined.pop(name)).total_seconds())


def _name(source: Json) -> str:
    return "/".join(_key(source))


def _medians(values: dict[str, list[float]]) -> dict[str, float]:
    return {name: round(median(times), 1) for name, times in values.items()}


def _span(values: list[float]) -> tuple[float, float] | None:
    """From the 5th to the 95th of a hundred."""
    ordered = sorted(values)
    low, high = percentile(ordered, 0.05), percentile(ordered, 0.95)
    return None if low is None or high is None else (low, high)


def _is_ready(status: Json) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _is_fleet_node(source: Json) -> bool:
    return source["kind"] == "Node" and bool(managed_by(labels_of(source)))


def _every(recording: Recording) -> Iterator[Json]:
    yield from recording.objects_at(recording.start)
    yield from _added(recording)


def _added(recording: Recording) -> Iterator[Json]:
    for event in recording.events(recording.start, recording.end):
        if event.type == "ADDED":
            yield event.object


def _earlier(instant: datetime, seconds: float) -> datetime:
    return instant - timedelta(seconds=seconds)


def _key(source: Json) -> tuple[str, str, str]:
    metadata = source["metadata"]
    return source["kind"], metadata.get("namespace") or "", metadata["name"]


def _metadata(source: Json) -> Json:
    metadata: Json = {"name": source["name"]}
    if source.get("namespace"):
        metadata["namespace"] = source["namespace"]
    if source.get("labels"):
        metadata["labels"] = source["labels"]
    kept = {
        key: value
        for key, value in (source.get("annotations") or {}).items()
        if not key.startswith(_LEFT_ANNOTATIONS) and "hash" not in key
    }
    if kept:
        metadata["annotations"] = kept
    return metadata


def _scale(before: Json | None, after: Json) -> ScaleStep | None:
    """The change of a workload's size, if nothing else changed."""
    if before is None or after["kind"] not in ("Deployment", "StatefulSet", "ReplicaSet"):
        return None
    replicas = after["spec"].get("replicas")
    if replicas is None or {**before["spec"], "replicas": replicas} != after["spec"]:
        return None
    metadata = after["metadata"]
    return ScaleStep(
        name=metadata["name"], replicas=replicas, kind=after["kind"], namespace=metadata.get("namespace") or "default"
    )
