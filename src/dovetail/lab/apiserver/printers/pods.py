"""Columns of pods, with the STATUS that kubectl shows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, cast

import msgspec

from dovetail.lab.apiserver.printers.cells import ColumnHeader, age, created

Json = dict[str, Any]

HEADERS = (
    ColumnHeader("Name", format="name"),
    ColumnHeader("Ready"),
    ColumnHeader("Status"),
    ColumnHeader("Restarts"),
    ColumnHeader("Age"),
    ColumnHeader("IP", priority=1),
    ColumnHeader("Node", priority=1),
    ColumnHeader("Nominated Node", priority=1),
    ColumnHeader("Readiness Gates", priority=1),
)


class _Container(TypedDict, total=False):
    name: str
    restartPolicy: str


class _Spec(TypedDict, total=False):
    containers: list[_Container] | None
    initContainers: list[_Container] | None
    nodeName: str
    readinessGates: list[Json] | None


class _Metadata(TypedDict, total=False):
    name: str
    creationTimestamp: str
    deletionTimestamp: str


class _Shown(TypedDict, total=False):
    """The part of a pod that its cells are made of."""

    metadata: _Metadata
    spec: _Spec
    status: Json


_decoder = msgspec.json.Decoder(_Shown)


def decode_shown(text: bytes) -> Json:
    """A stored pod, with the fields that `cells` and `conditions` read and few others."""
    return cast(Json, _decoder.decode(text))


def conditions(obj: Json) -> list[Json]:
    """A finished pod's row says so, which lets clients leave it out."""
    phase = (obj.get("status") or {}).get("phase")
    if phase == "Succeeded":
        message = "The pod has completed successfully."
        return [{"type": "Completed", "status": "True", "reason": "Succeeded", "message": message}]
    if phase == "Failed":
        return [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]
    return []


class ContainerCounts:
    """What the containers add up to."""

    def __init__(self, spec: Json, status: Json) -> None:
        self.ready = 0
        self.total = len(spec.get("containers") or [])
        self.restarts = 0
        self.last = ""
        self.sidecars = {
            init_container.get("name")
            for init_container in spec.get("initContainers") or []
            if init_container.get("restartPolicy") == "Always"
        }
        self.total += len(self.sidecars)
        self.reason = status.get("reason") or status.get("phase", "")
        for condition in status.get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
                self.reason = "SchedulingGated"

    def restarted(self, container: Json) -> None:
        self.restarts += container.get("restartCount", 0)
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.last = max(self.last, ended)


def _ended(state: Json, prefix: str = "") -> str:
    if state.get("reason"):
        return f"{prefix}{state['reason']}"
    if state.get("signal"):
        return f"{prefix}Signal:{state['signal']}"
    return f"{prefix}ExitCode:{state.get('exitCode', 0)}"


def _initialise(tally: ContainerCounts, spec: Json, status: Json) -> bool:
    """Walk the init containers; whether one of them still has to finish."""
    sidecar_restarts, sidecar_last = 0, ""
    for index, container in enumerate(status.get("initContainerStatuses") or []):
        before, last = tally.restarts, tally.last
        tally.restarted(container)
        sidecar = container.get("name") in tally.sidecars
        if sidecar:
            sidecar_restarts += tally.restarts - before
            sidecar_last = max(sidecar_last, tally.last if tally.last != last else sidecar_last)
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting") or {}
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            tally.ready += bool(container.get("ready"))
            continue
        if ended is not None:
            tally.reason = _ended(ended, "Init:")
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            tally.reason = f"Init:{waiting['reason']}"
        else:
            tally.reason = f"Init:{index}/{len(spec.get('initContainers') or [])}"
        if _condition(status, "Initialized"):
            break
        return True
    tally.restarts, tally.last = sidecar_restarts, sidecar_last
    return False


def _condition(status: Json, name: str) -> bool:
    return any(
        condition.get("type") == name and condition.get("status") == "True"
        for condition in status.get("conditions") or []
    )


def _running(tally: ContainerCounts, status: Json) -> None:
    running, failure = False, ""
    for container in reversed(status.get("containerStatuses") or []):
        tally.restarted(container)
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            tally.reason = waiting["reason"]
        elif ended is not None:
            tally.reason = _ended(ended)
            if ended.get("exitCode"):
                failure = tally.reason
        elif container.get("ready") and state.get("running") is not None:
            running = True
            tally.ready += 1
    if tally.reason == "Completed":
        if running and _condition(status, "Ready"):
            tally.reason = "Running"
        elif failure:
            tally.reason = failure
        elif running:
            tally.reason = "NotReady"


def cells(obj: Json, now: datetime) -> list[Any]:
    spec, status, metadata = obj.get("spec") or {}, obj.get("status") or {}, obj["metadata"]
    tally = ContainerCounts(spec, status)
    if not _initialise(tally, spec, status):
        _running(tally, status)
    if metadata.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            tally.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            tally.reason = "Terminating"
    restarts = str(tally.restarts)
    if tally.restarts and tally.last:
        restarts = f"{tally.restarts} ({age(tally.last, now)} ago)"
    ips = status.get("podIPs") or [{}]
    return [
        metadata["name"],
        f"{tally.ready}/{tally.total}",
        tally.reason,
        restarts,
        created(obj, now),
        ips[0].get("ip") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(spec, status),
    ]


def _gates(spec: Json, status: Json) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return "<none>"
    open_gates = sum(_condition(status, gate.get("conditionType", "")) for gate in gates)
    return f"{open_gates}/{len(gates)}"
