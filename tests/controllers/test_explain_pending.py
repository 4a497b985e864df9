"""Why a pod waits in a running cluster: the first cause, in the same words as the event and the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.controllers import explain
from dovetail.controllers.explain import claims
from dovetail.controllers.explain.pods import refused
from dovetail.controllers.history.decisions import Refusal
from dovetail.controllers.history.provisioning import never_joined
from dovetail.kube import resources as kinds
from dovetail.language import in_language
from dovetail.planner.plan import Funnel, FunnelStep, OfferingOption
from tests.controllers.test_explain import ask

RunScenario = Callable[..., None]
READY = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}
NEVER_JOINS = SimulatedMarket(boot=(7200.0, 7200.0))
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


async def _class(world: Any, name: str, **condition: str) -> None:
    """An EC2NodeClass whose condition is as given: the simulated cloud has none to say."""
    await world.kube.create(kinds.EC2NODECLASSES, {"metadata": {"name": name}, "spec": {}})
    found = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "", "message": "", **condition}
    ready = {**found, "type": "Ready"}
    await world.kube.patch(kinds.EC2NODECLASSES, name, {"status": {"conditions": [found, ready]}}, subresource="status")


async def _warnings(world: Any, name: str) -> list[str]:
    events = await world.list(kinds.CORE_EVENTS)
    return [
        event["message"]
        for event in events
        if event["involvedObject"]["name"] == name and event["reason"] == "FailedScheduling"
    ]


NO_SUBNETS = {
    "type": "SubnetsReady",
    "status": "False",
    "reason": "SubnetsNotFound",
    "message": "SubnetSelector did not match any Subnets",
}


@pytest.fixture
def unresolved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud that leaves the conditions of NodeClasses as they are."""

    async def keep(self: Any, node_class: Any, meta: Any) -> None:
        return None

    monkeypatch.setattr("dovetail.controllers.nodeclass.NodeClasses._write", keep)


def test_a_nodeclass_that_is_not_ready_is_the_cause_with_its_own_message_in_event_history_and_explanation(
    run_scenario: RunScenario, unresolved: None
) -> None:
    async def scenario(world: Any) -> None:
        await _class(world, "default", **NO_SUBNETS)
        await world.pool()
        await _class(world, "other", **READY)
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "other"}
        await world.pool("other", template={"taints": [TAINT], "nodeClassRef": reference})
        world.start()
        await world.pods(1)
        await asyncio.sleep(30)
        answer = ask(world, "pod", "default/p0")
        said = (
            "NodePool default is not ready: EC2NodeClass default: SubnetsNotFound: "
            "SubnetSelector did not match any Subnets; correct spec.subnetSelectorTerms, or tag the subnets as it asks"
        )
        assert answer.line == f"pending: {said} (BAD_NODECLASS)"
        assert (answer.code, answer.object) == ("BAD_NODECLASS", "ec2nodeclass/default")
        assert await _warnings(world, "p0") == [f"Failed to schedule pod, {said} (BAD_NODECLASS)"]
        assert world.logged("could not schedule pod")[0]["error"] == said
        assert any(line.startswith("nodepool other: ") for line in answer.details)

    run_scenario(scenario)


def test_pool_and_pods_applied_together_give_no_warning(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        await asyncio.sleep(5)
        await world.pods(1)
        await asyncio.sleep(3)
        await world.pool()
        await world.until(world.all_bound)
        assert await _warnings(world, "p0") == []

    run_scenario(scenario)


def test_without_a_nodepool_the_warning_comes_after_the_grace(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        await world.pods(1)
        await asyncio.sleep(10)
        assert await _warnings(world, "p0") == []
        await asyncio.sleep(20)
        assert await _warnings(world, "p0") == [
            "Failed to schedule pod, there is no NodePool; create a NodePool (NO_NODEPOOL)"
        ]

    run_scenario(scenario)


def test_every_pod_is_explained_by_its_own_selector(run_scenario: RunScenario) -> None:
    """Two pods that fail in the first pool for the same are not one: what the second pool says differs."""

    async def scenario(world: Any) -> None:
        await world.pool("first")
        await world.pool("second", template={"taints": [TAINT]}, metadata={"labels": {"disk": "ssd"}})
        world.start()

        def but(*disks: str) -> dict[str, Any]:
            rule = {"key": "disk", "operator": "NotIn", "values": ["ssd", *disks]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
            affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
            return {"affinity": affinity, "tolerations": [{"key": "team", "operator": "Exists"}]}

        await world.pods(1, cpu="64", prefix="a", **but("hdd"))
        await world.pods(1, cpu="64", prefix="b", **but("tape"))
        await asyncio.sleep(30)
        first, second = ask(world, "pod", "default/a0"), ask(world, "pod", "default/b0")
        assert first.line == second.line, "the pool to blame says the same to both"
        for answer, own, other in ((first, "hdd", "tape"), (second, "tape", "hdd")):
            text = "\n".join(answer.details)
            assert own in text and other not in text

    run_scenario(scenario)


def test_a_startup_taint_that_nothing_removes_is_named(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(template={"startupTaints": [{"key": "cni", "effect": "NoSchedule"}]})
        world.start()
        await world.pods(1)
        await asyncio.sleep(60)
        (claim,) = await world.list(kinds.NODECLAIMS)
        early = ask(world, "pod", "default/p0")
        assert "still has the startup taint cni:NoSchedule" in early.line
        assert early.code == ""
        await asyncio.sleep(300)
        late = ask(world, "pod", "default/p0")
        assert "nothing has removed it" in late.line and late.line.endswith("(STARTUP_TAINT)")
        assert late.object == "nodepool/default"
        node = ask(world, "claim", claim["metadata"]["name"])
        assert node.code == "STARTUP_TAINT"

    run_scenario(scenario)


def test_an_instance_that_cannot_join_is_not_on_its_way(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(20)
        (name,) = [claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)]
        starting = ask(world, "pod", "default/p0")
        assert f"waits for nodeclaim {name}: instance i-" in starting.line
        scaler = world.autoscaler
        claim = scaler.cluster_state.claims.store.get(name)
        why = "instance runs and has not joined the cluster: role R is not in aws-auth"
        scaler.decision_history.record(
            never_joined(scaler.decision_history, scaler.cluster_state, claim, ["default/p0"], why)
        )
        answer = ask(world, "pod", "default/p0")
        assert "has not joined the cluster: role R is not in aws-auth" in answer.line
        assert (answer.code, answer.object) == ("NEVER_JOINED", f"nodeclaim/{name}")
        assert ask(world, "claim", name).code == "NEVER_JOINED"

    run_scenario(scenario, market=NEVER_JOINS)


def test_an_instance_that_has_not_joined_for_minutes_is_reported_without_a_diagnosis(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(claims.JOIN_GRACE.total_seconds() + 60)
        answer = ask(world, "pod", "default/p0")
        assert answer.code == "NEVER_JOINED"
        assert "dovetail doctor" in answer.remedy

    run_scenario(scenario, market=NEVER_JOINS)


def test_a_pod_of_a_daemonset_is_explained_by_its_node(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1, cpu="1")
        await asyncio.sleep(10)
        node = (await world.bound())["p0"]
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": True}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        pinned = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
        await world.pods(1, prefix="big", cpu="1500m", owners=[owner], **pinned)
        await world.pods(1, prefix="fit", cpu="100m", owners=[owner], **pinned)
        await asyncio.sleep(5)
        answer = ask(world, "pod", "default/big0")
        assert f"its node {node} has no room for it: it asks for cpu 1500m, 900m is left" in answer.line
        assert (answer.code, answer.object) == ("DAEMON_NO_ROOM", "daemonset/default/agent")
        assert "kube-scheduler has not bound it yet" in ask(world, "pod", "default/fit0").line

    run_scenario(scenario)


def test_a_pod_that_is_gated_says_which_gate(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1, schedulingGates=[{"name": "example.com/quota"}])
        await asyncio.sleep(5)
        answer = ask(world, "pod", "default/p0")
        assert answer.code == "GATED" and "example.com/quota" in answer.line

    run_scenario(scenario)


def test_a_pod_of_another_namespace_is_suggested(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1)
        await asyncio.sleep(5)
        with pytest.raises(explain.Unknown, match="did you mean default/p0"):
            ask(world, "pod", "prod/p0")

    run_scenario(scenario)


def test_an_answer_in_korean_leaves_no_recorded_english() -> None:
    """The refusal is recorded in English; what is filled into a Korean sentence is read out of it first."""
    funnel = Funnel(
        start=318,
        code="NO_TYPE_FITS",
        emptied_by="cpu 300 (at most 7760m, daemons take 150m)",
        remedy="ask for less, or allow larger types",
        nearest=OfferingOption(instance_type="c6g.2xlarge", zone="ap-northeast-2a", capacity_type="spot", price=0.1078),
        nearest_lacks="cpu 292240m",
        steps=(FunnelStep(clause="karpenter.sh/nodepool In [spot] (there is general)", left=0),),
    )
    refusal = Refusal(
        pods=("default/p",),
        count=1,
        code="NO_TYPE_FITS",
        message="NodePool spot: cpu 300 (at most 7760m, daemons take 150m) left none of 318 offerings; ask for less, "
        "or allow larger types (nearest: c6g.2xlarge in ap-northeast-2a, $0.1078/h, lacks cpu 292240m)",
        pools={"spot": funnel},
        remedy="ask for less, or allow larger types",
    )
    with in_language("ko"):
        answer = refused("default/p", refusal)
    for text in (answer.line, *answer.details, *answer.deep):
        assert not any(words in text for words in ("at most", "nearest", "lacks", "there is", "ask for")), text
    assert len(answer.details) == 2 and len(answer.deep) == 1
