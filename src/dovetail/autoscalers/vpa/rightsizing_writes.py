"""Carrying out what `dovetail rightsize` proposes: requests of workloads, or VerticalPodAutoscalers for them.

A workload whose usage is not known is not touched. A refusal costs its own object, not the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from dovetail.autoscalers.vpa.api import VPAS
from dovetail.autoscalers.vpa.rightsizing import CONTROLLED_RESOURCES, WorkloadKey
from dovetail.autoscalers.vpa.rightsizing_cost import RightsizingReport
from dovetail.autoscalers.vpa.targets import WELL_KNOWN
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, ApiError
from dovetail.kube.resources import Resource

UPDATE_MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate")
#: New pods get what is recommended, and none is evicted for it.
DEFAULT_UPDATE_MODE = "Initial"
#: The kinds whose template can be changed. That of a Job cannot: the next Job has to be made with other requests.
_API_VERSIONS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1",
                 "CronJob": "batch/v1", "ReplicationController": "v1"}  # fmt: skip


class Written(msgspec.Struct, frozen=True):
    """What became of one object: done, left as it was, or refused with the server's words."""

    object: str
    state: Literal["changed", "created", "exists", "refused"]
    why: str = ""


def unpatched(report: RightsizingReport) -> list[WorkloadKey]:
    """The workloads with a proposal that no patch can carry out."""
    return [item.key for item in report.workloads if item.is_proposal and item.key.kind not in _API_VERSIONS]


def as_patches(report: RightsizingReport) -> list[dict[str, Any]]:
    """Strategic merge patches: the proposed resources of each workload's containers."""
    patches = []
    for item in report.workloads:
        containers = [
            {
                "name": container.name,
                "resources": {
                    "requests": container.proposed,
                    **({"limits": container.proposed_limits} if container.proposed_limits else {}),
                },
            }
            for container in item.containers
            if container.proposed
        ]
        if item.is_proposal and item.key.kind in _API_VERSIONS:
            spec: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
            patches.append(
                {
                    "apiVersion": _API_VERSIONS[item.key.kind],
                    "kind": item.key.kind,
                    "metadata": {"name": item.key.name, "namespace": item.key.namespace},
                    "spec": {"jobTemplate": {"spec": spec}} if item.key.kind == "CronJob" else spec,
                }
            )
    return patches


def as_vpas(report: RightsizingReport, targeted: Collection[WorkloadKey], mode: str) -> list[dict[str, Any]]:
    """A VerticalPodAutoscaler for each workload with a proposal that has none yet, without what an HPA holds."""
    return [
        {
            "apiVersion": VPAS.api_version,
            "kind": VPAS.kind,
            "metadata": {"name": item.key.name, "namespace": item.key.namespace},
            "spec": {
                "targetRef": {
                    "apiVersion": WELL_KNOWN[item.key.kind].api_version,
                    "kind": item.key.kind,
                    "name": item.key.name,
                },
                "updatePolicy": {"updateMode": mode},
                **_resource_policy(item.scaled_by),
            },
        }
        for item in report.workloads
        if item.is_proposal and item.key.kind in WELL_KNOWN and item.key not in targeted
    ]


def _resource_policy(held: Collection[str]) -> dict[str, Any]:
    if not held:
        return {}
    controlled = [name for name in CONTROLLED_RESOURCES if name not in held]
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "*", "controlledResources": controlled}]}}


async def write_patches(kube: Kube, report: RightsizingReport) -> list[Written]:
    """Set the proposed requests and limits of workloads; their controllers replace the pods."""
    done = []
    for body in as_patches(report):
        resource = WELL_KNOWN[body["kind"]]
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        change = {"spec": body["spec"]}
        try:
            await kube.patch(resource, name, change, namespace, kind="strategic")
        except ApiError as problem:
            done.append(Written(_title(resource, body), "refused", problem.message))
            continue
        done.append(Written(_title(resource, body), "changed"))
    return done


async def write_vpas(
    kube: Kube, report: RightsizingReport, targeted: Collection[WorkloadKey], mode: str
) -> list[Written]:
    """Create VerticalPodAutoscalers; one of the same name is left as it is."""
    done = []
    for body in as_vpas(report, targeted, mode):
        try:
            await kube.create(VPAS, body)
        except AlreadyExists:
            done.append(Written(_title(VPAS, body), "exists"))
        except ApiError as problem:
            done.append(Written(_title(VPAS, body), "refused", problem.message))
        else:
            done.append(Written(_title(VPAS, body), "created"))
    return done


def _title(resource: Resource, body: Mapping[str, Any]) -> str:
    return f"{resource.kind.lower()}/{body['metadata']['namespace']}/{body['metadata']['name']}"
