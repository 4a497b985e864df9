"""Everything that installs the three programs: definitions, roles, accounts, Deployments and the webhook's Service.

Names are upstream's, so that `kubectl get pods -n kube-system` and existing dashboards look as they always did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.autoscalers.vpa.admission_controller import CONFIGURATION, SECRET
from dovetail.autoscalers.vpa.api import GROUP, WEBHOOKS
from dovetail.autoscalers.vpa.crds import definitions
from dovetail.kube.resources import LEASES, SECRETS, Resource

Json = dict[str, Any]

NAMESPACE = "kube-system"
RECOMMENDER, UPDATER, ADMISSION = "vpa-recommender", "vpa-updater", "vpa-admission-controller"
SERVICE = "vpa-webhook"
_READ = ["get", "list", "watch"]
_RBAC = "rbac.authorization.k8s.io"


#: One image holds all programs; `{name}` in another one stands for the program.
DEFAULT_IMAGE = "dovetail/controller"


def manifests(image: str, tag: str, namespace: str = NAMESPACE) -> list[Json]:
    """All objects, in an order in which they can be applied. `image` may hold `{name}` for each program's name."""
    return [
        *definitions(),
        *_accounts(namespace),
        *_roles(namespace),
        *_deployments(image, tag, namespace),
        _service(namespace),
    ]


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Json:
    rule: Json = {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


def _accounts(namespace: str) -> list[Json]:
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        for name in (ADMISSION, RECOMMENDER, UPDATER)
    ]


#: Role, its rules, the name of its binding if another, and who has it.
_CLUSTER_ROLES: list[tuple[str, list[Json], str, list[str]]] = [
    ("system:metrics-reader", [_rule(["metrics.k8s.io"], ["pods"], ["get", "list"])], "", [RECOMMENDER]),
    (
        "system:vpa-actor",
        [
            _rule([""], ["pods", "nodes", "limitranges"], _READ),
            _rule(["", "events.k8s.io"], ["events"], [*_READ, "create", "patch", "update"]),
            _rule([GROUP], ["verticalpodautoscalers"], _READ),
        ],
        "",
        [RECOMMENDER, UPDATER],
    ),
    (
        "system:vpa-status-actor",
        [_rule([GROUP], ["verticalpodautoscalers/status"], ["get", "patch"])],
        "",
        [RECOMMENDER],
    ),
    (
        "system:vpa-checkpoint-actor",
        [_rule([GROUP], ["verticalpodautoscalercheckpoints"], [*_READ, "create", "patch", "delete"])],
        "",
        [RECOMMENDER],
    ),
    (
        "system:evictioner",
        [_rule(["apps"], ["replicasets"], ["get"]), _rule([""], ["pods/eviction"], ["create"])],
        "system:vpa-evictioner-binding",
        [UPDATER],
    ),
    (
        "system:vpa-updater-in-place",
        [_rule([""], ["pods/resize", "pods"], ["patch"])],
        "system:vpa-updater-in-place-binding",
        [UPDATER],
    ),
    (
        "system:vpa-target-reader",
        [
            _rule(["*"], ["*/scale"], ["get", "watch"]),
            _rule([""], ["replicationcontrollers"], _READ),
            _rule(["apps"], ["daemonsets", "deployments", "replicasets", "statefulsets"], _READ),
            _rule(["batch"], ["jobs", "cronjobs"], _READ),
        ],
        "system:vpa-target-reader-binding",
        [RECOMMENDER, ADMISSION, UPDATER],
    ),
    (
        "system:vpa-admission-controller",
        [
            _rule([""], ["pods", "configmaps", "nodes", "limitranges"], _READ),
            _rule(
                ["admissionregistration.k8s.io"],
                ["mutatingwebhookconfigurations"],
                ["create", "delete", "get", "list", "patch"],
            ),
            _rule([GROUP], ["verticalpodautoscalers"], _READ),
            _rule(["coordination.k8s.io"], ["leases"], [*_READ, "create", "update"]),
        ],
        "",
        [ADMISSION],
    ),
    (
        "system:vpa-status-reader",
        [_rule(["coordination.k8s.io"], ["leases"], _READ)],
        "system:vpa-status-reader-binding",
        [UPDATER],
    ),
]


def _roles(namespace: str) -> list[Json]:
    roles: list[Json] = []
    for name, rules, binding, accounts in _CLUSTER_ROLES:
        roles.append({"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
        roles.append(_binding("ClusterRole", name, binding or name, accounts, namespace))
    for account, leases in ((UPDATER, [UPDATER]), (RECOMMENDER, [RECOMMENDER, "vpa-recommender-lease"])):
        rules = [
            _rule(["coordination.k8s.io"], ["leases"], ["create"]),
            _rule(["coordination.k8s.io"], ["leases"], ["get", "watch", "update"], leases),
        ]
        roles += _role(f"system:leader-locking-{account}", rules, account, namespace)
    secrets = [_rule([""], ["secrets"], ["create"]), _rule([""], ["secrets"], ["get", "update"], [SECRET])]
    return [*roles, *_role("system:vpa-webhook-certs", secrets, ADMISSION, namespace)]


def _role(name: str, rules: list[Json], account: str, namespace: str) -> list[Json]:
    metadata = {"name": name, "namespace": namespace}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        _binding("Role", name, name, [account], namespace),
    ]


def _binding(kind: str, role: str, name: str, accounts: list[str], namespace: str) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if kind == "Role" else {})
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace} for account in accounts],
    }


def _deployments(image: str, tag: str, namespace: str) -> list[Json]:
    return [
        _deployment(RECOMMENDER, image, tag, namespace, 8942, ("50m", "500Mi"), ("200m", "1000Mi")),
        _deployment(UPDATER, image, tag, namespace, 8943, ("50m", "500Mi"), ("200m", "1000Mi")),
        _deployment(ADMISSION, image, tag, namespace, 8944, ("50m", "200Mi"), ("200m", "500Mi")),
    ]


def _deployment(
    name: str, image: str, tag: str, namespace: str, port: int, requests: tuple[str, str], limits: tuple[str, str]
) -> Json:
    program = name.removeprefix("vpa-")
    labels = {"app": name}
    probe = {
        "httpGet": {"path": "/health-check", "port": "prometheus", "scheme": "HTTP"},
        "periodSeconds": 10,
        "failureThreshold": 3,
    }
    ports: list[Json] = [{"name": "prometheus", "containerPort": port}]
    if name == ADMISSION:
        ports.insert(0, {"containerPort": 8000})
    container: Json = {
        "name": program,
        "image": f"{image.format(name=name)}:{tag}",
        "imagePullPolicy": "IfNotPresent",
        "args": ["vpa", program, "--v=4"],
        "resources": {
            "requests": dict(zip(("cpu", "memory"), requests, strict=True)),
            "limits": dict(zip(("cpu", "memory"), limits, strict=True)),
        },
        "ports": ports,
        "livenessProbe": {**probe, "initialDelaySeconds": 5},
        "readinessProbe": probe,
    }
    if name != RECOMMENDER:
        field = {"fieldRef": {"fieldPath": "metadata.namespace"}}
        container["env"] = [{"name": "NAMESPACE", "valueFrom": field}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "labels": {
                        **labels,
                        "app.kubernetes.io/component": program,
                        "app.kubernetes.io/name": "vertical-pod-autoscaler",
                    }
                },
                "spec": {
                    "serviceAccountName": name,
                    "securityContext": {"runAsNonRoot": True, "runAsUser": 65534},
                    "containers": [container],
                },
            },
        },
    }


def _service(namespace: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": namespace},
        "spec": {"ports": [{"port": 443, "targetPort": 8000}], "selector": {"app": ADMISSION}},
    }


def leftovers() -> list[tuple[Resource, str]]:
    """What the programs create themselves, the webhook first: to be deleted when they are uninstalled."""
    leases = ("vpa-admission-controller", "vpa-recommender-lease", "vpa-updater")
    return [(WEBHOOKS, CONFIGURATION), (SECRETS, SECRET), *((LEASES, name) for name in leases)]
