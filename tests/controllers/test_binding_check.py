"""A planned binding is made only if it still holds: pods that came meanwhile count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.controllers.nodeclaim.binding_check import VIEW_KEPT_FOR_S
from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]
STILL = {"consolidateAfter": "Never"}
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def away_from(app: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def _arrive(world: Any, name: str, app: str, node: str, **spec: Any) -> None:
    """A pod that another scheduler has bound."""
    body = {
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}], **spec},
    }
    await world.kube.create(kinds.PODS, body, "default")


async def _joined(world: Any) -> bool:
    return bool(await world.list(kinds.NODES))


def _scenario(arriving: Callable[[Any, str], Any], holds: bool, **spec: Any) -> Callable[[Any], Any]:
    """A pod is planned; before its node is Ready another is bound to that node."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        world.start()
        await world.pods(1, prefix="p", **spec)
        await world.until(lambda: _joined(world), within=60)
        (node,) = await world.list(kinds.NODES)
        await arriving(world, node["metadata"]["name"])
        await asyncio.sleep(60)
        assert bool((await world.bound())["p0"]) is holds
        refusals = world.logged("planned binding does not hold")
        assert [line["Pod"]["name"] for line in refusals[:1]] == ([] if holds else ["p0"])

    return scenario


def test_a_pod_is_not_bound_beside_one_that_its_anti_affinity_matches(run_scenario: RunScenario) -> None:
    async def arriving(world: Any, node: str) -> None:
        await _arrive(world, "other", "noisy", node)

    scenario = _scenario(arriving, False, affinity=away_from("noisy", HOSTNAME))
    run_scenario(scenario, market=SimulatedMarket(ready=(10, 10)), only=("m.large",))


def test_a_pod_is_not_bound_beside_one_whose_anti_affinity_matches_it(run_scenario: RunScenario) -> None:
    async def arriving(world: Any, node: str) -> None:
        await _arrive(world, "other", "noisy", node, affinity=away_from("p", HOSTNAME))

    run_scenario(_scenario(arriving, False), market=SimulatedMarket(ready=(10, 10)), only=("m.large",))


def test_a_pod_is_bound_beside_pods_that_its_anti_affinity_does_not_match(run_scenario: RunScenario) -> None:
    async def arriving(world: Any, node: str) -> None:
        await _arrive(world, "other", "calm", node)

    scenario = _scenario(arriving, True, affinity=away_from("noisy", HOSTNAME))
    run_scenario(scenario, market=SimulatedMarket(ready=(10, 10)), only=("m.large",))


def test_a_pod_is_not_bound_where_its_spread_no_longer_holds(run_scenario: RunScenario) -> None:
    spread = {
        "topologyKey": HOSTNAME,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "p"}},
    }

    async def arriving(world: Any, node: str) -> None:
        await world.kube.create(kinds.NODES, {"metadata": {"name": "empty", "labels": {HOSTNAME: "empty"}}})
        await _arrive(world, "twin", "p", node)

    scenario = _scenario(arriving, False, topologySpreadConstraints=[spread])
    run_scenario(scenario, market=SimulatedMarket(ready=(10, 10)), only=("m.large",))


def test_a_binding_that_did_not_hold_is_made_when_it_holds_again(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        world.start()
        await world.pods(1, prefix="p", affinity=away_from("noisy", HOSTNAME))
        await world.until(lambda: _joined(world), within=60)
        (node,) = await world.list(kinds.NODES)
        await _arrive(world, "other", "noisy", node["metadata"]["name"])

        async def refused() -> bool:
            return bool(world.logged("planned binding does not hold"))

        await world.until(refused, within=60)
        await world.kube.delete(kinds.PODS, "other", "default", grace=0)
        await world.until(world.all_bound, within=10)

    run_scenario(scenario, market=SimulatedMarket(ready=(10, 10)), only=("m.large",))


def test_the_view_is_made_only_for_pods_with_inter_pod_constraints_and_dropped_after_a_while(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        await world.served(2)
        check = _checks(world)
        assert check._cluster is None, "plain pods cost nothing"
        await world.pods(1, prefix="q", affinity=away_from("q", HOSTNAME))
        await world.until(world.all_bound)
        assert check._cluster is not None
        await asyncio.sleep(VIEW_KEPT_FOR_S + 60)
        await world.pods(1, prefix="r")
        await asyncio.sleep(1)
        assert check._cluster is None

    run_scenario(scenario)


def _checks(world: Any) -> Any:
    """The check of the process under test: the listener of pods that belongs to one."""
    listeners = world.autoscaler.cluster_state._listeners[kinds.PODS.name]
    return next(each.__self__ for each in listeners if type(getattr(each, "__self__", None)).__name__ == "BindingCheck")
