"""A pod from a template: labels, annotations and finalizers of the template, and a reference to its owner."""

from __future__ import annotations

from typing import Any

from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.views import Json


def pod_of(
    template: Json,
    owner_kind: tuple[str, str],
    owner_metadata: Json,
    *,
    name: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> Json:
    """`owner_kind` is (apiVersion, kind). Without a name the server makes one from the prefix."""
    given = template.get("metadata", {})
    metadata: dict[str, Any] = {
        "generateName": prefix(owner_metadata["name"]),
        "namespace": owner_metadata["namespace"],
        "ownerReferences": [owner(*owner_kind, owner_metadata)],
    }
    if name is not None:
        metadata["name"] = name
    all_labels = {**given.get("labels", {}), **(labels or {})}
    if all_labels:
        metadata["labels"] = all_labels
    all_annotations = {**given.get("annotations", {}), **(annotations or {})}
    if all_annotations:
        metadata["annotations"] = all_annotations
    if given.get("finalizers"):
        metadata["finalizers"] = list(given["finalizers"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**template.get("spec", {}), **(spec or {})},
    }


def prefix(owner_name: str) -> str:
    """The start of a generated name: the dash is left out where it would make the prefix too long to be valid."""
    return f"{owner_name}-" if len(owner_name) < 253 else owner_name
