"""Adoption: an object without a controller that a selector means becomes ours; one that left the selector is let go."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.kube.client import Kube
from dovetail.kube.errors import Conflict, Invalid, NotFound
from dovetail.kube.resources import Resource
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.views import Json, PodView
from dovetail.model.selector import LabelSelector


def to_adopt(orphans: Iterable[PodView], selector: LabelSelector) -> list[PodView]:
    return [
        pod
        for pod in orphans
        if selector.matches(pod.metadata.labels)
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Succeeded", "Failed")
    ]


async def adopt(
    kube: Kube, resource: Resource, metadata: tuple[str, str, str], owner_kind: tuple[str, str], by: Json
) -> None:
    """`metadata` is (name, namespace, uid) of what is adopted."""
    name, namespace, uid = metadata
    body = {"metadata": {"ownerReferences": [owner(*owner_kind, by)], "uid": uid}}
    try:
        await kube.patch(resource, name, body, namespace, kind="strategic")
    except (NotFound, Invalid, Conflict):
        return  # it went, or another took it: the next look tells


async def release(kube: Kube, resource: Resource, metadata: tuple[str, str, str], owner_uid: str) -> None:
    name, namespace, uid = metadata
    body = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner_uid}], "uid": uid}}
    try:
        await kube.patch(resource, name, body, namespace, kind="strategic")
    except (NotFound, Invalid, Conflict):
        return
