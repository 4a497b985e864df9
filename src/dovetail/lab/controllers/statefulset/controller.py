"""StatefulSets, the acting half: pods with lasting names, and a volume claim each."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.errors import AlreadyExists, ApiError, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import PERSISTENTVOLUMECLAIMS, PODS, STATEFULSETS
from dovetail.lab.controllers.adoption import claim_pods, strays_of
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.controller_revisions import HASH_LABEL, SET_HASH_LABEL, ControllerRevisions, template_of
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.pods import controllers, pod_of
from dovetail.lab.controllers.statefulset.decide import (
    INDEX_LABEL,
    POD_NAME_LABEL,
    Create,
    first_ordinal,
    next_available,
    ordinal,
    status_of,
    steps,
)
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.model.selector import LabelSelector

_KIND = ("apps/v1", "StatefulSet")


class StatefulSets:
    """Keeps StatefulSets."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._sets = context.store(STATEFULSETS)
        self._history = ControllerRevisions(context, _KIND, SET_HASH_LABEL)
        self.worker = KeyWorker("statefulset", self._reconcile, gather=0.01)
        self._sets.listen(self._changed)
        context.listen_to_pods_of(_KIND[1], self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        for key in controllers(_KIND[1], old, new):
            self.worker.add(key)

    async def _reconcile(self, key: str) -> float | None:
        workload = self._sets.get(key)
        if workload is None:
            return None
        await self._claim(workload)
        newest = await self._history.current(workload)
        updated = newest["metadata"]["name"]
        pods, now = self._pods(workload), self._context.now()
        rolled = 0
        error: ApiError | None = None
        try:
            for step in steps(workload, pods, updated, now):
                if isinstance(step, Create):
                    await self._create(workload, step, newest)
                else:
                    await self._delete(workload, step.pod)
                    rolled += step.rolled
        except ApiError as problem:
            error = problem
        await self._write(workload, status_of(workload, pods, updated, now, rolled))
        await self._history.trim(workload, self._live(workload, updated))
        if error is not None:
            raise error
        return next_available(workload, pods, now)

    async def _claim(self, workload: Json) -> None:
        """Pods of its names that lost their set are the set's again."""
        if "deletionTimestamp" in workload["metadata"]:
            return
        selector = msgspec.convert(workload["spec"]["selector"], LabelSelector)
        name = workload["metadata"]["name"]
        strays = strays_of(self._pods(workload), selector)
        await claim_pods(
            self._context,
            _KIND,
            workload["metadata"],
            selector,
            strays,
            lambda pod: ordinal(name, pod.metadata.name) >= 0,
        )

    def _pods(self, workload: Json) -> list[PodFields]:
        return self._context.pods.by("owner", workload["metadata"]["uid"])

    def _live(self, workload: Json, updated: str) -> set[str]:
        current = workload.get("status", {}).get("currentRevision", updated)
        return {updated, current, *(pod.metadata.labels.get(HASH_LABEL, "") for pod in self._pods(workload))}

    async def _create(self, workload: Json, step: Create, newest: Json) -> None:
        metadata = workload["metadata"]
        revision = newest
        if not step.updated:
            name = workload.get("status", {}).get("currentRevision")
            matching = [item for item in self._history.of(workload) if item["metadata"]["name"] == name]
            revision = matching[0] if matching else newest
        pod_name = f"{metadata['name']}-{step.ordinal}"
        await self._claims(workload, pod_name, step.ordinal)
        body = self._pod(workload, template_of(revision), pod_name, step.ordinal, revision["metadata"]["name"])
        about = InvolvedObject.of(*_KIND, metadata)
        try:
            made = await self._context.kube.create(PODS, body, type=PodFields)
        except AlreadyExists:
            return
        except ApiError as error:
            text = f"Create Pod {pod_name} in StatefulSet {metadata['name']} failed error: {error.message}"
            self._context.recorder.warning(about, "FailedCreate", text)
            raise
        text = f"Create Pod {pod_name} in StatefulSet {metadata['name']} successful"
        self._context.recorder.normal(about, "SuccessfulCreate", text)
        await self._context.pods.seen(made.metadata.resource_version)

    def _pod(self, workload: Json, template: Json, name: str, number: int, revision: str) -> Json:
        claims = workload["spec"].get("volumeClaimTemplates") or []
        names = {claim["metadata"]["name"] for claim in claims}
        given = [volume for volume in template["spec"].get("volumes", []) if volume["name"] not in names]
        mine = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in sorted(names)]
        spec: dict[str, Any] = {"hostname": name}
        if workload["spec"].get("serviceName"):
            spec["subdomain"] = workload["spec"]["serviceName"]
        if mine or given:
            spec["volumes"] = [*mine, *given]
        labels = {HASH_LABEL: revision, POD_NAME_LABEL: name, INDEX_LABEL: str(number)}
        return pod_of(template, _KIND, workload["metadata"], name=name, labels=labels, spec=spec)

    async def _claims(self, workload: Json, pod_name: str, number: int) -> None:
        metadata = workload["metadata"]
        policy = workload["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        for template in workload["spec"].get("volumeClaimTemplates") or []:
            claim_name = f"{template['metadata']['name']}-{pod_name}"
            labels = {**template["metadata"].get("labels", {}), **workload["spec"]["selector"].get("matchLabels", {})}
            claim = {
                "metadata": {
                    **{k: v for k, v in template["metadata"].items() if k in ("annotations", "finalizers")},
                    "name": claim_name,
                    "namespace": metadata["namespace"],
                    "labels": labels,
                },
                "spec": template["spec"],
            }
            if policy.get("whenDeleted") == "Delete":
                claim["metadata"]["ownerReferences"] = [owner(*_KIND, metadata)]
            try:
                await self._context.kube.create(PERSISTENTVOLUMECLAIMS, claim)
            except AlreadyExists:
                continue
            text = f"Create Claim {claim_name} Pod {pod_name} in StatefulSet {metadata['name']} success"
            self._context.recorder.normal(InvolvedObject.of(*_KIND, metadata), "SuccessfulCreate", text)

    async def _delete(self, workload: Json, pod: PodFields) -> None:
        metadata = workload["metadata"]
        name = pod.metadata.name
        try:
            answer = await self._context.kube.delete(PODS, name, pod.metadata.namespace)
        except NotFound:
            return
        text = f"Delete Pod {name} in StatefulSet {metadata['name']} successful"
        self._context.recorder.normal(InvolvedObject.of(*_KIND, metadata), "SuccessfulDelete", text)
        await self._context.pods.seen(answer.get("metadata", {}).get("resourceVersion", "0"))
        policy = workload["spec"].get("persistentVolumeClaimRetentionPolicy", {})
        number = ordinal(metadata["name"], name) - first_ordinal(workload)
        if policy.get("whenScaled") == "Delete" and number >= int(workload["spec"].get("replicas", 1)):
            await self._drop_claims(workload, name)

    async def _drop_claims(self, workload: Json, pod_name: str) -> None:
        for template in workload["spec"].get("volumeClaimTemplates") or []:
            claim = f"{template['metadata']['name']}-{pod_name}"
            try:
                await self._context.kube.delete(PERSISTENTVOLUMECLAIMS, claim, workload["metadata"]["namespace"])
            except NotFound:
                continue

    async def _write(self, workload: Json, status: Json) -> None:
        if status == workload.get("status"):
            return
        try:
            written = await self._context.kube.update(
                STATEFULSETS, {**workload, "status": status}, subresource="status"
            )
        except NotFound:
            return
        await self._sets.seen(written["metadata"]["resourceVersion"])
