"""The fast lane of large simulations: shorter, and nobody can tell by the pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from living_manifests import deployment

from dovetail.kube.errors import Conflict
from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, NAMESPACES, NODES, PODS
from dovetail.lab.cluster import Parts
from dovetail.lab.kubelet.fleet import Pace

Run = Callable[..., None]
LEAN = Parts(quiet=True, faults=False, pace=Pace(lean=True, heartbeat_seconds=None, grid_seconds=0.5))


def _shape(pod: dict[str, Any]) -> Any:
    """What does not vary between two pods of one template."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    conditions = [(each["type"], each["status"]) for each in pod["status"]["conditions"]]
    labels = {key: value for key, value in pod["metadata"]["labels"].items() if "topology" not in key}
    return spec, conditions, labels, pod["status"]["phase"], pod["metadata"]["ownerReferences"][0]["kind"]


def test_copied_pods_are_like_the_one_the_server_made(lab_run: Run) -> None:
    shapes: list[Any] = []

    async def body(living: Any) -> None:
        await living.kube.create(DEPLOYMENTS, deployment(replicas=6))
        await living.available("web", 6)
        shapes.extend(_shape(pod) for pod in await living.pods("web"))

    lab_run(body, parts=LEAN)
    lab_run(body)
    assert len(shapes) == 12
    assert all(shape == shapes[0] for shape in shapes)


def test_scaling_down_and_deleting_leaves_nothing(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        await living.kube.create(DEPLOYMENTS, deployment(replicas=8))
        await living.available("web", 8)
        await living.kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "default")
        await asyncio.sleep(60)
        assert len(await living.pods("web")) == 3
        await living.kube.delete(DEPLOYMENTS, "web", "default", propagation="Background")
        await asyncio.sleep(60)
        assert await living.pods("web") == []

    lab_run(body, parts=LEAN)


def test_a_namespace_that_goes_takes_no_copies_any_more(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        await living.kube.create(NAMESPACES, {"metadata": {"name": "x"}})
        item = deployment(replicas=4)
        item["metadata"]["namespace"] = "x"
        await living.kube.create(DEPLOYMENTS, item)
        await asyncio.sleep(20)
        await living.kube.delete(NAMESPACES, "x")
        await asyncio.sleep(60)
        assert (await living.kube.list(PODS, "x")).items == []

    lab_run(body, parts=LEAN)


def test_who_finds_no_place_is_told_the_same(lab_run: Run) -> None:
    found: list[Any] = []

    async def body(living: Any) -> None:
        item = deployment(replicas=1)
        item["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500"}}
        await living.kube.create(DEPLOYMENTS, item)
        await asyncio.sleep(30)
        (pod,) = await living.pods("web")
        events = (await living.kube.list(CORE_EVENTS, "default", fields="reason=FailedScheduling")).items
        (event,) = [each for each in events if each["involvedObject"]["name"] == pod["metadata"]["name"]]
        unlike = {"metadata", "involvedObject"}
        found.append((pod["status"], {key: value for key, value in event.items() if key not in unlike}))

    lab_run(body, parts=LEAN)
    lab_run(body, parts=msgspec.structs.replace(LEAN, faults=True))
    assert found[0] == found[1]


def test_a_patched_machine_is_as_the_server_would_leave_it(lab_run: Run) -> None:
    found: list[Any] = []

    async def body(living: Any) -> None:
        (node, *_) = (await living.kube.list(NODES)).items
        name, version = node["metadata"]["name"], node["metadata"]["resourceVersion"]
        taint = {"key": "a", "effect": "NoSchedule"}
        change = {"metadata": {"resourceVersion": version, "labels": {"a": "b"}}, "spec": {"taints": [taint]}}
        first = await living.kube.patch(NODES, name, change)
        with pytest.raises(Conflict):
            await living.kube.patch(NODES, name, change)
        again = await living.kube.patch(NODES, name, {"metadata": {"labels": {"a": "b"}}})
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        gone = await living.kube.patch(NODES, name, {"metadata": {"labels": {"a": None}}, "spec": {"taints": None}})
        unlike = {"uid", "resourceVersion", "creationTimestamp", "managedFields"}
        for each in (first, gone):
            metadata = {key: value for key, value in each["metadata"].items() if key not in unlike}
            found.append((metadata, each["spec"]))

    lab_run(body, parts=LEAN)
    lab_run(body)
    assert found[:2] == found[2:]
