"""Storage: the nodes that a pod's volumes allow, and the attachments that they take.

- A bound claim restricts the pod to its volume's topology; a claim with WaitForFirstConsumer to that of its
  StorageClass. These restrict the node, not the pod: a spread does not use them. A node attaches a volume once,
  however many pods share it.
- A pod is not excluded by a volume that may still appear: a new node may provide local volumes of a class without a
  provisioner, and a claim to a local volume is recreated after its node is gone. The node that already has such a
  volume is the pod's `home`: kube-scheduler would use no other for now, so the pod goes there if it can.
- Free volumes of classes without a provisioner are matched to the unbound claims of pending pods: a volume serves one
  claim, so it attracts one pod.
- While another pod uses its ReadWriteOncePod claim, kube-scheduler keeps a pod off every node, and a node launched for
  it would stay empty. A running pod keeps the claim; else the pod with the highest priority, then the oldest, is first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import product

import msgspec

from dovetail.model.fit.binding import capacity, serves
from dovetail.model.fit.storage import class_of
from dovetail.model.labels import HOSTNAME, ZONE
from dovetail.model.pods import Pod
from dovetail.model.pvc_problems import PvcProblem, bound_trouble, class_name, in_use, missing, open_class
from dovetail.model.volumes import NO_PROVISIONER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.planner.problem.pod_spec import DISK, claim_names
from dovetail.planner.requirements import NEVER, NODE_NAME, Term, clause
from dovetail.planner.snapshot import Snapshot

_EBS = "ebs.csi.aws.com"
#: In-tree provisioners and the CSI drivers that took over their volumes.
MIGRATED = {"kubernetes.io/aws-ebs": _EBS, "kubernetes.io/gce-pd": "pd.csi.storage.gke.io"}
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
#: Alternative terms of a pod's volumes together.
_MAX_ALTERNATIVES = 64

#: A CSI driver and its volume handle.
Volume = tuple[str, str]


class VolumeConstraints(msgspec.Struct, frozen=True):
    """`alternatives`: one of the terms must hold. `error` forbids placing the pod, with the reason `code`.

    `attached` are volumes that only this pod uses; `shared` those that other pods use as well (see `shared_volumes`).
    `home`: terms that select the nodes that already have the volumes; empty where there are none.
    """

    alternatives: tuple[Term, ...] = ((),)
    attached: tuple[Volume, ...] = ()
    error: str = ""
    shared: tuple[Volume, ...] = ()
    code: str = ""
    home: tuple[Term, ...] = ()


NO_VOLUMES = VolumeConstraints()
_ANYWHERE: tuple[Term, ...] = ((),)


class _Claim(msgspec.Struct, frozen=True):
    """The requirements of one claim."""

    terms: tuple[Term, ...] = _ANYWHERE
    volume: Volume = ("", "")
    home: tuple[Term, ...] = _ANYWHERE


def storage_of(claims: tuple[tuple[str, str | None], ...], snapshot: Snapshot) -> VolumeConstraints:
    """The requirements of the claims of a pod."""
    if not claims:
        return NO_VOLUMES
    alternatives = home = _ANYWHERE
    attached: list[Volume] = []
    for key, made_of in claims:
        claim = _claim(key, made_of, snapshot)
        if isinstance(claim, PvcProblem):
            return VolumeConstraints(error=claim.text, code=claim.code)
        if claim.volume[0]:
            attached.append(claim.volume)
        alternatives, home = _both(alternatives, claim.terms), _both(home, claim.home)
    return VolumeConstraints(alternatives, tuple(sorted(attached)), home=() if home == _ANYWHERE else home)


def held(claims: Iterable[tuple[str, str | None]], snapshot: Snapshot) -> set[Volume]:
    """The volumes of these claims."""
    return {volume for claim in claims for volume in storage_of((claim,), snapshot).attached}


def _both(left: tuple[Term, ...], right: tuple[Term, ...]) -> tuple[Term, ...]:
    joined = dict.fromkeys(tuple(sorted({*pod_class, *other})) for pod_class, other in product(left, right))
    return tuple(joined)[:_MAX_ALTERNATIVES]


def _claim(key: str, made_of: str | None, snapshot: Snapshot) -> _Claim | PvcProblem:
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


def _open(
    key: str, claim: PersistentVolumeClaim | None, storage_class_name: str | None, snapshot: Snapshot
) -> _Claim | PvcProblem:
    """An unbound claim, perhaps one that is still to be created."""
    is_open = open_class(key.partition("/")[2], storage_class_name, snapshot.storage_classes)
    if isinstance(is_open, PvcProblem):
        return is_open
    driver = MIGRATED.get(is_open.provisioner, is_open.provisioner)
    home = _expected(claim, is_open, snapshot) if claim is not None else _ANYWHERE
    return _Claim(_allowed(is_open), (driver, key), home)


def _allowed(storage_class: StorageClass) -> tuple[Term, ...]:
    terms = [
        tuple(
            sorted(
                clause(match_label_expression.key, "In", match_label_expression.values)
                for match_label_expression in term.match_label_expressions
            )
        )
        for term in storage_class.allowed_topologies
    ]
    return _any_of(terms) if terms else _ANYWHERE


def _any_of(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Alternatives as Kubernetes reads them: an empty term matches nothing."""
    return tuple(filter(None, terms)) or ((NEVER,),)


def _expected(claim: PersistentVolumeClaim, storage_class: StorageClass, snapshot: Snapshot) -> tuple[Term, ...]:
    """The nodes for an unbound claim's volume: the selected node, or those of a matching free volume."""
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    if chosen is not None:
        return (((NODE_NAME, "In", (chosen,)),),)
    if storage_class.provisioner != NO_PROVISIONER:
        return _ANYWHERE
    volume = matched_volumes(snapshot).get(claim.metadata.key)
    return _exact(volume) if volume is not None else _ANYWHERE


def _bound(volume: PersistentVolume) -> _Claim:
    terms = _exact(volume)
    if volume.spec.local is None and volume.spec.host_path is None:
        return _Claim(terms, (_driver(volume), volume.metadata.name))
    anywhere = [tuple(clause for clause in term if clause[0] != HOSTNAME) for term in terms]
    return _Claim(tuple(dict.fromkeys(anywhere)), home=terms if [*terms] != anywhere else _ANYWHERE)


def _driver(volume: PersistentVolume) -> str:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver
    return _EBS if volume.spec.aws_elastic_block_store is not None else ""


def _exact(volume: PersistentVolume) -> tuple[Term, ...]:
    """The nodes that can use a volume: by its node affinity and by the zone in its labels."""
    labels = volume.metadata.labels
    zones: Term = tuple(clause(ZONE, "In", labels[key].split("__")) for key in (_OLD_ZONE, ZONE) if key in labels)
    affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if affinity is None:
        return (tuple(sorted(set(zones))),)
    terms = [
        tuple(clause(part.key, part.operator, part.values) for part in node_selector_term.match_expressions)
        for node_selector_term in affinity.node_selector_terms
        if not node_selector_term.match_fields
    ]
    return tuple(tuple(sorted({*term, *zones})) for term in _any_of(terms))


def matched_volumes(snapshot: Snapshot) -> Mapping[str, PersistentVolume]:
    """The free volume matched to each unbound claim: the one reserved for it, or the smallest that suffices."""
    table = snapshot.memory.table("stock")
    made_of = (snapshot.pending, snapshot.claims, snapshot.volumes)
    cached = table.get("spoken for")
    if cached is None or any(old is not new for old, new in zip(cached[0], made_of, strict=True)):
        cached = table["spoken for"] = (made_of, _match_volumes(snapshot))
    spoken: Mapping[str, PersistentVolume] = cached[1]
    return spoken


def _match_volumes(snapshot: Snapshot) -> dict[str, PersistentVolume]:
    stock = _free_volumes(snapshot)
    matched: dict[str, PersistentVolume] = {}
    for key in sorted({key for pod in snapshot.pending if pod.spec.volumes for key, _ in claim_names(pod)}):
        claim = snapshot.claims.get(key)
        if claim is None or claim.spec.volume_name:
            continue
        left = stock.get(class_of(claim), [])
        index = next((index for index, volume in enumerate(left) if serves(volume, claim)), None)
        if index is not None:
            matched[key] = left.pop(index)
    return matched


def _free_volumes(snapshot: Snapshot) -> dict[str, list[PersistentVolume]]:
    """The volumes of each class without a provisioner: reserved ones first, then the smallest."""
    stock: dict[str, list[PersistentVolume]] = {
        name: []
        for name, storage_class in snapshot.storage_classes.items()
        if storage_class.provisioner == NO_PROVISIONER
    }
    for volume in snapshot.volumes.values():
        if volume.spec.storage_class_name in stock:
            stock[volume.spec.storage_class_name].append(volume)
    for volumes in stock.values():
        volumes.sort(key=lambda volume: (volume.spec.claim_ref is None, capacity(volume), volume.metadata.name))
    return stock


_ONE_POD = "ReadWriteOncePod"


def exclusive_claims(claims: Iterable[str], snapshot: Snapshot) -> frozenset[str]:
    """The ReadWriteOncePod claims among some claims."""
    claimed = ((key, snapshot.claims.get(key)) for key in claims)
    return frozenset(key for key, claim in claimed if claim is not None and _ONE_POD in claim.spec.access_modes)


def pods_waiting_for_claims(
    line: Iterable[tuple[str, Pod]], claims: Set[str], snapshot: Snapshot
) -> dict[str, PvcProblem]:
    """The pods of a queue that must wait for one of the claims, with the pod that uses it."""
    line = list(line)
    users = _users(claims, {name for name, _ in line}, snapshot)
    first: dict[str, str] = {}
    pods_waiting_for_claims: dict[str, PvcProblem] = {}
    for name, pod in line:
        mine = [key for key, _ in claim_names(pod) if key in claims]
        taken = next((key for key in mine if key in users or key in first), None)
        if taken is None:
            first.update(dict.fromkeys(mine, name))
            continue
        who = f"{users[taken]} uses it" if taken in users else f"{first[taken]} goes first"
        pods_waiting_for_claims[name] = in_use(taken.partition("/")[2], who)
    return pods_waiting_for_claims


def _users(claims: Set[str], waiting: Set[str], snapshot: Snapshot) -> dict[str, str]:
    """Claim → running pod that uses it; not pods that are terminating or to be placed again."""
    users: dict[str, str] = {}
    for pod in (pod for state in snapshot.nodes if not state.deleting for pod in state.pods):
        if not pod.spec.volumes or pod.finished or pod.terminating:
            continue
        name = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
        if name not in waiting:
            users |= {key: name for key, _ in claim_names(pod) if key in claims}
    return users
