"""Small VPAs and pods for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.autoscalers.vpa.api import Pod, VerticalPodAutoscaler


def pod(
    *containers: dict[str, Any],
    name: str = "web-0",
    annotations: dict[str, str] | None = None,
    owner: tuple[str, str] | None = ("ReplicaSet", "web"),
    **status: Any,
) -> Pod:
    """A pod; containers are `container(…)`, further arguments are its status."""
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "labels": {"app": "web"}, "uid": f"uid-{name}"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if owner is not None:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner[0], "name": owner[1], "controller": True, "uid": "1"}
        ]
    return msgspec.convert(
        {"metadata": metadata, "spec": {"containers": list(containers)}, "status": status}, Pod, strict=False
    )


def container(name: str = "app", requests: Any = None, limits: Any = None) -> dict[str, Any]:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"name": name, "resources": resources}


def recommended(name: str = "app", target: Any = None, lower: Any = None, upper: Any = None) -> dict[str, Any]:
    item = {"containerName": name, "target": target or {}}
    return item | ({"lowerBound": lower} if lower else {}) | ({"upperBound": upper} if upper else {})


def vpa(*items: dict[str, Any], mode: str | None = None, policies: Any = None, **spec: Any) -> VerticalPodAutoscaler:
    """A VPA of Deployment web with recommendations `recommended(…)`; further arguments are its spec."""
    body: dict[str, Any] = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, **spec}
    if mode is not None:
        body["updatePolicy"] = {**body.get("updatePolicy", {}), "updateMode": mode}
    if policies is not None:
        body["resourcePolicy"] = {"containerPolicies": policies}
    status = {"recommendation": {"containerRecommendations": list(items)}} if items else {}
    metadata = {"name": "web-vpa", "namespace": "shop"}
    return msgspec.convert({"metadata": metadata, "spec": body, "status": status}, VerticalPodAutoscaler)
