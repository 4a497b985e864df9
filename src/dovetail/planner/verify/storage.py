"""The storage that a plan may rely on: the cluster's, and what will exist once a pod has its node.

kube-scheduler binds a pod by the storage at that moment; a plan is about a later one. By then the claims of ephemeral
volumes exist, claims have their default class, classes without a provisioner have volumes wherever they allow them,
and claims to local volumes of removed nodes have been created again.
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

#: A provisioner for classes without one, whose volumes are created statically.
_STATIC_PROVISIONER = "dovetail.dev/brought"
_REGIONS = (REGION, "failure-domain.beta.kubernetes.io/region")


def storage_for(snapshot: Snapshot, pods: Iterable[Pod]) -> Storage:
    """The storage when these pods are bound."""
    default = default_class(snapshot.storage_classes.values())
    claims = {**snapshot.claims, **{claim.metadata.key: claim for claim in _ephemeral_claims(pods, snapshot)}}
    return Storage(
        (_with_class(claim, default) for claim in claims.values()),
        map(_reachable, snapshot.volumes.values()),
        map(_with_provisioner, snapshot.storage_classes.values()),
    )


def _ephemeral_claims(pods: Iterable[Pod], snapshot: Snapshot) -> Iterator[PersistentVolumeClaim]:
    """Yields the claims of ephemeral volumes, existing ones and those to be created, owned by their pods."""
    for pod in pods:
        for volume in pod.spec.volumes:
            template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
            if template is None:
                continue
            owner = OwnerReference(kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
            meta = ObjectMeta(name=f"{pod.metadata.name}-{volume.name}", namespace=pod.metadata.namespace)
            claim = snapshot.claims.get(meta.key) or PersistentVolumeClaim(metadata=meta, spec=template.spec)
            yield replace(claim, metadata=replace(claim.metadata, owner_references=(owner,)))


def _with_class(claim: PersistentVolumeClaim, default: StorageClass | None) -> PersistentVolumeClaim:
    """A claim with its default class and without a selected node: kube-scheduler will select one again."""
    spec, notes = claim.spec, claim.metadata.annotations
    if default is not None and class_name(claim) is None and not spec.volume_name:
        spec = replace(spec, storage_class_name=default.metadata.name)
    if SELECTED_NODE in notes:
        notes = {key: value for key, value in notes.items() if key != SELECTED_NODE}
        return replace(claim, spec=spec, metadata=replace(claim.metadata, annotations=notes))
    return claim if spec is claim.spec else replace(claim, spec=spec)


def _with_provisioner(storage_class: StorageClass) -> StorageClass:
    return (
        replace(storage_class, provisioner=_STATIC_PROVISIONER)
        if storage_class.provisioner == NO_PROVISIONER
        else storage_class
    )


def _reachable(volume: PersistentVolume) -> PersistentVolume:
    """A volume without region labels; a local volume without its hostname requirement."""
    labels = volume.metadata.labels
    if any(key in labels for key in _REGIONS):
        kept = {key: value for key, value in labels.items() if key not in _REGIONS}
        volume = replace(volume, metadata=replace(volume.metadata, labels=kept))
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None or not (volume.spec.local or volume.spec.host_path):
        return volume
    terms = [(term, _without_hostname(term)) for term in affinity.required.node_selector_terms]
    if any(_has_requirements(term) and not _has_requirements(loose) for term, loose in terms):
        return replace(volume, spec=replace(volume.spec, node_affinity=None))
    required = replace(affinity.required, node_selector_terms=tuple(loose for _, loose in terms))
    return replace(volume, spec=replace(volume.spec, node_affinity=replace(affinity, required=required)))


def _without_hostname(term: NodeSelectorTerm) -> NodeSelectorTerm:
    return replace(
        term, match_expressions=tuple(expression for expression in term.match_expressions if expression.key != HOSTNAME)
    )


def _has_requirements(term: NodeSelectorTerm) -> bool:
    return bool(term.match_expressions or term.match_fields)
