"""Explanations of what pods and nodes depend on: EC2NodeClasses, budgets, workloads, autoscalers, node groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dovetail.controllers import explain
from dovetail.controllers.explain import placement
from dovetail.controllers.explain.answer import about_object, age, events_of, shortened
from dovetail.kube import resources as kinds
from tests.controllers.test_explain import ask
from tests.controllers.test_explain_pending import NO_SUBNETS, READY, _class, unresolved

RunScenario = Callable[..., None]
__all__ = ["unresolved"]


def test_a_nodeclass_explains_its_condition_its_pools_and_its_remedy(
    run_scenario: RunScenario, unresolved: None
) -> None:
    async def scenario(world: Any) -> None:
        await _class(world, "default", **NO_SUBNETS)
        await _class(world, "good", **READY)
        await world.pool()
        world.start()
        await asyncio.sleep(5)
        bad, good = ask(world, "nodeclass", "default"), ask(world, "nodeclass", "good")
        assert bad.line == (
            "is not ready: SubnetsNotFound: SubnetSelector did not match any Subnets; "
            "correct spec.subnetSelectorTerms, or tag the subnets as it asks (BAD_NODECLASS)"
        )
        assert (bad.code, bad.object) == ("BAD_NODECLASS", "ec2nodeclass/default")
        assert "used by 0 NodeClaim(s), NodePools default" in bad.details
        assert good.line == "is ready; used by 0 NodeClaim(s), no NodePool"
        pool = ask(world, "nodepool", "default")
        assert pool.code == "BAD_NODECLASS"
        assert "SubnetSelector did not match any Subnets" in pool.line
        with pytest.raises(explain.Unknown, match="there are: default, good"):
            ask(world, "nodeclass", "other")

    run_scenario(scenario)


def test_a_budget_explains_why_it_allows_nothing(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        await world.served(2)
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "p"}}}
        await world.kube.create(kinds.PDBS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        status = {"observedGeneration": 1, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 2}
        counted = {"status": {**status, "disruptionsAllowed": 0}}
        await world.kube.patch(kinds.PDBS, "web", counted, "default", subresource="status")
        await asyncio.sleep(1)
        state, now = world.autoscaler.cluster_state, world.clock.now()
        answer = explain.pdb(state, "default/web", now)
        assert answer.line.startswith("allows no eviction (maxUnavailable 0): all 2 pod(s) must stay; ")
        assert (answer.code, answer.facts["pods"]) == ("PDB", 2)
        other = {"metadata": {"name": "twice"}, "spec": {**spec, "maxUnavailable": 1}}
        await world.kube.create(kinds.PDBS, other, "default")
        await asyncio.sleep(1)
        assert explain.pdb(state, "default/web", now).code == "MANY_BUDGETS"
        with pytest.raises(explain.Unknown, match="there are: default/twice, default/web"):
            explain.pdb(state, "default/none", now)

    run_scenario(scenario)


def test_a_workload_groups_its_pods_by_cause_with_counts(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}
        await world.pods(5, cpu="64", prefix="big", owners=[owner])
        await world.pods(2, prefix="lost", owners=[owner], nodeSelector={"team": "x"})
        await world.pods(1, prefix="ok", owners=[owner])
        await asyncio.sleep(60)
        state = world.autoscaler.cluster_state
        above = {"kind": "Deployment", "name": "web"}
        replicasets = [{"metadata": {"name": "web-1", "ownerReferences": [above]}}]
        pods = explain.pods_of(state, "Deployment", "default", "web", replicasets)
        assert len(pods) == 8
        answer = explain.workload("Deployment", "default/web", 9, pods, lambda pod: ask(world, "pod", pod.metadata.key))
        assert answer.line.startswith("1 of 9 pod(s) have a node; 5 pending: NodePool default: cpu 64 ")
        assert answer.line.endswith("; and 2 for 1 other cause(s)")
        assert [(cause["code"], cause["count"]) for cause in answer.facts["causes"]] == [
            ("NO_TYPE_FITS", 5),
            ("UNKNOWN_LABEL", 2),
        ]
        assert "… 2 more" in answer.details[0]

    run_scenario(scenario)


def test_a_namespace_has_its_share_of_cost_and_of_what_is_idle(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1, cpu="950m")
        await asyncio.sleep(5)
        state = world.autoscaler.cluster_state
        answer = explain.namespace(state, "default", lambda node: 0.1)
        assert (
            answer.line
            == "1 pod(s) on 1 node(s) cost $0.1000/h (100% of the cluster's $0.1000/h); $0.0500/h of it is idle"
        )
        unknown = explain.namespace(state, "default", lambda node: None)
        assert "cost an unknown amount" in unknown.line and "$0" not in unknown.line
        with pytest.raises(explain.Unknown):
            explain.namespace(state, "nowhere", lambda node: 0.1)

    run_scenario(scenario)


def test_a_node_explains_why_not_cheaper_why_not_spot_and_why_this_zone(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1, cpu="3", nodeSelector={"topology.kubernetes.io/zone": "b"})
        await asyncio.sleep(5)
        scaler = world.autoscaler
        (node,) = scaler.cluster_state.nodes.store.all()
        claim = scaler.cluster_state.claim_for(node)
        decisions = scaler.decision_history.decisions()

        def why(question: str) -> list[str]:
            return placement.why(question, scaler.cluster_state, decisions, node, claim)

        assert any("m.large/" in line and "cheaper, but" in line for line in why("cheaper"))
        assert why("spot")[0] == "NodePool default allows only on-demand"
        assert why("zone")[0] == "zone b: pod default/p0 asks for it"
        forgotten = placement.why("cheaper", scaler.cluster_state, (), node, claim)
        assert forgotten == [
            "the decision that launched it is not in the history; dovetail plan shows what would be launched now"
        ]

    run_scenario(scenario)


def test_the_past_is_answered_from_the_history_which_says_how_far_it_reaches(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await world.pods(1, cpu="64")
        await asyncio.sleep(60)
        await world.kube.delete(kinds.PODS, "p0", "default")
        await asyncio.sleep(600)
        decisions, now = world.autoscaler.decision_history.decisions(), world.clock.now()

        def at(back: float) -> explain.Answer:
            return explain.past(decisions, "pod", "default/p0", now - timedelta(seconds=back), now)

        assert "was pending: NodePool default: cpu 64" in at(300).line
        assert at(300).code == "NO_TYPE_FITS"
        assert "the history does not reach back to" in at(86400).line
        assert "no decision history" in explain.past((), "pod", "default/p0", now, now).line
        other = explain.past(decisions, "pod", "default/q", now, now)
        assert "nothing had been decided about it; the history begins at" in other.line

    run_scenario(scenario)


def _hpa(**more: Any) -> dict[str, Any]:
    conditions = [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "recommended size matches"},
        {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "message": ""},
        {"type": "ScalingLimited", "status": "False", "reason": "DesiredWithinRange", "message": ""},
    ]
    for condition in conditions:
        condition.update(more.pop(condition["type"], {}))
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}
    target = {"kind": "Deployment", "name": "web"}
    return {
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": target, "metrics": [metric]},
        "status": {"currentReplicas": 3, "desiredReplicas": 3, "conditions": conditions, **more},
    }


def test_an_hpa_explains_why_it_does_not_scale() -> None:
    missing = {
        "status": "False",
        "reason": "FailedGetResourceMetric",
        "message": "missing request for cpu in container c",
    }
    stuck = explain.hpa(_hpa(ScalingActive=missing))
    assert stuck.line == (
        "keeps deployment/web at 3 replicas: no metric can be read: missing request for cpu in container c; "
        "give every container of the target a cpu or memory request"
    )
    assert stuck.object == "deployment/web"
    message = "unable to get metric requests_per_second"
    absent = {"status": "False", "reason": "FailedGetPodsMetric", "message": message}
    unserved = explain.hpa(_hpa(ScalingActive=absent))
    assert unserved.remedy == "install an adapter that serves this metric, or correct its name"
    assert unserved.object == "hpa/default/web"
    full = explain.hpa(_hpa(ScalingLimited={"status": "True", "reason": "TooManyReplicas"}, desiredReplicas=5))
    assert full.line == "keeps deployment/web at 5 replicas: limited by maxReplicas 5; raise maxReplicas above 5"
    assert explain.hpa(_hpa(desiredReplicas=4)).line == "scales deployment/web from 3 to 4 replicas"
    assert "metric cpu: unknown now, target 50%" in explain.hpa(_hpa()).details
    gone = {"status": "False", "reason": "FailedGetScale", "message": 'deployments.apps "web" not found'}
    assert "cannot scale deployment/web" in explain.hpa(_hpa(AbleToScale=gone)).line


def _vpa(mode: str = "Auto", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"targetRef": {"kind": "Deployment", "name": "web"}, "updatePolicy": {"updateMode": mode}},
        "status": status,
    }


ADVICE = {"containerRecommendations": [{"containerName": "c", "target": {"cpu": "587m", "memory": "250Mi"}}]}


def test_a_vpa_explains_why_its_advice_is_not_applied() -> None:
    said = "recommends c: cpu 587m memory 250Mi"
    assert explain.vpa(_vpa("Off", recommendation=ADVICE), 3).line.startswith(
        f"{said}; not applied, because updateMode is Off"
    )
    assert "fewer than minReplicas 2" in explain.vpa(_vpa(recommendation=ADVICE), 1).line
    assert explain.vpa(_vpa(recommendation=ADVICE), 3).line == f"{said}; pods are updated where they differ enough"
    assert explain.vpa(_vpa(), 3).line.startswith("has no recommendation yet")
    assert explain.vpa(_vpa(recommendation=ADVICE), 0).line.startswith("matches no pod of deployment/web")


def _group(**more: Any) -> dict[str, Any]:
    health = {"status": "Healthy", "cloudProviderTarget": 3, "minSize": 1, "maxSize": 5}
    counts = {"registered": {"total": 3, "ready": 3}}
    return {
        "name": "ng",
        "health": {**health, "nodeCounts": counts, **more.pop("health", {})},
        "scaleUp": {"status": "NoActivity", **more.pop("scaleUp", {})},
        "scaleDown": {"status": "NoCandidates", **more},
    }


def test_a_node_group_explains_why_it_does_not_grow_or_shrink() -> None:
    def line(**more: Any) -> str:
        return explain.nodegroup({"nodeGroups": [_group(**more)]}, "ng").line

    assert line() == "is as large as needed: 3 node(s), target 3 (min 1, max 5)"
    assert line(health={"cloudProviderTarget": 5}).endswith("; raise its maximum size")
    failed = {"status": "Backoff", "backoffInfo": {"errorMessage": "no capacity in z1"}}
    assert line(scaleUp=failed).startswith("does not grow for a while: no capacity in z1; see the activity")
    denied = {"status": "Backoff", "backoffInfo": {"errorMessage": "AccessDenied: not authorized"}}
    assert "; tag the group as the policy of the role asks for" in line(scaleUp=denied)
    assert line(health={"status": "Unhealthy"}).startswith("is unhealthy and not scaled: 3 of 3 node(s) are ready")
    assert (
        "2 node(s) to remove"
        in explain.nodegroup(
            {"nodeGroups": [{**_group(), "scaleDown": {"status": "CandidatesPresent", "candidates": 2}}]}, "ng"
        ).line
    )
    with pytest.raises(explain.Unknown, match="there are: ng"):
        explain.nodegroup({"nodeGroups": [_group()]}, "other")


def test_a_node_group_is_known_by_the_name_that_eks_or_eksctl_gave_it() -> None:
    explanations = {"members": {"a": "eks-9ec97a75", "b": "workers-asg", "d": "nodes.example.org"}}
    labels = {
        "a": {"eks.amazonaws.com/nodegroup": "system"},
        "b": {"alpha.eksctl.io/nodegroup-name": "workers"},
        "c": {"eks.amazonaws.com/nodegroup": "lost"},
        "d": {"kops.k8s.io/instancegroup": "nodes"},
    }
    for name, group in (("system", "eks-9ec97a75"), ("workers", "workers-asg"), ("lost", "lost"), ("x", "x"),
                        ("nodes", "nodes.example.org")):  # fmt: skip
        assert explain.scaling_group(name, explanations, labels) == group
    written = {
        "status": json.dumps({"nodeGroups": [{**_group(), "name": "workers-asg"}]}),
        "explanations": json.dumps(explanations),
    }
    assert explain.group_answer(written, "workers", labels).subject == "nodegroup/workers-asg"


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ("nodeGroups: [{name: ng", r"is not YAML: line 1, column \d+: "),
        ("nodeGroups:\n- na", "has no list of node groups"),
        ("nodeGroups: ng", "has no list of node groups"),
        ("nodeGr", "has no list of node groups"),
    ],
)
def test_a_status_that_cannot_be_read_is_not_a_status_without_the_group(status: str, problem: str) -> None:
    where = "status of the ConfigMap kube-system/cluster-autoscaler-status "
    with pytest.raises(explain.Unknown, match=where + problem):
        explain.group_answer({"status": status}, "ng", {})


def test_long_lists_are_shortened_with_the_count_and_ages_are_short() -> None:
    assert shortened(["a", "b", "c"], 2) == ["a", "b", "… 1 more"]
    assert shortened(["a", "b"], 2) == ["a", "b"]
    from datetime import UTC, datetime

    now = datetime(2026, 1, 3, tzinfo=UTC)
    ages = [age(now - timedelta(seconds=seconds), now) for seconds in (5, 300, 7200, 200_000)]
    assert ages == ["5s", "5m", "2h", "2d"]


def test_events_of_both_forms_are_read() -> None:
    core = {
        "involvedObject": {"kind": "Pod", "namespace": "a", "name": "p"},
        "reason": "R",
        "message": "m",
        "lastTimestamp": "2",
    }
    new = {"regarding": {"kind": "NodeClaim", "name": "c"}, "reason": "S", "note": "n", "eventTime": "1"}
    events = events_of([core, new])
    assert [(event.reason, event.message) for event in events] == [("S", "n"), ("R", "m")]
    assert [event.reason for event in about_object(events, "Pod", "a/p")] == ["R"]
