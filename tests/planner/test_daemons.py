"""Daemonsets are overhead: all they hold on new nodes, the room they still want on standing ones."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.model.nodes import Taint
from dovetail.model.workloads import DaemonSet
from tests.planner.conftest import SHOP, Solve, kind, node, pod, pods, pool


def daemon(name: str = "agent", cpu: str = "100m", **spec: Any) -> DaemonSet:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}, **spec.pop("container", {})}
    template = {"metadata": {"labels": {"daemon": name}}, "spec": {"containers": [container], **spec}}
    meta = {"name": name, "namespace": "kube-system", "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": meta, "spec": {"template": template}}, DaemonSet)


def _listens(port: int, address: str = "") -> dict[str, Any]:
    return {"ports": [{"containerPort": 80, "hostPort": port, "hostIP": address}]}


def test_a_port_that_a_daemon_holds_on_every_address_is_taken_on_each(solve: Solve) -> None:
    plan = solve(pod("a", container=_listens(80, "10.0.0.1")), daemons=(daemon(container=_listens(80)),))
    assert set(plan.unschedulable) == {"default/a"}


def test_a_port_that_two_daemons_want_is_taken_and_no_less_than_that(solve: Solve) -> None:
    """Searching beside it goes on without a division by nothing."""
    daemons = (daemon("one", container=_listens(80)), daemon("two", container=_listens(80)))
    asking = [pod(f"a{n}", cpu="1500m", container=_listens(80)) for n in range(2)]
    plan = solve(*asking, *pods(9, cpu="700m"), nodes=(node("old", cpu="4"),), daemons=daemons, deadline=0.1)
    assert set(plan.unschedulable) == {"default/a1"}, "the node that is there has it free"


def test_a_port_that_a_daemon_holds_on_another_address_is_free(solve: Solve) -> None:
    daemons = (daemon(container=_listens(80, "10.0.0.2")),)
    assert not solve(pod("a", container=_listens(80, "10.0.0.1")), daemons=daemons).unschedulable
    assert solve(pod("a", container=_listens(80)), daemons=daemons).unschedulable


def test_a_daemon_that_is_not_here_yet_keeps_room_but_no_port_on_an_existing_node(solve: Solve) -> None:
    daemons = (daemon(cpu="1", container=_listens(80)),)
    plan = solve(pod("a", cpu="3", container=_listens(80)), nodes=(node("n1", cpu="4"),), daemons=daemons)
    assert plan.placements["default/a"].node == "n1"
    full = solve(pod("a", cpu="3500m"), nodes=(node("n1", cpu="4"),), daemons=daemons)
    assert full.placements["default/a"].node is None


def test_a_daemon_that_no_longer_belongs_on_a_node_makes_no_room_for_one_that_does(solve: Solve) -> None:
    """The node was tainted after the agent came; the logs DaemonSet tolerates that and is not there yet."""
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    tolerant = [{"key": "team", "operator": "Exists"}]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    agent = pod("agent-n1", cpu="1", metadata={"ownerReferences": [owner]})
    tainted = node("n1", cpu="4", taints=(Taint(**taint),), pods=(agent,))
    daemons = (daemon(cpu="1"), daemon("logs", cpu="500m", tolerations=tolerant))
    for cpu, target in (("2500m", "n1"), ("2800m", None)):
        plan = solve(pod("a", cpu=cpu, tolerations=tolerant), nodes=(tainted,), daemons=daemons)
        assert plan.placements["default/a"].node == target


def test_a_daemon_counts_only_where_it_may_run(solve: Solve) -> None:
    taints = ({"key": "team", "value": "x", "effect": "NoSchedule"},)
    tolerant = [{"key": "team", "operator": "Exists"}]
    tainted = (pool(taints=taints),)
    shy, bold = daemon(cpu="1"), daemon(cpu="1", tolerations=tolerant)
    two = pods(2, tolerations=tolerant)
    assert len(solve(*two, pools=tainted, daemons=(shy,)).nodes) == 1
    assert solve(*two, pools=tainted, daemons=(bold,)).nodes[0].requests["cpu"] == 3000


def test_no_node_is_launched_whose_daemons_alone_exceed_it(solve: Solve) -> None:
    """The pods ask for no memory at all, and the DaemonSet asks for more than the cheapest type has."""
    nano = kind("nano", 2, 0.5, 0.01)
    agent = daemon(container={"resources": {"requests": {"cpu": "10m", "memory": "1Gi"}}})
    asking = pod("a", memory="0", cpu="100m")
    plan = solve(asking, pools=(pool(types=(nano, *SHOP)),), daemons=(agent,))
    assert [planned.choice.instance_type for planned in plan.nodes] == ["small"]
    assert plan.nodes
    assert plan.nodes and all(choice.instance_type != "nano" for planned in plan.nodes for choice in planned.offerings)


def test_a_pod_without_a_node_hears_that_daemons_leave_no_room(solve: Solve) -> None:
    nano = kind("nano", 2, 0.5, 0.01)
    agent = daemon(container={"resources": {"requests": {"cpu": "10m", "memory": "1Gi"}}})
    plan = solve(pod("a", memory="0", cpu="100m"), pools=(pool(types=(nano,)),), daemons=(agent,))
    why = plan.unschedulable["default/a"]
    assert why.code == "NO_TYPE_FITS"
    assert "DaemonSets" in why.message
