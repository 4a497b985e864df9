"""Small manifests for the tests of the living lab."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def template(app: str, image: str = "nginx:1.25", **spec: Any) -> Json:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}}
    container |= spec.pop("container", {})
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **spec}}


def workload(kind: str, name: str, replicas: int | None = None, image: str = "nginx:1.25", **spec: Any) -> Json:
    body: Json = {"selector": {"matchLabels": {"app": name}}, "template": template(name, image, **spec.pop("pod", {}))}
    if replicas is not None:
        body["replicas"] = replicas
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body | spec}


def deployment(name: str = "web", replicas: int = 3, image: str = "nginx:1.25", **spec: Any) -> Json:
    return workload("Deployment", name, replicas, image, **spec)


def job(name: str, command: list[str], **spec: Any) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox", "command": command}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": pod}} | spec,
    }


def pod(name: str, image: str = "nginx:1.25", annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    container = {"name": "c", "image": image} | spec.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}, "labels": {"app": name}},
        "spec": {"containers": [container], **spec},
    }


def budget(app: str, **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}} | spec,
    }
