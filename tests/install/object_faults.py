"""Faults of objects in the cluster, made with kubectl alone, and the objects that they need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from dovetail.kube import resources as kinds
from dovetail.kube.resources import Resource
from tests.install.install_site import Site
from tests.install.reversible_changes import Break, Edit, applied, both, edited, put


def workload(kind: str, name: str, namespace: str, image: str, labels: dict[str, str] | None = None, **pod: Any) -> Any:
    selected = labels or {"app": name}
    container = {"name": name, "image": image, **pod.pop("container", {})}
    template = {"metadata": {"labels": selected}, "spec": {"containers": [container], **pod}}
    spec: dict[str, Any] = {"selector": {"matchLabels": selected}, "template": template}
    if kind == "Deployment":
        spec["replicas"] = 1
    return {"metadata": {"name": name, "namespace": namespace, "labels": selected}, "spec": spec}


def daemon_set(name: str, **pod: Any) -> tuple[Resource, dict[str, Any]]:
    return kinds.DAEMONSETS, workload("DaemonSet", name, "kube-system", f"example.com/{name}:1", **pod)


def deployment(name: str, image: str, **pod: Any) -> tuple[Resource, dict[str, Any]]:
    return kinds.DEPLOYMENTS, workload("Deployment", name, "kube-system", image, **pod)


def cluster_autoscaler(*flags: str) -> Break:
    container = {"command": ["./cluster-autoscaler", *flags]}
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0"
    return applied(deployment("cluster-autoscaler", image, container=container))


def pending_pod(**spec: Any) -> tuple[Resource, dict[str, Any]]:
    body = {
        "metadata": {"name": "waiting", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}], **spec},
    }
    return kinds.PODS, body


@asynccontextmanager
async def uninitialised_node(site: Site) -> AsyncIterator[None]:
    """A NodeClaim whose node registered a quarter of an hour ago and still has its startup taint."""
    since = (site.lab.clock.now() - timedelta(minutes=15)).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = [
        {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since}
        for kind, status, reason in (
            ("Registered", "True", "Registered"),
            ("Initialized", "Unknown", "StartupTaintsExist"),
        )
    ]
    claim = {
        "metadata": {"name": "default-1", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
        "status": {"conditions": rows, "nodeName": "absent"},
    }
    async with applied((kinds.NODECLAIMS, claim))(site):
        yield


@asynccontextmanager
async def own_node(site: Site) -> AsyncIterator[None]:
    """The node of a replica of the controller becomes one of a NodePool."""

    async def hosts() -> list[str]:
        pods = (await site.kube.list(kinds.PODS, "karpenter")).items
        return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

    for _ in range(60):  # an earlier fault may have scaled it to 0 just before
        if names := await hosts():
            break
        await asyncio.sleep(1.0)
    async with edited(
        kinds.NODES, names[0], lambda node: node["metadata"]["labels"].update({"karpenter.sh/nodepool": "p"})
    )(site):
        yield


@asynccontextmanager
async def cordoned(site: Site) -> AsyncIterator[None]:
    nodes = (await site.kube.list(kinds.NODES)).items
    blocks = [edited(kinds.NODES, node["metadata"]["name"], put("spec.unschedulable", True)) for node in nodes]
    async with both(*blocks)(site):
        yield


@asynccontextmanager
async def without_definition(site: Site) -> AsyncIterator[None]:
    before = await site.kube.get(kinds.CRDS, "nodeclaims.karpenter.sh")
    await site.kube.delete(kinds.CRDS, "nodeclaims.karpenter.sh")
    yield
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        before["metadata"].pop(field, None)
    before.pop("status", None)
    await site.kube.create(kinds.CRDS, before)


def without_operators(definition: dict[str, Any]) -> None:
    for version in definition["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        operator = spec["requirements"]["items"]["properties"]["operator"]
        operator["enum"] = [name for name in operator["enum"] if name not in ("Gte", "Lte")]


def lease(namespace: str, ahead_s: float = 0.0) -> Break:
    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        time = (site.lab.clock.now() + timedelta(seconds=ahead_s)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        name = "another" if ahead_s else "karpenter-leader-election"
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 60, "renewTime": time}
        async with applied((kinds.LEASES, {"metadata": {"name": name, "namespace": namespace}, "spec": spec}))(site):
            yield

    return block


HPA = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    },
}
WEBHOOK = {
    "metadata": {"name": "left-behind"},
    "webhooks": [
        {
            "name": "pods.example.com",
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "gone", "name": "hook"}, "caBundle": ""},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}],
        }
    ],
}
CLASS, POOL = (kinds.EC2NODECLASSES, "default"), (kinds.NODEPOOLS, "default")
BY_TAG = [{"tags": {"scenario": "yes"}}]
SPOT = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
ACCOUNT_ROLE = "eks.amazonaws.com/role-arn"
spot_pool = edited(*POOL, put("spec.template.spec.requirements", SPOT))


def annotate_role(arn: str) -> Break:
    def edit(account: dict[str, Any]) -> None:
        account["metadata"]["annotations"][ACCOUNT_ROLE] = arn

    return edited(kinds.SERVICEACCOUNTS, "karpenter", edit, "karpenter")


def controller(edit: Edit) -> Break:
    return edited(kinds.DEPLOYMENTS, "karpenter", edit, "karpenter")


def image(text: str) -> Edit:
    def edit(obj: dict[str, Any]) -> None:
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = text

    return edit


BROKEN_AWS_AUTH = edited(kinds.CONFIGMAPS, "aws-auth", put("data.mapRoles", "- rolearn: [\n"), "kube-system")
