"""What is recorded of an object: what planners and pages read, and nothing that may be secret.

Environment variables, commands, arguments, user data and annotations of other tools are left out, as is what changes
without meaning anything: resourceVersion, managedFields, heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
)
#: Domains of annotations that decide something about scheduling, scaling or disruption.
_ANNOTATION_DOMAINS = (
    "dovetail.sh",
    "eks.amazonaws.com",
    "k8s.io",
    "karpenter.k8s.aws",
    "karpenter.sh",
    "kubernetes.io",
)
_NEVER_KEPT_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
_POD_SPEC = (
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "overhead",
    "resources",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "schedulerName",
    "schedulingGates",
    "readinessGates",
    "resourceClaims",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "activeDeadlineSeconds",
    "hostNetwork",
    "serviceAccountName",
    "runtimeClassName",
)
_CONTAINER = ("name", "image", "resources", "ports", "restartPolicy", "resizePolicy")
#: Volumes that limit where a pod runs; of the others only the name and kind stay.
_VOLUMES = ("persistentVolumeClaim", "ephemeral", "awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd")
_NAMED_VOLUMES = {"csi": ("driver",), "emptyDir": ("medium", "sizeLimit"), "hostPath": ()}
_POD_STATUS = (
    "phase",
    "reason",
    "message",
    "nominatedNodeName",
    "startTime",
    "qosClass",
    "allocatedResources",
    "resources",
    "resize",
)
_CONTAINER_STATUS = (
    "name",
    "ready",
    "started",
    "restartCount",
    "state",
    "lastState",
    "allocatedResources",
    "resources",
)
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")
_NODE_STATUS = ("capacity", "allocatable", "addresses", "phase")
_NODE_INFO = ("architecture", "operatingSystem", "osImage", "kubeletVersion", "bootID")
#: Where the pod of a workload is described.
_TEMPLATES = {
    "Deployment": ("spec",),
    "ReplicaSet": ("spec",),
    "StatefulSet": ("spec",),
    "DaemonSet": ("spec",),
    "ReplicationController": ("spec",),
    "Job": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec"),
}
#: Fields of a spec that may hold secrets and decide nothing here.
_SECRET_SPEC = {"EC2NodeClass": ("userData",), "AWSNodeTemplate": ("userData",)}


def kept(source: Json) -> Json:
    """The part of an object that is recorded. The object itself is not changed."""
    kind = source["kind"]
    kept: Json = {"apiVersion": source["apiVersion"], "kind": kind, "metadata": _metadata(source["metadata"])}
    for field, value in source.items():
        if field not in kept and value is not None:
            kept[field] = value
    if kind == "Pod":
        kept["spec"] = _pod_spec(source.get("spec") or {})
        kept["status"] = _pod_status(source.get("status") or {})
    elif kind == "Node":
        kept["status"] = _node_status(source.get("status") or {})
    elif kind in _TEMPLATES:
        kept["spec"] = _with_template(source.get("spec") or {}, _TEMPLATES[kind][1:])
    elif kind in _SECRET_SPEC:
        kept["spec"] = {k: v for k, v in (source.get("spec") or {}).items() if k not in _SECRET_SPEC[kind]}
    return kept


def _chosen(source: Json, fields: Iterable[str]) -> Json:
    return {field: source[field] for field in fields if source.get(field) is not None}


def _metadata(source: Json) -> Json:
    kept = _chosen(source, _METADATA)
    annotations = {key: value for key, value in (source.get("annotations") or {}).items() if _is_kept(key)}
    if annotations:
        kept["annotations"] = annotations
    else:
        kept.pop("annotations", None)
    return kept


def _is_kept(annotation: str) -> bool:
    domain = annotation.rpartition("/")[0]
    in_kept_domain = any(
        domain == kept_domain or domain.endswith(f".{kept_domain}") for kept_domain in _ANNOTATION_DOMAINS
    )
    return in_kept_domain and annotation not in _NEVER_KEPT_ANNOTATIONS


def _pod_spec(source: Json) -> Json:
    kept = _chosen(source, _POD_SPEC)
    for group in ("initContainers", "containers"):
        if source.get(group):
            kept[group] = [_chosen(container, _CONTAINER) for container in source[group]]
    volumes = [
        volume for source_volume in source.get("volumes") or () if (volume := _volume(source_volume)) is not None
    ]
    if volumes:
        kept["volumes"] = volumes
    return kept


def _volume(source: Json) -> Json | None:
    for kind in _VOLUMES:
        if source.get(kind) is not None:
            return {"name": source["name"], kind: source[kind]}
    for kind, fields in _NAMED_VOLUMES.items():
        if source.get(kind) is not None:
            return {"name": source["name"], kind: _chosen(source[kind], fields)}
    return None


def _pod_status(source: Json) -> Json:
    kept = _chosen(source, _POD_STATUS)
    if source.get("conditions"):
        kept["conditions"] = _conditions(source["conditions"])
    for group in ("initContainerStatuses", "containerStatuses"):
        if source.get(group):
            kept[group] = [_container_status(status) for status in source[group]]
    return kept


def _container_status(source: Json) -> Json:
    kept = _chosen(source, _CONTAINER_STATUS)
    for field in ("state", "lastState"):
        if field in kept:
            kept[field] = {
                state: {key: value for key, value in detail.items() if key not in ("containerID", "message")}
                for state, detail in kept[field].items()
                if isinstance(detail, dict)
            }
    return kept


def _conditions(source: Iterable[Json]) -> list[Json]:
    return [_chosen(condition, _CONDITION) for condition in source]


def _node_status(source: Json) -> Json:
    kept = _chosen(source, _NODE_STATUS)
    if source.get("conditions"):
        kept["conditions"] = _conditions(source["conditions"])
    if source.get("nodeInfo"):
        kept["nodeInfo"] = _chosen(source["nodeInfo"], _NODE_INFO)
    return kept


def _with_template(source: Json, path: tuple[str, ...]) -> Json:
    kept = dict(source)
    if path:
        kept[path[0]] = _with_template(source.get(path[0]) or {}, path[1:])
        return kept
    template = source.get("template")
    if template:
        metadata = template.get("metadata")
        kept["template"] = {"metadata": _metadata(metadata)} if metadata else {}
        kept["template"]["spec"] = _pod_spec(template.get("spec") or {})
    return kept
