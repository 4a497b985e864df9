"""The region of a cluster, where no option and no variable names one."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.clock import run_virtual
from dovetail.install.cluster_region import cluster_region, endpoint_region
from dovetail.kube import resources as kinds
from dovetail.lab.cluster import Lab


@pytest.mark.parametrize(
    ("server", "region"),
    [
        ("https://0123ABCD.gr7.ap-northeast-2.eks.amazonaws.com", "ap-northeast-2"),
        ("https://0123ABCD.sk1.us-gov-west-1.eks.amazonaws.com:443", "us-gov-west-1"),
        ("https://0123ABCD.yl4.cn-north-1.eks.amazonaws.com.cn", "cn-north-1"),
        ("https://0123ABCD.eks-cluster.eu-west-1.api.aws", "eu-west-1"),
        ("https://eu-west-1.example.com", ""),
        ("https://127.0.0.1:6443", ""),
        ("https://[::1]:6443", ""),
    ],
)
def test_the_endpoint_of_eks_names_its_region(server: str, region: str) -> None:
    assert endpoint_region(server) == region


def node(name: str, provider: str, region: str) -> dict[str, Any]:
    labels = {"topology.kubernetes.io/region": region} if region else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": provider}}


def region_with(*nodes: dict[str, Any]) -> str:
    async def main() -> str:
        async with Lab.embedded(1) as lab:
            for body in nodes:
                await lab.kube.create(kinds.NODES, body)
            return await cluster_region(lab.kube, "https://127.0.0.1:6443")

    return run_virtual(main())


def test_behind_another_name_the_nodes_tell_the_region() -> None:
    ours = [node(f"n{number}", f"aws:///eu-west-1a/i-{number}", "eu-west-1") for number in range(3)]
    hybrid = node("hybrid", "eks-hybrid:///us-east-1/demo/mi-1", "us-east-1")
    assert region_with(*ours, node("stray", "aws:///us-west-2a/i-9", "us-west-2"), hybrid) == "eu-west-1"


def test_nodes_that_are_no_instances_tell_none() -> None:
    assert region_with(node("bare", "", "eu-west-1"), node("kind", "kind://docker/kind/n", "")) == ""
