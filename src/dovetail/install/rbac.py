"""Kubernetes permissions of the controller: each with the reason for it, and the setting that it depends on.

This table is the source. `scripts/build_charts.py` writes the chart's rules from it, and a test compares it with what
the controllers ask of an API server: nothing is missing, nothing more is granted.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

CORE, APPS, BATCH, STORAGE = "", "apps", "batch", "storage.k8s.io"
KARPENTER, AWS = "karpenter.sh", "karpenter.k8s.aws"
READ = ("list", "watch")


class Scope(StrEnum):
    """Where a rule holds: in the whole cluster, in the release's namespace, or in kube-system."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    KUBE_SYSTEM = "kubeSystem"


class RuleCondition(StrEnum):
    """The setting that a rule depends on; its value is the chart's condition."""

    ALWAYS = ""
    BIND = 'eq (default "bind" .Values.settings.place) "bind"'
    NOMINATE = 'eq (default "bind" .Values.settings.place) "nominate"'
    DELETION_COST = 'contains "PodDeletionCostManagement=true" (include "dovetail.featureGates" .)'
    SCHEDULER_CONFIG = ".Values.settings.schedulerConfig"
    WEBHOOK = 'include "dovetail.webhookEnabled" .'


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """Verbs on resources of one API group."""

    why: str
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    scope: Scope = Scope.CLUSTER
    when: RuleCondition = RuleCondition.ALWAYS


class Grant(msgspec.Struct, frozen=True, order=True):
    """One verb on one resource (`pods/eviction`), anywhere, or on one name."""

    verb: str
    group: str
    resource: str
    name: str = ""


RULES: tuple[PolicyRule, ...] = (
    PolicyRule(
        why="What is to be scheduled, and where.",
        group=CORE,
        resources=("pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"),
        verbs=READ,
    ),
    PolicyRule(why="Overhead of each new node.", group=APPS, resources=("daemonsets",), verbs=READ),
    PolicyRule(
        why="Volume topology and attachment limits.",
        group=STORAGE,
        resources=("storageclasses", "csinodes"),
        verbs=READ,
    ),
    PolicyRule(
        why="A drained node waits until its volumes are detached.",
        group=STORAGE,
        resources=("volumeattachments",),
        verbs=READ,
    ),
    PolicyRule(
        why="Which pods may be evicted, and which preempt others.",
        group="policy",
        resources=("poddisruptionbudgets",),
        verbs=READ,
    ),
    PolicyRule(why="Priorities of pods.", group="scheduling.k8s.io", resources=("priorityclasses",), verbs=READ),
    PolicyRule(
        why="How many pods of a workload are still to come.",
        group=APPS,
        resources=("replicasets", "statefulsets"),
        verbs=("get",),
    ),
    PolicyRule(
        why="The same, of ReplicationControllers.", group=CORE, resources=("replicationcontrollers",), verbs=("get",)
    ),
    PolicyRule(why="The same, of Jobs.", group=BATCH, resources=("jobs",), verbs=("get",)),
    PolicyRule(
        why="Selectors of the scheduler's default spread constraints.",
        group=APPS,
        resources=("replicasets", "statefulsets"),
        verbs=READ,
        when=RuleCondition.SCHEDULER_CONFIG,
    ),
    PolicyRule(
        why="Labels, taints and finalizers of nodes; nodes whose instance has ended are removed.",
        group=CORE,
        resources=("nodes",),
        verbs=("get", "patch", "delete"),
    ),
    PolicyRule(why="Drain: eviction under the budgets.", group=CORE, resources=("pods/eviction",), verbs=("create",)),
    PolicyRule(why="Drain past the grace period of the NodeClaim.", group=CORE, resources=("pods",), verbs=("delete",)),
    PolicyRule(
        why="Pods are bound to the node that was planned for them.",
        group=CORE,
        resources=("pods/binding",),
        verbs=("create",),
        when=RuleCondition.BIND,
    ),
    PolicyRule(
        why="Pods are nominated for the node that was planned for them.",
        group=CORE,
        resources=("pods/status",),
        verbs=("patch",),
        when=RuleCondition.NOMINATE,
    ),
    PolicyRule(
        why="Pod deletion cost, by the feature gate PodDeletionCostManagement.",
        group=CORE,
        resources=("pods",),
        verbs=("patch",),
        when=RuleCondition.DELETION_COST,
    ),
    PolicyRule(why="Events.", group=CORE, resources=("events",), verbs=("create", "patch")),
    PolicyRule(
        why="Which pods Cluster Autoscaler grows a node group for.",
        group=CORE,
        resources=("events",),
        verbs=("list", "watch"),
    ),
    PolicyRule(
        why="NodeClaims are ours from launch to termination.",
        group=KARPENTER,
        resources=("nodeclaims",),
        verbs=("get", "list", "watch", "create", "patch", "delete"),
    ),
    PolicyRule(
        why="NodePools: hashes, and those derived from Provisioners.",
        group=KARPENTER,
        resources=("nodepools",),
        verbs=("get", "list", "watch", "create", "patch"),
    ),
    PolicyRule(why="Overlays of prices and capacity.", group=KARPENTER, resources=("nodeoverlays",), verbs=READ),
    PolicyRule(
        why="Conditions and counters.",
        group=KARPENTER,
        resources=("nodeclaims/status", "nodepools/status"),
        verbs=("patch",),
    ),
    PolicyRule(
        why="EC2NodeClasses: hashes and finalizers, and those derived from AWSNodeTemplates.",
        group=AWS,
        resources=("ec2nodeclasses",),
        verbs=("get", "list", "watch", "create", "patch"),
    ),
    PolicyRule(
        why="Discovered AMIs, subnets and groups.", group=AWS, resources=("ec2nodeclasses/status",), verbs=("patch",)
    ),
    PolicyRule(why="The kinds of v1alpha5.", group=KARPENTER, resources=("provisioners",), verbs=READ),
    PolicyRule(why="Their status.", group=KARPENTER, resources=("provisioners/status",), verbs=("patch",)),
    PolicyRule(why="The kinds of v1alpha1.", group=AWS, resources=("awsnodetemplates",), verbs=READ),
    PolicyRule(why="Their status.", group=AWS, resources=("awsnodetemplates/status",), verbs=("patch",)),
    PolicyRule(
        why="Machines show NodeClaims to v1alpha5 clients.",
        group=KARPENTER,
        resources=("machines",),
        verbs=("create", "patch"),
    ),
    PolicyRule(why="Their status.", group=KARPENTER, resources=("machines/status",), verbs=("patch",)),
    PolicyRule(
        why="The webhook writes its certificate into the definitions.",
        group="apiextensions.k8s.io",
        resources=("customresourcedefinitions",),
        verbs=("get", "patch"),
        names=("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"),
        when=RuleCondition.WEBHOOK,
    ),
    PolicyRule(
        why="Leader election: the lease is made once.",
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("create",),
        scope=Scope.NAMESPACE,
    ),
    PolicyRule(
        why="Leader election: only this lease is read and renewed.",
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("get", "update"),
        names=("karpenter-leader-election",),
        scope=Scope.NAMESPACE,
    ),
    PolicyRule(
        why="History of decisions.",
        group=CORE,
        resources=("configmaps",),
        verbs=("get", "list", "create", "patch", "delete"),
        scope=Scope.NAMESPACE,
    ),
    PolicyRule(
        why="The webhook's certificate.",
        group=CORE,
        resources=("secrets",),
        verbs=("create",),
        scope=Scope.NAMESPACE,
        when=RuleCondition.WEBHOOK,
    ),
    PolicyRule(
        why="The webhook's certificate, and no other secret.",
        group=CORE,
        resources=("secrets",),
        verbs=("get", "update"),
        names=("dovetail-webhook-certificate",),
        scope=Scope.NAMESPACE,
        when=RuleCondition.WEBHOOK,
    ),
    PolicyRule(
        why="Whether the node role is mapped, before a node waits in vain.",
        group=CORE,
        resources=("configmaps",),
        verbs=("get",),
        names=("aws-auth",),
        scope=Scope.KUBE_SYSTEM,
    ),
)

#: What administrators of namespaces may do with our kinds, through the aggregated role `admin`.
ADMIN_RESOURCES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        KARPENTER,
        (
            "nodepools",
            "nodepools/status",
            "nodeclaims",
            "nodeclaims/status",
            "nodeoverlays",
            "nodeoverlays/status",
            "provisioners",
            "provisioners/status",
            "machines",
            "machines/status",
        ),
    ),
    (AWS, ("ec2nodeclasses", "ec2nodeclasses/status", "awsnodetemplates", "awsnodetemplates/status")),
)
ADMIN_VERBS = ("get", "list", "watch", "create", "delete", "update", "patch")


def grants(rules: Iterable[PolicyRule]) -> set[Grant]:
    """Each verb on each resource, one by one."""
    return {
        Grant(verb, rule.group, resource, name)
        for rule in rules
        for resource in rule.resources
        for verb in rule.verbs
        for name in (rule.names or ("",))
    }


def rules_template() -> str:
    """The chart's `_rules.tpl`: one named template a scope, each rule under the reason for it."""
    parts = ["{{/* Written by scripts/build_charts.py from dovetail.install.rbac. */}}\n"]
    for scope in Scope:
        parts.append(f'{{{{- define "dovetail.rules.{scope}" -}}}}\n')
        parts += [_rule_text(rule) for rule in RULES if rule.scope is scope]
        parts.append("{{- end }}\n")
    parts.append('{{- define "dovetail.rules.admin" -}}\n')
    for group, resources in ADMIN_RESOURCES:
        parts.append(_entry(group, resources, ADMIN_VERBS, ()))
    parts.append("{{- end }}\n")
    return "".join(parts)


def _rule_text(rule: PolicyRule) -> str:
    text = f"# {rule.why}\n" + _entry(rule.group, rule.resources, rule.verbs, rule.names)
    return text if rule.when is RuleCondition.ALWAYS else f"{{{{- if {rule.when} }}}}\n{text}{{{{- end }}}}\n"


def _entry(group: str, resources: tuple[str, ...], verbs: tuple[str, ...], names: tuple[str, ...]) -> str:
    lines = [f'- apiGroups: ["{group}"]', f"  resources: [{', '.join(resources)}]"]
    if names:
        lines.append(f"  resourceNames: [{', '.join(names)}]")
    return "\n".join([*lines, f"  verbs: [{', '.join(verbs)}]"]) + "\n"
