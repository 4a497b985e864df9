"""Bin-packing, limiters and expanders, for the cases that Cluster Autoscaler's own tests fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from dovetail.autoscalers.node_groups import expanders
from dovetail.autoscalers.node_groups.equivalence import PodGroup
from dovetail.autoscalers.node_groups.estimator import estimate, largest_first
from dovetail.autoscalers.node_groups.expanders import ConfigWarning, Filter, Option, Templates
from dovetail.autoscalers.node_groups.limits import (
    EstimationContext,
    EstimationLimiter,
    Threshold,
    cluster_threshold,
    similar_groups_threshold,
)
from dovetail.autoscalers.node_groups.pricing import Prices, price_filter
from dovetail.chance import Chance
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import GIB, MIB, group, info, node, pod, snapshot

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
TYPE = "node.kubernetes.io/instance-type"


def alike(count: int, cpu: int, memory: int = 100, name: str = "estimatee", **spec: Any) -> PodGroup:
    """Memory in bytes, as upstream's helper has it; its nodes have MiB."""
    return PodGroup(
        tuple(
            pod(f"{name}-{n}", cpu, memory, namespace="universe", labels={"app": name}, spec=spec) for n in range(count)
        )
    )


def host_port(port: int, cpu: int, memory: int = 100) -> dict[str, Any]:
    requests = {"cpu": f"{cpu}m", "memory": str(memory)}
    ports = [{"hostPort": port, "containerPort": port}]
    return {"containers": [{"name": "c", "resources": {"requests": requests}, "ports": ports}]}


def skew(most: int, key: str, minimum: int | None = None) -> dict[str, Any]:
    constraint: dict[str, Any] = {
        "maxSkew": most,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "estimatee"}},
    }
    if minimum is not None:
        constraint["minDomains"] = minimum
    return {"topologySpreadConstraints": [constraint]}


def apart(name: str, key: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": key}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def packed(groups: Sequence[PodGroup], cpu: int, memory: int, most: int = 0) -> tuple[int, tuple[Pod, ...]]:
    """One node in another zone is there already."""
    view = snapshot(info(node("old", 100, 100 * MIB, pods=10, labels={ZONE: "jupiter"})))
    template = info(node("template", cpu, memory * MIB, pods=10, labels={ZONE: "mars"}))
    found = estimate(groups, template, view, EstimationLimiter([Threshold(most)]))
    return found.nodes, found.pods


@pytest.mark.parametrize(
    ("groups", "cpu", "memory", "most", "nodes", "pods"),
    [
        ([alike(10, 350, 1000)], 1000, 2000, 0, 5, 10),
        ([alike(20, 10, 100)], 10000, 20000, 0, 2, 20),
        ([alike(8, 200, 1000, **host_port(5555, 200, 1000))], 1000, 5000, 0, 8, 8),
        ([alike(20, 500, 1000)], 1000, 5000, 5, 5, 10),
        ([alike(10, 50, 1000, "small"), alike(10, 500, 1000, "large")], 1000, 5000, 5, 5, 10),
        ([alike(8, 200, 200, **skew(2, HOST, 1))], 1000, 5000, 0, 4, 8),
        ([alike(8, 20, 100, **skew(2, ZONE))], 1000, 5000, 0, 1, 2),
        ([alike(12, 20, 100, **skew(1, HOST, 3))], 1000, 5000, 0, 3, 12),
        ([alike(2, 600, name="big"), alike(1, 150, name="a"), alike(1, 120, name="b")], 1000, 1000, 0, 2, 4),
        ([alike(2, 600, name="big"), alike(1, 400, name="medium"), alike(1, 300, name="small")], 1000, 1000, 0, 2, 4),
        ([alike(2, 600, name="big"), alike(2, 200, name="port", **host_port(5555, 200))], 1000, 1000, 0, 2, 4),
        ([alike(2, 600, name="big"), alike(2, 200, name="x", **apart("x", HOST))], 1000, 1000, 0, 2, 4),
        ([alike(2, 600, name="x", **apart("x", ZONE)), alike(1, 300, name="small")], 1000, 1000, 0, 1, 2),
        ([alike(2, 600, name="x", **apart("x", ZONE)), alike(1, 500, name="medium")], 1000, 1000, 0, 2, 2),
        (
            [alike(2, 600, name="x", **apart("x", ZONE)), alike(1, 300, name="small"), alike(30, 100, name="many")],
            1000,
            1000,
            4,
            4,
            32,
        ),
    ],
)
def test_estimates(groups: Sequence[PodGroup], cpu: int, memory: int, most: int, nodes: int, pods: int) -> None:
    found, placed = packed(groups, cpu, memory, most)
    assert (found, len(placed)) == (nodes, pods)


def test_large_pods_are_placed_first() -> None:
    small, large = alike(10, 50, 1000, "small"), alike(10, 500, 1000, "large")
    assert packed([small, large], 1000, 5000, 5)[1] == large.pods


def test_the_estimate_of_upstreams_benchmark() -> None:
    view = snapshot(info(node("old", 100, 100 * MIB, pods=10, labels={ZONE: "jupiter"})))
    template = info(node("template", 1000, 5000 * MIB, pods=100, labels={ZONE: "mars"}))
    groups = [alike(50000, 50, 100, "small"), alike(1000, 95, 190, "large")]
    found = estimate(groups, template, view, EstimationLimiter([Threshold(3000)]))
    assert (found.nodes, len(found.pods)) == (2595, 51000)


ONE, TWO, THREE = alike(1, 1, 1, "one"), alike(1, 2, 1, "two"), alike(1, 2, 100, "three")


@pytest.mark.parametrize(
    ("groups", "ordered"),
    [([ONE], [ONE]), ([THREE, TWO, ONE], [THREE, TWO, ONE]), ([ONE, THREE, TWO], [THREE, TWO, ONE]), ([], [])],
)
def test_groups_are_ordered_by_what_a_pod_takes_of_a_node(groups: list[PodGroup], ordered: list[PodGroup]) -> None:
    template = info(node("t", 4, 600, pods=10))
    assert largest_first(groups, template, snapshot(template)) == ordered


@pytest.mark.parametrize(
    ("most", "seconds", "late", "permits"),
    [(20, 0, 0, [True] * 3), (20, 5, 10, [False] * 2), (3, 0, 0, [True] * 3 + [False]), (-1, 0, 0, [False])],
)
def test_limiters(most: int, seconds: float, late: float, permits: list[bool]) -> None:
    now = 0.0
    limiter = EstimationLimiter([Threshold(most, seconds)], lambda: now)
    now = late
    assert [limiter.permit() for _ in permits] == permits
    assert limiter.nodes == sum(permits)
    again = EstimationLimiter([Threshold(most, seconds)], lambda: now)
    assert again.permit() is (most > 0)


@pytest.mark.parametrize(
    ("thresholds", "most", "seconds"),
    [
        ([Threshold(0, 0), Threshold(0, 0)], 0, 0),
        ([Threshold(5, 10), Threshold(7, 3)], 5, 3),
        ([Threshold(0, 4), Threshold(7, 0)], 7, 4),
        ([Threshold(5, 10), Threshold(-1, 3)], -1, 3),
        ([Threshold(5, -1), Threshold(0, 3)], 5, -1),
    ],
)
def test_the_tightest_threshold_counts(thresholds: list[Threshold], most: int, seconds: float) -> None:
    limiter = EstimationLimiter(thresholds)
    assert (limiter.max_nodes, limiter.max_duration_s) == (most, seconds)


@pytest.mark.parametrize(
    ("similar", "own", "threshold"),
    [
        ([(10, 5), (100, 50), (5, 3)], (20, 10), 67),
        ([(10, 5), (10, 11), (0, 5)], (5, 10), 5),
        ([(10, 10), (100, 100)], (5, 5), -1),
        ([(10, 11), (100, 111), (0, 5)], (5, 10), -1),
    ],
)
def test_room_of_similar_groups(similar: list[tuple[int, int]], own: tuple[int, int], threshold: int) -> None:
    others = tuple(group(f"g{n}", 0, most, target) for n, (most, target) in enumerate(similar))
    found = similar_groups_threshold(group("own", 0, *own), EstimationContext(others))
    assert (found.nodes, found.duration_s) == (threshold, 0)


@pytest.mark.parametrize(("most", "current", "threshold"), [(10, 5, 5), (0, 10, 0), (5, 10, -1), (-5, 0, -1)])
def test_room_of_the_cluster(most: int, current: int, threshold: int) -> None:
    assert cluster_threshold(EstimationContext((), most, current)).nodes == threshold


def of(name: str, nodes: int = 1, *pods: Pod, exists: bool = True) -> Option:
    made = group(name)
    return Option(made if exists else type(made)(id=name, exists=False), nodes, pods)


def names(options: Sequence[Option]) -> list[str]:
    return [option.group.id for option in options]


def test_least_waste() -> None:
    cpu, memory = 500, 1000 * MIB
    templates = {
        name: info(node(name, cpu * cores, memory * amount, pods=100))
        for name, cores, amount in (("balanced", 16, 16), ("memory", 16, 32), ("lowcpu", 8, 16))
    }
    assert names(expanders.least_waste([of("balanced")], templates)) == ["balanced"]
    one = pod("p", cpu, memory)
    for offered in (["balanced"], ["balanced", "memory"], ["balanced", "memory", "lowcpu"]):
        best = expanders.least_waste([of(name, 1, one) for name in offered], templates)
        assert names(best) == (["lowcpu"] if "lowcpu" in offered else ["balanced"])


@pytest.mark.parametrize(
    ("counts", "kept"),
    [
        ([], []),
        ([0], []),
        ([2], [0]),
        ([2, 1], [1]),
        ([6, 2, 2], [1, 2]),
        ([8, 8, 8], [0, 1, 2]),
        ([23, 0, 5, 8, 5, 5, 22], [2, 4, 5]),
    ],
)
def test_least_nodes(counts: list[int], kept: list[int]) -> None:
    options = [of(f"g{n}", count) for n, count in enumerate(counts)]
    assert names(expanders.least_nodes(options, {})) == [f"g{n}" for n in kept]


@pytest.mark.parametrize(("counts", "kept"), [([0], [0]), ([0, 1], [1]), ([0, 1, 1], [1, 2])])
def test_most_pods(counts: list[int], kept: list[int]) -> None:
    options = [of(f"g{n}", 1, *(pod(f"p{m}") for m in range(count))) for n, count in enumerate(counts)]
    assert names(expanders.most_pods(options, {})) == [f"g{n}" for n in kept]


def having(text: str) -> Filter:
    def narrow(options: Sequence[Option], templates: Templates) -> list[Option]:
        return [option for option in options if text in option.group.id]

    return narrow


@pytest.mark.parametrize(
    ("filters", "options", "possible"),
    [
        ([], ["b", "a"], {"a", "b"}),
        (["a"], ["ab", "b"], {"ab"}),
        (["a", "b"], ["xab", "xa", "x"], {"xab"}),
        (["x"], ["xc", "xaa", "xab"], {"xc", "xaa", "xab"}),
        (["a", "b"], ["a"], {"a"}),
        (["z"], ["a"], {None}),
        ([], [], {None}),
    ],
)
def test_chains_narrow_and_chance_decides(filters: list[str], options: list[str], possible: set[str | None]) -> None:
    offered, narrowing = [of(name) for name in options], [having(text) for text in filters]
    found = [expanders.choose(offered, narrowing, {}, Chance(seed)) for seed in range(40)]
    assert {option.group.id if option else None for option in found} == possible


PRIORITIES = "5:\n- .*t2\\.micro.*\n10:\n- .*t2\\.large.*\n- .*t3\\.large.*\n50:\n- .*m4\\.4xlarge.*\n"
ONE_ENTRY, WILDCARD = "10:\n- .*t2\\.large.*\n", '5:\n- ".*"\n10:\n- .t2\\.large.*\n'
NO_MATCH = "5:\n- .*t\\.micro.*\n10:\n- .*t\\.large.*\n"


@pytest.mark.parametrize(
    ("config", "offered", "kept", "events"),
    [
        (PRIORITIES, ["t2.large"], ["t2.large"], {}),
        (PRIORITIES, ["t2.large", "m4.4xlarge"], ["m4.4xlarge"], {}),
        (WILDCARD, ["t2.large", "t2.micro"], ["t2.large"], {}),
        (PRIORITIES, ["t2.large", "t3.large", "t2.micro"], ["t2.large", "t3.large"], {}),
        (PRIORITIES, ["t2.large", "t3.large"], ["t2.large", "t3.large"], {}),
        (ONE_ENTRY, ["t2.large", "t3.large", "m4.4xlarge"], ["t2.large"], {"PriorityConfigMapNotMatchedGroup": 2}),
        (
            NO_MATCH,
            ["t2.large", "t3.large"],
            ["t2.large", "t3.large"],
            {"PriorityConfigMapNotMatchedGroup": 2, "PriorityConfigMapNoGroupMatched": 1},
        ),
        ("", ["t2.large", "t3.large"], ["t2.large", "t3.large"], {"PriorityConfigMapInvalid": 1}),
        ("5: x", ["t2.large", "t3.large"], ["t2.large", "t3.large"], {"PriorityConfigMapInvalid": 1}),
    ],
)
def test_priorities(config: str, offered: list[str], kept: list[str], events: dict[str, int]) -> None:
    warnings: list[ConfigWarning] = []
    narrow = expanders.priority_filter({"priorities": config}, warnings.append)
    assert names(narrow([of(f"my-asg.{name}") for name in offered], {})) == [f"my-asg.{name}" for name in kept]
    assert Counter(warning.reason for warning in warnings) == events


FIRST, SECOND = pod("p1", 1000, 0), pod("p2", 500, 0)
#: A core costs 20, so the pods cost 20 and 10, and what stabilises the ratio 10.
PER_CORE = 20.0


@pytest.mark.parametrize(
    ("prices", "cluster_size", "counts", "pods", "best"),
    [
        ({"small": 20.0, "large": 200.0}, 4, (2, 1), (2, 2), "small"),
        ({"small": 50.0, "large": 200.0}, 20, (2, 1), (2, 2), "large"),
        ({"small": 20.0, "large": 200.0}, 20, (80, 40), (2, 2), "small"),
        ({"small": 200.0, "large": 100.0}, 4, (2, 1), (2, 2), "large"),
        ({"small": 200.0, "large": 200.0}, 4, (2, 1), (1, 2), "large"),
        ({"small": 200.0, "large": 200.0, "new": 200.0}, 4, (2, 1), (1, 2), "large"),
        ({"small": 200.0, "large": 200.0, "new": 90.0}, 4, (2, 1), (1, 2), "new"),
    ],
)
def test_prices(
    prices: dict[str, float], cluster_size: int, counts: tuple[int, int], pods: tuple[int, int], best: str
) -> None:
    """A cluster of 4 nodes prefers nodes of 2 cores, one of 20 nodes of 4; a group that is not there costs twice."""
    templates = {
        name: info(node(name, cores, 1000, labels={TYPE: name}))
        for name, cores in (("small", 1000), ("large", 4000), ("new", 4000))
    }
    both = (FIRST, SECOND)
    options = [of("small", counts[0], *both[: pods[0]]), of("large", counts[1], *both[: pods[1]])]
    if "new" in prices:
        options.append(of("new", 1, *both, exists=False))
    narrow = price_filter(Prices(prices, per_core=PER_CORE, per_gib=0.0), cluster_size)
    assert names(narrow(options, templates)) == [best]


def test_memory_alone_can_waste() -> None:
    templates = {"even": info(node("even", 2000, 4 * GIB)), "wide": info(node("wide", 2000, 16 * GIB))}
    asked = pod("p", 1900, 3 * GIB)
    assert names(expanders.least_waste([of("wide", 1, asked), of("even", 1, asked)], templates)) == ["even"]
