"""Volumes that must be detached before their machine may end: those of the pods that were drained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.controllers.termination.drain import drainable
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolumeClaim, VolumeAttachment


def blocking(
    node: str,
    attachments: Iterable[VolumeAttachment],
    staying: Iterable[Pod],
    claims: Mapping[str, PersistentVolumeClaim],
) -> list[str]:
    """Attachments the machine waits for. Volumes of pods that stay to the end, and inline ones, are not waited for."""
    kept = {
        name
        for pod in staying
        if not drainable(pod)
        for name in _volumes(pod, claims)
    }
    return [
        each.metadata.name
        for each in attachments
        if each.spec.node_name == node
        and each.spec.source.persistent_volume_name
        and each.spec.source.persistent_volume_name not in kept
    ]


def _volumes(pod: Pod, claims: Mapping[str, PersistentVolumeClaim]) -> Iterable[str]:
    for volume in pod.spec.volumes:
        name = volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim else None
        if name is None and volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
        found = claims.get(f"{pod.metadata.namespace}/{name}") if name else None
        if found is not None and found.spec.volume_name:
            yield found.spec.volume_name
