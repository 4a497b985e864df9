"""Deployments: the thin loop around the arithmetic of `rollout`, `revision` and `status`."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.errors import AlreadyExists, ApiError, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import DEPLOYMENTS, REPLICASETS
from dovetail.lab.controllers.adoption import adopt
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment import revision, rollout
from dovetail.lab.controllers.deployment import status as conditions
from dovetail.lab.controllers.pods import finished
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.model.selector import LabelSelector

_KIND = ("apps/v1", "Deployment")


class Deployments:
    """Rolls Deployments."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._deployments = context.store(DEPLOYMENTS)
        self._sets = context.store(REPLICASETS)
        self.worker = KeyWorker("deployment", self._reconcile, gather=0.01)
        self._deployments.listen(self._changed)
        self._sets.listen(self._set_changed)
        context.pods.listen(self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self.worker.add(_key(new))

    def _set_changed(self, old: Json | None, new: Json | None) -> None:
        item = new or old
        assert item is not None
        for owner in item["metadata"].get("ownerReferences", ()):
            if owner.get("controller") and owner["kind"] == "Deployment":
                self.worker.add(f"{item['metadata']['namespace']}/{owner['name']}")

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        """Recreate waits for the last old pod to go; nothing else depends on single pods."""
        if new is not None or old is None:
            return
        owner = old.metadata.controller
        rs = self._sets.get(f"{old.metadata.namespace}/{owner.name}") if owner else None
        if rs is not None:
            self._set_changed(None, rs)

    async def _reconcile(self, key: str) -> float | None:
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        sets = await self._claim(deployment)
        new = revision.current(deployment, sets)
        old = [rs for rs in sets if rs is not new]
        if "deletionTimestamp" in deployment["metadata"]:
            return await self._save(deployment, conditions.counted(deployment, new, sets, self._context.now()))
        deployment = await self._note_pause(deployment)
        if deployment["spec"].get("paused") or rollout.was_scaled(deployment, sets):
            return await self._resize(deployment, new, old)
        if rollout.is_rolling(deployment):
            return await self._roll(deployment, new, old)
        return await self._recreate(deployment, new, old)

    async def _claim(self, deployment: Json) -> list[Json]:
        metadata = deployment["metadata"]
        selector = msgspec.convert(deployment["spec"]["selector"], LabelSelector)
        for rs in self._sets.by("namespace", metadata["namespace"]):
            orphan = not any(ref.get("controller") for ref in rs["metadata"].get("ownerReferences", ()))
            if orphan and selector.matches(rs["metadata"].get("labels", {})) and "deletionTimestamp" not in metadata:
                identity = (rs["metadata"]["name"], rs["metadata"]["namespace"], rs["metadata"]["uid"])
                await self._sets.seen(await adopt(self._context.kube, REPLICASETS, identity, _KIND, metadata))
        return self._sets.by("owner", metadata["uid"])

    async def _note_pause(self, deployment: Json) -> Json:
        """Pausing and resuming are noted in Progressing, so that paused time does not count against the deadline."""
        if not conditions.has_deadline(deployment):
            return deployment
        existing = deployment.get("status", {}).get("conditions", [])
        current = conditions.find(existing, "Progressing")
        if current is not None and current["reason"] == "ProgressDeadlineExceeded":
            return deployment
        paused = bool(deployment["spec"].get("paused"))
        noted = current is not None and current["reason"] == "DeploymentPaused"
        if paused == noted:
            return deployment
        what = (
            ("DeploymentPaused", "Deployment is paused") if paused else ("DeploymentResumed", "Deployment is resumed")
        )
        note = conditions.condition("Progressing", "Unknown", *what, self._context.now())
        return await self._put_conditions(deployment, conditions.put(existing, note))

    async def _put_conditions(self, deployment: Json, items: list[Json]) -> Json:
        status = {**deployment.get("status", {}), "conditions": items}
        return await self._put_status({**deployment, "status": status})

    async def _put_status(self, deployment: Json) -> Json:
        written = await self._context.kube.update(DEPLOYMENTS, deployment, subresource="status")
        await self._deployments.seen(written["metadata"]["resourceVersion"])
        return written

    async def _resize(self, deployment: Json, new: Json | None, old: list[Json]) -> float | None:
        if new is not None:
            deployment, new = await self._sync_current(deployment, new, old)
        steps = rollout.rescale(deployment, new, old)
        sets = await self._apply(deployment, steps, [*old, new] if new else old)
        new = _among(sets, new)
        if deployment["spec"].get("paused"):
            await self._clean(deployment, [rs for rs in sets if rs is not new])
        return await self._save(deployment, conditions.counted(deployment, new, sets, self._context.now()))

    async def _roll(self, deployment: Json, new: Json | None, old: list[Json]) -> float | None:
        deployment, new = await self._ensure(deployment, new, old)
        sets = await self._apply(deployment, rollout.next_steps(deployment, new, old), [*old, new])
        return await self._finish(deployment, _among(sets, new), sets)

    async def _recreate(self, deployment: Json, new: Json | None, old: list[Json]) -> float | None:
        steps = [rollout.ScaleReplicaSet(rs["metadata"]["name"], 0) for rs in old if rollout.replicas(rs) > 0]
        if steps or self._runs(old):
            sets = await self._apply(deployment, steps, [*old, new] if new else old)
            return await self._save(
                deployment, conditions.rolled(deployment, _among(sets, new), sets, self._context.now())
            )
        deployment, new = await self._ensure(deployment, new, old)
        steps = [rollout.ScaleReplicaSet(new["metadata"]["name"], rollout.replicas(deployment))]
        sets = await self._apply(deployment, steps, [*old, new])
        return await self._finish(deployment, _among(sets, new), sets)

    def _runs(self, old: list[Json]) -> bool:
        if any(rs.get("status", {}).get("replicas") for rs in old):
            return True
        return any(not finished(pod) for rs in old for pod in self._context.pods.by("owner", rs["metadata"]["uid"]))

    async def _finish(self, deployment: Json, new: Json | None, sets: list[Json]) -> float | None:
        if conditions.complete(deployment, deployment.get("status", {})):
            await self._clean(deployment, [rs for rs in sets if rs is not new])
        return await self._save(deployment, conditions.rolled(deployment, new, sets, self._context.now()))

    async def _save(self, deployment: Json, status: Json) -> float | None:
        if status != deployment.get("status"):
            try:
                deployment = await self._put_status({**deployment, "status": status})
            except NotFound:
                return None
        return self._progress_deadline_left(deployment)

    def _progress_deadline_left(self, deployment: Json) -> float | None:
        """Seconds until the progress deadline has to be looked at."""
        status = deployment.get("status", {})
        current = conditions.find(status.get("conditions", []), "Progressing")
        if not conditions.has_deadline(deployment) or current is None or conditions.complete(deployment, status):
            return None
        if current["reason"] in ("ProgressDeadlineExceeded", "DeploymentPaused", "NewReplicaSetAvailable"):
            return None
        return max(0.0, (conditions.deadline(deployment, current) - self._context.now()).total_seconds()) + 1.0

    async def _ensure(self, deployment: Json, new: Json | None, old: list[Json]) -> tuple[Json, Json]:
        """The ReplicaSet of the current template, made if there is none."""
        if new is not None:
            return await self._sync_current(deployment, new, old)
        body = revision.fresh(deployment, old)
        try:
            created = await self._context.kube.create(REPLICASETS, body)
        except AlreadyExists:
            return await self._collide(deployment, body)
        except ApiError as error:
            await self._report(deployment, body, error)
            raise
        await self._sets.seen(created["metadata"]["resourceVersion"])
        if rollout.replicas(created) > 0:
            text = f"Scaled up replica set {created['metadata']['name']} from 0 to {rollout.replicas(created)}"
            self._context.recorder.normal(self._about(deployment), "ScalingReplicaSet", text)
        note = f'Created new replica set "{created["metadata"]["name"]}"'
        return await self._note_revision(deployment, created, ("NewReplicaSetCreated", note), always=True), created

    async def _collide(self, deployment: Json, body: Json) -> tuple[Json, Json]:
        """The name is taken: by our own set, or by another template of the same hash."""
        existing = await self._context.kube.get(REPLICASETS, body["metadata"]["name"], body["metadata"]["namespace"])
        await self._sets.seen(existing["metadata"]["resourceVersion"])
        ours = any(
            ref["uid"] == deployment["metadata"]["uid"] for ref in existing["metadata"].get("ownerReferences", ())
        )
        if ours and revision.plain(existing["spec"]["template"]) == revision.plain(deployment["spec"]["template"]):
            return deployment, existing
        status = dict(deployment.get("status", {}))
        status["collisionCount"] = status.get("collisionCount", 0) + 1
        return await self._ensure(await self._put_status({**deployment, "status": status}), None, [])

    async def _report(self, deployment: Json, body: Json, error: ApiError) -> None:
        text = f'Failed to create new replica set "{body["metadata"]["name"]}": {error.message}'
        self._context.recorder.warning(self._about(deployment), "ReplicaSetCreateError", text)
        if conditions.has_deadline(deployment):
            note = conditions.condition("Progressing", "False", "ReplicaSetCreateError", text, self._context.now())
            await self._put_conditions(
                deployment, conditions.put(deployment.get("status", {}).get("conditions", []), note)
            )

    async def _sync_current(self, deployment: Json, new: Json, old: list[Json]) -> tuple[Json, Json]:
        annotations = revision.marks(deployment, new, revision.next_number(old), fresh=False)
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        if annotations != new["metadata"].get("annotations", {}) or min_ready != new["spec"].get("minReadySeconds", 0):
            body = {**new, "metadata": {**new["metadata"], "annotations": annotations}}
            body["spec"] = {**new["spec"], "minReadySeconds": min_ready}
            new = await self._context.kube.update(REPLICASETS, body)
            await self._sets.seen(new["metadata"]["resourceVersion"])
        text = f'Found new replica set "{new["metadata"]["name"]}"'
        return await self._note_revision(deployment, new, ("FoundNewReplicaSet", text), always=False), new

    async def _note_revision(self, deployment: Json, new: Json, note: tuple[str, str], *, always: bool) -> Json:
        number = new["metadata"].get("annotations", {}).get(rollout.REVISION)
        marks = deployment["metadata"].get("annotations", {})
        items = deployment.get("status", {}).get("conditions", [])
        changed = deployment
        if number is not None and marks.get(rollout.REVISION) != number:
            changed = {
                **changed,
                "metadata": {**changed["metadata"], "annotations": {**marks, rollout.REVISION: number}},
            }
        wants = conditions.has_deadline(deployment)
        if wants and (always or conditions.find(items, "Progressing") is None):
            items = conditions.put(items, conditions.condition("Progressing", "True", *note, self._context.now()))
            changed = {**changed, "status": {**changed.get("status", {}), "conditions": items}}
        return deployment if changed is deployment else await self._put_status(changed)

    async def _apply(self, deployment: Json, steps: list[rollout.ScaleReplicaSet], sets: list[Json]) -> list[Json]:
        """Carry the steps out; returns the sets as they are then."""
        by_name = {rs["metadata"]["name"]: rs for rs in sets}
        sizes = revision.size_annotations(deployment)
        for name, count, forced in steps:
            rs = by_name[name]
            before = rollout.replicas(rs)
            marks = rs["metadata"].get("annotations", {})
            if before == count and not (forced and not sizes.items() <= marks.items()):
                continue
            body = {**rs, "metadata": {**rs["metadata"], "annotations": {**marks, **sizes}}}
            body["spec"] = {**rs["spec"], "replicas": count}
            by_name[name] = written = await self._context.kube.update(REPLICASETS, body)
            await self._sets.seen(written["metadata"]["resourceVersion"])
            if before != count:
                text = f"Scaled {'up' if count > before else 'down'} replica set {name} from {before} to {count}"
                self._context.recorder.normal(self._about(deployment), "ScalingReplicaSet", text)
        return list(by_name.values())

    async def _clean(self, deployment: Json, old: list[Json]) -> None:
        for name in revision.disposable(deployment, old):
            try:
                await self._context.kube.delete(REPLICASETS, name, deployment["metadata"]["namespace"])
            except NotFound:
                continue

    def _about(self, deployment: Json) -> InvolvedObject:
        return InvolvedObject.of(*_KIND, deployment["metadata"])


def _key(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _among(sets: list[Json], current: Json | None) -> Any:
    """The same set in its newest form."""
    if current is None:
        return None
    return next((rs for rs in sets if rs["metadata"]["name"] == current["metadata"]["name"]), None)
