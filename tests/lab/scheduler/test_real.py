"""The running kube-scheduler is the judge: the same clusters on a real control plane, the same places and words."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import (
    CORE_EVENTS,
    NODES,
    PODS,
    PRIORITYCLASSES,
    REPLICASETS,
    SERVICES,
    Resource,
)
from dovetail.kube.resources import (
    NAMESPACES as NAMESPACE,
)
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.real_control_plane import RealControlPlane
from tests.lab.scheduler.scheduler_answers import answer
from tests.lab.scheduler.scheduler_cases import NAMESPACES, Cases

Json = dict[str, Any]
CASES = 60


def plain(case: Json) -> Json:
    """The case as an API server would hold it: no made-up times, priorities by class."""
    found = copy.deepcopy(case)
    for node in found["nodes"]:
        taints = {(each["key"], each["effect"]): each for each in node["spec"].get("taints", ())}
        node["spec"]["taints"] = list(taints.values())
    for pod in (*found["pods"], found["pending"]):
        for field in ("deletionTimestamp", "finalizers", "ownerReferences"):
            pod["metadata"].pop(field, None)
        for field in ("preemptionPolicy", "overhead", "resources"):
            pod["spec"].pop(field, None)
        for container in (*pod["spec"]["containers"][1:], *pod["spec"].get("initContainers", ())):
            container.pop("ports", None)
        pod["status"].pop("startTime", None)
    return found


def manifest(pod: Json, suffix: str) -> Json:
    made = copy.deepcopy(pod)
    made["metadata"] = {"name": f"{pod['metadata']['name']}-{suffix}", "labels": pod["metadata"]["labels"]}
    priority = made["spec"].pop("priority", 0)
    made["spec"]["priorityClassName"] = f"p{priority}".replace("-", "minus")
    made["spec"]["terminationGracePeriodSeconds"] = 0
    made.pop("status")
    return made


async def prepare(kube: Kube) -> None:
    bodies: list[tuple[Resource, Json]] = [(NAMESPACE, each) for each in NAMESPACES]  # type: ignore[misc]
    for value in (-5, 0, 10, 100):
        bodies.append((PRIORITYCLASSES, {"metadata": {"name": f"p{value}".replace("-", "minus")}, "value": value}))
    for resource, body in bodies:
        try:
            await kube.create(resource, body)
        except AlreadyExists:
            await kube.patch(resource, body["metadata"]["name"], {"metadata": body["metadata"]})


async def post(kube: Kube, case: Json, at: int) -> None:
    for node in case["nodes"]:
        name = node["metadata"]["name"]
        await kube.create(NODES, node | {"metadata": {"name": name, "labels": node["metadata"]["labels"]}})
        await kube.patch(NODES, name, {"spec": {"taints": node["spec"].get("taints")}})
    for resource, key in ((SERVICES, "services"), (REPLICASETS, "replicaSets")):
        for each in case[key]:
            body = {"metadata": {"name": each["metadata"]["name"]}, "spec": copy.deepcopy(each["spec"])}
            if resource is SERVICES:
                body["spec"]["ports"] = [{"port": 80}]
            else:
                body["spec"] |= {"replicas": 0}
                body["spec"]["template"]["spec"] = {"containers": [{"name": "c", "image": "x"}]}
            await kube.create(resource, body, each["metadata"]["namespace"])
    for pod in case["pods"]:
        await kube.create(PODS, manifest(pod, str(at)), pod["metadata"]["namespace"])
    await asyncio.sleep(0.3)
    await kube.create(PODS, manifest(case["pending"], str(at)), case["pending"]["metadata"]["namespace"])


async def kube_scheduler_answer(kube: Kube, case: Json, at: int) -> tuple[str | None, str | None]:
    name, namespace = f"pending-{at}", case["pending"]["metadata"]["namespace"]
    for _ in range(100):
        for event in (await kube.list(CORE_EVENTS, namespace)).items:
            if event["involvedObject"]["name"] == name and event["reason"] == "FailedScheduling":
                return None, event["message"]
        node = (await kube.get(PODS, name, namespace))["spec"].get("nodeName")
        if node:
            return node, None
        await asyncio.sleep(0.05)
    return None, None


async def clear(kube: Kube) -> None:
    for resource in (PODS, REPLICASETS, SERVICES, CORE_EVENTS, NODES):
        for each in (await kube.list(resource)).items:
            meta = each["metadata"]
            if meta["name"] == "kubernetes":
                continue
            try:
                await kube.delete(resource, meta["name"], meta.get("namespace"), grace=0)
            except NotFound:
                continue
    await asyncio.sleep(0.3)


async def disagreements(kube: Kube, count: int) -> list[Any]:
    """Post cases and compare the outcome with our decision."""
    await prepare(kube)
    cases, differing = Cases(77), []
    for at in range(count):
        case = plain(cases.case())
        if case["claims"] or case["pending"]["spec"].get("volumes"):
            continue
        await post(kube, case, at)
        node, words = await kube_scheduler_answer(kube, case, at)
        mine = answer(case | {"budgets": []})
        scores = mine.get("scores", {})
        best = [each for each, score in scores.items() if score == max(scores.values())]
        if mine.get("nominated"):
            best.append(mine["nominated"])  # its victims may be gone, and the pod bound, before we look
        if node not in best if node is not None else words != mine.get("message"):
            differing.append((at, node, words, mine))
        await clear(kube)
    return differing


@pytest.mark.kubernetes
@pytest.mark.timeout(600)
def test_kube_scheduler_gives_the_same_node_and_message() -> None:
    async def main() -> list[Any]:
        clock = Clock(asyncio.get_running_loop())
        async with RealControlPlane(scheduler=True) as plane:
            kube = Kube(plane.transport(), clock, chance=Chance(1))
            try:
                return await disagreements(kube, CASES)
            finally:
                await kube.close()

    assert asyncio.run(main()) == []


def test_the_lab_gives_the_same_node_and_message() -> None:
    """End to end: posted to the lab's API server, watched, decided, bound, events recorded."""

    async def main() -> list[Any]:
        async with Lab.embedded(seed=1, parts=LabParts(controllers=False)) as lab:
            return await disagreements(lab.kube, CASES)

    assert run_virtual(main()) == []
