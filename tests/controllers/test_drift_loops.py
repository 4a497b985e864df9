"""A node launched from the current NodePool does not drift from it; where it would, drift stops for that NodePool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.clock import EPOCH
from dovetail.controllers.disruption import drift
from dovetail.controllers.disruption.drift_loops import LOOP_MAX_AGE, DriftLoops, version
from dovetail.controllers.nodeclaim.offerings import custom_labels
from dovetail.kube import resources as kinds
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import stamp

RunScenario = Callable[..., None]
ALL = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


TERMS = [
    ([term("tier", "Lt", "5")], "0"),
    ([term("tier", "Lte", "5")], "0"),
    ([term("tier", "Gt", "5")], "6"),
    ([term("tier", "Gte", "5")], "5"),
    ([term("tier", "Gt", "5"), term("tier", "Lt", "9"), term("tier", "NotIn", "6")], "7"),
    ([term("tier", "Exists")], "0"),
    ([term("tier", "NotIn", "0", "1")], "2"),
    ([term("tier", "In", "gold", "blue")], "blue"),
]


@pytest.mark.parametrize(("terms", "value"), TERMS)
def test_a_custom_label_that_a_nodepool_requires_is_on_the_claim_and_the_node_and_nothing_drifts(
    run_scenario: RunScenario, terms: list[dict[str, Any]], value: str
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(requirements=terms, disruption=ALL)
        await asyncio.sleep(90)
        await world.served(2, cpu="1500m")
        names = {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}
        await asyncio.sleep(900)
        claims, nodes = await world.list(kinds.NODECLAIMS), await world.list(kinds.NODES)
        assert {claim["metadata"]["labels"]["tier"] for claim in claims} == {value}
        assert {node["metadata"]["labels"]["tier"] for node in nodes} == {value}
        assert {claim["metadata"]["name"] for claim in claims} == names
        assert not world.logged("marking drifted") and not world.logged("drift stopped for nodepool")

    run_scenario(scenario, only=("m.large",))


def _claim(*terms: dict[str, Any], **labels: str) -> NodeClaim:
    body = {"metadata": {"name": "c", "labels": labels}, "spec": {"requirements": list(terms)}}
    return msgspec.convert(body, NodeClaim)


@pytest.mark.parametrize(
    ("claim", "labels"),
    [
        (_claim(term("tier", "DoesNotExist")), {}),
        (_claim(term("tier", "Exists"), tier="mine"), {}),
        (_claim(term("karpenter.k8s.aws/instance-cpu", "Gt", "3")), {}),
        (_claim(term("kubernetes.io/hostname", "Exists")), {}),
        (_claim(term("tier", "Lt", "-3")), {}),  # no label value begins with a minus sign
        (_claim(term("tier", "Gte", "5"), term("tier", "Lte", "5"), term("tier", "NotIn", "5")), {}),
        (_claim(term("tier", "Exists"), term("team", "In", "shop")), {"tier": "0", "team": "shop"}),
    ],
)
def test_custom_labels_are_only_those_that_nothing_else_decides_and_that_have_a_value(
    claim: NodeClaim, labels: Any
) -> None:
    assert custom_labels(claim, ()) == labels


def test_drift_stops_for_a_nodepool_whose_new_nodes_drift_from_it_until_it_changes(run_scenario: RunScenario) -> None:
    """The cloud does not say which region it is: no node can meet this NodePool."""

    async def scenario(world: Any) -> None:
        await world.pool(requirements=[term("topology.kubernetes.io/region", "In", "r1", "r2")], disruption=ALL)
        await world.served(2, cpu="1500m")
        names = {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)}
        await asyncio.sleep(1800)
        assert {claim["metadata"]["name"] for claim in await world.list(kinds.NODECLAIMS)} == names
        scaler = world.autoscaler
        assert b'dovetail_drift_stopped{nodepool="default"} 1.0' in scaler.metrics.text()
        (line,) = world.logged("drift stopped for nodepool")
        assert line["code"] == "DRIFT_REPEATS"
        events = [event for event in await world.list(kinds.CORE_EVENTS) if event["reason"] == "DriftStopped"]
        assert {event["involvedObject"]["name"] for event in events} == {"default"}
        (decision,) = [decision for decision in scaler.decision_history.decisions() if decision.kind == "drift-stop"]
        assert decision.reason == "DRIFT_REPEATS" and decision.subject == "default"
        body = {"spec": {"template": {"spec": {"requirements": [term("tier", "In", "gold")]}}}}
        await world.kube.patch(kinds.NODEPOOLS, "default", body)
        await asyncio.sleep(600)
        replaced = await world.list(kinds.NODECLAIMS)
        assert {each["metadata"]["labels"]["tier"] for each in replaced} == {"gold"}
        assert b'dovetail_drift_stopped{nodepool="default"} 0.0' in scaler.metrics.text()

    run_scenario(scenario, only=("m.large",))


def _made(reason_pool: int, minutes: float, annotated: bool = True) -> NodeClaim:
    annotations = {"dovetail.sh/nodepool-generation": str(reason_pool)} if annotated else {}
    created = stamp(EPOCH + timedelta(minutes=minutes))
    return msgspec.convert(
        {"metadata": {"name": "c", "annotations": annotations, "creationTimestamp": created}}, NodeClaim
    )


def _pool(generation: int) -> NodePool:
    return msgspec.convert({"metadata": {"name": "p", "generation": generation}}, NodePool)


def test_drift_by_the_objects_is_judged_by_the_generation_a_nodeclaim_was_made_from() -> None:
    pool, loops = _pool(2), DriftLoops()
    now = version(pool, {})
    assert loops.observe(_made(1, 0), pool, now, drift.REQUIREMENTS, EPOCH) is None
    late = EPOCH + timedelta(minutes=2)
    assert loops.observe(_made(1, 1), pool, now, drift.REQUIREMENTS, late) is None, "planned before the change"
    assert loops.observe(_made(2, 1), pool, now, drift.REQUIREMENTS, late) is not None
    assert loops.is_stopped("p", now)
    assert not loops.is_stopped("p", version(_pool(3), {}))


def test_drift_reported_by_the_cloud_stops_when_a_replacement_drifts_for_the_same_reason_and_version() -> None:
    pool, loops = _pool(1), DriftLoops()
    amis = {"spec": {"role": "r"}, "status": {"amis": ["a"], "conditions": [1]}}
    before, after = version(pool, amis), version(pool, {**amis, "status": {"amis": ["b"], "conditions": [2]}})
    assert before == version(pool, {**amis, "status": {"amis": ["a"], "conditions": []}}) and before != after
    assert loops.observe(_made(1, -9), pool, before, "AMIDrift", EPOCH) is None
    soon = EPOCH + timedelta(minutes=10)
    assert loops.observe(_made(1, 5), pool, after, "AMIDrift", soon) is None, "another AMI was resolved meanwhile"
    assert loops.observe(_made(1, 9), pool, after, "SecurityGroupDrift", soon) is None, "another reason"
    aged = EPOCH + timedelta(minutes=20) + LOOP_MAX_AGE
    assert loops.observe(_made(1, 11), pool, after, "AMIDrift", aged) is None, "it was in order for long"
    assert loops.observe(_made(1, 9), pool, after, drift.TYPE_GONE, soon) is None
    assert loops.observe(_made(1, 12), pool, after, drift.TYPE_GONE, soon + timedelta(minutes=9)) is None
    assert loops.observe(_made(1, 11), pool, after, "AMIDrift", soon + timedelta(minutes=5)) is not None
