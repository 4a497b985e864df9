"""EKS add-ons: the system pods of a cluster, by EKS's API, and what each is in the cluster.

A cluster starts with vpc-cni, kube-proxy and coredns. `aws eks create-addon` adds eks-pod-identity-agent, without
which no pod gets the credentials of its Pod Identity association.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from dovetail.install.kubernetes_parts import resource_of
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.resources import NODES
from dovetail.lab.aws.http_forms import Answer, Environ, body_of, json_answer
from dovetail.model.nodes import Node

Json = dict[str, Any]

DEFAULTS = ("vpc-cni", "kube-proxy", "coredns")
#: Version of each add-on, as EKS names them.
VERSIONS: Mapping[str, str] = {
    "vpc-cni": "v1.20.4-eksbuild.1",
    "kube-proxy": "v1.36.0-eksbuild.2",
    "coredns": "v1.13.1-eksbuild.1",
    "eks-pod-identity-agent": "v1.3.9-eksbuild.3",
}
LOOK_S = 1.0
#: Add-ons with replicas, which the scheduler places; the others run on every node.
REPLICATED = frozenset({"coredns"})
FIRST_NODES_S = 300.0
_PATH = re.compile(r"^/clusters/(?P<cluster>[^/]+)/addons(?:/(?P<name>[^/]+))?$")
_REGISTRY = "602401143452.dkr.ecr.{region}.amazonaws.com"


class Addons:
    """What is installed, by name. Requests come on threads of their own; `run` brings the cluster to it."""

    def __init__(self, region: str, account: str) -> None:
        self._region = region
        self._account = account
        self._lock = threading.Lock()
        self._kept: dict[str, Json] = {}
        self._applied: set[str] = set()

    def install_defaults(self, cluster: str) -> None:
        with self._lock:
            self._kept |= {name: self._row(cluster, name, {}) for name in DEFAULTS}

    def answer(self, environ: Environ) -> Answer | None:
        path = environ.get("PATH_INFO", "")
        if path == "/addons/supported-versions":
            return self._versions(environ)
        match = _PATH.match(path)
        if match is None:
            return None
        method = environ["REQUEST_METHOD"]
        with self._lock:
            if match["name"] is None:
                if method == "GET":
                    return json_answer(200, {"addons": sorted(self._kept)})
                return self._create(match["cluster"], json.loads(body_of(environ) or b"{}"))
            row = self._kept.get(match["name"])
            if row is None:
                message = f"No addon: {match['name']} found in cluster: {match['cluster']}"
                return json_answer(404, {"message": message}, "ResourceNotFoundException")
            if method == "DELETE":
                del self._kept[match["name"]]
                row = {**row, "status": "DELETING"}
            return json_answer(200, {"addon": row})

    def _create(self, cluster: str, body: Mapping[str, Any]) -> Answer:
        name = str(body.get("addonName", ""))
        if name in self._kept:
            return json_answer(409, {"message": "Addon already exists."}, "ResourceInUseException")
        if name not in VERSIONS:
            message = f"Addon {name} specified is not supported here; there are {', '.join(sorted(VERSIONS))}"
            return json_answer(400, {"message": message}, "InvalidParameterException")
        self._kept[name] = self._row(cluster, name, body)
        return json_answer(200, {"addon": {**self._kept[name], "status": "CREATING"}})

    def _row(self, cluster: str, name: str, body: Mapping[str, Any]) -> Json:
        return {
            "addonName": name,
            "clusterName": cluster,
            "status": "ACTIVE",
            "addonVersion": body.get("addonVersion") or VERSIONS[name],
            "health": {"issues": []},
            "addonArn": f"arn:aws:eks:{self._region}:{self._account}:addon/{cluster}/{name}/lab",
            "tags": dict(body.get("tags") or {}),
        }

    def _versions(self, environ: Environ) -> Answer:
        """`aws eks describe-addon-versions`."""
        addon_names = parse_qs(environ.get("QUERY_STRING", "")).get("addonName") or sorted(VERSIONS)
        rows = [
            {
                "addonName": name,
                "type": "networking" if name in DEFAULTS else "security",
                "publisher": "eks",
                "owner": "aws",
                "addonVersions": [{"addonVersion": VERSIONS[name], "architecture": ["amd64", "arm64"]}],
            }
            for name in addon_names
            if name in VERSIONS
        ]
        return json_answer(200, {"addons": rows})

    async def run(self, kube: Kube, *, first_nodes: int = 0) -> None:
        """Create the objects of what is installed and delete those of what is not, until cancelled.

        Replicas wait until the first nodes are Ready, or for a while: scheduled one by one as those join, they would
        share the first node, and what else fits there would depend on which node that was.
        """
        looks_left = int(FIRST_NODES_S / LOOK_S) if first_nodes else 0
        while True:
            with self._lock:
                versions = {name: str(row["addonVersion"]) for name, row in self._kept.items()}
            if looks_left and await _ready_nodes(kube) >= first_nodes:
                looks_left = 0
            looks_left = max(0, looks_left - 1)
            for name in sorted(versions.keys() - self._applied):
                if looks_left and name in REPLICATED:
                    continue
                if await _create(kube, objects(name, versions[name], self._region)):
                    self._applied.add(name)
            for name in sorted(self._applied - versions.keys()):
                await _delete(kube, objects(name, "", self._region))
                self._applied.discard(name)
            await asyncio.sleep(LOOK_S)


async def _ready_nodes(kube: Kube) -> int:
    try:
        return sum(node.ready for node in (await kube.list(NODES, type=Node)).items)
    except KubeError:
        return 0  # the next look asks again


async def _create(kube: Kube, bodies: list[Json]) -> bool:
    for body in bodies:
        try:
            await kube.create(resource_of(body), body, "kube-system")
        except AlreadyExists:
            continue
        except KubeError:
            return False  # the next look tries again
    return True


async def _delete(kube: Kube, bodies: list[Json]) -> None:
    for body in bodies:
        try:
            await kube.delete(resource_of(body), body["metadata"]["name"], "kube-system")
        except NotFound:
            continue


def objects(name: str, version: str, region: str) -> list[Json]:
    """The objects of an add-on in kube-system."""
    registry = _REGISTRY.format(region=region)
    if name == "vpc-cni":
        return [_daemon_set("aws-node", f"{registry}/amazon-k8s-cni:{version}", {"cpu": "50m"}, "k8s-app", "aws-node")]
    if name == "kube-proxy":
        return [
            _daemon_set("kube-proxy", f"{registry}/eks/kube-proxy:{version}", {"cpu": "100m"}, "k8s-app", "kube-proxy")
        ]
    if name == "eks-pod-identity-agent":
        image = f"{registry}/eks/eks-pod-identity-agent:{version}"
        return [_daemon_set(name, image, {}, "app.kubernetes.io/name", name)]
    return _coredns(f"{registry}/eks/coredns:{version}")


def _daemon_set(name: str, image: str, requests: Mapping[str, str], label: str, value: str) -> Json:
    """On every Linux node that is an instance: Fargate runs no DaemonSet."""
    container = {"name": name, "image": image, "resources": {"requests": dict(requests)} if requests else {}}
    spec = {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "affinity": _affinity(),
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {label: value}},
        "spec": {
            "selector": {"matchLabels": {label: value}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": {label: value}}, "spec": spec},
        },
    }


def _affinity() -> Json:
    expressions = [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
        {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate", "hybrid", "auto"]},
    ]
    terms = [{"matchExpressions": expressions}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _coredns(image: str) -> list[Json]:
    labels = {"k8s-app": "kube-dns", "eks.amazonaws.com/component": "coredns"}
    container = {
        "name": "coredns",
        "image": image,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        "ports": [
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        ],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
    }
    # away from nodes that an autoscaler may take: this is what EKS's users are advised to set
    anti = {
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"},
    }
    spec = {
        "priorityClassName": "system-cluster-critical",
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ],
        "affinity": {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [anti]},
        },
        "containers": [container],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "coredns", "namespace": "kube-system", "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            # an instance runs it even where a Fargate profile selects kube-system, until the annotation is taken off
            "template": {
                "metadata": {"labels": labels, "annotations": {"eks.amazonaws.com/compute-type": "ec2"}},
                "spec": spec,
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {
            "selector": {"k8s-app": "kube-dns"},
            "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}],
        },
    }
    return [deployment, service]
