"""The view of the fleet: equal to one derived anew, whatever happened; unknown is None, never 0."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cluster.state import ClusterState
from dovetail.controllers.history.decisions import Decision, Refusal
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.view import Fleet, FleetView, LowerBound, Money, NodePhase, applied, difference
from dovetail.view.prices import price
from dovetail.view.totals import IDLE, grouped, summed


class _Silent:
    async def handle(self, request: Request) -> Response:
        return Response(status=404)


def in_cluster(story: Callable[[ClusterState], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        state = ClusterState(Kube(InProcess(_Silent()), clock, chance=Chance(1)), clock, only_viewed=True)
        state.pods.synced.set()
        await story(state)

    run_virtual(main())


def a_pod(name: str, node: str = "", version: int = 1, cpu: str = "500m", **meta: Any) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6c8f", "uid": "u", "controller": True}
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {"pod-template-hash": "6c8f"},
        "ownerReferences": [owner],
        **meta,
    }
    requests = {"cpu": cpu, "memory": "1Gi"}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}, Pod)


def a_node(name: str, version: int = 1, *, provider: str = "", capacity_type: str = "") -> Node:
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "labels": {
            "node.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/region": "us-east-1",
            **({"karpenter.sh/capacity-type": capacity_type} if capacity_type else {}),
        },
    }
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "29"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return msgspec.convert({"metadata": metadata, "spec": {"providerID": provider}, "status": status}, Node)


def a_claim(name: str, version: int = 1, *, provider: str = "", pods: str = "", price: str = "", **meta: Any) -> Any:
    annotations = {"dovetail.sh/pods": pods, "dovetail.sh/price": price}
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {key: value for key, value in annotations.items() if value},
        "labels": {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot"},
        **meta,
    }
    return msgspec.convert({"metadata": metadata, "status": {"providerID": provider}}, NodeClaim)


def test_a_pods_way_from_pending_to_its_node() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.pods._put("shop/a", a_pod("a"))
        (pending,) = fleet.view().pending.values()
        assert (pending.reason, pending.workload) == ("kube-scheduler has not tried it yet", "Deployment/web")
        state.claims._put("c", a_claim("c", pods="uid-a", price="0.0321"))
        view = fleet.view()
        assert view.pending["shop/a"].waits_for == "nodeclaim/c"
        claim = view.nodes["nodeclaim/c"]
        assert (claim.state, claim.pool, claim.capacity_type) == (NodePhase.LAUNCHING, "default", "spot")
        assert claim.until is not None and claim.until.minute == 5
        assert view.totals.fleet.money == Money()  # nothing is paid before there is an instance
        state.claims._put("c", a_claim("c", 2, provider="aws:///z/i-1", pods="uid-a", price="0.0321"))
        view = fleet.view()
        assert view.nodes["nodeclaim/c"].state is NodePhase.JOINING
        assert view.totals.fleet.money.per_hour == pytest.approx(0.0321)
        state.nodes._put("n", a_node("n", provider="aws:///z/i-1"))
        state.pods._put("shop/a", a_pod("a", "n", 2))
        view = fleet.view()
        assert list(view.nodes) == ["node/n"] and not view.pending
        assert view.nodes["node/n"].requests == {"cpu": 500, "memory": 1 << 30, "pods": 1}
        assert view.nodes["node/n"].binding == "cpu"

    in_cluster(story)


def test_what_is_unknown_is_none_and_makes_the_sum_unknown() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.nodes._put("priced", a_node("priced", capacity_type="on-demand"))
        view = fleet.view()
        price = view.nodes["node/priced"].price
        assert price is not None and price.per_hour == pytest.approx(0.096)
        assert view.totals.fleet.money.per_hour == pytest.approx(0.096)
        state.nodes._put("odd", a_node("odd"))  # neither spot nor on-demand: any price could be wrong
        view = fleet.view()
        assert view.nodes["node/odd"].price is None
        assert view.totals.fleet.money.per_hour is None and view.totals.fleet.money.per_month is None
        assert (view.totals.fleet.money.known, view.totals.fleet.money.unpriced) == (pytest.approx(0.096), 1)
        assert view.nodes["node/odd"].usage is None and view.totals.usage_cpu is None
        assert view.totals.bound is None and view.totals.gap is None
        assert view.health.safe_mode is None

    in_cluster(story)


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1", "xx-nowhere-1"])
def test_a_node_of_a_region_without_a_price_list_has_no_price(region: str) -> None:
    """An estimate would be summed with prices, and that of a region in China is in yuan."""
    labels = {
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/region": region,
        "karpenter.sh/capacity-type": "on-demand",
    }
    assert price(labels, None) is None
    assert price({**labels, "topology.kubernetes.io/region": "us-east-1"}, None) is not None


def test_usage_is_known_for_the_fleet_once_every_node_has_some() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        for name in ("a", "b"):
            state.nodes._put(name, a_node(name))
        fleet.set_usage({"a": {"cpu": 300, "memory": 5}})
        view = fleet.view()
        assert view.nodes["node/a"].usage_share("cpu") == 0.15 and view.totals.usage_cpu is None
        fleet.set_usage({"a": {"cpu": 300, "memory": 5}, "b": {"cpu": 100, "memory": 5}})
        assert fleet.view().totals.usage_cpu == 400

    in_cluster(story)


def test_requests_are_unknown_while_pods_may_not_be_read() -> None:
    async def story(state: ClusterState) -> None:
        state.pods.synced.clear()
        fleet = Fleet(state)
        state.nodes._put("n", a_node("n"))
        view = fleet.view()
        assert view.nodes["node/n"].requests is None and view.totals.pods is None
        state.pods.synced.set()
        view = fleet.view()
        assert view.nodes["node/n"].requests == {"pods": 0} and view.totals.pods == 0

    in_cluster(story)


def test_a_request_that_is_no_quantity_is_unknown() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.pods._put("shop/a", a_pod("a", cpu="lots"))
        assert fleet.view().pending["shop/a"].requests is None

    in_cluster(story)


def test_the_newest_refusal_is_the_reason_of_a_pending_pod_and_of_those_like_it() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        for name in ("a", "b"):
            state.pods._put(f"shop/{name}", a_pod(name))
        fleet.view()
        refusal = Refusal(pods=("shop/a",), count=2, code="NO_NODEPOOL", message="there is no NodePool")
        decision = Decision(id="d-1", kind="refuse", time="2026-01-01T00:00:00Z", summary="", refusals=(refusal,))
        fleet.set_decisions([decision])
        view = fleet.view()
        assert [(pod.code, pod.decision) for pod in view.pending.values()] == [("NO_NODEPOOL", "d-1")] * 2

    in_cluster(story)


def test_a_refusal_from_before_a_pod_was_created_is_about_another() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.pods._put("shop/a", a_pod("a", creationTimestamp="2026-01-02T00:00:00Z"))
        refusal = Refusal(pods=("shop/a",), count=1, code="NO_NODEPOOL", message="there is no NodePool")
        for day, code in (("01", ""), ("03", "NO_NODEPOOL")):
            time = f"2026-01-{day}T00:00:00Z"
            fleet.set_decisions([Decision(id="d-1", kind="refuse", time=time, summary="", refusals=(refusal,))])
            assert fleet.view().pending["shop/a"].code == code

    in_cluster(story)


def test_a_node_that_is_replaced_says_why_and_a_drain_says_until_when() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        condition = {"type": "DisruptionReason", "status": "True", "reason": "Underutilized"}
        claim = a_claim("c", provider="aws:///z/i-1")
        status = msgspec.convert({"providerID": "aws:///z/i-1", "conditions": [condition]}, type(claim.status))
        state.claims._put("c", msgspec.structs.replace(claim, status=status))
        state.nodes._put("n", a_node("n", provider="aws:///z/i-1"))
        node = fleet.view().nodes["node/n"]
        assert (node.state, node.reason) == (NodePhase.REPLACING, "Underutilized")
        ending = {"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T00:10:00Z"}
        going = a_claim("c", 2, provider="aws:///z/i-1", deletionTimestamp="2026-01-01T00:00:00Z", annotations=ending)
        state.claims._put("c", msgspec.structs.replace(going, status=status))
        node = fleet.view().nodes["node/n"]
        assert (node.state, node.reason) == (NodePhase.DRAINING, "Underutilized")
        assert node.until is not None and node.until.minute == 10

    in_cluster(story)


def test_an_unready_pool_says_why_and_one_without_status_is_unknown() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        bad = [{"type": "Ready", "status": "False", "reason": "NodeClassNotFound", "message": "no EC2NodeClass x"}]
        for name, conditions in (("bad", bad), ("new", [])):
            metadata = {"name": name, "uid": name, "resourceVersion": "1"}
            state.pools._put(
                name, msgspec.convert({"metadata": metadata, "status": {"conditions": conditions}}, NodePool)
            )
        pools = fleet.view().pools
        assert (pools["bad"].ready, pools["bad"].problem) == (False, "no EC2NodeClass x")
        assert pools["new"].ready is None

    in_cluster(story)


def test_pods_that_request_more_than_there_is_share_the_price_and_nothing_is_idle() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.claims._put("c", a_claim("c", provider="aws:///z/i-1", price="0.4"))
        state.nodes._put("n", a_node("n", provider="aws:///z/i-1"))
        for name in ("a", "b", "c", "d"):
            state.pods._put(f"shop/{name}", a_pod(name, "n", cpu="9"))
        parts = fleet.view().totals.namespaces
        assert parts["shop"].money.known == pytest.approx(0.4)
        assert abs(parts[IDLE].money.nano if IDLE in parts else 0) < 10

    in_cluster(story)


def test_the_price_of_a_node_is_divided_and_nothing_is_lost() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.claims._put("c", a_claim("c", provider="aws:///z/i-1", price="0.4"))
        state.nodes._put("n", a_node("n", provider="aws:///z/i-1"))
        state.pods._put("shop/a", a_pod("a", "n", cpu="1"))
        totals = fleet.view().totals
        shares = {name: part.money.known for name, part in totals.namespaces.items()}
        assert shares == {"shop": pytest.approx(0.4 * (1 / 2 + 1 / 8) / 2), IDLE: pytest.approx(0.275)}
        assert sum(part.money.nano for part in totals.namespaces.values()) == totals.fleet.money.nano
        assert totals.workloads["shop/Deployment/web"].pods == 1
        fleet.set_bound(LowerBound(0.32))
        assert fleet.view().totals.gap == pytest.approx(0.25)
        fleet.set_bound(LowerBound(0.32, cost=0.32))  # of the fleet before this node: it says nothing of this one
        assert fleet.view().totals.gap is None

    in_cluster(story)


_NAMES = st.sampled_from(["a", "b", "c"])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "bind", "unpod", "node", "unnode", "claim", "unclaim", "usage", "look"]), _NAMES, _NAMES
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=60)
@given(_STEPS)
def test_a_view_kept_up_equals_one_derived_anew(steps: list[tuple[str, str, str]]) -> None:
    async def story(state: ClusterState) -> None:
        fleet, seen = Fleet(state), [FleetView()]
        for version, (step, name, other) in enumerate(steps, 1):
            match step:
                case "pod":
                    state.pods._put(f"shop/{name}", a_pod(name, version=version))
                case "bind":
                    state.pods._put(f"shop/{name}", a_pod(name, other, version))
                case "unpod":
                    state.pods._remove(f"shop/{name}")
                case "node":
                    state.nodes._put(name, a_node(name, version, provider=f"aws:///z/{other}"))
                case "unnode":
                    state.nodes._remove(name)
                case "claim":
                    claim = a_claim(name, version, provider=f"aws:///z/{name}", pods=f"uid-{other}", price="0.1")
                    state.claims._put(name, claim)
                case "unclaim":
                    state.claims._remove(name)
                case "usage":
                    fleet.set_usage({name: {"cpu": 100, "memory": version}})
                case _:
                    old, new = seen[-1], fleet.view()
                    assert applied(old, difference(old, new)) == new
                    seen.append(new)
        view, anew = fleet.view(), Fleet(state)
        anew.set_usage(fleet._usage)
        fresh = anew.view()
        assert dict(view.nodes) == dict(fresh.nodes)
        assert dict(view.pending) == dict(fresh.pending)
        assert view.totals == fresh.totals == summed(view)
        assert fleet.view() is view and not difference(view, fleet.view())

    in_cluster(story)


def test_unchanged_nodes_keep_their_identity() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        for name in ("a", "b"):
            state.nodes._put(name, a_node(name))
        before = fleet.view()
        state.pods._put("shop/p", a_pod("p", "a"))
        after = fleet.view()
        assert after.nodes["node/b"] is before.nodes["node/b"]
        assert list(difference(before, after).nodes) == ["node/a"]

    in_cluster(story)


def test_groups_are_in_order_and_what_has_none_is_last() -> None:
    async def story(state: ClusterState) -> None:
        fleet = Fleet(state)
        state.nodes._put("a", a_node("a"))
        state.claims._put("c", a_claim("c"))
        assert list(grouped(fleet.view().nodes, "pool")) == ["default", ""]
        assert list(grouped(fleet.view().nodes, "type")) == ["m5.large", ""]

    in_cluster(story)
