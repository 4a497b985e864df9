"""Terminations are published on Node and NodeClaim, logged and recorded in the history under one id."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from dovetail.kube import resources as kinds
from tests.controllers.conftest import Refusing
from tests.controllers.test_termination_and_disruption import QUICK, RunScenario, gone, nodes, running

DECISION = "dovetail.sh/decision"


async def published(world: Any, reason: str) -> dict[str, dict[str, Any]]:
    """Events of a reason by the kind of object they are about."""
    found = [event for event in await world.list(kinds.CORE_EVENTS) if event["reason"] == reason]
    return {each["involvedObject"]["kind"]: each for each in found}


def test_an_interruption_is_published_on_node_and_nodeclaim_and_recorded(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (name,), (claim,) = await nodes(world), await world.list(kinds.NODECLAIMS)
        world.cloud.interrupt([world.cloud.standing()[0].provider_id.rsplit("/", 1)[-1]] * 2)
        await world.until(lambda: _gone(world, name), within=60)
        assert (await published(world, "SpotInterrupted")).keys() == {"Node", "NodeClaim"}
        ending = await published(world, "TerminatingOnInterruption")
        assert ending["Node"]["message"] == "Interruption triggered termination for the Node"
        (line,) = world.logged("initiating delete from interruption message")
        (decision,) = [decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "end"]
        assert decision.id == line["decision"] == ending["NodeClaim"]["metadata"]["annotations"][DECISION]
        assert decision.reason == "spot_interrupted" and decision.removed == (name,)
        numbers = world.autoscaler.metrics.text().decode()
        assert 'karpenter_interruption_received_messages_total{message_type="spot_interrupted"} 1.0' in numbers
        (pods,) = re.findall(r"karpenter_pods_disruption_initiated_total\{.*spot_interrupted.*\} (.*)", numbers)
        assert float(pods) == 1.0
        for asked in (name, claim["metadata"]["name"], "default"):
            assert decision in world.autoscaler.decision_history.about(asked)

    run_scenario(scenario)


def test_the_end_of_an_instance_that_we_terminate_is_not_published(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (name,), (claim,) = await nodes(world), await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        world.cloud.interrupt([claim["status"]["providerID"]], "instance-terminated")
        await world.until(lambda: _gone(world, name), within=60)
        assert not await published(world, "InstanceTerminating")

    run_scenario(scenario)


async def _gone(world: Any, name: str) -> bool:
    return name not in await nodes(world)


def test_a_deletion_is_recorded_for_its_nodepool_and_nodeclaim(run_scenario: RunScenario) -> None:
    """A deletion launches nothing, but it concerns its NodePool and its NodeClaim all the same."""

    async def scenario(world: Any) -> None:
        await running(world, 1)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await world.until(lambda: gone(world), within=120)
        (decision,) = [
            decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "disrupt"
        ]
        assert decision in world.autoscaler.decision_history.about("default")
        assert decision in world.autoscaler.decision_history.about(claim["metadata"]["name"])
        events = await published(world, "DisruptionTerminating")
        assert {each["metadata"]["annotations"][DECISION] for each in events.values()} == {decision.id}

    run_scenario(scenario)


def test_a_termination_deadline_is_published_on_the_node_and_on_forced_pods(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1, template={"terminationGracePeriod": "60s"}, disruption=QUICK)
        budget = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}}}
        await world.kube.create(kinds.PDBS, budget, "default")
        (name,) = await nodes(world)
        await world.kube.delete(kinds.NODES, name)
        await world.until(lambda: gone(world), within=200)
        assert (await published(world, "TerminationGracePeriodExpiring")).keys() == {"Node", "NodeClaim"}
        cut = (await published(world, "Disrupted"))["Pod"]
        assert cut["type"] == "Normal" and "terminationTime 20" in cut["message"]

    run_scenario(scenario)


def test_a_pod_that_may_not_be_evicted_is_named_and_does_not_hold_the_others(run_scenario: RunScenario) -> None:
    """A webhook, or revoked rights: the drain continues with the other pods and names the one it waits for."""

    async def scenario(world: Any) -> None:
        await running(world, 3)
        rights = world.transport._inner = Refusing(world.transport._inner, "/p1/eviction")
        rights.refused = True
        (name,) = await nodes(world)
        await world.kube.delete(kinds.NODES, name)
        await asyncio.sleep(30)
        assert set(await world.bound()) == {"p1"}
        message = (await published(world, "FailedDraining"))["Node"]["message"]
        assert message.startswith("Failed to drain node, evicting pod default/p1: ") and "is forbidden" in message
        rights.refused = False
        await world.until(lambda: gone(world), within=60)

    run_scenario(scenario)
