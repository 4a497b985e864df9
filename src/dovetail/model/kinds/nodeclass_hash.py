"""The hash of an EC2NodeClass, by which a node is known to be of an old one: Karpenter's own, to the bit.

What selects (subnets, security groups, images, reservations) is left out: nodes are compared with what it
selects. The family that the images resolve to counts, and so does the cluster's certificate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.model import duration, quantity
from dovetail.model.kinds.struct_hash import bag, mapping, number, struct, word

HASH_ANNOTATION = "karpenter.k8s.aws/ec2nodeclass-hash"
VERSION_ANNOTATION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
VERSION = "v5"

Hash = Callable[[Any], int | None]
_ACRONYM = re.compile(r"cpu|ebs|http|id|iops|kms|tcp|udp")


def unmarked(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """The annotations of a class without those that carry its hash."""
    marks = (HASH_ANNOTATION, VERSION_ANNOTATION)
    return {key: value for key, value in (annotations or {}).items() if key not in marks}


def _field(name: str) -> str:
    """A field's name in Go: `httpTokens` is HTTPTokens."""
    match = _ACRONYM.match(name)
    end = match.end() if match else 1
    return name[:end].upper() + name[end:]


def _of(name: str, /, **fields: Hash) -> Hash:
    """The hash of an object with these fields, in this order."""
    named = [(key, _field(key), hashed) for key, hashed in fields.items()]
    return lambda value: struct(
        name, ((field, hashed(value[key])) for key, field, hashed in named if value.get(key) is not None)
    )


def _said(hashed: Hash) -> Hash:
    """A field that is there only if it holds more than nothing."""
    return lambda value: hashed(value) if value else None


def _each(hashed: Hash) -> Hash:
    return lambda values: bag(hashed(value) or 0 for value in values)


def _map(hashed: Callable[[Any], int]) -> Hash:
    return lambda values: mapping({key: hashed(value) for key, value in values.items()})


def _small(value: int) -> int:
    return number(value, 4)


def _flag(value: bool) -> int:
    return number(value, 1)


def _length(text: str) -> int:
    try:
        length = duration.nanoseconds(text)
    except duration.DurationError:  # the definition lets it pass
        return word(text)
    return struct("Duration", (("Duration", number(length) if length else None),))


def _size(text: object) -> int:
    return word(str(quantity.parse(str(text))))


_KUBELET = _of(
    "KubeletConfiguration",
    clusterDNS=_each(word),
    maxPods=_small,
    podsPerCore=_small,
    systemReserved=_map(word),
    kubeReserved=_map(word),
    evictionHard=_map(word),
    evictionSoft=_map(word),
    evictionSoftGracePeriod=_map(_length),
    evictionMaxPodGracePeriod=_small,
    imageGCHighThresholdPercent=_small,
    imageGCLowThresholdPercent=_small,
    cpuCFSQuota=_flag,
)
_VOLUME = _of(
    "BlockDevice",
    deleteOnTermination=_flag,
    encrypted=_flag,
    iops=number,
    kmsKeyID=word,
    snapshotID=word,
    throughput=number,
    volumeInitializationRate=_small,
    volumeSize=_size,
    volumeType=word,
)
_SPEC = _of(
    "EC2NodeClassSpec",
    placementGroupSelector=_of("PlacementGroupSelector", name=word, id=word),
    associatePublicIPAddress=_flag,
    userData=word,
    role=_said(word),
    instanceProfile=word,
    tags=_map(word),
    kubelet=_KUBELET,
    blockDeviceMappings=_each(_of("BlockDeviceMapping", deviceName=word, ebs=_VOLUME, rootVolume=_said(_flag))),
    instanceStorePolicy=word,
    networkInterfaces=_each(
        _of(
            "NetworkInterface",
            networkCardIndex=_said(_small),
            deviceIndex=_said(_small),
            interfaceType=_said(word),
        )
    ),
    detailedMonitoring=_flag,
    metadataOptions=_of(
        "MetadataOptions", httpEndpoint=word, httpProtocolIPv6=word, httpPutResponseHopLimit=number, httpTokens=word
    ),
    connectionTracking=_of(
        "ConnectionTracking", tcpEstablishedTimeout=_small, udpStreamTimeout=_small, udpTimeout=_small
    ),
    context=word,
    cpuOptions=_of("CPUOptions", nestedVirtualization=word),
)


def class_hash(spec: Mapping[str, Any], family: str, certificate: str = "") -> str:
    """The static hash of a node class's spec, as its annotation has it. `certificate` is the cluster's, base64."""
    return str(bag((_SPEC(spec) or 0, word(family), word(certificate))))
