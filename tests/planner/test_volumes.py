"""Volumes decide where pods go: those that are there for good, those that may still come, and what keeps one away."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail.model.meta import ObjectMeta
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.planner.plan import Plan
from tests.planner.conftest import HOSTNAME, ZONE, Solve, node, pod

_STATIC = "kubernetes.io/no-provisioner"
_EBS = "ebs.csi.aws.com"
_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
_LOCAL, _HOST, _NET = {"local": {"path": "/d"}}, {"hostPath": {"path": "/d"}}, {"csi": {"driver": _EBS}}


def _user(name: str = "db", claim: str = "data", **more: Any) -> Pod:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}], **more)


def _claim(name: str = "data", *, notes: dict[str, str] | None = None, phase: str = "", **spec: Any) -> dict[str, Any]:
    notes = {"pv.kubernetes.io/bind-completed": "yes"} if "volumeName" in spec and notes is None else notes or {}
    body = {
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {"accessModes": ["ReadWriteOnce"], **spec},
        "status": {"phase": phase},
    }
    return {f"default/{name}": msgspec.convert(body, PersistentVolumeClaim)}


def _volume(*terms: dict[str, Any], kind: dict[str, Any] = _NET, cls: str = "", **meta: Any) -> dict[str, Any]:
    body = {
        "metadata": {"name": "pv", **meta},
        "status": {"phase": "Available"},
        "spec": {
            **kind,
            "storageClassName": cls,
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}} if terms else None,
        },
    }
    return {"pv": msgspec.convert(body, PersistentVolume)}


def _term(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def _class(name: str = "x", provisioner: str = _EBS, *zones: str, **more: Any) -> dict[str, StorageClass]:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}] if zone else []} for zone in zones]
    body = {
        "metadata": {"name": name, **more.pop("metadata", {})},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": terms,
        **more,
    }
    return {name: msgspec.convert(body, StorageClass)}


def _place(plan: Plan, name: str = "db") -> str | None:
    """The node a pod is on, or the zone of the node launched for it."""
    place = plan.placements[f"default/{name}"]
    return place.node or next((each.choice.zone for each in plan.nodes if each.name == place.new_node), None)


# -- volumes that are somewhere for good ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volume", "where"),
    [
        (_volume(_term(ZONE, "z2")), {"z2"}),
        (_volume(_term(ZONE, "z2"), _term(ZONE, "z3")), {"z2", "z3"}),
        (_volume({"matchExpressions": []}, _term(ZONE, "z3")), {"z3"}),
        (_volume(_term("topology.ebs.csi.aws.com/zone", "z2")), {"z2"}),
        (_volume(_term(_OLD_ZONE, "z2")), {"z2"}),
        (_volume(labels={ZONE: "z2"}), {"z2"}),
        (_volume(labels={_OLD_ZONE: "z2__z3"}), {"z2", "z3"}),
        (_volume(labels={ZONE: "z3", "topology.kubernetes.io/region": "r"}), {"z3"}),
        (_volume(_term(ZONE, "z2"), kind={"awsElasticBlockStore": {"volumeID": "vol-1"}}), {"z2"}),
    ],
)
def test_a_node_is_launched_where_the_volume_is(solve: Solve, volume: dict[str, Any], where: set[str]) -> None:
    plan = solve(_user(), claims=_claim(volumeName="pv"), volumes=volume)
    assert {choice.zone for planned in plan.nodes for choice in planned.offerings} <= where
    assert plan.nodes


@pytest.mark.parametrize(
    "volume",
    [
        _volume({"matchExpressions": []}),
        _volume({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["here"]}]}),
        _volume(_term(HOSTNAME, "gone")),
        _volume(_term(ZONE, "z1"), labels={ZONE: "z2"}),
    ],
)
def test_a_volume_that_no_node_may_use_leaves_its_pod_out(solve: Solve, volume: dict[str, Any]) -> None:
    """A term that asks nothing allows nothing, and a volume's affinity does not know nodes by their names."""
    plan = solve(_user(), nodes=(node("here"),), claims=_claim(volumeName="pv"), volumes=volume)
    assert plan.unschedulable["default/db"].code == "VOLUME_ZONE"


def test_a_class_makes_volumes_only_where_it_says(solve: Solve) -> None:
    plan = solve(_user(), claims=_claim(storageClassName="x"), storage_classes=_class("x", _EBS, "", "z3"))
    assert _place(plan) == "z3"


def test_the_old_annotation_names_the_class(solve: Solve) -> None:
    claim = _claim(storageClassName="y", notes={"volume.beta.kubernetes.io/storage-class": "x"})
    plan = solve(_user(), claims=claim, storage_classes=_class("x", _EBS, "z2") | _class("y"))
    assert _place(plan) == "z2"


def test_of_several_default_classes_the_newest_counts_and_then_the_first_by_name(solve: Solve) -> None:
    notes = {"storageclass.kubernetes.io/is-default-class": "true"}
    young = {"annotations": notes, "creationTimestamp": "2026-01-02T00:00:00Z"}
    old = {"annotations": notes, "creationTimestamp": "2026-01-01T00:00:00Z"}
    classes = _class("a", _EBS, "z2", metadata=young) | _class("b", metadata=young) | _class("c", metadata=old)
    assert _place(solve(_user(), claims=_claim(), storage_classes=classes)) == "z2"


# -- volumes that may still come -----------------------------------------------------------------------------------


def test_a_class_that_makes_no_volumes_may_have_some_brought_by_a_node(solve: Solve) -> None:
    plan = solve(_user(), claims=_claim(storageClassName="x"), storage_classes=_class("x", _STATIC, "z2"))
    assert _place(plan) == "z2"


@pytest.mark.parametrize("terms", [[_term(HOSTNAME, "b")], [_term(HOSTNAME, "gone"), _term(HOSTNAME, "b")]])
def test_an_open_claim_goes_where_a_volume_is_free_for_it(solve: Solve, terms: list[dict[str, Any]]) -> None:
    free = _volume(*terms, kind=_LOCAL, cls="x")
    plan = solve(
        _user(),
        nodes=(node("a"), node("b"), node("c")),
        claims=_claim(storageClassName="x"),
        volumes=free,
        storage_classes=_class("x", _STATIC),
    )
    assert _place(plan) == "b"


def test_a_free_volume_in_a_zone_draws_a_new_node_there(solve: Solve) -> None:
    plan = solve(
        _user(),
        claims=_claim(storageClassName="x"),
        volumes=_volume(_term(ZONE, "z3"), cls="x"),
        storage_classes=_class("x", _STATIC),
    )
    assert _place(plan) == "z3"


def test_a_free_volume_draws_one_pod_and_the_smallest_is_taken_first(solve: Solve) -> None:
    def volume(name: str, host: str, size: str) -> dict[str, PersistentVolume]:
        made = _volume(_term(HOSTNAME, host), kind=_LOCAL, cls="x", name=name)["pv"]
        return {name: replace(made, spec=replace(made.spec, capacity={"storage": size}))}

    claims = _claim("one", storageClassName="x") | _claim("two", storageClassName="x")
    plan = solve(
        _user("p", "one"),
        _user("q", "two"),
        nodes=tuple(node(name, cpu="9") for name in "abc"),
        claims=claims,
        volumes=volume("large", "b", "9Gi") | volume("small", "c", "1Gi"),
        storage_classes=_class("x", _STATIC),
    )
    assert (_place(plan, "p"), _place(plan, "q")) == ("c", "b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"accessModes": ["ReadWriteMany"]},
        {"volumeMode": "Block"},
        {"resources": {"requests": {"storage": "1Gi"}}},
        {"selector": {"matchLabels": {"a": "b"}}},
    ],
)
def test_a_volume_that_does_not_suit_the_claim_draws_no_pod(solve: Solve, wrong: dict[str, Any]) -> None:
    free = _volume(_term(HOSTNAME, "b"), kind=_LOCAL, cls="x")
    plan = solve(
        _user(),
        nodes=(node("a", cpu="8"), node("b")),
        claims=_claim(storageClassName="x", **wrong),
        volumes=free,
        storage_classes=_class("x", _STATIC),
    )
    assert plan.placements["default/db"].relaxed == ()


@pytest.mark.parametrize("kind", [_LOCAL, _HOST])
def test_a_pod_goes_back_to_the_node_that_has_its_disk(solve: Solve, kind: dict[str, Any]) -> None:
    volume = _volume(_term(HOSTNAME, "b"), kind=kind)
    plan = solve(_user(), nodes=(node("a"), node("b"), node("c")), claims=_claim(volumeName="pv"), volumes=volume)
    assert _place(plan) == "b"


@pytest.mark.parametrize("there", [(), (node("b", cpu="100m"),)])
def test_a_disk_inside_a_node_that_is_gone_or_full_does_not_keep_its_pod_waiting(
    solve: Solve, there: tuple[Any, ...]
) -> None:
    """A pod that runs such pods makes the claim anew; the plan says that the disk was relaxed."""
    volume = _volume(
        {"matchExpressions": [*_term(HOSTNAME, "b")["matchExpressions"], *_term(ZONE, "z2")["matchExpressions"]]},
        kind=_LOCAL,
    )
    plan = solve(_user(), nodes=there, claims=_claim(volumeName="pv"), volumes=volume)
    assert _place(plan) == "z2"
    assert plan.placements["default/db"].relaxed == ("the node that has its volume attached",)


def test_preferences_are_relaxed_before_the_way_home(solve: Solve) -> None:
    preference = {"weight": 1, "preference": _term(ZONE, "z3")}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    volume = _volume(_term(HOSTNAME, "b"), kind=_LOCAL)
    plan = solve(
        _user(affinity=affinity),
        nodes=(node("a", "z3"), node("b", "z1")),
        claims=_claim(volumeName="pv"),
        volumes=volume,
    )
    assert _place(plan) == "b"


def test_pods_away_from_home_still_have_their_preferences(solve: Solve) -> None:
    preference = {"weight": 1, "preference": _term(ZONE, "z3")}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    volume = _volume(_term(HOSTNAME, "gone"), kind=_LOCAL)
    plan = solve(_user(affinity=affinity), claims=_claim(volumeName="pv"), volumes=volume, deadline=0.2)
    assert _place(plan) == "z3"


@pytest.mark.parametrize(("chosen", "where"), [("a", {"a"}), ("b", {"b"}), ("gone", {"a", "b"})])
def test_a_claim_for_which_a_node_was_chosen_goes_there_while_there_is_such_a_node(
    solve: Solve, chosen: str, where: set[str]
) -> None:
    claim = _claim(storageClassName="x", notes={"volume.kubernetes.io/selected-node": chosen})
    plan = solve(_user(), nodes=(node("a"), node("b", cpu="3")), claims=claim, storage_classes=_class())
    assert _place(plan) in where


# -- volumes for one pod at a time ---------------------------------------------------------------------------------

_ONCE: dict[str, Any] = {"storageClassName": "x", "accessModes": ["ReadWriteOncePod"]}


def test_of_pods_that_share_a_volume_for_one_the_most_important_has_a_place(solve: Solve) -> None:
    """kube-scheduler would take no second one: a node for it would stand empty."""
    plan = solve(_user("a"), _user("b", priority=7), _user("c"), claims=_claim(**_ONCE), storage_classes=_class())
    why = plan.unschedulable["default/a"]
    assert plan.placements["default/b"].new_node is not None
    assert why.code == plan.unschedulable["default/c"].code == "VOLUME_IN_USE"
    assert 'claim "data" is for one pod at a time (ReadWriteOncePod), and default/b goes first' in why.message


def test_a_pod_that_cannot_run_at_all_leaves_a_volume_for_one_to_others(solve: Solve) -> None:
    lost = {"name": "w", "persistentVolumeClaim": {"claimName": "gone"}}
    unbindable = pod("a", volumes=[*_user("a").spec.volumes, lost], priority=7)
    plan = solve(unbindable, _user("b"), claims=_claim(**_ONCE), storage_classes=_class())
    assert plan.unschedulable.keys() == {"default/a"}


@pytest.mark.parametrize(("going", "waits"), [({}, True), ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False)])
def test_a_volume_for_one_is_free_once_its_pod_leaves(solve: Solve, going: dict[str, Any], waits: bool) -> None:
    user = _user("old", nodeName="a")
    there = replace(user, metadata=msgspec.convert({"name": "old", "namespace": "default", **going}, ObjectMeta))
    nodes = (node("a", cpu="8", pods=(there,)),)
    plan = solve(_user(), nodes=nodes, claims=_claim(**_ONCE), storage_classes=_class())
    assert bool(plan.unschedulable) is waits


def test_pods_of_a_node_that_goes_take_their_volumes_for_one_along(solve: Solve) -> None:
    user = _user("old", nodeName="a")
    nodes = (node("a", pods=(user,), deleting=True),)
    plan = solve(user, _user("a"), nodes=nodes, claims=_claim(**_ONCE), storage_classes=_class())
    assert plan.unschedulable.keys() == {"default/a"}


@pytest.mark.parametrize("owner", [None, "another owner"])
def test_a_pods_own_volume_is_planned_before_its_claim_is_made(solve: Solve, owner: str | None) -> None:
    """And where the claim of an earlier pod of that name is still there."""
    own = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "x"}}}}
    claims = _claim("db-v", storageClassName="x") if owner else {}
    plan = solve(pod("db", volumes=[own]), claims=claims, storage_classes=_class("x", _EBS, "z2"))
    assert _place(plan) == "z2"


# -- disks that pods name themselves -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "disk",
    [
        {"awsElasticBlockStore": {"volumeID": "vol-1"}},
        {"iscsi": {"iqn": "one"}},
        {"gcePersistentDisk": {"pdName": "one"}},
        {"rbd": {"image": "one"}},
    ],
)
def test_a_node_takes_a_disk_once(solve: Solve, disk: dict[str, Any]) -> None:
    volumes = [{"name": "v", **disk}]
    there = node("a", cpu="8", pods=(pod("old", volumes=volumes, nodeName="a"),))
    plan = solve(*(pod(name, volumes=volumes) for name in "xy"), nodes=(there,))
    assert len(plan.nodes) == 2


def test_a_disk_that_a_pod_names_itself_takes_an_attachment(solve: Solve) -> None:
    disks = [[{"name": "v", "awsElasticBlockStore": {"volumeID": f"aws://z1/vol-{at}"}}] for at in range(3)]
    there = node("a", cpu="8", attach_limits={_EBS: 2})
    plan = solve(*(pod(f"p{at}", volumes=each) for at, each in enumerate(disks)), nodes=(there,))
    assert sum(place.node == "a" for place in plan.placements.values()) == 2


# -- what keeps a claim from being used ----------------------------------------------------------------------------

_GOING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("claims", "more", "code", "words"),
    [
        ({}, {}, "VOLUME_MISSING", 'persistentvolumeclaim "data" not found'),
        (_claim(storageClassName="x"), {}, "VOLUME_MISSING", 'storageclass "x" of persistentvolumeclaim "data" not'),
        (_claim(), {}, "VOLUME_CLASS", "there is no default one"),
        (_claim(storageClassName=""), {"storage_classes": _class()}, "VOLUME_CLASS", 'its storageClassName is ""'),
        (
            _claim(storageClassName="x"),
            {"storage_classes": _class(volumeBindingMode="Immediate")},
            "VOLUME_UNBOUND",
            'storageclass "x" does not wait for the first consumer',
        ),
        (_claim(volumeName="pv", notes={"a": "b"}), {"volumes": _volume()}, "VOLUME_UNBOUND", "is not bound yet to"),
        (_claim(volumeName="pv", phase="Lost"), {"volumes": _volume()}, "VOLUME_LOST", "which does not exist"),
        (_claim(volumeName="pv"), {}, "VOLUME_LOST", 'persistentvolume "pv" of persistentvolumeclaim "data" not found'),
        (_claim(volumeName="pv"), {"volumes": _volume(**_GOING)}, "VOLUME_LOST", "is being deleted"),
    ],
)
def test_a_claim_in_trouble_is_reported_with_its_name_and_a_remedy(
    solve: Solve, claims: dict[str, Any], more: dict[str, Any], code: str, words: str
) -> None:
    why = solve(_user(), pod("other"), claims=claims, **more).unschedulable["default/db"]
    assert why.code == code
    assert words in why.message
    assert "; " in why.message
