"""EKS Fargate profiles: which pods run on Fargate, in which size, and which Fargate refuses.

Pure: profiles and pods in, answers out. `fargate` acts on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from dovetail.model.meta import Amount
from dovetail.model.quantity import milli

Json = Mapping[str, Any]

PROFILE_LABEL = "eks.amazonaws.com/fargate-profile"
COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
SCHEDULER = "fargate-scheduler"
SERVICE = "eks-fargate-pods.amazonaws.com"
#: What Fargate adds to a pod's memory for kubelet, kube-proxy and containerd.
RESERVED_MIB = 256
_MIB = 1024**2
#: What a Fargate node can mount; a PersistentVolumeClaim must be bound to a volume of EFS.
_VOLUMES = frozenset({"configMap", "secret", "emptyDir", "projected", "downwardAPI", "nfs"})
_EFS = "efs.csi.aws.com"


class Capacity(msgspec.Struct, frozen=True, order=True):
    """A combination of vCPU and memory that Fargate offers."""

    cpu_milli: int
    memory_mib: int

    def __str__(self) -> str:
        """As the annotation `CapacityProvisioned` says it."""
        return f"{self.cpu_milli / 1000:g}vCPU {self.memory_mib / 1024:g}GB"


def _combinations() -> tuple[Capacity, ...]:
    gib_of_cpu: dict[int, Iterable[float]] = {
        250: (0.5, 1, 2),
        500: range(1, 5),
        1000: range(2, 9),
        2000: range(4, 17),
        4000: range(8, 31),
        8000: range(16, 61, 4),
        16000: range(32, 121, 8),
    }
    return tuple(Capacity(cpu, int(gib * 1024)) for cpu, sizes in gib_of_cpu.items() for gib in sizes)


COMBINATIONS = _combinations()


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A profile as EKS keeps it. `selectors`: namespaces and labels, in which `*` and `?` are wildcards."""

    name: str
    role_arn: str
    selectors: tuple[tuple[str, Mapping[str, str]], ...]
    subnets: tuple[str, ...] = ()

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return any(
            fnmatchcase(namespace, wanted_namespace)
            and all(
                any(fnmatchcase(key, wanted_key) and fnmatchcase(value, pattern) for key, value in labels.items())
                for wanted_key, pattern in wanted_labels.items()
            )
            for wanted_namespace, wanted_labels in self.selectors
        )


def profile_for(profiles: Iterable[Profile], pod: Json, namespace: str) -> Profile | None:
    """The profile that a new pod runs on; the first by name, or the one that its label names if that matches.

    Pods of DaemonSets, pods that have a node and pods that say `compute-type: ec2` run on instances.
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    owners = metadata.get("ownerReferences") or ()
    if spec.get("nodeName") or any(owner.get("kind") == "DaemonSet" for owner in owners):
        return None
    if (metadata.get("annotations") or {}).get(COMPUTE_TYPE) == "ec2":
        return None
    labels = metadata.get("labels") or {}
    matching = sorted(
        (profile for profile in profiles if profile.matches(namespace, labels)), key=lambda profile: profile.name
    )
    name = labels.get(PROFILE_LABEL)
    if name:
        return next((profile for profile in matching if profile.name == name), None)
    return matching[0] if matching else None


def capacity_for(pod: Json) -> Capacity | None:
    """The smallest combination that holds a pod; None where none does.

    The largest init container or the sum of the others, whichever is more; and what Fargate reserves.
    """
    spec = pod["spec"]
    cpu = _needed(spec, "cpu")
    memory = math.ceil(_needed(spec, "memory") / 1000 / _MIB)
    # Without any request the smallest combination is used, whatever is reserved.
    needed = memory + RESERVED_MIB if memory or cpu else 0
    return next(
        (offer for offer in sorted(COMBINATIONS) if offer.cpu_milli >= cpu and offer.memory_mib >= needed), None
    )


def _needed(spec: Json, resource: str) -> int:
    """In thousandths."""

    def amounts(containers: Iterable[Json]) -> list[int]:
        requested = []
        for container in containers:
            resources = container.get("resources") or {}
            request: Amount | None = (resources.get("requests") or {}).get(resource)
            requested.append(milli(request) if request is not None else 0)
        return requested

    first = spec.get("initContainers") or ()
    sidecars = [container for container in first if container.get("restartPolicy") == "Always"]
    running = sum(amounts([*(spec.get("containers") or ()), *sidecars]))
    return max(running, max(amounts(first), default=0))


def unsupported(pod: Json, drivers: Mapping[str, str | None]) -> str:
    """What of a pod Fargate cannot run, in the words of its scheduler; empty for a pod that it can.

    `drivers`: the CSI driver of the volume that each PersistentVolumeClaim of the pod is bound to; None where unbound.
    """
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    parts: list[str] = []
    fields = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if fields:
        parts.append("fields not supported: " + ", ".join(f"{name[0].upper()}{name[1:]}" for name in fields))
    if any((container.get("securityContext") or {}).get("privileged") for container in containers):
        parts.append("invalid SecurityContext fields: Privileged")
    ports = [port for container in containers for port in container.get("ports") or ()]
    if not spec.get("hostNetwork") and any(port.get("hostPort") or port.get("hostIP") for port in ports):
        parts.append("port contains HostIP or HostPort")
    volumes = [reason for volume in spec.get("volumes") or () if (reason := _volume(volume, drivers))]
    if volumes:
        parts.append("volumes not supported: " + ", ".join(volumes))
    return f"Pod not supported on Fargate: {', '.join(parts)}" if parts else ""


def _volume(volume: Json, drivers: Mapping[str, str | None]) -> str:
    name, claim = volume["name"], volume.get("persistentVolumeClaim")
    if claim is not None:
        driver = drivers.get(claim["claimName"])
        if driver is None:
            return f"{name} not supported because: PVC {claim['claimName']} not bound"
        return "" if driver == _EFS else f"{name} is of an unsupported volume Type"
    return "" if _VOLUMES & volume.keys() else f"{name} is of an unsupported volume Type"


def claim_names(pod: Json) -> Sequence[str]:
    """The PersistentVolumeClaims of a pod."""
    volumes = pod["spec"].get("volumes") or ()
    return [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("persistentVolumeClaim")]


def trusts_fargate(policy: Json) -> bool:
    """Whether a role's trust policy lets Fargate assume it."""
    for statement in _list(policy.get("Statement")):
        principal = statement.get("Principal") or {}
        services = _list(principal.get("Service")) if isinstance(principal, dict) else []
        actions = {str(action) for action in _list(statement.get("Action"))}
        if statement.get("Effect") == "Allow" and SERVICE in services and actions & {"sts:AssumeRole", "sts:*", "*"}:
            return True
    return False


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
