"""Which strategy belongs to which resource."""

from __future__ import annotations

from functools import cache

from dovetail.lab.apiserver.kinds import (
    admission_policies,
    admission_webhooks,
    autoscaling,
    claims,
    core,
    cronjobs,
    endpoints,
    events,
    jobs,
    leases,
    networking,
    nodes,
    policy,
    quotas,
    rbac,
    reviews,
    schema_only,
    services,
    statefulsets,
    storage,
    workloads,
)
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.kinds.pod.binding import LegacyBindingStrategy
from dovetail.lab.apiserver.kinds.pod.strategy import PodStrategy
from dovetail.lab.apiserver.registry import RestStrategy

_PLAIN = KindStrategy()
#: Kinds whose PUT must say which version it replaces.
_CONDITIONAL = {
    "policy": ("poddisruptionbudgets",),
    "node.k8s.io": ("runtimeclasses",),
    "storage.k8s.io": ("csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"),
    "admissionregistration.k8s.io": (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apiregistration.k8s.io": ("apiservices",),
}


def strategy_of(group: str, version: str, plural: str) -> RestStrategy:
    """The strategy of a built-in resource; kinds that mean nothing in particular share one."""
    if (group, plural) == ("autoscaling", "horizontalpodautoscalers"):
        return autoscaling.AutoscalerStrategy(version)
    return _strategies().get((group, plural), _PLAIN)


def _core() -> dict[str, RestStrategy]:
    return {
        "pods": PodStrategy(),
        "bindings": LegacyBindingStrategy(),
        "nodes": nodes.NodeStrategy(),
        "namespaces": core.NamespaceStrategy(),
        "configmaps": core.ConfigMapStrategy(),
        "secrets": core.SecretStrategy(),
        "serviceaccounts": core.ServiceAccountStrategy(),
        "services": services.ServiceStrategy(),
        "endpoints": endpoints.EndpointsStrategy(),
        "events": events.EventStrategy(""),
        "limitranges": core.LimitRangeStrategy(),
        "resourcequotas": quotas.ResourceQuotaStrategy(),
        "podtemplates": core.PodTemplateStrategy(),
        "persistentvolumes": claims.VolumeStrategy(),
        "persistentvolumeclaims": claims.ClaimStrategy(),
        "replicationcontrollers": statefulsets.ReplicationControllerStrategy(),
    }


def _workloads() -> dict[str, dict[str, RestStrategy]]:
    """How work is done."""
    return {
        "apps": {
            "deployments": workloads.DeploymentStrategy(),
            "replicasets": workloads.ReplicaSetStrategy(),
            "statefulsets": statefulsets.StatefulSetStrategy(),
            "daemonsets": workloads.DaemonSetStrategy(),
            "controllerrevisions": schema_only.RevisionStrategy(),
        },
        "batch": {"jobs": jobs.JobStrategy(), "cronjobs": cronjobs.CronJobStrategy()},
        "policy": {"poddisruptionbudgets": policy.BudgetStrategy()},
        "scheduling.k8s.io": {"priorityclasses": policy.PriorityClassStrategy()},
        "coordination.k8s.io": {"leases": leases.LeaseStrategy()},
        "events.k8s.io": {"events": events.EventStrategy("events.k8s.io")},
    }


def _infrastructure_strategies() -> dict[str, dict[str, RestStrategy]]:
    """What work stands on."""
    return {
        "discovery.k8s.io": {"endpointslices": endpoints.EndpointSliceStrategy()},
        "storage.k8s.io": {
            "storageclasses": storage.StorageClassStrategy(),
            "csinodes": storage.CSINodeStrategy(),
            "csidrivers": storage.CSIDriverStrategy(),
            "volumeattachments": storage.VolumeAttachmentStrategy(),
            "volumeattributesclasses": schema_only.AttributesClassStrategy(),
            "csistoragecapacities": schema_only.StorageCapacityStrategy(),
        },
        "networking.k8s.io": {
            "ingresses": networking.IngressStrategy(),
            "ingressclasses": networking.IngressClassStrategy(),
            "networkpolicies": networking.NetworkPolicyStrategy(),
            "ipaddresses": networking.IPAddressStrategy(),
            "servicecidrs": schema_only.WithStatusStrategy(counts=False),
        },
        "node.k8s.io": {"runtimeclasses": schema_only.RuntimeClassStrategy()},
        "resource.k8s.io": {
            "deviceclasses": schema_only.DeviceStrategy(),
            "resourceclaims": schema_only.DeviceStrategy(counts=False),
            "resourceclaimtemplates": schema_only.DeviceStrategy(counts=False),
            "resourceslices": schema_only.DeviceStrategy(),
        },
    }


def _governance() -> dict[str, dict[str, RestStrategy]]:
    """Who may do what, and what the API itself is made of."""
    from dovetail.lab.apiserver.crd.definitions import DefinitionStrategy

    return {
        "rbac.authorization.k8s.io": {
            "roles": rbac.RoleStrategy(namespaced=True),
            "clusterroles": rbac.RoleStrategy(namespaced=False),
            "rolebindings": rbac.BindingStrategy(namespaced=True),
            "clusterrolebindings": rbac.BindingStrategy(namespaced=False),
        },
        "authorization.k8s.io": {
            "selfsubjectaccessreviews": reviews.AccessReviewStrategy(subject=False),
            "subjectaccessreviews": reviews.AccessReviewStrategy(subject=True),
            "localsubjectaccessreviews": reviews.AccessReviewStrategy(subject=True, local=True),
            "selfsubjectrulesreviews": reviews.RulesReviewStrategy(),
        },
        "authentication.k8s.io": {
            "tokenreviews": reviews.TokenReviewStrategy(),
            "selfsubjectreviews": reviews.SelfReviewStrategy(),
        },
        "certificates.k8s.io": {"certificatesigningrequests": schema_only.CertificateRequestStrategy()},
        "admissionregistration.k8s.io": {
            "mutatingwebhookconfigurations": admission_webhooks.WebhookStrategy(),
            "validatingwebhookconfigurations": admission_webhooks.WebhookStrategy(),
            "validatingadmissionpolicies": admission_policies.ValidatingPolicyStrategy(),
            "validatingadmissionpolicybindings": admission_policies.PolicyBindingStrategy(),
            "mutatingadmissionpolicies": admission_policies.MutatingPolicyStrategy(),
            "mutatingadmissionpolicybindings": admission_policies.MutatingPolicyBindingStrategy(),
        },
        "apiextensions.k8s.io": {"customresourcedefinitions": DefinitionStrategy()},
        "apiregistration.k8s.io": {"apiservices": schema_only.ApiServiceStrategy(counts=False)},
        "flowcontrol.apiserver.k8s.io": {
            "flowschemas": schema_only.FlowSchemaStrategy(),
            "prioritylevelconfigurations": schema_only.PriorityLevelStrategy(),
        },
    }


@cache
def _strategies() -> dict[tuple[str, str], RestStrategy]:
    groups = {"": _core()} | _workloads() | _infrastructure_strategies() | _governance()
    strategies = {(group, plural): strategy for group, kinds in groups.items() for plural, strategy in kinds.items()}
    for group, plurals in _CONDITIONAL.items():
        for plural in plurals:
            strategies[group, plural].unconditional_update = False
    return strategies
