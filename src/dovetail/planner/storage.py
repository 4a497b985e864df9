"""Storage: where a pod's volumes let it run, and what they take of a machine's attachments.

A bound claim runs where its volume is; one that waits for its first consumer runs where its class allows.
Volumes constrain the machine, not the pod: a spread does not count them. A machine attaches a volume once, however many
pods share it.

What may still come is no reason to leave a pod out: a machine may bring volumes for classes that make none, and a claim
to a disk inside a machine is made anew once that is gone. The place where such a volume is already is the pod's `home`:
kube-scheduler will have it nowhere else for now, so it goes there if it can.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import msgspec

from dovetail.model.claims import Trouble, bound_trouble, class_name, missing, open_class
from dovetail.model.labels import HOSTNAME, ZONE
from dovetail.model.volumes import NO_PROVISIONER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.planner.clauses import NEVER, NODE_NAME, Term, clause
from dovetail.planner.shape import DISK
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.stock import spoken_for

_EBS = "ebs.csi.aws.com"
#: In-tree provisioners and the CSI drivers that took over their volumes.
MIGRATED = {"kubernetes.io/aws-ebs": _EBS, "kubernetes.io/gce-pd": "pd.csi.storage.gke.io"}
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_MOST_ALTERNATIVES = 64

#: A driver, and what it knows a volume by.
Volume = tuple[str, str]


class Storage(msgspec.Struct, frozen=True):
    """`alternatives`: any of the terms will do. `error` forbids the pod, for the reason `code`.

    `attached` are the volumes that take an attachment of their own; `shared` those that others use too, see `sharing`.
    `home`: any of the terms leads to where volumes are already; empty where there is nothing to say.
    """

    alternatives: tuple[Term, ...] = ((),)
    attached: tuple[Volume, ...] = ()
    error: str = ""
    shared: tuple[Volume, ...] = ()
    code: str = ""
    home: tuple[Term, ...] = ()


NOTHING = Storage()
_ANYWHERE: tuple[Term, ...] = ((),)


class _Claim(msgspec.Struct, frozen=True):
    """What one claim amounts to."""

    terms: tuple[Term, ...] = _ANYWHERE
    volume: Volume = ("", "")
    home: tuple[Term, ...] = _ANYWHERE


def storage_of(claims: tuple[tuple[str, str | None], ...], snapshot: Snapshot) -> Storage:
    """What the claims of a pod amount to."""
    if not claims:
        return NOTHING
    alternatives = home = _ANYWHERE
    attached: list[Volume] = []
    for key, made_of in claims:
        found = _claim(key, made_of, snapshot)
        if isinstance(found, Trouble):
            return Storage(error=found.text, code=found.code)
        if found.volume[0]:
            attached.append(found.volume)
        alternatives, home = _both(alternatives, found.terms), _both(home, found.home)
    return Storage(alternatives, tuple(sorted(attached)), home=() if home == _ANYWHERE else home)


def held(claims: Iterable[tuple[str, str | None]], snapshot: Snapshot) -> set[Volume]:
    """The volumes that pods with these claims hold."""
    return {volume for each in claims for volume in storage_of((each,), snapshot).attached}


def _both(left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
    joined = dict.fromkeys(tuple(sorted({*one, *other})) for one, other in product(left, right))
    return tuple(joined)[:_MOST_ALTERNATIVES]


def _claim(key: str, made_of: str | None, snapshot: Snapshot) -> _Claim | Trouble:
    if key.startswith(DISK):
        kind, _, disk = key.removeprefix(DISK).partition("/")
        return _Claim(volume=(_EBS, disk) if kind == "ebs" else ("", ""))
    claim = snapshot.claims.get(key)
    if claim is None and made_of is None:
        return missing(key.partition("/")[2])
    if claim is not None:
        volume = snapshot.volumes.get(claim.spec.volume_name)
        trouble = bound_trouble(claim, volume)
        if trouble is not None:
            return trouble
        if volume is not None:
            return _bound(volume)
    return _open(key, claim, class_name(claim) if claim is not None else made_of or None, snapshot)


def _open(key: str, claim: PersistentVolumeClaim | None, asked: str | None, snapshot: Snapshot) -> _Claim | Trouble:
    """A claim, perhaps one that is still to be made, that has no volume yet."""
    found = open_class(key.partition("/")[2], asked, snapshot.storage_classes)
    if isinstance(found, Trouble):
        return found
    driver = MIGRATED.get(found.provisioner, found.provisioner)
    home = _expected(claim, found, snapshot) if claim is not None else _ANYWHERE
    return _Claim(_allowed(found), (driver, key), home)


def _allowed(found: StorageClass) -> tuple[Term, ...]:
    terms = [
        tuple(sorted(clause(each.key, "In", each.values) for each in term.match_label_expressions))
        for term in found.allowed_topologies
    ]
    return _any_of(terms) if terms else _ANYWHERE


def _any_of(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Alternatives as Kubernetes reads them: one that asks nothing allows nothing."""
    return tuple(filter(None, terms)) or ((NEVER,),)


def _expected(claim: PersistentVolumeClaim, found: StorageClass, snapshot: Snapshot) -> tuple[Term, ...]:
    """Where an open claim is to find its volume: on the node chosen for it, or where one is free for it."""
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    if chosen is not None:
        return (((NODE_NAME, "In", (chosen,)),),)
    if found.provisioner != NO_PROVISIONER:
        return _ANYWHERE
    volume = spoken_for(snapshot).get(claim.metadata.key)
    return _exact(volume) if volume is not None else _ANYWHERE


def _bound(volume: PersistentVolume) -> _Claim:
    terms = _exact(volume)
    if volume.spec.local is None and volume.spec.host_path is None:
        return _Claim(terms, (_driver(volume), volume.metadata.name))
    anywhere = [tuple(each for each in term if each[0] != HOSTNAME) for term in terms]
    return _Claim(tuple(dict.fromkeys(anywhere)), home=terms if [*terms] != anywhere else _ANYWHERE)


def _driver(volume: PersistentVolume) -> str:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver
    return _EBS if volume.spec.aws_elastic_block_store is not None else ""


def _exact(volume: PersistentVolume) -> tuple[Term, ...]:
    """Where a volume can be used: by its affinity, which knows no node's name, and by the zone in its labels."""
    labels = volume.metadata.labels
    zones: Term = tuple(clause(ZONE, "In", labels[key].split("__")) for key in (_OLD_ZONE, ZONE) if key in labels)
    affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if affinity is None:
        return (tuple(sorted(set(zones))),)
    terms = [
        tuple(clause(part.key, part.operator, part.values) for part in each.match_expressions)
        for each in affinity.node_selector_terms
        if not each.match_fields
    ]
    return tuple(tuple(sorted({*term, *zones})) for term in _any_of(terms))
