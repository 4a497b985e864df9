"""What objects cost quotas: names, amounts and scopes."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.lab.apiserver.kinds.admission.quota_usage import charges, covers


def shown(kind: str, spec: dict[str, Any], **more: Any) -> dict[str, str]:
    return {name: str(taken) for name, taken in charges(kind, {"spec": spec, **more}).items()}


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


def test_a_claim_is_charged_to_its_class_as_well() -> None:
    spec = {"storageClassName": "gp3", "resources": {"requests": {"storage": "4Gi"}}}
    assert shown("persistentvolumeclaims", spec) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "4Gi",
        "gp3.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gp3.storageclass.storage.k8s.io/requests.storage": "4Gi",
    }


def test_a_pod_is_charged_for_its_hungriest_moment_and_its_overhead() -> None:
    spec = {
        "initContainers": [container("200m", restartPolicy="Always"), container("1")],
        "containers": [container("100m"), container("300m")],
        "overhead": {"cpu": "10m"},
    }
    assert shown("pods", spec)["requests.cpu"] == "1210m"
    assert shown("pods", spec, status={"phase": "Succeeded"}) == {"count/pods": "1"}


def test_what_a_pod_says_for_all_its_containers_counts() -> None:
    spec = {"containers": [container("100m")], "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}}
    taken = shown("pods", spec)
    assert (taken["cpu"], taken["limits.memory"]) == ("2", "1Gi")


def test_a_balanced_service_takes_ports_of_the_nodes() -> None:
    taken = shown("services", {"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 81}]})
    assert (taken["services.loadbalancers"], taken["services.nodeports"]) == ("1", "2")


@pytest.mark.parametrize(
    ("scope", "spec", "expected"),
    [
        ("Terminating", {"activeDeadlineSeconds": 5}, True),
        ("NotTerminating", {"activeDeadlineSeconds": 5}, False),
        ("BestEffort", {"containers": [{"name": "c"}]}, True),
        ("NotBestEffort", {"containers": [{"name": "c"}]}, False),
        ("PriorityClass", {"priorityClassName": "high"}, True),
        ("PriorityClass", {}, False),
        ("CrossNamespacePodAffinity", {"affinity": {}}, False),
    ],
)
def test_a_quota_with_a_scope_is_for_the_pods_in_it(scope: str, spec: dict[str, Any], expected: bool) -> None:
    quota = {"spec": {"scopes": [scope]}}
    assert covers(quota, "pods", {"spec": spec}) is expected
    assert not covers(quota, "services", {"spec": {}})


def test_a_scope_may_name_the_classes_it_means() -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    quota = {"spec": {"scopeSelector": {"matchExpressions": [expression]}}}
    assert covers(quota, "pods", {"spec": {"priorityClassName": "high"}})
    assert not covers(quota, "pods", {"spec": {"priorityClassName": "low"}})
