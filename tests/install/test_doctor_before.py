"""Checks of `dovetail doctor`: what an installation needs, before it is made. Each fault gives a finding."""

from __future__ import annotations

import pytest

from dovetail.install.doctor.collect import (
    VERSION,
)
from dovetail.install.doctor.facts import SourceAnswer, State, Status
from tests.install.doctor_facts import (
    CLOSED_TABLE,
    DEPLOYMENTS,
    FAILED,
    KARPENTER,
    NODES,
    WARNING,
    Case,
    assert_found,
    cluster_autoscaler,
    deployment,
    of,
    ready_node,
    subnet,
)

CASES: list[Case] = [
    ("P01", FAILED, "its status is CREATING", {"eks:DescribeCluster": {"status": "CREATING"}}),
    ("P01", FAILED, "1.24 or later is needed", {VERSION: {"major": "1", "minor": "21"}}),
    ("P02", FAILED, "the controller cannot run", {NODES: []}),
    ("P02", WARNING, "it alone has room", {NODES: [ready_node("n1")]}),
    ("P03", FAILED, "names no subnet", {"cluster subnets": []}),
    ("P03", FAILED, "fewer than 16", {"cluster subnets": [subnet("s", "a", free=3), subnet("t", "b", free=3)]}),
    ("P03", WARNING, "leads out of the VPC", {"route tables": [CLOSED_TABLE]}),
    ("P04", WARNING, "Cluster Autoscaler runs", cluster_autoscaler("--nodes=1:3:a")),
    ("P04", WARNING, "Karpenter runs", {DEPLOYMENTS: [deployment(KARPENTER)]}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_fault_is_found(case: Case) -> None:
    assert_found(*case)


def test_endpoints_of_the_vpc_are_read_only_where_no_subnet_leads_out() -> None:
    refused = SourceAnswer(state=State.REFUSED, right="ec2:DescribeVpcEndpoints", message="no")
    assert [row.status for row in of("P03", {"VPC endpoints": refused})] == [Status.PASSED]
    closed = of("P03", {"VPC endpoints": refused, "route tables": [CLOSED_TABLE]})
    assert [row.status for row in closed] == [Status.NOT_CHECKED]
