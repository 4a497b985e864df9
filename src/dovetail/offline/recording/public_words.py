"""Words that are the same in every cluster: what an anonymised recording keeps as it is."""

from __future__ import annotations

import re

#: Fields whose values are words of the API, the same in every cluster.
PLAIN_FIELDS = frozenset(
    [
        "phase",
        "status",
        "reason",
        "action",
        "operator",
        "effect",
        "protocol",
        "restartPolicy",
        "qosClass",
        "whenUnsatisfiable",
        "preemptionPolicy",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "medium",
        "architecture",
        "operatingSystem",
        "policy",
        "completionMode",
        "concurrencyPolicy",
        "schedule",
        "timeZone",
        "podManagementPolicy",
        "updateMode",
        "controlledValues",
        "mode",
        "volumeBindingMode",
        "reclaimPolicy",
        "persistentVolumeReclaimPolicy",
        "volumeMode",
        "accessModes",
        "consolidationPolicy",
        "consolidateAfter",
        "expireAfter",
        "terminationGracePeriod",
        "nodes",
        "budgets",
        "reasons",
        "duration",
        "resizePolicy",
        "resourceName",
        "unhealthyPodEvictionPolicy",
        "averageUtilization",
        "containerPolicies",
        "resize",
        "amiFamily",
        "alias",
        "component",
        "reportingComponent",
        "currency",
        "podReplacementPolicy",
        "whenDeleted",
        "whenScaled",
        "selectPolicy",
        "changeRequirement",
        "httpEndpoint",
        "httpProtocolIPv6",
        "httpTokens",
        "volumeType",
        "deviceName",
        "instanceStorePolicy",
        "instanceMatchCriteria",
        "tenancy",
        "zone",
        "zoneID",
        "region",
    ]
)
#: Conditions, addresses, strategies, metrics and events: the types that Kubernetes and the autoscalers write.
PLAIN_TYPES = frozenset(
    [
        "Ready",
        "Initialized",
        "PodScheduled",
        "ContainersReady",
        "DisruptionTarget",
        "PodReadyToStartContainers",
        "PodResizePending",
        "PodResizeInProgress",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "AcceleratedHardwareReady",
        "ContainerRuntimeReady",
        "KernelReady",
        "NetworkingReady",
        "StorageReady",
        "Launched",
        "Registered",
        "Consolidatable",
        "Drifted",
        "Empty",
        "Expired",
        "DisruptionReason",
        "InstanceTerminating",
        "Drained",
        "VolumesDetached",
        "ConsistentStateFound",
        "NodeClassReady",
        "ValidationSucceeded",
        "NodeRegistrationHealthy",
        "SubnetsReady",
        "SecurityGroupsReady",
        "AMIsReady",
        "InstanceProfileReady",
        "CapacityReservationsReady",
        "Available",
        "Progressing",
        "ReplicaFailure",
        "Complete",
        "Failed",
        "Suspended",
        "SuccessCriteriaMet",
        "FailureTarget",
        "AbleToScale",
        "ScalingActive",
        "ScalingLimited",
        "RecommendationProvided",
        "LowConfidence",
        "NoPodsMatched",
        "FetchingHistory",
        "ConfigDeprecated",
        "ConfigUnsupported",
        "DisruptionAllowed",
        "FileSystemResizePending",
        "Resizing",
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
        "InternalIP",
        "ExternalIP",
        "Hostname",
        "InternalDNS",
        "ExternalDNS",
        "Normal",
        "Warning",
        "RollingUpdate",
        "Recreate",
        "OnDelete",
        "Resource",
        "ContainerResource",
        "Pods",
        "Object",
        "External",
        "Percent",
        "Utilization",
        "AverageValue",
        "Value",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
        "CharDevice",
        "BlockDevice",
    ]
)
#: API groups whose kinds are the same in every cluster, beside those of *.k8s.io.
PLAIN_GROUPS = frozenset(
    ["", "apps", "batch", "autoscaling", "policy", "extensions", "karpenter.sh", "karpenter.k8s.aws"]
)
VERSION = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
#: Drivers of volumes that every cluster of a cloud has.
PLAIN_DRIVERS = re.compile(
    r"(ebs|efs|fsx|s3)\.csi\.aws\.com|kubernetes\.io/(aws-ebs|gce-pd|azure-disk|no-provisioner)"
    r"|pd\.csi\.storage\.gke\.io|(disk|file)\.csi\.azure\.com"
)
PLAIN_SYSTEM = re.compile(r"(Amazon Linux|Bottlerocket( OS)?|Ubuntu|Debian GNU/Linux|Windows Server)( [0-9.() ]+.*)?")
KUBELET = re.compile(r"(v[0-9]+\.[0-9]+\.[0-9]+)(-eks-[0-9a-f]+)?")
#: Fields that say something to people: they name objects, so they are left out.
DROPPED_FIELDS = frozenset({"message", "note", "description"})
#: Fields whose keys are names as well.
MAPS = frozenset(
    {"labels", "annotations", "nodeSelector", "matchLabels", "selector", "tags", "parameters", "volumeAttributes"}
)
#: Fields whose keys are resources: cpu, nvidia.com/gpu.
AMOUNTS = frozenset({"capacity", "allocatable", "requests", "limits", "overhead", "allocatedResources", "hard", "used"})
PLAIN_RESOURCES = re.compile(
    r"cpu|memory|pods|nodes|storage|ephemeral-storage|hugepages-[0-9]+[KMG]i|attachable-volumes-[a-z-]+"
    r"|(nvidia\.com|amd\.com|gpu\.intel\.com|habana\.ai|aws\.amazon\.com|vpc\.amazonaws\.com)/[a-zA-Z0-9.-]+"
)
PLAIN_NAMES = frozenset(
    [
        "cpu",
        "memory",
        "kubernetes",  # the finalizer of a Namespace
        "orphan",
        "foregroundDeletion",
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "karpenter",
        "system-node-critical",
        "system-cluster-critical",
        "default-scheduler",
    ]
)
#: Labels whose keys and values say what a node is.
PLAIN_LABELS = frozenset(
    [
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "node.kubernetes.io/windows-build",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "topology.k8s.aws/zone-id",
        "topology.ebs.csi.aws.com/zone",
        "karpenter.sh/capacity-type",
        "karpenter.sh/initialized",
        "karpenter.sh/registered",
        "eks.amazonaws.com/capacityType",
        "eks.amazonaws.com/compute-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "dovetail.sh/price",
        "karpenter.sh/do-not-disrupt",
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "controller.kubernetes.io/pod-deletion-cost",
    ]
)
#: Domains whose label keys are the same in every cluster; values of `karpenter.k8s.aws/instance-*` as well. Those
#: below them are named one by one: anything can stand before `.kubernetes.io`.
PLAIN_DOMAINS = frozenset(
    [
        "kubernetes.io",
        "k8s.io",
        "karpenter.sh",
        "karpenter.k8s.aws",
        "k8s.aws",
        "eks.amazonaws.com",
        "dovetail.sh",
        "node.kubernetes.io",
        "topology.kubernetes.io",
        "app.kubernetes.io",
        "apps.kubernetes.io",
        "batch.kubernetes.io",
        "beta.kubernetes.io",
        "controller.kubernetes.io",
        "deployment.kubernetes.io",
        "kubectl.kubernetes.io",
        "cluster-autoscaler.kubernetes.io",
        "statefulset.kubernetes.io",
        "pv.kubernetes.io",
        "volume.kubernetes.io",
        "volume.beta.kubernetes.io",
        "scheduler.alpha.kubernetes.io",
        "node.alpha.kubernetes.io",
        "failure-domain.beta.kubernetes.io",
        "node.cloudprovider.kubernetes.io",
        "storageclass.kubernetes.io",
        "autoscaling.alpha.kubernetes.io",
        "service.kubernetes.io",
        "endpoints.kubernetes.io",
        "pod-security.kubernetes.io",
        "topology.k8s.aws",
        "compatibility.karpenter.sh",
        "compatibility.karpenter.k8s.aws",
        "vpc.k8s.aws",
        "resource.kubernetes.io",
    ]
)
#: Keys whose last part is chosen by people.
ROLE_DOMAINS = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
PLAIN_ROLES = frozenset({"control-plane", "master", "worker", "node", "spot-worker", "on-demand-worker"})
HARMLESS = re.compile(
    r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|%|s|h)?"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)"
    r"|([0-9]+(\.[0-9]+)?(h|m|s|ms))+|true|false|True|False|Never|\*|"
)
#: As many digits as the number of an AWS account, or more: no amount that a label would hold.
LONG_NUMBER = re.compile(r"[0-9]{10,}")
OWNER_FIELDS = frozenset({"owner", "ownerID", "accountID"})
#: Keys of labels without a domain that Kubernetes itself sets.
PLAIN_KEYS = frozenset(
    {
        "pod-template-hash",
        "controller-revision-hash",
        "job-name",
        "pod-template-generation",
        "metadata.name",  # no label: the field by which pods of a DaemonSet select their node
    }
)
