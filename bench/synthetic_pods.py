"""Pods as a busy cluster has them, some 4 kB each, for the benchmarks of the client and the server."""

from __future__ import annotations

from typing import Any


def plain(number: int, namespace: str = "bench") -> dict[str, Any]:
    """A pod as `kubectl run` makes it."""
    box = {"name": "app", "image": "nginx:1", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    return {
        "metadata": {"name": f"pod-{number:06d}", "namespace": namespace, "labels": {"run": f"app-{number % 50}"}},
        "spec": {"containers": [box]},
    }


def pod(number: int, namespace: str = "bench") -> dict[str, Any]:
    app = f"app-{number % 50}"
    return {
        "metadata": {
            "name": f"{app}-7d9c5b6f4-{number:05d}",
            "namespace": namespace,
            "labels": {"app": app, "pod-template-hash": "7d9c5b6f4", "team": f"team-{number % 7}"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": f"{number:064x}"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{app}-7d9c5b6f4",
                    "uid": f"00000000-0000-4000-8000-{number % 50:012d}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "containers": [_container("main", number), _container("sidecar", number)],
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            ],
            "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": app}}],
        },
    }


def _container(name: str, number: int) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "initialDelaySeconds": 5, "periodSeconds": 10}
    return {
        "name": name,
        "image": f"registry.example.com/team/{name}:1.{number % 9}.0",
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(6)],
        "ports": [{"containerPort": 8080, "name": f"{name[:4]}-http"}],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        "readinessProbe": probe,
        "livenessProbe": probe,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "config", "mountPath": "/etc/app"}],
    }


def _entry(manager: str, fields: dict[str, Any]) -> dict[str, Any]:
    stamp = {"operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z"}
    return {"manager": manager, **stamp, "fieldsType": "FieldsV1", "fieldsV1": fields}


def served(number: int) -> dict[str, Any]:
    """The pod as a server gives it back: identity, ownership of fields, status."""
    made = pod(number)
    uid = f"10000000-0000-4000-8000-{number:012d}"
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}}}},
    }
    made["metadata"] |= {
        "uid": uid,
        "resourceVersion": str(1000 + number),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [_entry(manager, fields) for manager in ("kube-controller-manager", "kubelet")],
    }
    made["spec"] |= {
        "nodeName": f"node-{number % 500}",
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
    }
    made["status"] = {
        "phase": "Running",
        "podIP": f"10.0.{number // 256 % 256}.{number % 256}",
        "startTime": "2026-01-01T00:00:05Z",
        "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled", "Initialized")],
        "containerStatuses": [
            {"name": name, "image": "x", "imageID": "x", "ready": True, "restartCount": 0, "state": {"running": {}}}
            for name in ("main", "sidecar")
        ],
    }
    return made
