"""The cluster state: pods, Nodes and NodeClaims from watches; NodeStates derived only when something changed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cluster.nominations import NominationTarget
from dovetail.cluster.state import ClusterState
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

TYPES: dict[tuple[str, str], InstanceType] = {}


class _Silent:
    async def handle(self, request: Request) -> Response:
        return Response(status=404)


def _cluster_state() -> ClusterState:
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    return ClusterState(Kube(InProcess(_Silent()), clock, chance=Chance(1)), clock)


def _pod(name: str, node: str = "", version: int = 1, **status: Any) -> Pod:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}, "status": status}, Pod)


def _node(name: str, version: int = 1, **metadata: Any) -> Node:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), **metadata}
    return msgspec.convert({"metadata": meta, "spec": {"providerID": f"cloud:///{name}"}}, Node)


def _claim(name: str, version: int = 1, pods: str = "", provider: str = "", **metadata: Any) -> NodeClaim:
    meta = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "annotations": {"dovetail.sh/pods": pods} if pods else {},
        "labels": {"karpenter.sh/nodepool": "default"},
        **metadata,
    }
    return msgspec.convert({"metadata": meta, "status": {"providerID": provider}}, NodeClaim)


def _names(cluster_state: ClusterState) -> dict[str, list[str]]:
    return {state.name: [pod.metadata.name for pod in state.pods] for state in cluster_state.states(TYPES)}


def _run(story: Any) -> None:
    async def main() -> None:
        await story(_cluster_state())

    run_virtual(main())


def test_the_pods_of_a_node_are_in_the_order_of_their_names() -> None:
    """Evictions and slots follow this order: a process that listed the pods decides as one that watched them come."""

    async def story(cluster_state: ClusterState) -> None:
        cluster_state.nodes._put("n", _node("n"))
        for name in ("web-2", "api-1", "web-1"):
            cluster_state.pods._put(f"default/{name}", _pod(name, "n"))
        assert [pod.metadata.name for pod in cluster_state.pods_on("n")] == ["api-1", "web-1", "web-2"]
        assert cluster_state.pods_on("other") == ()

    _run(story)


def test_a_nodeclaim_is_a_node_state_until_its_node_registers() -> None:
    async def story(cluster_state: ClusterState) -> None:
        cluster_state.claims._put("c", _claim("c", provider="cloud:///n"))
        assert _names(cluster_state) == {"c": []}
        cluster_state.nodes._put("n", _node("n"))
        assert _names(cluster_state) == {"n": []}
        (state,) = cluster_state.states(TYPES)
        assert (state.claim, state.pool) == ("c", "default")
        cluster_state.nodes._remove("n")
        assert _names(cluster_state) == {"c": []}

    _run(story)


def test_the_pods_of_a_nodeclaim_are_nominated_until_they_are_bound_or_gone() -> None:
    async def story(cluster_state: ClusterState) -> None:
        for name in ("a", "b"):
            cluster_state.pods._put(f"default/{name}", _pod(name))
        cluster_state.claims._put("c", _claim("c", pods="uid-a,uid-b"))
        assert _names(cluster_state) == {"c": ["a", "b"]}
        assert cluster_state.nominations.of("uid-a") == NominationTarget("claim", "c")
        cluster_state.pods._remove("default/a")
        assert _names(cluster_state) == {"c": ["b"]}
        cluster_state.nodes._put("other", _node("other"))
        cluster_state.pods._put("default/b", _pod("b", "other", 2))
        assert _names(cluster_state) == {"c": [], "other": ["b"]}
        assert list(cluster_state.unbound()) == []

    _run(story)


def test_a_pod_already_on_its_node_counts_once_after_a_restart() -> None:
    async def story(cluster_state: ClusterState) -> None:
        cluster_state.nodes._put("n", _node("n"))
        cluster_state.pods._put("default/a", _pod("a", "n"))
        cluster_state.claims._put("c", _claim("c", pods="uid-a", provider="cloud:///n"))
        assert _names(cluster_state) == {"n": ["a"]}

    _run(story)


def test_a_deleted_nodeclaim_releases_its_nominations() -> None:
    async def story(cluster_state: ClusterState) -> None:
        cluster_state.pods._put("default/a", _pod("a"))
        cluster_state.claims._put("c", _claim("c", pods="uid-a"))
        cluster_state.claims._put("c", _claim("c", 2, pods="uid-a", deletionTimestamp="2026-01-01T00:00:00Z"))
        assert cluster_state.nominations.of("uid-a") is None
        (state,) = cluster_state.states(TYPES)
        assert state.deleting

    _run(story)


def test_unchanged_nodes_keep_their_identity() -> None:
    async def story(cluster_state: ClusterState) -> None:
        for name in ("n1", "n2"):
            cluster_state.nodes._put(name, _node(name))
        cluster_state.pods._put("default/a", _pod("a", "n1"))
        before = {state.name: state for state in cluster_state.states(TYPES)}
        cluster_state.pods._put("default/b", _pod("b", "n2"))
        cluster_state.pods._put("default/a", _pod("a", "n1", 2, podIP="10.0.0.1"))
        after = {state.name: state for state in cluster_state.states(TYPES)}
        assert after["n1"] is before["n1"]
        assert after["n2"] is not before["n2"]

    _run(story)


def test_finished_pods_hold_nothing() -> None:
    async def story(cluster_state: ClusterState) -> None:
        cluster_state.nodes._put("n", _node("n"))
        cluster_state.pods._put("default/a", _pod("a", "n", phase="Running"))
        assert _names(cluster_state) == {"n": ["a"]}
        cluster_state.pods._put("default/a", _pod("a", "n", 2, phase="Succeeded"))
        assert _names(cluster_state) == {"n": []}

    _run(story)


def test_a_nodeclaim_that_we_wrote_is_known_before_the_watch_reports_it() -> None:
    async def story(cluster_state: ClusterState) -> None:
        heard: list[str] = []
        cluster_state.listen(cluster_state.claims.resource, lambda change: heard.append(change.kind))
        cluster_state.assume(_claim("c", 5))
        cluster_state.assume(_claim("c", 4))
        assert heard == ["added"]
        assert _names(cluster_state) == {"c": []}

    _run(story)


def test_a_nomination_on_a_node_expires() -> None:
    async def story(cluster_state: ClusterState) -> None:
        cluster_state.nodes._put("n", _node("n"))
        cluster_state.pods._put("default/a", _pod("a"))
        cluster_state.nominate(_pod("a"), NominationTarget("node", "n"), until=20.0)
        assert _names(cluster_state) == {"n": ["a"]}
        await asyncio.sleep(21)
        assert _names(cluster_state) == {"n": []}

    _run(story)


def test_marked_nodes_are_deleting() -> None:
    async def story(cluster_state: ClusterState) -> None:
        cluster_state.nodes._put("n", _node("n"))
        cluster_state.mark_for_deletion(["cloud:///n"])
        assert [state.deleting for state in cluster_state.states(TYPES)] == [True]
        cluster_state.mark_for_deletion(["cloud:///n"], deleting=False)
        assert [state.deleting for state in cluster_state.states(TYPES)] == [False]

    _run(story)


def test_listeners_of_a_block_are_removed_with_it() -> None:
    async def story(cluster_state: ClusterState) -> None:
        heard: list[str] = []
        cluster_state.listen(cluster_state.nodes.resource, lambda change: heard.append("stays"))
        with cluster_state.listening():
            cluster_state.listen(cluster_state.nodes.resource, lambda change: heard.append("goes"))
            cluster_state.nodes._put("n", _node("n"))
        cluster_state.nodes._put("n", _node("n", 2, labels={"a": "b"}))
        assert heard == ["stays", "goes", "stays"]

    _run(story)


def test_a_nomination_lasts_while_the_pods_node_terminates_and_ends_if_that_stays_after_all() -> None:
    """A drain may take hours; the replacement pod must find the node that was launched for it."""

    async def story(cluster_state: ClusterState) -> None:
        ready = {"type": "Initialized", "status": "True"}
        cluster_state.nodes._put("old", _node("old"))
        cluster_state.mark_for_deletion(["cloud:///old"])
        for name, node in (("bound", "old"), ("waits", "")):
            cluster_state.pods._put(f"default/{name}", _pod(name, node))
        cluster_state.claims._put("c", _claim("c", pods="uid-bound,uid-waits"))
        claim = msgspec.convert({**msgspec.to_builtins(_claim("c", 2)), "status": {"conditions": [ready]}}, NodeClaim)
        cluster_state.claims._put("c", claim)
        await asyncio.sleep(3600)
        cluster_state.expire()
        assert cluster_state.nominations.of("uid-bound") == NominationTarget("claim", "c")
        assert cluster_state.nominations.of("uid-waits") is None
        cluster_state.mark_for_deletion(["cloud:///old"], deleting=False)
        assert cluster_state.nominations.of("uid-bound") is None

    _run(story)
