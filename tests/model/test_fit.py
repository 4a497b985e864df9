"""Whether a pod fits a node, one rule a test; thousands of mixed cases are in the scheduler's recordings."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.fit import ClusterNodes, Fit, pod_info
from dovetail.model.fit.binding import find_volume
from dovetail.model.fit.storage import Storage
from dovetail.model.meta import view
from dovetail.model.nodes import Namespace, Node, Taint
from dovetail.model.pods import Pod, Toleration
from dovetail.model.taints import tolerates
from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"


def node(name: str, labels: Json | None = None, **spec: Any) -> Node:
    size = {"cpu": "2", "memory": "4Gi", "pods": "3"}
    metadata = {"name": name, "labels": {HOST: name, **(labels or {})}}
    return view({"metadata": metadata, "spec": spec, "status": {"allocatable": size}}, Node)


def pod(name: str, cpu: str = "500m", on: str | None = None, labels: Json | None = None, **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "uid": name, "namespace": "default", "labels": labels or {"app": "web"}}
    return view({"metadata": metadata, "spec": {"containers": [container], "nodeName": on, **spec}}, Pod)


def why(wanted: Pod, nodes: list[Node], *placed: Pod, storage: Storage | None = None) -> list[tuple[str, ...] | None]:
    """The rejection of every node, in order."""
    cluster = ClusterNodes.of(nodes, placed, [view({"metadata": {"name": "default"}}, Namespace)], storage)
    fit = Fit(pod_info(wanted), cluster)
    if fit.rejection is not None:
        return [fit.rejection.reasons]
    found = [fit.check(info) for info in cluster.nodes.values()]
    return [each.reasons if each is not None else None for each in found]


def test_every_short_resource_is_named() -> None:
    full = [pod(f"p{at}", cpu="600m", on="n") for at in range(3)]
    assert why(pod("a"), [node("n")], *full) == [("Too many pods", "Insufficient cpu")]


def test_a_pod_that_has_ended_holds_nothing() -> None:
    ended = view({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}, Pod)
    assert why(pod("a", cpu="2"), [node("n")], ended) == [None]


def test_a_cordon_can_be_tolerated() -> None:
    excuse = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert why(pod("a"), [node("n", unschedulable=True)]) == [("node(s) were unschedulable",)]
    assert why(pod("a", tolerations=excuse), [node("n", unschedulable=True)]) == [None]


@pytest.mark.parametrize(
    ("operator", "mine", "its", "excused"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "5", "-7", True),
        ("Gt", "05", "6", False),
        ("Gt", "5", "+6", False),
        ("Gt", "5", "many", False),
        ("Gt", "5", str(1 << 63), False),
    ],
)
def test_a_toleration_compares_whole_numbers_in_their_usual_spelling(
    operator: str, mine: str, its: str, excused: bool
) -> None:
    toleration = Toleration(key="k", operator=operator, value=mine)
    assert tolerates(toleration, Taint(key="k", value=its, effect="NoSchedule")) is excused


def test_soft_taints_turn_nothing_away() -> None:
    soft, hard = ({"key": "k", "effect": effect} for effect in ("PreferNoSchedule", "NoExecute"))
    nodes = [node("n", taints=[soft]), node("m", taints=[hard])]
    assert why(pod("a"), nodes) == [None, ("node(s) had untolerated taint(s)",)]


def test_a_spread_keeps_the_skew_between_domains_that_take_part() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    nodes = [node("n", {"zone": "a"}), node("m", {"zone": "b"}), node("o")]
    assert why(pod("a", topologySpreadConstraints=[constraint]), nodes, pod("p", on="n")) == [
        ("node(s) didn't match pod topology spread constraints",),
        None,
        ("node(s) didn't match pod topology spread constraints (missing required label)",),
    ]


def test_too_few_domains_count_as_an_empty_one() -> None:
    """Two zones where three are asked for: each may hold no more than the skew."""
    rule = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    nodes = [node("n", {"zone": "a"}), node("m", {"zone": "b"})]
    placed = pod("p", on="n"), pod("q", on="m")
    assert why(pod("a", topologySpreadConstraints=[rule]), nodes, *placed) == [None, None]
    full = ("node(s) didn't match pod topology spread constraints",)
    assert why(pod("a", topologySpreadConstraints=[rule | {"minDomains": 3}]), nodes, *placed) == [full, full]
    assert why(pod("a", topologySpreadConstraints=[rule | {"minDomains": 2}]), nodes, *placed) == [None, None]


def test_the_first_of_a_self_loving_group_may_start_anywhere() -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    love = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [node("n"), node("m")]
    assert why(pod("a", affinity=love), nodes) == [None, None]
    assert why(pod("a", affinity=love), nodes, pod("p", on="m")) == [("node(s) didn't match pod affinity rules",), None]


def test_placed_pods_keep_away_whom_they_shun() -> None:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
    shy = pod(
        "p",
        on="n",
        labels={"app": "shy"},
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    )
    assert why(pod("a"), [node("n"), node("m")], shy) == [
        ("node(s) didn't satisfy existing pods anti-affinity rules",),
        None,
    ]


def test_a_sidecars_host_port_counts() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "ports": [{"containerPort": 1, "hostPort": 80}]}
    mine = {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]}
    wanted = view({"metadata": {"name": "a", "namespace": "default"}, "spec": mine}, Pod)
    taken = pod("p", on="n", initContainers=[sidecar])
    assert why(wanted, [node("n")], taken) == [("node(s) didn't have free ports for the requested pod ports",)]


def test_a_volume_ties_its_pod_to_its_zone() -> None:
    claim = view(
        {
            "metadata": {
                "name": "c",
                "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "v"},
        },
        PersistentVolumeClaim,
    )
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    volume = view({"metadata": {"name": "v"}, "spec": spec}, PersistentVolume)
    wanted = pod("a", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])
    nodes = [node("n", {"zone": "a"}), node("m", {"zone": "b"})]
    assert why(wanted, nodes, storage=Storage([claim], [volume])) == [
        None,
        ("node(s) didn't match PersistentVolume's node affinity",),
    ]
    assert why(wanted, nodes) == [('persistentvolumeclaim "c" not found',)]


def test_pods_of_a_node_that_is_gone_wait_for_it() -> None:
    cluster = ClusterNodes.of([node("n")], [pod("p", on="n", cpu="2")])
    cluster.remove_node("n")
    info = cluster.set_node(node("n"))
    assert info.requested["cpu"] == 2000
    cluster.remove("p")
    assert info.requested["cpu"] == 0


def test_an_old_volume_may_be_used_in_any_of_the_zones_its_label_lists() -> None:
    key = "failure-domain.beta.kubernetes.io/zone"
    bound = {"name": "c", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    claim = view({"metadata": bound, "spec": {"volumeName": "v"}}, PersistentVolumeClaim)
    volume = view({"metadata": {"name": "v", "labels": {key: "a__b"}}}, PersistentVolume)
    wanted = pod("a", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])
    nodes = [node("n", {key: "a"}), node("m", {"topology.kubernetes.io/zone": "b"}), node("o", {key: "c"}), node("p")]
    assert why(wanted, nodes, storage=Storage([claim], [volume])) == [
        None,
        None,
        ("node(s) had no available volume zone",),
        None,
    ]


def test_a_claim_takes_the_volume_meant_for_it_and_else_the_smallest_that_will_do() -> None:
    def volume(name: str, size: str, **spec: Any) -> PersistentVolume:
        body = {"capacity": {"storage": size}, "storageClassName": "disk", "accessModes": ["ReadWriteOnce"], **spec}
        return view({"metadata": {"name": name}, "spec": body, "status": {"phase": "Available"}}, PersistentVolume)

    preference = {
        "storageClassName": "disk",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5Gi"}},
    }
    claim = view({"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "spec": preference}, PersistentVolumeClaim)
    free = [volume("large", "50Gi"), volume("small", "1Gi"), volume("right", "10Gi"), volume("ample", "20Gi")]
    meant = volume("meant", "30Gi", claimRef={"name": "c", "namespace": "d"})
    theirs = volume("theirs", "6Gi", claimRef={"name": "other", "namespace": "d"})

    def found(volumes: list[PersistentVolume], *chosen: str) -> str | None:
        taken = find_volume(claim, Storage([claim], volumes), {}, chosen)
        return taken.metadata.name if taken else None

    assert found([*free, theirs]) == "right"
    assert found(free, "right") == "ample"
    assert found([*free, meant]) == "meant"
    assert found([theirs]) is None
