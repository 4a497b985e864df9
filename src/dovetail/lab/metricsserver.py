"""metrics-server as people find it on a cluster: its Deployment, its Service, and its group among the API services.

The numbers themselves come from the lab (`metrics`), whatever becomes of these objects.
"""

from __future__ import annotations

from typing import Any

from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.resources import DEPLOYMENTS, SERVICES, Resource

APISERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
NAME = "metrics-server"
NAMESPACE = "kube-system"
GROUP = "v1beta1.metrics.k8s.io"
LABELS = {"k8s-app": NAME}
_CONTAINER = {
    "name": NAME,
    "image": "registry.k8s.io/metrics-server/metrics-server:v0.8.0",
    "args": ["--secure-port=10250", "--metric-resolution=15s"],
    "ports": [{"name": "https", "containerPort": 10250, "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
}
_DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [_CONTAINER], "priorityClassName": "system-cluster-critical"},
        },
    },
}
_SERVICE: dict[str, Any] = {
    "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": LABELS},
    "spec": {"selector": LABELS, "ports": [{"name": "https", "port": 443, "targetPort": "https"}]},
}


def api_service(**spec: object) -> dict[str, Any]:
    """The group as metrics-server registers it, behind its Service."""
    fixed = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    service = {"name": NAME, "namespace": NAMESPACE}
    return {"metadata": {"name": GROUP, "labels": LABELS},
            "spec": {**fixed, "insecureSkipTLSVerify": True, "service": service, **spec}}  # fmt: skip


async def install(kube: Kube) -> None:
    """What an installer leaves; a control plane that has its own endpoint for the group keeps that."""
    for resource, body in ((DEPLOYMENTS, _DEPLOYMENT), (SERVICES, _SERVICE)):
        await _create(kube, resource, body)
    if await _create(kube, APISERVICES, api_service()):
        passed = {"type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed"}
        dated = {**passed, "lastTransitionTime": kube.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        await kube.patch(APISERVICES, GROUP, {"status": {"conditions": [dated]}}, subresource="status")


async def _create(kube: Kube, resource: Resource, body: dict[str, Any]) -> bool:
    try:
        await kube.create(resource, body)
    except AlreadyExists:
        return False
    return True
