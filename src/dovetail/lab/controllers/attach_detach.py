"""VolumeAttachments: a volume is attached to the node of the pod that uses it, and detached when the last has left."""

from __future__ import annotations

from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, VOLUMEATTACHMENTS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.pods import finished
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.lab.kubelet.node import hash_of

ATTACH_SECONDS = 2.0


class Attachments:
    """Attaches and detaches CSI volumes."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._claims = context.store(PERSISTENTVOLUMECLAIMS)
        self._volumes = context.store(PERSISTENTVOLUMES)
        self._attachments = context.store(VOLUMEATTACHMENTS)
        self._since: dict[str, float] = {}
        self._uses: dict[str, dict[str, str]] = {}
        self.worker = KeyWorker("attachdetach", self._reconcile)
        context.pods.listen(self._pod_changed)
        self._claims.listen(self._claim_changed)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        pod = new or old
        assert pod is not None
        for name in pod.claims:
            key = f"{pod.metadata.namespace}/{name}"
            users = self._uses.setdefault(key, {})
            if new is not None and new.spec.node_name and not finished(new):
                users[pod.metadata.key] = new.spec.node_name
            else:
                users.pop(pod.metadata.key, None)
            self.worker.add(key)

    def _claim_changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

    async def _reconcile(self, key: str) -> float | None:
        claim = self._claims.get(key)
        volume = self._volumes.get(claim["spec"].get("volumeName", "")) if claim is not None else None
        if volume is None or "csi" not in volume["spec"]:
            return None
        node_names = sorted(set(self._uses.get(key, {}).values()))
        name = volume["metadata"]["name"]
        mine = [
            attachment
            for attachment in self._attachments.all()
            if attachment["spec"]["source"].get("persistentVolumeName") == name
        ]
        for stale in mine:
            if stale["spec"]["nodeName"] not in node_names:
                await self._detach(stale)
        taken = [
            attachment["spec"]["nodeName"] for attachment in mine if attachment["spec"]["nodeName"] not in node_names
        ]
        if taken and "ReadWriteOnce" in volume["spec"].get("accessModes", []):
            return 1.0
        waits = [await self._attach(key, volume, node) for node in node_names]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _attach(self, key: str, volume: Json, node: str) -> float | None:
        name = attachment_name(volume, node)
        attachment = self._attachments.get(name)
        if attachment is None:
            body = {
                "metadata": {"name": name},
                "spec": {
                    "attacher": volume["spec"]["csi"]["driver"],
                    "nodeName": node,
                    "source": {"persistentVolumeName": volume["metadata"]["name"]},
                },
            }
            try:
                attachment = await self._context.kube.create(VOLUMEATTACHMENTS, body)
            except AlreadyExists:
                return 0.2
            await self._attachments.seen(attachment["metadata"]["resourceVersion"])
            self._since[name] = self._context.clock.monotonic()
        if attachment.get("status", {}).get("attached"):
            return None
        left = (
            self._since.setdefault(name, self._context.clock.monotonic())
            + ATTACH_SECONDS
            - self._context.clock.monotonic()
        )
        if left > 0:
            return left
        body = {"status": {"attached": True}}
        await self._context.kube.patch(VOLUMEATTACHMENTS, name, body, subresource="status")
        self._record_attached(key, volume, node)
        return None

    def _record_attached(self, key: str, volume: Json, node: str) -> None:
        for pod_key, where in self._uses.get(key, {}).items():
            pod = self._context.pods.get(pod_key)
            if pod is not None and where == node:
                text = f'AttachVolume.Attach succeeded for volume "{volume["metadata"]["name"]}" '
                self._context.recorder.normal(
                    InvolvedObject.of("v1", PODS.kind, pod.metadata), "SuccessfulAttachVolume", text
                )

    async def _detach(self, attachment: Json) -> None:
        self._since.pop(attachment["metadata"]["name"], None)
        try:
            await self._context.kube.delete(VOLUMEATTACHMENTS, attachment["metadata"]["name"])
        except NotFound:
            return


def attachment_name(volume: Json, node: str) -> str:
    """`csi-` and a hash of handle, driver and node, so that attaching twice is attaching once."""
    csi = volume["spec"]["csi"]
    hash_ = hash_of(f"{csi['volumeHandle']}{csi['driver']}{node}")
    two = hash_of(f"{node}{csi['driver']}{csi['volumeHandle']}")
    return f"csi-{hash_:032x}{two:032x}"
