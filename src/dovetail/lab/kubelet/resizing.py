"""Resizing pods in place: whether a node has room for it, and what the pod's status says meanwhile.

A resize that fits is allocated at once and carried out a moment later; one that does not fit now is deferred and
tried again; one that the node could never hold is infeasible. What a container has is what was last carried out,
not what its spec asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dovetail.lab.kubelet.container import ContainerRun
from dovetail.lab.kubelet.pod_worker import PodRun, Resize
from dovetail.lab.kubelet.views import ContainerSpec
from dovetail.lab.load.model import oom_after
from dovetail.model.quantity import resources

#: From the allocation of a resize to its end: the runtime changes cgroups and reports back.
ACTUATION_S = 1.0
#: Between two tries of a deferred resize; also tried whenever a pod leaves the node.
DEFERRED_RETRY_S = 10.0
_COUNTED = ("cpu", "memory")


def is_wanted(run: PodRun) -> bool:
    """Whether the spec asks for other resources than the containers have."""
    have = {container.spec.name: container.spec.resources for container in run.mains}
    return any(have.get(spec.name, spec.resources) != spec.resources for spec in run.pod.containers)


def requested(specs: Iterable[ContainerSpec]) -> dict[str, int]:
    totals = dict.fromkeys(_COUNTED, 0)
    for spec in specs:
        for name, amount in resources(spec.resources.get("requests") or {}).items():
            if name in totals:
                totals[name] += amount
    return totals


def decide(run: PodRun, allocatable: Mapping[str, int], neighbours: Iterable[PodRun], now: float) -> Resize | None:
    """What becomes of the resources that the spec asks for; None if the containers have them."""
    if not is_wanted(run):
        return None
    wanted = requested(run.pod.containers)
    for name in _COUNTED:
        if wanted[name] > allocatable.get(name, 0):
            text = f"Node didn't have enough capacity: {name}, requested: {wanted[name]}, "
            return Resize("Infeasible", f"{text}capacity: {allocatable.get(name, 0)}", math.inf)
    used = dict.fromkeys(_COUNTED, 0)
    for other in neighbours:
        if other.key != run.key and not other.over:
            for name, amount in requested(container.spec for container in other.mains).items():
                used[name] += amount
    for name in _COUNTED:
        free = allocatable.get(name, 0) - used[name]
        if wanted[name] > free:
            text = f"Node didn't have enough resource: {name}, requested: {wanted[name]}, used: {used[name]}, "
            return Resize("Deferred", f"{text}capacity: {allocatable.get(name, 0)}", now + DEFERRED_RETRY_S)
    return Resize("InProgress", "", now + ACTUATION_S)


def carry_out(run: PodRun, now: float) -> None:
    """Give the containers what the spec asks for; those whose policy says so start anew."""
    wanted = {spec.name: spec for spec in run.pod.containers}
    for container in run.mains:
        spec = wanted.get(container.spec.name)
        if spec is None or spec.resources == container.spec.resources:
            continue
        restart = container.running and _restarts(container.spec, spec)
        container.spec = spec
        container.oom_after = oom_after(spec, run.pod.metadata.annotations)
        if restart:
            _restart(container, now)
        elif container.running:
            container._plan(now)  # another limit is used up at another time


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
    if resize.stage == "InProgress":
        return [("PodResizeInProgress", "True", "", "")]
    return [("PodResizePending", "True", resize.stage, resize.message)]
