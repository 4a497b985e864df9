"""Namespace deletion: take away everything inside, say what is left, then let the namespace go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, Conflict, NotFound
from dovetail.kube.resources import NAMESPACES
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.status import find
from dovetail.lab.controllers.timestamps import stamp
from dovetail.lab.controllers.views import Json
from dovetail.lab.controllers.worker import KeyWorker

FINALIZER = "kubernetes"
#: How long a namespace is left alone after it was deleted, or changed since.
NAMESPACE_QUIET_S = 5.0


class Left(msgspec.Struct, frozen=True):
    """What a namespace still holds: resource → count, finalizer → count."""

    resources: Mapping[str, int]
    finalizers: Mapping[str, int]
    failures: tuple[str, ...] = ()


def conditions(left: Left, current: list[Json], now: datetime) -> list[Json]:
    items = [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        _content_failure(left),
        _remaining(left),
        _finalizers(left),
    ]
    return [_condition(item, find(current, item[0]), now) for item in items]


def _content_failure(left: Left) -> tuple[str, str, str, str]:
    kind = "NamespaceDeletionContentFailure"
    if left.failures:
        text = "Failed to delete all resource types, {} remaining: {}".format(
            len(left.failures), ", ".join(left.failures)
        )
        return kind, "True", "ContentDeletionFailed", text
    return kind, "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"


def _remaining(left: Left) -> tuple[str, str, str, str]:
    kind = "NamespaceContentRemaining"
    if not left.resources:
        return kind, "False", "ContentRemoved", "All content successfully removed"
    parts = [f"{name} has {count} resource instances" for name, count in sorted(left.resources.items())]
    return kind, "True", "SomeResourcesRemain", f"Some resources are remaining: {', '.join(parts)}"


def _finalizers(left: Left) -> tuple[str, str, str, str]:
    kind = "NamespaceFinalizersRemaining"
    if not left.finalizers:
        return kind, "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"
    parts = [f"{name} in {count} resource instances" for name, count in sorted(left.finalizers.items())]
    text = f"Some content in the namespace has finalizers remaining: {', '.join(parts)}"
    return kind, "True", "SomeFinalizersRemain", text


def _condition(item: tuple[str, str, str, str], old: Json | None, now: datetime) -> Json:
    kind, status, reason, message = item
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else stamp(now)
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}


class Namespaces:
    """Empties namespaces that are being deleted."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._namespaces = context.store(NAMESPACES)
        self.worker = KeyWorker("namespace", self._reconcile)
        self._namespaces.listen(self._changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None and "deletionTimestamp" in new["metadata"]:
            self.worker.add_after(new["metadata"]["name"], NAMESPACE_QUIET_S)

    async def _reconcile(self, name: str) -> float | None:
        namespace = self._namespaces.get(name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return None
        if FINALIZER not in namespace["spec"].get("finalizers", []):
            return None
        left = await empty(self._context.kube, name)
        items = conditions(left, namespace.get("status", {}).get("conditions", []), self._context.now())
        if items != namespace.get("status", {}).get("conditions"):
            body = {**namespace, "status": {**namespace.get("status", {}), "conditions": items}}
            try:
                namespace = await self._context.kube.update(NAMESPACES, body, subresource="status")
            except (NotFound, Conflict):
                return 0.1
            await self._namespaces.seen(namespace["metadata"]["resourceVersion"])
        if left.resources:
            return NAMESPACE_QUIET_S if "pods." in left.resources else 1.0
        return await self._finalize(namespace)

    async def _finalize(self, namespace: Json) -> float | None:
        rest = [name for name in namespace["spec"].get("finalizers", []) if name != FINALIZER]
        body = {**namespace, "spec": {**namespace["spec"], "finalizers": rest}}
        try:
            await self._context.kube.update(NAMESPACES, body, subresource="finalize")
        except NotFound:
            return None
        except Conflict:
            return 0.1
        return None


async def empty(kube: Kube, namespace: str) -> Left:
    """Delete everything in the namespace; returns what remains for now."""
    resources: dict[str, int] = {}
    finalizers: dict[str, int] = {}
    failures = []
    for base, plural, group in await _deletable(kube):
        path = f"{base}/namespaces/{namespace}/{plural}"
        listing = await _list(kube, path)
        if not listing:
            continue
        try:
            await kube.request("DELETE", path, body={"propagationPolicy": "Background"})
        except ApiError as error:
            failures.append(error.message)
        items = await _list(kube, path)
        if items:
            resources[f"{plural}.{group}"] = len(items)
            for item in items:
                for finalizer in item.get("metadata", {}).get("finalizers", []):
                    finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
    return Left(resources, finalizers, tuple(failures))


async def _list(kube: Kube, path: str) -> list[dict[str, Any]]:
    try:
        response = await kube.request("GET", path)
    except NotFound:
        return []
    items: list[dict[str, Any]] = msgspec.json.decode(response.body).get("items") or []
    return items


async def _deletable(kube: Kube) -> list[tuple[str, str, str]]:
    """(path of the group version, plural, group) of every namespaced resource that can be deleted in bulk."""
    groups = msgspec.json.decode((await kube.request("GET", "/apis")).body).get("groups", [])
    bases = [("/api/v1", "")]
    bases += [(f"/apis/{group['preferredVersion']['groupVersion']}", group["name"]) for group in groups]
    deletable = []
    for base, group in bases:
        try:
            listing = msgspec.json.decode((await kube.request("GET", base)).body)
        except ApiError:
            continue  # an aggregated group whose server is away
        for item in listing.get("resources", []):
            verbs = item.get("verbs", [])
            if item.get("namespaced") and "/" not in item["name"] and {"list", "deletecollection"} <= set(verbs):
                deletable.append((base, item["name"], group))
    return deletable
