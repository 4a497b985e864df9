"""PodDisruptionBudget status: how many of its pods may be evicted now.

The eviction subresource spends `disruptionsAllowed`; this controller counts it anew whenever pods change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

import msgspec

from dovetail.autoscalers.hpa.proposal import go_text
from dovetail.kube.errors import NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import PDBS, REPLICASETS, STATEFULSETS, Resource
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.rollout import replicas, share
from dovetail.lab.controllers.deployment.status import find, without
from dovetail.lab.controllers.pdb_index import Coverage
from dovetail.lab.controllers.pods import ready, terminating
from dovetail.lab.controllers.timestamps import parse, stamp
from dovetail.lab.controllers.views import Json, Owner, PodFields
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.model.selector import LabelSelector

DELETION_TIMEOUT = timedelta(minutes=2)

#: The replicas an owner asks for; None if there is no such owner.
Scale = Callable[[Owner], int | None]


class NoController(ValueError):
    """A pod's owner has no scale that could be counted."""


def expected(pdb: Json, pods: Coverage, scale: Scale) -> tuple[int, int, bool]:
    """(expected pods, desired healthy, whether any of the pods that were counted has no controller)."""
    spec = pdb["spec"]
    limit, minimum = spec.get("maxUnavailable"), spec.get("minAvailable")
    if limit is None and isinstance(minimum, int):
        return len(pods), minimum, False
    if limit is None and minimum is None:
        return 0, 0, False
    total = _total(pods, scale)
    if limit is not None:
        return total, max(0, total - share(limit, total, up=True)), None in pods.owners
    return total, share(minimum, total, up=True), None in pods.owners


def _total(pods: Coverage, scale: Scale) -> int:
    total = 0
    for owner in pods.owners:
        count = scale(owner) if owner is not None else 0
        if count is None:
            lost = (pod for pod in pods if pod.metadata.controller and scale(pod.metadata.controller) is None)
            raise NoController(f'found no controllers for pod "{next(lost).metadata.name}"')
        total += count
    return total


def still_disrupted(pdb: Json, pods: Coverage, now: datetime) -> dict[str, str]:
    """Evicted pods whose deletion has not been seen yet, while it may still come."""
    noted: Mapping[str, str] = pdb.get("status", {}).get("disruptedPods", {})
    if not noted:
        return {}
    return {
        pod.metadata.name: noted[pod.metadata.name]
        for pod in pods
        if pod.metadata.name in noted
        and not terminating(pod)
        and parse(noted[pod.metadata.name]) + DELETION_TIMEOUT >= now
    }


def status_of(pdb: Json, pods: Coverage, counts: tuple[int, int], now: datetime) -> Json:
    total, desired = counts
    disrupted = still_disrupted(pdb, pods, now)
    healthy = pods.healthy(but=disrupted)
    allowed = max(0, healthy - desired) if total > 0 else 0
    generation = pdb["metadata"].get("generation", 0)
    status: Json = {
        "observedGeneration": generation,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": total,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    reason = "SufficientPods" if allowed > 0 else "InsufficientPods"
    status["conditions"] = allowed_condition(pdb, str(allowed > 0), reason, "", generation, now)
    return status


def allowed_condition(pdb: Json, status: str, reason: str, message: str, generation: int, now: datetime) -> list[Json]:
    existing = pdb.get("status", {}).get("conditions", [])
    old = find(existing, "DisruptionAllowed")
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else stamp(now)
    condition = {
        "type": "DisruptionAllowed",
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    return [*without(existing, "DisruptionAllowed"), condition]


class DisruptionBudgets:
    """Keeps budgets' statuses."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._budgets = context.store(PDBS)
        self._owners: dict[str, Resource] = {"ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS}
        for resource in self._owners.values():
            context.store(resource).listen(self._owner_changed)
        self.worker = KeyWorker("disruption", self._reconcile, gather=0.02)
        self._selectors: dict[str, LabelSelector | None] = {}
        self._covered: dict[str, Coverage] = {}
        self._budgets.listen(self._changed)
        context.pods.listen(self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        item = new or old
        assert item is not None
        key = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        if new is None:
            self._selectors.pop(key, None)
            self._covered.pop(key, None)
            return
        selector = new["spec"].get("selector")
        if old is None or old["spec"].get("selector") != selector:
            self._select(key, None if selector is None else msgspec.convert(selector, LabelSelector))
        self.worker.add(key)

    def _select(self, key: str, selector: LabelSelector | None) -> None:
        """A budget covers the pods that its selector means, from now on followed one by one."""
        self._selectors[key] = selector
        space = self._context.pods.by("namespace", key.partition("/")[0]) if selector is not None else ()
        self._covered[key] = Coverage(
            pod for pod in space if selector is not None and selector.matches(pod.metadata.labels)
        )

    def _owner_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None or (old is not None and old["spec"].get("replicas") == new["spec"].get("replicas")):
            return
        for pod in self._context.pods.by("owner", new["metadata"]["uid"])[:1]:
            self._pod_changed(None, pod)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        if not self._selectors or (old is not None and new is not None and _counts_alike(old, new)):
            return
        pod = new or old
        assert pod is not None
        before = self._covering(old) if old is not None else []
        after = before if new is None or (old is not None and _labels_stay(old, new)) else self._covering(new)
        for key in before:
            if new is None or key not in after:
                self._covered[key].drop(pod.metadata.key)
            self.worker.add(key)
        if new is not None and len(after) > 1:
            self._warn(new, after[0])
        for key in after if new is not None else ():
            self._covered[key].put(pod)
            self.worker.add(key)

    def _warn(self, pod: PodFields, key: str) -> None:
        """The eviction subresource refuses a pod with several budgets: record a warning before it does."""
        chosen = key.partition("/")[2]
        text = f'Pod "{pod.metadata.namespace}"/"{pod.metadata.name}" matches multiple PodDisruptionBudgets.'
        text += f'  Chose "{chosen}" arbitrarily.'
        self._context.recorder.warning(
            InvolvedObject.of("v1", "Pod", pod.metadata), "MultiplePodDisruptionBudgets", text
        )

    def _covering(self, pod: PodFields) -> list[str]:
        space = f"{pod.metadata.namespace}/"
        return [
            key
            for key, selector in self._selectors.items()
            if key.startswith(space) and selector is not None and selector.matches(pod.metadata.labels)
        ]

    async def _reconcile(self, key: str) -> float | None:
        pdb = self._budgets.get(key)
        if pdb is None:
            return None
        now = self._context.now()
        pods = self._covered.get(key) or Coverage()
        about = InvolvedObject.of("policy/v1", "PodDisruptionBudget", pdb["metadata"])
        if not pods:
            self._context.recorder.normal(about, "NoPods", "No matching pods found")
        try:
            total, desired, unmanaged = expected(pdb, pods, partial(self._scale, pdb["metadata"]["namespace"]))
        except NoController as problem:
            text = f"Failed to calculate the number of expected pods: {problem}"
            self._context.recorder.warning(about, "CalculateExpectedPodCountFailed", text)
            status = {**pdb.get("status", {}), "disruptionsAllowed": 0}
            generation = status.get("observedGeneration", 0)
            status["conditions"] = allowed_condition(pdb, "False", "SyncFailed", str(problem), generation, now)
        else:
            if unmanaged:
                self._context.recorder.warning(about, "UnmanagedPods", _unmanaged(pdb))
            status = status_of(pdb, pods, (total, desired), now)
        await self._write(pdb, status)
        return DELETION_TIMEOUT.total_seconds() if status.get("disruptedPods") else None

    def _scale(self, namespace: str, owner: Owner) -> int | None:
        resource = self._owners.get(owner.kind)
        item = self._context.store(resource).get(f"{namespace}/{owner.name}") if resource is not None else None
        if item is None or item["metadata"]["uid"] != owner.uid:
            return None
        return replicas(item)

    async def _write(self, pdb: Json, status: Json) -> None:
        if status == pdb.get("status"):
            return
        try:
            written = await self._context.kube.update(PDBS, {**pdb, "status": status}, subresource="status")
        except NotFound:
            return
        await self._budgets.seen(written["metadata"]["resourceVersion"])


def _counts_alike(old: PodFields, new: PodFields) -> bool:
    """Whether a change of a pod is none to its budgets."""
    same = ready(old) == ready(new) and terminating(old) == terminating(new)
    return same and _labels_stay(old, new) and old.metadata.controller == new.metadata.controller


def _labels_stay(old: PodFields, new: PodFields) -> bool:
    return old.metadata.labels is new.metadata.labels


def _unmanaged(pdb: Json) -> str:
    shown = go_text(msgspec.convert(pdb["spec"].get("selector", {}), LabelSelector))
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {shown}) were found to be unmanaged. As a result, "
        "the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for "
        'these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )
