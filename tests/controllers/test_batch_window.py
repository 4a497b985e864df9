"""Which owners are still creating pods, and that a slow control plane does not split a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.controllers.provisioning.batcher import Owner, wanted
from dovetail.kube import resources as kinds
from dovetail.model.workloads import Job, ReplicaSet, StatefulSet

RunScenario = Callable[..., None]
REFUSED = {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]}


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        (ReplicaSet, {"spec": {"replicas": 7}}, 7),
        (ReplicaSet, {"spec": {"replicas": 7}, "status": REFUSED}, 0),
        (StatefulSet, {"spec": {"replicas": 7}}, 0),
        (StatefulSet, {"spec": {"replicas": 7, "podManagementPolicy": "Parallel"}}, 7),
        (Job, {"spec": {"parallelism": 5}}, 5),
        (Job, {"spec": {"parallelism": 5, "completions": 6}, "status": {"succeeded": 4}}, 2),
        (Job, {"spec": {"parallelism": 5, "suspend": True}}, 0),
    ],
)
def test_an_owner_wants_the_pods_it_can_create_at_once(kind: type[Owner], body: dict[str, Any], count: int) -> None:
    assert wanted(msgspec.convert(body, kind)) == count


async def _made_slowly(world: Any, gap: float, pods: int = 6, **status: Any) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "pause"}]}}
    spec = {"replicas": pods, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    owner = await world.kube.create(kinds.REPLICASETS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    if status:
        await world.kube.patch(kinds.REPLICASETS, "web", {"status": status}, "default", subresource="status")
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    for number in range(pods):
        await world.pods(1, cpu="900m", prefix=f"web{number}", owners=[reference])
        await asyncio.sleep(gap)


def test_a_deployment_created_slowly_is_launched_for_in_one_wave(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await _made_slowly(world, gap=1.4)
        await world.until(world.all_bound)
        assert len(world.logged("computed new nodeclaim(s) to fit pod(s)")) == 1

    run_scenario(scenario)


def test_the_batch_does_not_wait_for_an_owner_that_may_not_create_more_pods(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await _made_slowly(world, gap=1.4, pods=2, **REFUSED)
        (first, *_) = world.logged("computed new nodeclaim(s) to fit pod(s)")
        assert first["pods"] == 1

    run_scenario(scenario)
