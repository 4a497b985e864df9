"""What kubelets write: nodes that join, their leases, and pods that run. Plain facts, no behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from dovetail.cloud.provider import Instance
from dovetail.model import labels as keys
from dovetail.model.meta import micro, stamp
from dovetail.model.pods import Container, Pod
from dovetail.model.quantity import format_resources

LEASE_SECONDS = 40
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def node(
    instance: Instance, name: str, taints: Iterable[Mapping[str, str]], now: datetime, is_ready: bool
) -> dict[str, Any]:
    """A node as it registers itself."""
    return {
        "metadata": {
            "name": name,
            "labels": {
                keys.ARCH: "amd64",
                keys.OS: "linux",
                **instance.labels,
                keys.HOSTNAME: name,
            },
        },
        "spec": {"providerID": instance.provider_id, "taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": format_resources(instance.capacity),
            "allocatable": format_resources(instance.allocatable),
            "conditions": conditions(now, is_ready),
            "addresses": [{"type": "InternalIP", "address": _address(name)}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "architecture": instance.labels.get(keys.ARCH, "amd64"),
                "operatingSystem": instance.labels.get(keys.OS, "linux"),
                "bootID": instance.provider_id.rpartition("/")[2],
                "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": "simulated",
                "machineID": instance.provider_id.rpartition("/")[2],
                "osImage": "simulated",
                "systemUUID": instance.provider_id.rpartition("/")[2],
            },
        },
    }


def conditions(now: datetime, is_ready: bool) -> list[dict[str, str]]:
    moment = stamp(now)
    state = (
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        if is_ready
        else ("Ready", "False", "KubeletNotReady", "container runtime network not ready")
    )
    return [
        {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }
        for kind, value, reason, message in (*_HEALTHY, state)
    ]


def ready(now: datetime) -> dict[str, Any]:
    return {"status": {"conditions": conditions(now, True)}}


def unready(now: datetime) -> dict[str, Any]:
    return {"status": {"conditions": conditions(now, False)[-1:]}}


def booted(now: datetime, operation: str) -> dict[str, Any]:
    """An instance that is back: ready, and its boot is another one."""
    return {"status": {"nodeInfo": {"bootID": f"simulated-{operation}"}, "conditions": conditions(now, True)[-1:]}}


def lease(name: str, now: datetime) -> dict[str, Any]:
    return {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": micro(now),
    }


def running(pod: Pod, now: datetime, number: int) -> dict[str, Any]:
    """A pod whose containers all started at once and are ready."""
    moment = stamp(now)
    scheduled = [
        {
            "type": condition.type,
            "status": condition.status,
            "lastTransitionTime": stamp(condition.last_transition_time or now),
        }
        for condition in pod.status.conditions
        if condition.type == "PodScheduled"
    ]
    true = [
        {"type": kind, "status": "True", "lastTransitionTime": moment}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    ]
    return {
        "status": {
            "phase": "Running",
            "startTime": moment,
            "hostIP": _address(pod.spec.node_name),
            "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            "podIPs": [{"ip": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"}],
            "conditions": [*scheduled, *true],
            "containerStatuses": [_container(container, moment) for container in pod.spec.containers],
        }
    }


def pod_ready(now: datetime) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(now)}]}}


def _container(container: Container, moment: str) -> dict[str, Any]:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": moment}},
    }


def _address(name: str) -> str:
    """An address that depends on the name alone."""
    number = sum((index + 1) * byte for index, byte in enumerate(name.encode())) & 0xFFFF
    return f"192.168.{number >> 8}.{number & 255}"
