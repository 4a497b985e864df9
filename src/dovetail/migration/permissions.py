"""What `dovetail migrate node-groups` needs: an IAM policy, and a ClusterRole with a Role for its record."""

from __future__ import annotations

from typing import Any

from dovetail.install.iam import Site, document
from dovetail.migration.record import NAME, NAMESPACE

Json = dict[str, Any]
_READS = {
    "": ("nodes", "pods", "namespaces", "persistentvolumeclaims", "persistentvolumes"),
    "apps": ("daemonsets",),
    "policy": ("poddisruptionbudgets",),
    "scheduling.k8s.io": ("priorityclasses",),
    "storage.k8s.io": ("storageclasses", "csinodes"),
    "coordination.k8s.io": ("leases",),
    "karpenter.sh": ("nodepools", "nodeclaims", "nodeoverlays"),
    "karpenter.k8s.aws": ("ec2nodeclasses",),
}


def policy(site: Site) -> Json:
    """Groups are changed only where they belong to the cluster: by EKS, or by the tag of self-managed groups."""
    arn = f"arn:{site.partition}"
    where = f"{site.region}:{site.account}"
    region = {"StringEquals": {"aws:RequestedRegion": site.region}}
    owned = {"Null": {f"aws:ResourceTag/kubernetes.io/cluster/{site.cluster}": "false"}}
    return document(
        {
            "Sid": "AllowGroupReads",
            "Effect": "Allow",
            "Action": [
                "autoscaling:DescribeAutoScalingGroups",
                "ec2:DescribeLaunchTemplateVersions",
                "eks:ListClusters",
            ],
            "Resource": ["*"],
            "Condition": region,
        },
        {
            "Sid": "AllowClusterReads",
            "Effect": "Allow",
            "Action": ["eks:DescribeCluster", "eks:ListNodegroups"],
            "Resource": [site.cluster_arn],
        },
        {
            "Sid": "AllowNodeGroups",
            "Effect": "Allow",
            "Action": ["eks:DescribeNodegroup", "eks:UpdateNodegroupConfig"],
            "Resource": [f"{arn}:eks:{where}:nodegroup/{site.cluster}/*"],
        },
        {
            "Sid": "AllowScopedScaling",
            "Effect": "Allow",
            "Action": [
                "autoscaling:ResumeProcesses",
                "autoscaling:SuspendProcesses",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                "autoscaling:UpdateAutoScalingGroup",
            ],
            "Resource": [f"{arn}:autoscaling:{where}:autoScalingGroup:*"],
            "Condition": owned,
        },
    )


def roles() -> list[Json]:
    """A ClusterRole, and a Role in the namespace of the record."""
    rules: list[Json] = [
        {"apiGroups": [group], "resources": list(resources), "verbs": ["list"]} for group, resources in _READS.items()
    ]
    rules += [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        {"apiGroups": ["karpenter.sh"], "resources": ["nodepools"], "verbs": ["create", "delete"]},
        {"apiGroups": ["karpenter.k8s.aws"], "resources": ["ec2nodeclasses"], "verbs": ["create", "delete"]},
    ]
    kept: list[Json] = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [NAME],
            "verbs": ["get", "update", "delete"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [NAME],
            "verbs": ["get", "update"],
        },
    ]
    version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": rules},
        {"apiVersion": version, "kind": "Role", "metadata": {"name": NAME, "namespace": NAMESPACE}, "rules": kept},
    ]
