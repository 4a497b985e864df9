"""Volumes that several pods share: a machine attaches each of them once."""

from __future__ import annotations

import msgspec
import pytest

from dovetail.model.instancetype import InstanceType
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolumeClaim, StorageClass
from dovetail.planner.sharing import sharing

from .conftest import Solve, kind, node, pod, pool

_EBS = "ebs.csi.aws.com"
_SHOP = (kind("small", 2, 8, 0.10, attach_limits={_EBS: 2}), kind("large", 16, 64, 0.80, attach_limits={_EBS: 2}))
_WAITS = {"metadata": {"name": "gp3"}, "provisioner": _EBS, "volumeBindingMode": "WaitForFirstConsumer"}
_CLASSES = {"gp3": msgspec.convert(_WAITS, StorageClass)}


def _claims(*names: str) -> dict[str, PersistentVolumeClaim]:
    body = {"spec": {"storageClassName": "gp3"}, "status": {"phase": "Pending"}}
    made = {name: {**body, "metadata": {"name": name, "namespace": "default"}} for name in names}
    return {f"default/{name}": msgspec.convert(each, PersistentVolumeClaim) for name, each in made.items()}


def _using(claim: str, count: int) -> list[Pod]:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    return [pod(f"{claim}-{at}", cpu="500m", volumes=volumes) for at in range(count)]


def test_pods_that_share_a_volume_take_one_attachment(solve: Solve) -> None:
    plan = solve(*_using("a", 12), pools=(pool(types=_SHOP[1:]),), claims=_claims("a"), storage_classes=_CLASSES)
    assert len(plan.machines) == 1


def test_machines_attach_own_volumes_beside_a_shared_one(solve: Solve) -> None:
    """Of two attachments one is for what is shared, so each large machine takes one of the others."""
    own = [*_using("b", 1), *_using("c", 1)]
    claims = _claims("a", "b", "c")
    plan = solve(*_using("a", 12), *own, pools=(pool(types=_SHOP[1:]),), claims=claims, storage_classes=_CLASSES)
    assert not plan.unschedulable
    assert len(plan.machines) == 2


def test_a_machine_that_is_full_takes_no_pod_with_a_volume_that_it_does_not_hold(solve: Solve) -> None:
    there = node("full", attach_limits={_EBS: 0})
    plan = solve(*_using("a", 3), pools=(pool(types=_SHOP),), nodes=(there,), claims=_claims("a"),
                 storage_classes=_CLASSES)  # fmt: skip
    assert {place.node for place in plan.placements.values()} == {None}


def test_no_bound_counts_a_shared_volume_for_each_pod(solve: Solve) -> None:
    """More volumes are shared than a machine attaches: two machines are enough, however many pods there are."""
    waiting = [each for claim in ("a", "b", "c", "d") for each in _using(claim, 8)]
    plan = solve(*waiting, pools=(pool(types=_SHOP[1:]),), claims=_claims("a", "b", "c", "d"),
                 storage_classes=_CLASSES, deadline=0.1)  # fmt: skip
    assert plan.cost.lower_bound is not None
    assert plan.cost.lower_bound <= 2 * 0.80


def test_a_volume_that_a_machine_holds_already_takes_no_attachment_there(solve: Solve) -> None:
    """Nothing else could be attached, but a pod that uses the same volume as a running one may join it."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}]
    there = node("full", attach_limits={_EBS: 1}, pods=(pod("old", volumes=volumes, nodeName="full"),))
    plan = solve(*_using("a", 2), pools=(pool(types=_SHOP),), nodes=(there,), claims=_claims("a"),
                 storage_classes=_CLASSES)  # fmt: skip
    assert {place.node for place in plan.placements.values()} == {"full"}


def test_volumes_that_are_shared_by_few_are_attached_where_those_are(solve: Solve) -> None:
    """Six volumes with two pods each, two to a machine: three machines, as each keeps to its own two."""
    names = "abcdef"
    waiting = [each for name in names for each in _using(name, 2)]
    plan = solve(*waiting, pools=(pool(types=_SHOP[1:]),), claims=_claims(*names), storage_classes=_CLASSES)
    assert len(plan.machines) == 3


def test_pods_that_use_several_volumes_are_counted_one_by_one(solve: Solve) -> None:
    """What they share cannot be kept apart from the rest of them."""
    both = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in "ab"]
    waiting = [pod(f"both-{at}", cpu="500m", volumes=both) for at in range(2)]
    plan = solve(*waiting, *_using("c", 2), pools=(pool(types=_SHOP),), claims=_claims(*"abc"),
                 storage_classes=_CLASSES)  # fmt: skip
    assert not plan.unschedulable


@pytest.mark.parametrize(
    ("uses", "packs", "apart"),
    [
        ({"a": 10}, [{"a"}], False),
        ({"a": 10, "b": 1, "c": 1}, [{"a"}], False),
        ({"a": 2, **{f"own-{at}": 1 for at in range(9)}}, [], False),
        (dict.fromkeys("abcdef", 2), [{"a", "b", "c"}, {"d", "e", "f"}], True),
        (dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 2), [], False),
    ],
)
def test_shared_volumes_are_counted_so_that_few_machines_do(
    uses: dict[str, int], packs: list[set[str]], apart: bool
) -> None:
    found = sharing({(_EBS, name): count for name, count in uses.items()}, {_EBS: 3}, mixed=set())
    assert [{name for _, name in found.assumed[pack]} for pack in sorted(set(found.packs.values()))] == packs
    assert bool(found.fences) is apart


def test_a_node_takes_all_users_of_its_last_volume_also_where_types_attach_any_number(solve: Solve) -> None:
    """Only the node's driver says how many it attaches; a machine bought for the others would be for nothing."""
    there = node("there", cpu="8", attach_limits={_EBS: 1})
    plan = solve(*_using("a", 3), nodes=(there,), claims=_claims("a"), storage_classes=_CLASSES)
    assert {place.node for place in plan.placements.values()} == {"there"}


@pytest.mark.parametrize("types", [(kind("small", 2, 8, 0.10),), _SHOP])
def test_nodes_that_cannot_attach_all_that_is_shared_begin_with_different_volumes(
    solve: Solve, types: tuple[InstanceType, ...]
) -> None:
    """Each has one attachment, and keeps it for the users of one volume; none has to wait for room for both."""
    there = [node(name, cpu="8", attach_limits={_EBS: 1}) for name in ("one", "two")]
    plan = solve(*_using("a", 3), *_using("b", 2), pools=(pool(types=types),), nodes=there, claims=_claims("a", "b"),
                 storage_classes=_CLASSES)  # fmt: skip
    assert {place.node for place in plan.placements.values()} == {"one", "two"}


def test_a_node_keeps_its_attachments_for_what_it_holds(solve: Solve) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "b"}}]
    there = node("full", cpu="8", attach_limits={_EBS: 1}, pods=(pod("old", volumes=volumes, nodeName="full"),))
    plan = solve(*_using("a", 3), *_using("b", 2), pools=(pool(types=_SHOP),), nodes=(there,),
                 claims=_claims("a", "b"), storage_classes=_CLASSES)  # fmt: skip
    assert [key for key, place in plan.placements.items() if place.node == "full"] == ["default/b-0", "default/b-1"]


def test_a_shared_volume_that_nothing_attaches_is_told_as_any_other(solve: Solve) -> None:
    none = kind("small", 2, 8, 0.10, attach_limits={_EBS: 0})
    plan = solve(*_using("a", 2), pools=(pool(types=(none,)),), nodes=(node("full", attach_limits={_EBS: 0}),),
                 claims=_claims("a"), storage_classes=_CLASSES)  # fmt: skip
    why = plan.unschedulable["default/a-0"]
    assert why.code == "VOLUME_LIMIT"
    assert f"1 volume of {_EBS} (at most 0)" in why.message
