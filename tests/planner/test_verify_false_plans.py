"""Plans that lie are caught, whatever the lie; and plain arithmetic agrees with the verifier about any assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.model.labels import INSTANCE_TYPE
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources
from dovetail.planner.consolidate.search import consolidate
from dovetail.planner.plan import Cost, Move, OfferingOption, Placement, Plan, PlannedNode, Unschedulable
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify

from .conftest import HOSTNAME, SHOP, ZONE, ZONES, near, node, pod, pods, pool, spread

_TIER = {"key": "tier", "operator": "In", "values": ("x", "y")}
_WORLD = Snapshot(
    pools=(pool(labels={"team": "a"}, requirements=(_TIER,)),),
    pending=(*pods(3, cpu="1500m"), pod("t", nodeSelector={"tier": "y"})),
    nodes=(node("here", cpu="100m"), node("going", deleting=True)),
)
_PLAN = provision(_WORLD)


def _first(**changes: Any) -> Plan:
    return replace(_PLAN, nodes=(replace(_PLAN.nodes[0], **changes), *_PLAN.nodes[1:]))


def _onto(name: str) -> Plan:
    """The pods of the first node on a node, with everything else kept straight."""
    rest = _PLAN.nodes[1:]
    moved = {key: Placement(node=name) for key in _PLAN.nodes[0].pods}
    cost = Cost(per_hour=sum(planned.price for planned in rest))
    return replace(_PLAN, nodes=rest, placements={**_PLAN.placements, **moved}, cost=cost)


def _asking(key: str, operator: str, *values: str) -> Plan:
    return _first(requirements=({"key": key, "operator": operator, "values": list(values)},))


def _answered(**answer: Any) -> Plan:
    return replace(_PLAN, placements={**_PLAN.placements, "default/web-0": Placement(**answer)})


_NAME, _CHOICE = _PLAN.nodes[0].name, _PLAN.nodes[0].choice
_TWIN = replace(_PLAN.nodes[0], pods=())
_LIES: dict[str, tuple[str, Plan]] = {
    "two nodes of one name": ("named", replace(_PLAN, nodes=(*_PLAN.nodes, _TWIN))),
    "a node with the name of one that is there": ("named", _first(name="here", pods=())),
    "a zone of its own making": ("label", _first(labels={ZONE: "z9"})),
    "a name in a label": ("label", _first(labels={HOSTNAME: "x"})),
    "a label that the pool says otherwise": ("label", _first(labels={"team": "b"})),
    "a label that no offering leaves open": ("label", _first(labels={"foo": "b"})),
    "a label beyond what the pool allows": ("label", _first(labels={"tier": "z"})),
    "a label that the type cannot have": ("label", _first(labels={"kubernetes.io/arch": "arm64"})),
    "a requirement for another architecture": ("requirements", _asking("kubernetes.io/arch", "In", "arm64")),
    "a requirement for less than there is": ("requirements", _asking("karpenter.k8s.aws/instance-cpu", "Lt", "1")),
    "a requirement for no zone": ("requirements", _asking(ZONE, "DoesNotExist")),
    "a requirement for other types": ("requirements", _asking("node.kubernetes.io/instance-type", "NotIn", "medium")),
    "less than it costs": ("cost", replace(_PLAN, cost=Cost(per_hour=0.01))),
    "a bound above the cost": ("cost", replace(_PLAN, cost=replace(_PLAN.cost, lower_bound=99.0))),
    "a node removed that is not there": ("removed", replace(_PLAN, remove=("ghost",))),
    "a node removed that goes already": ("removed", replace(_PLAN, remove=("going",))),
    "evictions of no pod": ("moved", replace(_PLAN, evictions=3)),
    "a pod on a node that goes": ("fit", _onto("going")),
    "a pod on a node that is full": ("fit", _onto("here")),
    "a pod on a node that only stands for a zone": ("fit", _onto("phantom/1")),
    "two answers": ("placed", _answered(node="here", new_node=_NAME)),
    "no answer": ("placed", _answered()),
    "a reason that is none": ("placed", _answered(unschedulable=Unschedulable(code="NOPE", message=""))),
    "an endless price": ("offering", _first(offerings=(replace(_CHOICE, price=float("inf")),))),
    "a price that is no number": ("offering", _first(offerings=(replace(_CHOICE, price=float("nan")),))),
    "a reservation that does not exist": ("offering", _first(offerings=(replace(_CHOICE, reservation_id="cr-1"),))),
    "less than nothing asked for": ("requests", _first(requests={"cpu": -1})),
}


def test_the_truth_passes() -> None:
    assert verify(_PLAN, _WORLD) == []


@pytest.mark.parametrize("lie", _LIES)
def test_a_lie_is_caught(lie: str) -> None:
    rule, plan = _LIES[lie]
    assert rule in {each.rule for each in verify(plan, _WORLD)}


# -- nodes that are removed -------------------------------------------------------------------------------------

_IDLE = tuple(
    node(f"n{at}", price=0.19, pool="default", pods=(pod(f"p{at}", cpu="500m", nodeName=f"n{at}"),)) for at in range(3)
)


@pytest.mark.parametrize(
    ("rule", "lie"),
    [
        ("placed", lambda plan: replace(plan, placements={}, moves={}, evictions=0)),
        ("moved", lambda plan: replace(plan, moves={key: Move(source="n9", node="n9") for key in plan.moves})),
        ("cost", lambda plan: replace(plan, cost=replace(plan.cost, per_hour=0.0))),
        (
            "fit",
            lambda plan: replace(
                plan,
                placements=dict.fromkeys(plan.placements, Placement(node=plan.remove[0])),
                nodes=(),
                moves={},
                evictions=0,
            ),
        ),
    ],
)
def test_pods_of_nodes_that_are_removed_are_accounted_for(rule: str, lie: Callable[[Plan], Plan]) -> None:
    snapshot = Snapshot(pools=(pool(),), nodes=_IDLE)
    plan = consolidate(snapshot)
    assert plan.remove
    assert verify(plan, snapshot) == []
    assert rule in {each.rule for each in verify(lie(plan), snapshot)}


def test_a_node_that_a_pod_holds_is_not_removed() -> None:
    snapshot = Snapshot(pools=(pool(),), nodes=_IDLE)
    plan = consolidate(snapshot)
    held = replace(snapshot, nodes=tuple(replace(state, movable=False) for state in _IDLE))
    assert {each.rule for each in verify(plan, held)} == {"removed"}


# -- any assignment ------------------------------------------------------------------------------------------------


class _Ask(NamedTuple):
    """What a pod of an arbitrary assignment asks, and the node it is put on."""

    cpu: int
    zone: str | None
    port: bool
    apart: bool
    node: int


_asks = st.builds(
    _Ask,
    st.sampled_from((100, 900, 1900)),
    st.sampled_from((None, None, *ZONES)),
    st.booleans(),
    st.sampled_from((False, False, True)),
    st.integers(0, 2),
)
_planned_nodes = st.lists(st.tuples(st.sampled_from(SHOP), st.sampled_from(ZONES)), min_size=3, max_size=3)


def _pod(at: int, request: _Ask) -> Pod:
    more: dict[str, Any] = near("podAntiAffinity", HOSTNAME) if request.apart else {}
    return pod(
        f"web-{at}",
        cpu=f"{request.cpu}m",
        labels={"app": "web"} if request.apart else {},
        nodeSelector={ZONE: request.zone} if request.zone else {},
        container={"ports": [{"hostPort": 80}] if request.port else []},
        **more,
    )


def _holds(cpu: int, zone: str, on: Sequence[_Ask]) -> bool:
    """Whether a node may hold pods, by arithmetic alone."""
    return (
        sum(request.cpu for request in on) <= cpu
        and all(request.zone in (None, zone) for request in on)
        and sum(request.port for request in on) <= 1
        and sum(request.apart for request in on) <= 1
    )


def _launched(sorts: Sequence[tuple[Any, str]], waiting: Sequence[Pod], where: Sequence[int]) -> Plan:
    """A plan that puts pods onto nodes of these sorts, true in everything but perhaps in that."""
    planned_nodes = []
    for number, (kind, zone) in enumerate(sorts):
        mine = [each for each, at in zip(waiting, where, strict=True) if at == number]
        used = resources({"cpu": "0", "memory": "0"}) | {"pods": len(mine)}
        for each in mine:
            for name, amount in resources(each.spec.containers[0].resources.requests).items():
                used[name] += amount
        choice = OfferingOption(
            instance_type=kind.name, zone=zone, capacity_type="on-demand", price=kind.offerings[0].price
        )
        said = ((INSTANCE_TYPE, kind.name), (ZONE, zone))
        planned_nodes.append(
            PlannedNode(
                name=f"m-{number}",
                pool="default",
                offerings=(choice,),
                requests=used,
                requirements=tuple({"key": k, "operator": "In", "values": [v]} for k, v in said),
                pods=tuple(each.metadata.key for each in mine),
            )
        )
    placements = {each.metadata.key: Placement(new_node=f"m-{at}") for each, at in zip(waiting, where, strict=True)}
    cost = Cost(per_hour=sum(planned.price for planned in planned_nodes))
    return Plan(placements=placements, nodes=tuple(planned_nodes), cost=cost)


@given(st.lists(_asks, min_size=1, max_size=8), _planned_nodes)
def test_plain_arithmetic_agrees_about_any_assignment(
    placement_requests: list[_Ask], sorts: list[tuple[Any, str]]
) -> None:
    waiting = tuple(_pod(at, request) for at, request in enumerate(placement_requests))
    plan = _launched(sorts, waiting, [request.node for request in placement_requests])
    right = all(
        _holds(kind.capacity["cpu"], zone, [request for request in placement_requests if request.node == number])
        for number, (kind, zone) in enumerate(sorts)
    )
    found = verify(plan, Snapshot(pools=(pool(),), pending=waiting))
    assert (found == []) is right, [str(each) for each in found]


_Rule = Callable[[Counter[str], Counter[int]], bool]
_RULES: dict[str, tuple[dict[str, Any], _Rule]] = {
    "level over zones": (spread(), lambda zones, _: max(zones.values()) - min(zones[zone] for zone in ZONES) <= 1),
    "level over nodes": (spread(HOSTNAME), lambda _, nodes: max(nodes.values()) <= 1),
    "a slack spread": (spread(skew=2), lambda zones, _: max(zones.values()) - min(zones[z] for z in ZONES) <= 2),
    "in all zones": (spread(minDomains=4), lambda zones, _: max(zones.values()) <= 1),
    "apart by zone": (near("podAntiAffinity", ZONE), lambda zones, _: max(zones.values()) <= 1),
    "apart by node": (near("podAntiAffinity", HOSTNAME), lambda _, nodes: max(nodes.values()) <= 1),
    "in one zone": (near("podAffinity", ZONE), lambda zones, _: len(+zones) == 1),
    "on one node": (near("podAffinity", HOSTNAME), lambda _, nodes: len(+nodes) == 1),
}


@pytest.mark.parametrize("name", _RULES)
@settings(max_examples=30)
@given(where=st.lists(st.integers(0, 4), min_size=1, max_size=6), zones=st.permutations((*ZONES, *ZONES)))
def test_counting_agrees_about_rules_between_pods(name: str, where: list[int], zones: list[str]) -> None:
    """A spread over nodes counts the empty one that could always be launched; one over zones every zone on offer."""
    rule, holds = _RULES[name]
    waiting = pods(len(where), cpu="100m", **rule)
    plan = _launched([(SHOP[0], zone) for zone in zones[:5]], waiting, where)
    found = verify(plan, Snapshot(pools=(pool(),), pending=waiting))
    assert (found == []) is holds(Counter(zones[at] for at in where), Counter(where)), [str(each) for each in found]
