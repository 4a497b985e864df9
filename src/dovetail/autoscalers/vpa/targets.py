"""What a VPA's targetRef means: the pods it selects, and the controller at the top of a pod's owners.

Seven kinds are watched and go by their kind alone; any other kind is asked for its scale. What a target selects is
asked in every loop; the scales of owners, of which there is one for each pod, are kept for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.autoscalers.hpa.sources import NoScale, ScaleNotFound, Targets
from dovetail.autoscalers.hpa.spec import ScaleView
from dovetail.autoscalers.hpa.spec import TargetRef as ScaleRef
from dovetail.autoscalers.vpa.api import Pod, VerticalPodAutoscaler
from dovetail.autoscalers.vpa.disruption import GroupKey
from dovetail.kube.client import Kube
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import (
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
    Resource,
)
from dovetail.model.meta import ObjectMeta, OwnerReference, View
from dovetail.model.selector import LabelQuery, LabelSelector, SelectorError, parse_labels

WELL_KNOWN: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (DAEMONSETS, DEPLOYMENTS, REPLICASETS, STATEFULSETS, REPLICATIONCONTROLLERS, JOBS, CRONJOBS)
}
#: How long the answer of a scale subresource is believed.
SCALE_CACHE_S = 600.0


class TargetError(Exception):
    """A targetRef that selects no pods; the message is upstream's."""


class _Template(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


class _JobSpec(View, frozen=True, kw_only=True):
    template: _Template = _Template()


class _JobTemplate(View, frozen=True, kw_only=True):
    spec: _JobSpec = _JobSpec()


class _WorkloadSpec(View, frozen=True, kw_only=True):
    selector: dict[str, Any] | None = None
    replicas: int | None = None
    job_template: _JobTemplate | None = None


class _WorkloadStatus(View, frozen=True, kw_only=True):
    desired_number_scheduled: int = 0


class ScaleTarget(View, frozen=True, kw_only=True):
    """Any of the seven kinds."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _WorkloadStatus = _WorkloadStatus()


class ControllerRef(msgspec.Struct, frozen=True):
    """A controller by namespace, kind and name; the API version only serves to ask for it."""

    namespace: str
    kind: str
    name: str
    api_version: str = ""

    def unhandled(self, error: Exception) -> TargetError:
        """Why this controller cannot be followed, in upstream's words."""
        where = f"{self.api_version} / {self.kind} / {self.name}"
        return TargetError(f"unhandled targetRef {where}, last error {error}")


def owner_of(namespace: str, owners: tuple[OwnerReference, ...]) -> ControllerRef | None:
    for owner in owners:
        if owner.controller:
            return ControllerRef(namespace, owner.kind, owner.name, owner.api_version)
    return None


class Workloads:
    """`run` keeps the seven kinds in sight until cancelled; `synced` waits until all are."""

    def __init__(self, kube: Kube, namespace: str = "") -> None:
        self._clock = kube.clock
        self._targets = Targets(kube)
        self._scales: dict[ControllerRef, tuple[float, ScaleView | NoScale]] = {}
        self._reflectors = {
            kind: Reflector(kube, resource, ScaleTarget, namespace=namespace or None)
            for kind, resource in WELL_KNOWN.items()
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors.values():
                tasks.create_task(reflector.run(), name=f"watch {reflector.resource.name}")

    async def synced(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.synced.wait()

    def get(self, kind: str, namespace: str, name: str) -> ScaleTarget | None:
        return self._reflectors[kind].store.get(f"{namespace}/{name}")

    async def selector(self, vpa: VerticalPodAutoscaler) -> LabelQuery:
        """Which pods a VPA's target has. Raises TargetError."""
        target, namespace = vpa.spec.target_ref, vpa.metadata.namespace
        if target is None:
            raise TargetError("targetRef not defined. If this is a v1beta1 object, switch to v1")
        if target.kind in WELL_KNOWN:
            workload = self.get(target.kind, namespace, target.name)
            if workload is None:
                raise TargetError(f"{target.kind} {namespace}/{target.name} does not exist")
            return workload_selector(target.kind, workload)
        controller = ControllerRef(namespace, target.kind, target.name, target.api_version)
        try:
            scale = await self._read_scale(controller)  # as it is now: pods of a target that has just come are selected
            if not scale.status.selector:
                raise NoScale(f"resource {namespace}/{target.name} has an empty selector for scale sub-resource")
            return parse_labels(scale.status.selector)
        except (NoScale, SelectorError) as error:
            raise controller.unhandled(error) from error

    async def topmost(self, controller: ControllerRef | None) -> ControllerRef | None:
        """The highest well-known or scalable controller above (or at) this one. Raises TargetError."""
        top: ControllerRef | None = None
        visited: set[ControllerRef] = set()
        while controller is not None:
            if controller in visited:
                raise TargetError("cycle detected in ownership chain")
            visited.add(controller)
            if controller.kind == "Node":
                return None
            if controller.kind in WELL_KNOWN:
                workload = self.get(controller.kind, controller.namespace, controller.name)
                if workload is None:
                    name = f"{controller.namespace}/{controller.name}"
                    raise TargetError(f"{controller.kind} {name} does not exist")
                top, owners = controller, workload.metadata.owner_references
            else:
                try:
                    scale = await self._scale(controller)
                except ScaleNotFound:
                    return top  # not scalable, and nothing above it can be seen
                except NoScale as error:
                    raise controller.unhandled(error) from error
                top, owners = controller, scale.metadata.owner_references
            controller = owner_of(controller.namespace, owners)
        return top

    async def _read_scale(self, controller: ControllerRef) -> ScaleView:
        ref = ScaleRef(api_version=controller.api_version, kind=controller.kind, name=controller.name)
        return (await self._targets.read(controller.namespace, ref))[1]

    async def _scale(self, controller: ControllerRef) -> ScaleView:
        """The scale of an owner as it was at most SCALE_CACHE_S ago."""
        now = self._clock.monotonic()
        held = self._scales.get(controller)
        if held is None or now - held[0] > SCALE_CACHE_S:
            try:
                answer: ScaleView | NoScale = await self._read_scale(controller)
            except NoScale as error:
                answer = error
            held = self._scales[controller] = (now, answer)
            for stale in [key for key, (read_at, _) in self._scales.items() if now - read_at > 6 * SCALE_CACHE_S]:
                del self._scales[stale]
        if isinstance(held[1], NoScale):
            raise held[1]
        return held[1]

    def group_size(self, key: GroupKey) -> int | None:
        """The configured pods of a group: None where its controller is missing or wants none, 0 for other kinds."""
        if key.kind == "DaemonSet":
            workload = self.get(key.kind, key.namespace, key.name)
            return (workload.status.desired_number_scheduled or None) if workload is not None else None
        if key.kind in ("ReplicationController", "ReplicaSet", "StatefulSet"):
            workload = self.get(key.kind, key.namespace, key.name)
            return (workload.spec.replicas or None) if workload is not None else None
        return 0


def workload_selector(kind: str, workload: ScaleTarget) -> LabelQuery:
    """The selector of a workload; of a CronJob the labels of its pods."""
    if kind == "CronJob":
        template = workload.spec.job_template or _JobTemplate()
        labels: Mapping[str, str] = template.spec.template.metadata.labels
        return parse_labels(LabelSelector(match_labels=labels).text())
    if kind == "ReplicationController":
        return parse_labels(LabelSelector(match_labels=workload.spec.selector or {}).text())
    return parse_labels(msgspec.convert(workload.spec.selector or {}, LabelSelector).text())


def selector_text(query: LabelQuery | None) -> str:
    """A text that is equal for equal selectors; empty for none."""
    return "" if query is None else repr(query)


class Selected(msgspec.Struct, frozen=True):
    """A VPA and the pods its target has."""

    vpa: VerticalPodAutoscaler
    query: LabelQuery


async def controlling(pod: Pod, candidates: list[Selected], workloads: Workloads) -> Selected | None:
    """The VPA that owns a pod. Raises TargetError if the owners of the pod cannot be followed."""
    parent = await workloads.topmost(owner_of(pod.metadata.namespace, pod.metadata.owner_references))
    return None if parent is None else strongest(pod, parent, candidates)


def strongest(pod: Pod, parent: ControllerRef, candidates: list[Selected]) -> Selected | None:
    """The VPA whose target is the topmost controller of a pod and selects it: the oldest of several, then by name."""
    matching = [
        item
        for item in candidates
        if item.vpa.metadata.namespace == pod.metadata.namespace
        and item.vpa.spec.target_ref is not None
        and (item.vpa.spec.target_ref.kind, item.vpa.spec.target_ref.name) == (parent.kind, parent.name)
        and item.query.matches(pod.metadata.labels)
    ]
    return min(matching, key=_age, default=None)


def _age(item: Selected) -> tuple[float, str]:
    created = item.vpa.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0, item.vpa.metadata.name)
