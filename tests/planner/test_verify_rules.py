"""Every rule about pods and nodes is checked again: a plan that breaks just one of them is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail.model.instance_type import Offering
from dovetail.model.nodes import Taint
from dovetail.model.pods import Pod, TopologySpreadConstraint
from dovetail.model.selector import LabelSelector
from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.planner.plan import Cost, Placement, Plan, PlannedNode
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, LARGE, SMALL, ZONE, Solve, kind, near, node, pod, pods, pool, spread
from tests.planner.test_daemons import daemon

EBS = "ebs.csi.aws.com"


def _plan(*pending: Pod, **more: Any) -> tuple[Plan, Snapshot]:
    snapshot = Snapshot(pools=more.pop("pools", (pool(types=(LARGE,)),)), pending=pending, **more)
    plan = provision(snapshot)
    assert verify(plan, snapshot) == []
    assert not plan.unschedulable
    return plan, snapshot


def _rules(plan: Plan, snapshot: Snapshot) -> set[str]:
    """The rules that a plan breaks which says truly what it costs."""
    honest = replace(plan, cost=Cost(per_hour=sum(planned.price for planned in plan.nodes)))
    return {each.rule for each in verify(honest, snapshot)}


def _gathered(plan: Plan) -> Plan:
    """All pods on the first node, with its books kept straight."""
    first = plan.nodes[0]
    requests: dict[str, int] = {}
    for planned in plan.nodes:
        for name, amount in planned.requests.items():
            requests[name] = requests.get(name, 0) + amount
    whole = replace(first, pods=tuple(plan.placements), requests=requests)
    return replace(plan, nodes=(whole,), placements=dict.fromkeys(plan.placements, Placement(new_node=first.name)))


def _planned_node(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, nodes=(replace(plan.nodes[0], **changes), *plan.nodes[1:]))


def _volume(name: str, zone: str) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = {
        "metadata": {"name": name, "namespace": "default", "annotations": bound},
        "spec": {"volumeName": f"pv-{name}", "storageClassName": "gp3"},
        "status": {"phase": "Bound"},
    }
    where = {"key": ZONE, "operator": "In", "values": [zone]}
    volume = {
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "csi": {"driver": EBS, "volumeHandle": f"vol-{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }
    return msgspec.convert(claim, PersistentVolumeClaim), msgspec.convert(volume, PersistentVolume)


def _mounts(*names: str) -> dict[str, Any]:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]}


def _stored(names: list[str], zone: str = "z1") -> dict[str, Any]:
    made = {name: _volume(name, zone) for name in names}
    return {
        "claims": {f"default/{name}": claim for name, (claim, _) in made.items()},
        "volumes": {volume.metadata.name: volume for _, volume in made.values()},
        "storage_classes": {"gp3": StorageClass(provisioner=EBS)},
    }


def test_a_host_port_taken_twice() -> None:
    listening = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    plan, snapshot = _plan(*pods(2, container=listening))
    assert _rules(_gathered(plan), snapshot) == {"fit"}


def test_more_volumes_than_a_node_attaches() -> None:
    few = kind("few", 16, 64, 0.5, attach_limits={EBS: 1})
    names = ["a", "b"]
    pending = [pod(name, **_mounts(name)) for name in names]
    plan, snapshot = _plan(*pending, pools=(pool(types=(few,)),), **_stored(names))
    assert len(plan.nodes) == 2
    assert _rules(_gathered(plan), snapshot) == {"fit"}


def test_an_alternative_that_attaches_fewer_volumes() -> None:
    many, few = kind("many", 16, 64, 0.5, zones=("z1",)), kind("few", 16, 64, 0.6, ("z1",), attach_limits={EBS: 1})
    plan, snapshot = _plan(pod("a", **_mounts("a", "b")), pools=(pool(types=(many, few)),), **_stored(["a", "b"]))
    other = replace(plan.nodes[0].choice, instance_type="few", price=0.6)
    wide = _planned_node(plan, offerings=(plan.nodes[0].choice, other))
    assert "fit" in _rules(wide, snapshot)


def test_a_volume_in_another_zone() -> None:
    plan, snapshot = _plan(pod("a", **_mounts("a")), **_stored(["a"], "z2"))
    there = plan.nodes[0].choice
    assert there.zone == "z2"
    assert "fit" in _rules(_planned_node(plan, offerings=(replace(there, zone="z1"),)), snapshot)
    assert "fit" in _rules(_planned_node(plan, offerings=(there, replace(there, zone="z1"))), snapshot)


def test_more_nodes_of_a_reservation_than_it_has() -> None:
    reserved = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=1)
    kept = kind("kept", 2, 8, 0.1, offerings=(reserved, Offering(zone="z1", capacity_type="on-demand", price=0.1)))
    plan, snapshot = _plan(*pods(2, cpu="1500m"), pools=(pool(types=(kept,)),))
    free = next(planned for planned in plan.nodes if planned.choice.reservation_id)
    greedy = tuple(replace(m, offerings=free.offerings, requirements=free.requirements) for m in plan.nodes)
    assert _rules(replace(plan, nodes=greedy), snapshot) == {"reservation"}


def test_more_nodes_than_a_pool_may_have() -> None:
    plan, snapshot = _plan(*pods(2, **near("podAntiAffinity", HOSTNAME)))
    assert _rules(plan, replace(snapshot, pools=(pool(types=(LARGE,), limits={"nodes": 1}),))) == {"limit"}


def test_too_few_types_to_choose_from() -> None:
    needs = ({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 2},)
    plan, snapshot = _plan(pod("a"), pools=(pool(types=(SMALL, LARGE), requirements=needs),))
    assert "minValues" in _rules(_planned_node(plan, offerings=plan.nodes[0].offerings[:1]), snapshot)


def test_startup_taints_keep_no_pod_from_a_node() -> None:
    starting = (Taint(key="starting", effect="NoSchedule"),)
    plan, snapshot = _plan(pod("a"), pools=(pool(startup_taints=starting),))
    lasting = pool(taints=({"key": "starting", "effect": "NoSchedule"},))
    assert _rules(plan, replace(snapshot, pools=(lasting,))) == {"fit"}


def test_a_device_that_is_not_there() -> None:
    gpu = kind("gpu", 16, 64, 0.9, capacity={"nvidia.com/gpu": 1})
    plan, snapshot = _plan(pod("a", requests={"nvidia.com/gpu": "1"}), pools=(pool(types=(gpu, LARGE)),))
    bare = replace(plan.nodes[0].choice, instance_type="large", price=LARGE.offerings[0].price)
    assert "fit" in _rules(_planned_node(plan, offerings=(bare,)), snapshot)


@pytest.mark.parametrize(
    "rule",
    [
        spread(),
        spread(HOSTNAME),
        spread(skew=2, minDomains=3),
        spread(matchLabelKeys=["app"]),
        spread(nodeAffinityPolicy="Ignore"),
        spread(nodeTaintsPolicy="Honor"),
        near("podAntiAffinity", HOSTNAME),
        near("podAntiAffinity", ZONE),
    ],
)
def test_every_pod_on_one_node(rule: dict[str, Any]) -> None:
    plan, snapshot = _plan(*pods(3, **rule))
    assert len(plan.nodes) > 1
    assert "fit" in _rules(_gathered(plan), snapshot)


def test_a_spread_by_revision_counts_the_pods_revision_alone() -> None:
    """With matchLabelKeys pods of the old revision do not count, so the new ones may stand where those are many."""
    old = tuple(pod(f"old-{i}", labels={"app": "web", "rev": "1"}, nodeName="n1") for i in range(3))
    one_zone = kind("one", 16, 64, 0.8, zones=("z1",))
    standing = (node("n1", "z1", pods=old, cpu="8"), node("n2", "z2", cpu="1"))
    new = pod("new", labels={"app": "web", "rev": "2"}, **spread(matchLabelKeys=["rev"]))
    plan, snapshot = _plan(new, nodes=standing, pools=(pool(types=(one_zone,)),))
    blind = pod("new", labels={"app": "web", "rev": "2"}, **spread())
    lie = replace(plan, nodes=(), placements={"default/new": Placement(node="n1")})
    assert "fit" not in _rules(lie, snapshot)
    assert "fit" in _rules(lie, replace(snapshot, pending=(blind,)))


def test_a_running_pod_that_will_not_have_the_new_one_near() -> None:
    grump = pod("grump", nodeName="n1", **near("podAntiAffinity", HOSTNAME))
    plan, snapshot = _plan(pod("a", labels={"app": "web"}), nodes=(node("n1", pods=(grump,)),))
    lie = replace(plan, nodes=(), placements={"default/a": Placement(node="n1")})
    assert _rules(lie, snapshot) == {"fit"}


def test_a_neighbour_in_a_namespace_that_a_selector_means() -> None:
    away = near("podAntiAffinity", HOSTNAME)
    term = away["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": {"team": "x"}}
    there = pod("b", labels={"app": "web"}, namespace="other", nodeName="n1")
    names = {"other": {"team": "x"}, "default": {}}
    plan, snapshot = _plan(pod("a", **away), nodes=(node("n1", pods=(there,)),), namespaces=names)
    lie = replace(plan, nodes=(), placements={"default/a": Placement(node="n1")})
    assert _rules(lie, snapshot) == {"fit"}
    assert _rules(lie, replace(snapshot, namespaces={"other": {"team": "y"}, "default": {}})) == set()


def test_the_clusters_own_default_spread() -> None:
    rule = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")
    owner = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}]}
    chosen = {"rs": LabelSelector(match_labels={"app": "web"})}
    plan, snapshot = _plan(*pods(3, metadata=owner), default_spread=(rule,), selectors=chosen)
    assert len({planned.choice.zone for planned in plan.nodes}) == 3
    assert "fit" in _rules(_gathered(plan), snapshot)


def test_an_alternative_on_which_a_daemon_leaves_no_room() -> None:
    amd = kind("amd", 2, 8, 0.1, zones=("z1",))
    arm = kind("arm", 2, 8, 0.2, zones=("z1",), labels={"kubernetes.io/arch": ("arm64",)})
    heavy = daemon(cpu="1", nodeSelector={"kubernetes.io/arch": "arm64"})
    plan, snapshot = _plan(pod("a", cpu="1500m"), pools=(pool(types=(amd, arm)),), daemons=(heavy,))
    other = replace(plan.nodes[0].choice, instance_type="arm", price=0.2)
    assert "fit" in _rules(_planned_node(plan, offerings=(plan.nodes[0].choice, other)), snapshot)


def test_requests_that_are_not_the_sum_of_what_is_there() -> None:
    plan, snapshot = _plan(pod("a"), daemons=(daemon(),))
    lie = {**plan.nodes[0].requests, "cpu": 1000}
    assert _rules(_planned_node(plan, requests=lie), snapshot) == {"requests"}


def test_requirements_that_leave_an_offering_out() -> None:
    plan, snapshot = _plan(pod("a"))
    planned: PlannedNode = plan.nodes[0]
    narrow = tuple({**need, "values": ["z9"]} if need["key"] == ZONE else need for need in planned.requirements)
    assert _rules(_planned_node(plan, requirements=narrow), snapshot) == {"requirements"}


def test_a_node_answers_to_the_old_names_of_its_labels(solve: Solve) -> None:
    """Kubelets report both, and people still select by the old ones."""
    old = {"beta.kubernetes.io/arch": "amd64", "failure-domain.beta.kubernetes.io/zone": "z2"}
    plan = solve(*pods(2, nodeSelector=old), nodes=(node("here", zone="z2", cpu="1"),))
    assert not plan.unschedulable
    assert {planned.choice.zone for planned in plan.nodes} == {"z2"}


def test_a_claim_that_names_no_class_has_the_default_one() -> None:
    body = {
        "metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": EBS,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}],
    }
    claim = {"metadata": {"name": "a", "namespace": "default"}, "status": {"phase": "Pending"}}
    plan, _ = _plan(
        *pods(1, **_mounts("a")),
        storage_classes={"gp3": msgspec.convert(body, StorageClass)},
        claims={"default/a": msgspec.convert(claim, PersistentVolumeClaim)},
    )
    assert plan.nodes[0].choice.zone == "z2"


def test_a_full_target_is_refused_where_other_nodes_do_not_matter() -> None:
    """Pods without spreads, affinities and claims are checked against their targets alone; those are checked whole."""
    running = [pod(f"running-{index}") for index in range(2)]
    states = (node("full", cpu="1", pods=(running[0],)), node("free", pods=(running[1],)))
    plan, snapshot = _plan(pod("new"), nodes=states)
    assert plan.placements["default/new"].node == "free"
    wrong = replace(plan, placements={"default/new": Placement(node="full")})
    assert _rules(wrong, snapshot) == {"fit"}


def test_anti_affinity_of_a_pod_on_another_node_of_the_zone_is_checked() -> None:
    guard = pod("guard", labels={"app": "guard"}, **near("podAntiAffinity", ZONE))
    states = (node("guarded", pods=(guard,)), node("free"))
    pending = (pod("new", labels={"app": "web"}),)
    snapshot = Snapshot(pools=(pool(types=(LARGE,)),), pending=pending, nodes=states)
    wrong = Plan(placements={"default/new": Placement(node="free")}, nodes=(), cost=Cost(per_hour=0.0))
    assert _rules(wrong, snapshot) == {"fit"}
