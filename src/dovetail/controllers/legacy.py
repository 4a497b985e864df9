"""Provisioners and AWSNodeTemplates: the oldest generation, at work beside the newest.

Each is shown as the v1 object it means, which it owns: change or delete the old one and the new one follows. A
name that somebody else's v1 object has already is left alone and said. Claims of such pools are shown as Machines,
for those who look there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.controllers.context import Context
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.events import reference
from dovetail.kube.reflector import Change, Reflector
from dovetail.kube.resources import (
    AWSNODETEMPLATES,
    EC2NODECLASSES,
    MACHINES,
    NODECLAIMS,
    NODEPOOLS,
    PROVISIONERS,
    Resource,
)
from dovetail.model.kinds import convert
from dovetail.model.kinds.nodeclaim import NodeClaim

Json = dict[str, Any]
_MEANS = {"NodePool": NODEPOOLS, "EC2NodeClass": EC2NODECLASSES}


class Legacy:
    """The controller `legacy`. A cluster without the old kinds costs it nothing but a look now and then."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._old = {
            kind.kind: Reflector(context.kube, kind, dict[str, Any], on_event=self._changed(kind))
            for kind in (PROVISIONERS, AWSNODETEMPLATES)
        }
        self._worker = Worker("legacy", self._reconcile, context.log, context.chance, workers=4)
        context.mirror.listen(NODECLAIMS, self._claim_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for kind, reflector in self._old.items():
                group.create_task(reflector.run(), name=f"watch {kind}")
            group.create_task(self._worker.run(), name="legacy")

    def _changed(self, kind: Resource) -> Any:
        def note(change: Change[Json]) -> None:
            self._worker.add(f"{kind.kind}/{change.object['metadata']['name']}")

        return note

    def _claim_changed(self, change: Change[NodeClaim]) -> None:
        if change.new is not None and (change.new.node_pool or "") in self._old["Provisioner"].store:
            self._worker.add(f"NodeClaim/{change.new.name}")

    async def _reconcile(self, key: str) -> Again:
        kind, _, name = key.partition("/")
        if kind == "NodeClaim":
            await self._show_machine(name)
            return None
        old = self._old[kind].store.get(name)
        if old is None or old["metadata"].get("deletionTimestamp"):
            return None
        for meant in convert.expand({**old, "apiVersion": _version(kind), "kind": kind}):
            await self._bring(old, kind, meant)
        return None

    async def _bring(self, old: Json, kind: str, meant: Json) -> None:
        """Make the v1 object say what the old one means."""
        context, target = self._context, _MEANS[meant["kind"]]
        name = meant["metadata"]["name"]
        owner = {"apiVersion": _version(kind), "kind": kind, "name": old["metadata"]["name"],
                 "uid": old["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}
        body = {"metadata": {"name": name, "ownerReferences": [owner],
                             "annotations": meant["metadata"].get("annotations") or {},
                             "labels": meant["metadata"].get("labels") or {}},
                "spec": meant["spec"]}
        body["metadata"]["annotations"].pop(convert.LAST_APPLIED, None)
        try:
            current = await context.kube.get(target, name)
        except NotFound:
            try:
                await context.kube.create(target, body)
            except AlreadyExists:
                return
            context.log.info("created v1 object for an older one", controller="legacy", kind=kind, name=name)
            return
        owners = current["metadata"].get("ownerReferences") or ()
        if not any(each.get("uid") == owner["uid"] for each in owners):
            self._collides(old, kind, meant["kind"], name)
        elif not _says(current["spec"], meant["spec"]):
            await context.kube.patch(
                target, name, {"metadata": {"resourceVersion": current["metadata"]["resourceVersion"]},
                               "spec": _replaced(current["spec"], meant["spec"])}
            )  # fmt: skip

    def _collides(self, old: Json, kind: str, meant: str, name: str) -> None:
        text = convert.Collision(meant, name, (meant, kind)).text
        self._context.log.error("name is taken", controller="legacy", kind=kind, name=name, error=text)
        resource = PROVISIONERS if kind == "Provisioner" else AWSNODETEMPLATES
        about = msgspec.convert({"metadata": old["metadata"]}, NodeClaim)
        self._context.notices.record(reference(resource, about), "Warning", "NameCollision", text)

    async def _show_machine(self, name: str) -> None:
        """The claim as a Machine, for those who know no other name for it."""
        context = self._context
        claim = context.mirror.claims.store.get(name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return
        plain: Json = msgspec.to_builtins(claim)
        machine = convert.from_v1({**plain, "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}, "v1alpha5")
        owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": claim.metadata.uid}
        body = {"metadata": {"name": name, "labels": machine["metadata"].get("labels") or {},
                             "ownerReferences": [owner]}, "spec": machine["spec"]}
        try:
            await context.kube.create(MACHINES, body)
        except AlreadyExists:
            await context.kube.patch(MACHINES, name, {"metadata": {"labels": body["metadata"]["labels"]}})
        except NotFound:
            return  # nobody installed that kind
        if machine.get("status"):
            await context.kube.patch(MACHINES, name, {"status": machine["status"]}, subresource="status")


def _version(kind: str) -> str:
    return "karpenter.sh/v1alpha5" if kind == "Provisioner" else "karpenter.k8s.aws/v1alpha1"


def _says(current: Any, wanted: Any) -> bool:
    """Whether an object has everything that is wanted; what the server filled in besides does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(_says(current.get(key), value) for key, value in wanted.items())
    return bool(current == wanted)


def _replaced(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """A merge patch that leaves nothing of the old spec behind."""
    return {**dict.fromkeys(current.keys() - wanted.keys()), **wanted}
