"""Explanations: everything at once, the most important thing first."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dovetail.cloud.provider import RepairPolicy
from dovetail.controllers import explain
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.model import wellknown
from dovetail.model.meta import stamp

RunScenario = Callable[..., None]
NO_PRICE = {"metadata": {"annotations": {wellknown.PRICE: None}}}
QUICK = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "1"}]}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "p"}},
    }
]


def ask(world: Any, kind: str, name: str) -> explain.Answer:
    scaler = world.autoscaler
    question = getattr(explain, kind)
    answer: explain.Answer = question(
        scaler.cluster_state, scaler.decision_history.decisions(), name, world.clock.now()
    )
    return answer


async def _guarded(world: Any) -> str:
    """Two pods on one node: one with a PDB of zero, one with do-not-disrupt. The node's name."""
    await world.pool(disruption=QUICK)
    world.start()
    await world.pods(1, cpu="900m", topologySpreadConstraints=SPREAD)
    await world.pods(1, cpu="900m", prefix="q")
    await world.until(world.all_bound)
    note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "1h"}}}
    await world.kube.patch(kinds.PODS, "q0", note, "default")
    budget = {
        "metadata": {"name": "guard"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}},
    }
    await world.kube.create(kinds.PDBS, budget, "default")
    await asyncio.sleep(60)
    (node,) = set((await world.bound()).values())
    return node


def test_a_node_explains_every_blocker_every_constraint_its_price_its_budget_and_the_next_evaluation(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: Any) -> None:
        answer = ask(world, "node", await _guarded(world))
        assert answer.line.startswith("stays: pod default/")
        assert answer.line.endswith("and 1 more reason(s)")
        text = "\n".join(answer.details)
        assert "m.large, a, on-demand, $0.1000/h at launch; 2 pod(s) request 95% of cpu" in text
        assert "blocked: pod default/p0: pdb prevents pod evictions (default/guard) [PDB]" in text
        assert 'blocked: pod default/q0: pod has "karpenter.sh/do-not-disrupt" annotation, until 2026-01-01T01:' in text
        assert "bound: spread over topology.kubernetes.io/zone, maxSkew 1 (1 pod(s), default/p0)" in text
        assert "budget Underutilized: 1 of 1 may be disrupted now (nodes: 1)" in text
        assert "evaluated again" in text
        assert {each["code"] for each in answer.facts["blockers"]} == {"PDB", "DO_NOT_DISRUPT_POD"}

    run_scenario(scenario)


def test_a_running_pod_explains_how_it_blocks_its_node(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        node = await _guarded(world)
        answer = ask(world, "pod", "default/p0")
        assert answer.line == f"runs on {node} ($0.1000/h at launch)"
        assert answer.details[0].startswith("blocks its node: pod default/p0: pdb prevents pod evictions")

    run_scenario(scenario)


def test_a_node_that_stays_for_cost_explains_what_a_move_must_save(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(1, cpu="900m")
        await asyncio.sleep(120)
        answer = ask(world, "node", (await world.bound())["p0"])
        assert answer.line.startswith("stays: ")
        text = "\n".join(answer.details)
        assert re.search(r"(best alternative|evaluated) 2026-01-01T00:", text)
        assert "saving $0.0000/h; a move must save at least $0.0050/h" in text
        assert "at the latest, or as soon as its pods, budgets or prices change" in text

    run_scenario(scenario)


def test_an_unhealthy_node_explains_its_condition_and_its_repair(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]})
        await world.served(1)
        await asyncio.sleep(30)
        node = (await world.bound())["p0"]
        assert ask(world, "node", node).line == (
            "stays: consolidation is off for its NodePool (consolidateAfter: Never)"
        )
        since = {"lastTransitionTime": "2026-01-01T00:00:30Z"}
        sick = {"type": "StorageReady", "status": "False", "reason": "IOHang", **since}
        body = {"status": {"conditions": [sick]}}
        written = await world.kube.patch(kinds.NODES, node, body, subresource="status", kind="strategic")
        (claim,) = await world.list(kinds.NODECLAIMS)
        boot = {"karpenter.sh/reboot-pre-boot-id": written["status"]["nodeInfo"]["bootID"]}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], {"metadata": {"annotations": boot}})
        message = {"reason": "RebootIssued", "message": "rebooting for StorageReady/IOHang"}
        asked = {"type": "Rebooting", "status": "True", **message, **since}
        status = {"status": {"conditions": [*claim["status"]["conditions"], asked]}}
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], status, subresource="status")
        await asyncio.sleep(0.5)
        answer = ask(world, "node", node)
        assert answer.line == "is rebooting for StorageReady/IOHang"
        assert "unhealthy: StorageReady=False (IOHang) since 2026-01-01T00:00:30Z" in answer.details

    run_scenario(scenario)


def test_safe_mode_explains_every_node_while_it_stands(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await asyncio.sleep(10)
        now = world.autoscaler.decision_history.now()
        for reason, text in (("stale-view", "Voluntary disruption has stopped: stale-view: old"), ("", "goes on")):
            world.autoscaler.decision_history.record(
                Decision(id="d-1", kind="safe-mode", time=now, summary=text, reason=reason)
            )
            node = ask(world, "node", (await world.bound())["p0"])
            pool = ask(world, "nodepool", "default")
            assert ("safe mode" in node.line) == bool(reason)
            assert (text in pool.details) == bool(reason)

    run_scenario(scenario)


def test_a_nodepool_explains_its_cost_its_limits_its_budgets_and_its_nodes(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK, limits={"cpu": "100"})
        await world.served(1, cpu="900m")
        await asyncio.sleep(20)
        answer = ask(world, "nodepool", "default")
        assert answer.line == "1 node(s) for $0.1000/h at launch; ready"
        assert "limit cpu: 2 of 100 in use" in answer.details
        assert "budget Empty: 1 of 1 may be disrupted now (nodes: 1)" in answer.details
        assert any("m.large  a  on-demand" in line for line in answer.deep)
        assert answer.facts["allowed"] == {"Empty": 1, "Drifted": 1, "Underutilized": 1, "Unhealthy": 1}
        with pytest.raises(explain.Unknown, match="there are: default"):
            ask(world, "nodepool", "other")
        (claim,) = (await world.kube.list(kinds.NODECLAIMS)).items
        copy = {"metadata": {"name": "x", "labels": claim["metadata"]["labels"]}, "spec": claim["spec"]}
        await world.kube.create(kinds.NODECLAIMS, copy)
        await asyncio.sleep(5)
        await world.kube.patch(kinds.NODECLAIMS, "x", NO_PRICE)
        await asyncio.sleep(0.01)
        assert ask(world, "nodepool", "default").line.startswith("2 node(s) for at least $0.1000/h at launch")
        await world.kube.patch(kinds.NODECLAIMS, claim["metadata"]["name"], NO_PRICE)
        await asyncio.sleep(0.01)
        assert ask(world, "nodepool", "default").line.startswith("2 node(s), price unknown")

    run_scenario(scenario)


def test_a_nodepool_at_its_limit_explains_that_it_launches_no_more(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(limits={"cpu": "2"})
        await world.served(1, cpu="900m")
        await asyncio.sleep(20)
        answer = ask(world, "nodepool", "default")
        assert answer.line.endswith(
            "; ready; it launches no more: cpu: 2 of 2 in use; raise spec.limits (LIMIT_REACHED)"
        )
        assert (answer.code, answer.object) == ("LIMIT_REACHED", "nodepool/default")

    run_scenario(scenario)


def test_an_unschedulable_pod_explains_the_remedy(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1, cpu="64")
        await asyncio.sleep(30)
        answer = ask(world, "pod", "default/p0")
        assert answer.line.startswith("pending: ")
        assert any(line.startswith("nodepool default: ") for line in answer.details)
        assert any(line.startswith("remedy: ") for line in answer.details)
        published = "0 left after cpu 64 (at most 7900m); rejected: "
        assert any(published in line and "m.large" in line for line in answer.deep)

    run_scenario(scenario)


def test_every_one_of_many_unschedulable_pods_is_explained(run_scenario: RunScenario) -> None:
    """A decision shows fifty names; the other pods wait for the same reason."""

    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
        await world.pods(60, cpu="64", owners=[owner])
        await asyncio.sleep(30)
        lines = {ask(world, "pod", f"default/p{number}").line for number in range(60)}
        assert len(lines) == 1
        assert "cpu 64 (at most 7900m) left none" in lines.pop()

    run_scenario(scenario)


def test_a_node_of_a_when_empty_nodepool_explains_that(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        shut = [{"nodes": "0", "reasons": ["Empty"]}]
        await world.pool(disruption={"consolidateAfter": "30s", "consolidationPolicy": "WhenEmpty", "budgets": shut})
        await world.served(1)
        await asyncio.sleep(120)
        node = (await world.bound())["p0"]
        answer = ask(world, "node", node)
        assert answer.line.startswith("stays: it is not empty, and its NodePool removes empty nodes only")
        assert answer.details and not any("evaluated again within seconds" in each for each in answer.details)
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await asyncio.sleep(10)
        answer = ask(world, "node", node)
        assert answer.line == "is empty and waits: budget Empty: 0 of 1 may be disrupted now (nodes: 0)"
        assert any(each.startswith("evaluated again at") for each in answer.details)
        open_ = {"spec": {"disruption": {"consolidateAfter": "10m", "budgets": [{"nodes": "1"}]}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", open_)
        await asyncio.sleep(10)
        assert re.fullmatch(r"is empty and will be removed at 00:1\d:\d\dZ", ask(world, "node", node).line)

    run_scenario(scenario)


def test_an_unhealthy_node_explains_when_it_will_be_repaired_and_what_that_waits_for(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        policy = RepairPolicy(condition_type="Sick", condition_status="True", toleration_seconds=600.0)
        world.cloud.repair_policies = lambda: (policy,)
        shut = [{"nodes": "0", "reasons": ["Unhealthy"]}]
        await world.pool(disruption={"consolidateAfter": "Never", "budgets": shut})
        await world.served(1)
        await asyncio.sleep(30)
        node = (await world.bound())["p0"]
        since = world.clock.now()
        sick = {"type": "Sick", "reason": "Test", "lastTransitionTime": stamp(since)}
        ill, well = ({"status": {"conditions": [sick | {"status": status}]}} for status in ("True", "False"))
        await world.kube.patch(kinds.NODES, node, ill, subresource="status", kind="strategic")
        await asyncio.sleep(15)
        assert ask(world, "node", node).line.startswith("stays: consolidation is off")
        await asyncio.sleep(60)
        due = stamp(since + timedelta(seconds=policy.toleration_seconds))
        prognosis = f"Sick=True (Test): replacement due at {due}"
        assert ask(world, "node", node).line == f"is unhealthy: {prognosis}"
        await asyncio.sleep(policy.toleration_seconds)
        waits = "waits: the disruption budget of its NodePool for Unhealthy allows no more"
        assert ask(world, "node", node).line == f"is unhealthy: {prognosis}, {waits}"
        assert [decision.kind for decision in world.autoscaler.decision_history.about(node)].count("unhealthy") == 2
        await world.kube.patch(kinds.NODES, node, well, subresource="status", kind="strategic")
        await asyncio.sleep(15)
        assert ask(world, "node", node).line.startswith("stays: consolidation is off")

    run_scenario(scenario, feature_gates={**Settings().feature_gates, "NodeRepair": True})
