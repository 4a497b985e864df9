"""Metrics by the names that dashboards know."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

Tell = Callable[..., None]


def test_a_bought_machine_shows_in_the_numbers(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"}, limits={"cpu": "100"})
        await world.served(2)
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
            'dovetail_safe_mode{cause="stale-view"} 0.0',
            'dovetail_decisions{kind="provision"} 1.0',
            'karpenter_cloudprovider_instance_type_cpu_cores{instance_type="m.large"} 2.0',
            'karpenter_pods_bound_duration_seconds_count{dynamic_resources="false"} 2.0',
            "karpenter_pods_scheduling_decision_duration_seconds_count 2.0",
            "karpenter_pods_startup_duration_seconds_count{} 2",
        ):
            assert line in text, line

    tell(story)


def test_machines_pods_and_conditions_are_told_one_by_one_with_karpenters_labels(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(2)
        await asyncio.sleep(10)
        (claim,) = await world.list(kinds.NODECLAIMS)
        text = world.autoscaler.metrics.text().decode()
        node = _labels(text, "karpenter_nodes_total_pod_requests", resource_type="cpu")
        assert node["nodepool"] == "default" and node["managed"] == "true" and node["instance_type"] == "m.large"
        assert {"node_name", "zone", "arch", "os", "capacity_type"} <= node.keys()
        pod = _labels(text, "karpenter_pods_state")
        assert pod.keys() >= {"name", "namespace", "node", "zone", "arch", "capacity_type", "instance_type"}
        wanted = {"phase": "Running", "scheduled": "true", "ready": "true", "managed": "true", "nodepool": "default"}
        assert wanted.items() <= pod.items()
        for name, more in (
            ("operator_nodeclaim", {"karpenter_sh_nodepool": "default"}),
            ("operator", {"kind": "NodeClaim", "group": "karpenter.sh"}),
        ):
            ready = _labels(text, f"{name}_status_condition_count", type="Ready", name=claim["metadata"]["name"])
            assert ready.items() >= ({"status": "True", "reason": "Ready"} | more).items()
            turned = _labels(text, f"{name}_status_condition_transitions_total", type="Launched")
            assert turned.items() >= ({"status": "True", "reason": "Launched"} | more).items()

    tell(story)


def test_a_pod_that_waits_is_told_with_how_long(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(limits={"cpu": "1"})
        world.start()
        await world.pods(1)
        await asyncio.sleep(100)
        text = world.autoscaler.metrics.text().decode()
        lines = [line for line in text.splitlines() if re.match("karpenter_pods.*_time_", line)]
        waits = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
        assert waits["karpenter_pods_unstarted_time_seconds"] == waits["karpenter_pods_unbound_time_seconds"] == 100.0
        assert "karpenter_pods_provisioning_unbound_time_seconds" not in waits
        assert "karpenter_pods_provisioning_scheduling_undecided_time_seconds" not in waits

    tell(story)


def test_a_pool_that_is_gone_leaves_no_numbers_behind(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(limits={"cpu": "100"})
        await world.pool("other", limits={"cpu": "7"})
        await world.served(1)
        await asyncio.sleep(30)
        (claim,) = await world.list(kinds.NODECLAIMS)
        used = claim["metadata"]["labels"]["karpenter.sh/nodepool"]
        empty = "other" if used == "default" else "default"
        assert _of(world, used) and _of(world, empty)
        await world.kube.delete(kinds.NODEPOOLS, empty)
        await asyncio.sleep(5)
        assert _of(world, used) and not _of(world, empty)

    tell(story)


def _labels(text: str, family: str, /, **some: str) -> dict[str, str]:
    """The labels of the first number of that name that has some of them."""
    for line in text.splitlines():
        if line.startswith(f"{family}{{"):
            found = dict(re.findall(r'(\w+)="([^"]*)"', line))
            if some.items() <= found.items():
                return found
    raise AssertionError(f"no {family} with {some}")


def _of(world: Any, pool: str) -> set[str]:
    lines = world.autoscaler.metrics.text().decode().splitlines()
    return {line.partition("{")[0] for line in lines if line.startswith("karpenter_nodepools_") and f'"{pool}"' in line}
