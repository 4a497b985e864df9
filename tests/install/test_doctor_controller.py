"""Checks of `dovetail doctor`: the controller, its rights, lease and definitions. Each fault gives a finding."""

from __future__ import annotations

import pytest

from dovetail.install.doctor.collect import (
    LAB_FAULTS,
    SAFE_MODE,
)
from dovetail.kube import resources as kinds
from tests.install.doctor_facts import (
    CONTROLLER_POD,
    DEPLOYMENTS,
    FAILED,
    KARPENTER,
    LEASE,
    NODES,
    PODS,
    SECOND,
    STALE,
    THREE,
    WARNING,
    Case,
    ago,
    assert_found,
    claims_without_gte,
    crd,
    deployment,
    node,
    owned_by,
    scaled_to_zero,
)

CASES: list[Case] = [
    (
        "D09",
        FAILED,
        "FailedCreate: pods are forbidden: exceeded quota: q",
        {
            DEPLOYMENTS: [
                deployment(
                    KARPENTER,
                    readyReplicas=0,
                    conditions=[
                        {
                            "type": "ReplicaFailure",
                            "status": "True",
                            "reason": "FailedCreate",
                            "message": "pods are forbidden: exceeded quota: q",
                        }
                    ],
                )
            ]
        },
    ),
    (
        "D06",
        WARNING,
        "release-name is 'platform'",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            kinds.CRDS.name: [owned_by(THREE[0], "platform"), *(owned_by(row, "karpenter-crd") for row in THREE[1:])],
        },
    ),
    ("D06", FAILED, "not installed", {DEPLOYMENTS: [deployment(KARPENTER)], kinds.CRDS.name: THREE[:2]}),
    (
        "D06",
        FAILED,
        "storedVersions",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            kinds.CRDS.name: [crd("nodepools.karpenter.sh", storedVersions=["v1beta1", "v1"]), *THREE[1:]],
        },
    ),
    (
        "D06",
        FAILED,
        "refuses the operators Gte, Lte",
        {
            DEPLOYMENTS: [deployment(KARPENTER.replace("1.8.1", "1.9.0"))],
            kinds.CRDS.name: [*THREE[::2], claims_without_gte()],
        },
    ),
    ("D07", FAILED, "grows in memory", {DEPLOYMENTS: [deployment(KARPENTER.replace("1.8.1", "1.8.4"))]}),
    ("D07", WARNING, "this command is", {DEPLOYMENTS: [deployment("dovetail/controller:0.0.1")]}),
    (
        "D07",
        FAILED,
        "newer than the API server",
        {NODES: [{**node(), "status": {"nodeInfo": {"kubeletVersion": "v1.35.0-eks-1"}}}]},
    ),
    ("D07", FAILED, "needs 1.6.0 or later", {DEPLOYMENTS: [deployment(KARPENTER.replace("1.8.1", "1.2.0"))]}),
    ("D09", FAILED, "spec.replicas is 0", {DEPLOYMENTS: [scaled_to_zero()]}),
    ("D09", FAILED, "readyReplicas is 0", {DEPLOYMENTS: [deployment(KARPENTER, readyReplicas=0)]}),
    (
        "D09",
        FAILED,
        "belongs to NodePool default",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            PODS: [CONTROLLER_POD],
            NODES: [node(**{"karpenter.sh/nodepool": "default"})],
        },
    ),
    ("V01", FAILED, "lead at once", {kinds.LEASES.name: [LEASE, SECOND]}),
    ("V01", FAILED, "no controller holds it", {DEPLOYMENTS: [deployment(KARPENTER)], kinds.LEASES.name: [STALE]}),
    ("V02", FAILED, "no ClusterRole bound", {DEPLOYMENTS: [deployment("dovetail/controller:1")]}),
    (
        "V07",
        WARNING,
        "is in safe mode: it stopped",
        {
            SAFE_MODE: [
                {
                    "metadata": {"creationTimestamp": ago(minutes=2)},
                    "type": "Warning",
                    "note": "it stopped",
                    "regarding": {"name": "default"},
                }
            ]
        },
    ),
    (
        "V08",
        WARNING,
        "300 s ahead",
        {kinds.LEASES.name: [{**LEASE, "spec": {**LEASE["spec"], "renewTime": ago(minutes=-5)}}]},
    ),
    ("V09", WARNING, "api-slow", {LAB_FAULTS: {"message": "api-slow, for good"}}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_fault_is_found(case: Case) -> None:
    assert_found(*case)
