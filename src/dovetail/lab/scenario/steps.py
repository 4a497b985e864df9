"""Doing what a scenario's steps say, each in one line of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from dovetail.kube.errors import ApiError
from dovetail.kube.resources import NODES, Resource
from dovetail.lab.cluster import Lab
from dovetail.lab.controllers.views import Json
from dovetail.lab.instances import UnknownType, plain_pool
from dovetail.lab.scenario.actors import deschedule, drain
from dovetail.lab.scenario.fleet import ScenarioFleet
from dovetail.lab.scenario.manifests import Kinds, apply, load
from dovetail.lab.scenario.schema import (
    Deschedule,
    NodesPart,
    ObjectPart,
    PatchStep,
    ScaleStep,
    ScenarioError,
    ScenarioStep,
)
from dovetail.model.labels import NODEPOOL


class Acts:
    """`log` takes the kind of a line and its words."""

    def __init__(self, lab: Lab, fleet: ScenarioFleet | None, folder: Path, log: Callable[[str, str], None]) -> None:
        self.kinds = Kinds(lab.kube)
        self._lab = lab
        self._fleet = fleet
        self._folder = folder
        self._log = log

    async def do(self, step: ScenarioStep) -> None:
        if step.note:
            self._log("note", step.note)
        if step.apply is not None:
            await self.apply(step.apply)
        elif step.scale is not None:
            await self._scale(step.scale)
        elif step.patch is not None:
            await self._patch(step.patch)
        elif step.delete is not None:
            await self._delete(step.delete)
        elif step.evict is not None:
            self._log("step", f"evict pod/{step.evict.name}")
            await self._lab.kube.evict(step.evict.name, step.evict.namespace)
        elif step.cordon is not None:
            await self._patch(
                PatchStep(kind="Node", name=step.cordon, body={"spec": {"unschedulable": True}}), "cordon"
            )
        elif step.drain is not None:
            await self._drain(step.drain)
        elif step.join is not None:
            await self.join(step.join)
        elif step.deschedule is not None:
            self._deschedule(step.deschedule)
        elif step.fault is not None and self._lab.faults is not None:
            self._log("fault", self._lab.faults.inject(step.fault))
        elif self._fleet is not None:
            self._log("fault", self._fleet.inject(self._lab, step))

    # What befalls the cluster

    async def _scale(self, step: ScaleStep) -> None:
        resource = await self.kinds.by_kind(step.kind)
        self._log("step", f"scale {step.kind.lower()}/{step.name} to {step.replicas}")
        await self._lab.kube.patch(resource, step.name, {"spec": {"replicas": step.replicas}}, step.namespace)

    async def _patch(self, step: PatchStep, verb: str = "patch") -> None:
        resource = await self.kinds.by_kind(step.kind)
        name = await self._named(resource, step.name)
        self._log("step", f"{verb} {step.kind.lower()}/{name}")
        if name:
            namespace = step.namespace if resource.namespaced else None
            await self._lab.kube.patch(resource, name, step.body, namespace)

    async def _delete(self, target: ObjectPart) -> None:
        resource = await self.kinds.by_kind(target.kind)
        name = await self._named(resource, target.name)
        self._log("step", f"delete {target.kind.lower()}/{name}")
        if name:
            namespace = target.namespace if resource.namespaced else None
            self._give_up(await self._lab.kube.get(resource, name, namespace))
            await self._lab.kube.delete(resource, name, namespace, propagation="Background")

    def _give_up(self, item: Json) -> None:
        """Deleting a NodeClaim or a Node gives its instance up; its termination is no violation of the autoscaler."""
        ids = ((item.get(part) or {}).get("providerID", "") for part in ("spec", "status"))
        if self._fleet is not None:
            self._fleet.give_up(filter(None, ids))

    async def _drain(self, node_name: str) -> None:
        name = await self._named(NODES, node_name)
        self._log("step", f"drain node/{name}")
        if name:
            self._lab.add(lambda lab: drain(lab.kube, name))

    async def _named(self, resource: Resource, name: str) -> str:
        """A name as it is, or that of the n-th object the autoscaler made; empty if there is none."""
        if not name.startswith("#"):
            return name
        made = (await self._lab.kube.list(resource, labels=NODEPOOL)).items
        ages = sorted((obj["metadata"]["creationTimestamp"], obj["metadata"]["name"]) for obj in made)
        number = int(name[1:])
        return str(ages[number][1]) if number < len(ages) else ""

    async def apply(self, source: str | Json | tuple[Json, ...]) -> None:
        for item in load(source, self._folder):
            try:
                name = await apply(self._lab.kube, self.kinds, item)
            except ApiError as error:
                raise ScenarioError(
                    f"{item.get('kind')} {item.get('metadata', {}).get('name')}: {error.message}"
                ) from error
            self._log("step", f"apply {name}")

    async def join(self, pool: NodesPart) -> None:
        try:
            nodes = plain_pool(pool.count, pool.type, pool.zones, first=len(self._lab.fleet.seats))
        except UnknownType as error:
            raise ScenarioError(str(error)) from error
        changed = [
            msgspec.structs.replace(node, labels=pool.labels, taints=pool.taints, boot_seconds=float(pool.boot))
            for node in nodes
        ]
        self._log("step", f"join {pool.count} x {pool.type}")
        await self._lab.join(changed)

    def _deschedule(self, step: Deschedule) -> None:
        self._log("fault", f"another optimiser moves a pod every {step.every:g} s, {step.times} times")
        self._lab.add(lambda lab: deschedule(lab.kube, step.every, step.times))
