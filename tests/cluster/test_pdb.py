"""Which PodDisruptionBudgets select a pod."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.cluster.pdb import PdbIndex
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget


def budget(name: str, selector: dict[str, Any] | None, namespace: str = "default") -> PodDisruptionBudget:
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector} if selector else {}}
    return msgspec.convert(body, PodDisruptionBudget)


def pod(namespace: str = "default", **labels: str) -> Pod:
    return msgspec.convert({"metadata": {"name": "p", "namespace": namespace, "labels": labels}}, Pod)


def test_a_pod_has_the_pdbs_of_its_namespace_that_select_it() -> None:
    web = {"matchLabels": {"app": "web"}}
    pdbs = PdbIndex([budget("one", web), budget("two", web, "other"), budget("none", None), budget("all", {"x": {}})])
    assert [each.metadata.name for each in pdbs.of(pod(app="web"))] == ["one", "all"]
    assert [each.metadata.name for each in pdbs.of(pod(app="db"))] == ["all"]
    assert [each.metadata.name for each in pdbs.of(pod("other", app="web"))] == ["two"]
    assert pdbs.of(pod("elsewhere", app="web")) == ()


def test_labels_that_are_shared_across_namespaces_are_not_mixed_up() -> None:
    web = {"matchLabels": {"app": "web"}}
    pdbs = PdbIndex([budget("one", web), budget("two", web, "other")])
    here = pod(app="web")
    there = msgspec.structs.replace(here, metadata=msgspec.structs.replace(here.metadata, namespace="other"))
    assert [pdbs.of(each)[0].metadata.name for each in (here, there, here)] == ["one", "two", "one"]
