"""IAM and queue of an installation, as documents: what the controller, the nodes and EventBridge may do.

The controller's policy follows Karpenter's scopes (cluster, NodePool and region by tag) and is tighter where our tags
and paths allow: what is launched names its EC2NodeClass, and instance profiles lie under the cluster's own path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Json = dict[str, Any]
VERSION = "2012-10-17"
NODEPOOL, NODECLASS, EKS_CLUSTER = "karpenter.sh/nodepool", "karpenter.k8s.aws/ec2nodeclass", "eks:eks-cluster-name"
REGION_TAG = "topology.kubernetes.io/region"
#: Tag of everything that `dovetail install` makes.
OWNER_TAG = "dovetail.sh/installed-by"
NODE_POLICIES = (
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
LAUNCHED = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
QUEUE_RETENTION_S = 300
MAX_NAME_CHARACTERS = 64


def bounded_name(name: str) -> str:
    """At most as long as IAM and EventBridge allow; what is cut off leaves a digest."""
    if len(name) <= MAX_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARACTERS - len(digest) - 1]}-{digest}"


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where an installation is, and what its parts are called."""

    cluster: str
    region: str
    account: str
    partition: str = "aws"
    queue: str = ""
    namespace: str = "karpenter"
    service_account: str = "karpenter"
    node_role_name: str = ""
    #: The cluster's OIDC issuer without https://; Pod Identity is trusted where it is empty.
    issuer: str = ""
    #: Whether NodeRepair may reboot instances.
    reboots: bool = False

    @property
    def node_role(self) -> str:
        return self.node_role_name or bounded_name(f"KarpenterNodeRole-{self.cluster}")

    @property
    def controller_role(self) -> str:
        return bounded_name(f"KarpenterControllerRole-{self.cluster}")

    @property
    def instance_profile(self) -> str:
        return f"KarpenterNodeInstanceProfile-{self.cluster}"

    @property
    def dns_suffix(self) -> str:
        return "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"

    @property
    def cluster_arn(self) -> str:
        return f"arn:{self.partition}:eks:{self.region}:{self.account}:cluster/{self.cluster}"

    @property
    def access_entries_arn(self) -> str:
        """All access entries of the cluster."""
        return f"arn:{self.partition}:eks:{self.region}:{self.account}:access-entry/{self.cluster}/*"

    @property
    def queue_arn(self) -> str:
        return f"arn:{self.partition}:sqs:{self.region}:{self.account}:{self.queue}"

    def role_arn(self, name: str) -> str:
        return f"arn:{self.partition}:iam::{self.account}:role/{name}"

    def ec2(self, *kinds: str, account: str = "*") -> list[str]:
        return [f"arn:{self.partition}:ec2:{self.region}:{account}:{kind}/*" for kind in kinds]


def document(*statements: Mapping[str, Any]) -> Json:
    return {"Version": VERSION, "Statement": [dict(statement) for statement in statements]}


def _allow(sid: str, actions: Sequence[str], resources: Sequence[str], **conditions: Mapping[str, Any]) -> Json:
    statement: Json = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    if conditions:
        statement["Condition"] = {name.replace("__", ":"): dict(test) for name, test in conditions.items()}
    return statement


# -- the controller


def controller_policies(site: Site) -> dict[str, Json]:
    """The controller's policies by name, one for each concern, as Karpenter divides them."""
    policies = {
        "NodeLifecycle": document(*_node_lifecycle(site)),
        "IAMIntegration": document(*_iam_integration(site)),
        "EKSIntegration": document(
            _allow("AllowAPIServerEndpointDiscovery", ["eks:DescribeCluster"], [site.cluster_arn]),
            _allow("AllowNodeAccessLookup", ["eks:DescribeAccessEntry"], [site.access_entries_arn]),
        ),
        "ResourceDiscovery": document(*_resource_discovery(site)),
    }
    if site.queue:
        actions = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
        policies["Interruption"] = document(_allow("AllowInterruptionQueueActions", actions, [site.queue_arn]))
    return policies


def controller_policy(site: Site) -> Json:
    """The same as one document."""
    return document(*(row for policy in controller_policies(site).values() for row in policy["Statement"]))


def _request_tags(site: Site) -> tuple[Json, Json]:
    """What a launch has to say of itself: StringEquals and StringLike."""
    equals = {
        f"aws:RequestTag/kubernetes.io/cluster/{site.cluster}": "owned",
        f"aws:RequestTag/{EKS_CLUSTER}": site.cluster,
    }
    return equals, {f"aws:RequestTag/{NODEPOOL}": "*", f"aws:RequestTag/{NODECLASS}": "*"}


def _node_lifecycle(site: Site) -> list[Json]:
    equals, like = _request_tags(site)
    owned = {f"aws:ResourceTag/kubernetes.io/cluster/{site.cluster}": "owned"}
    pooled = {f"aws:ResourceTag/{NODEPOOL}": "*"}
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    created = {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}
    later = {"aws:TagKeys": [EKS_CLUSTER, "karpenter.sh/nodeclaim", "Name"]}
    shared = ("security-group", "subnet", "capacity-reservation", "placement-group")
    cluster_name = {f"aws:RequestTag/{EKS_CLUSTER}": site.cluster}
    statements = [
        _allow(
            "AllowScopedEC2InstanceAccessActions",
            launch,
            [*site.ec2("image", "snapshot", account=""), *site.ec2(*shared)],
        ),
        _allow(
            "AllowScopedEC2LaunchTemplateAccessActions",
            launch,
            site.ec2("launch-template"),
            StringEquals=owned,
            StringLike=pooled,
        ),
        _allow(
            "AllowScopedEC2InstanceActionsWithTags",
            [*launch, "ec2:CreateLaunchTemplate"],
            site.ec2(*LAUNCHED),
            StringEquals=equals,
            StringLike=like,
        ),
        _allow(
            "AllowScopedResourceCreationTagging",
            ["ec2:CreateTags"],
            site.ec2(*LAUNCHED),
            StringEquals={**equals, **created},
            StringLike=like,
        ),
        _allow(
            "AllowScopedResourceTagging",
            ["ec2:CreateTags"],
            site.ec2("instance"),
            StringEquals=owned,
            StringLike=pooled,
            StringEqualsIfExists=cluster_name,
            ForAllValues__StringEquals=later,
        ),
        _allow(
            "AllowScopedDeletion",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            site.ec2("instance", "launch-template"),
            StringEquals=owned,
            StringLike=pooled,
        ),
    ]
    if site.reboots:
        own, reboot = site.ec2("instance"), ["ec2:RebootInstances"]
        statements.append(_allow("AllowScopedReboot", reboot, own, StringEquals=owned, StringLike=pooled))
    return statements


def _iam_integration(site: Site) -> list[Json]:
    profiles = [f"arn:{site.partition}:iam::{site.account}:instance-profile/karpenter/{site.region}/{site.cluster}/*"]
    request_tags = {
        f"aws:RequestTag/kubernetes.io/cluster/{site.cluster}": "owned",
        f"aws:RequestTag/{EKS_CLUSTER}": site.cluster,
        f"aws:RequestTag/{REGION_TAG}": site.region,
    }
    held = {
        f"aws:ResourceTag/kubernetes.io/cluster/{site.cluster}": "owned",
        f"aws:ResourceTag/{REGION_TAG}": site.region,
    }
    request_class, held_class = {f"aws:RequestTag/{NODECLASS}": "*"}, {f"aws:ResourceTag/{NODECLASS}": "*"}
    return [
        _allow(
            "AllowPassingInstanceRole",
            ["iam:PassRole"],
            [site.role_arn(site.node_role)],
            StringEquals={"iam:PassedToService": [f"ec2.{site.dns_suffix}"]},
        ),
        _allow(
            "AllowScopedInstanceProfileCreationActions",
            ["iam:CreateInstanceProfile"],
            profiles,
            StringEquals=request_tags,
            StringLike=request_class,
        ),
        _allow(
            "AllowScopedInstanceProfileTagActions",
            ["iam:TagInstanceProfile"],
            profiles,
            StringEquals={**request_tags, **held},
            StringLike={**request_class, **held_class},
        ),
        _allow(
            "AllowScopedInstanceProfileActions",
            ["iam:AddRoleToInstanceProfile", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"],
            profiles,
            StringEquals=held,
            StringLike=held_class,
        ),
        _allow(
            "AllowInstanceProfileReadActions",
            ["iam:GetInstanceProfile"],
            [f"arn:{site.partition}:iam::{site.account}:instance-profile/*"],
        ),
        _allow("AllowUnscopedInstanceProfileListAction", ["iam:ListInstanceProfiles"], ["*"]),
    ]


#: What is only read, in the cluster's region.
REGIONAL_READS = (
    "CapacityReservations",
    "Images",
    "Instances",
    "InstanceStatus",
    "InstanceTypeOfferings",
    "InstanceTypes",
    "LaunchTemplates",
    "PlacementGroups",
    "SecurityGroups",
    "SpotPriceHistory",
    "Subnets",
)


def _resource_discovery(site: Site) -> list[Json]:
    return [
        _allow(
            "AllowRegionalReadActions",
            [f"ec2:Describe{kind}" for kind in REGIONAL_READS],
            ["*"],
            StringEquals={"aws:RequestedRegion": site.region},
        ),
        _allow(
            "AllowSSMReadActions",
            ["ssm:GetParameter"],
            [f"arn:{site.partition}:ssm:{site.region}::parameter/aws/service/*"],
        ),
        _allow("AllowPricingReadActions", ["pricing:GetProducts"], ["*"]),
    ]


def controller_trust(site: Site) -> Json:
    """Who may be the controller: its ServiceAccount, through the cluster's OIDC issuer or Pod Identity."""
    if not site.issuer:
        service = {"Service": "pods.eks.amazonaws.com"}
        return document({"Effect": "Allow", "Principal": service, "Action": ["sts:AssumeRole", "sts:TagSession"]})
    provider = f"arn:{site.partition}:iam::{site.account}:oidc-provider/{site.issuer}"
    subject = f"system:serviceaccount:{site.namespace}:{site.service_account}"
    return document(
        {
            "Effect": "Allow",
            "Principal": {"Federated": provider},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {"StringEquals": {f"{site.issuer}:aud": "sts.amazonaws.com", f"{site.issuer}:sub": subject}},
        }
    )


# -- nodes and queue


def node_trust(site: Site) -> Json:
    service = {"Service": f"ec2.{site.dns_suffix}"}
    return document({"Effect": "Allow", "Principal": service, "Action": "sts:AssumeRole"})


def node_policy_arns(site: Site) -> list[str]:
    return [f"arn:{site.partition}:iam::aws:policy/{name}" for name in NODE_POLICIES]


def queue_policy(site: Site) -> Json:
    return document(
        {
            "Sid": "EC2InterruptionPolicy",
            "Effect": "Allow",
            "Principal": {"Service": ["events.amazonaws.com", "sqs.amazonaws.com"]},
            "Action": "sqs:SendMessage",
            "Resource": site.queue_arn,
        },
        {
            "Sid": "DenyHTTP",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": site.queue_arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    )


#: EventBridge rules by name: the events that reach the queue.
EVENT_PATTERNS: Mapping[str, Json] = {
    "HealthEvents": {"source": ["aws.health"], "detail-type": ["AWS Health Event"]},
    "SpotInterruptions": {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]},
    "Rebalances": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
    "StateChanges": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]},
    "CapacityReservationInterruptions": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Capacity Reservation Instance Interruption Warning"],
    },
}


def rule_name(cluster: str, event: str) -> str:
    return bounded_name(f"Karpenter{event}-{cluster}")


# -- Cluster Autoscaler


def cluster_autoscaler_policy(site: Site) -> Json:
    """Groups are found by their tags, and changed only where the tags name this cluster, with whatever value."""
    reads = [
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeLaunchConfigurations",
        "autoscaling:DescribeScalingActivities",
        "ec2:DescribeImages",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeLaunchTemplateVersions",
        "ec2:GetInstanceTypesFromInstanceRequirements",
    ]
    tags = {
        "aws:ResourceTag/k8s.io/cluster-autoscaler/enabled": "false",
        f"aws:ResourceTag/k8s.io/cluster-autoscaler/{site.cluster}": "false",
    }
    groups = [f"arn:{site.partition}:autoscaling:{site.region}:{site.account}:autoScalingGroup:*"]
    nodegroups = [f"arn:{site.partition}:eks:{site.region}:{site.account}:nodegroup/{site.cluster}/*"]
    return document(
        _allow("AllowGroupDiscovery", reads, ["*"], StringEquals={"aws:RequestedRegion": site.region}),
        _allow(
            "AllowScopedScaling",
            ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            groups,
            Null=tags,
        ),
        _allow("AllowNodeGroupDiscovery", ["eks:DescribeNodegroup"], nodegroups),
    )
