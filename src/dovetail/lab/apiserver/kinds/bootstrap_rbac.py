"""Roles, flow schemas and API services as every cluster has them: nothing here depends on them, but users list them.

A lab that people type into has them; a simulation does without.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.lab.apiserver import managedfields
from dovetail.lab.apiserver.kinds.bootstrap import MANAGER, Host
from dovetail.lab.apiserver.kinds.types import packaged


def seed_defaults(host: Host, now: datetime) -> None:
    """Create what is missing of them."""
    instant = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = packaged("defaults.json")
    for group, plural, obj in (*rows, _token_tracking(now), _identity(now)):
        resource = host.registry.stored(group, plural)
        metadata = obj["metadata"]
        if resource is None or host.cluster.get(group, plural, metadata.get("namespace"), metadata["name"]) is not None:
            continue
        for condition in obj.get("status", {}).get("conditions", ()):
            condition["lastTransitionTime"] = instant
        managedfields.track_create(resource, obj, MANAGER, now)
        host.cluster.create(group, plural, obj)


def _token_tracking(now: datetime) -> tuple[str, str, dict[str, Any]]:
    """Since when the use of old tokens is noted."""
    name = {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"}
    data = {"since": now.strftime("%Y-%m-%d")}
    return "", "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}


def _identity(now: datetime) -> tuple[str, str, dict[str, Any]]:
    """The server's own lease: there is one server, so it has one name."""
    name = "apiserver-dovetaildovetaildovetailda"
    spec = {
        "holderIdentity": f"{name}_00000000-0000-4000-8000-000000000000",
        "leaseDurationSeconds": 3600,
        "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "dovetail"}
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    return "coordination.k8s.io", "leases", body
