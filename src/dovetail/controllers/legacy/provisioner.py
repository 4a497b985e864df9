"""Older API versions: a Provisioner becomes a NodePool that it owns, an AWSNodeTemplate an EC2NodeClass.

The v1 object is applied again whenever the old one changes, and its status is shown on the old one. A name
that is taken is an error that says so. v1 objects that were written as v1beta1 without conversion are mended.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.backoff import Retries
from dovetail.kube.errors import ApiError, Invalid, NotFound
from dovetail.kube.events import InvolvedObject, reference
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import AWSNODETEMPLATES, EC2NODECLASSES, NODEPOOLS, PROVISIONERS, Resource
from dovetail.model.kinds.adopt import adopted, owned_by
from dovetail.model.kinds.convert import Collision, mending
from dovetail.model.kinds.convert_v1beta1 import member
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp

OLD = {"Provisioner": PROVISIONERS, "AWSNodeTemplate": AWSNODETEMPLATES}
NEW = {"NodePool": NODEPOOLS, "EC2NodeClass": EC2NODECLASSES}
MANAGER = "dovetail-generations"
#: How long to wait before trying again after a refusal or a name collision.
RETRY_INTERVAL_S = 60.0
#: The last minor version of Kubernetes for which AWS publishes images of AL2.
LAST_AL2_MINOR = 32


class ProvisionerMigration:
    """The controller `generations`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker(
            "generations",
            self.reconcile,
            context.log,
            context.chance,
            workers=2,
            metrics=context.metrics,
        )
        self._old = {
            kind: Reflector(context.kube, resource, on_event=self._changed, backoff=Retries(base=1.0, cap=300.0))
            for kind, resource in OLD.items()
        }
        self._applied: dict[tuple[str, str], tuple[dict[str, Any], int | None]] = {}
        self._default_family: str | None = None
        context.cluster_state.listen(NODEPOOLS, self._stands_changed("NodePool"))
        context.cluster_state.listen(EC2NODECLASSES, self._stands_changed("EC2NodeClass"))

    async def run(self) -> None:
        for reflector in self._old.values():
            reflector.optional = True
        for pool in self._context.cluster_state.pools.store.all():
            self._worker.add(f"NodePool/{pool.name}")
        for node_class in self._context.cluster_state.node_classes.store.all():
            self._worker.add(f"EC2NodeClass/{member(node_class, 'metadata').get('name')}")
        async with asyncio.TaskGroup() as group:
            for kind, reflector in self._old.items():
                group.create_task(reflector.run(), name=f"watch {kind}")
            group.create_task(self._worker.run(), name="generations")

    def _changed(self, change: CacheChange[dict[str, Any]]) -> None:
        if change.new is not None:
            self._worker.add(f"{change.new.get('kind')}/{change.key}")

    def _stands_changed(self, kind: str) -> Any:
        old = "Provisioner" if kind == "NodePool" else "AWSNodeTemplate"

        def enqueue(change: CacheChange[Any]) -> None:
            if change.new is not None:
                self._worker.add(f"{kind}/{change.key}")
            if self._old[old].store.get(change.key) is not None:
                self._worker.add(f"{old}/{change.key}", after=1.0)

        return enqueue

    async def reconcile(self, key: str) -> Again:
        kind, _, name = key.partition("/")
        if kind in NEW:
            return await self._mend(NEW[kind], name)
        obj = self._old[kind].store.get(name)
        if obj is None or member(obj, "metadata").get("deletionTimestamp"):
            return None
        obj = {**obj, "apiVersion": f"{OLD[kind].group}/{OLD[kind].version}", "kind": kind}
        objects = adopted(obj, self._profile(), await self._family())
        problems = [text for body in objects if (text := await self._stand(body, obj))]
        await self._show(obj, problems)
        return RETRY_INTERVAL_S if problems else None

    async def _family(self) -> str:
        """The family of templates that name none: AL2 as then, and AL2023 where AWS publishes no AL2."""
        if self._default_family is None:
            response = await self._context.kube.request("GET", "/version")
            minor = re.match(r"\d+", str(msgspec.json.decode(response.body).get("minor", "")))
            newer = minor is not None and int(minor[0]) > LAST_AL2_MINOR
            self._default_family = "AL2023" if newer else "AL2"
        return self._default_family

    def _profile(self) -> str:
        """The instance profile of templates that name none: the one that the v1alpha5 installer created."""
        settings = self._context.settings
        derived = f"KarpenterNodeInstanceProfile-{settings.cluster_name}" if settings.cluster_name else ""
        return settings.default_instance_profile or derived

    async def _stand(self, manifest: dict[str, Any], owner: dict[str, Any]) -> str | None:
        """Write the v1 object; the reason why not, if it cannot be."""
        resource, name = NEW[manifest["kind"]], manifest["metadata"]["name"]
        if self._applied.get((manifest["kind"], name)) == (manifest, self._generation(resource, name)):
            return None
        try:
            there = await self._context.kube.get(resource, name)
        except NotFound:
            there = None
        if there is not None and not owned_by(there, owner):
            return Collision(manifest["kind"], name, (manifest["kind"], str(owner["kind"]))).text
        try:
            made = await self._context.kube.apply(resource, manifest, manager=MANAGER)
        except Invalid as refused:
            return refused.message
        self._applied[manifest["kind"], name] = (manifest, member(made, "metadata").get("generation"))
        return None

    def _generation(self, resource: Resource, name: str) -> int | None:
        """The generation of a v1 object in the cluster state; None if there is none."""
        if resource is NODEPOOLS:
            pool = self._context.cluster_state.pools.store.get(name)
            return None if pool is None else pool.metadata.generation
        obj: int | None = member(self._context.cluster_state.node_classes.store.get(name) or {}, "metadata").get(
            "generation"
        )
        return obj

    async def _show(self, obj: dict[str, Any], problems: list[str]) -> None:
        """Show on the old object what its v1 object holds, and what is wrong."""
        kind, name = str(obj["kind"]), member(obj, "metadata")["name"]
        status: dict[str, Any] = {}
        if kind == "Provisioner":
            pool = self._context.cluster_state.pools.store.get(name)
            status["resources"] = dict(pool.status.resources) if pool is not None else {}
            faults = problems or _unready(pool)
            status["conditions"] = [_active(obj, faults, stamp(self._context.clock.now()))]
        else:
            class_status = member(self._context.cluster_state.node_classes.store.get(name) or {}, "status")
            status = {field: class_status.get(field, []) for field in ("subnets", "securityGroups", "amis")}
        for text in problems:
            self._context.log.error(
                "older generation not in force", controller="generations", kind=kind, name=name, error=text
            )
            self._context.event_publisher.record(_about(obj), "Warning", "NotInForce", text)
        before = member(obj, "status")
        if any(before.get(field) != value for field, value in status.items()):
            gone = {key: None for key in member(before, "resources") if key not in status.get("resources", {})}
            body = {**status, "resources": {**status["resources"], **gone}} if "resources" in status else status
            await self._context.kube.patch(OLD[kind], name, {"status": body}, subresource="status")

    def _needs_no_mending(self, resource: Resource, name: str) -> bool:
        """Whether the cluster state shows nothing to mend, which is nearly always: then no request is made."""
        if resource is NODEPOOLS:
            pool = self._context.cluster_state.pools.store.get(name)
            named = pool is None or pool.spec.template.spec.node_class_ref.group != ""
            return named and (pool is None or pool.spec.disruption.consolidation_policy != "WhenUnderutilized")
        spec = member(self._context.cluster_state.node_classes.store.get(name) or {}, "spec")
        return bool(spec.get("amiSelectorTerms")) or "amiFamily" not in spec

    async def _mend(self, resource: Resource, name: str) -> Again:
        """Mend an object that was written as v1beta1 without conversion."""
        if self._needs_no_mending(resource, name):
            return None
        try:
            obj = await self._context.kube.get(resource, name)
        except NotFound:
            return None
        patch = mending({**obj, "apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind})
        if patch is None:
            return None
        patch["metadata"]["resourceVersion"] = obj["metadata"]["resourceVersion"]
        try:
            await self._context.kube.patch(resource, name, patch, manager=MANAGER)
        except ApiError as refused:
            if refused.status != 422:
                raise
            self._context.log.error("object cannot be mended", controller="generations", name=name, error=str(refused))
        return None


def _about(obj: dict[str, Any]) -> InvolvedObject:
    return reference(OLD[str(obj["kind"])], obj)


def _unready(pool: NodePool | None) -> list[str]:
    """What keeps the NodePool from being used, all of it; nothing while that is not known."""
    conditions = pool.status.conditions if pool is not None else ()
    return [f"{item.type}: {item.message or item.reason}" for item in conditions if item.status == "False" and (
        item.type != "Ready")]  # fmt: skip


def _active(obj: dict[str, Any], problems: list[str], now: str) -> dict[str, Any]:
    """The condition that v1alpha5 had, its time kept while it stays as it is."""
    made = {"type": "Active", "status": "False" if problems else "True"}
    if problems:
        made |= {"reason": "NotInForce", "message": "; ".join(problems)}
    for condition in member(obj, "status").get("conditions") or ():
        if {key: value for key, value in condition.items() if key != "lastTransitionTime"} == made:
            return dict(condition)
    return {**made, "lastTransitionTime": now}
