"""EKS's images: which version of Kubernetes and which system an instance runs, and what node groups take by default."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws import catalog
from dovetail.lab.kubelet.node import VERSION

#: Kubernetes versions that have images here; the walk-throughs name some of them.
VERSIONS = tuple(f"1.{minor}" for minor in range(24, 38))
#: The last minor version of Kubernetes that AL2 has images for.
LAST_AL2_MINOR = 32
_OWNER = "602401143452"
#: Patch release and date of every image here.
_PATCH, _DATE = VERSION.rpartition(".")[2], "20261101"
_MINOR = re.compile(r"(?<![\d.])1\.\d{2}(?![\d.])")
AMAZON_LINUX_2023, AMAZON_LINUX_2 = "AmazonLinux2023", "AmazonLinux2"
#: AMI types by the family of images that eksctl names.
FAMILIES = {
    AMAZON_LINUX_2023: "AL2023_{arch}_STANDARD",
    AMAZON_LINUX_2: "AL2_{arch}",
    "Bottlerocket": "BOTTLEROCKET_{arch}",
}
#: The parameter of an AMI type's newest image.
_PARAMETERS = {
    "AL2023_x86_64_STANDARD": "eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id",
    "AL2023_ARM_64_STANDARD": "eks/optimized-ami/{version}/amazon-linux-2023/arm64/standard/recommended/image_id",
    "AL2_x86_64": "eks/optimized-ami/{version}/amazon-linux-2/recommended/image_id",
    "AL2_x86_64_GPU": "eks/optimized-ami/{version}/amazon-linux-2-gpu/recommended/image_id",
    "AL2_ARM_64": "eks/optimized-ami/{version}/amazon-linux-2-arm64/recommended/image_id",
    "BOTTLEROCKET_x86_64": "bottlerocket/aws-k8s-{version}/x86_64/latest/image_id",
    "BOTTLEROCKET_ARM_64": "bottlerocket/aws-k8s-{version}/arm64/latest/image_id",
}


class System(msgspec.Struct, frozen=True):
    """What a node says of its image. `kubelet_version` is empty where the image's name tells none."""

    kubelet_version: str
    os_image: str
    kernel: str


def release_version(version: str) -> str:
    """The release of the images of a Kubernetes version, as node groups name it."""
    return f"{version}.{_PATCH}-{_DATE}"


def kubernetes_release(version: str) -> str:
    """The patch release of a Kubernetes version, as API server and kubelets say it."""
    return f"v{version}.{_PATCH}"


def has_al2(version: str) -> bool:
    """Whether Amazon Linux 2 has images for a Kubernetes version; an empty one is the lab's own."""
    return int((version or VERSION.removeprefix("v")).split(".")[1]) <= LAST_AL2_MINOR


def ami_type(instance_types: Sequence[str], family: str = "") -> str:
    """The AMI type of a family that eksctl names; without one what EKS takes for a node group that names none."""
    specs = [catalog.specs()[name] for name in instance_types if name in catalog.specs()]
    arm = bool(specs) and all(spec.arches[:1] == ("arm64",) for spec in specs)
    return FAMILIES[family or AMAZON_LINUX_2023].format(arch="ARM_64" if arm else "x86_64")


def newest(backend: Callable[[str], Any], version: str, kind: str) -> str:
    """The id of the newest image of an AMI type, for a Kubernetes version. `backend` gives moto's of a service."""
    path = _PARAMETERS.get(kind) or _PARAMETERS["AL2023_ARM_64_STANDARD" if "ARM" in kind else "AL2023_x86_64_STANDARD"]
    kept = backend("ssm")._parameters.get("/aws/service/" + path.format(version=version))
    if kept:
        return str(kept[-1].value)
    arch = "arm64" if "ARM" in kind else "x86_64"
    amis = backend("ec2").amis.items()
    return next(str(ami_id) for ami_id, ami in amis if ami.architecture == arch and ami.owner_id == _OWNER)


def system_of(image_name: str) -> System:
    """By the name of an image; one that is no image of EKS's counts as Amazon Linux 2023."""
    minor = _MINOR.search(image_name)
    version = minor[0] if minor else ""
    kubelet = kubernetes_release(version) if version else ""
    if "bottlerocket" in image_name:
        return System(kubelet, f"Bottlerocket OS 1.49.0 (aws-k8s-{version})", "6.12.40")
    if re.search(r"amazon-linux-2(?!\d)", image_name):
        return System(kubelet, "Amazon Linux 2", "5.10.242-239.961.amzn2")
    windows = re.search(r"windows.*(2019|2022)", image_name, re.IGNORECASE)
    if windows:
        return System(kubelet, f"Windows Server {windows[1]} Datacenter", "10.0.20348.4171")
    return System(kubelet, "Amazon Linux 2023.9.20250929", "6.12.46-66.121.amzn2023")


def with_images(plain: Callable[..., Any]) -> Callable[..., Any]:
    """moto's creation of node groups, with the images and versions that EKS chooses; AL2 ends with Kubernetes 1.32."""

    def create_nodegroup(self: Any, **arguments: Any) -> Any:
        from moto.eks.exceptions import InvalidParameterException

        cluster = self.clusters.get(arguments["cluster_name"])
        if cluster is not None and not (arguments.get("launch_template") and arguments.get("ami_type") == "CUSTOM"):
            version = arguments.get("version") or cluster.version
            kind = arguments.get("ami_type") or ami_type(arguments.get("instance_types") or ())
            if kind.startswith("AL2_") and not has_al2(version):
                raise InvalidParameterException(
                    message=f"AMI Type {kind} is only supported for kubernetes versions 1.{LAST_AL2_MINOR} or earlier"
                )
            arguments |= {
                "ami_type": kind,
                "version": version,
                "release_version": arguments.get("release_version") or release_version(version),
            }
        return plain(self, **arguments)

    return create_nodegroup
