"""Equivalence groups: pending pods that any node treats alike.

Pods of one controller with the same labels and spec share a group, so each question is asked once for all of them.
A controller that keeps making different pods gets no more than ten shared groups; its further pods stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dovetail.autoscalers.node_groups.annotations import is_daemonset
from dovetail.model.pods import Container, Pod, PodSpec

MAX_GROUPS_PER_CONTROLLER = 10
_TOKEN_PREFIX = "kube-api-access-"
_encoder = msgspec.msgpack.Encoder(order="deterministic")


class PodGroup(msgspec.Struct, frozen=True, eq=False):
    """Pods alike for every purpose of scheduling; never empty."""

    pods: tuple[Pod, ...]

    @property
    def exemplar(self) -> Pod:
        return self.pods[0]


def pod_groups(pods: Iterable[Pod]) -> list[PodGroup]:
    """The pods in groups, in the order in which each group's first pod came."""
    members: list[list[Pod]] = []
    by_controller: dict[str, dict[bytes, list[Pod]]] = {}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is None or is_daemonset(pod):
            members.append([pod])
            continue
        shared = by_controller.setdefault(owner.uid, {})
        signature = _signature(pod)
        alike = shared.get(signature)
        if alike is not None:
            alike.append(pod)
            continue
        alone = [pod]
        members.append(alone)
        if len(shared) < MAX_GROUPS_PER_CONTROLLER:
            shared[signature] = alone
    return [PodGroup(tuple(alike)) for alike in members]


def _signature(pod: Pod) -> bytes:
    return _encoder.encode((pod.metadata.labels, _without_names(pod.spec)))


def _without_names(spec: PodSpec) -> PodSpec:
    """The spec without what admission writes differently into each pod: its name and its token's volume."""
    random = {volume.name for volume in spec.volumes if volume.name.startswith(_TOKEN_PREFIX)}
    if not random and not spec.hostname:
        return spec
    return msgspec.structs.replace(
        spec,
        hostname="",
        volumes=tuple(volume for volume in spec.volumes if volume.name not in random),
        containers=tuple(_without_mounts(container, random) for container in spec.containers),
        init_containers=tuple(_without_mounts(container, random) for container in spec.init_containers),
    )


def _without_mounts(container: Container, dropped: set[str]) -> Container:
    mounts = tuple(mount for mount in container.volume_mounts if mount.name not in dropped)
    return msgspec.structs.replace(container, volume_mounts=mounts)
