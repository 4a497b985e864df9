"""Deleting the pods that a workload has too many of, and saying so."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.kube.errors import NotFound
from dovetail.kube.resources import PODS
from dovetail.lab.controllers.kit import Kit
from dovetail.lab.controllers.views import PodView
from dovetail.lab.recorder import Involved


async def remove(kit: Kit, pods: Iterable[PodView], about: Involved) -> None:
    """Delete pods that may be gone already, then wait until the shared store has seen it: else they go twice."""
    version = 0
    try:
        for pod in pods:
            try:
                answer = await kit.kube.delete(PODS, pod.metadata.name, pod.metadata.namespace)
            except NotFound:
                continue
            version = max(version, int(answer.get("metadata", {}).get("resourceVersion", 0)))
            kit.recorder.normal(about, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
    finally:
        await kit.pods.seen(version)
