"""Claims: why a volume claim lets its pod run nowhere for now, in words and as a reason of the vocabulary.

What is said here is said of every node alike. Where a volume that can be had lets a pod run is for others to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass

_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


class Trouble(msgspec.Struct, frozen=True):
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


def missing(name: str) -> Trouble:
    """There is no claim of this name."""
    return Trouble("VOLUME_MISSING", f'persistentvolumeclaim "{name}" not found')


def in_use(name: str, who: str) -> Trouble:
    """Another pod has this claim, or comes before, and there can be no second one."""
    text = f'persistentvolumeclaim "{name}" is for one pod at a time (ReadWriteOncePod), and {who}'
    return Trouble("VOLUME_IN_USE", text)


def bound_trouble(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> Trouble | None:
    """What keeps a claim that names its volume from being used, or one that is lost or going."""
    mine, its = f'persistentvolumeclaim "{claim.metadata.name}"', f'persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return Trouble("VOLUME_LOST", f"{mine} is being deleted")
    if claim.status.phase == "Lost":
        return Trouble("VOLUME_LOST", f"{mine} is bound to {its}, which does not exist")
    if not claim.spec.volume_name:
        return None
    if volume is None:
        return Trouble("VOLUME_LOST", f"{its} of {mine} not found")
    if volume.metadata.deletion_timestamp is not None:
        return Trouble("VOLUME_LOST", f"{its} of {mine} is being deleted")
    return None if claim.bound else Trouble("VOLUME_UNBOUND", f"{mine} is not bound yet to {its}")


def open_class(name: str, asked: str | None, classes: Mapping[str, StorageClass]) -> StorageClass | Trouble:
    """The class that makes the volume of a claim that has none yet, or what keeps it from it. `asked` is its name.

    A class that binds at once makes the volume wherever it likes: only then is it known where the pod may run.
    """
    mine = f'persistentvolumeclaim "{name}"'
    storage_class = default_class(classes.values()) if asked is None else classes.get(asked)
    if storage_class is None:
        if asked:
            return Trouble("VOLUME_MISSING", f'storageclass "{asked}" of {mine} not found')
        why = "there is no default one" if asked is None else 'its storageClassName is ""'
        return Trouble("VOLUME_CLASS", f"{mine} has no volume and no StorageClass to make it of: {why}")
    if storage_class.volume_binding_mode != "WaitForFirstConsumer":
        name = storage_class.metadata.name
        text = f'{mine} is not bound yet: its storageclass "{name}" does not wait for the first consumer'
        return Trouble("VOLUME_UNBOUND", text)
    return storage_class
