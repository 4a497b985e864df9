"""A disruption command is executed only as long as it is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cluster.nominations import NominationTarget
from dovetail.controllers.disruption import controller, validation
from dovetail.controllers.disruption.candidates import candidate_of
from dovetail.controllers.disruption.types import Command, DisruptionReason
from dovetail.kube import resources as kinds
from tests.controllers.test_termination_and_disruption import ALL, NODE_CLASS, RunScenario, nodes, running

STILL = {"consolidateAfter": "Never", "budgets": ALL}
SLOW = SimulatedMarket(boot=(60.0, 60.0))
DO_NOT = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


def _team(name: str) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": {"labels": {"team": name}}}}}


async def _replacing(world: Any) -> bool:
    """Whether the replacement is starting and the old node still exists."""
    return len(await world.list(kinds.NODECLAIMS)) == 2 and len(await world.list(kinds.NODES)) == 1


async def _as_before(world: Any) -> bool:
    """Whether one node exists, untainted, and no replacement is starting."""
    found, claims = await world.list(kinds.NODES), await world.list(kinds.NODECLAIMS)
    reasons = [(await world.conditions(claim)).get("DisruptionReason") for claim in claims]
    return len(found) == 1 and reasons == [None] and not found[0]["spec"].get("taints")


async def _drifting(world: Any, **pool: Any) -> str:
    """A node whose replacement is being launched; its name."""
    await running(world, 1, disruption=STILL, metadata={"labels": {"team": "all"}}, **pool)
    (name,) = await nodes(world)
    await world.kube.patch(kinds.NODEPOOLS, "default", _team("shop"))
    await world.until(lambda: _replacing(world), within=60)
    return name


def _published(world: Any) -> list[str]:
    return [decision.summary for decision in world.autoscaler.decision_history.decisions() if decision.kind == "undo"]


def test_a_node_stays_whose_nodepool_is_reverted(run_scenario: RunScenario) -> None:
    """Otherwise the good node would be removed, and its replacement would have to be replaced again."""

    async def scenario(world: Any) -> None:
        name = await _drifting(world)
        await world.kube.patch(kinds.NODEPOOLS, "default", _team("all"))
        await world.until(lambda: _as_before(world), within=30)
        await asyncio.sleep(300)
        assert await nodes(world) == [name] and len(world.cloud.standing()) == 1
        (undone,) = _published(world)
        assert undone.startswith(f"rolled back, {name}: it is no longer drifted: drift replace")
        assert undone.endswith("and replacing with 1 nodes (NodePoolDrifted)")
        assert not world.logged("failed terminating nodes while executing a disruption command")

    run_scenario(scenario, market=SLOW)


def test_a_do_not_disrupt_annotation_meanwhile_rolls_the_command_back(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        name = await _drifting(world)
        await world.kube.patch(kinds.PODS, "p0", DO_NOT, "default")
        await world.until(lambda: _as_before(world), within=30)
        await asyncio.sleep(60)
        assert await nodes(world) == [name]
        assert 'pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/p0)' in _published(world)[0]

    run_scenario(scenario, market=SLOW)


def test_with_a_grace_period_no_annotation_rolls_back_a_drifted_node(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        name = await _drifting(world, template={"terminationGracePeriod": "60s"})
        await world.kube.patch(kinds.PODS, "p0", DO_NOT, "default")

        async def left() -> bool:
            return name not in await nodes(world)

        await world.until(left, within=300)
        assert not _published(world)

    run_scenario(scenario, market=SLOW)


def test_a_new_process_continues_with_drift_that_the_cloud_still_reports(run_scenario: RunScenario) -> None:
    """The Drifted condition is the first report; it does not have to be confirmed twice again."""

    async def scenario(world: Any) -> None:
        await world.kube.create(kinds.EC2NODECLASSES, NODE_CLASS)
        await running(world, 1, disruption=STILL)
        (name,) = await nodes(world)
        old = world.cloud.standing()[0].provider_id

        async def drift(claim: Any, instance: Any, node_class: Any) -> str | None:
            return "SecurityGroupDrift" if instance.provider_id == old else None

        world.cloud.drift = drift
        await world.until(lambda: _replacing(world), within=900)
        await world.stop()
        world.start()

        async def left() -> bool:
            return name not in await nodes(world)

        await world.until(left, within=120)
        assert not _published(world) and len(world.cloud.standing()) == 1

    run_scenario(scenario, market=SLOW)


def _command(world: Any, reason: DisruptionReason) -> Command:
    """A command about all nodes as they are now."""
    context = world.autoscaler.context
    there = [(context.cluster_state.node_for(claim), claim) for claim in context.cluster_state.claims.store.all()]
    chosen = tuple(candidate_of(context, node, claim, {}) for node, claim in there)
    return Command(id="d-1", reason=reason, candidates=chosen)


def test_validation_finds_what_changed_since_the_candidates_were_chosen(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2, cpu="1500m")
        context, underused = world.autoscaler.context, _command(world, DisruptionReason.UNDERUTILIZED)
        first, second = sorted(candidate.node for candidate in underused.candidates)
        assert validation.before(context, underused) == (underused.candidates, "")
        drifted, empty = _command(world, DisruptionReason.DRIFTED), _command(world, DisruptionReason.EMPTY)
        assert validation.before(context, drifted).why == "; ".join(
            f"{candidate.node}: it is no longer drifted" for candidate in drifted.candidates
        )
        assert not validation.before(context, empty).candidates

        pod = context.cluster_state.pods_on(first)[0]
        await world.kube.delete(kinds.PODS, pod.metadata.name, "default", grace=0)
        await asyncio.sleep(1)
        assert [candidate.node for candidate in validation.before(context, empty).candidates] == [first], (
            "the other stays"
        )
        assert validation.before(context, underused).candidates, "a deleted pod needs no replacement"

        body = {"metadata": {"name": "late"}, "spec": {"nodeName": first, "containers": [{"name": "c", "image": "p"}]}}
        await world.kube.create(kinds.PODS, body, "default")
        await asyncio.sleep(1)
        assert validation.before(context, underused) == ((), f"{first}: a pod was scheduled that was not planned for")
        assert validation.under_way(context, underused).candidates, "new pods do not count once the node is tainted"
        assert not validation.under_way(context, empty).candidates

        context.cluster_state.nominate(pod, NominationTarget("node", second))
        assert f"{second}: node is nominated for a pending pod" in validation.closed(context, underused).why
        await world.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"disruption": {"consolidateAfter": "Never"}}})
        await asyncio.sleep(1)
        assert "its NodePool no longer allows consolidation" in validation.under_way(context, underused).why

    run_scenario(scenario, only=("m.large",))


def test_a_budget_that_closed_meanwhile_invalidates_what_it_no_longer_allows(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 2, cpu="1500m")
        context, underused = world.autoscaler.context, _command(world, DisruptionReason.UNDERUTILIZED)
        budgets = {"spec": {"disruption": {"budgets": [{"nodes": "1"}]}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", budgets)
        await asyncio.sleep(1)
        found = validation.before(context, underused)
        assert not found.candidates and found.why.endswith("the NodePool's disruption budget allows no more")
        assert validation.closed(context, underused).candidates, "by then the command itself uses up the budget"

    run_scenario(scenario, only=("m.large",))


def test_a_consolidation_that_is_forbidden_while_the_planner_runs_is_rejected(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: Any) -> None:
        thoughts = 0

        async def slowly(think: Callable[[], Any]) -> Any:
            nonlocal thoughts
            thoughts, answer = thoughts + 1, think()
            for name in await nodes(world):
                await world.kube.patch(kinds.NODES, name, {"metadata": {"labels": {"seen": f"{thoughts}-times"}}})
                if thoughts > 1:
                    await world.kube.patch(kinds.NODES, name, DO_NOT)
            await asyncio.sleep(1)
            return answer

        monkeypatch.setattr(controller, "beside", slowly)
        await running(world, 4, cpu="900m")
        before, one_of_each = await nodes(world), {node: pod for pod, node in (await world.bound()).items()}
        for name in one_of_each.values():
            await world.kube.delete(kinds.PODS, name, "default", grace=0)
        await asyncio.sleep(120)
        assert thoughts == 2 and await nodes(world) == before
        (line,) = world.logged("disruption no longer holds")
        assert "disruption is blocked through" in line["error"] and not world.logged("tainted node")
        logged = [event["message"] for event in await world.list(kinds.CORE_EVENTS)]
        assert any(each.startswith("Consolidation rejected") for each in logged)

    run_scenario(scenario, only=("m.large",))
