"""The lower bound of a fleet: below what any fleet for the pods costs, near a good one, unknown where it must be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.cloud.aws import catalog
from dovetail.cluster.nominations import NominationTarget
from dovetail.cluster.state import ClusterState
from dovetail.model.kinds.nodepool import NodePool
from dovetail.view import Fleet, FleetView
from dovetail.view.lower_bound import Bounds, bound
from tests.view.test_fleet import a_claim, a_node, a_pod, in_cluster

M5_LARGE = 0.096


def _pool(state: ClusterState, *types: str, capacity_type: str = "on-demand") -> None:
    terms = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(types)},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"requirements": terms, "nodeClassRef": reference}}
    body: dict[str, Any] = {
        "metadata": {"name": "default", "uid": "p", "resourceVersion": "1"},
        "spec": {"template": template},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    state.pools._put("default", msgspec.convert(body, NodePool))
    node_class = {"metadata": {"name": "default", "uid": "c", "resourceVersion": "1"}, "spec": {"amiFamily": "AL2023"}}
    state.node_classes._put("default", node_class)


def _managed(state: ClusterState, name: str, *pods: str, price: str = str(M5_LARGE)) -> None:
    state.claims._put(f"c-{name}", a_claim(f"c-{name}", provider=f"aws:///z/{name}", price=price))
    node = a_node(name, provider=f"aws:///z/{name}", capacity_type="on-demand")
    labels = {**node.metadata.labels, "karpenter.sh/nodepool": "default", "topology.kubernetes.io/zone": "us-east-1a"}
    labels |= {"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true"}
    metadata = msgspec.structs.replace(node.metadata, labels=labels)
    state.nodes._put(name, msgspec.structs.replace(node, metadata=metadata))
    for pod in pods:
        state.pods._put(f"shop/{pod}", a_pod(pod, name))


def _bound(state: ClusterState, view: FleetView) -> float | None:
    problem = Bounds(state).problem(view)
    found = bound(problem) if problem is not None else None
    return None if found is None else found.per_hour


def test_a_fleet_that_is_half_empty_is_above_its_bound_and_a_full_one_is_at_it() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large")
        _managed(state, "a", "p1")
        _managed(state, "b", "p2")
        view = fleet.view()
        assert view.totals.fleet.money.per_hour == pytest.approx(2 * M5_LARGE)
        assert _bound(state, view) == pytest.approx(M5_LARGE)  # both pods fit one node
        state.claims._remove("c-b")
        state.nodes._remove("b")
        state.pods._remove("shop/p2")
        view = fleet.view()
        assert _bound(state, view) == pytest.approx(view.totals.fleet.money.per_hour)

    in_cluster(story)


def test_pods_that_wait_for_a_node_on_its_way_are_among_those_that_the_bound_is_for() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large")
        _managed(state, "a", "p1")
        state.pods._put("shop/big", a_pod("big", "", cpu="1500m"))
        assert _bound(state, fleet.view()) == pytest.approx(M5_LARGE)
        state.claims._put("c-b", a_claim("c-b", provider="aws:///z/b", pods="uid-big", price=str(M5_LARGE)))
        view = fleet.view()
        assert view.pending["shop/big"].waits_for == "nodeclaim/c-b"
        found = _bound(state, view)
        assert found is not None and 1.2 * M5_LARGE < found <= 2 * M5_LARGE

    in_cluster(story)


def test_a_pod_on_its_way_is_counted_once() -> None:
    """A fleet of one node that its pods fill is at its bound while the node joins, not above it."""

    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large")
        for name in ("a", "b", "c"):
            state.pods._put(f"shop/{name}", a_pod(name, "", cpu="600m"))
        state.claims._put("c-b", a_claim("c-b", provider="aws:///z/b", pods="uid-a,uid-b,uid-c", price=str(M5_LARGE)))
        state.nodes._put("own", a_node("own", capacity_type="on-demand"))  # a node has the region
        state.pods._put("shop/full", a_pod("full", "own", cpu="1900m"))
        view = fleet.view()
        assert {pod.waits_for for pod in view.pending.values()} == {"nodeclaim/c-b"}
        assert _bound(state, view) == pytest.approx(2 * M5_LARGE)  # the node of its own, and one for the three

    in_cluster(story)


def test_a_pod_that_moves_to_a_replacement_is_counted_once() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large")
        _managed(state, "a", "p1", "p2", "p3")
        state.claims._put("c-b", a_claim("c-b", provider="aws:///z/b", price=str(M5_LARGE)))
        for name in ("p1", "p2", "p3"):
            state.nominate(state.pods.store.get(f"shop/{name}"), NominationTarget("claim", "c-b"))
        assert _bound(state, fleet.view()) == pytest.approx(M5_LARGE)

    in_cluster(story)


def test_nodes_of_no_pool_stay_and_their_room_is_free() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large")
        state.nodes._put("own", a_node("own", capacity_type="on-demand"))
        _managed(state, "a", "p1")
        assert _bound(state, fleet.view()) == pytest.approx(M5_LARGE)

    in_cluster(story)


def test_a_price_that_was_paid_is_never_below_the_bound() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large")
        _managed(state, "a", "p1", price="0.05")  # less than the packaged list says
        found = _bound(state, fleet.view())
        assert found is not None and found <= 0.05 + 1e-9
        listed = catalog.on_demand("us-east-1", "m5.large")
        assert listed is not None and listed[0] == M5_LARGE

    in_cluster(story)


def test_the_bound_is_unknown_without_a_pool_and_where_a_price_is_unknown() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _managed(state, "a", "p1")
        assert _bound(state, fleet.view()) is None
        _pool(state, "m5.large")
        state.nodes._put("odd", a_node("odd"))
        assert _bound(state, fleet.view()) is None
        state.nodes._remove("odd")
        assert _bound(state, fleet.view()) is not None

    in_cluster(story)


def test_a_bound_with_spot_says_that_its_prices_are_estimates() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        _pool(state, "m5.large", capacity_type="spot")
        _managed(state, "a", "p1")
        problem = Bounds(state).problem(fleet.view())
        assert problem is not None and "spot prices are estimates" in problem.notes

    in_cluster(story)
