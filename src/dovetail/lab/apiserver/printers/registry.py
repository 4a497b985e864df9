"""Which kind has which columns."""

from __future__ import annotations

from dovetail.lab.apiserver.printers import cluster_scoped, namespaced, pods, workloads
from dovetail.lab.apiserver.printers.layout import Layout

_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_NETWORK = "networking.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

LAYOUTS: dict[tuple[str, str], Layout] = {
    ("", "pods"): (pods.HEADERS, pods.cells),
    ("", "nodes"): (cluster_scoped.NODES, cluster_scoped.node),
    ("", "namespaces"): (cluster_scoped.NAMESPACES, cluster_scoped.namespace),
    ("", "events"): (cluster_scoped.EVENTS, cluster_scoped.event),
    ("events.k8s.io", "events"): (cluster_scoped.EVENTS, cluster_scoped.event),
    ("", "services"): (cluster_scoped.SERVICES, cluster_scoped.service),
    ("", "endpoints"): (cluster_scoped.ENDPOINTS, cluster_scoped.endpoints),
    ("discovery.k8s.io", "endpointslices"): (cluster_scoped.SLICES, cluster_scoped.endpoint_slice),
    (_NETWORK, "ingresses"): (cluster_scoped.INGRESSES, cluster_scoped.ingress),
    (_NETWORK, "ingressclasses"): (cluster_scoped.INGRESS_CLASSES, cluster_scoped.ingress_class),
    (_NETWORK, "networkpolicies"): (cluster_scoped.POLICIES, cluster_scoped.network_policy),
    ("apps", "deployments"): (workloads.DEPLOYMENTS, workloads.deployment),
    ("apps", "replicasets"): (workloads.REPLICAS, workloads.replicaset),
    ("", "replicationcontrollers"): (workloads.REPLICAS, workloads.replicationcontroller),
    ("apps", "statefulsets"): (workloads.STATEFULSETS, workloads.statefulset),
    ("apps", "daemonsets"): (workloads.DAEMONSETS, workloads.daemonset),
    ("apps", "controllerrevisions"): (workloads.REVISIONS, workloads.revision),
    ("batch", "jobs"): (workloads.JOBS, workloads.job),
    ("batch", "cronjobs"): (workloads.CRONJOBS, workloads.cronjob),
    ("policy", "poddisruptionbudgets"): (workloads.BUDGETS, workloads.budget),
    ("autoscaling", "horizontalpodautoscalers"): (workloads.AUTOSCALERS, workloads.autoscaler),
    ("autoscaling", "scales"): (workloads.SCALES, workloads.scale),
    ("", "configmaps"): (namespaced.CONFIGMAPS, namespaced.configmap),
    ("", "secrets"): (namespaced.SECRETS, namespaced.secret),
    ("", "serviceaccounts"): (namespaced.ACCOUNTS, namespaced.account),
    ("", "persistentvolumes"): (namespaced.VOLUMES, namespaced.volume),
    ("", "persistentvolumeclaims"): (namespaced.CLAIMS, namespaced.claim),
    ("", "resourcequotas"): (namespaced.QUOTAS, namespaced.quota),
    ("", "podtemplates"): (namespaced.TEMPLATES, namespaced.template),
    (_STORAGE, "storageclasses"): (namespaced.STORAGE_CLASSES, namespaced.storage_class),
    (_STORAGE, "volumeattachments"): (namespaced.ATTACHMENTS, namespaced.attachment),
    (_STORAGE, "volumeattributesclasses"): (namespaced.ATTRIBUTES_CLASSES, namespaced.attributes_class),
    (_STORAGE, "csinodes"): (namespaced.CSI_NODES, namespaced.csi_node),
    (_STORAGE, "csidrivers"): (namespaced.CSI_DRIVERS, namespaced.csi_driver),
    ("coordination.k8s.io", "leases"): (namespaced.LEASES, namespaced.lease),
    ("scheduling.k8s.io", "priorityclasses"): (namespaced.PRIORITIES, namespaced.priority),
    (_RBAC, "rolebindings"): (namespaced.BINDINGS, namespaced.binding),
    (_RBAC, "clusterrolebindings"): (namespaced.BINDINGS, namespaced.binding),
    (_ADMISSION, "mutatingwebhookconfigurations"): (namespaced.WEBHOOKS, namespaced.webhook),
    (_ADMISSION, "validatingwebhookconfigurations"): (namespaced.WEBHOOKS, namespaced.webhook),
    (_ADMISSION, "validatingadmissionpolicies"): (namespaced.ADMISSION_POLICIES, namespaced.admission_policy),
    (_ADMISSION, "validatingadmissionpolicybindings"): (namespaced.ADMISSION_BINDINGS, namespaced.admission_binding),
    (_NETWORK, "servicecidrs"): (namespaced.SERVICE_CIDRS, namespaced.service_cidr),
    ("resource.k8s.io", "deviceclasses"): (namespaced.DEVICE_CLASSES, namespaced.device_class),
    ("node.k8s.io", "runtimeclasses"): (namespaced.RUNTIMES, namespaced.runtime),
    ("apiregistration.k8s.io", "apiservices"): (namespaced.API_SERVICES, namespaced.api_service),
    (_FLOW, "flowschemas"): (namespaced.FLOW_SCHEMAS, namespaced.flow_schema),
    (_FLOW, "prioritylevelconfigurations"): (namespaced.PRIORITY_LEVELS, namespaced.priority_level),
    ("certificates.k8s.io", "certificatesigningrequests"): (namespaced.CERTIFICATES, namespaced.certificate),
}


def layout_of(group: str, plural: str) -> Layout | None:
    """The layout of a built-in kind that has one."""
    return LAYOUTS.get((group, plural))
