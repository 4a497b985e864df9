"""The verifier is tested by breaking plans: every kind of lie must be caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from dovetail.model.labels import INSTANCE_TYPE
from dovetail.model.volumes import PersistentVolumeClaim, StorageClass
from dovetail.planner.plan import OfferingOption, Placement, Plan, PlannedNode
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, SMALL, ZONE, ZONES, kind, near, node, pod, pods, pool, spread, zones_of


def _rules(plan: Plan, snapshot: Snapshot) -> set[str]:
    return {each.rule for each in verify(plan, snapshot)}


def _planned_node(plan: Plan, at: int = 0, **changes: Any) -> Plan:
    planned_nodes = list(plan.nodes)
    planned_nodes[at] = replace(planned_nodes[at], **changes)
    return replace(plan, nodes=tuple(planned_nodes))


def _move(plan: Plan, key: str, to: str) -> Plan:
    """A pod on another node, with the books kept straight."""
    planned_nodes = tuple(
        replace(m, pods=tuple(p for p in m.pods if p != key) + ((key,) if m.name == to else ())) for m in plan.nodes
    )
    return replace(plan, nodes=planned_nodes, placements={**plan.placements, key: Placement(new_node=to)})


def _plan(*pending: Any, **more: Any) -> tuple[Plan, Snapshot]:
    snapshot = Snapshot(pools=more.pop("pools", (pool(),)), pending=pending, **more)
    plan = provision(snapshot)
    assert verify(plan, snapshot) == []
    return plan, snapshot


def test_a_forgotten_pod_is_noticed() -> None:
    plan, snapshot = _plan(*pods(2))
    assert _rules(replace(plan, placements=dict(list(plan.placements.items())[:1])), snapshot) == {"placed"}


def test_a_pod_that_is_not_where_the_plan_says_is_noticed() -> None:
    plan, snapshot = _plan(*pods(2))
    assert "placed" in _rules(_planned_node(plan, pods=()), snapshot)


def test_a_node_that_is_too_small_is_noticed() -> None:
    plan, snapshot = _plan(*pods(3, cpu="1200m"))
    small = OfferingOption(instance_type="small", zone="z1", capacity_type="on-demand", price=0.10)
    assert "fit" in _rules(_planned_node(plan, offerings=(small,)), snapshot)


def test_an_alternative_that_is_too_small_is_noticed() -> None:
    plan, snapshot = _plan(*pods(3, cpu="1200m"))
    small = OfferingOption(instance_type="small", zone="z1", capacity_type="on-demand", price=0.10)
    largest = plan.nodes[0].offerings[-1]
    assert "fit" in _rules(_planned_node(plan, offerings=(small, largest)), snapshot)


def test_requirements_that_admit_what_is_too_small_are_noticed() -> None:
    plan, snapshot = _plan(*pods(3, cpu="1200m"))
    everything = tuple(each for each in plan.nodes[0].requirements if each["key"] != INSTANCE_TYPE)
    found = {str(each) for each in verify(_planned_node(plan, requirements=everything), snapshot)}
    assert found == {f"requirements: m-1: small/{zone}/on-demand has too little cpu" for zone in ZONES}


def test_an_offering_no_pod_sells_and_a_wrong_price_are_noticed() -> None:
    plan, snapshot = _plan(pod("a"))
    first = plan.nodes[0].offerings[0]
    assert _rules(_planned_node(plan, offerings=(replace(first, zone="z9"),)), snapshot) == {"offering"}
    assert _rules(_planned_node(plan, offerings=(replace(first, price=0.01),)), snapshot) == {"offering"}


def test_offerings_out_of_order_are_noticed() -> None:
    plan, snapshot = _plan(pod("a"))
    assert _rules(_planned_node(plan, offerings=plan.nodes[0].offerings[::-1]), snapshot) == {"offering"}


def test_an_unavailable_offering_is_noticed() -> None:
    plan, snapshot = _plan(pod("a"))
    first = plan.nodes[0].offerings[0]
    gone = frozenset([(first.instance_type, first.zone, first.capacity_type)])
    assert _rules(plan, replace(snapshot, unavailable=gone)) == {"offering"}


def test_a_type_that_lacks_what_its_pool_asks_for_is_noticed() -> None:
    """Others have the label, so this one is known to be without it."""
    fast = kind("fast", 2, 8, 0.50, labels={"karpenter.k8s.aws/instance-gpu-count": ("1",)})
    needs = ({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Gt", "values": ("0",)},)
    plan, snapshot = _plan(pod("a"), pools=(pool(types=(SMALL, fast), requirements=needs),))
    plain = OfferingOption(instance_type="small", zone="z1", capacity_type="on-demand", price=0.10)
    assert "offering" in _rules(_planned_node(plan, offerings=(plain,)), snapshot)


def test_a_zone_that_only_sells_what_no_pool_may_launch_is_no_zone_to_level_with() -> None:
    fast = kind("fast", 2, 8, 0.50, ("z1", "z2"), labels={"karpenter.k8s.aws/instance-gpu-count": ("1",)})
    needs = ({"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "Exists"},)
    plan, _ = _plan(*pods(4, **spread()), pools=(pool(types=(SMALL, fast), requirements=needs),))
    assert zones_of(plan) == ["z1", "z1", "z2", "z2"]


def test_a_zone_the_pod_did_not_ask_for_is_noticed() -> None:
    plan, snapshot = _plan(pod("a", nodeSelector={ZONE: "z2"}))
    moved = replace(plan.nodes[0].offerings[0], zone="z1")
    assert "fit" in _rules(_planned_node(plan, offerings=(moved,)), snapshot)


def test_two_pods_that_avoid_each_other_on_one_node_are_noticed() -> None:
    plan, snapshot = _plan(*pods(2, cpu="100m", **near("podAntiAffinity", HOSTNAME)))
    assert "fit" in _rules(_move(plan, "default/web-1", plan.placements["default/web-0"].new_node or ""), snapshot)


def test_a_spread_out_of_balance_is_noticed() -> None:
    plan, snapshot = _plan(*pods(3, cpu="100m", **spread()))
    assert "fit" in _rules(_move(plan, "default/web-1", plan.placements["default/web-0"].new_node or ""), snapshot)


def test_a_spread_kept_by_opening_one_zone_is_noticed() -> None:
    """Every zone the pools could open counts, also those the plan leaves closed."""
    plan, snapshot = _plan(*pods(3, cpu="100m", **spread()))
    one = plan.nodes[0].name
    for key in plan.placements:
        plan = _move(plan, key, one)
    kept = tuple(planned for planned in plan.nodes if planned.pods)
    assert "fit" in _rules(replace(plan, nodes=kept), snapshot)


def test_a_pinned_node_with_offerings_in_other_zones_is_noticed() -> None:
    plan, snapshot = _plan(pod("a", labels={"app": "web"}, **spread()))
    elsewhere = [replace(c, zone="z3" if c.zone == "z1" else "z1") for c in plan.nodes[0].offerings[:1]]
    assert "topology" in _rules(_planned_node(plan, offerings=(plan.nodes[0].offerings[0], *elsewhere)), snapshot)


def test_an_affinity_left_alone_is_noticed() -> None:
    plan, snapshot = _plan(
        pod("cache", labels={"app": "cache"}, nodeSelector={ZONE: "z1"}),
        pod("a", **near("podAffinity", ZONE, app="cache")),
    )
    assert "fit" in _rules(
        plan,
        replace(snapshot, pending=tuple(replace(p, metadata=replace(p.metadata, labels={})) for p in snapshot.pending)),
    )


def test_limits_count_the_largest_offering_of_each_node() -> None:
    plan, snapshot = _plan(*pods(4, cpu="1900m"), pools=(pool(limits={"cpu": 8000}),))
    large = OfferingOption(instance_type="large", zone="z1", capacity_type="on-demand", price=0.80)
    wide = _planned_node(plan, offerings=(*plan.nodes[0].offerings, large))
    assert "limit" in _rules(wide, snapshot)


def test_a_node_that_is_full_or_unknown_is_noticed() -> None:
    full = pod("full", cpu="4", nodeName="n1")
    plan, snapshot = _plan(pod("a"), nodes=(node("n1", pods=(full,)),))
    for name in ("n1", "ghost"):
        lie = replace(plan, nodes=(), placements={"default/a": Placement(node=name)})
        assert "fit" in _rules(lie, snapshot)


def test_an_untolerated_taint_is_noticed() -> None:
    plan, snapshot = _plan(
        pod("a", tolerations=[{"operator": "Exists"}]), pools=(pool(taints=({"key": "x", "effect": "NoSchedule"},)),)
    )
    bare = tuple(replace(p, spec=replace(p.spec, tolerations=())) for p in snapshot.pending)
    assert "fit" in _rules(plan, replace(snapshot, pending=bare))


@pytest.mark.parametrize("spoil", [lambda m: replace(m, pool="absent"), lambda m: replace(m, offerings=())])
def test_a_node_of_no_pool_or_no_offering_is_noticed(spoil: Callable[[PlannedNode], PlannedNode]) -> None:
    plan, snapshot = _plan(pod("a"))
    assert "offering" in _rules(replace(plan, nodes=(spoil(plan.nodes[0]),)), snapshot)


def test_a_volume_for_one_pod_that_two_have_is_noticed() -> None:
    users = [pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]) for name in "ab"]
    claim = {"metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "x"}}
    made = {"metadata": {"name": "x"}, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}
    many = convert(claim, PersistentVolumeClaim)
    plan, snapshot = _plan(*users, claims={"default/data": many}, storage_classes={"x": convert(made, StorageClass)})
    one = replace(many, spec=replace(many.spec, access_modes=("ReadWriteOncePod",)))
    assert _rules(plan, replace(snapshot, claims={"default/data": one})) == {"fit"}
