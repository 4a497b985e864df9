"""Labels that are open until a pod says what they are: a claim says it for every type that it may become."""

from __future__ import annotations

from tests.planner.conftest import Solve, kind, pods, pool

_MODE = "example.com/mode"


def test_a_node_takes_a_label_along_to_types_that_leave_it_open(solve: Solve) -> None:
    """The cheapest type can only be quiet, the other may be either: the claim must say which."""
    shop = (
        kind("calm", 2, 8, 0.1, labels={_MODE: ("quiet",)}),
        kind("any", 2, 8, 0.2, labels={_MODE: ("fast", "quiet")}),
    )
    plan = solve(*pods(1, nodeSelector={_MODE: "quiet"}), pools=(pool(types=shop),))
    (planned,) = plan.nodes
    assert {choice.instance_type for choice in planned.offerings} == {"calm", "any"}
    assert {"key": _MODE, "operator": "In", "values": ["quiet"]} in planned.requirements
    assert planned.labels == {_MODE: "quiet"}


def test_a_node_without_a_label_does_not_become_one_that_has_it(solve: Solve) -> None:
    shop = (kind("bare", 2, 8, 0.1), kind("any", 2, 8, 0.2, labels={_MODE: ("fast", "quiet")}))
    preference = {"key": _MODE, "operator": "NotIn", "values": ["fast"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [preference]}]}
    avoid = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    (planned,) = solve(*pods(1, affinity=avoid), pools=(pool(types=shop),)).nodes
    assert {choice.instance_type for choice in planned.offerings} == {"bare"}
