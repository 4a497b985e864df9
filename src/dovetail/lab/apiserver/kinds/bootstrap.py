"""The objects a new cluster has."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from dovetail.lab.apiserver import managedfields
from dovetail.lab.apiserver.kinds.services import NETWORK
from dovetail.lab.apiserver.registry import Registry, StoredObjects

MANAGER = "kube-apiserver"
_PRIORITIES = (
    (
        "system-node-critical",
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)
_KUBERNETES = {"name": "kubernetes", "namespace": "default"}
#: Where the cluster finds its own API server; pods could not reach a loopback, so an address for documentation.
_ADDRESS = "192.0.2.1"


class Host(Protocol):
    """The part of the server that seeding needs."""

    registry: Registry

    @property
    def cluster(self) -> StoredObjects: ...


def _objects() -> list[tuple[str, str, dict[str, Any]]]:
    objects: list[tuple[str, str, dict[str, Any]]] = []
    for name in ("kube-system", "kube-public", "kube-node-lease", "default"):
        spec = {"finalizers": ["kubernetes"]}
        objects.append(("", "namespaces", {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Active"}}))
    for name, value, text in _PRIORITIES:
        meta = {"name": name, "generation": 1}
        objects.append(
            ("scheduling.k8s.io", "priorityclasses", {"metadata": meta, "value": value, "description": text})
        )
    address = str(NETWORK[1])
    service = {
        "metadata": {
            **_KUBERNETES,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "clusterIP": address,
            "clusterIPs": [address],
            "type": "ClusterIP",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        },
        "status": {"loadBalancer": {}},
    }
    objects.append(("", "services", service))
    port = {"name": "https", "port": 6443, "protocol": "TCP"}
    endpoints = {
        "metadata": {**_KUBERNETES, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": _ADDRESS}], "ports": [port]}],
    }
    piece = {
        "metadata": {**_KUBERNETES, "generation": 1, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [_ADDRESS], "conditions": {"ready": True}}],
        "ports": [port],
    }
    return [*objects, ("", "endpoints", endpoints), ("discovery.k8s.io", "endpointslices", piece)]


#: What the server creates itself, without managed fields.
_ALLOCATED = frozenset(("finalizers", "clusterIPs", "ipFamilies"))


def seed(host: Host, now: datetime) -> None:
    """Create what is missing of it; a cluster that was restored keeps what it had."""
    if host.cluster.get("", "namespaces", None, "default") is not None:
        return
    for group, plural, obj in _objects():
        resource = host.registry.stored(group, plural)
        if resource is None:
            continue
        resource.strategy.default(obj)
        spec = obj.get("spec")
        if spec is not None:
            obj["spec"] = {name: item for name, item in spec.items() if name not in _ALLOCATED}
        managedfields.track_create(resource, obj, MANAGER, now)
        if spec is not None:
            obj["spec"] = spec
        host.cluster.create(group, plural, obj)
