"""Adoption: an object without a controller that a selector means becomes ours; one that left the selector is let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.kube.client import Kube
from dovetail.kube.errors import Conflict, Invalid, NotFound
from dovetail.kube.resources import PODS, Resource
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.model.selector import LabelSelector


async def claim_pods(
    context: ControllerContext,
    kind: tuple[str, str],
    by: Json,
    selector: LabelSelector,
    strays: Iterable[PodFields],
    fits: Callable[[PodFields], bool] = lambda _: True,
) -> None:
    """Let the strays go and take in the orphans that are meant; then wait until the shared store has seen it.

    `by` is the metadata of the workload that claims.
    """
    version = 0
    for pod in strays:
        version = max(version, await _release(context.kube, pod, by["uid"]))
    for pod in context.pods.by("orphans", by["namespace"]):
        if _adoptable(pod, selector) and fits(pod):
            identity = (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
            version = max(version, await adopt(context.kube, PODS, identity, kind, by))
    await context.pods.seen(version)


def strays_of(pods: Iterable[PodFields], selector: LabelSelector) -> list[PodFields]:
    """Pods of ours that the selector does not mean any more."""
    return [pod for pod in pods if not selector.matches(pod.metadata.labels)]


def _adoptable(pod: PodFields, selector: LabelSelector) -> bool:
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase not in ("Succeeded", "Failed")
        and selector.matches(pod.metadata.labels)
    )


async def adopt(
    kube: Kube, resource: Resource, metadata: tuple[str, str, str], owner_kind: tuple[str, str], by: Json
) -> int:
    """`metadata` is (name, namespace, uid) of what is adopted; returns the version written, 0 for none."""
    name, namespace, uid = metadata
    body = {"metadata": {"ownerReferences": [owner(*owner_kind, by)], "uid": uid}}
    return await _patch(kube, resource, name, namespace, body)


async def _release(kube: Kube, pod: PodFields, owner_uid: str) -> int:
    body = {
        "metadata": {"ownerReferences": [{"$patch": "delete", "uid": owner_uid}], "uid": pod.metadata.uid},
    }
    return await _patch(kube, PODS, pod.metadata.name, pod.metadata.namespace, body)


async def _patch(kube: Kube, resource: Resource, name: str, namespace: str, body: Json) -> int:
    try:
        written = await kube.patch(resource, name, body, namespace, kind="strategic")
    except (NotFound, Invalid, Conflict):
        return 0  # it went, or another took it: the next pass decides
    return int(written["metadata"]["resourceVersion"])
