"""What the cluster knows of storage, as far as placing pods is concerned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.model.pods import Pod, Volume
from dovetail.model.pvc_problems import class_name
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment


class Storage:
    """Claims by `namespace/name`, everything else by name; `used` counts the placed pods of a claim."""

    def __init__(
        self,
        claims: Iterable[PersistentVolumeClaim] = (),
        volumes: Iterable[PersistentVolume] = (),
        classes: Iterable[StorageClass] = (),
        csi_nodes: Iterable[CSINode] = (),
        attachments: Iterable[VolumeAttachment] = (),
    ) -> None:
        self.claims = {claim.metadata.key: claim for claim in claims}
        self.volumes = {volume.metadata.name: volume for volume in volumes}
        self.classes = {storage_class.metadata.name: storage_class for storage_class in classes}
        self.csi_nodes = {csi_node.metadata.name: csi_node for csi_node in csi_nodes}
        self.attachments = {attachment.metadata.name: attachment for attachment in attachments}
        self.used: dict[str, int] = {}
        self.generation = 0

    def use(self, pod: Pod, change: int) -> None:
        """A pod that uses claims was placed or has left."""
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None:
                key = f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"
                self.used[key] = self.used.get(key, 0) + change

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(f"{namespace}/{name}")

    def waits(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim's class binds only once a pod has a node."""
        storage_class = self.classes.get(class_of(claim))
        return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"


def class_of(claim: PersistentVolumeClaim) -> str:
    """The storage class a claim asks for; the old annotation wins."""
    return class_name(claim) or ""


def claim_name(pod: Pod, volume: Volume) -> str | None:
    """The claim behind a volume: its own, or the one made for an ephemeral volume."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.ephemeral is not None:
        return f"{pod.metadata.name}-{volume.name}"
    return None


def claim_volumes(pod: Pod) -> Iterator[tuple[Volume, str]]:
    """The pod's volumes that have a claim, with its name."""
    for volume in pod.spec.volumes:
        name = claim_name(pod, volume)
        if name is not None:
            yield volume, name


def disk_name(volume: Volume) -> str:
    """What tells the disk of a pod's own volume from any other, the kind first; empty where there is none.

    A node takes such a disk once. (Of some kinds several may read the same together; that is not modelled here.)
    """
    if volume.aws_elastic_block_store is not None:
        return f"ebs/{volume.aws_elastic_block_store.volume_id.rpartition('/')[2]}"
    if volume.gce_persistent_disk is not None:
        return f"gce/{volume.gce_persistent_disk.pd_name}"
    if volume.iscsi is not None:
        return f"iscsi/{volume.iscsi.iqn}"
    return f"rbd/{volume.rbd.pool}/{volume.rbd.image}" if volume.rbd is not None else ""
