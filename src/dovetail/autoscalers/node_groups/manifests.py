"""What installs the program into a cluster: service account, roles, Deployment, with discovery by tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.autoscalers.node_groups.provisioning_requests import GROUP
from dovetail.controllers.history.store import GROUP_DECISIONS

NAME = "cluster-autoscaler"
DEFAULT_IMAGE = "dovetail/controller"
_LABELS = {"app": NAME, "app.kubernetes.io/name": NAME}
_READ = ["get", "list", "watch"]
#: API group -> resources that decisions read.
_WATCHED: Mapping[str, tuple[str, ...]] = {
    "": ("namespaces", "persistentvolumeclaims", "persistentvolumes", "replicationcontrollers", "services"),
    "apps": ("daemonsets", "replicasets", "statefulsets"),
    "batch": ("jobs",),
    "policy": ("poddisruptionbudgets",),
    "storage.k8s.io": ("csidrivers", "csinodes", "storageclasses", "volumeattachments"),
}
CONFIG_MAPS = ("cluster-autoscaler-status", "cluster-autoscaler-priority-expander", GROUP_DECISIONS)


def manifests(cluster: str, image: str, tag: str, namespace: str, region: str = "") -> list[dict[str, Any]]:
    """The objects, in the order in which they are applied."""
    meta = {"name": NAME, "labels": _LABELS}
    inside = {**meta, "namespace": namespace}
    subject = [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]

    def role_ref(kind: str) -> dict[str, str]:
        return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME}

    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": inside},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": meta, "rules": _cluster_rules()},
        {"apiVersion": rbac, "kind": "Role", "metadata": inside, "rules": _namespace_rules()},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": meta,
            "roleRef": role_ref("ClusterRole"),
            "subjects": subject,
        },
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": inside,
            "roleRef": role_ref("Role"),
            "subjects": subject,
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": inside,
            "spec": _deployment(cluster, f"{image}:{tag}", region),
        },
    ]


def _cluster_rules() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": [*_READ, "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]
    rules.append({"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": _READ})
    rules += [
        {"apiGroups": [GROUP], "resources": ["provisioningrequests"], "verbs": [*_READ, "delete"]},
        {"apiGroups": [GROUP], "resources": ["provisioningrequests/status"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["podtemplates"], "verbs": _READ},
    ]
    rules += [
        {"apiGroups": [group], "resources": list(resources), "verbs": _READ} for group, resources in _WATCHED.items()
    ]
    return rules


def _namespace_rules() -> list[dict[str, Any]]:
    return [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": list(CONFIG_MAPS),
            "verbs": ["get", "update", "delete"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [NAME],
            "verbs": ["get", "update"],
        },
    ]


def _deployment(cluster: str, image: str, region: str) -> dict[str, Any]:
    tags = f"k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/{cluster}"
    container: dict[str, Any] = {
        "name": NAME,
        "image": image,
        "command": ["dovetail", "cluster-autoscaler"],
        "args": [
            "--cloud-provider=aws",
            f"--node-group-auto-discovery=asg:tag={tags}",
            "--expander=least-waste",
            "--balance-similar-node-groups",
            "--v=4",
        ],
        "ports": [{"name": "http-metrics", "containerPort": 8085}],
        "livenessProbe": {"httpGet": {"path": "/health-check", "port": 8085}, "periodSeconds": 30},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if region:
        container["env"] = [{"name": "AWS_REGION", "value": region}]
    annotations = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8085",
    }
    return {
        "replicas": 1,
        "selector": {"matchLabels": {"app": NAME}},
        "template": {
            "metadata": {"labels": _LABELS, "annotations": annotations},
            "spec": {
                "serviceAccountName": NAME,
                "priorityClassName": "system-cluster-critical",
                "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "fsGroup": 65534},
                "containers": [container],
            },
        },
    }
