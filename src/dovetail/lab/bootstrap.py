"""What a lab's cluster has from the start, beside what every API server makes: storage as on EKS."""

from __future__ import annotations

from typing import Any

from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.resources import CSIDRIVERS, STORAGECLASSES, Resource

_OBJECTS: tuple[tuple[Resource, dict[str, Any]], ...] = (
    (
        STORAGECLASSES,
        {
            "metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "ebs.csi.aws.com",
            "parameters": {"type": "gp3"},
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        },
    ),
    (
        CSIDRIVERS,
        {"metadata": {"name": "ebs.csi.aws.com"}, "spec": {"attachRequired": True, "podInfoOnMount": False}},
    ),
)


async def bootstrap(kube: Kube) -> None:
    for resource, body in _OBJECTS:
        try:
            await kube.create(resource, body)
        except AlreadyExists:
            continue
