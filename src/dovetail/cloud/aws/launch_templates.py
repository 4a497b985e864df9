"""Launch templates: found again by a name that is a hash of everything in them, never made twice.

The name decides the content, so a template that exists under the name *is* the one we want; after a
crash the next run finds it. Templates no launch has used for a while are taken away.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, is_not_found
from dovetail.cloud.aws.instances import CLASS_TAG, CLUSTER_TAG
from dovetail.cloud.aws.placement_groups import InstancePlacement
from dovetail.model.kinds.convert_v1alpha5 import LAUNCH_TEMPLATE_ANNOTATION
from dovetail.model.quantity import whole

PREFIX = "karpenter.k8s.aws/"
GI = 1 << 30

#: How long a template may lie unused before it goes, in seconds.
IDLE = 3600.0

_DEFAULT_DEVICES: Mapping[str, tuple[tuple[str, int], ...]] = {
    "AL2": (("/dev/xvda", 20),),
    "AL2023": (("/dev/xvda", 20),),
    "Bottlerocket": (("/dev/xvda", 4), ("/dev/xvdb", 20)),
    "Windows2019": (("/dev/sda1", 50),),
    "Windows2022": (("/dev/sda1", 50),),
    "Windows2025": (("/dev/sda1", 50),),
}


class LaunchTemplateContent(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a template's content."""

    family: str
    image_id: str
    profile: str
    groups: tuple[str, ...]
    user_data: str  # base64
    spec: Mapping[str, Any]  # of the node class
    tags: Mapping[str, str]
    capacity_type: str
    efa: int = 0
    enclave: bool = False
    tenancy: str = "default"
    ipv6: bool = False
    place: InstancePlacement = InstancePlacement()
    reservation_id: str | None = None
    market: str = ""  # of a reservation that is not of the usual sort
    open_reservations: bool = False  # on-demand instances may fill open capacity reservations

    def name(self) -> str:
        parts = (
            self.family,
            self.image_id,
            self.profile,
            self.groups,
            self.user_data,
            dict(self.tags),
            self.capacity_type,
            self.efa,
            self.enclave,
            self.tenancy,
            self.ipv6,
            self.place.ec2(),
            self.reservation_id,
            self.market,
            *((True,) if self.open_reservations else ()),
            {key: self.spec.get(key) for key in _SPEC_FIELDS},
        )
        return PREFIX + str(int(hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16], 16))


_SPEC_FIELDS = (
    "blockDeviceMappings",
    "metadataOptions",
    "detailedMonitoring",
    "associatePublicIPAddress",
    "ipPrefixCount",
    "networkInterfaces",
    "connectionTracking",
    "cpuOptions",
)


def devices(spec: Mapping[str, Any], family: str) -> list[dict[str, Any]]:
    """Block devices as EC2 wants them: sizes in whole GiB, encrypted gp3 where nothing is said."""
    own: Sequence[Mapping[str, Any]] = spec.get("blockDeviceMappings") or ()
    if not own:
        return [
            {
                "DeviceName": name,
                "Ebs": {"VolumeSize": size, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True},
            }
            for name, size in _DEFAULT_DEVICES.get(family, ())
        ]
    return [_device(entry) for entry in own]


def _device(entry: Mapping[str, Any]) -> dict[str, Any]:
    ebs: Mapping[str, Any] = entry.get("ebs") or {}
    names = {
        "deleteOnTermination": "DeleteOnTermination",
        "encrypted": "Encrypted",
        "iops": "Iops",
        "kmsKeyID": "KmsKeyId",
        "snapshotID": "SnapshotId",
        "throughput": "Throughput",
        "volumeInitializationRate": "VolumeInitializationRate",
        "volumeType": "VolumeType",
    }
    made = {ec2: ebs[ours] for ours, ec2 in names.items() if ebs.get(ours) is not None}
    if ebs.get("volumeSize") is not None:
        made["VolumeSize"] = math.ceil(whole(str(ebs["volumeSize"])) / GI)
    return {"DeviceName": entry.get("deviceName") or "/dev/xvda", "Ebs": made}


def data(blueprint: LaunchTemplateContent) -> dict[str, Any]:
    """LaunchTemplateData. Instance type and instance tags come with the fleet."""
    spec = blueprint.spec
    options: Mapping[str, Any] = spec.get("metadataOptions") or {}
    made: dict[str, Any] = {
        "ImageId": blueprint.image_id,
        "IamInstanceProfile": {"Name": blueprint.profile},
        "BlockDeviceMappings": devices(spec, blueprint.family),
        "MetadataOptions": {
            "HttpEndpoint": options.get("httpEndpoint", "enabled"),
            "HttpProtocolIpv6": options.get("httpProtocolIPv6", "disabled"),
            "HttpPutResponseHopLimit": options.get("httpPutResponseHopLimit", 1),
            "HttpTokens": options.get("httpTokens", "required"),
            "InstanceMetadataTags": "disabled",
        },
        "Monitoring": {"Enabled": bool(spec.get("detailedMonitoring"))},
        "NetworkInterfaces": interfaces(blueprint),
        "TagSpecifications": _tagged(("network-interface",), blueprint.tags),
    }
    if blueprint.user_data:
        made["UserData"] = blueprint.user_data
    if blueprint.capacity_type == "spot":
        made["TagSpecifications"] += _tagged(("spot-instances-request",), blueprint.tags)
    if placement := _placement(blueprint):
        made["Placement"] = placement
    if blueprint.enclave:
        made["EnclaveOptions"] = {"Enabled": True}
    if nested := (spec.get("cpuOptions") or {}).get("nestedVirtualization"):
        made["CpuOptions"] = {"NestedVirtualization": nested}
    if reservation := _reservation(blueprint):
        made["CapacityReservationSpecification"] = reservation
    if blueprint.market:
        made["InstanceMarketOptions"] = {"MarketType": blueprint.market}
    return made


def _placement(blueprint: LaunchTemplateContent) -> dict[str, Any]:
    """Tenancy and placement group."""
    tenancy = {"Tenancy": blueprint.tenancy} if blueprint.tenancy != "default" else {}
    return tenancy | blueprint.place.ec2()


def _reservation(blueprint: LaunchTemplateContent) -> dict[str, Any]:
    """An instance takes from the reservation it was planned for, and from no other, however open that may be.

    Without the feature gate ReservedCapacity no reservation is planned with, and EC2 fills open ones by itself.
    """
    if blueprint.open_reservations:
        return {}
    if not blueprint.reservation_id:
        return {"CapacityReservationPreference": "none"}
    return {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": blueprint.reservation_id},
    }


def interfaces(blueprint: LaunchTemplateContent) -> list[dict[str, Any]]:
    """Always at least one, because groups and public addresses are set per interface."""
    own: Sequence[Mapping[str, Any]] = blueprint.spec.get("networkInterfaces") or ()
    if own:
        return [
            _interface(
                blueprint,
                card=nic["networkCardIndex"],
                device=nic["deviceIndex"],
                kind=nic.get("interfaceType", "interface"),
            )
            for nic in own
        ]
    if blueprint.efa:
        return [_interface(blueprint, card=i, device=min(i, 1), kind="efa") for i in range(blueprint.efa)]
    return [_interface(blueprint, card=0, device=0, kind="interface")]


def _interface(blueprint: LaunchTemplateContent, *, card: int, device: int, kind: str) -> dict[str, Any]:
    spec = blueprint.spec
    made: dict[str, Any] = {"NetworkCardIndex": card, "DeviceIndex": device, "Groups": list(blueprint.groups)}
    if kind != "interface":
        made["InterfaceType"] = kind
    if kind == "efa-only":
        return made
    if spec.get("associatePublicIPAddress") is not None and card == 0 and device == 0:
        made["AssociatePublicIpAddress"] = spec["associatePublicIPAddress"]
    if spec.get("ipPrefixCount"):
        made["Ipv6PrefixCount" if blueprint.ipv6 else "Ipv4PrefixCount"] = spec["ipPrefixCount"]
    if blueprint.ipv6:
        made |= {"PrimaryIpv6": True, "Ipv6AddressCount": 1}
    if tracking := spec.get("connectionTracking"):
        names = {
            "tcpEstablishedTimeout": "TcpEstablishedTimeout",
            "udpStreamTimeout": "UdpStreamTimeout",
            "udpTimeout": "UdpTimeout",
        }
        made["ConnectionTrackingSpecification"] = {names[key]: value for key, value in tracking.items()}
    return made


def _tagged(kinds: Sequence[str], tags: Mapping[str, str]) -> list[dict[str, Any]]:
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds] if listed else []


def own(node_class: Mapping[str, Any]) -> str:
    """The launch template that the owner of a first-generation class made, to be used as it is; empty for none."""
    annotation: str = (node_class["metadata"].get("annotations") or {}).get(LAUNCH_TEMPLATE_ANNOTATION, "")
    return annotation


class LaunchTemplates:
    """Ensures templates, remembers which were used, takes the idle ones away."""

    def __init__(self, calls: Calls, clock: Clock, cluster: str) -> None:
        self._calls = calls
        self._clock = clock
        self._cluster = cluster
        self._used: dict[str, float] = {}
        self._making: dict[str, asyncio.Lock] = {}

    async def ensure(self, blueprint: LaunchTemplateContent, class_name: str) -> str:
        """The name of a template with exactly this content; a caller waits if it is being created."""
        name = blueprint.name()
        if name not in self._used:
            async with self._making.setdefault(name, asyncio.Lock()):
                if name not in self._used and not await self.exists(name):
                    await self._create(name, blueprint, class_name)
            self._making.pop(name, None)
        self._used[name] = self._clock.monotonic()
        return name

    def forget(self, name: str) -> None:
        """It turned out to be gone: look again before the next use."""
        self._used.pop(name, None)

    async def sweep(self) -> None:
        """Take away what has not been used for a while, ours from earlier lives included."""
        now = self._clock.monotonic()
        for template in await self._ours({f"tag:{CLUSTER_TAG}": self._cluster}):
            used = self._used.get(template)
            if used is None:
                self._used[template] = now  # from an earlier life: it gets its full idle time
            elif now - used > IDLE:
                await self._delete(template)

    async def release(self, class_name: str) -> None:
        for template in await self._ours({f"tag:{CLUSTER_TAG}": self._cluster, f"tag:{CLASS_TAG}": class_name}):
            await self._delete(template)

    async def _ours(self, tags: Mapping[str, str]) -> list[str]:
        search = [{"Name": name, "Values": [value]} for name, value in tags.items()]
        rows = await self._calls.all(
            "ec2", "describe_launch_templates", "LaunchTemplates", Filters=search, MaxResults=200
        )
        return [row["LaunchTemplateName"] for row in rows if row["LaunchTemplateName"].startswith(PREFIX)]

    async def exists(self, name: str) -> bool:
        try:
            answer = await self._calls("ec2", "describe_launch_templates", LaunchTemplateNames=[name])
        except Exception as error:
            if is_not_found(error):
                return False
            raise
        return bool(answer.get("LaunchTemplates"))

    async def _create(self, name: str, blueprint: LaunchTemplateContent, class_name: str) -> None:
        tags = {**blueprint.tags, CLUSTER_TAG: self._cluster, CLASS_TAG: class_name}
        try:
            await self._calls(
                "ec2",
                "create_launch_template",
                LaunchTemplateName=name,
                LaunchTemplateData=data(blueprint),
                TagSpecifications=_tagged(("launch-template",), tags),
            )
        except Exception as error:
            if code_of(error) != "InvalidLaunchTemplateName.AlreadyExistsException":
                raise

    async def _delete(self, name: str) -> None:
        self._used.pop(name, None)
        try:
            await self._calls("ec2", "delete_launch_template", LaunchTemplateName=name)
        except Exception as error:
            if not is_not_found(error):
                raise
