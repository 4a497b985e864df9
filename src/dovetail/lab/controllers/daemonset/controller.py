"""DaemonSets, the acting half: one pod on every node that should have one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import DAEMONSETS, PODS
from dovetail.lab.controllers.adoption import claim_pods, strays_of
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.controller_revisions import GENERATION, HASH_LABEL, ControllerRevisions, hash_of
from dovetail.lab.controllers.daemonset.decide import belongs, manage, pinned, status_of, tolerations
from dovetail.lab.controllers.daemonset.update import DaemonSetUpdate
from dovetail.lab.controllers.pods import controllers, finished, pod_of, remove, terminating
from dovetail.lab.controllers.views import Json, NodeFields, PodFields
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.model.selector import LabelSelector

_KIND = ("apps/v1", "DaemonSet")


class DaemonSets:
    """Keeps DaemonSets."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._sets = context.store(DAEMONSETS)
        self._history = ControllerRevisions(context, _KIND, HASH_LABEL)
        self.worker = KeyWorker("daemonset", self._reconcile, gather=0.02)
        self._sets.listen(self._changed)
        context.listen_to_pods_of(_KIND[1], self._pod_changed)
        context.nodes.listen(self._node_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        for key in controllers(_KIND[1], old, new):
            self.worker.add(key)

    def _node_changed(self, old: NodeFields | None, new: NodeFields | None) -> None:
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        for key, _ in self._sets.items():
            self.worker.add(key)

    async def _reconcile(self, key: str) -> float | None:
        workload = self._sets.get(key)
        if workload is None or "deletionTimestamp" in workload["metadata"]:
            return None
        selector = msgspec.convert(workload["spec"]["selector"], LabelSelector)
        await claim_pods(
            self._context, _KIND, workload["metadata"], selector, strays_of(self._pods(workload), selector)
        )
        revision = await self._history.current(workload)
        code = hash_of(revision)
        error: ApiError | None = None
        try:
            update = DaemonSetUpdate(workload, code, self._context.now())
            await self._manage(update)
            plan = update.step(list(self._context.nodes.all()), self._by_node(workload))
            await self._delete(workload, plan.delete)
            await self._create(workload, plan.create, code)
        except ApiError as problem:
            error = problem
        nodes = list(self._context.nodes.all())
        await self._write(workload, status_of(workload, nodes, self._by_node(workload), code, self._context.now()))
        codes = {pod.metadata.labels.get(HASH_LABEL) for pod in self._pods(workload)}
        live = {item["metadata"]["name"] for item in self._history.of(workload) if hash_of(item) in codes}
        await self._history.trim(workload, live | {revision["metadata"]["name"]})
        if error is not None:
            raise error
        min_ready = int(workload["spec"].get("minReadySeconds", 0))
        return float(min_ready) if min_ready else None

    def _pods(self, workload: Json) -> list[PodFields]:
        return self._context.pods.by("owner", workload["metadata"]["uid"])

    def _by_node(self, workload: Json) -> dict[str, list[PodFields]]:
        """Pods by the node they are on, or were made for; one that has ended and is to go is nowhere."""
        by_node: dict[str, list[PodFields]] = {}
        for pod in self._pods(workload):
            if finished(pod) and terminating(pod):
                continue
            target = pod.spec.affinity.target if pod.spec.affinity is not None else ""
            by_node.setdefault(pod.spec.node_name or target, []).append(pod)
        return by_node

    async def _manage(self, update: DaemonSetUpdate) -> None:
        workload = update.workload
        rule = partial(belongs, workload)
        plan = manage(self._context.nodes.all(), self._by_node(workload), rule, update.surplus, update.surging)
        about = InvolvedObject.of(*_KIND, workload["metadata"])
        for pods, reason, word, tell in (
            (plan.failed, "FailedDaemonPod", "failed", self._context.recorder.warning),
            (plan.succeeded, "SucceededDaemonPod", "succeeded", self._context.recorder.normal),
        ):
            for pod in pods:
                text = f"Found {word} daemon pod {pod.metadata.key} on node {pod.spec.node_name}, will try to "
                tell(about, reason, f"{text}{'kill' if word == 'failed' else 'delete'} it")
        await self._delete(workload, plan.delete)
        await self._create(workload, plan.create, update.revision)

    async def _create(self, workload: Json, nodes: Sequence[str], code: str) -> None:
        template = workload["spec"]["template"]
        about = InvolvedObject.of(*_KIND, workload["metadata"])
        marks = {HASH_LABEL: code}
        generation = workload["metadata"].get("annotations", {}).get(GENERATION)
        if generation is not None:
            marks["pod-template-generation"] = generation
        version = 0
        try:
            for node in nodes:
                spec: dict[str, Any] = {
                    "affinity": pinned(template["spec"], node),
                    "tolerations": tolerations(template),
                }
                body = pod_of(template, _KIND, workload["metadata"], labels=marks, spec=spec)
                made = await self._context.kube.create(PODS, body, type=PodFields)
                version = int(made.metadata.resource_version)
                self._context.recorder.normal(about, "SuccessfulCreate", f"Created pod: {made.metadata.name}")
        except ApiError as error:
            self._context.recorder.warning(about, "FailedCreate", f"Error creating: {error.message}")
            raise
        finally:
            await self._context.pods.seen(version)

    async def _delete(self, workload: Json, pods: Sequence[PodFields]) -> None:
        await remove(self._context, pods, InvolvedObject.of(*_KIND, workload["metadata"]))

    async def _write(self, workload: Json, status: Json) -> None:
        old = workload.get("status", {})
        if "collisionCount" in old:
            status["collisionCount"] = old["collisionCount"]
        if status == old:
            return
        try:
            written = await self._context.kube.update(DAEMONSETS, {**workload, "status": status}, subresource="status")
        except NotFound:
            return
        await self._sets.seen(written["metadata"]["resourceVersion"])


def _matters(node: NodeFields) -> tuple[Any, ...]:
    return node.metadata.labels, node.spec.taints, node.spec.unschedulable
