"""Resizing pods in place: whether a node has room for it, and what the pod's status says meanwhile.

A resize that fits is allocated at once and carried out a moment later; one that does not fit now is deferred and
tried again; one that the node could never hold is infeasible. A memory limit below what is in use is an error that
is tried again. What a container has is what was last carried out, not what its spec asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dovetail.lab.kubelet.container import ContainerRun, Note, Notes
from dovetail.lab.kubelet.pod_worker import PodRun, Resize
from dovetail.lab.kubelet.views import ContainerSpec
from dovetail.lab.load.model import load_of, oom_after
from dovetail.model.quantity import resources, whole

#: From the allocation of a resize to its end: the runtime changes cgroups and reports back.
ACTUATION_S = 1.0
#: Between two tries of a deferred resize; also tried whenever a pod leaves the node or is resized on it.
DEFERRED_RETRY_S = 10.0
#: Between two tries of a resize that failed: the kubelet looks at each pod this often.
ERROR_RETRY_S = 60.0
#: The types of the conditions that tell of a resize.
CONDITIONS = ("PodResizePending", "PodResizeInProgress")
_COUNTED = ("cpu", "memory")


def _pairs(run: PodRun) -> Iterator[tuple[ContainerRun, ContainerSpec]]:
    """The containers that can be resized, each with what the spec asks for it now."""
    for containers, specs in ((run.inits, run.pod.init_containers), (run.mains, run.pod.containers)):
        resized = {spec.name: spec for spec in specs}
        for container in containers:
            if container.spec.name in resized:
                yield container, resized[container.spec.name]


def is_wanted(run: PodRun) -> bool:
    """Whether the spec asks for other resources than the containers were allocated."""
    return any(spec.resources != container.allocation for container, spec in _pairs(run))


def requested(granted: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    totals = dict.fromkeys(_COUNTED, 0)
    for held in granted:
        for name, amount in resources(held.get("requests") or {}).items():
            if name in totals:
                totals[name] += amount
    return totals


def allocated(run: PodRun) -> dict[str, int]:
    """What a pod holds of its node: that of its containers and sidecars."""
    return requested(
        container.allocation
        for container in (*run.inits, *run.mains)
        if container in run.mains or container.spec.sidecar
    )


def decide(run: PodRun, allocatable: Mapping[str, int], neighbours: Iterable[PodRun], now: float) -> Resize | None:
    """What becomes of the resources that the spec asks for; None if the containers were allocated them."""
    if not is_wanted(run):
        return None
    generation = run.pod.metadata.generation
    resized = requested(
        spec.resources for container, spec in _pairs(run) if container in run.mains or container.spec.sidecar
    )
    for name in _COUNTED:
        if resized[name] > allocatable.get(name, 0):
            text = f"Node didn't have enough capacity: {name}, requested: {resized[name]}, "
            return Resize("Infeasible", f"{text}capacity: {allocatable.get(name, 0)}", math.inf, generation)
    used = dict.fromkeys(_COUNTED, 0)
    for other in neighbours:
        if other.key != run.key and not other.over:
            for name, amount in allocated(other).items():
                used[name] += amount
    for name in _COUNTED:
        free = allocatable.get(name, 0) - used[name]
        if resized[name] > free:
            text = f"Node didn't have enough resource: {name}, requested: {resized[name]}, used: {used[name]}, "
            due = now + DEFERRED_RETRY_S
            return Resize("Deferred", f"{text}capacity: {allocatable.get(name, 0)}", due, generation)
    return Resize("InProgress", "", now + ACTUATION_S, generation)


def allocate(run: PodRun) -> None:
    """Reserve what the spec asks for; the containers have it once it is carried out."""
    for container, spec in _pairs(run):
        container.allocated = spec.resources


def problem(run: PodRun, now: float) -> str:
    """Why the runtime cannot carry out what was allocated: a memory limit would be below what is in use; or ""."""
    used = {container.spec.name: _memory(run, container, now) for container in run.everything if container.running}
    texts = []
    for container, spec in _pairs(run):
        limit = (container.allocation.get("limits") or {}).get("memory")
        if limit is None or not container.running or _restarts(container.spec, spec):
            continue
        held = (container.spec.resources.get("limits") or {}).get("memory")
        decreasing = held is None or whole(limit) < whole(held)
        if decreasing and used[container.spec.name] >= whole(limit):
            texts.append(
                f'attempting to set container "{container.spec.name}" memory limit ({whole(limit)}) '
                f"below current usage ({sum(used.values())})"
            )
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f"cannot decrease memory limits: {listed}" if texts else ""


def _memory(run: PodRun, container: ContainerRun, now: float) -> int:
    age_s = now - (container.started if container.started is not None else now)
    return load_of(container.spec, run.pod.metadata.annotations).memory_at(age_s)


def carry_out(run: PodRun, now: float) -> None:
    """Give the containers what they were allocated; those whose policy says so start anew."""
    for container, spec in _pairs(run):
        granted = container.allocation
        container.allocated = None
        if granted == container.spec.resources:
            continue
        fresh = msgspec.structs.replace(spec, resources=granted)
        restart = container.running and _restarts(container.spec, fresh)
        container.spec = fresh
        container.oom_after = oom_after(fresh, run.pod.metadata.annotations)
        if restart:
            _restart(container, now)
        elif container.running:
            container.plan(now)  # another limit is used up at another time


def _restarts(old: ContainerSpec, new: ContainerSpec) -> bool:
    policies = {item.get("resourceName"): item.get("restartPolicy") for item in new.resize_policy}
    return any(
        (old.resources.get(part) or {}).get(name) != (new.resources.get(part) or {}).get(name)
        for part in ("requests", "limits")
        for name in _COUNTED
        if policies.get(name) == "RestartContainer"
    )


def _restart(container: ContainerRun, now: float) -> None:
    container.end(now, 137)
    container.previous = container.ended
    container.restarts += 1
    container.waiting = ("ContainerCreating", "")
    container.stage, container.due = "starting", now + container.behaviour.start_seconds


def conditions(resize: Resize | None) -> list[tuple[str, str, str, str]]:
    """Type, status, reason and message of the condition that tells of a resize."""
    if resize is None:
        return []
    if resize.stage in ("InProgress", "Error"):
        return [("PodResizeInProgress", "True", "Error" if resize.stage == "Error" else "", resize.message)]
    return [("PodResizePending", "True", resize.stage, resize.message)]


def tell_change(run: PodRun, before: Resize | None, notes: Notes) -> None:
    """Note how far a resize came, if that is another stage, or of another generation, than before."""
    now = run.resize
    if now is None:
        if before is not None and before.stage in ("InProgress", "Error"):
            notes.append(_note(run, "Normal", "ResizeCompleted", "Pod resize completed", before.generation, ""))
        return
    if before is not None and (before.stage, before.generation) == (now.stage, now.generation):
        return
    kind, reason, text = {
        "InProgress": ("Normal", "ResizeStarted", "Pod resize started"),
        "Error": ("Warning", "ResizeError", "Pod resize error"),
        "Deferred": ("Warning", "ResizeDeferred", "Pod resize Deferred"),
        "Infeasible": ("Warning", "ResizeInfeasible", "Pod resize Infeasible"),
    }[now.stage]
    notes.append(_note(run, kind, reason, text, now.generation, now.message))


def _note(run: PodRun, kind: str, reason: str, text: str, generation: int, problem: str) -> Note:
    summary: dict[str, Any] = {
        field: [{"name": spec.name, "resources": spec.resources} for spec in specs]
        for field, specs in (("initContainers", run.pod.init_containers), ("containers", run.pod.containers))
        if specs
    }
    summary["generation"] = generation
    if problem:
        summary["error"] = problem
    return kind, reason, f"{text}: {msgspec.json.encode(summary).decode()}", ""
