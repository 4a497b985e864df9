"""The first generation, up to 0.31: Provisioner and Machine v1alpha5, AWSNodeTemplate v1alpha1.

Its rules stood in a webhook, not in the schema; here they are in the schema as far as it can say them, in
words of our own, so that a mistake is refused when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from dovetail.model.kinds.common import (
    AMOUNT,
    BETA_OPERATORS,
    KEY_TEXT,
    LABEL_KEY,
    LABEL_VALUE,
    OPERATOR_TEXT,
    REQUIREMENTS_TEXT,
    VALUES_TEXT,
    Taint,
    key_rule,
    number_rule,
    values_rule,
)
from dovetail.model.kinds.devices import VOLUME_TYPES
from dovetail.model.kinds.kubelet import KUBELET, Kubelet
from dovetail.model.kinds.nodeclaim import Requests
from dovetail.model.kinds.nodeclass import ImageRequirement, SecurityGroupStatus, SubnetStatus
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.labels import HOSTNAME
from dovetail.model.meta import Amount, ObjectMeta, View

ALPHA_FAMILIES = ("AL2", "Bottlerocket", "Ubuntu", "Windows2019", "Windows2022", "Custom")


class AlphaKubelet(Kubelet, frozen=True, kw_only=True):
    container_runtime: Annotated[str | None, Field("Container runtime; containerd whatever is said.")] = None


class AlphaTerm(View, frozen=True, kw_only=True):
    key: Annotated[
        str,
        Field(KEY_TEXT, required=True, max_length=316, pattern=LABEL_KEY, rules=(key_rule(HOSTNAME, of_map=False),)),
    ] = ""
    operator: Annotated[str, Field(OPERATOR_TEXT, required=True, enum=BETA_OPERATORS)] = ""
    values: Annotated[tuple[str, ...], Field(VALUES_TEXT)] = ()


REQUIREMENTS = Field(
    REQUIREMENTS_TEXT, max_items=100, rules=(values_rule("In"), number_rule(("Gt", "Lt"), "'Gt' or 'Lt'"))
)


class ObjectRef(View, frozen=True, kw_only=True):
    api_version: Annotated[str, Field("API group and version.")] = ""
    kind: Annotated[str, Field("Kind, AWSNodeTemplate if left out.")] = ""
    name: Annotated[str, Field("Name of the template.", required=True)] = ""


class AlphaLimits(View, frozen=True, kw_only=True):
    resources: Annotated[Mapping[str, Amount], Field("The most of each resource.", each=AMOUNT)] = {}


class Consolidation(View, frozen=True, kw_only=True):
    enabled: Annotated[bool | None, Field("Whether badly used nodes are replaced or removed.")] = None


class ProvisionerSpec(View, frozen=True, kw_only=True):
    annotations: Annotated[Mapping[str, str], Field("Annotations that every node gets.")] = {}
    labels: Annotated[
        Mapping[str, str],
        Field(
            "Labels that every node gets.",
            max_properties=100,
            each=Field(max_length=63, pattern=LABEL_VALUE),
            rules=(key_rule(HOSTNAME, of_map=True),),
        ),
    ] = {}
    taints: Annotated[tuple[Taint, ...], Field("Taints of the node for its whole life.")] = ()
    startup_taints: Annotated[
        tuple[Taint, ...], Field("Taints the node is born with and that something else takes away.")
    ] = ()
    requirements: Annotated[tuple[AlphaTerm, ...], REQUIREMENTS] = ()
    kubelet_configuration: Annotated[AlphaKubelet | None, KUBELET] = None
    provider: Annotated[
        Mapping[str, Any] | None, Field("The cloud's settings in place; providerRef says where they stand.", open=True)
    ] = None
    provider_ref: Annotated[ObjectRef | None, Field("The AWSNodeTemplate with the cloud's settings.")] = None
    ttl_seconds_after_empty: Annotated[
        int | None,
        Field("Seconds after which an empty node goes. Not together with consolidation.", format="int64", minimum=0),
    ] = None
    ttl_seconds_until_expired: Annotated[
        int | None, Field("Life of a node in seconds; for ever if left out.", format="int64", minimum=0)
    ] = None
    limits: Annotated[AlphaLimits | None, Field("The most the nodes may hold in all.")] = None
    weight: Annotated[
        int | None, Field("Preference: the heavier is tried first.", format="int32", minimum=1, maximum=100)
    ] = None
    consolidation: Annotated[Consolidation | None, Field("Whether nodes are consolidated.")] = None


def _one_way_out(spec: Mapping[str, Any]) -> bool:
    return not ("ttlSecondsAfterEmpty" in spec and spec.get("consolidation", {}).get("enabled") is True)


PROVISIONER_RULES = (
    SchemaRule(
        "!(has(self.provider) && has(self.providerRef))",
        "expected exactly one, got both: provider, providerRef",
        lambda spec: not ("provider" in spec and "providerRef" in spec),
    ),
    SchemaRule(
        "!(has(self.ttlSecondsAfterEmpty) && has(self.consolidation) && has(self.consolidation.enabled) && "
        "self.consolidation.enabled)",
        "expected exactly one, got both: ttlSecondsAfterEmpty, consolidation.enabled",
        _one_way_out,
    ),
)


class AlphaCondition(View, frozen=True, kw_only=True):
    """Conditions of that time had a severity, and little was required of them."""

    last_transition_time: Annotated[datetime | None, Field("When the status last changed.")] = None
    message: Annotated[str, Field("The same for a human reader.")] = ""
    reason: Annotated[str, Field("Why, in one CamelCase word.")] = ""
    severity: Annotated[str, Field("How bad it is; an error if left out.")] = ""
    status: Annotated[str, Field("Whether it holds.", required=True)] = ""
    type: Annotated[str, Field("What is said.", required=True)] = ""


class ProvisionerStatus(View, frozen=True, kw_only=True):
    conditions: Annotated[tuple[AlphaCondition, ...], Field("What is known of the provisioner.")] = ()
    last_scale_time: Annotated[datetime | None, Field("When the number of nodes last changed.")] = None
    resources: Annotated[Mapping[str, Amount], Field("What the nodes hold in all.", each=AMOUNT)] = {}


class Provisioner(View, frozen=True, kw_only=True):
    """A pool of nodes, in the first generation. `dovetail convert` writes it as a NodePool."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[ProvisionerSpec, Field("What you ask for.", rules=PROVISIONER_RULES)] = ProvisionerSpec()
    status: Annotated[ProvisionerStatus, Field("What is there.")] = ProvisionerStatus()


class MachineSpec(View, frozen=True, kw_only=True):
    requirements: Annotated[tuple[AlphaTerm, ...], REQUIREMENTS] = ()
    resources: Annotated[Requests, Field("Resources the node must have.")] = Requests()
    taints: Annotated[tuple[Taint, ...], Field("Taints of the node for its whole life.")] = ()
    startup_taints: Annotated[
        tuple[Taint, ...], Field("Taints the node is born with and that something else takes away.")
    ] = ()
    kubelet: Annotated[AlphaKubelet | None, KUBELET] = None
    machine_template_ref: Annotated[ObjectRef | None, Field("The AWSNodeTemplate.")] = None


class MachineStatus(View, frozen=True, kw_only=True):
    node_name: Annotated[str, Field("Name of the node that the node became.")] = ""
    provider_id: Annotated[str, Field("The cloud's name for the node.")] = msgspec.field(default="", name="providerID")
    capacity: Annotated[Mapping[str, Amount], Field("What the node has.", each=AMOUNT)] = {}
    allocatable: Annotated[Mapping[str, Amount], Field("What pods may have of it.", each=AMOUNT)] = {}
    conditions: Annotated[tuple[AlphaCondition, ...], Field("How far the node has come.")] = ()


class Machine(View, frozen=True, kw_only=True):
    """One node, in the first generation; a NodeClaim later."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[MachineSpec, Field("What is asked for.")] = MachineSpec()
    status: Annotated[MachineStatus, Field("What was launched.")] = MachineStatus()


class AlphaVolume(View, frozen=True, kw_only=True):
    delete_on_termination: Annotated[bool | None, Field("Whether the volume goes with the node.")] = None
    encrypted: Annotated[bool | None, Field("Whether the volume is encrypted.")] = None
    iops: Annotated[int | None, Field("Operations per second to launch.", format="int64")] = None
    kms_key_id: Annotated[str | None, Field("Key to encrypt with.")] = msgspec.field(default=None, name="kmsKeyID")
    snapshot_id: Annotated[str | None, Field("Snapshot to start from.")] = msgspec.field(
        default=None, name="snapshotID"
    )
    throughput: Annotated[int | None, Field("MiB per second to launch, for gp3.", format="int64")] = None
    volume_size: Annotated[Amount | None, Field("Size of the volume, such as 50Gi.", quantity=True)] = None
    volume_type: Annotated[str | None, Field("Type of the volume.", enum=VOLUME_TYPES)] = None


class AlphaDevice(View, frozen=True, kw_only=True):
    device_name: Annotated[str | None, Field("Device name, such as /dev/xvda.")] = None
    ebs: Annotated[AlphaVolume | None, Field("The volume behind it.")] = None


class AlphaMetadataOptions(View, frozen=True, kw_only=True):
    http_endpoint: Annotated[str | None, Field("Whether the service answers.")] = None
    http_protocol_ipv6: Annotated[str | None, Field("Whether it answers over IPv6.")] = msgspec.field(
        default=None, name="httpProtocolIPv6"
    )
    http_put_response_hop_limit: Annotated[int | None, Field("Network hops an answer may travel.", format="int64")] = (
        None
    )
    http_tokens: Annotated[str | None, Field("Whether a session token is needed.")] = None


SELECTOR_TEXT = "Tags to look for, all of them; * stands for any value, a comma separates choices, {ids} names them."


class AWSNodeTemplateSpec(View, frozen=True, kw_only=True):
    subnet_selector: Annotated[Mapping[str, str] | None, Field(SELECTOR_TEXT.format(ids="aws-ids"))] = None
    security_group_selector: Annotated[Mapping[str, str] | None, Field(SELECTOR_TEXT.format(ids="aws-ids"))] = None
    ami_selector: Annotated[
        Mapping[str, str] | None,
        Field(SELECTOR_TEXT.format(ids="aws::ids") + " aws::name and aws::owners narrow it."),
    ] = None
    ami_family: Annotated[str | None, Field("Family of the image, AL2 if left out.", enum=ALPHA_FAMILIES)] = None
    instance_profile: Annotated[
        str | None, Field("Instance profile of the nodes; the controller's default if left out.")
    ] = None
    launch_template: Annotated[str | None, Field("A launch template of your own, instead of most of the rest.")] = None
    block_device_mappings: Annotated[tuple[AlphaDevice, ...], Field("Disks of the nodes.")] = ()
    metadata_options: Annotated[AlphaMetadataOptions | None, Field("The instance metadata service.")] = None
    detailed_monitoring: Annotated[bool | None, Field("Whether CloudWatch measures every minute.")] = None
    user_data: Annotated[str | None, Field("Script or configuration that the image's own is merged with.")] = None
    tags: Annotated[Mapping[str, str], Field("Tags for everything that is launched.")] = {}
    context: Annotated[str | None, Field("Opaque word handed to EC2 with the purchase.")] = None
    api_version: Annotated[str | None, Field("Left over from the inline form; not used.")] = None
    kind: Annotated[str | None, Field("Left over from the inline form; not used.")] = None


_LAUNCH_TEMPLATE_RIVALS = (
    "securityGroupSelector",
    "metadataOptions",
    "amiFamily",
    "instanceProfile",
    "blockDeviceMappings",
    "userData",
    "amiSelector",
)
TEMPLATE_RULES = (
    SchemaRule(
        "has(self.subnetSelector)",
        "missing field(s): subnetSelector",
        lambda spec: "subnetSelector" in spec,
    ),
    SchemaRule(
        "has(self.launchTemplate) || has(self.securityGroupSelector)",
        "missing field(s): securityGroupSelector",
        lambda spec: "launchTemplate" in spec or "securityGroupSelector" in spec,
    ),
    SchemaRule(
        "!has(self.launchTemplate) || !(" + " || ".join(f"has(self.{name})" for name in _LAUNCH_TEMPLATE_RIVALS) + ")",
        "launchTemplate stands alone: it may not be combined with " + ", ".join(_LAUNCH_TEMPLATE_RIVALS),
        lambda spec: "launchTemplate" not in spec or not any(name in spec for name in _LAUNCH_TEMPLATE_RIVALS),
    ),
    SchemaRule(
        "!(has(self.amiFamily) && self.amiFamily == 'Custom') || has(self.amiSelector)",
        "missing field(s): amiSelector, which amiFamily Custom needs",
        lambda spec: spec.get("amiFamily") != "Custom" or "amiSelector" in spec,
    ),
)


class AlphaImage(View, frozen=True, kw_only=True):
    id: Annotated[str, Field("Id of the image.", required=True)] = ""
    name: Annotated[str, Field("Name of the image.")] = ""
    requirements: Annotated[tuple[ImageRequirement, ...], Field("Nodes the image is for.", required=True)] = ()


class AWSNodeTemplateStatus(View, frozen=True, kw_only=True):
    subnets: Annotated[tuple[SubnetStatus, ...], Field("Subnets found.")] = ()
    security_groups: Annotated[tuple[SecurityGroupStatus, ...], Field("Security groups found.")] = ()
    amis: Annotated[tuple[AlphaImage, ...], Field("Images found.")] = ()


class AWSNodeTemplate(View, frozen=True, kw_only=True):
    """What AWS needs to launch an instance, in v1alpha1; an EC2NodeClass later."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[AWSNodeTemplateSpec, Field("What you ask for.", rules=TEMPLATE_RULES)] = AWSNodeTemplateSpec()
    status: Annotated[AWSNodeTemplateStatus, Field("What was found.")] = AWSNodeTemplateStatus()
