"""The storage a plan may count on: what the cluster has, and what is sure to come once a pod has its node.

kube-scheduler binds a pod by what is there at that moment; a plan speaks of later. By then a pod's own volumes have
their claims, the class of a claim is settled, a class that makes no volumes has some wherever it allows them, and a
claim to a disk inside a node that is left behind has been made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from dovetail.model.fit.storage import Storage
from dovetail.model.labels import HOSTNAME, REGION
from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pods import NodeSelectorTerm, Pod
from dovetail.model.pvc_problems import class_name, default_class
from dovetail.model.volumes import NO_PROVISIONER, SELECTED_NODE, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.planner.snapshot import Snapshot

#: Stands for a pod that brings volumes to classes that make none.
_BROUGHT = "dovetail.dev/brought"
_REGIONS = (REGION, "failure-domain.beta.kubernetes.io/region")


def storage_for(snapshot: Snapshot, pods: Iterable[Pod]) -> Storage:
    """Storage as it will be when these pods are placed."""
    default = default_class(snapshot.storage_classes.values())
    claims = {**snapshot.claims, **{claim.metadata.key: claim for claim in _own(pods, snapshot)}}
    return Storage(
        (_settled(claim, default) for claim in claims.values()),
        map(_reachable, snapshot.volumes.values()),
        map(_served, snapshot.storage_classes.values()),
    )


def _own(pods: Iterable[Pod], snapshot: Snapshot) -> Iterator[PersistentVolumeClaim]:
    """The claims of pods' own volumes: those that are there, and those that are still to be made. All are the pod's."""
    for pod in pods:
        for volume in pod.spec.volumes:
            template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
            if template is None:
                continue
            owner = OwnerReference(kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
            meta = ObjectMeta(name=f"{pod.metadata.name}-{volume.name}", namespace=pod.metadata.namespace)
            claim = snapshot.claims.get(meta.key) or PersistentVolumeClaim(metadata=meta, spec=template.spec)
            yield replace(claim, metadata=replace(claim.metadata, owner_references=(owner,)))


def _settled(claim: PersistentVolumeClaim, default: StorageClass | None) -> PersistentVolumeClaim:
    """A claim with its class, bound to no choice of a node that kube-scheduler will make again."""
    spec, notes = claim.spec, claim.metadata.annotations
    if default is not None and class_name(claim) is None and not spec.volume_name:
        spec = replace(spec, storage_class_name=default.metadata.name)
    if SELECTED_NODE in notes:
        notes = {key: value for key, value in notes.items() if key != SELECTED_NODE}
        return replace(claim, spec=spec, metadata=replace(claim.metadata, annotations=notes))
    return claim if spec is claim.spec else replace(claim, spec=spec)


def _served(storage_class: StorageClass) -> StorageClass:
    return (
        replace(storage_class, provisioner=_BROUGHT) if storage_class.provisioner == NO_PROVISIONER else storage_class
    )


def _reachable(volume: PersistentVolume) -> PersistentVolume:
    """A volume in the cluster's one region; one inside a node is wherever the rest of its affinity says."""
    labels = volume.metadata.labels
    if any(key in labels for key in _REGIONS):
        kept = {key: value for key, value in labels.items() if key not in _REGIONS}
        volume = replace(volume, metadata=replace(volume.metadata, labels=kept))
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None or not (volume.spec.local or volume.spec.host_path):
        return volume
    terms = [(term, _elsewhere(term)) for term in affinity.required.node_selector_terms]
    if any(_asks(term) and not _asks(loose) for term, loose in terms):
        return replace(volume, spec=replace(volume.spec, node_affinity=None))
    required = replace(affinity.required, node_selector_terms=tuple(loose for _, loose in terms))
    return replace(volume, spec=replace(volume.spec, node_affinity=replace(affinity, required=required)))


def _elsewhere(term: NodeSelectorTerm) -> NodeSelectorTerm:
    return replace(
        term, match_expressions=tuple(expression for expression in term.match_expressions if expression.key != HOSTNAME)
    )


def _asks(term: NodeSelectorTerm) -> bool:
    return bool(term.match_expressions or term.match_fields)
