"""The generation of 0.32 to 1.0: NodePool, NodeClaim and EC2NodeClass v1beta1.

They exist to be described (CRDs, lint); reading them is `convert`'s work, which turns them into v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from dovetail.model.kinds.common import (
    AMOUNT,
    BETA_AWS_LABELS,
    BETA_OPERATORS,
    LABEL_VALUE,
    MIN_VALUES_RULE,
    MIN_VALUES_TEXT,
    OPERATOR_TEXT,
    REQUIREMENTS_TEXT,
    VALUES_TEXT,
    Taint,
    domain_rule,
    key_field,
    key_rule,
    number_rule,
    values_rule,
)
from dovetail.model.kinds.conditions import PLAIN_CONDITIONS, ClaimCondition, StatusCondition
from dovetail.model.kinds.devices import DEVICES, METADATA, BetaDevice, BetaMetadataOptions
from dovetail.model.kinds.kubelet import KUBELET, Kubelet
from dovetail.model.kinds.nodeclaim import Requests
from dovetail.model.kinds.nodeclass import (
    ONE_IDENTITY,
    PROFILE_TEXT,
    ROLE_TEXT,
    ImageRequirement,
    SecurityGroupStatus,
    SubnetStatus,
    filled,
    tag_rules,
)
from dovetail.model.kinds.nodepool import BUDGET_DURATION, BUDGET_NODES, BUDGET_SCHEDULE, SCHEDULE_RULE
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.kinds.selectors import (
    BetaImageTerm,
    SecurityGroupTerm,
    SubnetTerm,
    alone,
    security_group_terms,
    some_of,
    subnet_terms,
)
from dovetail.model.labels import AWS_GROUP, CAPACITY_TYPE, GROUP, HOSTNAME, NODEPOOL
from dovetail.model.meta import Amount, ObjectMeta, View

LOOSE_DURATION = r"^(([0-9]+(s|m|h))+)|(Never)$"
_KUBERNETES_LABELS = (
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/windows-build",
)


def beta_label_rules(*, of_map: bool, pool: bool) -> tuple[SchemaRule, ...]:
    """Before v1 Kubernetes' own domains were closed too."""
    listed = _KUBERNETES_LABELS if of_map else (*_KUBERNETES_LABELS, "node.kubernetes.io/instance-type")
    friends = ("node.kubernetes.io", "node-restriction.kubernetes.io")
    own = (key_rule(NODEPOOL, of_map=of_map),) if pool else ()
    return (
        domain_rule("kubernetes.io", listed, of_map=of_map, friends=friends),
        domain_rule("k8s.io", (), of_map=of_map, friends=("kops.k8s.io",)),
        domain_rule(GROUP, (CAPACITY_TYPE, NODEPOOL), of_map=of_map),
        *own,
        key_rule(HOSTNAME, of_map=of_map),
        domain_rule(AWS_GROUP, BETA_AWS_LABELS, of_map=of_map),
    )


class BetaTerm(View, frozen=True, kw_only=True):
    key: Annotated[str, key_field(beta_label_rules(of_map=False, pool=False))] = ""
    operator: Annotated[str, Field(OPERATOR_TEXT, required=True, enum=BETA_OPERATORS)] = ""
    values: Annotated[tuple[str, ...], Field(VALUES_TEXT, list_type="atomic", max_length=63, pattern=LABEL_VALUE)] = ()
    min_values: Annotated[int | None, Field(MIN_VALUES_TEXT, minimum=1, maximum=50)] = None


class BetaPoolTerm(BetaTerm, frozen=True, kw_only=True):
    key: Annotated[str, key_field(beta_label_rules(of_map=False, pool=True))] = ""


REQUIREMENTS = Field(
    REQUIREMENTS_TEXT,
    required=True,
    max_items=100,
    rules=(values_rule("In"), number_rule(("Gt", "Lt"), "'Gt' or 'Lt'"), MIN_VALUES_RULE),
)
TAINTS = Field("Taints of the node for its whole life.")
STARTUP_TAINTS = Field("Taints the node is born with and that something else takes away.")


class BetaClassRef(View, frozen=True, kw_only=True):
    """`group` is ours: without it an object that the server stores as v1, unconverted, could never be updated."""

    api_version: Annotated[str, Field("API group and version of the node class.")] = ""
    group: Annotated[str, Field("API group of the node class, as v1 has it.", default="karpenter.k8s.aws")] = ""
    kind: Annotated[str, Field("Kind of the node class.", default="EC2NodeClass")] = ""
    name: Annotated[str, Field("Name of the node class.", required=True)] = ""


class BetaBudget(View, frozen=True, kw_only=True):
    nodes: Annotated[
        str,
        Field("How many nodes may be disrupted at once.", required=True, pattern=BUDGET_NODES, default="10%"),
    ] = "10%"
    schedule: Annotated[
        str | None, Field("Cron line, in UTC, that says when the budget begins to apply.", pattern=BUDGET_SCHEDULE)
    ] = None
    duration: Annotated[str | None, Field("How long it applies after each start.", pattern=BUDGET_DURATION)] = None


class BetaDisruption(View, frozen=True, kw_only=True):
    budgets: Annotated[
        tuple[BetaBudget, ...],
        Field("Caps on disruption.", max_items=50, default=[{"nodes": "10%"}], rules=(SCHEDULE_RULE,)),
    ] = ()
    consolidate_after: Annotated[
        str | None, Field("How long a node must be empty; only with WhenEmpty.", pattern=LOOSE_DURATION)
    ] = None
    consolidation_policy: Annotated[
        str,
        Field("Which nodes may be consolidated.", enum=("WhenEmpty", "WhenUnderutilized"), default="WhenUnderutilized"),
    ] = "WhenUnderutilized"
    expire_after: Annotated[
        str, Field("Life of a node; v1 has it in the template.", pattern=LOOSE_DURATION, default="720h")
    ] = "720h"


def _after_fits(value: Mapping[str, Any]) -> bool:
    after = value.get("consolidateAfter")
    return after is None or value["consolidationPolicy"] != "WhenUnderutilized" or after == "Never"


DISRUPTION = Field(
    "When nodes are disrupted.",
    default={"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"},
    rules=(
        SchemaRule(
            "has(self.consolidateAfter) ? self.consolidationPolicy != 'WhenUnderutilized' || "
            "self.consolidateAfter == 'Never' : true",
            "consolidateAfter cannot be combined with consolidationPolicy=WhenUnderutilized",
            _after_fits,
        ),
        SchemaRule(
            "self.consolidationPolicy == 'WhenEmpty' ? has(self.consolidateAfter) : true",
            "consolidateAfter must be specified with consolidationPolicy=WhenEmpty",
            lambda value: value["consolidationPolicy"] != "WhenEmpty" or "consolidateAfter" in value,
        ),
    ),
)


class BetaTemplateMeta(View, frozen=True, kw_only=True):
    labels: Annotated[
        Mapping[str, str],
        Field(
            "Labels that every node of the pool gets.",
            max_properties=100,
            each=Field(max_length=63, pattern=LABEL_VALUE),
            rules=beta_label_rules(of_map=True, pool=True),
        ),
    ] = {}
    annotations: Annotated[Mapping[str, str], Field("Annotations that every node of the pool gets.")] = {}


class BetaTemplateSpec(View, frozen=True, kw_only=True):
    requirements: Annotated[tuple[BetaPoolTerm, ...], REQUIREMENTS] = ()
    resources: Annotated[Requests | None, Field("Not for pools.", max_properties=0)] = None
    taints: Annotated[tuple[Taint, ...], TAINTS] = ()
    startup_taints: Annotated[tuple[Taint, ...], STARTUP_TAINTS] = ()
    kubelet: Annotated[Kubelet | None, KUBELET] = None
    node_class_ref: Annotated[BetaClassRef, Field("The node class.", required=True)] = BetaClassRef()


class BetaTemplate(View, frozen=True, kw_only=True):
    metadata: Annotated[BetaTemplateMeta, Field("Labels and annotations of the nodes.")] = BetaTemplateMeta()
    spec: Annotated[BetaTemplateSpec, Field("What the nodes are asked to be.", required=True)] = BetaTemplateSpec()


class BetaNodePoolSpec(View, frozen=True, kw_only=True):
    template: Annotated[BetaTemplate, Field("The node that is launched.", required=True)] = BetaTemplate()
    disruption: Annotated[BetaDisruption, DISRUPTION] = BetaDisruption()
    limits: Annotated[Mapping[str, Amount], Field("The most the pool may hold in all.", each=AMOUNT)] = {}
    weight: Annotated[
        int | None, Field("Preference among pools: the heavier is tried first.", format="int32", minimum=1, maximum=100)
    ] = None


class BetaNodePoolStatus(View, frozen=True, kw_only=True):
    resources: Annotated[Mapping[str, Amount], Field("What the pool's nodes hold in all.", each=AMOUNT)] = {}
    conditions: Annotated[tuple[StatusCondition, ...], PLAIN_CONDITIONS] = ()


class BetaNodePool(View, frozen=True, kw_only=True):
    """A pool of nodes, in the second generation. `dovetail convert` writes it as v1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[BetaNodePoolSpec, Field("What you ask for.", required=True)] = BetaNodePoolSpec()
    status: Annotated[BetaNodePoolStatus, Field("What is there.")] = BetaNodePoolStatus()


class BetaNodeClaimSpec(View, frozen=True, kw_only=True):
    requirements: Annotated[tuple[BetaTerm, ...], REQUIREMENTS] = ()
    resources: Annotated[Requests, Field("Resources the node must have.")] = Requests()
    taints: Annotated[tuple[Taint, ...], TAINTS] = ()
    startup_taints: Annotated[tuple[Taint, ...], STARTUP_TAINTS] = ()
    kubelet: Annotated[Kubelet | None, KUBELET] = None
    node_class_ref: Annotated[BetaClassRef, Field("The node class.", required=True)] = BetaClassRef()


class BetaNodeClaimStatus(View, frozen=True, kw_only=True):
    node_name: Annotated[str, Field("Name of the node that the node became.")] = ""
    provider_id: Annotated[str, Field("The cloud's name for the node.")] = msgspec.field(default="", name="providerID")
    image_id: Annotated[str, Field("Machine image the node runs.")] = msgspec.field(default="", name="imageID")
    capacity: Annotated[Mapping[str, Amount], Field("What the node has.", each=AMOUNT)] = {}
    allocatable: Annotated[Mapping[str, Amount], Field("What pods may have of it.", each=AMOUNT)] = {}
    conditions: Annotated[tuple[ClaimCondition, ...], PLAIN_CONDITIONS] = ()


class BetaNodeClaim(View, frozen=True, kw_only=True):
    """One node, in the second generation."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[BetaNodeClaimSpec, Field("What is asked for.", required=True)] = BetaNodeClaimSpec()
    status: Annotated[BetaNodeClaimStatus, Field("What was launched.")] = BetaNodeClaimStatus()


class BetaImage(View, frozen=True, kw_only=True):
    id: Annotated[str, Field("Id of the image.", required=True)] = ""
    name: Annotated[str, Field("Name of the image.")] = ""
    requirements: Annotated[tuple[ImageRequirement, ...], Field("Nodes the image is for.", required=True)] = ()


class BetaNodeClassSpec(View, frozen=True, kw_only=True):
    subnet_selector_terms: Annotated[tuple[SubnetTerm, ...], subnet_terms("subnetSelectorTerms")] = ()
    security_group_selector_terms: Annotated[
        tuple[SecurityGroupTerm, ...], security_group_terms("securityGroupSelectorTerms")
    ] = ()
    ami_selector_terms: Annotated[
        tuple[BetaImageTerm, ...],
        Field(
            "Images the nodes may boot; the family's newest if left out.",
            max_items=30,
            rules=(some_of("tags", "id", "name"), alone("id", ("tags", "name", "owner"), "amiSelectorTerms")),
        ),
    ] = ()
    ami_family: Annotated[
        str | None,
        Field(
            "Family of the image.",
            required=True,
            enum=("AL2", "AL2023", "Bottlerocket", "Ubuntu", "Custom", "Windows2019", "Windows2022"),
        ),
    ] = None
    associate_public_ip_address: Annotated[bool | None, Field("Whether nodes get a public address.")] = msgspec.field(
        default=None, name="associatePublicIPAddress"
    )
    user_data: Annotated[str | None, Field("Script or configuration that the image's own is merged with.")] = None
    role: Annotated[
        str | None,
        Field(
            ROLE_TEXT,
            rules=(
                filled("role"),
                SchemaRule("self == oldSelf", "immutable field changed", moves=lambda new, old: bool(new == old)),
            ),
        ),
    ] = None
    instance_profile: Annotated[str | None, Field(PROFILE_TEXT, rules=(filled("instanceProfile"),))] = None
    tags: Annotated[
        Mapping[str, str],
        Field(
            "Tags for everything that is launched.",
            rules=tag_rules(
                "kubernetes.io/cluster/",
                "karpenter.sh/nodepool",
                "karpenter.sh/managed-by",
                "karpenter.sh/nodeclaim",
                "karpenter.k8s.aws/ec2nodeclass",
            ),
        ),
    ] = {}
    block_device_mappings: Annotated[tuple[BetaDevice, ...], DEVICES] = ()
    instance_store_policy: Annotated[
        str | None, Field("What to do with disks that come with the node.", enum=("RAID0",))
    ] = None
    detailed_monitoring: Annotated[bool | None, Field("Whether CloudWatch measures every minute.")] = None
    metadata_options: Annotated[BetaMetadataOptions, METADATA] = BetaMetadataOptions()
    context: Annotated[str | None, Field("Opaque word handed to EC2 with the purchase.")] = None


SPEC_RULES = (
    SchemaRule(
        "self.amiFamily == 'Custom' ? self.amiSelectorTerms.size() != 0 : true",
        "amiSelectorTerms is required when amiFamily == 'Custom'",
        lambda spec: spec["amiFamily"] != "Custom" or len(spec["amiSelectorTerms"]) != 0,
    ),
    ONE_IDENTITY,
    SchemaRule(
        "(has(oldSelf.role) && has(self.role)) || (has(oldSelf.instanceProfile) && has(self.instanceProfile))",
        "changing from 'instanceProfile' to 'role' is not supported. You must delete and recreate this node class if "
        "you want to change this.",
        moves=lambda new, old: (
            ("role" in old and "role" in new) or ("instanceProfile" in old and "instanceProfile" in new)
        ),
    ),
)


class BetaNodeClassStatus(View, frozen=True, kw_only=True):
    subnets: Annotated[tuple[SubnetStatus, ...], Field("Subnets found.")] = ()
    security_groups: Annotated[tuple[SecurityGroupStatus, ...], Field("Security groups found.")] = ()
    amis: Annotated[tuple[BetaImage, ...], Field("Images found.")] = ()
    instance_profile: Annotated[str, Field("Instance profile in use.")] = ""
    conditions: Annotated[tuple[StatusCondition, ...], PLAIN_CONDITIONS] = ()


class BetaNodeClass(View, frozen=True, kw_only=True):
    """What AWS needs to launch an instance, in v1beta1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[BetaNodeClassSpec, Field("What you ask for.", rules=SPEC_RULES)] = BetaNodeClassSpec()
    status: Annotated[BetaNodeClassStatus, Field("What was found.")] = BetaNodeClassStatus()
