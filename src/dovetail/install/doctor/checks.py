"""Every check by its id, and the report they make of `Facts`. Pure: the same facts give the same report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from dovetail.install.doctor.access import (
    check_controller_identity,
    check_controller_policy,
    check_node_role,
    check_node_role_may_join,
)
from dovetail.install.doctor.admission import check_metrics, check_webhooks
from dovetail.install.doctor.capacity import (
    check_allocatable,
    check_daemon_sets,
    check_image_rollout,
    check_initialisation,
    check_node_pools,
    check_other_autoscalers,
    check_ready,
    check_spot,
)
from dovetail.install.doctor.controller import (
    check_controller_runs,
    check_definitions,
    check_lease,
    check_rights,
    check_versions,
)
from dovetail.install.doctor.facts import Facts, Fault, Finding, NotAvailable, Status
from dovetail.install.doctor.network import check_network, check_volume_keys

ACCOUNT, CONTROLLER, CAPACITY, WORKLOADS = "AWS account", "controller", "NodePools and nodes", "workloads"


class Check(msgspec.Struct, frozen=True):
    id: str
    group: str
    title: str
    faults: Callable[[Facts], Iterator[Fault]]


CHECKS: tuple[Check, ...] = (
    Check("D01", ACCOUNT, "the node role may join the cluster", check_node_role_may_join),
    Check("D02", ACCOUNT, "subnets and security groups are selected", check_network),
    Check("D03", ACCOUNT, "the controller's policy allows launches", check_controller_policy),
    Check("D04", ACCOUNT, "the controller has an AWS identity", check_controller_identity),
    Check("D05", ACCOUNT, "the node role exists and has its policies", check_node_role),
    Check("D17", ACCOUNT, "keys of volumes are enabled", check_volume_keys),
    Check("D06", CONTROLLER, "custom resource definitions match", check_definitions),
    Check("D07", CONTROLLER, "Kubernetes and controller versions match", check_versions),
    Check("D09", CONTROLLER, "the controller runs, outside its own nodes", check_controller_runs),
    Check("V01", CONTROLLER, "one controller holds the lease", check_lease),
    Check("V02", CONTROLLER, "the controller has its rights in the cluster", check_rights),
    Check("D08", CAPACITY, "spot interruptions reach the controller", check_spot),
    Check("D10", CAPACITY, "NodePools can launch instances", check_node_pools),
    Check("D11", CAPACITY, "predicted allocatable holds", check_allocatable),
    Check("D13", CAPACITY, "a new AMI does not replace a whole pool at once", check_image_rollout),
    Check("D14", CAPACITY, "no other autoscaler acts on the same nodes", check_other_autoscalers),
    Check("D15", CAPACITY, "registered nodes initialise", check_initialisation),
    Check("V03", CAPACITY, "NodePools and EC2NodeClasses are ready", check_ready),
    Check("D12", WORKLOADS, "DaemonSet pods fit the nodes that exist", check_daemon_sets),
    Check("D19", WORKLOADS, "admission webhooks answer", check_webhooks),
    Check("D20", WORKLOADS, "metrics are served, and autoscalers do not collide", check_metrics),
)


def report(facts: Facts, only: Sequence[str] = ()) -> list[Finding]:
    """The findings of each check, in the table's order; a check without any has passed."""
    findings: list[Finding] = []
    for check in CHECKS:
        if not only or check.id in only:
            findings.extend(findings_of(check, facts))
    return findings


def findings_of(check: Check, facts: Facts) -> list[Finding]:
    """What a check found before evidence ran out is kept; that it ran out is a finding of its own."""
    findings: list[Finding] = []
    try:
        for fault in check.faults(facts):
            findings.append(Finding(check.id, fault.status, fault.object, fault.message, fault.remedy))
    except NotAvailable as missing:
        findings.append(Finding(check.id, Status.NOT_CHECKED, "", f"not checked: {missing}", ""))
    return findings or [Finding(check.id, Status.PASSED, "", check.title, "")]
