"""The Balanced policy: pods are moved only where that saves enough of what the whole NodePool costs."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from dovetail.kube import resources as kinds
from tests.controllers.conftest import types
from tests.controllers.test_explain import ask
from tests.controllers.test_termination_and_disruption import QUICK, RunScenario, nodes, running

BALANCED = {**QUICK, "consolidationPolicy": "Balanced"}


def sold(small: float) -> list[dict[str, Any]]:
    """m.large, which holds one pod, at a price; m.2xlarge, which holds four, at 30 cents."""
    prices = {"m.large": small, "m.2xlarge": 0.3}
    return [
        {**each, "offerings": [{**one, "price": prices[each["name"]]} for one in each["offerings"]]}
        for each in types(*prices)
    ]


@pytest.mark.parametrize(("small", "moved"), [(0.2, False), (0.1, True)])
def test_a_balanced_nodepool_approves_a_move_that_saves_half_the_share_it_disrupts(
    run_scenario: RunScenario, small: float, moved: bool
) -> None:
    """All pods of the NodePool are disrupted: a third of its cost is too little for that, two thirds are enough."""

    async def scenario(world: Any) -> None:
        await running(world, 4, cpu="1500m", disruption=BALANCED)
        before = await nodes(world)
        for name in ("p1", "p2", "p3"):
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        await asyncio.sleep(300)
        assert (await nodes(world) != before) == moved
        reasons = {
            decision.reason for decision in world.autoscaler.decision_history.decisions() if decision.kind == "keep"
        }
        published = {event["reason"] for event in await world.list(kinds.CORE_EVENTS)}
        assert ("NOT_BALANCED" in reasons) != moved
        assert ("ConsolidationApproved" in published) == ("ConsolidationCandidate" in published) == moved
        word = "approved" if moved else "rejected"
        line = f'karpenter_consolidation_moves_total{{decision="{word}",nodepool="default",policy="balanced"}}'
        assert line in world.autoscaler.metrics.text().decode()
        if not moved:
            best_lines = [each for each in ask(world, "node", *before).details if each.startswith("best alternative")]
            assert re.search(r": 1 x m.large \((spot|on-demand)\); the saving is not worth", best_lines[0])

    run_scenario(scenario, sold=sold(small))


def test_a_balanced_nodepool_scores_a_move_once_for_all_its_nodes(run_scenario: RunScenario) -> None:
    """A rejected move is neither evaluated again in every pass nor does it displace others in them."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption={**BALANCED, "budgets": [{"nodes": "1"}]})
        world.start()
        for zone in ("a", "b"):
            await world.pods(4, cpu="1500m", prefix=zone, nodeSelector={"topology.kubernetes.io/zone": zone})
        await world.until(world.all_bound)
        before = await nodes(world)
        assert len(before) == 2
        for name in ("a1", "a2", "a3", "b1", "b2", "b3"):
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        await asyncio.sleep(900)
        assert await nodes(world) == before
        for node in before:
            assert ask(world, "node", node).line.startswith("stays: the saving is not worth the disruption")
        line = 'karpenter_consolidation_moves_total{decision="rejected",nodepool="default",policy="balanced"} '
        (asked,) = (each for each in world.autoscaler.metrics.text().decode().splitlines() if each.startswith(line))
        assert float(asked.removeprefix(line)) <= 4

    run_scenario(scenario, sold=sold(0.2))


def test_a_pending_consolidation_that_does_not_hold_is_rejected_in_an_event(run_scenario: RunScenario) -> None:
    """The event that a node is a candidate is followed by one that it is no longer, and why."""

    async def scenario(world: Any) -> None:
        await running(world, 4, cpu="1500m", disruption=QUICK)
        (node,) = await nodes(world)
        for name in ("p1", "p2", "p3"):
            await world.kube.delete(kinds.PODS, name, "default", grace=0)

        async def is_candidate() -> bool:
            return any(event["reason"] == "ConsolidationCandidate" for event in await world.list(kinds.CORE_EVENTS))

        await world.until(is_candidate, within=120)
        await world.pods(3, cpu="1500m", prefix="q", nodeName=node)
        await asyncio.sleep(120)
        assert await nodes(world) == [node]
        published = {event["reason"]: event["message"] for event in await world.list(kinds.CORE_EVENTS)}
        message = f"replace: nodepools=[default]: [{node}] -> [1 replacement]"
        assert published["ConsolidationCandidate"] == f"Consolidation candidate: {message} (savings: $0.20)"
        assert (
            published["ConsolidationRejected"] == f"Consolidation rejected: {message}, reason: churn (savings: $0.20)"
        )

    run_scenario(scenario, sold=sold(0.1))
