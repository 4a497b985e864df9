"""Explanations of terminating nodes, and of pods that have moved or been recreated."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.controllers import explain
from dovetail.controllers.history.decisions import Decision, Refusal
from dovetail.kube import resources as kinds
from dovetail.model.nodes import Lease
from tests.controllers.test_explain import QUICK, RunScenario, _guarded, ask


def test_a_draining_node_explains_what_blocks_it_and_for_how_long(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        node = await _guarded(world)
        await world.kube.delete(kinds.NODES, node)
        await asyncio.sleep(10)
        answer = ask(world, "node", node)
        assert answer.line.startswith("is being drained: 2 pod(s) left; pod default/p0: pdb prevents pod evictions")
        assert answer.line.endswith("and 1 more reason(s)")
        assert answer.details[-1] == "it has no terminationGracePeriod: it waits for as long as its pods block it"
        (claim,) = [claim for claim in await world.list(kinds.NODECLAIMS) if claim["status"].get("nodeName") == node]
        date = {"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T03:00:00Z"}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], {"metadata": {"annotations": date}})
        await asyncio.sleep(1)
        end, room = ask(world, "node", node).details[-1].split("; ")
        assert end == "all its pods will be deleted by 2026-01-01T03:00:00Z"
        assert room == "capacity for the pods that block it is launched 5 minutes before"

    run_scenario(scenario)


def test_a_blocked_node_has_all_its_blockers_in_its_event_and_its_next_evaluation(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        node = await _guarded(world)
        published = [event for event in await world.list(kinds.CORE_EVENTS) if event["reason"] == "DisruptionBlocked"]
        both = [each["message"] for each in published if each["involvedObject"]["name"] == node]
        assert any("(Pod=default/p0" in text and "(Pod=default/q0" in text for text in both)
        looks = [line for line in ask(world, "node", node).details if line.startswith("evaluated again")]
        assert looks[0].startswith(
            "evaluated again as soon as its blockers are gone, the first of them at 2026-01-01T01:"
        )

    run_scenario(scenario)


def test_a_drifted_node_explains_that_its_budget_is_closed(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={**QUICK, "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]})
        await world.served(1)
        await asyncio.sleep(10)
        label = {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", label)
        await asyncio.sleep(10)
        assert ask(world, "node", (await world.bound())["p0"]).line == (
            "has drifted (NodePoolDrifted) and waits: budget Drifted: 0 of 1 may be disrupted now (nodes: 0)"
        )

    run_scenario(scenario)


def test_a_drifted_node_whose_pods_fit_nowhere_else_is_said_to_stay(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(1)
        await asyncio.sleep(10)
        absent = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["s390x"]}]
        await world.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"template": {"spec": {"requirements": absent}}}})
        await asyncio.sleep(60)
        assert ask(world, "node", (await world.bound())["p0"]).line == (
            "has drifted (RequirementsDrifted) and stays: not all pods would schedule"
        )

    run_scenario(scenario)


def test_a_do_not_disrupt_pod_with_a_pdb_explains_both_and_that_its_node_drifted(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        node = await _guarded(world)
        note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        await world.kube.patch(kinds.PODS, "p0", note, "default")
        label = {"spec": {"template": {"metadata": {"labels": {"team": "shop"}}}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", label)
        await asyncio.sleep(10)
        answer = ask(world, "node", node)
        codes = [each["code"] for each in answer.facts["blockers"] if each["pod"] == "default/p0"]
        assert codes == ["DO_NOT_DISRUPT_POD", "PDB"]
        assert any(each.startswith("drifted: NodePoolDrifted since 2026-01-01T00:") for each in answer.details)

    run_scenario(scenario)


def test_a_missing_budget_is_explained_only_while_none_is_left(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(1)
        await asyncio.sleep(90)
        node, decision_history = (await world.bound())["p0"], world.autoscaler.decision_history
        decision_history.record(
            Decision(
                id="d-1", kind="keep", time=decision_history.now(), summary="no budget", reason="BUDGET", subject=node
            )
        )
        assert "BUDGET" not in ask(world, "node", node).line

    run_scenario(scenario)


def test_a_running_pod_explains_why_its_node_was_launched_and_what_was_cheaper(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(1, cpu="2500m")
        (decision,) = [
            decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "provision"
        ]
        answer = ask(world, "pod", "default/p0")
        assert any(decision.id in line for line in answer.details) and answer.facts["decisions"] == [decision.id]
        assert answer.deep and all(line.startswith("cheaper, but ") for line in answer.deep)

    run_scenario(scenario)


def test_a_pod_is_not_explained_by_a_refusal_of_an_earlier_pod_of_its_name(run_scenario: RunScenario) -> None:
    """A StatefulSet reuses the names of its pods."""

    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        old = Refusal(pods=("default/p0",), count=1, code="NO_NODEPOOL", message="there was none")
        decision_history = world.autoscaler.decision_history
        decision_history.record(
            Decision(id="d-1", kind="refuse", time=decision_history.now(), summary="1 pod", refusals=(old,))
        )
        await asyncio.sleep(5)
        await world.pods(1)
        await asyncio.sleep(0.2)
        assert "there was none" not in ask(world, "pod", "default/p0").line

    run_scenario(scenario)


def test_a_nodeclaim_explains_its_node_or_why_there_is_none(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        world.start()
        await world.pods(1)

        async def launched() -> bool:
            claims = await world.list(kinds.NODECLAIMS)
            return bool(claims) and bool(claims[0].get("status", {}).get("providerID"))

        await world.until(launched)
        (claim,) = await world.list(kinds.NODECLAIMS)
        name = claim["metadata"]["name"]
        assert ask(world, "claim", name).line.startswith("has no node yet: instance i-")
        await world.until(world.all_bound)
        assert ask(world, "claim", name).subject == f"node/{(await world.bound())['p0']}"

    run_scenario(scenario, market=SimulatedMarket(boot=(30.0, 40.0)))


def test_a_deleted_node_explains_the_last_decision(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(1)
        await asyncio.sleep(30)
        node, (claim,) = (await world.bound())["p0"], await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await asyncio.sleep(120)
        for kind, name in (("node", node), ("claim", claim["metadata"]["name"])):
            line = ask(world, kind, name).line
            assert re.match(r"is gone; last decision d-\w+ at .*: consolidation delete, terminating", line)
        with pytest.raises(explain.Unknown, match="node/other is not in the cluster"):
            ask(world, "node", "other")

    run_scenario(scenario)


def test_a_budget_closed_by_a_schedule_explains_when_it_opens(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        shut = [{"nodes": "0", "schedule": "TZ=Asia/Seoul 0 9 * * *", "duration": "2h"}]
        await world.pool(disruption={"consolidateAfter": "30s", "budgets": shut})
        await world.served(1)
        await asyncio.sleep(10)
        window = "schedule TZ=Asia/Seoul 0 9 * * * for 2h, opens 2026-01-01T02:00:00Z"
        published = f"budget Drifted: 0 of 1 may be disrupted now (nodes: 0, {window})"
        assert published in ask(world, "nodepool", "default").details

    run_scenario(scenario)


def test_a_lease_that_was_not_renewed_explains_that_no_autoscaler_runs() -> None:
    def lease(name: str, at: str) -> Lease:
        meta = {"name": name, "namespace": "kube-system"}
        return msgspec.convert({"metadata": meta, "spec": {"renewTime": f"2026-01-01T{at}.000000Z"}}, Lease)

    now = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    old, older = lease("ours", "11:30:00"), lease("theirs", "09:00:00")
    assert explain.no_autoscaler([], now) == explain.no_autoscaler([older, lease("alive", "11:59:30")], now) == ""
    published = (
        "no autoscaler is running: its lease kube-system/ours was last renewed at 2026-01-01T11:30:00Z, see its log"
    )
    assert explain.no_autoscaler([older, old], now) == published
