"""What an EC2NodeClass may hold and may not: a field and a value for each case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def class_fields(gone: object) -> Iterator[tuple[str, Any]]:
    for terms in (
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
    ):
        yield "spec.subnetSelectorTerms", terms
    for terms in (
        [],
        [{}],
        [{"id": "sg-1"}],
        [{"id": "x"}],
        [{"name": "x"}],
        [{"name": "x", "tags": {"a": "b"}}],
        [{"id": "sg-1", "name": "x"}],
        [{"id": "sg-1", "name": "x"}, {"name": "y"}],
    ):
        yield "spec.securityGroupSelectorTerms", terms
    for field in ("subnetSelectorTerms", "securityGroupSelectorTerms", "amiSelectorTerms", "role"):
        yield f"spec.{field}", gone
    yield "spec", gone
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
    ):
        yield "spec.amiSelectorTerms", [{"alias": alias}]
    for terms in (
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
    ):
        yield "spec.amiSelectorTerms", terms
    for family in ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2025", "Ubuntu", "al2023", ""):
        yield "spec.amiFamily", family
    yield "spec.role", ""
    yield "spec.instanceProfile", "x"
    yield "spec.instanceProfile", ""
    for key in (
        "eks:eks-cluster-name",
        "kubernetes.io/cluster/x",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
        "karpenter.sh/managed-by",
        "",
        "Name",
    ):
        yield "spec.tags", {key: "v"}
    yield "spec.tags", {"a": 1}
    for size in ("20Gi", "1Ti", "59000Gi", "59001Gi", "64T", "65T", "20", "0Gi", "20gi", "Ti"):
        yield "spec.blockDeviceMappings", [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}]
    for ebs in (
        {},
        {"snapshotID": "snap-1"},
        {"volumeSize": "20Gi", "volumeType": "gp9"},
        {"volumeSize": "20Gi", "volumeType": "gp3", "iops": 3000, "kmsKeyID": "x"},
        {"volumeSize": "20Gi", "volumeInitializationRate": 100},
        {"snapshotID": "snap-1", "volumeInitializationRate": 301},
        {"volumeSize": "20Gi", "iops": "many"},
    ):
        yield "spec.blockDeviceMappings", [{"ebs": ebs}]
    yield "spec.blockDeviceMappings", [{"rootVolume": True}, {"rootVolume": True}]
    yield "spec.blockDeviceMappings", [{"rootVolume": True}, {"rootVolume": False}]
    for options in (
        {"httpTokens": "optional"},
        {"httpTokens": "maybe"},
        {"httpPutResponseHopLimit": 0},
        {"httpPutResponseHopLimit": 65},
        {"httpEndpoint": "off"},
        {"httpProtocolIPv6": "enabled"},
        {},
    ):
        yield "spec.metadataOptions", options
    for kubelet in (
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
    ):
        yield "spec.kubelet", kubelet
    card = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    for interfaces in (
        [],
        [card],
        [{**card, "deviceIndex": 1}],
        [card, card],
        [card, {**card, "deviceIndex": 1, "interfaceType": "efa-only"}],
        [card, *({**card, "deviceIndex": index, "interfaceType": "efa-only"} for index in (1, 2))],
        [{"interfaceType": "interface"}],
        [{**card, "interfaceType": "efa"}],
    ):
        yield "spec.networkInterfaces", interfaces
    for terms in (
        [{"id": "cr-1"}],
        [{"id": "x"}],
        [{"ownerID": "123456789012"}],
        [{"tags": {"a": "b"}, "ownerID": "1"}],
        [{"id": "cr-1", "tags": {"a": "b"}}],
        [{"instanceMatchCriteria": "closed"}],
        [],
    ):
        yield "spec.capacityReservationSelectorTerms", terms
    for group in ({}, {"name": "x"}, {"id": "pg-1"}, {"name": "x", "id": "pg-1"}, {"name": ""}):
        yield "spec.placementGroupSelector", group
    for tracking in ({}, {"udpTimeout": 30}, {"udpTimeout": 29}, {"tcpEstablishedTimeout": 432001}):
        yield "spec.connectionTracking", tracking
    yield "spec.instanceStorePolicy", "RAID1"
    yield "spec.cpuOptions", {"nestedVirtualization": "on"}
    yield "spec.ipPrefixCount", -1
    yield "spec.userdata", "x"
    yield "spec.subnetSelector", {"a": "b"}
