"""The scheduler at work in the lab: bindings, words, retries, gates, preemption."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dovetail.clock import run_virtual
from dovetail.kube.resources import CORE_EVENTS, NODES, PODS, PRIORITYCLASSES
from dovetail.lab.cluster import Lab, LabParts

Json = dict[str, Any]


def in_lab(scenario: Callable[[Lab], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Lab.embedded(seed=1, parts=LabParts(controllers=False)) as lab:
            await scenario(lab)

    run_virtual(main())


async def node(lab: Lab, name: str, cpu: str = "2", **more: Any) -> None:
    size = {"cpu": cpu, "memory": "4Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    await lab.kube.create(
        NODES,
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": more,
            "status": {"capacity": size, "allocatable": size, "conditions": [ready]},
        },
    )
    taints: list[Json] = [
        each for each in (await lab.kube.get(NODES, name))["spec"].get("taints", []) if "not-ready" not in each["key"]
    ]
    await lab.kube.patch(NODES, name, {"spec": {"taints": taints or None}})


async def pod(lab: Lab, name: str, cpu: str = "1", **spec: Any) -> None:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    await lab.kube.create(
        PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container], **spec}}
    )


async def state(lab: Lab, name: str) -> tuple[str | None, str | None]:
    found = await lab.kube.get(PODS, name, "default")
    condition = next((each for each in found["status"].get("conditions", ()) if each["type"] == "PodScheduled"), {})  # type: ignore[var-annotated]
    return found["spec"].get("nodeName"), condition.get("message")


async def events(lab: Lab, reason: str) -> list[Json]:
    return [each for each in (await lab.kube.list(CORE_EVENTS)).items if each["reason"] == reason]


def test_binding_a_pod_records_a_scheduled_event() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "n1")
        await pod(lab, "a")
        await asyncio.sleep(1)
        assert (await state(lab, "a"))[0] == "n1"
        (event,) = await events(lab, "Scheduled")
        assert event["message"] == "Successfully assigned default/a to n1"
        assert event["reportingComponent"] == "default-scheduler"

    in_lab(scenario)


def test_without_nodes_the_condition_names_the_reason() -> None:
    async def scenario(lab: Lab) -> None:
        await pod(lab, "a")
        await asyncio.sleep(1)
        assert await state(lab, "a") == (None, "no nodes available to schedule pods")

    in_lab(scenario)


def test_a_pod_that_does_not_fit_waits_for_a_node_that_helps() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "small", cpu="1")
        await pod(lab, "a", cpu="3")
        await asyncio.sleep(1)
        assert await state(lab, "a") == (
            None,
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
        )
        await node(lab, "large", cpu="4")
        await asyncio.sleep(15)
        assert (await state(lab, "a"))[0] == "large"

    in_lab(scenario)


def test_a_pod_is_tried_again_when_the_taint_in_its_way_goes_though_another_thing_is() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "n1")
        taint = [{"key": "a", "effect": "NoSchedule"}]
        await lab.kube.patch(NODES, "n1", {"spec": {"taints": taint}})
        await pod(lab, "a", nodeSelector={"no": "where"})
        await asyncio.sleep(5)
        assert "untolerated taint" in str(await state(lab, "a"))
        await lab.kube.patch(NODES, "n1", {"spec": {"taints": None}})
        await asyncio.sleep(5)
        assert "didn't match Pod's node affinity/selector" in str(await state(lab, "a"))

    in_lab(scenario)


def test_a_pending_pod_is_bound_when_capacity_is_freed() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "n1", cpu="1")
        await pod(lab, "a")
        await asyncio.sleep(1)
        await pod(lab, "b")
        await asyncio.sleep(1)
        assert (await state(lab, "b"))[0] is None
        await lab.kube.delete(PODS, "a", "default", grace=0)
        await asyncio.sleep(15)
        assert (await state(lab, "b"))[0] == "n1"

    in_lab(scenario)


def test_a_gated_pod_is_left_alone_until_its_gates_go() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "n1")
        await pod(lab, "a", schedulingGates=[{"name": "example.com/wait"}])
        await asyncio.sleep(5)
        assert (await state(lab, "a"))[0] is None
        assert await events(lab, "FailedScheduling") == []
        await lab.kube.patch(PODS, "a", {"spec": {"schedulingGates": None}}, "default")
        await asyncio.sleep(1)
        assert (await state(lab, "a"))[0] == "n1"

    in_lab(scenario)


def test_a_pod_of_higher_priority_preempts() -> None:
    async def scenario(lab: Lab) -> None:
        await lab.kube.create(PRIORITYCLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await node(lab, "n1", cpu="1")
        await pod(lab, "low", terminationGracePeriodSeconds=0)
        await asyncio.sleep(1)
        await pod(lab, "high", priorityClassName="high")
        await asyncio.sleep(1)
        found = await lab.kube.get(PODS, "high", "default")
        (event,) = await events(lab, "Preempted")
        assert event["message"] == f"Preempted by pod {found['metadata']['uid']} on node n1"
        assert event["involvedObject"]["name"] == "low"
        await asyncio.sleep(60)
        assert (await state(lab, "high"))[0] == "n1"

    in_lab(scenario)


def test_a_pod_that_waits_for_a_port_is_not_tried_when_a_pod_without_it_goes() -> None:
    """A look that cannot help would only repeat the same words."""

    async def scenario(lab: Lab) -> None:
        await node(lab, "n1")
        port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
        for name in ("holder", "waiter"):
            container = {"name": "c", "image": "nginx", **port}
            await lab.kube.create(
                PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}
            )
        await pod(lab, "bystander")
        await asyncio.sleep(5)
        await lab.kube.delete(PODS, "bystander", "default", grace=0)
        await asyncio.sleep(15)
        assert len([each for each in await events(lab, "FailedScheduling") if "series" not in each]) == 1
        await lab.kube.delete(PODS, "holder", "default", grace=0)
        await asyncio.sleep(15)
        assert (await state(lab, "waiter"))[0] == "n1"

    in_lab(scenario)


def test_the_least_used_node_is_chosen() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "n1", cpu="4")
        await node(lab, "n2", cpu="4")
        for name in ("a", "b", "c", "d"):
            await pod(lab, name, cpu="500m")
            await asyncio.sleep(1)
        used = [(await state(lab, name))[0] for name in ("a", "b", "c", "d")]
        assert sorted(used, key=str) == ["n1", "n1", "n2", "n2"]

    in_lab(scenario)


def test_a_pod_bound_by_another_client_leaves_the_queue() -> None:
    """A pod that was bound from outside while we decided stays where it is, and its place with us is free again."""

    async def scenario(lab: Lab) -> None:
        await node(lab, "n1", cpu="4")
        await node(lab, "n2", cpu="4")
        await pod(lab, "a")
        await lab.kube.bind("a", "default", "n2")
        await asyncio.sleep(30)
        assert (await state(lab, "a"))[0] == "n2"
        await pod(lab, "b", cpu="4")
        await asyncio.sleep(30)
        assert (await state(lab, "b"))[0] == "n1"

    in_lab(scenario)


def test_pods_of_other_schedulers_are_left_alone() -> None:
    async def scenario(lab: Lab) -> None:
        await node(lab, "n1")
        await pod(lab, "a", schedulerName="mine")
        await asyncio.sleep(30)
        assert (await state(lab, "a"))[0] is None

    in_lab(scenario)
