"""Mounts: a pod starts when its claims are bound and their volumes attached to its node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.resources import PERSISTENTVOLUMECLAIMS, VOLUMEATTACHMENTS
from dovetail.lab.controllers.informer import Informer
from dovetail.lab.controllers.views import Meta
from dovetail.lab.kubelet.views import KubeletPod


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class _ClaimStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Claim(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_name: str = ""


class _AttachmentSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    source: _Source = _Source()


class _AttachmentStatus(msgspec.Struct, frozen=True):
    attached: bool = False


class Attachment(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    spec: _AttachmentSpec = _AttachmentSpec()
    status: _AttachmentStatus = _AttachmentStatus()


class Mounts:
    """Knows what pods wait for; calls `ready` with the keys of pods to look at again."""

    def __init__(self, kube: Kube, ready: Callable[[list[str]], None]) -> None:
        self._ready = ready
        self._claims: Informer[Claim] = Informer(kube, PERSISTENTVOLUMECLAIMS, Claim)
        self._attachments: Informer[Attachment] = Informer(
            kube,
            VOLUMEATTACHMENTS,
            Attachment,
            {"volume": lambda attachment: attachment.spec.source.persistent_volume_name},
        )
        self._waiting: dict[str, None] = {}
        self._claims.listen(self._changed)
        self._attachments.listen(self._changed)

    def _changed(self, old: object, new: object) -> None:
        if self._waiting:
            keys = list(self._waiting)
            self._waiting.clear()
            self._ready(keys)

    def missing(self, pod: KubeletPod) -> str | None:
        """What the pod waits for, in words; None if it may start."""
        for name in pod.claims:
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            problem: str | None = None
            if claim is None or claim.status.phase != "Bound":
                problem = f'persistentvolumeclaim "{name}" is not bound'
            else:
                attached = self._attachments.by("volume", claim.spec.volume_name)
                here = [attachment for attachment in attached if attachment.spec.node_name == pod.spec.node_name]
                if (here and not here[0].status.attached) or (not here and claim.spec.volume_name.startswith("pvc-")):
                    problem = f'volume "{claim.spec.volume_name}" is not attached'
            if problem is not None:
                self._waiting[pod.metadata.key] = None
                return problem
        return None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._claims.run(), name="kubelet claims")
            tasks.create_task(self._attachments.run(), name="kubelet attachments")
