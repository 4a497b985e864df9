"""Clouds that refuse, throttle, fail or launch broken instances: the pod still gets its node, or a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.cloud.provider import UNAUTHORIZED, CloudError, InsufficientCapacity, Remedy
from dovetail.cloud.simulated.config import SimulatedMarket, Stock
from dovetail.controllers import explain
from dovetail.controllers.provisioning import planning
from dovetail.controllers.safemode import SafeModeCause
from dovetail.kube import resources as kinds
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from tests.controllers.conftest import Refusing

RunScenario = Callable[..., None]
ANY = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]


def test_with_capacity_in_one_offering_alone_the_pod_gets_that_one(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(requirements=ANY)
        world.start()
        await world.pods(2)
        await world.until(world.all_bound, within=300)
        (instance,) = world.cloud.standing()
        assert (instance.instance_type, instance.zone, instance.capacity_type) == ("m.2xlarge", "b", "on-demand")

    only = Stock(instance_type="m.2xlarge", zone="b", capacity_type="on-demand", instances=5)
    run_scenario(scenario, market=SimulatedMarket(stock=(only, Stock(instances=0))))


def test_capacity_nowhere_is_published_on_the_pod_and_tried_again(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(30)
        events = {event["reason"] for event in await world.list(kinds.CORE_EVENTS)}
        assert "InsufficientCapacityError" in events
        assert not await world.list(kinds.NODECLAIMS)
        world.cloud.market = SimulatedMarket()
        await world.until(world.all_bound, within=600)

    run_scenario(scenario, market=SimulatedMarket(stock=(Stock(instances=0),)))


def test_throttled_launches_are_repeated_and_nothing_is_launched_twice(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(12, cpu="1800m")
        await world.until(world.all_bound, within=300)
        claims = await world.list(kinds.NODECLAIMS)
        assert len(world.cloud.standing()) == len(claims) == world.cloud.sold

    run_scenario(
        scenario, market=SimulatedMarket(launches_per_second=0.5, launch_burst=2, latency=(0.1, 0.5)), only=("m.large",)
    )


def test_a_cloud_that_fails_every_other_call_still_launches(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(6, cpu="1800m")
        await world.until(world.all_bound, within=300)
        assert len(world.cloud.standing()) == len(await world.list(kinds.NODECLAIMS))

    run_scenario(scenario, market=SimulatedMarket(error_rate=0.5))


def test_a_node_that_never_joins_is_replaced_after_fifteen_minutes(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(60)
        (claim,) = await world.list(kinds.NODECLAIMS)
        assert (await world.conditions(claim))["Registered"] == "Unknown/NodeNotFound"
        world.cloud.market = SimulatedMarket()
        took = 60 + await world.until(world.all_bound, within=1200, step=5)
        assert 900 <= took < 960
        assert len(world.cloud.standing()) == 1

    run_scenario(scenario, market=SimulatedMarket(never_joins=1.0))


def test_slow_instances_are_waited_for(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(4, cpu="1500m")
        await world.until(world.all_bound, within=400, step=1)
        assert world.cloud.sold == len(world.cloud.standing()) == len(await world.list(kinds.NODECLAIMS))

    run_scenario(scenario, market=SimulatedMarket(boot=(60, 120), ready=(10, 30)))


def test_a_pod_that_fits_nowhere_gets_a_reason_and_does_not_hold_up_the_others(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1, cpu="64", prefix="huge")
        await world.pods(2, prefix="good")

        async def good_bound() -> bool:
            return all(node for name, node in (await world.bound()).items() if name.startswith("good"))

        await world.until(good_bound, within=30)
        assert not (await world.bound())["huge0"]
        failed = [e for e in await world.list(kinds.CORE_EVENTS) if e["reason"] == "FailedScheduling"]
        assert {e["involvedObject"]["name"] for e in failed} == {"huge0"}
        assert world.logged("could not schedule pod")[0]["code"]
        refused = [decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "refuse"]
        assert refused[0].refusals[0].pods == ("default/huge0",)

    run_scenario(scenario)


def test_failing_launches_enter_safe_mode_and_success_ends_it(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(60)
        assert world.autoscaler.safety.safe_mode
        assert world.autoscaler.problems()
        world.cloud.market = SimulatedMarket()
        await world.until(world.all_bound, within=300)
        assert not world.autoscaler.safety.safe_mode
        assert not world.autoscaler.problems()

    run_scenario(scenario, market=SimulatedMarket(error_rate=1.0))


@pytest.mark.parametrize(("call", "deed"), [("instances", "list instances"), ("terminate", "terminate instances")])
def test_a_cloud_that_denies_terminations_stops_disruption(run_scenario: RunScenario, call: str, deed: str) -> None:
    """Otherwise replacements would be launched for nodes that cannot be terminated."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await asyncio.sleep(30)
        may = getattr(world.cloud, call)

        async def denied(*_: Any) -> Any:
            raise CloudError(UNAUTHORIZED, "no", Remedy.OPERATOR)

        setattr(world.cloud, call, denied)
        await world.kube.delete(kinds.NODECLAIMS, (await world.list(kinds.NODECLAIMS))[0]["metadata"]["name"])
        await asyncio.sleep(60)
        assert world.autoscaler.safety.causes() == {
            SafeModeCause.CLOUD_DENIES: f"the cloud does not allow us to {deed}: no"
        }
        assert any(f"the cloud does not allow us to {deed}" in each for each in world.autoscaler.problems())
        setattr(world.cloud, call, may)
        await asyncio.sleep(90)
        assert not world.autoscaler.safety.safe_mode

    run_scenario(scenario)


def test_a_pod_that_breaks_the_planner_does_not_cost_other_pods_their_node(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fragile(snapshot: Snapshot, **how: Any) -> Plan:
        if any(pod.metadata.name == "poison0" for pod in snapshot.pending):
            raise ZeroDivisionError("a bug")
        return provision(snapshot, **how)

    monkeypatch.setattr(planning, "provision", fragile)

    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        await world.pods(1, prefix="poison")
        await world.pods(6, prefix="good")

        async def good_bound() -> bool:
            return all(node for name, node in (await world.bound()).items() if name.startswith("good"))

        await world.until(good_bound, within=30)
        assert not (await world.bound())["poison0"]
        assert any("PLAN_REFUSED" in event["message"] for event in await world.list(kinds.CORE_EVENTS))
        line = _why(world, "default/poison0")
        assert line.startswith("pending: the plan did not pass its own check: planning failed: ")
        assert line.endswith("(PLAN_REFUSED)")

    run_scenario(scenario)


def _why(world: Any, pod: str) -> str:
    autoscaler = world.autoscaler
    return explain.pod(autoscaler.cluster_state, autoscaler.decision_history.decisions(), pod, world.clock.now()).line


def test_pods_that_are_not_planned_for_have_their_reason_in_the_history_and_only_once(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        await world.pods(2)
        data = {"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}
        await world.pods(1, prefix="heavy", volumes=[data])
        await asyncio.sleep(300)
        assert _why(world, "default/p1") == "pending: there is no NodePool; create a NodePool (NO_NODEPOOL)"
        missing = "volume 'data': persistentvolumeclaim \"lost\" not found"
        assert _why(world, "default/heavy0") == f"pending: {missing}; create it, or correct the name (VOLUME_MISSING)"
        published = [
            decision.summary for decision in world.autoscaler.decision_history.decisions() if decision.kind == "refuse"
        ]
        assert sorted(published) == [
            f"1 pod(s) are unschedulable: {missing}",
            "2 pod(s) are unschedulable: there is no NodePool; create a NodePool",
        ]

    run_scenario(scenario)


def test_pods_without_a_nodepool_get_nodes_as_soon_as_there_is_one(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        await world.pods(2)
        await asyncio.sleep(300)
        await world.pool()
        assert await world.until(world.all_bound) < 3

    run_scenario(scenario)


def test_pods_whose_nodepool_had_no_nodeclass_get_nodes_as_soon_as_it_is_ready(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        world.cloud.node_class_required = True
        await world.pool()
        world.start()
        await world.pods(2)
        await asyncio.sleep(300)
        await world.kube.create(kinds.EC2NODECLASSES, {"metadata": {"name": "default"}, "spec": {}})
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
        body = {"status": {"conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:05:00Z"}]}}
        await world.kube.patch(kinds.EC2NODECLASSES, "default", body, subresource="status")
        assert await world.until(world.all_bound) < 3

    run_scenario(scenario)


def test_nodeclaims_that_the_server_refuses_are_not_recorded_as_launched(run_scenario: RunScenario) -> None:
    """Revoked rights: event and explanation of the pods say so, and launches resume with the rights."""

    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        rights = world.transport._inner = Refusing(world.transport._inner, "/nodeclaims")
        rights.refused = True
        await world.pods(2)
        await asyncio.sleep(60)
        line = _why(world, "default/p0")
        assert line.startswith("pending: its NodeClaim could not be written: ")
        assert "/nodeclaims is forbidden" in line and line.endswith("(NOT_WRITTEN)")
        assert {decision.kind for decision in world.autoscaler.decision_history.decisions()} == {"refuse"}
        assert len(world.logged("creating nodeclaim")) < 6, "it is tried ever less often"
        rights.refused = False
        await world.until(world.all_bound, within=90)

    run_scenario(scenario)


def test_a_launch_refusal_that_names_no_offering_is_remembered_for_all_that_were_tried(
    run_scenario: RunScenario,
) -> None:
    """Otherwise the next plan tries the same at once, and NodeClaims are created and deleted several times a second."""

    async def scenario(world: Any) -> None:
        await world.pool()
        asked = 0

        async def nothing(launch: Any) -> Any:
            nonlocal asked
            asked += 1
            world.cloud.on_refuse(launch.token, "InsufficientCapacityError")
            raise InsufficientCapacity("no instance in the answer")

        launch, world.cloud.launch = world.cloud.launch, nothing
        world.start()
        await world.pods(1)
        await asyncio.sleep(120)
        assert asked == 1
        world.cloud.launch = launch
        await world.until(world.all_bound, within=300)

    run_scenario(scenario)
