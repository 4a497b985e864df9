"""Drift: what an instance is, against what its class selects now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.clock import EPOCH
from dovetail.cloud.aws.drift import reason
from dovetail.cloud.provider import Instance

INSTANCE = Instance(
    provider_id="aws:///a/i-1",
    instance_type="m5.large",
    zone="a",
    capacity_type="on-demand",
    image_id="ami-1",
    capacity={},
    allocatable={},
    labels={},
    created=EPOCH,
    claim_uid="u",
    claim_name="c",
    node_pool="default",
    network={"subnet": "subnet-1", "security-groups": "sg-1,sg-2"},
)
AMD = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]
ARM = [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]
STATUS = {
    "amis": [{"id": "ami-1", "requirements": AMD}, {"id": "ami-2", "requirements": ARM}],
    "securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}],
    "subnets": [{"id": "subnet-1"}, {"id": "subnet-2"}],
}


@pytest.mark.parametrize(
    ("change", "drift"),
    [
        ({}, None),
        ({"amis": [{"id": "ami-3", "requirements": AMD}]}, "AMIDrift"),
        ({"amis": [{"id": "ami-2", "requirements": ARM}]}, None),
        ({"securityGroups": [{"id": "sg-1"}]}, "SecurityGroupDrift"),
        ({"securityGroups": [{"id": "sg-1"}, {"id": "sg-2"}, {"id": "sg-3"}]}, "SecurityGroupDrift"),
        ({"subnets": [{"id": "subnet-2"}]}, "SubnetDrift"),
        ({"amis": [], "securityGroups": [], "subnets": []}, None),
    ],
)
def test_a_instance_drifts_from_what_is_no_longer_selected(change: dict[str, Any], drift: str | None) -> None:
    claim = {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}}
    assert reason(claim, INSTANCE, {"metadata": {}, "status": STATUS | change}) == drift


@pytest.mark.parametrize(("listed", "drift"), [(["cr-1"], None), ([], "CapacityReservationDrift"), (None, None)])
def test_a_instance_of_a_reservation_drifts_once_it_is_reported_that_there_is_none_such(
    listed: list[str] | None, drift: str | None
) -> None:
    held = msgspec.structs.replace(INSTANCE, labels={"karpenter.k8s.aws/capacity-reservation-id": "cr-1"})
    reported = {} if listed is None else {"capacityReservations": [{"id": each} for each in listed]}
    assert reason({"metadata": {}}, held, {"metadata": {}, "status": STATUS | reported}) == drift


@pytest.mark.parametrize(
    ("stands", "said", "wants", "drift"),
    [
        ("pg-1", "pg-1", "pg-1", None),
        ("pg-1", "", "pg-1", None),  # launched before its claim was known
        ("", "pg-1", "pg-1", None),  # EC2 lags
        ("pg-1", "pg-1", "pg-2", "PlacementGroupDrift"),
        ("", "", "pg-1", "PlacementGroupDrift"),
        ("pg-1", "pg-1", "", "PlacementGroupDrift"),
        ("pg-1", "pg-1", None, None),
    ],
)
def test_a_instance_drifts_that_stands_in_another_placement_group_than_its_class_wants(
    stands: str, said: str, wants: str | None, drift: str | None
) -> None:
    def carried(value: str) -> dict[str, str]:
        return {"karpenter.k8s.aws/placement-group-id": value} if value else {}

    instance = msgspec.structs.replace(INSTANCE, labels=carried(stands))
    claim = {"metadata": {"labels": carried(said)}}
    assert reason(claim, instance, {"metadata": {}, "status": STATUS}, group=wants) == drift
