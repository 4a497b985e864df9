"""The addresses of the kinds we talk to: group, version, plural, and how they become a URL path."""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One served resource, such as `apps/v1 deployments`."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """How Kubernetes names it in messages: `deployments.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of a door of it. No namespace: all of them."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r} lives in a namespace, and none was given")
        parts.append(self.plural)
        if name:
            parts.append(name)
            if subresource:
                parts.append(subresource)
        return "/".join(parts)


def _core(plural: str, kind: str, namespaced: bool = True) -> Resource:
    return Resource("", "v1", plural, kind, namespaced)


def _cluster(group: str, version: str, plural: str, kind: str) -> Resource:
    return Resource(group, version, plural, kind, namespaced=False)


PODS = _core("pods", "Pod")
NODES = _core("nodes", "Node", False)
NAMESPACES = _core("namespaces", "Namespace", False)
SERVICES = _core("services", "Service")
SERVICEACCOUNTS = _core("serviceaccounts", "ServiceAccount")
CONFIGMAPS = _core("configmaps", "ConfigMap")
SECRETS = _core("secrets", "Secret")
ENDPOINTS = _core("endpoints", "Endpoints")
PERSISTENTVOLUMECLAIMS = _core("persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENTVOLUMES = _core("persistentvolumes", "PersistentVolume", False)
REPLICATIONCONTROLLERS = _core("replicationcontrollers", "ReplicationController")
RESOURCEQUOTAS = _core("resourcequotas", "ResourceQuota")
CORE_EVENTS = _core("events", "Event")

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICASETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMONSETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
CONTROLLERREVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")

JOBS = Resource("batch", "v1", "jobs", "Job")
CRONJOBS = Resource("batch", "v1", "cronjobs", "CronJob")

PODTEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
PROVISIONINGREQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")

HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")

PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITYCLASSES = _cluster("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
STORAGECLASSES = _cluster("storage.k8s.io", "v1", "storageclasses", "StorageClass")
CSINODES = _cluster("storage.k8s.io", "v1", "csinodes", "CSINode")
CSIDRIVERS = _cluster("storage.k8s.io", "v1", "csidrivers", "CSIDriver")
VOLUMEATTACHMENTS = _cluster("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
ENDPOINTSLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")

CRDS = _cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")

NODEPOOLS = _cluster("karpenter.sh", "v1", "nodepools", "NodePool")
NODECLAIMS = _cluster("karpenter.sh", "v1", "nodeclaims", "NodeClaim")
PROVISIONERS = _cluster("karpenter.sh", "v1alpha5", "provisioners", "Provisioner")
MACHINES = _cluster("karpenter.sh", "v1alpha5", "machines", "Machine")
AWSNODETEMPLATES = _cluster("karpenter.k8s.aws", "v1alpha1", "awsnodetemplates", "AWSNodeTemplate")
NODEOVERLAYS = _cluster("karpenter.sh", "v1alpha1", "nodeoverlays", "NodeOverlay")
EC2NODECLASSES = _cluster("karpenter.k8s.aws", "v1", "ec2nodeclasses", "EC2NodeClass")
