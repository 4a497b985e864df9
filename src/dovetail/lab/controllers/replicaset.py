"""ReplicaSets: as many pods of a template as asked for, the least useful going first.

ReplicationControllers are the same thing in its oldest form: plain labels for a selector, fewer counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from dovetail.kube.decode import Head
from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import PODS, REPLICASETS, REPLICATIONCONTROLLERS, Resource
from dovetail.lab.controllers.adoption import claim_pods
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.rollout import replicas
from dovetail.lab.controllers.deployment.status import find, without
from dovetail.lab.controllers.pods import pod_of, remove, victims
from dovetail.lab.controllers.replicaset_index import ReplicaSetIndex
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.model.selector import LabelSelector

BURST = 500


def status_of(
    rs: Json, replicaset_index: ReplicaSetIndex, failure: tuple[str, str] | None, now: datetime
) -> tuple[Json, float | None]:
    """The status, and the seconds until the next pod turns available by merely staying ready."""
    available, wait = replicaset_index.availability(int(rs["spec"].get("minReadySeconds", 0)), now)
    labels = rs["spec"].get("template", {}).get("metadata", {}).get("labels", {})
    old = rs.get("status", {})
    status: Json = {"replicas": len(replicaset_index.living)}
    counts = {
        "fullyLabeledReplicas": replicaset_index.labelled(labels),
        "readyReplicas": replicaset_index.ready.total(),
        "availableReplicas": available,
    }
    status |= {field: count for field, count in counts.items() if count}
    status["terminatingReplicas"] = replicaset_index.going
    status["observedGeneration"] = rs["metadata"].get("generation", 0)
    conditions = old.get("conditions", [])
    if failure is None:
        conditions = without(conditions, "ReplicaFailure")
    elif find(conditions, "ReplicaFailure") is None:
        reason, message = failure
        condition = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": stamp(now)}
        conditions = [*conditions, condition | {"reason": reason, "message": message}]
    if conditions:
        status["conditions"] = conditions
    return status, wait


class ReplicaSets:
    """Keeps ReplicaSets, or whatever else `resource` is of their kind, at their number of pods."""

    def __init__(self, context: ControllerContext, resource: Resource = REPLICASETS) -> None:
        self._context = context
        self._resource = resource
        self._kind = (resource.api_version, resource.kind)
        self._plain = resource == REPLICATIONCONTROLLERS
        self._sets = context.store(resource)
        self.worker = KeyWorker(resource.kind.lower(), self._reconcile, gather=0.02)
        self._keys: dict[str, str] = {}
        self._rosters: dict[str, ReplicaSetIndex] = {}
        self._sets.listen(self._set_changed)
        context.listen_to_pods_of(resource.kind, self._pod_changed)
        context.listen_to_pods_of("", self._orphan_changed)

    def _set_changed(self, old: Json | None, new: Json | None) -> None:
        item = new or old
        assert item is not None
        key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        self._keys[item["metadata"]["uid"]] = key
        if new is None:
            del self._keys[item["metadata"]["uid"]]
            if not len(self._replicaset_index(item)):
                self._rosters.pop(item["metadata"]["uid"], None)
        elif old is None or old["metadata"].get("generation") != new["metadata"].get("generation"):
            self.worker.add(key)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        before = self._owner(old)
        after = self._owner(new)
        if before is not None and before != after:
            self._member(before, old, None)
        if after is not None:
            self._member(after, new, new)

    def _owner(self, pod: PodFields | None) -> str | None:
        """The uid of the set that a pod belongs to."""
        owner = pod.metadata.controller if pod is not None else None
        return owner.uid if owner is not None and owner.kind == self._resource.kind else None

    def _selector(self, rs: Json) -> LabelSelector:
        given = rs["spec"].get("selector", {})
        return msgspec.convert({"matchLabels": given} if self._plain else given, LabelSelector)

    def _member(self, uid: str, pod: PodFields | None, now: PodFields | None) -> None:
        """A pod of a set changed, or (`now` is None) is its pod no longer."""
        assert pod is not None
        replicaset_index = self._rosters.get(uid)
        if replicaset_index is None:
            replicaset_index = self._rosters[uid] = ReplicaSetIndex()
        replicaset_index.change(pod.metadata.key, now)
        key = self._keys.get(uid)
        if key is not None:
            self.worker.add(key)
        elif not len(replicaset_index):
            del self._rosters[uid]

    def _orphan_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        if new is None or new.metadata.controller is not None:
            return
        if old is not None and old.metadata.labels == new.metadata.labels and old.metadata.controller is None:
            return
        for rs in self._sets.by("namespace", new.metadata.namespace):
            if self._selector(rs).matches(new.metadata.labels):
                self.worker.add(f"{new.metadata.namespace}/{rs['metadata']['name']}")

    async def _reconcile(self, key: str) -> float | None:
        rs = self._sets.get(key)
        if rs is None:
            return None
        failure: tuple[str, str] | None = None
        error: ApiError | None = None
        if "deletionTimestamp" not in rs["metadata"]:
            await self._claim(rs)
            try:
                await self._scale(rs)
            except ApiError as problem:
                error = problem
                short = len(self._replicaset_index(rs).living) < replicas(rs)
                failure = ("FailedCreate" if short else "FailedDelete", problem.message)
        status, wait = status_of(rs, self._replicaset_index(rs), failure, self._context.now())
        if self._plain:
            del status["terminatingReplicas"]
        if status != rs.get("status"):
            await self._write(rs, status)
        if error is not None:
            raise error
        return wait

    def _replicaset_index(self, rs: Json) -> ReplicaSetIndex:
        return self._rosters.get(rs["metadata"]["uid"]) or ReplicaSetIndex()

    async def _claim(self, rs: Json) -> None:
        selector = self._selector(rs)
        await claim_pods(
            self._context, self._kind, rs["metadata"], selector, self._replicaset_index(rs).unmatched_pods(selector)
        )

    async def _scale(self, rs: Json) -> None:
        while True:
            living = self._replicaset_index(rs).living
            excess = len(living) - replicas(rs)
            if excess < 0:
                await self._create(rs, min(-excess, BURST))
            elif excess > 0:
                chosen = victims([*living.values()], min(excess, BURST), self._crowding(rs), self._context.now())
                await self._delete(rs, chosen)
            else:
                return
            current = self._sets.get(f"{rs['metadata']['namespace']}/{rs['metadata']['name']}")
            if current is None or abs(excess) <= BURST:
                return

    def _crowding(self, rs: Json) -> Counter[str]:
        """How many pods of every ReplicaSet of the same Deployment each node holds."""
        owners = [ref["uid"] for ref in rs["metadata"].get("ownerReferences", ()) if ref.get("controller")]
        sets = self._sets.by("owner", owners[0]) if owners else [rs]
        return sum((self._replicaset_index(set_).nodes for set_ in sets), Counter())

    async def _create(self, rs: Json, count: int) -> None:
        about = InvolvedObject.of(*self._kind, rs["metadata"])
        body = msgspec.json.encode(pod_of(rs["spec"]["template"], self._kind, rs["metadata"]))
        version = 0
        try:
            for _ in range(count):
                pod = await self._context.kube.create(PODS, body, rs["metadata"]["namespace"], type=Head)
                version = max(version, int(pod.metadata.resource_version))
                self._context.recorder.normal(about, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        except ApiError as error:
            if _namespace_is_going(error):
                return
            self._context.recorder.warning(about, "FailedCreate", f"Error creating: {error.message}")
            raise
        finally:
            await self._context.pods.seen(version)

    async def _delete(self, rs: Json, chosen: Sequence[PodFields]) -> None:
        await remove(self._context, chosen, InvolvedObject.of(*self._kind, rs["metadata"]))

    async def _write(self, rs: Json, status: Json) -> None:
        try:
            written = await self._context.kube.update(self._resource, {**rs, "status": status}, subresource="status")
        except NotFound:
            return
        await self._sets.seen(written["metadata"]["resourceVersion"])


def _namespace_is_going(error: ApiError) -> bool:
    causes = (error.body or {}).get("details", {}).get("causes", [])
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
