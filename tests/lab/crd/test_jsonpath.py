"""Paths of printer columns."""

from __future__ import annotations

import pytest

from dovetail.lab.apiserver.crd.jsonpath import compile_path

DOCUMENT = {
    "spec": {"n": 1, "a.b": "dotted"},
    "metadata": {"labels": {"karpenter.sh/nodepool": "default"}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Drifted", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.n", [1]),
        (".spec.missing", []),
        (".spec['a.b']", ["dotted"]),
        (".spec.a\\.b", ["dotted"]),
        (".metadata.labels.karpenter\\.sh/nodepool", ["default"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Gone')].status", []),
        (".status.conditions[1].type", ["Drifted"]),
        (".status.conditions[*].type", ["Ready", "Drifted"]),
    ],
)
def test_a_path_finds_its_values(path: str, values: list[object]) -> None:
    assert compile_path(path)(DOCUMENT) == values
