"""Scale-up plans of the Cluster Autoscaler: choice of the group, limits, quotas, similar groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.autoscalers.node_groups.expanders import choose, least_waste
from dovetail.autoscalers.node_groups.quotas import Quotas, Range
from dovetail.autoscalers.node_groups.scale_up import (
    ScaleUpInput,
    ScaleUpPlan,
    ScaleUpResult,
    ScaleUpSettings,
    plan_minimum_sizes,
    plan_scale_up,
)
from dovetail.autoscalers.node_groups.similarity import aws_comparator
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.chance import Chance
from dovetail.cloud.node_groups import NodeGroup
from dovetail.model.fit import NodeInfo
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import GIB, group, info, node, pod, snapshot


def plan(
    pods: Sequence[Pod],
    groups: Sequence[NodeGroup],
    templates: dict[str, NodeInfo],
    *,
    view: ClusterSnapshot | None = None,
    quotas: Quotas | None = None,
    blocked: dict[str, str] | None = None,
    count: int = 0,
    all_or_nothing: bool = False,
    **settings: Any,
) -> ScaleUpPlan:
    given = scale_up_input(groups, templates, view, quotas, blocked, count, **settings)
    return plan_scale_up(pods, given, all_or_nothing=all_or_nothing)


def scale_up_input(
    groups: Sequence[NodeGroup],
    templates: dict[str, NodeInfo],
    view: ClusterSnapshot | None = None,
    quotas: Quotas | None = None,
    blocked: dict[str, str] | None = None,
    count: int = 0,
    **settings: Any,
) -> ScaleUpInput:
    return ScaleUpInput(
        groups,
        templates,
        view or snapshot(),
        quotas or Quotas({}, {}),
        count,
        ScaleUpSettings(**settings),
        lambda each: (blocked or {}).get(each.id),
        aws_comparator(),
        lambda options, known: choose(options, [least_waste], known, Chance(1)),
    )


def sizes(made: ScaleUpPlan) -> dict[str, int]:
    return {each.group.id: each.new_size for each in made.increases}


def some(count: int, cpu: int = 500, name: str = "p", **about: Any) -> list[Pod]:
    return [pod(f"{name}{index}", cpu, owner=f"ReplicaSet/{name}", **about) for index in range(count)]


def test_the_group_with_the_least_waste_grows() -> None:
    templates = {"a": info(node("ta", 1000)), "b": info(node("tb", 8000, 8 * GIB))}
    made = plan(some(2), [group("a", 0, 10, 1), group("b", 0, 10, 1)], templates)
    assert made.result is ScaleUpResult.SUCCESSFUL
    assert sizes(made) == {"a": 2}
    assert str(made.increases[0]) == "{a 1->2 (max: 10)}"
    assert len(made.triggered) == 2 and not made.refused


def test_refusals_count_groups_by_reason() -> None:
    templates = {name: info(node(f"t{name}", 1000)) for name in "abcd"}
    groups = [group("a", 0, 10, 1), group("b", 0, 10, 1), group("c", 0, 1, 1), group("d", 0, 9, 1)]
    blocked = {"d": "in backoff after failed scale-up"}
    made = plan(some(1, 4000), groups, templates, blocked=blocked)
    assert made.result is ScaleUpResult.NO_OPTIONS
    [refused] = made.refused
    assert refused.message() == "2 Insufficient cpu, 1 max node group size reached, 1 in backoff after failed scale-up"


def test_max_nodes_total_cuts_and_stops() -> None:
    templates = {"a": info(node("ta", 1000))}
    made = plan(some(6), [group("a", 0, 10, 1)], templates, count=1, max_nodes_total=3)
    assert sizes(made) == {"a": 3}
    stopped = plan(some(6), [group("a", 0, 10, 1)], templates, count=3, max_nodes_total=3)
    assert stopped.result is ScaleUpResult.LIMITED_BY_MAX_TOTAL and len(stopped.refused) == 6


def test_quotas_cut_a_scale_up_and_then_refuse_the_group() -> None:
    templates = {"a": info(node("ta", 1000))}
    quotas = Quotas({"cpu": Range(0, 3)}, {"cpu": 1})
    assert sizes(plan(some(8), [group("a", 0, 10, 1)], templates, quotas=quotas)) == {"a": 3}
    full = Quotas({"cpu": Range(0, 3)}, {"cpu": 3})
    refused = plan(some(1), [group("a", 0, 10, 1)], templates, quotas=full).refused
    assert refused[0].message() == '1 exceeded quota: "cluster-wide", resources: cpu'


def test_similar_groups_share_a_scale_up() -> None:
    templates = {name: info(node(f"t{name}", 1000, labels={"topology.kubernetes.io/zone": name})) for name in "abc"}
    groups = [group("a", 0, 10, 1), group("b", 0, 10, 2), group("c", 0, 2, 2)]
    assert sizes(plan(some(10), groups, templates, balance_similar=True)) == {"a": 4, "b": 4}
    alone = sizes(plan(some(10), groups, templates))
    assert list(alone.values()) in ([6], [7]) and len(alone) == 1


def test_refusals_name_an_expander_that_chooses_none() -> None:
    given = scale_up_input([group("a", 0, 10, 1)], {"a": info(node("ta", 1000))})
    made = plan_scale_up(some(1), msgspec.structs.replace(given, choose=lambda options, known: None))
    assert made.result is ScaleUpResult.NO_OPTIONS
    [refused] = made.refused
    assert refused.message() == "1 expansion options filtered out and no longer considered"


def test_all_or_nothing_does_nothing_for_some() -> None:
    templates = {"a": info(node("ta", 1000))}
    made = plan(some(8), [group("a", 0, 3, 0)], templates, all_or_nothing=True)
    assert made.result is ScaleUpResult.NO_OPTIONS and not made.increases
    assert plan(some(6), [group("a", 0, 3, 0)], templates, all_or_nothing=True).result is ScaleUpResult.SUCCESSFUL


def test_a_group_that_goes_whole_goes_to_its_maximum() -> None:
    templates = {"a": info(node("ta", 1000))}
    assert sizes(plan(some(1), [group("a", 0, 7, 0, zero_or_max=True)], templates)) == {"a": 7}


def test_minimum_sizes_are_enforced() -> None:
    templates = {name: info(node(f"t{name}", 1000)) for name in "abc"}
    groups = [group("a", 3, 10, 1), group("b", 1, 10, 1), group("c", 2, 10, 0)]
    found = plan_minimum_sizes(scale_up_input(groups, templates, blocked={"c": "not ready for scale-up"}))
    assert [(each.group.id, each.new_size) for each in found] == [("a", 3)]
