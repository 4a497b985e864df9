"""Kinds that nothing in the lab reads are defaulted, stored and checked by their schema alone."""

from __future__ import annotations

from typing import Any

import pytest

INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"


@pytest.mark.parametrize(
    ("path", "obj"),
    [
        (INGRESSES, {"metadata": {"name": "a"}, "spec": {}}),
        (POLICIES, {"metadata": {"name": "a"}, "spec": {"ingress": [{"from": [{}]}]}}),
        ("/apis/networking.k8s.io/v1/ingressclasses", {"metadata": {"name": "a"}, "spec": {"controller": "a"}}),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "a"}, "handler": "A_"}),
        ("/api/v1/namespaces/default/endpoints", {"metadata": {"name": "a"}, "subsets": [{}]}),
    ],
)
def test_a_value_that_its_schema_allows_is_stored(api: Any, path: str, obj: dict[str, Any]) -> None:
    code, answer, _ = api("POST", path, obj)
    assert (code, answer["metadata"]["name"]) == (201, "a")
    assert api("DELETE", f"{path}/a", None)[0] == 200


def test_the_schema_and_the_names_are_checked(api: Any) -> None:
    code, answer, _ = api("POST", INGRESSES, {"metadata": {"name": "a"}, "spec": {"rules": "none"}})
    assert code == 400 and "rules" in answer["message"]
    code, answer, _ = api("POST", INGRESSES, {"metadata": {"name": "A"}, "spec": {}})
    assert code == 422 and "metadata.name" in answer["message"]


def test_defaults_are_filled_in(api: Any) -> None:
    code, answer, _ = api("POST", POLICIES, {"metadata": {"name": "defaults"}, "spec": {"egress": [{}]}})
    assert (code, answer["spec"]["policyTypes"]) == (201, ["Ingress", "Egress"])
