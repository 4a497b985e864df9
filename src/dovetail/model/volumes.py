"""Views of storage: claims, volumes, classes, and what a node can attach."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.model.meta import Amount, ObjectMeta, ObjectReference, View
from dovetail.model.pods import NodeSelector, PersistentVolumeClaimSpec

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
#: Names the node that kube-scheduler chose for a claim's first pod, until the volume is made there.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: The provisioner of classes that make no volumes: they are created by hand or come with an instance's disks.
NO_PROVISIONER = "kubernetes.io/no-provisioner"


class PersistentVolumeClaimStatus(View, frozen=True, kw_only=True):
    phase: str = ""
    capacity: Mapping[str, Amount] = {}
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaim(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def bound(self) -> bool:
        """Bound to a volume, with nothing left to do."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations


class VolumeNodeAffinity(View, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class CSIPersistentVolumeSource(View, frozen=True, kw_only=True):
    driver: str = ""
    volume_handle: str = ""


class VolumeSource(View, frozen=True, kw_only=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    path: str = ""


class PersistentVolumeSpec(View, frozen=True, kw_only=True):
    capacity: Mapping[str, Amount] = {}
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    csi: CSIPersistentVolumeSource | None = None
    aws_elastic_block_store: VolumeSource | None = None
    local: VolumeSource | None = None
    host_path: VolumeSource | None = None
    persistent_volume_reclaim_policy: str = ""


class PersistentVolumeStatus(View, frozen=True, kw_only=True):
    phase: str = ""


class PersistentVolume(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(View, frozen=True, kw_only=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(View, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    parameters: Mapping[str, str] = {}
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    reclaim_policy: str = "Delete"

    @property
    def default(self) -> bool:
        marks = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
        return any(self.metadata.annotations.get(mark) == "true" for mark in marks)


class VolumeNodeResources(View, frozen=True, kw_only=True):
    count: int | None = None


class CSINodeDriver(View, frozen=True, kw_only=True):
    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(View, frozen=True, kw_only=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(View, frozen=True, kw_only=True):
    storage_capacity: bool = False


class CSIDriver(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class VolumeAttachmentSource(View, frozen=True, kw_only=True):
    persistent_volume_name: str = ""


class VolumeAttachmentSpec(View, frozen=True, kw_only=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(View, frozen=True, kw_only=True):
    attached: bool = False


class VolumeAttachment(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()
