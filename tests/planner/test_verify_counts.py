"""Counts that are kept up as pods come are those that a pod counting afresh would find."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.fit import Fit
from dovetail.model.fit.podinfo import PodInfo, pod_info
from dovetail.model.meta import ObjectMeta
from dovetail.model.nodes import Node, NodeSpec, NodeStatus, Taint
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify.cluster import PlannedCluster
from dovetail.planner.verify.counts import PlacedPodCounts
from tests.planner.conftest import HOSTNAME, ZONE, node, pod, pool

APPS = ("web", "db", "cache")
SELECTORS: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    *({"matchLabels": {"app": app}} for app in APPS),
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
)
WHERE: tuple[dict[str, Any], ...] = ({}, {"namespaces": ["default", "other"]}, {"namespaceSelector": {}})
KEYS = st.sampled_from((ZONE, HOSTNAME, "rack"))


@st.composite
def asked(draw: st.DrawFn) -> dict[str, Any]:
    """What a pod asks about others, and where it may go itself."""

    def term() -> dict[str, Any]:
        where: dict[str, Any] = draw(st.sampled_from(WHERE))
        return {"labelSelector": draw(st.sampled_from(SELECTORS)), "topologyKey": draw(KEYS), **where}

    def spread() -> dict[str, Any]:
        policy = draw(st.sampled_from(({}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"})))
        return {
            "maxSkew": draw(st.integers(1, 2)),
            "topologyKey": draw(KEYS),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": draw(st.sampled_from(SELECTORS)),
            **policy,
        }

    found: dict[str, Any] = {}
    if draw(st.booleans()):
        found["topologySpreadConstraints"] = [spread() for _ in range(draw(st.integers(1, 2)))]
    ways = draw(st.sets(st.sampled_from(("podAffinity", "podAntiAffinity"))))
    if ways:
        found["affinity"] = {way: {"requiredDuringSchedulingIgnoredDuringExecution": [term()]} for way in sorted(ways)}
    if draw(st.integers(0, 3)) == 0:
        found["nodeSelector"] = {ZONE: "z1"}
    return found


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[PodInfo, str]]:
    found = []
    for number in range(draw(st.integers(1, 14))):
        made = pod(
            f"p{number}",
            labels={"app": draw(st.sampled_from(APPS))},
            namespace=draw(st.sampled_from(("default", "other"))),
            **draw(asked()),
        )
        found.append((pod_info(made), draw(st.sampled_from(("a", "b", "c", "d")))))
    return found


def _cluster() -> ClusterNodes:
    room = {"cpu": "64", "memory": "256Gi", "pods": "100"}
    racks = {"a": {"rack": "r1"}, "b": {"rack": "r2"}, "c": {}, "d": {"rack": "r1"}}
    taints = {"b": (Taint(key="team", effect="NoSchedule"),)}
    return ClusterNodes.of(
        Node(
            metadata=ObjectMeta(name=name, labels={HOSTNAME: name, ZONE: f"z{at % 2 + 1}", **racks[name]}),
            spec=NodeSpec(taints=taints.get(name, ())),
            status=NodeStatus(allocatable=room),
        )
        for at, name in enumerate(racks)
    )


@given(arrivals())
@settings(max_examples=150, deadline=None)
def test_a_kept_count_answers_as_a_fresh_one(coming: list[tuple[PodInfo, str]]) -> None:
    cluster = _cluster()
    counts = PlacedPodCounts(cluster)
    for number, (info, target) in enumerate(coming):
        for asker, _ in coming[number:]:
            kept, fresh = counts.fit(asker), Fit(asker, cluster)
            for held in cluster.nodes.values():
                assert kept.check(held) == fresh.check(held)
        counts.place(info, target)


@settings(max_examples=60, deadline=None)
@given(
    there=st.lists(st.tuples(st.sampled_from(("n1", "n2", "n3")), st.sampled_from(APPS), asked()), max_size=6),
    wants=asked(),
)
def test_pods_of_nodes_that_receive_none_are_counted_and_not_kept(
    there: list[tuple[str, str, dict[str, Any]]], wants: dict[str, Any]
) -> None:
    """What is said of a target is the same as if every pod of the cluster were kept."""
    running = [(name, pod(f"r{n}", labels={"app": app}, **spec)) for n, (name, app, spec) in enumerate(there)]
    states = tuple(
        node(name, zone, pods=tuple(each for where, each in running if where == name))
        for name, zone in (("n1", "z1"), ("n2", "z1"), ("n3", "z2"))
    )
    new = pod("new", labels={"app": "web"}, **wants)
    snapshot = Snapshot(pools=(pool(),), pending=(new,), nodes=states)
    kept, counted = PlannedCluster(snapshot, ()), PlannedCluster(snapshot, (), (), {"n1"})
    assert not counted.cluster.nodes["n2"].pods and not counted.cluster.nodes["n3"].pods
    assert len(counted.cluster.nodes["n1"].pods) == sum(name == "n1" for name, _ in running)
    verdicts = []
    for world in (kept, counted):
        fit = Fit(pod_info(new), world.cluster)
        verdicts.append(fit.rejection or fit.check(world.cluster.nodes["n1"]))
        assert {name: held.kinds for name, held in world.cluster.nodes.items()} == {
            name: held.kinds for name, held in kept.cluster.nodes.items()
        }
    assert verdicts[0] == verdicts[1]
