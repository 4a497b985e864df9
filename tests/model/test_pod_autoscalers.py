"""HPA and VPA on one workload: when they move against each other."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.controllers import explain
from dovetail.model.pod_autoscalers import conflicting_resources

Json = dict[str, Any]
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def hpa(target: Json, resource: str = "cpu", kind: str = "resource") -> Json:
    metric = {"type": "Resource", kind: {"name": resource, "target": target}}
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": 5, "metrics": [metric]},
    }


def vpa(policies: Any = None, mode: str = "Recreate", name: str = "web") -> Json:
    spec: Json = {"targetRef": {**TARGET, "name": name}, "updatePolicy": {"updateMode": mode}}
    if policies is not None:
        spec["resourcePolicy"] = {"containerPolicies": policies}
    return {"kind": "VerticalPodAutoscaler", "metadata": {"name": "web-vpa", "namespace": "shop"}, "spec": spec}


HALF: Json = {"type": "Utilization", "averageUtilization": 50}


@pytest.mark.parametrize(
    ("horizontal", "vertical", "shared"),
    [
        (hpa(HALF), vpa(), ("cpu",)),
        (hpa(HALF, "memory"), vpa(), ("memory",)),
        (hpa(HALF, kind="containerResource"), vpa(), ("cpu",)),
        (hpa({"type": "AverageValue", "averageValue": "200m"}), vpa(), ()),
        (hpa(HALF), vpa(mode="Off"), ()),
        (hpa(HALF), vpa(mode="Initial"), ("cpu",)),
        (hpa(HALF), vpa(name="api"), ()),
        (hpa(HALF), vpa([{"containerName": "*", "controlledResources": ["memory"]}]), ()),
        (hpa(HALF), vpa([{"containerName": "*", "mode": "Off"}]), ()),
        (hpa(HALF), vpa([{"containerName": "app", "controlledResources": ["memory"]}]), ("cpu",)),
    ],
)
def test_a_percentage_of_requests_that_a_vpa_changes_is_a_conflict(
    horizontal: Json, vertical: Json, shared: tuple[str, ...]
) -> None:
    assert conflicting_resources(horizontal, vertical) == shared


def test_explain_names_the_other_autoscaler() -> None:
    about_hpa = explain.hpa(hpa(HALF), vpas=[vpa(mode="Off"), vpa()])
    assert "it moves against vpa/shop/web-vpa: the HPA holds a percentage of the cpu requests" in about_hpa.line
    assert "averageValue" in about_hpa.remedy
    about_vpa = explain.vpa(vpa(), hpas=[hpa(HALF)])
    assert "it moves against hpa/shop/web" in about_vpa.line
    assert "moves against" not in explain.vpa(vpa(), hpas=[hpa(HALF, "ephemeral")]).line


def test_explain_does_not_need_the_kind_that_lists_leave_out() -> None:
    """An item of a list says no kind: an HPA without one is no VPA, and another workload's VPA is none of its own."""
    listed_hpa, listed_vpa, unrelated = hpa(HALF), vpa(), vpa(name="api")
    for obj in (listed_hpa, listed_vpa, unrelated):
        del obj["kind"]
    assert "it moves against vpa/shop/web-vpa" in explain.hpa(listed_hpa, vpas=[listed_vpa]).line
    assert "it moves against hpa/shop/web" in explain.vpa(listed_vpa, hpas=[listed_hpa]).line
    assert "moves against" not in explain.hpa(listed_hpa, vpas=[unrelated]).line


@pytest.mark.parametrize("odd", ["x", 5, [], [None], {"a": "b"}, None, True])
def test_a_field_of_the_wrong_type_counts_as_absent(odd: object) -> None:
    """Lint reads manifests before any schema has."""
    for field in ("scaleTargetRef", "targetRef", "metrics", "updatePolicy", "resourcePolicy"):
        obj = {"metadata": odd, "spec": {field: odd}}
        assert conflicting_resources(obj, obj) in ((), ("cpu",))
    deep = {
        "spec": {
            "metrics": [{"resource": odd}],
            "resourcePolicy": {"containerPolicies": [{"controlledResources": odd}]},
        }
    }
    assert conflicting_resources(deep, deep) in ((), ("cpu",))
