"""Equivalence groups, bin-packing, limiters, similar nodes, balancing and expanders of the Cluster Autoscaler."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.autoscalers.node_groups import expanders
from dovetail.autoscalers.node_groups.balancing import balance
from dovetail.autoscalers.node_groups.equivalence import pod_groups
from dovetail.autoscalers.node_groups.estimator import ScaleUpEstimate, estimate
from dovetail.autoscalers.node_groups.expanders import ConfigWarning, ExpanderError, Option, parse_chain
from dovetail.autoscalers.node_groups.limits import (
    EstimationContext,
    EstimationLimiter,
    Threshold,
    cluster_threshold,
    similar_groups_threshold,
)
from dovetail.autoscalers.node_groups.pricing import Prices, preferred_cores, price_filter, unfitness
from dovetail.autoscalers.node_groups.quotas import Quotas, Range
from dovetail.autoscalers.node_groups.similarity import aws_comparator, label_comparator
from dovetail.chance import Chance
from dovetail.model.fit import NodeInfo
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import GIB, MIB, group, info, node, pod, snapshot

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def replicas(count: int, name: str = "rs", **about: Any) -> list[Pod]:
    return [pod(f"{name}-{index}", owner=f"ReplicaSet/{name}", **about) for index in range(count)]


def spread(key: str, labels: dict[str, str]) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": {"matchLabels": labels}}]}


def needed(pods: list[Pod], template: NodeInfo, *existing: NodeInfo, most: int = 0) -> ScaleUpEstimate:
    view = snapshot(*existing)
    before = {name: len(each.pods) for name, each in view.nodes.items()}
    found = estimate(pod_groups(pods), template, view, EstimationLimiter([Threshold(most)]))
    assert {name: len(each.pods) for name, each in view.nodes.items()} == before
    return found


def test_equivalent_pods_share_a_group() -> None:
    same, other = replicas(3), replicas(2, cpu=300)
    alone = [pod("a", owner=None), pod("b", owner=None)]
    found = pod_groups([*same, *other, *alone])
    assert [len(each.pods) for each in found] == [3, 2, 1, 1]


def test_a_controller_of_ever_new_pods_gets_ten_groups() -> None:
    found = pod_groups([each for cpu in range(20) for each in replicas(2, cpu=cpu + 1)])
    assert [len(each.pods) for each in found] == [2] * 10 + [1] * 20


def test_token_volumes_do_not_tell_pods_apart() -> None:
    tokens = [pod(f"p{n}", spec={"volumes": [{"name": f"kube-api-access-{n}"}], "hostname": f"p{n}"}) for n in range(3)]
    assert len(pod_groups(tokens)) == 1


@pytest.mark.parametrize(
    ("pods", "template", "most", "nodes", "placed"),
    [
        (replicas(10, cpu=350, memory=1000), (1000 * 1, 5000), 0, 5, 10),
        (replicas(10, cpu=10, memory=1000), (1000, 5000), 0, 2, 10),
        (replicas(8, cpu=200, memory=200, spec={"containers": []}), (1000, 5000), 0, 1, 8),
        (replicas(20, cpu=800, memory=100), (1000, 5000), 5, 5, 5),
        (replicas(5, cpu=1200, memory=100), (1000, 5000), 0, 0, 0),
        (
            [*replicas(10, "large", cpu=500, memory=500), *replicas(10, "small", cpu=100, memory=100)],
            (1000, 5000),
            0,
            6,
            20,
        ),
        (
            [*replicas(20, "a", cpu=100, memory=100), *replicas(4, "b", cpu=800, memory=100)],
            (1000, 5000),
            5,
            5,
            22,
        ),
    ],
)
def test_estimates(pods: list[Pod], template: tuple[int, int], most: int, nodes: int, placed: int) -> None:
    found = needed(pods, info(node("t", template[0], template[1])), most=most)
    assert (found.nodes, len(found.pods)) == (nodes, placed)


def test_host_ports_take_a_node_each() -> None:
    ports = {"containers": [{"name": "c", "ports": [{"hostPort": 5555, "containerPort": 5555}]}]}
    assert needed(replicas(8, spec=ports), info(node("t", 10000, GIB))).nodes == 8


def test_hostname_spread_counts_a_node_that_was_there() -> None:
    """Twelve pods, one per host of skew, a host of the cluster without any: it takes its share and counts as added."""
    labels = {"app": "estimatee"}
    pods = replicas(12, cpu=20, memory=100, labels=labels, spec=spread(HOST, labels))
    found = needed(pods, info(node("t", 1000, 5000)), info(node("old", 100, 5000)), most=0)
    assert len(found.pods) == 12
    assert found.nodes == 3


def test_zone_spread_that_no_new_node_can_meet_stops() -> None:
    labels = {"app": "estimatee"}
    pods = replicas(12, cpu=20, memory=100, labels=labels, spec=spread(ZONE, labels))
    template = info(node("t", 1000, 5000, labels={ZONE: "zone-mars"}))
    found = needed(pods, template, info(node("old", 100, 5000, labels={ZONE: "zone-jupiter"})))
    assert (found.nodes, len(found.pods)) == (1, 1)


def test_pods_apart_take_a_node_each() -> None:
    labels = {"app": "web"}
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    apart = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    found = needed(
        [*replicas(4, "a", labels=labels, spec=apart), *replicas(3, "b", labels=labels)], info(node("t", 4000, 8 * GIB))
    )
    assert found.nodes == 5  # pods of b avoid the nodes of a as well, and share one
    assert len(found.pods) == 7


def test_daemonset_pods_of_the_template_take_room() -> None:
    daemon = pod("d", 600, owner="DaemonSet/ds")
    assert needed(replicas(4, cpu=400), info(node("t"), daemon)).nodes == 4
    assert needed(replicas(4, cpu=400), info(node("t"))).nodes == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(50, 1000)), max_size=6))
def test_an_estimate_places_what_fits_and_no_more(groups: list[tuple[int, int]]) -> None:
    pods = [
        each for index, (count, cpu) in enumerate(groups) for each in replicas(count, f"g{index}", cpu=cpu, memory=1)
    ]
    found = needed(pods, info(node("t", 1000, GIB)))
    total = sum(cpu * count for count, cpu in groups)
    assert len(found.pods) == len(pods)
    assert total <= 1000 * found.nodes
    assert found.nodes <= len(pods)


@pytest.mark.parametrize(
    ("thresholds", "permitted"),
    [
        ([Threshold(0)], 50),
        ([Threshold(3)], 3),
        ([Threshold(5), Threshold(2)], 2),
        ([Threshold(2), Threshold(0)], 2),
        ([Threshold(-1), Threshold(5)], 0),
        ([Threshold(5), Threshold(-1)], 0),
        ([Threshold(0, -1.0)], 0),
    ],
)
def test_limiters(thresholds: list[Threshold], permitted: int) -> None:
    limiter = EstimationLimiter(thresholds)
    assert sum(limiter.permit() for _ in range(50)) == permitted


def test_time_limits_an_estimate() -> None:
    seconds = iter([0.0, 1.0, 4.0, 6.0])
    limiter = EstimationLimiter([Threshold(0, 5.0)], lambda: next(seconds))
    assert [limiter.permit() for _ in range(3)] == [True, True, False]


def test_thresholds_of_groups_and_cluster() -> None:
    context = EstimationContext((group("b", 0, 5, 3), group("c", 0, 2, 4)), 20, 15)
    assert similar_groups_threshold(group("a", 0, 10, 4), context).nodes == 8
    assert similar_groups_threshold(group("a", 0, 4, 4), EstimationContext()).nodes == -1
    assert similar_groups_threshold(group("a", 0, 4, 4), None).nodes == 0
    assert cluster_threshold(context).nodes == 5
    assert cluster_threshold(EstimationContext((), 15, 15)).nodes == -1
    assert cluster_threshold(EstimationContext((), 0, 15)).nodes == 0


@pytest.mark.parametrize(
    ("other", "similar"),
    [
        ({}, True),
        ({"cpu": 2000}, False),
        ({"memory": 8 * GIB - 100 * MIB}, True),
        ({"memory": 8 * GIB - 200 * MIB}, False),
        ({"labels": {ZONE: "b", "eks.amazonaws.com/nodegroup": "x", "lifecycle": "spot"}}, True),
        ({"labels": {"tier": "web"}}, False),
        ({"nvidia_com__gpu": 1}, False),
    ],
)
def test_similar_nodes(other: dict[str, Any], similar: bool) -> None:
    compare = aws_comparator()
    one = info(node("n1", 1000, 8 * GIB, labels={ZONE: "a"}))
    two = info(node("n2", **{"cpu": 1000, "memory": 8 * GIB, **other}))
    assert compare(one, two) is similar
    assert compare(two, one) is similar


def test_free_amounts_count_for_similarity() -> None:
    compare = aws_comparator()
    one = info(node("n1", 1000, 8 * GIB), pod("a", 100, GIB))
    assert not compare(one, info(node("n2", 1000, 8 * GIB), pod("b", 300, GIB)))
    assert compare(one, info(node("n2", 1000, 8 * GIB), pod("b", 105, GIB)))
    crowd = [pod(f"p{number}", 0, 0) for number in range(20)]
    assert compare(info(node("n1", 1000, 8 * GIB)), info(node("n2", 1000, 8 * GIB), *crowd))  # pods are not counted
    assert label_comparator(["tier"])(info(node("a", labels={"tier": "x"})), info(node("b", 9, labels={"tier": "x"})))
    assert not label_comparator(["tier"])(info(node("a")), info(node("b")))


@pytest.mark.parametrize(
    ("groups", "nodes", "expected"),
    [
        ([(1, 1, 10)], 5, {"g0": 6}),
        ([(0, 1, 10), (0, 2, 10), (0, 3, 10)], 3, {"g0": 3, "g1": 3}),
        ([(0, 1, 3), (0, 1, 10)], 8, {"g0": 3, "g1": 7}),
        ([(0, 2, 3), (0, 3, 5)], 8, {"g0": 3, "g1": 5}),
        ([(0, 5, 5), (0, 1, 5)], 2, {"g1": 3}),
        ([(0, 6, 5), (0, 1, 5)], 2, {"g1": 3}),
        ([(0, 5, 5)], 2, {}),
    ],
)
def test_balancing(groups: list[tuple[int, int, int]], nodes: int, expected: dict[str, int]) -> None:
    made = [group(f"g{index}", least, most, target) for index, (least, target, most) in enumerate(groups)]
    assert {each.group.id: each.new_size for each in balance(made, nodes)} == expected


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=6), st.integers(0, 60))
def test_balancing_keeps_maxima_and_evens_out(groups: list[tuple[int, int]], nodes: int) -> None:
    made = [group(f"g{index}", 0, most, target) for index, (target, most) in enumerate(groups)]
    grown = {each.group.id: each for each in balance(made, nodes)}
    assert sum(each.delta for each in grown.values()) == min(nodes, sum(each.room for each in made))
    sizes = {each.id: grown[each.id].new_size if each.id in grown else each.target_size for each in made}
    smallest_open = min((sizes[each.id] for each in made if sizes[each.id] < each.max_size), default=None)
    for change in grown.values():
        assert change.new_size <= change.max_size
        assert smallest_open is None or change.new_size <= smallest_open + 1


TEMPLATES = {
    "small": info(node("t-small", 1000, 1000 * MIB)),
    "large": info(node("t-large", 4000, 4000 * MIB)),
    "memory": info(node("t-memory", 1000, 4000 * MIB)),
}


def option(name: str, nodes: int, pods: int = 1, cpu: int = 500, memory: int = 500 * MIB) -> Option:
    return Option(group(name), nodes, tuple(replicas(pods, name, cpu=cpu, memory=memory)))


def ids(options: list[Option]) -> list[str]:
    return [each.group.id for each in options]


def test_expanders_narrow() -> None:
    options = [option("small", 1), option("large", 1), option("memory", 1)]
    assert ids(expanders.least_waste(options, TEMPLATES)) == ["small"]
    assert ids(expanders.least_waste([option("small", 1), option("small", 1)], TEMPLATES)) == ["small", "small"]
    assert ids(expanders.most_pods([option("small", 1, 2), option("large", 1, 3)], TEMPLATES)) == ["large"]
    fewest = expanders.least_nodes([option("small", 3), option("large", 0), option("memory", 2)], TEMPLATES)
    assert ids(fewest) == ["memory"]


@pytest.mark.parametrize("text", ["random,least-waste", "price,price", "", "grpc", "cheapest", "price,random,priority"])
def test_bad_chains_are_refused(text: str) -> None:
    with pytest.raises(ExpanderError, match="--expander"):
        parse_chain(text)


def test_grpc_is_refused_with_another_way() -> None:
    with pytest.raises(ExpanderError, match=r"no gRPC client.*cluster-autoscaler-priority-expander.*use priority"):
        parse_chain("grpc,least-waste")


def test_a_chain_stops_at_one() -> None:
    assert parse_chain("priority,least-waste") == ("priority", "least-waste")
    asked: list[str] = []

    def watch(options: Any, templates: Any) -> list[Option]:
        asked.append("asked")
        return list(options)

    options = [option("small", 1), option("large", 1)]
    best = expanders.choose(options, [expanders.least_waste, watch], TEMPLATES, Chance(1))
    assert best is not None and best.group.id == "small" and not asked
    picked = {expanders.choose(options, [watch], TEMPLATES, Chance(seed)).group.id for seed in range(20)}
    assert picked == {"small", "large"}


PRIORITIES = """
10: ['.*small.*', 'memory']
50: ['large']
20: ['arge']
"""


@pytest.mark.parametrize(
    ("config", "kept", "warned"),
    [
        (None, ["small", "large"], []),
        ({"priorities": PRIORITIES}, ["large"], []),
        ({"priorities": "10: ['small']"}, ["small"], ["PriorityConfigMapNotMatchedGroup"]),
        (
            {"priorities": "10: ['other']"},
            ["small", "large"],
            ["PriorityConfigMapNotMatchedGroup"] * 2 + ["PriorityConfigMapNoGroupMatched"],
        ),
        ({"other": ""}, ["small", "large"], ["PriorityConfigMapInvalid"]),
        ({"priorities": ""}, ["small", "large"], ["PriorityConfigMapInvalid"]),
        ({"priorities": "a: [b]"}, ["small", "large"], ["PriorityConfigMapInvalid"]),
        ({"priorities": "1: ['(']"}, ["small", "large"], ["PriorityConfigMapInvalid"]),
    ],
)
def test_priority(config: Any, kept: list[str], warned: list[str]) -> None:
    warnings: list[ConfigWarning] = []
    narrow = expanders.priority_filter(config, warnings.append)
    assert ids(narrow([option("small", 1), option("large", 1)], TEMPLATES)) == kept
    assert [each.reason for each in warnings] == warned


def test_the_warnings_of_the_priority_expander_have_the_words_that_alerts_match() -> None:
    warnings: list[ConfigWarning] = []
    expanders.priority_filter({"priorities": "10: ['other']\n20:"}, warnings.append)([option("small", 1)], TEMPLATES)
    expanders.priority_filter({"priorities": ""}, warnings.append)([option("small", 1)], TEMPLATES)
    assert [each.message for each in warnings] == [
        "Priority expander: node group small not found in priority expander configuration. The group won't be used.",
        "Priority expander: no priorities info found for any of the expansion options. No options filtered.",
        "Wrong configuration for priority expander: priority configuration in cluster-autoscaler-priority-expander "
        "configmap is empty; please provide valid configuration. Ignoring update.",
    ]


def test_a_single_option_passes_the_first_filter_too() -> None:
    warnings: list[ConfigWarning] = []
    filters = [expanders.priority_filter({"priorities": "10: ['other']"}, warnings.append), expanders.least_nodes]
    small = option("small", 1)
    assert expanders.choose([small], filters, TEMPLATES, Chance(0)) is small
    assert len(warnings) == 2
    assert expanders.choose([option("small", 0)], [expanders.least_nodes], TEMPLATES, Chance(0)) is None


@pytest.mark.parametrize("label", ["eks.amazonaws.com/capacityType", "capacityType"])
def test_price_knows_spot_groups_by_the_label_of_their_nodes(label: str) -> None:
    kind = "node.kubernetes.io/instance-type"
    priced = {
        "fixed": info(node("fixed", 2000, 8 * GIB, labels={kind: "m5.large", label: "ON_DEMAND"})),
        "spot": info(node("spot", 2000, 8 * GIB, labels={kind: "m5.large", label: "SPOT"})),
    }
    options = [option("fixed", 1), option("spot", 1)]
    assert ids(price_filter(Prices({"m5.large": 0.1}, {"m5.large": 0.04}), 4)(options, priced)) == ["spot"]
    assert ids(price_filter(Prices({"m5.large": 0.1}, {"m5.large": 0.2}), 4)(options, priced)) == ["fixed"]


def test_price_prefers_the_cheaper_way() -> None:
    types = {"small": 0.05, "large": 0.1, "memory": 0.5}
    priced = {
        name: info(node(name, 2000, 8 * GIB, labels={"node.kubernetes.io/instance-type": name})) for name in types
    }
    narrow = price_filter(Prices(types), 4)
    options = [option("small", 3), option("large", 1), option("memory", 1)]
    assert ids(narrow(options, priced)) == ["large"]
    assert ids(price_filter(Prices({}), 4)(options, priced)) == ["small", "large", "memory"]
    assert [preferred_cores(size) for size in (1, 2, 3, 6, 7, 20, 21, 60, 61, 200, 201)] == [
        1,
        1,
        2,
        2,
        4,
        4,
        8,
        8,
        16,
        16,
        32,
    ]
    assert unfitness(4, 1.0) == unfitness(1, 4.0) == 4.0


def test_quotas_cut_and_release() -> None:
    quotas = Quotas({"cpu": Range(4, 10), "memory": Range(0, 100 * GIB)}, {"cpu": 6, "memory": 8 * GIB})
    two = node("n", 2000, 4 * GIB)
    check = quotas.check(two, 3)
    assert (check.allowed, check.exceeded) == (2, ("cpu",))
    assert check.message() == 'exceeded quota: "cluster-wide", resources: cpu'
    quotas.consume(two, 2)
    assert quotas.check(two, 1).allowed == 0
    assert quotas.release(two) == ()
    assert quotas.release(two) == ("cpu",)
