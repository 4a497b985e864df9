"""A node's disks, metadata service and network, as a node class sets them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.meta import View

VOLUME_SIZE = (
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|"
    r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|"
    r"([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$"
)
#: The device that pods' files live on, by AMI family; of a custom image it is unknown.
POD_DEVICES = {
    "AL2": "/dev/xvda",
    "AL2023": "/dev/xvda",
    "Bottlerocket": "/dev/xvdb",
    "Windows2019": "/dev/sda1",
    "Windows2022": "/dev/sda1",
    "Windows2025": "/dev/sda1",
}
VOLUME_TYPES = ("standard", "io1", "io2", "gp2", "sc1", "st1", "gp3")
SIZE_RULE = SchemaRule(
    "has(self.snapshotID) || has(self.volumeSize)",
    "snapshotID or volumeSize must be defined",
    lambda ebs: "snapshotID" in ebs or "volumeSize" in ebs,
)
RATE_RULE = SchemaRule(
    "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
    "snapshotID must be set when volumeInitializationRate is set",
    lambda ebs: "volumeInitializationRate" not in ebs or bool(ebs.get("snapshotID")),
)
ROOT_RULE = SchemaRule(
    "self.filter(x, has(x.rootVolume)?x.rootVolume==true:false).size() <= 1",
    "must have only one blockDeviceMappings with rootVolume",
    lambda mappings: sum(1 for mapping in mappings if mapping.get("rootVolume") is True) <= 1,
)


class BetaVolume(View, frozen=True, kw_only=True):
    """An EBS volume."""

    delete_on_termination: Annotated[bool | None, Field("Whether the volume goes with the node.")] = None
    encrypted: Annotated[bool | None, Field("Whether the volume is encrypted.")] = None
    iops: Annotated[int | None, Field("Operations per second to launch, for io1, io2 and gp3.", format="int64")] = None
    kms_key_id: Annotated[str | None, Field("Key to encrypt with; the account's default key if left out.")] = (
        msgspec.field(default=None, name="kmsKeyID")
    )
    snapshot_id: Annotated[str | None, Field("Snapshot to start from.")] = msgspec.field(
        default=None, name="snapshotID"
    )
    throughput: Annotated[int | None, Field("MiB per second to launch, for gp3.", format="int64")] = None
    volume_size: Annotated[str | None, Field("Size of the volume, such as 50Gi.", pattern=VOLUME_SIZE)] = None
    volume_type: Annotated[str | None, Field("Type of the volume.", enum=VOLUME_TYPES)] = None


class EbsVolume(BetaVolume, frozen=True, kw_only=True):
    volume_initialization_rate: Annotated[
        int | None,
        Field("MiB per second at which a snapshot is loaded.", format="int32", minimum=100, maximum=300),
    ] = None


class BetaDevice(View, frozen=True, kw_only=True):
    """A disk of the node."""

    device_name: Annotated[str | None, Field("Device name, such as /dev/xvda.")] = None
    ebs: Annotated[BetaVolume | None, Field("The volume behind it.", rules=(SIZE_RULE,))] = None
    root_volume: Annotated[
        bool | None, Field("Whether this is the root disk, whose size is the node's ephemeral storage.")
    ] = None


class Device(BetaDevice, frozen=True, kw_only=True):
    ebs: Annotated[EbsVolume | None, Field("The volume behind it.", rules=(SIZE_RULE, RATE_RULE))] = None


DEVICES = Field("Disks of the nodes; the image's own if left out.", max_items=50, rules=(ROOT_RULE,))


def _hop_limit(default: int) -> Field:
    return Field(
        "Network hops an answer may travel. 1 keeps pods out, 2 lets them in.",
        format="int64",
        minimum=1,
        maximum=64,
        default=default,
    )


class MetadataOptions(View, frozen=True, kw_only=True):
    """The instance metadata service."""

    http_endpoint: Annotated[
        str, Field("Whether the service answers.", enum=("enabled", "disabled"), default="enabled")
    ] = "enabled"
    http_protocol_ipv6: Annotated[
        str, Field("Whether it answers over IPv6.", enum=("enabled", "disabled"), default="disabled")
    ] = msgspec.field(default="disabled", name="httpProtocolIPv6")
    http_put_response_hop_limit: Annotated[int, _hop_limit(1)] = 1
    http_tokens: Annotated[
        str,
        Field("Whether a session token is needed (IMDSv2).", enum=("required", "optional"), default="required"),
    ] = "required"


class BetaMetadataOptions(MetadataOptions, frozen=True, kw_only=True):
    """Before v1 a half-written block got a hop limit of 2."""

    http_put_response_hop_limit: Annotated[int, _hop_limit(2)] = 2


METADATA_DEFAULT = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}
METADATA = Field("The instance metadata service.", default=METADATA_DEFAULT)


class NetworkInterface(View, frozen=True, kw_only=True):
    network_card_index: Annotated[
        int, Field("Network card the interface is on.", required=True, format="int32", minimum=0)
    ] = 0
    device_index: Annotated[
        int, Field("Place of the interface on the card.", required=True, format="int32", minimum=0)
    ] = 0
    interface_type: Annotated[
        str, Field("Plain, or for the elastic fabric alone.", required=True, enum=("interface", "efa-only"))
    ] = ""


def _distinct(interfaces: list[dict[str, Any]]) -> bool:
    places = [(interface["networkCardIndex"], interface["deviceIndex"]) for interface in interfaces]
    fabric = [interface["networkCardIndex"] for interface in interfaces if interface["interfaceType"] == "efa-only"]
    return len(places) == len(set(places)) and len(fabric) == len(set(fabric))


NETWORK_INTERFACES = Field(
    "Network interfaces of the nodes, where the plain single one will not do.",
    max_items=150,
    rules=(
        SchemaRule(
            "self.size() == 0 || self.exists(x, x.deviceIndex == 0 && x.networkCardIndex == 0 && "
            "x.interfaceType == 'interface')",
            "networkInterfaces must include a primary interface with interfaceType='interface'",
            lambda interfaces: (
                not interfaces
                or any(
                    (interface["deviceIndex"], interface["networkCardIndex"], interface["interfaceType"])
                    == (0, 0, "interface")
                    for interface in interfaces
                )
            ),
        ),
        SchemaRule(
            "self.all(x, self.filter(y, x.networkCardIndex == y.networkCardIndex && x.deviceIndex == "
            "y.deviceIndex).size() == 1 && (x.interfaceType != 'efa-only' || self.filter(y, x.networkCardIndex == "
            "y.networkCardIndex && y.interfaceType == 'efa-only').size() == 1))",
            "networkInterfaces must not have duplicate networkCardIndex and deviceIndex pairs, and can have at most "
            "one efa device per network card",
            _distinct,
        ),
    ),
)


class ConnectionTracking(View, frozen=True, kw_only=True):
    tcp_established_timeout: Annotated[
        int | None, Field("Seconds an idle TCP connection is remembered.", format="int32", minimum=60, maximum=432000)
    ] = None
    udp_stream_timeout: Annotated[
        int | None, Field("Seconds an idle UDP stream is remembered.", format="int32", minimum=60, maximum=180)
    ] = None
    udp_timeout: Annotated[
        int | None, Field("Seconds a single UDP exchange is remembered.", format="int32", minimum=30, maximum=60)
    ] = None


_TIMEOUTS = ("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")
CONNECTION_TRACKING = Field(
    "How long security groups remember idle connections.",
    rules=(
        SchemaRule(
            " || ".join(f"has(self.{name})" for name in _TIMEOUTS),
            "at least one of tcpEstablishedTimeout, udpStreamTimeout, or udpTimeout must be set",
            lambda value: any(name in value for name in _TIMEOUTS),
        ),
    ),
)
