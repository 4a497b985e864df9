"""What a kubelet reads of a pod. Containers of one template are decoded once and shared by all its pods."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from dovetail.lab.controllers.interning import share, share_meta
from dovetail.lab.controllers.views import Condition, KeySource, Meta, Volume


class Probe(msgspec.Struct, frozen=True, rename="camel"):
    """When a probe first answers, and how often it is asked."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    failure_threshold: int = 3
    success_threshold: int = 1
    http_get: dict[str, Any] | None = None
    tcp_socket: dict[str, Any] | None = None
    exec: dict[str, Any] | None = None


class FieldRef(msgspec.Struct, frozen=True, rename="camel"):
    """A field of the pod."""

    field_path: str = ""


class ResourceFieldRef(msgspec.Struct, frozen=True, rename="camel"):
    """A request or a limit of a container."""

    resource: str = ""
    container_name: str = ""
    divisor: str | int = "0"


class ValueSource(msgspec.Struct, frozen=True, rename="camel"):
    """Where a variable, or a whole set of them, comes from."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    prefix: str = ""
    config_map_key_ref: KeySource | None = None
    secret_key_ref: KeySource | None = None
    config_map_ref: KeySource | None = None
    secret_ref: KeySource | None = None


class Variable(msgspec.Struct, frozen=True, rename="camel"):
    """A variable of the environment, or where it comes from."""

    name: str = ""
    value: str = ""
    value_from: ValueSource | None = None


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port by number, and perhaps by name."""

    container_port: int = 0
    name: str = ""


class VolumeMount(msgspec.Struct, frozen=True, rename="camel"):
    """Where a volume of the pod is in a container."""

    name: str = ""
    mount_path: str = ""


class ContainerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A container as its kubelet runs it."""

    name: str
    image: str = ""
    image_pull_policy: str = "IfNotPresent"
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    restart_policy: str = ""
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None
    resources: dict[str, Any] = {}
    resize_policy: tuple[dict[str, str], ...] = ()
    lifecycle: dict[str, Any] = {}
    env: tuple[Variable, ...] = ()
    env_from: tuple[ValueSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()

    @property
    def sidecar(self) -> bool:
        return self.restart_policy == "Always"


@lru_cache(maxsize=4096)
def _containers(raw: bytes) -> tuple[ContainerSpec, ...]:
    return msgspec.json.decode(raw, type=tuple[ContainerSpec, ...])


class KubeletPodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that tells how to run it."""

    node_name: str = ""
    service_account_name: str = "default"
    restart_policy: str = "Always"
    host_network: bool = False
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    priority: int = 0
    containers: msgspec.Raw = msgspec.Raw(b"[]")
    init_containers: msgspec.Raw = msgspec.Raw(b"[]")
    ephemeral_containers: msgspec.Raw = msgspec.Raw(b"[]")
    volumes: tuple[Volume, ...] = ()
    readiness_gates: tuple[dict[str, str], ...] = ()


class SeenContainer(msgspec.Struct, frozen=True, rename="camel"):
    """A container in the status that an earlier life of the kubelet wrote."""

    name: str = ""
    restart_count: int = 0
    ready: bool = False


class KubeletPodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the status already says, to take up a pod that ran before."""

    phase: str = "Pending"
    reason: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: str | None = None
    qos_class: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[SeenContainer, ...] = ()


class KubeletPod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod as its kubelet sees it."""

    metadata: Meta = Meta()
    spec: KubeletPodSpec = KubeletPodSpec()
    status: KubeletPodStatus = KubeletPodStatus()

    @property
    def containers(self) -> tuple[ContainerSpec, ...]:
        return _containers(bytes(self.spec.containers))

    @property
    def init_containers(self) -> tuple[ContainerSpec, ...]:
        return _containers(bytes(self.spec.init_containers))

    @property
    def ephemeral_containers(self) -> tuple[ContainerSpec, ...]:
        return _containers(bytes(self.spec.ephemeral_containers))

    @property
    def claims(self) -> tuple[str, ...]:
        """The names of the PersistentVolumeClaims it mounts."""
        names = []
        for volume in self.spec.volumes:
            if volume.persistent_volume_claim is not None:
                names.append(volume.persistent_volume_claim.claim_name)
            elif volume.ephemeral is not None:
                names.append(f"{self.metadata.name}-{volume.name}")
        return tuple(names)


_interned: dict[bytes, msgspec.Raw] = {}


def compact(pod: KubeletPod, old: KubeletPod | None = None) -> KubeletPod:
    """The pod without a hold on the bytes it came in: equal specs are kept once."""
    spec, status = pod.spec, pod.status
    if old is None or spec.containers is not old.spec.containers:
        spec = msgspec.structs.replace(
            spec,
            containers=_intern(spec.containers),
            init_containers=_intern(spec.init_containers),
            ephemeral_containers=_intern(spec.ephemeral_containers),
        )
    if status.phase == "Running" and not spec.readiness_gates:
        status = msgspec.structs.replace(status, conditions=(), container_statuses=share(status.container_statuses))
    return KubeletPod(share_meta(pod.metadata, old.metadata if old is not None else None), spec, status)


def _intern(raw: msgspec.Raw) -> msgspec.Raw:
    data = bytes(raw)
    shared = _interned.get(data)
    if shared is None:
        if len(_interned) > 8192:
            _interned.clear()
        shared = _interned[data] = msgspec.Raw(data)
    return shared
