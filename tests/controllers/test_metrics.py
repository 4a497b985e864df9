"""Metrics by the names that dashboards know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

Tell = Callable[..., None]


def test_a_bought_machine_shows_in_the_numbers(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "100"})
        world.start()
        await world.pods(2)
        await world.until(world.all_bound)
        await asyncio.sleep(10)
        text = world.autoscaler.metrics.text().decode()
        for line in (
            'karpenter_nodeclaims_created_total{min_values_relaxed="false",nodepool="default",'
            'reason="provisioned"} 1.0',
            'karpenter_nodes_created_total{nodepool="default",zone="a"} 1.0',
            'karpenter_nodepools_limit{nodepool="default",resource_type="cpu"} 100.0',
            'karpenter_nodepools_usage{nodepool="default",resource_type="cpu"} 2.0',
            'karpenter_nodepools_cost_total{nodepool="default"} 0.1',
            "karpenter_cluster_state_synced 1.0",
            'karpenter_pods_state{nodepool="default",phase="Running",scheduled="true"} 2.0',
            'operator_nodeclaim_status_condition_count{reason="Ready",status="True",type="Ready"} 1.0',
            'dovetail_safe_mode{cause="stale-view"} 0.0',
            'dovetail_decisions{kind="provision"} 1.0',
        ):
            assert line in text, line
        requests = next(line for line in text.splitlines() if line.startswith("karpenter_nodes_total_pod_requests"))
        assert 'instance_type="m.large"' in requests
        assert "karpenter_cluster_utilization_percent" in text

    tell(story)


def test_a_pool_that_is_gone_leaves_no_numbers_behind(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(limits={"cpu": "100"})
        await world.pool("other", limits={"cpu": "7"})
        world.start()
        await world.pods(1)
        await world.until(world.all_bound)
        await asyncio.sleep(30)
        (claim,) = await world.list(kinds.NODECLAIMS)
        used = claim["metadata"]["labels"]["karpenter.sh/nodepool"]
        empty = "other" if used == "default" else "default"
        assert _of(world, used) and _of(world, empty)
        await world.kube.delete(kinds.NODEPOOLS, empty)
        await asyncio.sleep(5)
        assert _of(world, used) and not _of(world, empty)

    tell(story)


def _of(world: Any, pool: str) -> set[str]:
    lines = world.autoscaler.metrics.text().decode().splitlines()
    return {line.partition("{")[0] for line in lines if line.startswith("karpenter_nodepools_") and f'"{pool}"' in line}
