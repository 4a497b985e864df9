"""What a node class makes of an instance type: how much of it is left for pods, and whether it can be launched so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.cloud.aws import capacity, catalog, ec2nodeclass
from dovetail.cloud.aws.instance_type_labels import is_compatible
from dovetail.cloud.aws.placement_groups import Ec2PlacementGroup

GI = 1 << 30
PLAIN = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}


def fabric(card: int, device: int) -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": "efa-only"}


@pytest.mark.parametrize(
    ("family", "devices", "size"),
    [
        ("AL2023", [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "50Gi"}}], 50 * GI),
        ("AL2023", [{"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "50Gi"}}], None),
        ("Bottlerocket", [{"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "1T"}}], 10**12),
        ("Custom", [{"deviceName": "/dev/a", "ebs": {"volumeSize": "5Gi"}}, {"deviceName": "/dev/b", "ebs": {}}], None),
        (
            "Windows2022",
            [
                {"deviceName": "/dev/sda1", "ebs": {"volumeSize": "60Gi"}},
                {"deviceName": "/dev/sdz", "rootVolume": True, "ebs": {"snapshotID": "snap-1"}},
            ],
            60 * GI,
        ),
    ],
)
def test_pods_files_live_on_the_root_volume_whose_size_is_said(family: str, devices: Any, size: int | None) -> None:
    """A root volume from a snapshot says no size: then the family's own device may."""
    assert ec2nodeclass.disk({"amiFamily": family, "blockDeviceMappings": devices}).size == size


def test_a_percentage_of_a_disk_is_what_karpenter_counts_to_the_byte() -> None:
    spec = {"kubelet": {"evictionHard": {"nodefs.available": "3.33%"}}, "instanceStorePolicy": "RAID0"}
    kept = capacity.overhead(
        catalog.specs()["x1.32xlarge"], kubelet=ec2nodeclass.kubelet(spec), disk=ec2nodeclass.disk(spec)
    )
    assert kept["ephemeral-storage"] == 127872000000 + GI


def test_an_interface_for_the_fabric_alone_takes_addresses_from_pods_and_their_memory_from_the_kubelet() -> None:
    spec = catalog.specs()["g6.8xlarge"]
    with_fabric = capacity.CapacitySettings(efa_only_interfaces=1)
    fewer = spec.ipv4_per_interface - 1
    assert capacity.capacity(spec)["pods"] - capacity.capacity(spec, settings=with_fabric)["pods"] == fewer
    freed = capacity.overhead(spec)["memory"] - capacity.overhead(spec, settings=with_fabric)["memory"]
    assert freed == 11 * fewer << 20


def test_windows_has_no_instance_of_the_other_architecture() -> None:
    windows = capacity.FAMILIES["Windows2022"]
    assert not windows.runs_on(catalog.specs()["m6g.large"])
    assert "vpc.amazonaws.com/PrivateIPv4Address" not in capacity.capacity(catalog.specs()["m6g.large"], windows)
    assert capacity.capacity(catalog.specs()["m5.large"], windows)["vpc.amazonaws.com/PrivateIPv4Address"] == 9


@pytest.mark.parametrize(
    ("name", "asked", "good"),
    [
        ("a1.medium", {"amiFamily": "AL2023"}, False),
        ("a1.medium", {"amiFamily": "Bottlerocket"}, True),
        ("m5.large", {"connectionTracking": {"udpTimeout": 30}}, True),
        ("m4.large", {"connectionTracking": {"udpTimeout": 30}}, False),
        ("m5.metal", {"connectionTracking": {"udpTimeout": 30}}, False),
        ("m5.large", {"cpuOptions": {"nestedVirtualization": "enabled"}}, False),
        ("m5.large", {"cpuOptions": {"nestedVirtualization": "disabled"}}, True),
        ("m5.large", {"networkInterfaces": [PLAIN]}, True),
        ("m5.large", {"networkInterfaces": [PLAIN, fabric(0, 1)]}, False),
        ("g6.8xlarge", {"networkInterfaces": [PLAIN, fabric(0, 1)]}, True),
        ("g6.8xlarge", {"networkInterfaces": [PLAIN, fabric(1, 0)]}, False),
        ("m5.large", {"networkInterfaces": [PLAIN, {**PLAIN, "deviceIndex": 3}]}, False),
        ("m1.small", {"networkInterfaces": [PLAIN]}, False),
    ],
)
def test_a_type_is_not_offered_to_a_class_that_asks_for_what_it_lacks(name: str, asked: Any, good: bool) -> None:
    assert is_compatible(catalog.specs()[name], asked) is good


def test_each_network_card_has_its_own_room() -> None:
    spec = msgspec.structs.replace(catalog.specs()["g6.8xlarge"], card_interfaces=(4, 1), efa=2)
    assert is_compatible(spec, {"networkInterfaces": [PLAIN, fabric(1, 0)]})
    assert not is_compatible(spec, {"networkInterfaces": [PLAIN, fabric(1, 1)]})


@pytest.mark.parametrize(
    ("name", "strategy", "good"),
    [("m5.large", "cluster", True), ("t3.large", "cluster", False), ("t3.large", "spread", True)],
)
def test_a_type_is_not_offered_into_a_placement_group_that_does_not_take_it(
    name: str, strategy: str, good: bool
) -> None:
    assert is_compatible(catalog.specs()[name], {}, Ec2PlacementGroup(id="pg-1", name="g", strategy=strategy)) is good


@pytest.mark.parametrize(
    ("terms", "amis", "version"),
    [
        ([{"alias": "bottlerocket@v1.20.3"}], [], "v1.20.3"),
        ([{"alias": "bottlerocket@latest"}], [], "latest"),
        ([{"name": "bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a"}], [], "v1.46.0"),
        ([{"id": "ami-1"}], [{"name": "bottlerocket-aws-k8s-1.33-x86_64-v1.40.0-431fe75a"}], "v1.40.0"),
        ([{"id": "ami-1"}], [{"name": "my-image"}], ""),
    ],
)
def test_an_images_version_is_in_its_alias_or_its_name(terms: Any, amis: Any, version: str) -> None:
    given = {"spec": {"amiSelectorTerms": terms}, "status": {"amis": amis}}
    assert ec2nodeclass.image_version(given) == version
