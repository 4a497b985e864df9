"""Capacity for the pods of a terminating node is launched in time: not too late, not hours early, and once."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cluster.nominations import NominationTarget
from dovetail.kube import resources as kinds
from tests.controllers.test_termination_and_disruption import ALL, QUICK, RunScenario, nodes, running

STILL = {"consolidateAfter": "Never", "budgets": ALL}
SLOW = SimulatedMarket(boot=(60.0, 60.0))
DO_NOT = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


async def _guarded(world: Any, allowed: int, healthy: int) -> None:
    """A PDB over both pods, as its controller would report it."""
    await world.kube.create(
        kinds.PDBS,
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "p"}}}},
        "default",
    )
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": 2,
        "expectedPods": 2,
        "observedGeneration": 1,
    }
    await world.kube.patch(kinds.PDBS, "b", {"status": status}, "default", subresource="status")


async def _delete_nodeclaim(world: Any) -> str:
    (name,), (claim,) = await nodes(world), await world.list(kinds.NODECLAIMS)
    await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
    return name


def test_the_replacement_of_a_protected_pods_node_is_ready_shortly_before_the_deadline(
    run_scenario: RunScenario,
) -> None:
    """A node with a do-not-disrupt pod expires: no second node for its half hour of grace, and no gap after."""

    async def scenario(world: Any) -> None:
        template = {"expireAfter": "600s", "terminationGracePeriod": "1800s"}
        await running(world, 1, disruption=QUICK, template=template)
        await world.kube.patch(kinds.PODS, "p0", DO_NOT, "default")
        (old,) = await nodes(world)
        await asyncio.sleep(600 + 1800 - 400)
        assert len(world.cloud.standing()) == 1, "the pod may stay for a while: no other node is needed yet"
        await asyncio.sleep(250)
        assert (await world.bound())["p0"] == old and len(await nodes(world)) == 2

        async def cut() -> bool:
            return "p0" not in await world.bound()

        await world.until(cut, within=200)
        await world.pods(1, prefix="successor")
        await asyncio.sleep(5)
        (successor,) = [
            pod for pod in world.autoscaler.cluster_state.pods.store.all() if pod.metadata.name == "successor0"
        ]
        (new,) = set(await nodes(world)) - {old}
        nominated_pods = world.autoscaler.cluster_state.nominations.of(successor.metadata.uid)
        assert nominated_pods == NominationTarget("node", new) and world.cloud.sold == 2

    run_scenario(scenario, market=SLOW)


def test_nothing_is_launched_for_pods_whose_pdb_will_not_open(run_scenario: RunScenario) -> None:
    """All pods are healthy and none may be evicted: that lasts, and a node for their replacements would be idle."""

    async def scenario(world: Any) -> None:
        await running(world, 2)
        await _guarded(world, allowed=0, healthy=2)
        await _delete_nodeclaim(world)
        await asyncio.sleep(1800)
        assert world.cloud.sold == 1 and len(await world.bound()) == 2

    run_scenario(scenario, market=SLOW)


def test_a_node_launched_for_a_blocked_drain_is_kept_and_not_launched_again(run_scenario: RunScenario) -> None:
    """Empty or not, it is not removed while the pods it was launched for are still to come."""

    async def scenario(world: Any) -> None:
        await running(world, 2)
        await _guarded(world, allowed=0, healthy=1)
        old = await _delete_nodeclaim(world)
        await asyncio.sleep(1800)
        assert world.cloud.sold == 2 and len(world.cloud.standing()) == 2
        await world.kube.delete(kinds.PDBS, "b", "default")

        async def left() -> bool:
            return old not in await nodes(world)

        await world.until(left, within=60)
        await world.until(lambda: _none(world), within=120)
        assert world.cloud.sold == 2, "once no pod is awaited any more it is removed like any other"

    run_scenario(scenario, market=SLOW)


async def _none(world: Any) -> bool:
    return not await nodes(world)
