"""Claims that files leave out or leave half said are taken as a cluster would have them; the verifier agrees."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.offline.objects import Objects
from dovetail.offline.snapshot import snapshot
from dovetail.offline.warnings import notes
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.verify import verify

_ZONE = "topology.kubernetes.io/zone"
_TYPE = InstanceType(
    name="m5.large",
    capacity={"cpu": 2000, "memory": 8 << 30, "pods": 29},
    overhead={},
    labels={},
    offerings=tuple(Offering(zone=zone, capacity_type="on-demand", price=0.1) for zone in "ab"),
)
_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "gp3"},
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": _ZONE, "values": ["b"]}]}],
}
_VOLUME = {
    "kind": "PersistentVolume",
    "metadata": {"name": "pv-1"},
    "spec": {
        "csi": {"driver": "ebs.csi.aws.com"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": _ZONE, "operator": "In", "values": ["b"]}]}]
            }
        },
    },
}


def _pod(volume: dict[str, Any]) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"containers": [container], "volumes": [{"name": "data", **volume}]},
    }


def _claim(**more: Any) -> dict[str, Any]:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"volumeName": "pv-1", "storageClassName": "gp3"},
        **more,
    }


def _planned(*sources: dict[str, Any]) -> Plan:
    objects = Objects()
    for source in sources:
        objects.add(source)
    cut = snapshot(objects, (_TYPE,), any_type=True)
    plan = provision(cut)
    assert [str(each) for each in verify(plan, cut)] == []
    return plan


_USE = {"persistentVolumeClaim": {"claimName": "data"}}


def test_a_pods_own_volume_has_its_claim() -> None:
    template = {"spec": {"storageClassName": "gp3", "accessModes": ["ReadWriteOnce"]}}
    plan = _planned(_CLASS, _pod({"ephemeral": {"volumeClaimTemplate": template}}))
    assert {choice.zone for planned in plan.nodes for choice in planned.offerings} == {"b"}


@pytest.mark.parametrize("status", [{}, {"phase": "Bound"}])
def test_a_claim_that_names_its_volume_is_bound_unless_it_says_otherwise(status: dict[str, str]) -> None:
    plan = _planned(_CLASS, _VOLUME, _claim(status=status), _pod(_USE))
    assert {choice.zone for planned in plan.nodes for choice in planned.offerings} == {"b"}


@pytest.mark.parametrize(("phase", "why"), [("Lost", "does not exist"), ("Pending", "not bound yet")])
def test_a_claim_that_is_lost_or_waits_for_its_volume_leaves_its_pod_out(phase: str, why: str) -> None:
    plan = _planned(_CLASS, _VOLUME, _claim(status={"phase": phase}), _pod(_USE))
    (reason,) = plan.unschedulable.values()
    assert why in reason.message


def test_what_names_no_namespace_lives_in_the_default_one_together() -> None:
    """A pod that says so and one that does not keep out of each other's way, and both find the claim."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [_pod(_USE), _pod(_USE)]
    for pod, name, namespace in zip(pods, "ab", ({}, {"namespace": "default"}), strict=True):
        pod["metadata"] = {"name": name, "labels": {"app": "db"}, **namespace}
        pod["spec"]["affinity"] = affinity
    claim = _claim(status={"phase": "Bound"})
    claim["metadata"].pop("namespace", None)
    plan = _planned(_CLASS, _VOLUME, claim, *pods)
    assert {name: place.new_node for name, place in plan.placements.items()}.keys() == {"default/a", "default/b"}
    assert len(plan.nodes) == 2


@pytest.mark.parametrize(
    ("modes", "pods", "reported"),
    [
        (["ReadWriteOnce"], 2, True),
        (["ReadWriteOnce"], 1, False),
        (["ReadWriteMany"], 2, False),
    ],
)
def test_pods_that_share_a_volume_for_one_node_are_warned(modes: list[str], pods: int, reported: bool) -> None:
    """kube-scheduler and Karpenter spread them over nodes, where all but the first wait for the volume."""
    objects = Objects()
    claim = _claim()
    for each in (_CLASS, {**claim, "spec": {**claim["spec"], "accessModes": modes}}):
        objects.add(each)
    for at in range(pods):
        objects.add({**_pod({"persistentVolumeClaim": {"claimName": "data"}}), "metadata": {"name": f"web-{at}"}})
    said = list(notes(objects, "", snapshot(objects, (_TYPE,), any_type=True), consolidating=False))
    assert (
        any("default/data is for one node at a time (ReadWriteOnce), and 2 pods" in note for note in said) is reported
    )
