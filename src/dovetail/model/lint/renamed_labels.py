"""Where fields went from one generation to the next: what to say of a field that stands in the wrong one."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.language import source

_POOL = {
    "spec.disruption.expireAfter": "spec.template.spec.expireAfter",
    "spec.template.spec.kubelet": source("the EC2NodeClass's spec.kubelet"),
    "spec.template.spec.nodeClassRef.apiVersion": source("spec.template.spec.nodeClassRef.group, without the version"),
    "spec.ttlSecondsAfterEmpty": "spec.disruption: consolidationPolicy WhenEmpty and consolidateAfter",
    "spec.ttlSecondsUntilExpired": "spec.template.spec.expireAfter",
    "spec.consolidation": "spec.disruption.consolidationPolicy",
    "spec.providerRef": "spec.template.spec.nodeClassRef",
    "spec.provider": source("an EC2NodeClass, and spec.template.spec.nodeClassRef"),
    "spec.limits.resources": "spec.limits",
    "spec.requirements": "spec.template.spec.requirements",
    "spec.taints": "spec.template.spec.taints",
    "spec.startupTaints": "spec.template.spec.startupTaints",
    "spec.labels": "spec.template.metadata.labels",
    "spec.annotations": "spec.template.metadata.annotations",
    "spec.kubeletConfiguration": source("the EC2NodeClass's spec.kubelet"),
    "spec.consolidationPolicy": "spec.disruption.consolidationPolicy",
    "spec.expireAfter": "spec.template.spec.expireAfter",
    "spec.budgets": "spec.disruption.budgets",
    "spec.template.labels": "spec.template.metadata.labels",
    "spec.template.requirements": "spec.template.spec.requirements",
}
_BETA_POOL = {
    **_POOL,
    "spec.ttlSecondsUntilExpired": "spec.disruption.expireAfter",
    "spec.expireAfter": "spec.disruption.expireAfter",
    "spec.template.spec.expireAfter": "spec.disruption.expireAfter in v1beta1",
    "spec.kubeletConfiguration": "spec.template.spec.kubelet",
}
for _moved in (
    "spec.disruption.expireAfter",
    "spec.template.spec.kubelet",
    "spec.template.spec.nodeClassRef.apiVersion",
):
    del _BETA_POOL[_moved]
_CLASS = {
    "spec.subnetSelector": source("spec.subnetSelectorTerms, a list of terms"),
    "spec.securityGroupSelector": source("spec.securityGroupSelectorTerms, a list of terms"),
    "spec.amiSelector": source("spec.amiSelectorTerms, a list of terms"),
    "spec.launchTemplate": source("nowhere: launch templates are made for you"),
}

#: (apiVersion, kind) -> field -> where it belongs.
MOVED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("karpenter.sh/v1", "NodePool"): _POOL,
    ("karpenter.sh/v1beta1", "NodePool"): _BETA_POOL,
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): _CLASS,
    ("karpenter.k8s.aws/v1beta1", "EC2NodeClass"): _CLASS,
}
