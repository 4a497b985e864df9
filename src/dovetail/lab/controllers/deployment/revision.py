"""Revisions: which ReplicaSet holds the Deployment's current template, and what a new one looks like.

The name is a hash of the template, so that making it twice makes it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dovetail.lab.controllers.deployment.rollout import (
    DESIRED,
    MAXIMUM,
    REVISION,
    REVISION_HISTORY,
    allowances,
    initial,
    oldest_first,
    replicas,
)
from dovetail.lab.controllers.hashing import template_hash
from dovetail.lab.controllers.views import Json

HASH_LABEL = "pod-template-hash"
_NOT_COPIED = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAXIMUM,
        "deprecated.deployment.rollback.to",
    }
)
_HISTORY_LIMIT = 2000


def plain(template: Json) -> Json:
    """The template without what a ReplicaSet adds to it, for comparison."""
    metadata = {key: value for key, value in template.get("metadata", {}).items() if value}
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key != HASH_LABEL}
    return {"metadata": {**metadata, "labels": labels}, "spec": template.get("spec", {})}


def current(deployment: Json, sets: Iterable[Json]) -> Json | None:
    """The ReplicaSet with the Deployment's template; the oldest, should there be several."""
    template = plain(deployment["spec"]["template"])
    return next((rs for rs in oldest_first(sets) if plain(rs["spec"]["template"]) == template), None)


def revision(rs: Json) -> int:
    text = rs["metadata"].get("annotations", {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def marks(deployment: Json, rs: Json, number: int, *, fresh: bool) -> dict[str, str]:
    """The annotations the current ReplicaSet should carry."""
    annotations = dict(rs["metadata"].get("annotations", {}))
    for key, value in deployment["metadata"].get("annotations", {}).items():
        if key not in _NOT_COPIED:
            annotations[key] = value
    before = annotations.get(REVISION)
    if revision(rs) < number:
        annotations[REVISION] = str(number)
        if before is not None:
            annotations[REVISION_HISTORY] = _history(annotations.get(REVISION_HISTORY, ""), before)
    if fresh:
        annotations |= size_annotations(deployment)
    return annotations


def _history(past: str, number: str) -> str:
    numbers = [*past.split(","), number] if past else [number]
    while len(",".join(numbers)) > _HISTORY_LIMIT:
        numbers.pop(0)
    return ",".join(numbers)


def size_annotations(deployment: Json) -> dict[str, str]:
    surge, _ = allowances(deployment)
    return {DESIRED: str(replicas(deployment)), MAXIMUM: str(replicas(deployment) + surge)}


def next_number(old: Sequence[Json]) -> int:
    return max((revision(rs) for rs in old), default=0) + 1


def fresh(deployment: Json, old: Sequence[Json]) -> Json:
    """The ReplicaSet for a template that has none yet."""
    template = deployment["spec"]["template"]
    suffix = template_hash(template, deployment.get("status", {}).get("collisionCount"))
    labels = {**template.get("metadata", {}).get("labels", {}), HASH_LABEL: suffix}
    selector = deployment["spec"]["selector"]
    spec: dict[str, Any] = {
        "replicas": initial(deployment, old),
        "selector": {**selector, "matchLabels": {**selector.get("matchLabels", {}), HASH_LABEL: suffix}},
        "template": {**template, "metadata": {**template.get("metadata", {}), "labels": labels}},
    }
    if deployment["spec"].get("minReadySeconds"):
        spec["minReadySeconds"] = deployment["spec"]["minReadySeconds"]
    metadata = deployment["metadata"]
    rs: Json = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name'][: 253 - 1 - len(suffix)]}-{suffix}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [owner("apps/v1", "Deployment", metadata)],
        },
        "spec": spec,
    }
    rs["metadata"]["annotations"] = marks(deployment, rs, next_number(old), fresh=True)
    return rs


def owner(api_version: str, kind: str, metadata: Json) -> Json:
    """A controller reference to the object with this metadata."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def disposable(deployment: Json, old: Sequence[Json]) -> list[str]:
    """Old revisions beyond the history limit that hold nothing any more."""
    limit = deployment["spec"].get("revisionHistoryLimit")
    alive = [rs for rs in old if "deletionTimestamp" not in rs["metadata"]]
    if limit is None or len(alive) <= limit:
        return []
    return [rs["metadata"]["name"] for rs in sorted(alive, key=revision)[: len(alive) - limit] if _holds_nothing(rs)]


def _holds_nothing(rs: Json) -> bool:
    status = rs.get("status", {})
    settled = rs["metadata"].get("generation", 0) <= status.get("observedGeneration", 0)
    return replicas(rs) == 0 and not status.get("replicas") and settled
