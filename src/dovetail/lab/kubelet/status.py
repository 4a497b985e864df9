"""A pod's status as its kubelet writes it, from the state of its run."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dovetail.lab.kubelet import resizing
from dovetail.lab.kubelet.container import ContainerRun, Ended
from dovetail.lab.kubelet.images import canonical_name, digest
from dovetail.lab.kubelet.pod_worker import PodRun

#: Seconds of the loop to the text of an instant.
Stamp = Callable[[float], str]
#: A condition's type and status, why, and in words.
_Item = tuple[str, str, str, str]


def status_of(run: PodRun, host_ip: str, now: float, stamp: Stamp) -> dict[str, Any]:
    """The whole status but for what others own (qosClass, conditions of others)."""
    phase = run.phase
    status: dict[str, Any] = {
        "observedGeneration": run.pod.metadata.generation,
        "phase": phase,
        "conditions": conditions(run, phase, now, stamp),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": stamp(run.accepted),
        "containerStatuses": [container_status(c, run.uid, stamp) for c in _by_name(run.mains)],
    }
    ip = host_ip if run.pod.spec.host_network else run.ip
    if run.sandbox and phase != "Failed":
        status["podIP"] = ip
        status["podIPs"] = [{"ip": ip}]
    if run.inits:
        status["initContainerStatuses"] = [container_status(c, run.uid, stamp, init=True) for c in run.inits]
    if run.ephemeral:
        status["ephemeralContainerStatuses"] = [_ephemeral_status(c, run.uid, stamp) for c in _by_name(run.ephemeral)]
    if run.failed is not None:
        status["reason"], status["message"] = run.failed
    return status


def _by_name(runs: list[ContainerRun]) -> list[ContainerRun]:
    """The order kubelets tell containers in, whatever that of the spec."""
    return sorted(runs, key=lambda run: run.spec.name) if len(runs) > 1 else runs


def conditions(run: PodRun, phase: str, now: float, stamp: Stamp) -> list[dict[str, Any]]:
    over = phase in ("Succeeded", "Failed")
    items: list[_Item] = [("PodReadyToStartContainers", "True" if run.sandbox and not over else "False", "", "")]
    items.append(("Initialized", *_initialized(run, phase)))
    ready = _ready(run, phase)
    items.append(("Ready", *_gated(run, ready)))
    items.append(("ContainersReady", *ready))
    items.append(("PodScheduled", "True", "", ""))
    if run.resize is not None:
        items += resizing.conditions(run.resize)
    else:
        for kind in resizing.CONDITIONS:
            run.transitions.pop(kind, None)
    return _written(tuple([(*item, stamp(_since(run, item, now))) for item in items]), run.pod.metadata.generation)


def _initialized(run: PodRun, phase: str) -> tuple[str, str, str]:
    if phase == "Succeeded":
        return "True", "PodCompleted", ""
    left = [init.spec.name for init in run.inits if not _done(init)]
    if left and not any(main.has_run for main in run.mains):
        return "False", "ContainersNotInitialized", f"containers with incomplete status: {_list(left)}"
    return "True", "", ""


def _done(init: ContainerRun) -> bool:
    if init.spec.sidecar:
        return init.has_run
    return init.ended is not None and init.ended.code == 0 and init.state == "terminated"


def _ready(run: PodRun, phase: str) -> tuple[str, str, str]:
    if phase == "Succeeded":
        return "False", "PodCompleted", ""
    if phase == "Failed":
        return "False", "PodFailed", ""
    sidecars = [init for init in run.inits if init.spec.sidecar]
    unready = [sidecar.spec.name for sidecar in (*sidecars, *run.mains) if not sidecar.ready]
    if unready:
        return "False", "ContainersNotReady", f"containers with unready status: {_list(unready)}"
    return "True", "", ""


def _gated(run: PodRun, ready: tuple[str, str, str]) -> tuple[str, str, str]:
    if ready[0] != "True":
        return ready
    texts = []
    for gate in run.pod.spec.readiness_gates:
        kind = gate.get("conditionType", "")
        condition = next((c for c in run.pod.status.conditions if c.type == kind), None)
        if condition is None:
            texts.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif condition.status != "True":
            texts.append(f'the status of pod readiness gate "{kind}" is not "True", but {condition.status}')
    return ("False", "ReadinessGatesNotReady", ", ".join(texts)) if texts else ready


def _list(names: list[str]) -> str:
    return f"[{' '.join(names)}]"


def _since(run: PodRun, item: _Item, now: float) -> float:
    """When the condition took the status that it has."""
    kind, status = item[:2]
    if kind in resizing.CONDITIONS:
        status = item[2]  # these are True while they are there: their reason changes
    before = run.transitions.get(kind)
    if before is None or before[0] != status:
        before = run.transitions[kind] = (status, now)
    return before[1]


@lru_cache(maxsize=256)
def _written(items: tuple[tuple[str, str, str, str, str], ...], generation: int) -> list[dict[str, Any]]:
    """The conditions of many pods that do the same at the same instant: one list for all of them."""
    return [
        {
            "type": kind,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since,
            "observedGeneration": generation,
            "reason": reason or None,
            "message": message or None,
        }
        for kind, status, reason, message, since in items
    ]


def container_status(run: ContainerRun, uid: str, stamp: Stamp, *, init: bool = False) -> dict[str, Any]:
    shown = run.state
    ready = run.ready
    if init and not run.spec.sidecar:
        ready = _done(run)
    status: dict[str, Any] = {
        "name": run.spec.name,
        "state": _state(run, uid, stamp, shown),
        "lastState": {},
        "ready": ready,
        "restartCount": run.restarts,
        "image": canonical_name(run.spec.image) if run.has_run else run.spec.image,
        "imageID": digest(run.spec.image) if run.has_run else "",
        "started": run.running and _started(run),
    }
    if run.serial:
        status["containerID"] = container_id(uid, run.spec.name, run.serial)
    if run.previous is not None and shown != "terminated":
        status["lastState"] = {"terminated": _terminated(run.previous, uid, run.spec.name, stamp)}
    if run.has_run:
        if run.allocation.get("requests"):
            status["allocatedResources"] = run.allocation["requests"]
        status["resources"] = {k: v for k, v in run.spec.resources.items() if k in ("limits", "requests")}
    return status


def _ephemeral_status(run: ContainerRun, uid: str, stamp: Stamp) -> dict[str, Any]:
    """An ephemeral container is never asked whether it is ready, or has started."""
    return {**container_status(run, uid, stamp), "ready": False, "started": None}


def _started(run: ContainerRun) -> bool:
    return run.spec.startup_probe is None or run.ready


def _state(run: ContainerRun, uid: str, stamp: Stamp, shown: str) -> dict[str, Any]:
    if run.started is not None:
        return {"running": {"startedAt": stamp(run.started)}}
    if shown == "terminated" and run.ended is not None:
        return {"terminated": _terminated(run.ended, uid, run.spec.name, stamp)}
    reason, message = run.waiting
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def _terminated(end: Ended, uid: str, name: str, stamp: Stamp) -> dict[str, Any]:
    return {
        "exitCode": end.code,
        "reason": end.reason,
        "startedAt": stamp(end.started),
        "finishedAt": stamp(end.finished),
        "containerID": container_id(uid, name, end.serial),
    }


def container_id(uid: str, name: str, serial: int) -> str:
    """A stable id: 64 hexadecimal digits from the pod's uid and the run's number."""
    base = uid.replace("-", "")
    return f"containerd://{base}{sum(name.encode()):08x}{serial:024x}"[: len("containerd://") + 64]
