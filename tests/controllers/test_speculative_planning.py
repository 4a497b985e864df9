"""A speculative plan is used if it is for the snapshot that is planned in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.controllers.provisioning.planning import Planning, alike
from dovetail.kube import resources as kinds
from dovetail.model.volumes import PersistentVolume
from dovetail.model.workloads import DaemonSet, DaemonSetSpec, DaemonSetStatus
from dovetail.planner.snapshot import Snapshot

RunScenario = Callable[..., None]


async def _question(world: Any) -> Snapshot:
    """The snapshot of now, with no controller that acts on it."""
    context = world.autoscaler.context
    await asyncio.sleep(0.5)
    snapshot: Snapshot = context.snapshot_builder.build(
        await context.instance_types.all(), context.cluster_state.unbound()
    )
    return snapshot


async def _waiting(world: Any, pods: int) -> None:
    await world.pool(limits={"cpu": "0"})  # nothing is launched meanwhile
    world.start()
    await world.pods(pods)


def test_the_status_of_a_pod_does_not_change_a_snapshot_and_another_pod_does(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _waiting(world, 3)
        first = await _question(world)
        status = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Other"}]}}
        await world.kube.patch(kinds.PODS, "p1", status, "default", subresource="status")
        second = await _question(world)
        assert second.pending != first.pending and alike(first, second)
        await world.pods(1, prefix="late")
        assert not alike(first, await _question(world))

    run_scenario(scenario)


def test_a_snapshot_is_another_when_anything_a_plan_depends_on_changed(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _waiting(world, 1)
        asked = await _question(world)
        daemon = DaemonSet(spec=DaemonSetSpec(min_ready_seconds=1))
        for changed in (
            {"unavailable": frozenset({("m.large", "a", "spot")})},
            {"daemons": (daemon,)},
            {"namespaces": {"default": {"team": "a"}}},
            {"volumes": {"v": PersistentVolume()}},
            {"priorities": {"high": 1}},
        ):
            assert not alike(asked, msgspec.structs.replace(asked, **changed)), changed
        published = msgspec.structs.replace(daemon, status=DaemonSetStatus(number_ready=1))
        ready = [msgspec.structs.replace(asked, daemons=(each,)) for each in (daemon, published)]
        assert alike(*ready)

    run_scenario(scenario)


def test_a_speculative_plan_is_used_for_the_same_pods_and_for_no_others(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await _waiting(world, 3)
        planning = Planning(world.autoscaler.context)
        planning.plan_speculatively(await _question(world))
        speculative = planning._speculative
        assert speculative is not None
        plan = await planning.provision(await _question(world))
        assert plan is speculative.answer.result()[0]
        planning.plan_speculatively(await _question(world))
        await world.pods(1, prefix="late")
        plan = await planning.provision(await _question(world))
        assert plan is not None and "default/late0" in plan.placements

    run_scenario(scenario, plan_deadline=0.1)


def test_with_a_plan_deadline_a_burst_is_still_one_wave_and_every_pod_runs(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(20, cpu="900m")
        assert len(world.logged("computed new nodeclaim(s) to fit pod(s)")) == 1

    run_scenario(scenario, plan_deadline=0.1)
