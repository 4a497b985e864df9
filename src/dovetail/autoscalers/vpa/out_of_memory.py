"""Out-of-memory kills, read from changes of pods and from the kubelet's eviction events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.autoscalers.vpa.api import Pod, requests_of
from dovetail.model.quantity import QuantityError, parse

OOM_KILLED = "OOMKilled"


class OutOfMemory(msgspec.Struct, frozen=True):
    """A container that needed more memory than it had."""

    namespace: str
    pod: str
    container: str
    time_s: float
    memory_bytes: int


def kills(old: Pod, new: Pod) -> list[OutOfMemory]:
    """The kills between two states of a pod.

    A container that is now terminated had the resources of the new state; one that was seen running before and
    after its restart had those of the old state. Waiting to running, after a crash loop, is no new kill.
    """
    before = {status.name: status for status in old.status.container_statuses}
    seen = []
    for status in new.status.container_statuses:
        previous = before.get(status.name)
        if previous is None:
            continue
        restarted = status.restart_count > previous.restart_count
        end, last = status.state.terminated, status.last_state.terminated
        if end is not None and end.reason == OOM_KILLED and (previous.state.terminated is None or restarted):
            killed, holder = end, new
        elif (
            status.state.running is not None
            and previous.state.running is not None
            and restarted
            and last is not None
            and last.reason == OOM_KILLED
        ):
            killed, holder = last, old
        else:
            continue
        if killed.finished_at is None:
            continue
        memory = requests_of(status.name, holder).get("memory")
        seen.append(
            OutOfMemory(
                new.metadata.namespace,
                new.metadata.name,
                status.name,
                killed.finished_at.timestamp(),
                memory.whole if memory is not None else 0,
            )
        )
    return seen


def evictions(event: Mapping[str, Any]) -> list[OutOfMemory]:
    """The containers that a kubelet's eviction names as starved of memory."""
    involved = event.get("involvedObject") or {}
    metadata = event.get("metadata") or {}
    if event.get("reason") != "Evicted" or involved.get("kind") != "Pod":
        return []
    annotations = metadata.get("annotations") or {}
    containers, usages, starved = (
        str(annotations[name]).split(",") if name in annotations else []
        for name in ("offending_containers", "offending_containers_usage", "starved_resource")
    )
    if not len(containers) == len(usages) == len(starved):
        return []
    time_s = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
    seen = []
    for container, usage, resource in zip(containers, usages, starved, strict=True):
        if resource != "memory":
            continue
        try:
            memory = parse(usage).whole
        except QuantityError:
            continue
        seen.append(OutOfMemory(involved.get("namespace") or "", involved.get("name") or "", container, time_s, memory))
    return seen
