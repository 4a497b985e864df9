"""Volumes: whether what a pod mounts can be had on a node.

Four filters of kube-scheduler: disks that one node may hold only once, attach limits, binding of claims
and the affinity of their volumes, and the zone labels of old volumes.
"""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model.fit.binding import find_volume, volume_allows
from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.fit.rejection import DISK, ONCE_POD, VOLUME_LIMIT, VOLUME_ZONE, Rejection
from dovetail.model.fit.storage import Storage, claim_name, claim_volumes, class_of
from dovetail.model.labels import REGION, ZONE
from dovetail.model.pods import DiskUse, Pod, Volume
from dovetail.model.quantity import Quantity, parse
from dovetail.model.volumes import NO_PROVISIONER, SELECTED_NODE, PersistentVolumeClaim, TopologySelectorTerm

_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_OLD_REGION = "failure-domain.beta.kubernetes.io/region"
_ZONE_LABELS = (_OLD_ZONE, _OLD_REGION, ZONE, REGION)
_EBS = "ebs.csi.aws.com"
_IN_TREE_EBS = "kubernetes.io/aws-ebs"


class VolumeState:
    """What a pod's volumes ask, worked out once; `rejection` says that no node will do."""

    def __init__(self, pod: PodInfo, cluster: ClusterNodes) -> None:
        self.pod = pod.pod
        self.storage = cluster.storage
        self.bound: list[PersistentVolumeClaim] = []
        self.unbound: list[PersistentVolumeClaim] = []
        self.zones: list[tuple[str, frozenset[str]]] = []
        self.once = 0
        self.once_claims: set[str] = set()
        self.disks = [volume for volume in self.pod.spec.volumes if any(_disks(volume))]
        self.claims = list(claim_volumes(self.pod))
        self.rejection = self._restrict() or self._bind() or self._find_zones() if self.claims else None

    @property
    def idle(self) -> bool:
        return not self.claims and not self.disks

    def _restrict(self) -> Rejection | None:
        namespace = self.pod.metadata.namespace
        for volume, name in self.claims:
            if volume.ephemeral is not None:
                continue
            claim = self.storage.claim(namespace, name)
            if claim is None:
                return Rejection("VolumeRestrictions", (f'persistentvolumeclaim "{name}" not found',))
            if "ReadWriteOncePod" in claim.spec.access_modes:
                self.once_claims.add(name)
        self.once = sum(1 for name in self.once_claims if self.storage.used.get(f"{namespace}/{name}", 0) > 0)
        return None

    def _bind(self) -> Rejection | None:
        immediate = False
        for volume, name in self.claims:
            claim = self.storage.claim(self.pod.metadata.namespace, name)
            problem = _unusable(self.pod, volume, name, claim)
            if problem is not None:
                return Rejection("VolumeBinding", (problem,))
            if claim is None:
                continue
            if claim.bound:
                self.bound.append(claim)
            elif self.storage.waits(claim) and not claim.spec.volume_name:
                self.unbound.append(claim)
            else:
                immediate = True
        if immediate:
            return Rejection("VolumeBinding", ("pod has unbound immediate PersistentVolumeClaims",))
        return None

    def _find_zones(self) -> Rejection | None:
        for volume, name in self.claims:
            claim = self.storage.claim(self.pod.metadata.namespace, name)
            if volume.ephemeral is not None or claim is None or not claim.spec.volume_name:
                continue
            persistent = self.storage.volumes.get(claim.spec.volume_name)
            if persistent is None:
                return Rejection("VolumeZone", (f'persistentvolume "{claim.spec.volume_name}" not found',))
            for key in _ZONE_LABELS:
                if key in persistent.metadata.labels:
                    self.zones.append((key, frozenset(persistent.metadata.labels[key].split("__"))))
        return None

    def check(self, info: NodeInfo) -> Rejection | None:
        for disk in self.disks:
            if any(same_disk(disk, other) for held in info.pods.values() for other in held.shape.volumes):
                return DISK
        if self.once > 0:
            return ONCE_POD
        return self._check_limit(info) or self._check_binding(info) or self._check_zone(info.labels)

    def _check_limit(self, info: NodeInfo) -> Rejection | None:
        csi = self.storage.csi_nodes.get(info.name)
        limits = {
            driver.name: driver.allocatable.count
            for driver in (csi.spec.drivers if csi else ())
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if not limits:
            return None
        volumes = attached(self.pod, self.storage, csi is not None)
        held: dict[str, str] = {}
        for other in info.pods.values():
            if other.shape.volumes:
                held.update(attached(other.pod, self.storage, csi is not None))
        fresh = [driver for handle, driver in volumes.items() if handle not in held]
        held |= self._lingering(info.name)
        for driver in set(fresh):
            limit = limits.get(driver)
            in_use = sum(1 for volume_driver in held.values() if volume_driver == driver)
            if limit is not None and in_use + fresh.count(driver) > limit:
                return VOLUME_LIMIT
        return None

    def _lingering(self, node: str) -> dict[str, str]:
        """What is attached to a node, whether or not a pod there uses it."""
        attachments: dict[str, str] = {}
        for attachment in self.storage.attachments.values():
            driver = attachment.spec.attacher
            if attachment.spec.node_name == node and driver:
                volume = self.storage.volumes.get(attachment.spec.source.persistent_volume_name)
                if volume is not None and volume.spec.csi is not None:
                    attachments[f"{driver}/{volume.spec.csi.volume_handle}"] = driver
        return attachments

    def _check_binding(self, info: NodeInfo) -> Rejection | None:
        reasons: list[str] = []
        bound_ok, volumes_exist = self._check_bound(info)
        if not bound_ok:
            reasons.append("node(s) didn't match PersistentVolume's node affinity")
        if not self._check_unbound(info):
            reasons.append("node(s) didn't find available persistent volumes to bind")
        if not volumes_exist:
            reasons.append("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
        return Rejection("VolumeBinding", tuple(reasons)) if reasons else None

    def _check_bound(self, info: NodeInfo) -> tuple[bool, bool]:
        for claim in self.bound:
            volume = self.storage.volumes.get(claim.spec.volume_name)
            if volume is None:
                return True, False
            if not volume_allows(volume, info.labels):
                return False, True
        return True, True

    def _check_unbound(self, info: NodeInfo) -> bool:
        to_match: list[PersistentVolumeClaim] = []
        to_provision: list[PersistentVolumeClaim] = []
        for claim in self.unbound:
            selected = claim.metadata.annotations.get(SELECTED_NODE)
            if selected is not None and selected != info.name:
                return False
            (to_match if selected is None else to_provision).append(claim)
        chosen: set[str] = set()
        for claim in sorted(to_match, key=_size):
            volume = find_volume(claim, self.storage, info.labels, chosen)
            if volume is None:
                to_provision.append(claim)
            else:
                chosen.add(volume.metadata.name)
        return all(self._provisionable(claim, info) for claim in to_provision)

    def _provisionable(self, claim: PersistentVolumeClaim, info: NodeInfo) -> bool:
        storage_class = self.storage.classes.get(class_of(claim))
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            return False
        return _topology_allows(storage_class.allowed_topologies, info.labels)

    def _check_zone(self, labels: Mapping[str, str]) -> Rejection | None:
        if not any(key in labels for key in _ZONE_LABELS):
            return None
        for key, values in self.zones:
            value = labels.get(key)
            if value is None:
                value = labels.get({_OLD_ZONE: ZONE, _OLD_REGION: REGION}.get(key, key))
            if value is None or value not in values:
                return VOLUME_ZONE
        return None

    def move(self, pod: PodInfo, change: int) -> None:
        """Count a pod that comes or goes among the users of a claim that allows only one."""
        if self.once_claims and pod.shape.volumes:
            names = [
                volume.persistent_volume_claim.claim_name
                for volume in pod.shape.volumes
                if volume.persistent_volume_claim is not None
            ]
            self.once += change * sum(1 for name in names if name in self.once_claims)

    def copy(self) -> VolumeState:
        twin = VolumeState.__new__(VolumeState)
        for name, value in vars(self).items():
            setattr(twin, name, value)
        return twin


def _disks(volume: Volume) -> tuple[DiskUse | None, ...]:
    """The disk of a volume at the place of its kind."""
    return volume.aws_elastic_block_store, volume.gce_persistent_disk, volume.iscsi, volume.rbd


def same_disk(mine: Volume, other: Volume) -> bool:
    """Whether two volumes are one disk that a node may not hold twice; all but one kind may be read together."""
    if mine.aws_elastic_block_store is not None and other.aws_elastic_block_store is not None:
        return mine.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id
    for disk, its in zip(_disks(mine), _disks(other), strict=True):
        if disk is not None and its is not None and not (disk.read_only and its.read_only):
            named = (disk.pd_name, disk.iqn, disk.pool, disk.image) == (its.pd_name, its.iqn, its.pool, its.image)
            return named and (not disk.monitors or not {*disk.monitors}.isdisjoint(its.monitors))
    return False


def _unusable(pod: Pod, volume: Volume, name: str, claim: PersistentVolumeClaim | None) -> str | None:
    """What keeps a claim from being used at all, in words."""
    if claim is None:
        if volume.ephemeral is not None:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    owner = claim.metadata.controller
    if volume.ephemeral is not None and (owner is None or owner.uid != pod.metadata.uid):
        where = pod.metadata.namespace
        return f"PVC {where}/{name} was not created for pod {where}/{pod.metadata.name} (pod is not owner)"
    return None


def attached(pod: Pod, storage: Storage, migrated: bool) -> dict[str, str]:
    """The volumes a pod attaches through a CSI driver: unique name to driver.

    `migrated`: the node has CSI drivers, which then serve the volumes of the old in-tree plugins as well.
    """
    drivers: dict[str, str] = {}
    for volume in pod.spec.volumes:
        name = claim_name(pod, volume)
        if name is None:
            if migrated and volume.aws_elastic_block_store is not None:
                drivers[f"{_EBS}/{_handle(volume.aws_elastic_block_store.volume_id)}"] = _EBS
            continue
        claim = storage.claim(pod.metadata.namespace, name)
        held = _attached_claim(claim, storage, migrated) if claim is not None else None
        if held is not None:
            drivers[f"{held[0]}/{held[1]}"] = held[0]
    return drivers


def _attached_claim(claim: PersistentVolumeClaim, storage: Storage, migrated: bool) -> tuple[str, str] | None:
    """The driver and the handle of a claim's volume; one that is still to come counts by its class."""
    persistent = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if persistent is not None:
        spec = persistent.spec
        if spec.csi is not None:
            return (spec.csi.driver, spec.csi.volume_handle) if spec.csi.volume_handle else None
        if spec.aws_elastic_block_store is not None and migrated:
            return _EBS, _handle(spec.aws_elastic_block_store.volume_id)
        return None
    storage_class = storage.classes.get(class_of(claim))
    if storage_class is None or not storage_class.provisioner:
        return None
    driver = storage_class.provisioner
    if driver == _IN_TREE_EBS:
        if not migrated:
            return None
        driver = _EBS
    return driver, f"unbound/{claim.metadata.key}"


def _handle(volume_id: str) -> str:
    """The id of a disk without the zone that old manifests put before it."""
    return volume_id.rsplit("/", 1)[-1]


def _topology_allows(terms: tuple[TopologySelectorTerm, ...], labels: Mapping[str, str]) -> bool:
    """Whether a class may make volumes for a node; a term that asks nothing allows nothing."""
    if not terms:
        return True
    expressions = [term.match_label_expressions for term in terms if term.match_label_expressions]
    return any(all(labels.get(requirement.key) in requirement.values for requirement in term) for term in expressions)


def _size(claim: PersistentVolumeClaim) -> Quantity:
    return parse(claim.spec.resources.requests.get("storage", "0"))
