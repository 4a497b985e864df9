"""The lab's invariants of an autoscaler: each can be broken, and is then reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]
POOL = {"karpenter.sh/nodepool": "default"}


async def _claim(world: Any, name: str, pods: str = "", status: dict[str, Any] | None = None) -> dict[str, Any]:
    notes = {"dovetail.sh/pods": pods} if pods else {}
    body = {"metadata": {"name": name, "labels": POOL, "annotations": notes}, "spec": {}}
    made: dict[str, Any] = await world.kube.create(kinds.NODECLAIMS, body)
    if status is not None:
        await world.kube.patch(kinds.NODECLAIMS, name, {"status": status}, subresource="status")
    return made


def _true(*kinds_: str, reason: str = "") -> list[dict[str, Any]]:
    at = "2026-01-01T00:00:00Z"
    return [
        {"type": kind, "status": "True", "reason": reason or kind, "message": "", "lastTransitionTime": at}
        for kind in kinds_
    ]


async def _runaway(world: Any) -> None:
    await world.pods(1)
    uid = (await world.list(kinds.PODS))[0]["metadata"]["uid"]
    for number in range(9):
        await _claim(world, f"c{number}", uid, {"providerID": f"p{number}"})


async def _rush(world: Any) -> None:
    for number in range(11):
        await _claim(world, f"c{number}")


async def _twice(world: Any) -> None:
    await world.pods(1)
    uid = (await world.list(kinds.PODS))[0]["metadata"]["uid"]
    await _claim(world, "a", uid)
    await _claim(world, "b", uid)
    await asyncio.sleep(200)


async def _leak(world: Any) -> None:
    await _claim(world, "a", status={"providerID": "nothing"})
    await asyncio.sleep(800)


async def _budget(world: Any) -> None:
    await world.pool(disruption={"budgets": [{"nodes": "1"}]})
    for name in "ab":
        await world.kube.create(kinds.NODES, {"metadata": {"name": name}})
        await _claim(world, name, status={"nodeName": name, "conditions": _true("Initialized")})
    for name in "ab":
        conditions = [*_true("Initialized"), *_true("DisruptionReason", reason="Unhealthy")]
        await world.kube.patch(kinds.NODECLAIMS, name, {"status": {"conditions": conditions}}, subresource="status")


async def _flood(world: Any) -> None:
    world.cloud.calls["instances"] = 1000
    await asyncio.sleep(61)


async def _silence(world: Any) -> None:
    waiting = {**_true("Launched", reason="AwaitingReconciliation")[0], "status": "Unknown", "message": "waiting"}
    made = await _claim(world, "a", status={"conditions": [waiting]})
    world.cloud.on_refuse(made["metadata"]["uid"], "InternalError")
    await asyncio.sleep(200)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (_runaway, "I1: more than 8 instances were launched for pod"),
        (_rush, "I2: 11 claims of default were written within 60 s, for at most 0"),
        (_twice, "I3: a and b are both launched for pod"),
        (_leak, "I4: claim a has no instance"),
        (_budget, "I6: 2 nodes of default are disrupted at once, 1 may be (Unhealthy)"),
        (_flood, "I10: 1000 calls of the cloud within 60 s"),
        (_silence, "I11: claim a does not report that its launch was refused (InternalError)"),
    ],
)
def test_a_broken_invariant_is_reported(run_scenario: RunScenario, break_it: Callable[[Any], Any], says: str) -> None:
    async def scenario(world: Any) -> None:
        await break_it(world)
        published = [each for each in world.invariants.violations if each.startswith(says)]
        assert published, world.invariants.violations
        world.invariants.violations.clear()

    run_scenario(scenario)


def test_a_launch_refusal_in_the_nodeclaims_condition_breaks_no_invariant(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        made = await _claim(world, "a")
        unknown = {**_true("Launched")[0], "status": "Unknown", "reason": "InternalError", "message": "later"}
        await world.kube.patch(kinds.NODECLAIMS, "a", {"status": {"conditions": [unknown]}}, subresource="status")
        world.cloud.on_refuse(made["metadata"]["uid"], "InternalError")
        await asyncio.sleep(200)

    run_scenario(scenario)
