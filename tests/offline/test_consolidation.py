"""`dovetail plan --consolidate` from files: who may go, how many, and what is said about the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dovetail.cli.plan import plan

ZONE = "ap-northeast-2a"
NODEPOOL = "karpenter.sh/nodepool"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
CATALOG = [
    {
        "name": name,
        "capacity": {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "50"},
        "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"]},
        "offerings": [{"zone": ZONE, "capacityType": "on-demand", "price": price, "available": True}],
    }
    for name, cpu, price in (("small", 2, 0.1), ("large", 8, 0.38))
]


def nodepool(name: str = "default", spec: dict[str, Any] | None = None, **disruption: Any) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"requirements": [], "nodeClassRef": reference}}
    rules = {"consolidateAfter": "0s", **disruption}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, "disruption": rules, **(spec or {})},
    }


def node(name: str, kind: str = "large", pool: str = "default", **meta: Any) -> dict[str, Any]:
    cpu = 8 if kind == "large" else 2
    labels = {
        NODEPOOL: pool,
        "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": ZONE,
        "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    amounts = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "50"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, **meta},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def claim(name: str, on: str, pods_at: str = "2020-01-01T00:00:00Z") -> dict[str, Any]:
    conditions = [
        {"type": each, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
        for each in ("Launched", "Registered", "Initialized")
    ]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {NODEPOOL: "default"}},
        "spec": {"requirements": []},
        "status": {"nodeName": on, "conditions": conditions, "lastPodEventTime": pods_at},
    }


def pod(name: str, on: str, cpu: str = "500m", app: str = "web", **meta: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}, "ownerReferences": [owner], **meta},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z"},
    }


def budget(app: str = "web", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **more.pop("spec", {})},
        **more,
    }


@pytest.fixture
def run(tmp_path: Path) -> Any:
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))

    def go(*objects: dict[str, Any], output: str = "json") -> Result:
        file = tmp_path / "in.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        base = ["--consolidate", "-f", str(file), "--catalog", str(tmp_path / "catalog.json"), "--deadline", "0"]
        return CliRunner().invoke(plan, [*base, "-o", output])

    return go


def reported(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


FLEET = (
    node("n1"),
    pod("p1", "n1"),
    node("n2"),
    pod("p2", "n2"),
    node("n3"),
    pod("p3", "n3", cpu="3"),
    pod("p4", "n3", cpu="3"),
)


def test_a_plan_says_what_goes_where_its_pods_move_and_what_that_saves(run: Any) -> None:
    found = reported(run(nodepool(), *FLEET))
    assert found["remove"] == ["n1", "n2"]
    assert found["moves"] == {"default/p1": {"from": "n1", "node": "n3"}, "default/p2": {"from": "n2", "node": "n3"}}
    assert found["evictions"] == 2
    assert (found["cost"]["before"], found["cost"]["after"]) == (pytest.approx(1.14), pytest.approx(0.38))
    assert found["cost"]["lowerBound"] <= 0.38
    assert found["stays"] == {"n3": "no cheaper node for its pods"}


def test_a_node_whose_pods_fit_nowhere_else_stays_for_that_and_not_for_its_price(run: Any) -> None:
    pinned = pod("p1", "n1", cpu="3")
    pinned["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": ZONE, "example.com/disk": "nvme"}
    own = node("n1")
    own["metadata"]["labels"]["example.com/disk"] = "nvme"
    found = reported(run(nodepool(), own, pinned))
    assert found["stays"] == {"n1": "its pods fit nowhere else"}


def test_budgets_of_a_pool_cap_what_goes_and_say_so(run: Any) -> None:
    found = reported(run(nodepool(budgets=[{"nodes": "1"}]), *FLEET))
    assert len(found["remove"]) == 1
    assert "the budgets of its NodePool let no more go at once" in found["stays"].values()
    assert found["cost"]["lowerBound"] == pytest.approx(found["cost"]["after"])


def test_a_pool_without_budgets_is_planned_to_the_end(run: Any) -> None:
    """The default of a tenth at a time is how fast a plan is carried out, not how far it goes."""
    assert len(reported(run(nodepool(), *FLEET))["remove"]) == 2


@pytest.mark.parametrize(
    ("budgets", "going"),
    [
        ([{"nodes": "0"}], 0),
        ([{"nodes": "34%"}], 2),
        ([{"nodes": "0", "reasons": ["Drifted"]}], 2),
        ([{"nodes": "0", "reasons": ["Underutilized"]}], 0),
        ([{"nodes": "0", "schedule": "* * * * *", "duration": "1h"}], 0),
        ([{"nodes": "0", "schedule": "0 0 29 2 *", "duration": "1m"}], 2),
        ([], 2),
    ],
)
def test_budgets_count_by_share_reason_and_schedule(run: Any, budgets: list[dict[str, Any]], going: int) -> None:
    assert len(reported(run(nodepool(budgets=budgets), *FLEET))["remove"]) == going


def test_empty_nodes_have_budgets_of_their_own(run: Any) -> None:
    budgets = [{"nodes": "0", "reasons": ["Underutilized"]}, {"nodes": "1", "reasons": ["Empty"]}]
    found = reported(run(nodepool(budgets=budgets), *FLEET, node("n4"), node("n5")))
    assert len(found["remove"]) == 1
    assert found["evictions"] == 0


def test_nodes_on_their_way_out_use_budgets_up(run: Any) -> None:
    going = node("n4", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["karpenter.sh/termination"])
    found = reported(run(nodepool(budgets=[{"nodes": "2"}]), *FLEET, going))
    assert len(found["remove"]) == 1


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (nodepool(consolidationPolicy="WhenEmpty"), "terminate empty nodes only"),
        (nodepool(consolidateAfter="Never"), "never consolidates"),
        (nodepool(spec={"replicas": 3}), "is static"),
        (nodepool("another"), "its NodePool default is not in the input"),
    ],
)
def test_a_pool_may_keep_its_nodes(run: Any, pool: dict[str, Any], why: str) -> None:
    found = reported(run(pool, *FLEET))
    assert found["remove"] == []
    assert found["stays"] and all(why in each for each in found["stays"].values())


def test_a_balanced_pool_moves_nothing_for_a_small_saving(run: Any) -> None:
    """Two thirds of the pods would move for an eighth of the money."""
    fleet = (
        node("n1"),
        *(pod(f"p{at}", "n1", cpu="100m") for at in range(20)),
        node("n2", "small"),
        *(pod(f"q{at}", "n2", cpu="40m") for at in range(40)),
    )
    assert reported(run(nodepool(), *fleet))["remove"] == ["n1"]
    fleet = (
        node("n1"),
        *(pod(f"p{at}", "n1", cpu="300m") for at in range(20)),
        node("n2", "small"),
        *(pod(f"q{at}", "n2", cpu="40m") for at in range(25)),
    )
    assert reported(run(nodepool(), *fleet))["remove"] == ["n2"]
    assert reported(run(nodepool(consolidationPolicy="Balanced"), *fleet))["remove"] == []


def test_a_node_that_pods_came_to_lately_is_left_alone_for_a_while(run: Any) -> None:
    quiet = reported(run(nodepool(consolidateAfter="1h"), *FLEET, claim("c1", "n1"), claim("c2", "n2")))
    assert quiet["remove"] == ["n1", "n2"]
    ages = nodepool(consolidateAfter="900000h")
    found = reported(run(ages, *FLEET, claim("c1", "n1"), claim("c2", "n2"), claim("c3", "n3")))
    assert found["remove"] == []
    assert "consolidateAfter" in found["stays"]["n1"]


@pytest.mark.parametrize(
    ("word", "held"), [("true", True), ("900000h", True), ("1m", False), ("nonsense", False), ("false", False)]
)
def test_pods_that_are_not_to_be_disrupted_hold_their_node(run: Any, word: str, held: bool) -> None:
    guarded = pod("p1", "n1", annotations={DO_NOT_DISRUPT: word})
    found = reported(run(nodepool(), FLEET[0], guarded, *FLEET[2:]))
    assert ("n1" not in found["remove"]) == held
    assert ("pod default/p1" in found["stays"].get("n1", "")) == held


def test_a_node_that_is_not_to_be_disrupted_stays(run: Any) -> None:
    held = node("n1", annotations={DO_NOT_DISRUPT: "true"})
    found = reported(run(nodepool(), held, *FLEET[1:]))
    assert "n1" not in found["remove"]
    assert DO_NOT_DISRUPT in found["stays"]["n1"]


def test_a_node_of_no_pool_stays_and_has_room_for_others(run: Any) -> None:
    stray = node("n1")
    del stray["metadata"]["labels"][NODEPOOL]
    found = reported(run(nodepool(), stray, *FLEET[1:]))
    assert "n1" not in found["remove"]
    assert found["stays"]["n1"] == "it belongs to no NodePool"


@pytest.mark.parametrize(
    ("guard", "most"),
    [
        (budget(status={"disruptionsAllowed": 0}), 0),
        (budget(status={"disruptionsAllowed": 1}), 1),
        (budget(spec={"maxUnavailable": 1}), 1),
        (budget(spec={"minAvailable": "100%"}), 0),
        (budget(spec={"minAvailable": 1}), 2),
        (budget("others", status={"disruptionsAllowed": 0}), 2),
    ],
)
def test_disruption_budgets_hold_with_or_without_a_status(run: Any, guard: dict[str, Any], most: int) -> None:
    """A manifest does not say how many pods may go; then it is counted."""
    found = reported(run(nodepool(), *FLEET, guard))
    assert found["evictions"] == most
    assert most == 2 or any("default/b" in each for each in found["stays"].values())


def test_the_text_says_what_goes_what_stays_and_why(run: Any) -> None:
    held = node("n4", "small", annotations={DO_NOT_DISRUPT: "true"})
    text = run(nodepool(), *FLEET, held, output="text").stdout
    assert "remove 2 of 4 nodes, 2 evictions: 2 pods to nodes that stay" in text
    assert "2  large  ap-northeast-2a  on-demand  default   0.3800    2     n1, n2" in text
    assert "1 node stays, no cheaper node for its pods: n3" in text
    assert "$1.2400 an hour before, $0.4800 after: 61.3% less, $554.80 a month" in text
    assert "the bound: any part of the fleet launched anew" in text
