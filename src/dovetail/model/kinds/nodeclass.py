"""EC2NodeClass v1: what AWS needs to launch an instance."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from dovetail.model.kinds.conditions import PLAIN_CONDITIONS, StatusCondition
from dovetail.model.kinds.devices import (
    CONNECTION_TRACKING,
    DEVICES,
    METADATA,
    NETWORK_INTERFACES,
    ConnectionTracking,
    Device,
    MetadataOptions,
    NetworkInterface,
)
from dovetail.model.kinds.kubelet import KUBELET, Kubelet
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.kinds.selectors import (
    IMAGE_TERMS,
    RESERVATION_TERMS,
    ImageTerm,
    ReservationTerm,
    SecurityGroupTerm,
    SubnetTerm,
    security_group_terms,
    subnet_terms,
)
from dovetail.model.meta import ObjectMeta, View

FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
_NAMED = {family.lower(): family for family in FAMILIES if family != "Custom"}


def filled(field: str) -> SchemaRule:
    return SchemaRule("self != ''", f"{field} cannot be empty", lambda value: value != "")


ROLE_TEXT = "IAM role of the nodes; an instance profile is made for it. Either this or instanceProfile."
PROFILE_TEXT = "Instance profile of the nodes. Either this or role."


def tag_rules(*forbidden: str) -> tuple[SchemaRule, ...]:
    """Tags that the house writes itself may not be asked for."""

    def forbids(key: str) -> SchemaRule:
        return SchemaRule(
            f"self.all(k, k !='{key}')",
            f"tag contains a restricted tag matching {key}",
            lambda tags: key not in tags,
        )

    cluster = SchemaRule(
        "self.all(k, !k.startsWith('kubernetes.io/cluster') )",
        "tag contains a restricted tag matching kubernetes.io/cluster/",
        lambda tags: not any(key.startswith("kubernetes.io/cluster") for key in tags),
    )
    empty = SchemaRule("self.all(k, k != '')", "empty tag keys aren't supported", lambda tags: "" not in tags)
    return (empty, *(cluster if key == "kubernetes.io/cluster/" else forbids(key) for key in forbidden))


TAGS = Field(
    "Tags for everything that is launched.",
    rules=tag_rules(
        "eks:eks-cluster-name",
        "kubernetes.io/cluster/",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
    ),
)


class PlacementGroup(View, frozen=True, kw_only=True):
    name: Annotated[str | None, Field("Name of the group.", min_length=1)] = None
    id: Annotated[str | None, Field("Id of the group.", pattern=r"^pg-[0-9a-z]+$")] = None


class CpuOptions(View, frozen=True, kw_only=True):
    nested_virtualization: Annotated[
        str | None, Field("Whether virtual machines may run inside.", enum=("enabled", "disabled"))
    ] = None


class EC2NodeClassSpec(View, frozen=True, kw_only=True):
    subnet_selector_terms: Annotated[tuple[SubnetTerm, ...], subnet_terms("a subnet selector term")] = ()
    security_group_selector_terms: Annotated[
        tuple[SecurityGroupTerm, ...], security_group_terms("a security group selector term")
    ] = ()
    capacity_reservation_selector_terms: Annotated[tuple[ReservationTerm, ...], RESERVATION_TERMS] = ()
    ami_selector_terms: Annotated[tuple[ImageTerm, ...], IMAGE_TERMS] = ()
    ami_family: Annotated[
        str | None,
        Field(
            "How the image is booted and configured. It follows from an alias; without one it must be said.",
            enum=FAMILIES,
        ),
    ] = None
    placement_group_selector: Annotated[
        PlacementGroup | None,
        Field(
            "Placement group of the nodes.",
            rules=(
                SchemaRule(
                    "has(self.name) || has(self.id)",
                    "expected at least one, got none, ['name', 'id']",
                    lambda group: "name" in group or "id" in group,
                ),
                SchemaRule(
                    "!(has(self.name) && has(self.id))",
                    "'name' and 'id' are mutually exclusive",
                    lambda group: not ("name" in group and "id" in group),
                ),
            ),
        ),
    ] = None
    associate_public_ip_address: Annotated[
        bool | None, Field("Whether nodes get a public address; the subnet decides if left out.")
    ] = msgspec.field(default=None, name="associatePublicIPAddress")
    ip_prefix_count: Annotated[
        int | None, Field("Address prefixes for the first network interface.", format="int32", minimum=0)
    ] = None
    user_data: Annotated[str | None, Field("Script or configuration that the image's own is merged with.")] = None
    role: Annotated[str | None, Field(ROLE_TEXT, rules=(filled("role"),))] = None
    instance_profile: Annotated[str | None, Field(PROFILE_TEXT, rules=(filled("instanceProfile"),))] = None
    tags: Annotated[Mapping[str, str], TAGS] = {}
    kubelet: Annotated[Kubelet | None, KUBELET] = None
    block_device_mappings: Annotated[tuple[Device, ...], DEVICES] = ()
    instance_store_policy: Annotated[
        str | None, Field("What to do with disks that come with the node: RAID0 joins them.", enum=("RAID0",))
    ] = None
    network_interfaces: Annotated[tuple[NetworkInterface, ...], NETWORK_INTERFACES] = ()
    detailed_monitoring: Annotated[bool | None, Field("Whether CloudWatch measures every minute.")] = None
    metadata_options: Annotated[MetadataOptions, METADATA] = MetadataOptions()
    connection_tracking: Annotated[ConnectionTracking | None, CONNECTION_TRACKING] = None
    context: Annotated[str | None, Field("Opaque word handed to EC2 with the purchase.")] = None
    cpu_options: Annotated[CpuOptions | None, Field("Options of the processor.")] = None


def _family(alias: str) -> str:
    return alias.partition("@")[0].lower()


def _alias_families(spec: Mapping[str, Any]) -> set[str]:
    return {term["alias"].partition("@")[0] for term in spec["amiSelectorTerms"] if "alias" in term}


def _family_rule(alias: str, family: str) -> SchemaRule:
    article = "an" if family.startswith("A") else "a"
    return SchemaRule(
        "!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == "
        f"'{alias}') ? (self.amiFamily == 'Custom' || self.amiFamily == '{family}') : true)",
        f"if set, amiFamily must be '{family}' or 'Custom' when using {article} {family} alias",
        lambda spec: (
            "amiFamily" not in spec or alias not in _alias_families(spec) or spec["amiFamily"] in ("Custom", family)
        ),
    )


ONE_IDENTITY = SchemaRule(
    "(has(self.role) && !has(self.instanceProfile)) || (!has(self.role) && has(self.instanceProfile))",
    "must specify exactly one of ['role', 'instanceProfile']",
    lambda spec: ("role" in spec) != ("instanceProfile" in spec),
)
SPEC_RULES = (
    ONE_IDENTITY,
    *(_family_rule(alias, family) for alias, family in _NAMED.items()),
    SchemaRule(
        "self.amiSelectorTerms.exists(x, has(x.alias)) ? true : has(self.amiFamily)",
        "must specify amiFamily if amiSelectorTerms does not contain an alias",
        lambda spec: bool(_alias_families(spec)) or "amiFamily" in spec,
    ),
)


class SubnetStatus(View, frozen=True, kw_only=True):
    id: Annotated[str, Field("Id of the subnet.", required=True)] = ""
    zone: Annotated[str, Field("Zone it is in.", required=True)] = ""
    zone_id: Annotated[str, Field("The zone's id, which is the same in every account.")] = msgspec.field(
        default="", name="zoneID"
    )


class SecurityGroupStatus(View, frozen=True, kw_only=True):
    id: Annotated[str, Field("Id of the group.", required=True)] = ""
    name: Annotated[str, Field("Name of the group.")] = ""


class ImageRequirement(View, frozen=True, kw_only=True):
    key: Annotated[str, Field("Label key.", required=True)] = ""
    operator: Annotated[str, Field("How the value relates to the values.", required=True)] = ""
    values: Annotated[tuple[str, ...], Field("Values to compare with.", list_type="atomic")] = ()


class ImageStatus(View, frozen=True, kw_only=True):
    id: Annotated[str, Field("Id of the image.", required=True)] = ""
    name: Annotated[str, Field("Name of the image.")] = ""
    deprecated: Annotated[bool, Field("Whether its owner has deprecated it.")] = False
    requirements: Annotated[tuple[ImageRequirement, ...], Field("Nodes the image is for.", required=True)] = ()


class ReservationStatus(View, frozen=True, kw_only=True):
    availability_zone: Annotated[str, Field("Zone of the reservation.", required=True)] = ""
    end_time: Annotated[datetime | None, Field("When the reservation ends; never if left out.")] = None
    id: Annotated[str, Field("Id of the reservation.", required=True, pattern=r"^cr-[0-9a-z]+$")] = ""
    instance_match_criteria: Annotated[
        str, Field("Who may use the reservation.", required=True, enum=("open", "targeted"))
    ] = ""
    instance_type: Annotated[str, Field("Instance type reserved.", required=True)] = ""
    interruptible: Annotated[bool, Field("Whether the owner may take it back.")] = False
    owner_id: Annotated[str, Field("Account that owns it.", required=True, pattern=r"^[0-9]{12}$")] = msgspec.field(
        default="", name="ownerID"
    )
    reservation_type: Annotated[
        str, Field("Sort of reservation.", enum=("default", "capacity-block"), default="default")
    ] = "default"
    state: Annotated[str, Field("Whether it is about to end.", enum=("active", "expiring"), default="active")] = (
        "active"
    )


class EC2NodeClassStatus(View, frozen=True, kw_only=True):
    subnets: Annotated[tuple[SubnetStatus, ...], Field("Subnets found, the one with most room first.")] = ()
    security_groups: Annotated[tuple[SecurityGroupStatus, ...], Field("Security groups found.")] = ()
    amis: Annotated[tuple[ImageStatus, ...], Field("Images found, newest first.")] = ()
    capacity_reservations: Annotated[tuple[ReservationStatus, ...], Field("Capacity reservations found.")] = ()
    instance_profile: Annotated[str, Field("Instance profile in use.")] = ""
    conditions: Annotated[tuple[StatusCondition, ...], PLAIN_CONDITIONS] = ()


class EC2NodeClass(View, frozen=True, kw_only=True):
    """What AWS needs to launch an instance: network, image, identity, disks."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[EC2NodeClassSpec, Field("What you ask for.", rules=SPEC_RULES)] = EC2NodeClassSpec()
    status: Annotated[EC2NodeClassStatus, Field("What was found.")] = EC2NodeClassStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def family(self) -> str:
        """The family the nodes boot as: said outright, or by the alias."""
        return self.spec.ami_family or next(
            (_NAMED.get(_family(term.alias), "Custom") for term in self.spec.ami_selector_terms if term.alias), "Custom"
        )
