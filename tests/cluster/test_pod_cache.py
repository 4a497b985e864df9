"""The pod cache: everything a decision reads, nothing else, and the same object while that is the same."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.cluster.pod_cache import PodTransform
from dovetail.model.nodes import Node
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod


def _pod(name: str = "a", version: str = "1", **status: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "resourceVersion": version,
                "labels": {"app": "web"},
                "annotations": {"karpenter.sh/do-not-disrupt": "true", "kubectl.kubernetes.io/last-applied": "x" * 999},
            },
            "spec": {
                "containers": [
                    {
                        "name": "c",
                        "image": "pause",
                        "command": ["sleep", "9999"],
                        "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}},
                        "volumeMounts": [{"name": "kube-api-access-x7h2k", "mountPath": "/var/run"}],
                    }
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "volumes": [
                    {"name": "kube-api-access-x7h2k", "projected": {}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                ],
            },
            "status": {"phase": "Pending", **status},
        },
        Pod,
    )


def test_what_decisions_read_is_kept() -> None:
    full = _pod()
    slim = PodTransform().keep(full, None)
    assert requests(slim) == requests(full)
    assert slim.metadata.labels == {"app": "web"}
    assert dict(slim.metadata.annotations) == {"karpenter.sh/do-not-disrupt": "true"}
    assert [volume.name for volume in slim.spec.volumes] == ["data"]
    assert slim.spec.containers[0].command == ()


def test_pods_of_one_template_share_their_parts() -> None:
    pod_transform = PodTransform()
    one, other = pod_transform.keep(_pod("a"), None), pod_transform.keep(_pod("b"), None)
    assert one.spec.containers is other.spec.containers
    assert one.spec.tolerations is other.spec.tolerations
    assert one.metadata.labels is other.metadata.labels


def test_a_status_that_no_decision_reads_leaves_the_pod_the_same_object() -> None:
    pod_transform = PodTransform()
    old = pod_transform.keep(_pod(), None)
    assert pod_transform.keep(_pod(version="2", qosClass="Burstable", podIP="10.0.0.1"), old) is old
    assert pod_transform.keep(_pod(version="3", phase="Running"), old) is not old


def test_a_resize_in_place_is_kept() -> None:
    containers = [{"name": "c", "allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}}]
    full = _pod(containerStatuses=containers)
    assert requests(PodTransform().keep(full, None)) == requests(full)


def test_what_is_kept_of_a_pod_does_not_depend_on_earlier_pods() -> None:
    full = [_pod("a"), _pod("b", phase="Running"), _pod("c"), _pod("d", phase="Running", podIP="10.0.0.9")]
    for index in (1, 2):
        container = msgspec.structs.replace(full[index].spec.containers[0], image=f"image-{index}")
        spec = msgspec.structs.replace(full[index].spec, containers=(container,))
        full[index] = msgspec.structs.replace(full[index], spec=spec)
    pod_transform = PodTransform()
    kept = [pod_transform.keep(pod, None) for pod in (*full, *reversed(full))]
    assert kept == [PodTransform().keep(pod, None) for pod in (*full, *reversed(full))]


def test_pods_of_equal_status_share_it() -> None:
    pod_transform = PodTransform()
    one, other = (pod_transform.keep(_pod(name, phase="Running", podIP=f"10.0.0.{name}"), None) for name in ("1", "2"))
    assert one.status is other.status


def test_a_kept_node_has_no_images_shares_its_sizes_and_survives_heartbeats() -> None:
    """Images are most of what a kubelet reports, and no decision reads them."""

    def node(name: str, beat: str) -> Node:
        body = {
            "metadata": {"name": name, "labels": {"kubernetes.io/arch": "amd64"}},
            "status": {
                "capacity": {"cpu": "8"},
                "allocatable": {"cpu": "7910m"},
                "images": [{"names": ["registry.example.com/a:1"], "sizeBytes": 1}],
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": beat}],
            },
        }
        return msgspec.convert(body, Node)

    pod_transform = PodTransform()
    first = pod_transform.keep_node(node("a", "2026-01-01T00:00:00Z"), None)
    second = pod_transform.keep_node(node("b", "2026-01-01T00:00:00Z"), None)
    assert first.status.images == () and first.ready
    assert first.status.allocatable == {"cpu": "7910m"}
    assert first.status.capacity is second.status.capacity
    assert pod_transform.keep_node(node("a", "2026-01-01T00:05:00Z"), first) is first
