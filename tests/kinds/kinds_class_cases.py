"""What an EC2NodeClass may hold and may not: for each field the values that are tried, in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: Stands for a field that is left out.
GONE = object()
_CARD = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}

_FIELDS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (
        "spec.subnetSelectorTerms",
        (
            [],
            [{}],
            [{"tags": {"a": ""}}],
            [{"tags": {"": "b"}}],
            [{"id": "subnet-1"}],
            [{"id": "vpc-1"}],
            [{"id": "subnet-1", "tags": {"a": "b"}}],
            [{"id": "subnet-1", "tags": {"a": "b"}}, {"tags": {"a": "b"}}],
            [{"tags": {f"k{index}": "v" for index in range(21)}}],
            [{"tags": {"a": "b"}}] * 31,
            [{"name": "x"}],
        ),
    ),
    (
        "spec.securityGroupSelectorTerms",
        (
            [],
            [{}],
            [{"id": "sg-1"}],
            [{"id": "x"}],
            [{"name": "x"}],
            [{"name": "x", "tags": {"a": "b"}}],
            [{"id": "sg-1", "name": "x"}],
            [{"id": "sg-1", "name": "x"}, {"name": "y"}],
        ),
    ),
    ("spec.subnetSelectorTerms", (GONE,)),
    ("spec.securityGroupSelectorTerms", (GONE,)),
    ("spec.amiSelectorTerms", (GONE,)),
    ("spec.role", (GONE,)),
    ("spec", (GONE,)),
    (
        "spec.amiSelectorTerms",
        tuple(
            [{"alias": alias}]
            for alias in (
                "al2@latest",
                "al2023@v20240625",
                "bottlerocket@1.2",
                "windows2022@latest",
                "windows2022@v1",
                "ubuntu@latest",
                "al2023",
                "@latest",
                "AL2023@latest",
                "al2023@" + "x" * 30,
                "al2@a@b",
            )
        ),
    ),
    (
        "spec.amiSelectorTerms",
        (
            [],
            [{}],
            [{"alias": "al2@latest"}, {"id": "ami-1"}],
            [{"alias": "al2@latest", "id": "ami-1"}],
            [{"alias": "al2@latest", "name": "x"}],
            [{"id": "ami-1"}],
            [{"id": "ami-1", "owner": "self"}],
            [{"id": "x"}],
            [{"name": "x", "owner": "self"}],
            [{"owner": "self"}],
            [{"ssmParameter": "/a/b"}],
        ),
    ),
    ("spec.amiFamily", ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2025", "Ubuntu", "al2023", "")),
    ("spec.role", ("",)),
    ("spec.instanceProfile", ("x",)),
    ("spec.instanceProfile", ("",)),
    (
        "spec.tags",
        tuple(
            {key: "v"}
            for key in (
                "eks:eks-cluster-name",
                "kubernetes.io/cluster/x",
                "karpenter.sh/nodepool",
                "karpenter.sh/nodeclaim",
                "karpenter.k8s.aws/ec2nodeclass",
                "karpenter.sh/managed-by",
                "",
                "Name",
            )
        ),
    ),
    ("spec.tags", ({"a": 1},)),
    (
        "spec.blockDeviceMappings",
        tuple(
            [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}]
            for size in ("20Gi", "1Ti", "59000Gi", "59001Gi", "64T", "65T", "20", "0Gi", "20gi", "Ti")
        ),
    ),
    (
        "spec.blockDeviceMappings",
        tuple(
            [{"ebs": ebs}]
            for ebs in (
                {},
                {"snapshotID": "snap-1"},
                {"volumeSize": "20Gi", "volumeType": "gp9"},
                {"volumeSize": "20Gi", "volumeType": "gp3", "iops": 3000, "kmsKeyID": "x"},
                {"volumeSize": "20Gi", "volumeInitializationRate": 100},
                {"snapshotID": "snap-1", "volumeInitializationRate": 301},
                {"volumeSize": "20Gi", "iops": "many"},
            )
        ),
    ),
    ("spec.blockDeviceMappings", ([{"rootVolume": True}, {"rootVolume": True}],)),
    ("spec.blockDeviceMappings", ([{"rootVolume": True}, {"rootVolume": False}],)),
    (
        "spec.metadataOptions",
        (
            {"httpTokens": "optional"},
            {"httpTokens": "maybe"},
            {"httpPutResponseHopLimit": 0},
            {"httpPutResponseHopLimit": 65},
            {"httpEndpoint": "off"},
            {"httpProtocolIPv6": "enabled"},
            {},
        ),
    ),
    (
        "spec.kubelet",
        (
            {"maxPods": -1},
            {"maxPods": 110, "podsPerCore": 4},
            {"kubeReserved": {"cpu": "100m", "gpu": "1"}},
            {"kubeReserved": {"cpu": "-1"}},
            {"kubeReserved": {"cpu": "x"}},
            {"systemReserved": {"pid": "100"}},
            {"systemReserved": {"memory": "-1Gi"}},
            {"evictionHard": {"memory.available": "5%"}},
            {"evictionHard": {"memory.available": "110%"}},
            {"evictionHard": {"memory": "5%"}},
            {"evictionSoft": {"memory.available": "5%"}},
            {"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"nodefs.available": "1m"}},
            {"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
            {"evictionSoftGracePeriod": {"memory.available": "1m"}},
            {"evictionSoft": {}},
            {"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 60},
            {"imageGCHighThresholdPercent": 101},
            {"clusterDNS": ["10.0.0.10"]},
            {"containerRuntime": "containerd"},
        ),
    ),
    (
        "spec.networkInterfaces",
        (
            [],
            [_CARD],
            [{**_CARD, "deviceIndex": 1}],
            [_CARD, _CARD],
            [_CARD, {**_CARD, "deviceIndex": 1, "interfaceType": "efa-only"}],
            [_CARD, *({**_CARD, "deviceIndex": index, "interfaceType": "efa-only"} for index in (1, 2))],
            [{"interfaceType": "interface"}],
            [{**_CARD, "interfaceType": "efa"}],
        ),
    ),
    (
        "spec.capacityReservationSelectorTerms",
        (
            [{"id": "cr-1"}],
            [{"id": "x"}],
            [{"ownerID": "123456789012"}],
            [{"tags": {"a": "b"}, "ownerID": "1"}],
            [{"id": "cr-1", "tags": {"a": "b"}}],
            [{"instanceMatchCriteria": "closed"}],
            [],
        ),
    ),
    ("spec.placementGroupSelector", ({}, {"name": "x"}, {"id": "pg-1"}, {"name": "x", "id": "pg-1"}, {"name": ""})),
    ("spec.connectionTracking", ({}, {"udpTimeout": 30}, {"udpTimeout": 29}, {"tcpEstablishedTimeout": 432001})),
    ("spec.instanceStorePolicy", ("RAID1",)),
    ("spec.cpuOptions", ({"nestedVirtualization": "on"},)),
    ("spec.ipPrefixCount", (-1,)),
    ("spec.userdata", ("x",)),
    ("spec.subnetSelector", ({"a": "b"},)),
)


def class_fields() -> Iterator[tuple[str, Any]]:
    """A field and a value for each case."""
    for path, values in _FIELDS:
        for value in values:
            yield path, value
