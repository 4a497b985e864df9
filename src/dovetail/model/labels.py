"""Labels with a meaning: the well-known ones, their old names, and those that users may not set.

A well-known label may be asked for although no NodePool declares it: every node has some value for it.
"""

from __future__ import annotations

from collections.abc import Iterable

HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ZONE_ID = "topology.k8s.aws/zone-id"

#: Under which EKS, eksctl and kOps tell the node group of a node.
NODE_GROUPS = ("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", "kops.k8s.io/instancegroup")

GROUP = "karpenter.sh"
NODEPOOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
INITIALIZED = "karpenter.sh/initialized"
REGISTERED = "karpenter.sh/registered"
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"
PROVISIONER_NAME = "karpenter.sh/provisioner-name"

ON_DEMAND, SPOT, RESERVED = "on-demand", "spot", "reserved"
CAPACITY_TYPES = (ON_DEMAND, RESERVED, SPOT)

AWS_GROUP = "karpenter.k8s.aws"
NODECLASS = "karpenter.k8s.aws/ec2nodeclass"
TENANCY = "karpenter.k8s.aws/instance-tenancy"
GPU_COUNT = "karpenter.k8s.aws/instance-gpu-count"
ACCELERATOR_COUNT = "karpenter.k8s.aws/instance-accelerator-count"
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
RESERVATION_TYPE = "karpenter.k8s.aws/capacity-reservation-type"
RESERVATION_INTERRUPTIBLE = "karpenter.k8s.aws/capacity-reservation-interruptible"
PLACEMENT_GROUP = "karpenter.k8s.aws/placement-group-id"
PLACEMENT_PARTITION = "karpenter.k8s.aws/placement-group-partition"
_AWS_NAMES = (
    "capacity-reservation-id",
    "capacity-reservation-interruptible",
    "capacity-reservation-type",
    "ec2nodeclass",
    "instance-accelerator-count",
    "instance-accelerator-manufacturer",
    "instance-accelerator-name",
    "instance-capability-flex",
    "instance-category",
    "instance-cpu",
    "instance-cpu-manufacturer",
    "instance-cpu-sustained-clock-speed-mhz",
    "instance-ebs-bandwidth",
    "instance-encryption-in-transit-supported",
    "instance-family",
    "instance-generation",
    "instance-gpu-count",
    "instance-gpu-manufacturer",
    "instance-gpu-memory",
    "instance-gpu-name",
    "instance-hypervisor",
    "instance-local-nvme",
    "instance-memory",
    "instance-network-bandwidth",
    "instance-size",
    "instance-tenancy",
    "nitro-sandbox",
    "placement-group-id",
    "placement-group-partition",
)

#: Well known to the core, whatever the cloud.
CORE_WELL_KNOWN = frozenset({NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD})
#: Well known on AWS as well.
AWS_WELL_KNOWN = frozenset({ZONE_ID, *(f"{AWS_GROUP}/{name}" for name in _AWS_NAMES)})
WELL_KNOWN = CORE_WELL_KNOWN | AWS_WELL_KNOWN

RESTRICTED = frozenset({HOSTNAME})
RESTRICTED_DOMAINS = frozenset({GROUP, AWS_GROUP})

#: Old names of labels, and the name everything is compared by.
ALIASES = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    "topology.ebs.csi.aws.com/zone": ZONE,
}


def normalise(key: str) -> str:
    """The name a label is compared by."""
    return ALIASES.get(key, key)


def domain(key: str) -> str:
    """What stands before the slash, or nothing."""
    before, slash, _ = key.partition("/")
    return before if slash else ""


def listed(values: Iterable[str]) -> str:
    """A list as Go prints it."""
    return f"[{' '.join(sorted(values))}]"


def restricted(
    key: str,
    well_known: frozenset[str] = WELL_KNOWN,
    domains: frozenset[str] = RESTRICTED_DOMAINS,
) -> str | None:
    """Why a user may not set this label, or None."""
    if key in well_known:
        return None
    owner = domain(key)
    reserved = any(owner == domain or owner.endswith(f".{domain}") for domain in domains)
    if not reserved and key not in RESTRICTED:
        return None
    return (
        f"using label {key} is not allowed as it might interfere with the internal provisioning logic; "
        f"specify a well known label: {listed(well_known)}, "
        f"or a custom label that does not use a restricted domain: {listed(domains)}"
    )


#: How EKS says what runs a node; Fargate runs one pod on each of its own.
COMPUTE_TYPE, FARGATE = "eks.amazonaws.com/compute-type", "fargate"
