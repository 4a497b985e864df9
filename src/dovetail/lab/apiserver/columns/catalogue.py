"""Which kind has which columns."""

from __future__ import annotations

from dovetail.lab.apiserver.columns import Layout, clusters, others, pods, workloads

_RBAC = "rbac.authorization.k8s.io"
_STORAGE = "storage.k8s.io"
_NETWORK = "networking.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

LAYOUTS: dict[tuple[str, str], Layout] = {
    ("", "pods"): (pods.HEADERS, pods.cells),
    ("", "nodes"): (clusters.NODES, clusters.node),
    ("", "namespaces"): (clusters.NAMESPACES, clusters.namespace),
    ("", "events"): (clusters.EVENTS, clusters.event),
    ("events.k8s.io", "events"): (clusters.EVENTS, clusters.event),
    ("", "services"): (clusters.SERVICES, clusters.service),
    ("", "endpoints"): (clusters.ENDPOINTS, clusters.endpoints),
    ("discovery.k8s.io", "endpointslices"): (clusters.SLICES, clusters.endpoint_slice),
    (_NETWORK, "ingresses"): (clusters.INGRESSES, clusters.ingress),
    (_NETWORK, "ingressclasses"): (clusters.INGRESS_CLASSES, clusters.ingress_class),
    (_NETWORK, "networkpolicies"): (clusters.POLICIES, clusters.network_policy),
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
    ("", "configmaps"): (others.CONFIGMAPS, others.configmap),
    ("", "secrets"): (others.SECRETS, others.secret),
    ("", "serviceaccounts"): (others.ACCOUNTS, others.account),
    ("", "persistentvolumes"): (others.VOLUMES, others.volume),
    ("", "persistentvolumeclaims"): (others.CLAIMS, others.claim),
    ("", "resourcequotas"): (others.QUOTAS, others.quota),
    ("", "podtemplates"): (others.TEMPLATES, others.template),
    (_STORAGE, "storageclasses"): (others.STORAGE_CLASSES, others.storage_class),
    (_STORAGE, "volumeattachments"): (others.ATTACHMENTS, others.attachment),
    (_STORAGE, "volumeattributesclasses"): (others.ATTRIBUTES_CLASSES, others.attributes_class),
    (_STORAGE, "csinodes"): (others.CSI_NODES, others.csi_node),
    (_STORAGE, "csidrivers"): (others.CSI_DRIVERS, others.csi_driver),
    ("coordination.k8s.io", "leases"): (others.LEASES, others.lease),
    ("scheduling.k8s.io", "priorityclasses"): (others.PRIORITIES, others.priority),
    (_RBAC, "rolebindings"): (others.BINDINGS, others.binding),
    (_RBAC, "clusterrolebindings"): (others.BINDINGS, others.binding),
    (_ADMISSION, "mutatingwebhookconfigurations"): (others.WEBHOOKS, others.webhook),
    (_ADMISSION, "validatingwebhookconfigurations"): (others.WEBHOOKS, others.webhook),
    (_ADMISSION, "validatingadmissionpolicies"): (others.ADMISSION_POLICIES, others.admission_policy),
    (_ADMISSION, "validatingadmissionpolicybindings"): (others.ADMISSION_BINDINGS, others.admission_binding),
    (_NETWORK, "servicecidrs"): (others.SERVICE_CIDRS, others.service_cidr),
    ("resource.k8s.io", "deviceclasses"): (others.DEVICE_CLASSES, others.device_class),
    ("node.k8s.io", "runtimeclasses"): (others.RUNTIMES, others.runtime),
    ("apiregistration.k8s.io", "apiservices"): (others.API_SERVICES, others.api_service),
    (_FLOW, "flowschemas"): (others.FLOW_SCHEMAS, others.flow_schema),
    (_FLOW, "prioritylevelconfigurations"): (others.PRIORITY_LEVELS, others.priority_level),
    ("certificates.k8s.io", "certificatesigningrequests"): (others.CERTIFICATES, others.certificate),
}
