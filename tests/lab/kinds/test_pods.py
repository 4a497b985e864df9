"""What the lab's controllers rely on: defaults, binding, eviction, quality of service."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.lab.apiserver.kinds.pod.defaults import pull_policy
from dovetail.lab.apiserver.kinds.pod.qos import qos_class

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
def test_only_the_latest_image_is_always_pulled(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1000m", "memory": "1024Mi"}}, "Guaranteed"),
        ({"limits": {"example.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_the_class_of_a_pod_is_what_it_asked_for(resources: dict[str, Any], expected: str) -> None:
    assert qos_class({"containers": [{"resources": resources}]}) == expected


def test_a_pod_is_bound_once(api: Any) -> None:
    api("POST", PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert api("POST", f"{PODS}/p/binding", target)[0] == 201
    code, refused, _ = api("POST", f"{PODS}/p/binding", target)
    assert (code, refused["details"]["kind"]) == (409, "pods/binding")
    _, pod, _ = api("GET", f"{PODS}/p")
    assert pod["spec"]["nodeName"] == "n"
    assert pod["status"]["conditions"][0] | {"lastTransitionTime": ""} == {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": "",
    }


def test_a_new_cluster_has_its_namespaces_and_priorities(api: Any) -> None:
    _, spaces, _ = api("GET", "/api/v1/namespaces")
    assert [n["metadata"]["name"] for n in spaces["items"]] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    assert api("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")[1]["value"] == 2000001000
    assert api("GET", "/api/v1/namespaces/default/services/kubernetes")[1]["spec"]["clusterIP"] == "10.96.0.1"
