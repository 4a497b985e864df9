"""Volume claims as a cluster would have them: the ones that files leave out, and what files leave unsaid.

A pod's own volumes have claims as soon as the pod is there, and a claim that has its volume is marked as done.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pods import Pod
from dovetail.model.volumes import BIND_COMPLETED, PersistentVolumeClaim


def claims_of(given: Iterable[PersistentVolumeClaim], pods: Iterable[Pod]) -> dict[str, PersistentVolumeClaim]:
    """All claims by namespace and name: those given, and those that come with pods."""
    claims = {_key(claim.metadata): _settled(claim) for claim in given}
    for pod in pods:
        for claim in _own(pod):
            claims.setdefault(_key(claim.metadata), claim)
    return claims


def _key(meta: ObjectMeta) -> str:
    return f"{meta.namespace or 'default'}/{meta.name}"


def _settled(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """A claim that names its volume and is not waiting for it is bound, whether or not its annotations say so."""
    if claim.bound or not claim.spec.volume_name or claim.status.phase not in ("", "Bound"):
        return claim
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def _own(pod: Pod) -> Iterable[PersistentVolumeClaim]:
    owner = OwnerReference(kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    for volume in pod.spec.volumes:
        if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
            meta = ObjectMeta(
                name=f"{pod.metadata.name}-{volume.name}", namespace=pod.metadata.namespace, owner_references=(owner,)
            )
            yield PersistentVolumeClaim(metadata=meta, spec=volume.ephemeral.volume_claim_template.spec)
