"""Volumes, the acting half: claims are bound to volumes, volumes made and taken away, claims in use protected."""

from __future__ import annotations

from typing import Any

from dovetail.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.resources import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, STORAGECLASSES
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.pods import finished
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.volume.binder import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    PROVISIONER,
    SELECTED_NODE,
    claim_reference,
    class_of,
    match,
    provisioned,
    undeletable,
    waits_for_consumer,
    zones_of,
)
from dovetail.lab.controllers.worker import KeyWorker

PROVISION_SECONDS = 1.5
#: All claims are looked at this often: what keeps one from being bound is said again.
RESYNC_SECONDS = 15.0
_PROTECTION = "kubernetes.io/pvc-protection"


class Volumes:
    """Binds claims."""

    def __init__(self, context: ControllerContext, provisioner: EventRecorder) -> None:
        self._context = context
        self._provisioner = provisioner
        self._claims = context.store(PERSISTENTVOLUMECLAIMS)
        self._volumes = context.store(PERSISTENTVOLUMES)
        self._classes = context.store(STORAGECLASSES)
        self._begun: dict[str, float] = {}
        self._users: dict[str, set[str]] = {}
        self.worker = KeyWorker("persistentvolume", self._reconcile, gather=0.02)
        self._claims.listen(self._claim_changed)
        self._volumes.listen(self._volume_changed)
        self._classes.listen(self._class_changed)
        context.pods.listen(self._pod_changed)

    def _claim_changed(self, old: Json | None, new: Json | None) -> None:
        item = new or old
        assert item is not None
        self.worker.add(f"{item['metadata']['namespace']}/{item['metadata']['name']}")
        volume = item["spec"].get("volumeName")
        if new is None and volume:
            self.worker.add(volume)

    def _volume_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            return
        self.worker.add(new["metadata"]["name"])
        if "claimRef" not in new["spec"] and (old is None or "claimRef" in old["spec"]):
            self._again()

    def _class_changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self._again()

    def _again(self) -> None:
        for key, claim in self._claims.items():
            if not claim["spec"].get("volumeName"):
                self.worker.add(key)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        pod = new or old
        assert pod is not None
        for name in pod.claims:
            key = f"{pod.metadata.namespace}/{name}"
            users = self._users.setdefault(key, set())
            if new is not None and not finished(new):
                users.add(pod.metadata.key)
            else:
                users.discard(pod.metadata.key)
            self.worker.add(key)

    async def _reconcile(self, key: str) -> float | None:
        if "/" not in key:
            return await self._volume(key)
        claim = self._claims.get(key)
        if claim is None:
            return None
        if "deletionTimestamp" in claim["metadata"]:
            return await self._release(key, claim)
        if claim.get("status", {}).get("phase") == "Bound":
            return None
        if claim["spec"].get("volumeName"):
            volume = self._volumes.get(claim["spec"]["volumeName"])
            return await self._bind(claim, volume) if volume is not None else None
        storage_class = self._classes.get(class_of(claim)) if class_of(claim) else None
        matching = match(claim, self._volumes.all())
        waits = waits_for_consumer(storage_class)
        node = self._consumer(claim) if waits else ""
        if matching is not None and (not waits or node or "claimRef" in matching["spec"]):
            return await self._bind(claim, matching)
        if waits and not node:
            text = "waiting for first consumer to be created before binding"
            self._context.recorder.normal(_about(claim), "WaitForFirstConsumer", text)
            return self._resync()
        return await self._provision(key, claim, storage_class, node)

    def _consumer(self, claim: Json) -> str:
        """The node chosen by the scheduler, or the node of a pod that already sits there waiting."""
        chosen = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
        if chosen:
            return str(chosen)
        for key in sorted(self._users.get(f"{claim['metadata']['namespace']}/{claim['metadata']['name']}", ())):
            pod = self._context.pods.get(key)
            if pod is not None and pod.spec.node_name:
                return pod.spec.node_name
        return ""

    async def _provision(self, key: str, claim: Json, storage_class: Json | None, node: str) -> float | None:
        about = _about(claim)
        if storage_class is None:
            if class_of(claim):
                text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
                self._context.recorder.warning(about, "ProvisioningFailed", text)
            else:
                text = "no persistent volumes available for this claim and no storage class is set"
                self._context.recorder.normal(about, "FailedBinding", text)
            return self._resync()
        provisioner = storage_class["provisioner"]
        if provisioner == NO_PROVISIONER:
            return None
        now = self._context.clock.monotonic()
        if key not in self._begun:
            self._begun[key] = now
            self._announce(claim, provisioner)
            body = {"metadata": {"annotations": {PROVISIONER: provisioner}}}
            await self._context.kube.patch(
                PERSISTENTVOLUMECLAIMS, claim["metadata"]["name"], body, claim["metadata"]["namespace"]
            )
        left = self._begun[key] + PROVISION_SECONDS - now
        if left > 0:
            return left
        volume = provisioned(claim, storage_class, self._zone(storage_class, node))
        try:
            made = await self._context.kube.create(PERSISTENTVOLUMES, volume)
        except AlreadyExists:
            made = await self._context.kube.get(PERSISTENTVOLUMES, volume["metadata"]["name"])
        await self._volumes.seen(made["metadata"]["resourceVersion"])
        del self._begun[key]
        text = f"Successfully provisioned volume {made['metadata']['name']}"
        self._provisioner.normal(about, "ProvisioningSucceeded", text)
        return await self._bind(self._claims.get(key) or claim, made)

    def _resync(self) -> float:
        return RESYNC_SECONDS - self._context.clock.monotonic() % RESYNC_SECONDS

    def _announce(self, claim: Json, provisioner: str) -> None:
        about = _about(claim)
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the "
            "system administrator. If volume creation is delayed, please verify that the provisioner is running and "
            "correctly registered."
        )
        self._context.recorder.normal(about, "ExternalProvisioning", text)
        text = f'External provisioner is provisioning volume for claim "{name}"'
        self._provisioner.normal(about, "Provisioning", text)

    def _zone(self, storage_class: Json, node: str) -> str | None:
        """The node's zone; without a node, one of the class's zones, or of the cluster's, in turn."""
        chosen = self._context.nodes.get(node) if node else None
        label = "topology.kubernetes.io/zone"
        if chosen is not None:
            return chosen.metadata.labels.get(label)
        zones = zones_of(storage_class)
        if not zones:
            labels = [node.metadata.labels.get(label, "") for node in self._context.nodes.all()]
            zones = sorted({zone for zone in labels if zone})
        return zones[len(self._volumes) % len(zones)] if zones else None

    async def _bind(self, claim: Json, volume: Json) -> float | None:
        """First the volume points at the claim, then the claim at the volume, then both say so."""
        kube, metadata = self._context.kube, claim["metadata"]
        name = volume["metadata"]["name"]
        reference = volume["spec"].get("claimRef") or {}
        if reference.get("uid") not in (None, "", metadata["uid"]):
            return None
        if reference.get("uid") != metadata["uid"]:
            marks = {} if reference else {BOUND_BY_CONTROLLER: "yes"}
            body: dict[str, Any] = {"spec": {"claimRef": claim_reference(claim)}, "metadata": {"annotations": marks}}
            volume = await kube.patch(PERSISTENTVOLUMES, name, body)
        if volume.get("status", {}).get("phase") != "Bound":
            volume = await self._phase(volume, "Bound")
        marks = {BIND_COMPLETED: "yes"} | ({} if claim["spec"].get("volumeName") else {BOUND_BY_CONTROLLER: "yes"})
        body = {"metadata": {"annotations": marks, "uid": metadata["uid"]}, "spec": {"volumeName": name}}
        try:
            await kube.patch(PERSISTENTVOLUMECLAIMS, metadata["name"], body, metadata["namespace"])
            status = {
                "phase": "Bound",
                "accessModes": volume["spec"].get("accessModes", []),
                "capacity": volume["spec"].get("capacity", {}),
            }
            written = await kube.patch(
                PERSISTENTVOLUMECLAIMS,
                metadata["name"],
                {"status": status},
                metadata["namespace"],
                subresource="status",
            )
        except (NotFound, Conflict, Invalid):
            return 0.5
        await self._claims.seen(written["metadata"]["resourceVersion"])
        return None

    async def _release(self, key: str, claim: Json) -> float | None:
        """A claim on its way out goes when no pod on a node uses it."""
        finalizers = claim["metadata"].get("finalizers", [])
        users = [self._context.pods.get(user) for user in self._users.get(key, ())]
        if _PROTECTION not in finalizers or any(pod is not None and pod.spec.node_name for pod in users):
            return None
        rest = [name for name in finalizers if name != _PROTECTION]
        try:
            await self._context.kube.patch(
                PERSISTENTVOLUMECLAIMS,
                claim["metadata"]["name"],
                {"metadata": {"finalizers": rest or None}},
                claim["metadata"]["namespace"],
            )
        except NotFound:
            return None
        return None

    async def _volume(self, name: str) -> float | None:
        volume = self._volumes.get(name)
        if volume is None:
            return None
        reference = volume["spec"].get("claimRef")
        if "deletionTimestamp" in volume["metadata"]:
            return await self._drop(volume)
        if reference is None or not reference.get("uid"):
            await self._phase(volume, "Available")
            return None
        claim = self._claims.get(f"{reference['namespace']}/{reference['name']}")
        if claim is not None and claim["metadata"]["uid"] == reference["uid"]:
            return None
        if not self._claims.synced.is_set():
            return 1.0
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            return await self._reclaim(volume)
        await self._phase(volume, "Released")
        return None

    async def _reclaim(self, volume: Json) -> float | None:
        """Delete a released volume, where a plugin can."""
        name, problem = volume["metadata"]["name"], undeletable(volume)
        if problem is not None:
            if volume.get("status", {}).get("phase") != "Failed":
                await self._phase(volume, "Failed", problem)
                about = InvolvedObject.of("v1", "PersistentVolume", volume["metadata"])
                self._context.recorder.warning(about, "VolumeFailedDelete", problem)
            return None
        try:
            await self._context.kube.delete(PERSISTENTVOLUMES, name)
        except NotFound:
            return None
        return None

    async def _phase(self, volume: Json, phase: str, message: str | None = None) -> Json:
        """Write the phase, and wait until it is seen: an older look must not write over it."""
        if volume.get("status", {}).get("phase") == phase:
            return volume
        body = {"status": {"phase": phase, "message": message}}
        name = volume["metadata"]["name"]
        written = await self._context.kube.patch(PERSISTENTVOLUMES, name, body, subresource="status")
        await self._volumes.seen(written["metadata"]["resourceVersion"])
        return written

    async def _drop(self, volume: Json) -> float | None:
        reference = volume["spec"].get("claimRef") or {}
        claim = self._claims.get(f"{reference.get('namespace')}/{reference.get('name')}")
        if claim is not None and claim["metadata"]["uid"] == reference.get("uid"):
            return None
        try:
            await self._context.kube.patch(
                PERSISTENTVOLUMES, volume["metadata"]["name"], {"metadata": {"finalizers": None}}
            )
        except NotFound:
            return None
        return None


def _about(claim: Json) -> InvolvedObject:
    return InvolvedObject.of("v1", "PersistentVolumeClaim", claim["metadata"])
