"""Storage: where a pod's volumes let it run, and what they take of a machine's attachments.

A bound claim runs where its volume is; one that waits for its first consumer runs where its class allows.
Volumes constrain the machine, not the pod: a spread does not count them. A machine attaches a volume once, however many
pods share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import msgspec

from dovetail.model.labels import HOSTNAME
from dovetail.model.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.planner.clauses import NODE_NAME, Term, clause
from dovetail.planner.snapshot import Snapshot

#: In-tree provisioners and the CSI drivers that took over their volumes.
MIGRATED = {"kubernetes.io/aws-ebs": "ebs.csi.aws.com", "kubernetes.io/gce-pd": "pd.csi.storage.gke.io"}
_MOST_ALTERNATIVES = 64

#: A driver, and what it knows a volume by.
Volume = tuple[str, str]


class Storage(msgspec.Struct, frozen=True):
    """`alternatives`: any of the terms will do. `error` forbids the pod.

    `attached` are the volumes that take an attachment of their own; `shared` the packs of those that others use too,
    see `sharing`.
    """

    alternatives: tuple[Term, ...] = ((),)
    attached: tuple[Volume, ...] = ()
    error: str = ""
    shared: tuple[str, ...] = ()


NOTHING = Storage()


def storage_of(claims: tuple[tuple[str, str | None], ...], snapshot: Snapshot) -> Storage:
    """What the claims of a pod amount to."""
    if not claims:
        return NOTHING
    alternatives: list[Term] = [()]
    attached: list[tuple[str, str]] = []
    for key, made_of in claims:
        terms, driver, identity, error = _claim(key, made_of, snapshot)
        if error:
            return Storage(error=error)
        if driver:
            attached.append((driver, identity))
        joined = [tuple(sorted({*left, *right})) for left, right in product(alternatives, terms)]
        alternatives = list(dict.fromkeys(joined))[:_MOST_ALTERNATIVES]
    return Storage(tuple(alternatives), tuple(sorted(attached)))


def held(claims: Iterable[tuple[str, str | None]], snapshot: Snapshot) -> set[Volume]:
    """The volumes that pods with these claims hold."""
    return {volume for each in claims for volume in storage_of((each,), snapshot).attached}


def _claim(key: str, made_of: str | None, snapshot: Snapshot) -> tuple[list[Term], str, str, str]:
    claim = snapshot.claims.get(key)
    problem = _unusable(claim) if claim is not None else "not found" if made_of is None else ""
    if problem:
        return [], "", "", f'persistentvolumeclaim "{key.partition("/")[2]}" {problem}'
    if claim is not None and claim.spec.volume_name:
        return _bound(claim, snapshot)
    name = claim.spec.storage_class_name if claim is not None else made_of
    if claim is not None and name == "":
        return [], "", "", f'persistentvolumeclaim "{key.partition("/")[2]}" has no class and no volume'
    found = _class(name or None, snapshot)
    if found is None:
        return [], "", "", f'storageclass "{name or ""}" not found'
    if claim is not None and found.volume_binding_mode != "WaitForFirstConsumer":
        return [], "", "", f'persistentvolumeclaim "{key.partition("/")[2]}" is not bound yet'
    driver = MIGRATED.get(found.provisioner, found.provisioner)
    return _allowed(found), driver, key, ""


def _unusable(claim: PersistentVolumeClaim) -> str:
    """What keeps a claim from being used at all, in words."""
    if claim.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if claim.status.phase == "Lost":
        return f'is bound to "{claim.spec.volume_name}", which does not exist'
    return "is not bound yet" if claim.spec.volume_name and not claim.bound else ""


def _class(name: str | None, snapshot: Snapshot) -> StorageClass | None:
    if name is not None:
        return snapshot.storage_classes.get(name)
    defaults = [each for each in snapshot.storage_classes.values() if each.default]
    return max(defaults, key=_age, default=None)


def _age(each: StorageClass) -> tuple[str, str]:
    made = each.metadata.creation_timestamp
    return (made.isoformat() if made else "", each.metadata.name)


def _allowed(found: StorageClass) -> list[Term]:
    terms = [
        tuple(sorted(clause(each.key, "In", each.values) for each in term.match_label_expressions))
        for term in found.allowed_topologies
    ]
    return terms or [()]


def _bound(claim: PersistentVolumeClaim, snapshot: Snapshot) -> tuple[list[Term], str, str, str]:
    name = claim.spec.volume_name
    volume = snapshot.volumes.get(name)
    if volume is None:
        return [], "", "", f'persistentvolume "{name}" not found'
    if volume.metadata.deletion_timestamp is not None:
        return [], "", "", f'persistentvolume "{name}" is being deleted'
    return _volume_terms(volume), _driver(volume), name, ""


def _driver(volume: PersistentVolume) -> str:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver
    return "ebs.csi.aws.com" if volume.spec.aws_elastic_block_store is not None else ""


def _volume_terms(volume: PersistentVolume) -> list[Term]:
    affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if affinity is None:
        return [()]
    local = volume.spec.local is not None or volume.spec.host_path is not None
    terms: list[Term] = []
    for each in affinity.node_selector_terms:
        parts = [clause(part.key, part.operator, part.values) for part in each.match_expressions]
        parts += [(NODE_NAME, part.operator, tuple(sorted(part.values))) for part in each.match_fields]
        kept = [part for part in parts if not (local and part[0] == HOSTNAME)]
        terms.append(tuple(sorted(kept)))
    return terms or [()]
