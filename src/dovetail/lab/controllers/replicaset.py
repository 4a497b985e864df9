"""ReplicaSets: as many pods of a template as asked for, the least useful going first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec

from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.resources import PODS, REPLICASETS
from dovetail.lab.controllers.claim import adopt, release, to_adopt, to_release
from dovetail.lab.controllers.deployment.rollout import replicas
from dovetail.lab.controllers.deployment.status import find, without
from dovetail.lab.controllers.instants import stamp
from dovetail.lab.controllers.kit import Kit
from dovetail.lab.controllers.pods import active, available_in, finished, per_node, ready, terminating, victims
from dovetail.lab.controllers.podtemplate import pod_of
from dovetail.lab.controllers.views import Json, PodView
from dovetail.lab.controllers.worker import Worker
from dovetail.lab.recorder import Involved
from dovetail.model.selector import LabelSelector

BURST = 500
_KIND = ("apps/v1", "ReplicaSet")


def status_of(rs: Json, pods: Sequence[PodView], failure: tuple[str, str] | None, now: datetime) -> tuple[Json, float]:
    """The status, and the seconds until the next pod turns available by merely staying ready."""
    census = _Census(rs, pods, now)
    waits = census.waits
    old = rs.get("status", {})
    status: Json = {"replicas": census.living}
    counts = {
        "fullyLabeledReplicas": census.labelled,
        "readyReplicas": len(waits),
        "availableReplicas": sum(wait <= 0 for wait in waits),
    }
    status |= {field: count for field, count in counts.items() if count}
    status["terminatingReplicas"] = census.going
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
    return status, min((wait for wait in waits if wait > 0), default=math.inf)


class _Census:
    """The pods of a set, counted in one go. Pods share equal labels and conditions, so each is looked at once."""

    def __init__(self, rs: Json, pods: Sequence[PodView], now: datetime) -> None:
        self.living = self.labelled = self.going = 0
        #: Of the ready ones, the seconds until they count as available.
        self.waits: list[float] = []
        wanted = rs["spec"].get("template", {}).get("metadata", {}).get("labels", {}).items()
        min_ready = int(rs["spec"].get("minReadySeconds", 0))
        labelled: dict[int, bool] = {}
        waits: dict[int, float | None] = {}
        for pod in pods:
            if finished(pod):
                continue
            if terminating(pod):
                self.going += 1
                continue
            self.living += 1
            labels, conditions = id(pod.metadata.labels), id(pod.status.conditions)
            if labels not in labelled:
                labelled[labels] = wanted <= pod.metadata.labels.items()
            if conditions not in waits:
                waits[conditions] = available_in(pod, min_ready, now) if ready(pod) else None
            self.labelled += labelled[labels]
            wait = waits[conditions]
            if wait is not None:
                self.waits.append(wait)


class ReplicaSets:
    """Keeps ReplicaSets at their number of pods."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._sets = kit.store(REPLICASETS)
        self.worker = Worker("replicaset", self._reconcile, gather=0.02)
        self._keys: dict[str, str] = {}
        self._sets.listen(self._set_changed)
        kit.pods.listen(self._pod_changed)

    def _set_changed(self, old: Json | None, new: Json | None) -> None:
        item = new or old
        assert item is not None
        key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        self._keys[item["metadata"]["uid"]] = key
        if new is None:
            del self._keys[item["metadata"]["uid"]]
        elif old is None or old["metadata"].get("generation") != new["metadata"].get("generation"):
            self.worker.add(key)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        for pod in (old, new):
            owner = pod.metadata.controller if pod is not None else None
            if owner is not None:
                key = self._keys.get(owner.uid)
                if key is not None:
                    self.worker.add(key)
        if new is not None and new.metadata.controller is None:
            self._orphan_changed(old, new)

    def _orphan_changed(self, old: PodView | None, new: PodView) -> None:
        if old is not None and old.metadata.labels == new.metadata.labels and old.metadata.controller is None:
            return
        for rs in self._sets.by("namespace", new.metadata.namespace):
            if _selector(rs).matches(new.metadata.labels):
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
                short = sum(map(active, self._pods(rs))) < replicas(rs)
                failure = ("FailedCreate" if short else "FailedDelete", problem.message)
        status, wait = status_of(rs, self._pods(rs), failure, self._kit.now())
        if status != rs.get("status"):
            await self._write(rs, status)
        if error is not None:
            raise error
        return None if wait == math.inf else wait

    def _pods(self, rs: Json) -> list[PodView]:
        return self._kit.pods.by("owner", rs["metadata"]["uid"])

    async def _claim(self, rs: Json) -> None:
        metadata, selector = rs["metadata"], _selector(rs)
        for pod in to_release(self._pods(rs), selector):
            await release(self._kit.kube, PODS, _identity(pod), metadata["uid"])
        for pod in to_adopt(self._kit.pods.by("orphans", metadata["namespace"]), selector):
            await adopt(self._kit.kube, PODS, _identity(pod), _KIND, metadata)

    async def _scale(self, rs: Json) -> None:
        while True:
            living = [pod for pod in self._pods(rs) if active(pod)]
            excess = len(living) - replicas(rs)
            if excess < 0:
                await self._create(rs, min(-excess, BURST))
            elif excess > 0:
                chosen = victims(living, min(excess, BURST), per_node(self._family(rs)), self._kit.now())
                await self._delete(rs, chosen)
            else:
                return
            current = self._sets.get(f"{rs['metadata']['namespace']}/{rs['metadata']['name']}")
            if current is None or abs(excess) <= BURST:
                return

    def _family(self, rs: Json) -> list[PodView]:
        """The pods of every ReplicaSet of the same Deployment."""
        owners = [ref["uid"] for ref in rs["metadata"].get("ownerReferences", ()) if ref.get("controller")]
        sets = self._sets.by("owner", owners[0]) if owners else [rs]
        return [pod for each in sets for pod in self._pods(each)]

    async def _create(self, rs: Json, count: int) -> None:
        about = Involved.of(*_KIND, rs["metadata"])
        body = msgspec.json.encode(pod_of(rs["spec"]["template"], _KIND, rs["metadata"]))
        version = 0
        try:
            for _ in range(count):
                pod = await self._kit.kube.create(PODS, body, rs["metadata"]["namespace"], type=PodView)
                version = max(version, int(pod.metadata.resource_version))
                self._kit.recorder.normal(about, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        except ApiError as error:
            if _namespace_is_going(error):
                return
            self._kit.recorder.warning(about, "FailedCreate", f"Error creating: {error.message}")
            raise
        finally:
            await self._kit.pods.seen(version)

    async def _delete(self, rs: Json, chosen: Sequence[PodView]) -> None:
        about = Involved.of(*_KIND, rs["metadata"])
        version = 0
        for pod in chosen:
            try:
                answer = await self._kit.kube.delete(PODS, pod.metadata.name, pod.metadata.namespace)
            except NotFound:
                continue
            version = max(version, int(answer.get("metadata", {}).get("resourceVersion", 0)))
            self._kit.recorder.normal(about, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
        await self._kit.pods.seen(version)

    async def _write(self, rs: Json, status: Json) -> None:
        try:
            written = await self._kit.kube.update(REPLICASETS, {**rs, "status": status}, subresource="status")
        except NotFound:
            return
        await self._sets.seen(written["metadata"]["resourceVersion"])


def _namespace_is_going(error: ApiError) -> bool:
    causes = (error.body or {}).get("details", {}).get("causes", [])
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


def _selector(rs: Json) -> LabelSelector:
    return msgspec.convert(rs["spec"].get("selector", {}), LabelSelector)


def _identity(pod: PodView) -> tuple[str, str, str]:
    return pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
