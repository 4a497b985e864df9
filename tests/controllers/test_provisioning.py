"""From a pending pod to the node it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]


def test_a_pending_pod_gets_a_node_and_is_bound(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(3)
        assert len(set((await world.bound()).values())) == 1
        (claim,) = await world.list(kinds.NODECLAIMS)
        await asyncio.sleep(5)
        (claim,) = await world.list(kinds.NODECLAIMS)
        found = await world.conditions(claim)
        assert {kind: found[kind] for kind in ("Launched", "Registered", "Initialized", "Ready")} == {
            "Launched": "True/Launched",
            "Registered": "True/Registered",
            "Initialized": "True/Initialized",
            "Ready": "True/Ready",
        }
        (node,) = await world.list(kinds.NODES)
        assert not node["spec"].get("taints")
        assert node["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
        assert "karpenter.sh/termination" in node["metadata"]["finalizers"]
        phases = {pod["status"]["phase"] for pod in await world.list(kinds.PODS)}
        assert phases == {"Running"}

    run_scenario(scenario)


def test_a_burst_is_one_wave_and_the_price_is_the_plans(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(60, cpu="900m")
        (planned,) = world.logged("computed new nodeclaim(s) to fit pod(s)")
        claims = await world.list(kinds.NODECLAIMS)
        assert len(claims) == planned["nodeclaims"]
        paid = sum(world.cloud.price(m.instance_type, m.zone, m.capacity_type) for m in world.cloud.standing())
        assert abs(paid - planned["cost"]) < 0.01 * planned["cost"]

    run_scenario(scenario)


def test_the_log_has_karpenters_lines(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(1)
        await asyncio.sleep(5)
        for message in (
            "found provisionable pod(s)",
            "computed new nodeclaim(s) to fit pod(s)",
            "created nodeclaim",
            "launched nodeclaim",
            "registered nodeclaim",
            "initialized nodeclaim",
        ):
            assert len(world.logged(message)) == 1, message
        (launched,) = world.logged("launched nodeclaim")
        assert launched["instance-type"] == "m.large"
        assert launched["level"] == "INFO"
        decision = launched["decision"]
        nominated = [event for event in await world.list(kinds.CORE_EVENTS) if event["reason"] == "Nominated"]
        assert nominated[0]["message"].startswith("Pod should schedule on: nodeclaim/default-")
        assert nominated[0]["metadata"]["annotations"]["dovetail.sh/decision"] == decision
        assert f'decision="{decision}"' in world.autoscaler.metrics.text().decode()
        assert any(each.id == decision for each in world.autoscaler.decision_history.decisions())

    run_scenario(scenario)


def test_a_nodepool_without_compatible_types_gets_an_event(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        nothing = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["none.such"]}]
        await world.pool(requirements=nothing)
        world.start()
        await world.pods(1)
        await asyncio.sleep(30)
        events = await world.list(kinds.CORE_EVENTS)
        (published,) = [event for event in events if event["reason"] == "NoCompatibleInstanceTypes"]
        assert published["involvedObject"]["kind"] == "NodePool"
        assert published["message"] == "NodePool requirements filtered out all compatible available instance types"
        assert world.logged("skipping, nodepool requirements filtered out all instance types")

    run_scenario(scenario)


def test_the_batch_closes_when_no_new_pods_arrive(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await asyncio.sleep(2)
        await world.pods(5)
        began = world.clock.monotonic()

        async def launched() -> bool:
            return bool(await world.list(kinds.NODECLAIMS))

        await world.until(launched, step=0.05)
        assert world.clock.monotonic() - began < 1.5

    run_scenario(scenario)


def test_the_nodepool_status_counts_its_nodes(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(3)
        await asyncio.sleep(3)
        (pool,) = await world.list(kinds.NODEPOOLS)
        assert pool["status"]["nodes"] == 1
        assert pool["status"]["resources"]["cpu"] == "2"
        ready = next(each for each in pool["status"]["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "True"
        assert pool["metadata"]["annotations"]["karpenter.sh/nodepool-hash-version"] == "v3"

    run_scenario(scenario)
