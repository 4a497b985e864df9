"""Static NodePools: a fixed number of nodes, whatever the pods do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from tests.controllers.conftest import types

RunScenario = Callable[..., None]
GATES = {**Settings().feature_gates, "StaticCapacity": True}


async def _standing(world: Any, count: int) -> None:
    async def there() -> bool:
        claims = await world.list(kinds.NODECLAIMS)
        states = [await world.conditions(claim) for claim in claims]
        return len(claims) == count and all(state.get("Initialized", "").startswith("True") for state in states)

    await world.until(there, within=200)


def test_a_static_nodepool_has_its_replicas_within_its_limit_and_removes_the_empty_node_first(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=4, limits={"nodes": "3"}, disruption={"budgets": [{"nodes": "0"}]})
        world.start()
        await _standing(world, 3)
        claims = {
            claim["status"]["nodeName"]: claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)
        }
        quiet, busy, guarded = sorted(claims)
        for name, node, note in (("a", busy, {}), ("b", guarded, {"karpenter.sh/do-not-disrupt": "true"})):
            body = {
                "metadata": {"name": name, "annotations": note},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}]},
            }
            await world.kube.create(kinds.PODS, body, "default")
        await asyncio.sleep(5)
        for left, replicas in (({busy, guarded}, 2), ({guarded}, 1)):
            await world.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"replicas": replicas}})
            await _standing(world, replicas)
            assert {claim["status"]["nodeName"] for claim in await world.list(kinds.NODECLAIMS)} == left
        assert quiet not in left

    run_scenario(scenario, feature_gates=GATES)


def test_nodes_of_a_static_nodepool_have_a_decision_and_a_price_like_all_others(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=2, disruption={"budgets": [{"nodes": "0"}]})
        world.start()
        await _standing(world, 2)
        (decision,) = world.autoscaler.decision_history.about("default")
        assert decision.summary == "2 node(s) for nodepool default with replicas 2"
        for claim in await world.list(kinds.NODECLAIMS):
            notes = claim["metadata"]["annotations"]
            assert notes["dovetail.sh/decision"] == decision.id and float(notes["dovetail.sh/price"]) > 0
            assert claim["metadata"]["name"] in decision.about

    run_scenario(scenario, feature_gates=GATES)


async def _drift(world: Any) -> None:
    label = {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
    await world.kube.patch(kinds.NODEPOOLS, "default", label)


async def _names(world: Any) -> set[str]:
    return {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}


def test_drift_of_a_static_nodepool_is_one_for_one_whatever_pods_its_nodes_have(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=3, disruption={"budgets": [{"nodes": "2"}]})
        world.start()
        await _standing(world, 3)
        old = await _names(world)
        await _drift(world)
        most = 0

        async def replaced() -> bool:
            nonlocal most
            now = await _names(world)
            most = max(most, len(now))
            return not now & old

        await world.until(replaced, within=900)
        await asyncio.sleep(120)
        await _standing(world, 3)
        assert most == 5, "two at a time, each with its own"
        assert len(await _names(world)) == 3
        assert world.cloud.sold == 6, "one was launched for each, and none for nothing"
        assert not world.logged("failed terminating nodes while executing a disruption command")
        for published in (
            decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "disrupt"
        ):
            (launched,) = published.node_claims
            assert published.before == published.cost == launched.price == 0.1
            assert launched.instance_type == "m.large" and launched.claim in await _names(world)

    run_scenario(scenario, feature_gates=GATES)


def test_an_unknown_price_of_a_static_replacement_is_unknown_and_not_zero(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=1, disruption={"budgets": [{"nodes": "1"}]})
        world.start()
        await _standing(world, 1)
        old = await _names(world)
        await _drift(world)

        async def replaced() -> bool:
            return not await _names(world) & old

        await world.until(replaced, within=300)
        (published,) = [
            decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "disrupt"
        ]
        assert published.cost is None and published.node_claims[0].price is None

    unpriced = types("m.large")
    for offering in unpriced[0]["offerings"]:
        offering["price"] = None
    run_scenario(scenario, feature_gates=GATES, sold=unpriced)


def test_a_static_nodepool_at_its_limit_reports_that_its_drift_cannot_be_staged(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=2, limits={"nodes": "2"}, disruption={"budgets": [{"nodes": "100%"}]})
        world.start()
        await _standing(world, 2)
        old = await _names(world)
        await _drift(world)
        await asyncio.sleep(300)
        assert await _names(world) == old
        published = {(event["reason"], event["message"]) for event in await world.list(kinds.CORE_EVENTS)}
        message = "Static NodePool is at its node limit and cannot stage a replacement"
        assert ("DisruptionBlocked", message) in published

    run_scenario(scenario, feature_gates=GATES)


def test_with_the_gate_a_static_nodepool_at_its_limit_terminates_the_old_node_first(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=2, limits={"nodes": "2"}, disruption={"budgets": [{"nodes": "1"}]})
        world.start()
        await _standing(world, 2)
        old = await _names(world)
        await _drift(world)

        async def replaced() -> bool:
            now = await _names(world)
            assert len(now) <= 2
            return not now & old

        await world.until(replaced, within=900)
        await _standing(world, 2)
        assert {line["decision"] for line in world.logged("disrupting node(s)")} == {"terminate-first"}

    run_scenario(scenario, feature_gates={**GATES, "TerminateFirstDrift": True})


def test_static_drift_waits_until_the_nodepool_is_scaled_down_to_its_replicas(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(replicas=3, disruption={"budgets": [{"nodes": "100%"}]})
        world.start()
        await _standing(world, 3)
        await _drift(world)
        await world.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"replicas": 1}})
        await asyncio.sleep(300)
        await _standing(world, 1)
        assert world.cloud.sold == 4, "only the remaining node was replaced"

    run_scenario(scenario, feature_gates=GATES)
