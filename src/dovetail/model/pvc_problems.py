"""Claims: why a volume claim lets its pod run nowhere for now, in words and as a reason of the vocabulary.

What is said here is said of every node alike. Where a volume that can be had lets a pod run is for others to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dovetail.language import message
from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


class PvcProblem(msgspec.Struct, frozen=True):
    """`code` is a reason's, `text` tells which object it is about."""

    code: str
    text: str


def class_name(claim: PersistentVolumeClaim) -> str | None:
    """The class that a claim asks for; the old annotation wins. None: whichever is the default."""
    return claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name)


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: the newest default one, of several the first by name."""
    defaults = sorted(
        (storage_class for storage_class in classes if storage_class.default),
        key=lambda storage_class: storage_class.metadata.name,
    )
    return max(defaults, key=_made, default=None)


def _made(storage_class: StorageClass) -> str:
    made = storage_class.metadata.creation_timestamp
    return made.isoformat() if made is not None else ""


def missing(name: str) -> PvcProblem:
    """There is no claim of this name."""
    return PvcProblem("VOLUME_MISSING", message('persistentvolumeclaim "{name}" not found', name=name))


def in_use(name: str, who: str) -> PvcProblem:
    """Another pod has this claim, or comes before, and there can be no second one."""
    text = message(
        'persistentvolumeclaim "{name}" is for one pod at a time (ReadWriteOncePod), and {who}', name=name, who=who
    )
    return PvcProblem("VOLUME_IN_USE", text)


def bound_trouble(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> PvcProblem | None:
    """What keeps a claim that names its volume from being used, or one that is lost or going."""
    mine, its = f'persistentvolumeclaim "{claim.metadata.name}"', f'persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return PvcProblem("VOLUME_LOST", message("{mine} is being deleted", mine=mine))
    if claim.status.phase == "Lost":
        return PvcProblem("VOLUME_LOST", message("{mine} is bound to {its}, which does not exist", mine=mine, its=its))
    if not claim.spec.volume_name:
        return None
    if volume is None:
        return PvcProblem("VOLUME_LOST", message("{its} of {mine} not found", its=its, mine=mine))
    if volume.metadata.deletion_timestamp is not None:
        return PvcProblem("VOLUME_LOST", message("{its} of {mine} is being deleted", its=its, mine=mine))
    return (
        None
        if claim.bound
        else PvcProblem("VOLUME_UNBOUND", message("{mine} is not bound yet to {its}", mine=mine, its=its))
    )


def open_class(name: str, class_name: str | None, classes: Mapping[str, StorageClass]) -> StorageClass | PvcProblem:
    """The class that makes the volume of a claim that has none yet, or what keeps it from it.

    A class that binds at once makes the volume wherever it likes: only then is it known where the pod may run.
    """
    mine = f'persistentvolumeclaim "{name}"'
    storage_class = default_class(classes.values()) if class_name is None else classes.get(class_name)
    if storage_class is None:
        if class_name:
            return PvcProblem(
                "VOLUME_MISSING", message('storageclass "{asked}" of {mine} not found', asked=class_name, mine=mine)
            )
        why = message("there is no default one") if class_name is None else message('its storageClassName is ""')
        return PvcProblem(
            "VOLUME_CLASS", message("{mine} has no volume and no StorageClass to make it of: {why}", mine=mine, why=why)
        )
    if storage_class.volume_binding_mode != "WaitForFirstConsumer":
        text = message(
            '{mine} is not bound yet: its storageclass "{found}" does not wait for the first consumer',
            mine=mine,
            found=storage_class.metadata.name,
        )
        return PvcProblem("VOLUME_UNBOUND", text)
    return storage_class
