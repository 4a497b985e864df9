"""Ours and upstream's recommender on the same metrics, at one real API server: the same statuses and checkpoints."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.vpa.api import CHECKPOINTS, VPAS
from dovetail.autoscalers.vpa.crds import definitions
from dovetail.autoscalers.vpa.metrics_api import POD_METRICS
from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.resources import CORE_EVENTS, CRDS, DEPLOYMENTS, LEASES, PODS
from dovetail.kube.transport import Request
from dovetail.lab.apiserver import tls
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.metrics_apiservice import extended
from dovetail.lab.real_control_plane import RealControlPlane, free_ports
from tests.autoscalers.test_vpa_lab import autoscaler, hamster
from tests.autoscalers.upstream_vpa import (
    Cost,
    ScriptedMetrics,
    cost,
    kubeconfig,
    our_program,
    running,
    upstream_program,
    webhook_flags,
)

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]
Json = dict[str, Any]
OURS, UPSTREAM = "ours", "default"
USERS = {name: (name, ["system:masters"]) for name in (OURS, UPSTREAM)}
PODS_OF_EACH = 2
STATUS_LEASE = "vpa-admission-controller"
#: A busy host takes long to start three programs.
READY_TIMEOUT_S = 240.0


class Outcome(msgspec.Struct, kw_only=True):
    """What a recommender wrote: recommendations of each workload as a watch saw them, and what it left at last."""

    recommendations: dict[str, list[Json]]
    statuses: dict[str, Json]
    checkpoints: dict[str, Json]
    cost: Cost


async def deploy(kube: Kube, number: int) -> list[str]:
    """A Deployment with running pods and two VPAs, one for each recommender; the names of its pods."""
    name, labels = f"app-{number}", {"app": f"app-{number}"}
    template: Json = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "nginx"}]}}
    spec = {"replicas": PODS_OF_EACH, "selector": {"matchLabels": labels}, "template": template}
    await kube.create(DEPLOYMENTS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    names: list[str] = []
    for index in range(PODS_OF_EACH):
        metadata: Json = {"name": f"{name}-{index}", "namespace": "default", "labels": labels}
        pod = {"metadata": metadata, "spec": {**template["spec"], "nodeName": "none"}}
        await kube.create(PODS, pod)
        running_status = {"status": {"phase": "Running"}}
        await kube.patch(PODS, metadata["name"], running_status, "default", kind="merge", subresource="status")
        names.append(metadata["name"])
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    for recommender in (OURS, UPSTREAM):
        body: Json = {
            "targetRef": target,
            "updatePolicy": {"updateMode": "Off"},
            "recommenders": [{"name": recommender}],
        }
        await kube.create(VPAS, {"metadata": {"name": f"{recommender}-{number}", "namespace": "default"}, "spec": body})
    return names


async def collect(kube: Kube, seen: dict[str, list[Json]]) -> None:
    """Every recommendation as it is written, by VPA; until cancelled."""
    version = (await kube.list(VPAS)).resource_version
    async with aclosing(kube.watch(VPAS, resource_version=version)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.type == "BOOKMARK":
                continue
            items = (event.object.get("status") or {}).get("recommendation", {}).get("containerRecommendations")
            history = seen.setdefault(event.object["metadata"]["name"], [])
            if items and (not history or history[-1] != items[0]):
                history.append(items[0])


async def side_by_side(workloads: int, minutes: int) -> dict[str, Outcome]:
    clock = Clock(asyncio.get_running_loop())
    async with RealControlPlane(users=USERS) as plane, AsyncExitStack() as stack:
        transport = plane.transport()
        stack.push_async_callback(transport.close)
        kube = Kube(transport, clock)
        for definition in definitions():
            await kube.create(CRDS, definition)
        await served(kube)
        pods = [name for number in range(workloads) for name in await deploy(kube, number)]
        metrics = ScriptedMetrics(pods, minutes, clock.now())
        await stack.enter_async_context(extended(kube, metrics))
        seen: dict[str, list[Json]] = {}
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        watching = tasks.create_task(collect(kube, seen))
        processes = {}
        for name, command in ((OURS, our_program("recommender")), (UPSTREAM, upstream_program("recommender"))):
            flags = [
                f"--kubeconfig={kubeconfig(plane, name)}",
                f"--recommender-name={name}",
                "--recommender-interval=1s",
                f"--address=127.0.0.1:{free_ports(1)[0]}",
                "--kube-api-qps=2000",
                "--kube-api-burst=2000",
                "--v=1",
            ]
            log = plane.folder / f"{name}.log"
            processes[name] = stack.enter_context(running([*command, *flags], log))
        while not (metrics.is_over and len(metrics.asked) == 2):
            await asyncio.sleep(0.5)
            for name, process in processes.items():
                assert process.poll() is None, (plane.folder / f"{name}.log").read_text()[-2000:]
        costs = {name: cost(process) for name, process in processes.items()}
        saved = (await kube.list(CHECKPOINTS)).items
        written = (await kube.list(VPAS)).items
        watching.cancel()
        return {name: outcome(name, seen, written, saved, costs[name]) for name in processes}


async def served(kube: Kube) -> None:
    """Until the API server serves the definitions."""
    while True:
        try:
            await kube.list(VPAS)
            await kube.list(CHECKPOINTS)
            return
        except KubeError:
            await asyncio.sleep(0.2)


def outcome(
    recommender: str, seen: dict[str, list[Json]], written: list[Json], saved: list[Json], spent: Cost
) -> Outcome:
    prefix = f"{recommender}-"
    return Outcome(
        recommendations={
            name.removeprefix(prefix): history for name, history in seen.items() if name.startswith(prefix)
        },
        statuses={
            item["metadata"]["name"].removeprefix(prefix): item["status"]["recommendation"]
            for item in written
            if item["metadata"]["name"].startswith(prefix)
        },
        checkpoints={
            item["metadata"]["name"].removeprefix(prefix): {
                field: item["status"][field]
                for field in (
                    "cpuHistogram",
                    "memoryHistogram",
                    "firstSampleStart",
                    "lastSampleStart",
                    "totalSamplesCount",
                )
            }
            for item in saved
            if item["metadata"]["name"].startswith(prefix)
        },
        cost=spent,
    )


def check_alike(outcomes: dict[str, Outcome], workloads: int) -> None:
    """The same recommendations in the same order, down to the checkpoints.

    Each program compares what it would write with what its watch last saw, and the watch here may lag as well: on a
    busy host a minute may be missing on either side, but none may have another recommendation.
    """
    ours, theirs = outcomes[OURS], outcomes[UPSTREAM]
    assert len(ours.recommendations) == len(theirs.recommendations) == workloads
    for name, history in theirs.recommendations.items():
        assert len(history) > 3
        own = ours.recommendations[name]
        assert ours.statuses[name] == theirs.statuses[name]
        shared = [item for item in own if item in history]
        assert shared == [item for item in history if item in own], name
        assert len(shared) >= 0.8 * max(len(own), len(history)), name
    assert len(theirs.checkpoints) == workloads
    for name, saved in theirs.checkpoints.items():
        assert ours.checkpoints[name] == saved, name


def test_recommendations_are_upstreams_at_every_minute() -> None:
    check_alike(run_scaled(side_by_side(workloads=10, minutes=12)), 10)


@pytest.mark.slow
def test_an_hour_of_a_hundred_vpas(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = run_scaled(side_by_side(workloads=100, minutes=60))
    with capsys.disabled():
        for name, result in outcomes.items():
            print(f"\n{name}: {result.cost.cpu_s:.1f} s of processor, {result.cost.peak_mib:.0f} MiB at most", end="")
    check_alike(outcomes, 100)


# The hamster: all three programs, with our kubelets and metrics.


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """What the walk-through shows at its end."""

    table: list[str]
    requests: list[Json]
    annotations: list[str]
    evictions: int


async def walk(commands: dict[str, list[str]]) -> Walk:
    clock = Clock(asyncio.get_running_loop())
    async with RealControlPlane(scheduler=True, controllers=True) as plane, AsyncExitStack() as stack:
        transport = plane.transport()
        stack.push_async_callback(transport.close)
        lab = Lab(transport, clock, Chance(1), LabParts(controllers=False, scheduler=False))
        await stack.enter_async_context(lab)
        await stack.enter_async_context(extended(lab.kube, lab.metrics))
        await lab.nodes(2)
        for definition in definitions():
            await lab.kube.create(CRDS, definition)
        await served(lab.kube)
        await lab.kube.create(DEPLOYMENTS, hamster())
        own = {
            "recommender": ["--recommender-interval=5s"],
            "updater": ["--updater-interval=10s"],
            "admission-controller": webhook_flags(plane.folder, tls.make(clock.now()), free_ports(1)[0]),
        }
        for name, command in commands.items():
            flags = [f"--kubeconfig={plane.kubeconfig}", f"--address=127.0.0.1:{free_ports(1)[0]}", *own[name]]
            stack.enter_context(running([*command, *flags], plane.folder / f"{name}.log"))
        await ready(lab.kube)
        await lab.kube.create(VPAS, autoscaler())
        for _ in range(60):
            pods = [
                pod
                for pod in (await lab.kube.list(PODS, "default")).items
                if "deletionTimestamp" not in pod["metadata"]
            ]
            requests = [pod["spec"]["containers"][0]["resources"]["requests"] for pod in pods]
            if len(pods) == 2 and all(item["cpu"] == "587m" for item in requests):
                break
            await asyncio.sleep(2)
        events = (await lab.kube.list(CORE_EVENTS, "default")).items
        accept = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        answer = await transport.send(
            Request(method="GET", path=VPAS.path("default"), query=(), headers=accept, body=b"")
        )
        return Walk(
            table=msgspec.json.decode(answer.body)["rows"][0]["cells"][:5],
            requests=requests,
            annotations=sorted({name for pod in pods for name in pod["metadata"].get("annotations") or {}}),
            evictions=sum(event.get("count", 1) for event in events if event["reason"] == "EvictedByVPA"),
        )


async def ready(kube: Kube) -> None:
    """Until the admission controller has renewed its lease, which it does after registering, and metrics are served.

    A VPA that is created before the webhook is called keeps an empty mode, with either implementation.
    """
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            try:
                lease = await kube.get(LEASES, STATUS_LEASE, "kube-system")
                measured = await kube.list(POD_METRICS, "default")
                if lease["spec"].get("renewTime") and len(measured.items) == 2:
                    return
            except KubeError:
                pass
            await asyncio.sleep(1)


@pytest.mark.slow
def test_the_hamster_ends_alike_with_either_implementation() -> None:
    names = ("recommender", "updater", "admission-controller")
    theirs = run_scaled(walk({name: upstream_program(name) for name in names}))
    ours = run_scaled(walk({name: our_program(name) for name in names}))
    assert theirs == ours
    assert ours.table == ["hamster-vpa", "Recreate", "587m", "250Mi", "True"]
    assert ours.requests == [{"cpu": "587m", "memory": "250Mi"}] * 2
    assert ours.evictions == 2
