"""Which existing volume would satisfy a claim on a node."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.model.fit.podinfo import term_matches
from dovetail.model.fit.storage import Storage, class_of
from dovetail.model.meta import ObjectMeta
from dovetail.model.nodes import Node
from dovetail.model.quantity import Quantity, parse
from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim


def volume_allows(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    """Whether a volume can be used on a node with these labels."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    node = Node(metadata=ObjectMeta(labels=labels))
    return any(term_matches(term, node) for term in affinity.required.node_selector_terms)


def find_volume(
    claim: PersistentVolumeClaim, storage: Storage, labels: Mapping[str, str], chosen: Collection[str]
) -> PersistentVolume | None:
    """The volume already meant for the claim, else the smallest free one that will do."""
    best: PersistentVolume | None = None
    for volume in storage.volumes.values():
        if volume.metadata.name in chosen or not serves(volume, claim):
            continue
        allowed = volume_allows(volume, labels)
        if volume.spec.claim_ref is not None:
            return volume if allowed else None
        if allowed and (best is None or capacity(volume) < capacity(best)):
            best = volume
    return best


def serves(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is meant for the claim, or free and right for it, wherever it lies."""
    spec = volume.spec
    if spec.storage_class_name != class_of(claim) or volume.metadata.deletion_timestamp is not None:
        return False
    if spec.claim_ref is not None and not _meant_for(volume, claim):
        return False
    if spec.volume_mode != claim.spec.volume_mode or capacity(volume) < _wanted(claim):
        return False
    return spec.claim_ref is not None or _free_and_right(volume, claim)


def _meant_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    reference = volume.spec.claim_ref
    if reference is None:
        return False
    same = reference.name == claim.metadata.name and reference.namespace == claim.metadata.namespace
    return same and reference.uid in ("", claim.metadata.uid)


def _free_and_right(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    if volume.status.phase != "Available":
        return False
    if claim.spec.selector is not None and not claim.spec.selector.matches(volume.metadata.labels):
        return False
    return set(claim.spec.access_modes) <= set(volume.spec.access_modes)


def capacity(volume: PersistentVolume) -> Quantity:
    """How much a volume holds."""
    return parse(volume.spec.capacity.get("storage", "0"))


def _wanted(claim: PersistentVolumeClaim) -> Quantity:
    return parse(claim.spec.resources.requests.get("storage", "0"))
