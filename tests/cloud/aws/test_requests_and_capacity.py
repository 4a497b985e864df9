"""The provider's pure corners: choices, templates, messages, errors."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws import create_fleet, errors, instance_status, instances, launch_templates, sqs
from dovetail.cloud.aws.amis import Ami, Images, variants
from dovetail.cloud.aws.placement_groups import Ec2PlacementGroup, InstancePlacement
from dovetail.cloud.provider import LaunchOption, Remedy
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.requirements import requirement

VARIED = {"a": requirement("a", "Exists", (), 2)}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def option(name: str, kind: str, price: float, **capacity: int) -> LaunchOption:
    offering = Offering(zone="a", capacity_type=kind, price=price)
    made = InstanceType(name=name, capacity=capacity, overhead={}, labels={}, offerings=(offering,))
    return LaunchOption(instance_type=made, offering=offering)


def test_reserved_goes_before_spot_and_spot_before_on_demand() -> None:
    options = [option("a.l", "on-demand", 1), option("a.l", "spot", 0.5), option("a.l", "reserved", 0)]
    assert create_fleet.choose(options, {})[0] == "reserved"
    assert create_fleet.choose(options[:2], {})[0] == "spot"


def test_spot_dearer_than_on_demand_is_not_launched() -> None:
    options = [option("a.l", "on-demand", 1.0), option("b.l", "spot", 1.5)]
    kind, chosen = create_fleet.choose(options, {})
    assert (kind, [o.instance_type.name for o in chosen]) == ("on-demand", ["a.l"])
    assert create_fleet.choose([*options, option("c.l", "spot", 1.0)], {})[0] == "spot"  # no dearer is good enough
    assert create_fleet.choose(options, VARIED)[0] == "spot"  # a claim that requires variety keeps it


def test_metal_and_accelerators_stay_out_unless_nothing_else_remains() -> None:
    plain, metal, gpu = (
        option("a.l", "on-demand", 3),
        option("a.metal", "on-demand", 1),
        option("g.l", "on-demand", 2, **{"nvidia.com/gpu": 1}),
    )
    assert [o.instance_type.name for o in create_fleet.choose([plain, metal, gpu], {})[1]] == ["a.l"]
    assert [o.instance_type.name for o in create_fleet.choose([gpu, metal], {})[1]] == ["a.metal", "g.l"]
    assert len(create_fleet.choose([plain, metal, gpu], VARIED)[1]) == 3


def test_what_is_reserved_is_launched_even_if_plainer_instances_could_be_had_otherwise() -> None:
    """A reservation is paid for already: metal and accelerators stay out among reserved instances only."""
    gpu = option("p5.l", "reserved", 0, **{"nvidia.com/gpu": 8})
    kind, chosen = create_fleet.choose([gpu, option("m5.l", "on-demand", 1)], {})
    assert (kind, [o.instance_type.name for o in chosen]) == ("reserved", ["p5.l"])


def held(name: str, zone: str, reservation: str, free: int) -> LaunchOption:
    offering = Offering(
        zone=zone, capacity_type="reserved", price=0.0, reservation_id=reservation, reservation_capacity=free
    )
    made = InstanceType(name=name, capacity={}, overhead={}, labels={}, offerings=(offering,))
    return LaunchOption(instance_type=made, offering=offering)


def test_of_several_reservations_for_a_type_in_a_zone_the_fullest_is_named() -> None:
    options = [
        held("m5.l", "a", "cr-1", 1),
        held("m5.l", "a", "cr-2", 5),
        held("m5.l", "b", "cr-3", 1),
        held("c5.l", "a", "cr-4", 2),
    ]
    _, chosen = create_fleet.choose(options, {})
    assert {o.offering.reservation_id for o in chosen} == {"cr-2", "cr-3", "cr-4"}


def test_a_reservation_that_may_be_called_back_is_asked_for_as_such() -> None:
    labels = {"karpenter.k8s.aws/capacity-reservation-interruptible": "true"}
    lent = held("m5.l", "a", "cr-1", 1)
    lent = msgspec.structs.replace(lent, offering=msgspec.structs.replace(lent.offering, labels=labels))
    made = create_fleet.request("reserved", [lent], [], {}, "t", None)
    assert made["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "reserved-capacity"
    assert made["ReservedCapacityOptions"] == {"ReservationTypes": ["interruptible-capacity-reservation"]}
    assert "OnDemandOptions" not in made


def test_a_fleet_call_names_at_most_sixty_types_the_cheapest() -> None:
    options = [option(f"t{i}.l", "on-demand", float(i)) for i in range(100, 0, -1)]
    chosen = create_fleet.choose(options, {})[1]
    assert len(chosen) == 60 and chosen[0].instance_type.name == "t1.l"


@pytest.mark.parametrize("kind", ["on-demand", "spot"])
def test_ec2_goes_by_our_priorities_where_an_overlay_has_changed_a_price(kind: str) -> None:
    plain = option("a.l", kind, 1.0)
    other = msgspec.structs.replace(plain.offering, price=0.1, price_source="NodeOverlay ours")
    strategies = [
        (made.get("OnDemandOptions") or made["SpotOptions"])["AllocationStrategy"]
        for options in ([plain], [plain, msgspec.structs.replace(plain, offering=other)])
        for made in [create_fleet.request(kind, options, [], {}, "t", None)]
    ]
    usual = ["lowest-price", "prioritized"]
    assert strategies == (
        usual if kind == "on-demand" else ["price-capacity-optimized", "capacity-optimized-prioritized"]
    )


def blueprint(**change: object) -> launch_templates.LaunchTemplateContent:
    plain: dict[str, object] = {
        "family": "AL2023",
        "image_id": "ami-1",
        "profile": "p",
        "groups": ("sg-1",),
        "user_data": "eA==",
        "spec": {},
        "tags": {"a": "b"},
        "capacity_type": "on-demand",
    }
    return launch_templates.LaunchTemplateContent(**(plain | change))


def test_a_templates_name_follows_from_its_content() -> None:
    assert blueprint().name() == blueprint().name()
    others = [{"image_id": "ami-2"}, {"user_data": "eQ=="}, {"spec": {"detailedMonitoring": True}}, {"efa": 1}]
    assert len({blueprint(**change).name() for change in [{}, *others]}) == 5


def test_instances_of_an_ipv6_cluster_have_an_address_of_their_own_and_prefixes_of_that_kind() -> None:
    (card,) = launch_templates.interfaces(blueprint(ipv6=True, spec={"ipPrefixCount": 2}))
    assert (card["PrimaryIpv6"], card["Ipv6AddressCount"], card["Ipv6PrefixCount"]) == (True, 1, 2)
    (old,) = launch_templates.interfaces(blueprint(spec={"ipPrefixCount": 2}))
    assert old["Ipv4PrefixCount"] == 2 and "PrimaryIpv6" not in old


def test_instances_stand_in_the_placement_group_and_on_the_hardware_they_were_asked_for() -> None:
    def placed(**change: object) -> object:
        return launch_templates.data(blueprint(**change)).get("Placement")

    assert placed() is None
    assert placed(tenancy="dedicated") == {"Tenancy": "dedicated"}
    near, apart = (
        Ec2PlacementGroup(id="pg-1", name="a", strategy="cluster"),
        Ec2PlacementGroup(id="pg-2", name="b", strategy="partition"),
    )
    assert placed(tenancy="dedicated", place=InstancePlacement(group=near)) == {
        "Tenancy": "dedicated",
        "GroupId": "pg-1",
    }
    assert placed(place=InstancePlacement(group=apart, partition="3")) == {"GroupId": "pg-2", "PartitionNumber": 3}


def test_devices_are_reported_in_whole_gib_with_their_key() -> None:
    spec = {
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "rootVolume": True,
                "ebs": {
                    "volumeSize": "100G",
                    "volumeType": "gp3",
                    "encrypted": True,
                    "kmsKeyID": "arn:aws:kms:::key/1",
                },
            }
        ]
    }
    (device,) = launch_templates.data(blueprint(spec=spec))["BlockDeviceMappings"]
    assert device == {
        "DeviceName": "/dev/xvda",
        "Ebs": {"VolumeSize": 94, "VolumeType": "gp3", "Encrypted": True, "KmsKeyId": "arn:aws:kms:::key/1"},
    }


def test_a_bottlerocket_instance_has_its_two_volumes() -> None:
    devices = launch_templates.data(blueprint(family="Bottlerocket"))["BlockDeviceMappings"]
    assert [(d["DeviceName"], d["Ebs"]["VolumeSize"]) for d in devices] == [("/dev/xvda", 4), ("/dev/xvdb", 20)]


def envelope(source: str, kind: str, **detail: object) -> str:
    return json.dumps({"version": "0", "source": source, "detail-type": kind, "time": "t", "detail": detail})


@pytest.mark.parametrize(
    ("body", "kind", "ids"),
    [
        (
            envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", **{"instance-id": "i-1"}),
            "spot-interruption",
            ("i-1",),
        ),
        (envelope("aws.ec2", "EC2 Instance Rebalance Recommendation", **{"instance-id": "i-1"}), "rebalance", ("i-1",)),
        (
            envelope("aws.ec2", "EC2 Instance State-change Notification", **{"instance-id": "i-1", "state": "stopped"}),
            "instance-stopped",
            ("i-1",),
        ),
        (
            envelope("aws.ec2", "EC2 Instance State-change Notification", **{"instance-id": "i-1", "state": "running"}),
            "no-op",
            ("i-1",),
        ),
        (
            envelope(
                "aws.health",
                "AWS Health Event",
                service="EC2",
                eventTypeCategory="scheduledChange",
                affectedEntities=[{"entityValue": "i-1"}, {"entityValue": "i-2"}],
            ),
            "scheduled-change",
            ("i-1", "i-2"),
        ),
        (
            envelope(
                "aws.health", "AWS Health Event", service="EC2", eventTypeCategory="scheduledChange", affectedEntities=5
            ),
            "scheduled-change",
            (),
        ),
        ("[" * 100_000, "no-op", ()),
        ('{"time": 3}', "no-op", ()),
        ("not json", "no-op", ()),
        ("[]", "no-op", ()),
        ('{"detail": 3}', "no-op", ()),
        (envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", **{"instance-id": 7}), "no-op", ()),
    ],
)
def test_messages_are_read_and_garbage_is_taken_away(body: str, kind: str, ids: tuple[str, ...]) -> None:
    found = sqs.parse(body, "receipt", NOW)
    assert (found.kind, found.provider_ids, found.receipt) == (kind, ids, "receipt")


@pytest.mark.parametrize(
    ("code", "text", "reason", "remedy"),
    [
        ("RequestLimitExceeded", "", "RequestLimitExceeded", Remedy.RETRY),
        ("UnauthorizedOperation", "", "Unauthorized", Remedy.OPERATOR),
        ("ExpiredToken", "", "Unauthorized", Remedy.OPERATOR),
        ("VcpuLimitExceeded", "", "VCPULimitExceeded", Remedy.NEXT_OFFERING),
        ("InsufficientInstanceCapacity", "", "InsufficientCapacityError", Remedy.NEXT_OFFERING),
        ("InvalidParameterValue", "Invalid IAM Instance Profile name", "InstanceProfileNameInvalid", Remedy.RETRY),
        (
            "InvalidParameterValue",
            "The security group and subnet are in different networks",
            "SecurityGroupSubnetVPCMismatch",
            Remedy.OPERATOR,
        ),
        ("InvalidAMIID.NotFound", "", "AMINotFound", Remedy.OPERATOR),
        ("SomethingNew", "", "LaunchFailed", Remedy.RETRY),
        ("ThrottledException", "", "RequestLimitExceeded", Remedy.RETRY),
        ("SlowDown", "", "RequestLimitExceeded", Remedy.RETRY),
        ("LimitExceeded", "", "QuotaExceeded", Remedy.OPERATOR),
        ("ServerException", "", "InternalError", Remedy.RETRY),
        ("503", "", "InternalError", Remedy.RETRY),
        ("SSLError", "", "Unreachable", Remedy.RETRY),
        (
            "InvalidFleetConfiguration",
            "Your requested instance type (m5.large) is not supported in your requested"
            " Availability Zone (us-east-1e).",
            "Unsupported",
            Remedy.NEXT_OFFERING,
        ),
        ("InvalidFleetConfiguration", "No default VPC", "InvalidFleetConfiguration", Remedy.OPERATOR),
        ("InstanceLimitExceeded", "", "InstanceLimitExceeded", Remedy.NEXT_OFFERING),
        ("InsufficientHostCapacity", "", "InsufficientCapacityError", Remedy.NEXT_OFFERING),
        ("InvalidSubnetID.NotFound", "", "SubnetNotFound", Remedy.OPERATOR),
        ("InvalidGroup.NotFound", "", "SecurityGroupNotFound", Remedy.OPERATOR),
        ("OptInRequired", "", "OptInRequired", Remedy.OPERATOR),
        ("InvalidSnapshot.NotFound", "", "SnapshotNotFound", Remedy.OPERATOR),
        ("OperationNotPermitted", "", "OperationNotPermitted", Remedy.OPERATOR),
    ],
)
def test_every_error_has_a_reason_and_a_remedy(code: str, text: str, reason: str, remedy: Remedy) -> None:
    found = errors.explain(code, text)
    assert (found.reason, found.remedy) == (reason, remedy)


@pytest.mark.parametrize(
    "code",
    [
        "ThrottledException",
        "SlowDown",
        "ServiceUnavailableException",
        "ServerException",
        "InternalServerError",
        "500",
        "502",
        "503",
        "SSLError",
        "ProxyConnectionError",
        "IncompleteRead",
    ],
)
def test_a_failure_of_the_service_or_of_the_way_to_it_is_tried_again(code: str) -> None:
    failure = type(code, (Exception,), {"response": {"Error": {"Code": code}}})
    assert errors.is_passing(failure())


def test_a_zone_without_the_type_is_the_next_offering_for_the_whole_launch() -> None:
    words = "Your requested instance type (m5.large) is not supported in your requested Availability Zone (a)."
    refusal = create_fleet.RefusedOffering("InvalidFleetConfiguration", words, ("m5.large", "a", "on-demand"))
    assert create_fleet.failure([refusal]).remedy is Remedy.NEXT_OFFERING


def test_images_say_by_architecture_and_known_labels_which_instances_they_are_for() -> None:
    """Images for instances that Kubernetes does not know are left out; a tag that is no instance label says nothing."""

    class Ec2:
        async def all(self, service: str, operation: str, field: str, **asked: Any) -> list[dict[str, Any]]:
            tags = {"node.kubernetes.io/instance-type": "m5.large", "karpenter.k8s.aws/owner": "us"}
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            return [
                {"ImageId": "ami-1", "Architecture": "arm64", "Tags": listed},
                {"ImageId": "ami-2", "Architecture": "arm64_mac"},
            ]

    async def main() -> tuple[Ami, ...]:
        clock = Clock(asyncio.get_running_loop())
        return await Images(Ec2(), clock).select([{"tags": {"team": "shop"}}], "1.34")

    (image,) = run_virtual(main())
    assert image.id == "ami-1"
    assert image.requirements == (
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
    )


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({}, "on-demand"),
        ({"SpotInstanceRequestId": "sir-1"}, "spot"),
        ({"InstanceLifecycle": "spot"}, "spot"),
        ({"CapacityReservationId": "cr-1"}, "on-demand"),  # an open reservation that it happened to match
        (
            {
                "CapacityReservationId": "cr-1",
                "CapacityReservationSpecification": {"CapacityReservationPreference": "capacity-reservations-only"},
            },
            "reserved",
        ),
    ],
)
def test_a_instance_is_of_the_capacity_type_it_was_launched_as(row: dict[str, Any], kind: str) -> None:
    assert instances.capacity_type(row) == kind


def test_of_images_for_the_same_instances_the_newest_counts_that_is_not_deprecated() -> None:
    class Ec2:
        async def all(self, service: str, operation: str, field: str, **asked: Any) -> list[dict[str, Any]]:
            return [
                {"ImageId": "ami-old", "CreationDate": "2025-01-01T00:00:00Z", "Name": "a"},
                {
                    "ImageId": "ami-good",
                    "CreationDate": "2025-06-01T00:00:00Z",
                    "Name": "b",
                    "DeprecationTime": "2030-01-01T00:00:00.000Z",
                },
                {
                    "ImageId": "ami-withdrawn",
                    "CreationDate": "2025-09-01T00:00:00Z",
                    "Name": "c",
                    "DeprecationTime": "2025-12-31T00:00:00.000Z",
                },
            ]

    async def main() -> tuple[Ami, ...]:
        clock = Clock(asyncio.get_running_loop(), NOW)
        return await Images(Ec2(), clock).select([{"name": "mine-*"}], "1.34")

    assert [image.id for image in run_virtual(main())] == ["ami-good"]


def test_an_alias_names_the_parameters_aws_publishes() -> None:
    names = [v.parameter for v in variants("al2023", "latest", "1.34")]
    assert "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/standard/recommended/image_id" in names
    pinned = [v.parameter for v in variants("bottlerocket", "v1.20.1", "1.34")]
    assert "/aws/service/bottlerocket/aws-k8s-1.34/arm64/1.20.1/image_id" in pinned


def test_instances_are_ill_when_a_check_has_failed_for_two_minutes_or_an_event_lies_ahead() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def row(name: str, ill_for: float | None = None, **event: str) -> dict[str, Any]:
        check: dict[str, Any] = {"Status": "ok"}
        if ill_for is not None:
            check = {"Status": "impaired", "Details": [{"ImpairedSince": now - timedelta(seconds=ill_for)}]}
        return {"InstanceId": name, "SystemStatus": check, "Events": [event] if event else []}

    rows = [
        row("i-well"),
        row("i-new", 60),
        row("i-ill", 130),
        row("i-soon", Code="instance-retirement"),
        row("i-past", Code="system-reboot", Description="[Completed] The instance was rebooted"),
    ]

    class Calls:
        async def all(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
            return rows

    found = asyncio.run(instance_status.unhealthy(Calls(), now))
    assert [(each.kind, each.provider_ids) for each in found] == [
        ("status-check-failed", ("i-ill",)),
        ("scheduled-event", ("i-soon",)),
    ]
