"""Every check by its id, and the report they make of `Facts`. Pure: the same facts give the same report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache

import msgspec

from dovetail.install.doctor.access import check_controller_identity, check_node_role_may_join
from dovetail.install.doctor.addresses import check_max_pods
from dovetail.install.doctor.admission import check_metrics, check_webhooks
from dovetail.install.doctor.capacity import (
    check_allocatable,
    check_image_rollout,
    check_initialisation,
    check_node_pools,
    check_other_autoscalers,
    check_ready,
)
from dovetail.install.doctor.controller import (
    check_definitions,
    check_lease,
    check_rights,
    check_versions,
)
from dovetail.install.doctor.controller_pods import check_controller_runs
from dovetail.install.doctor.controller_policy import check_controller_policy
from dovetail.install.doctor.daemon_sets import check_daemon_sets
from dovetail.install.doctor.facts import Facts, Fault, Finding, NotAvailable, Status
from dovetail.install.doctor.network import check_network
from dovetail.install.doctor.node_groups import check_cluster_autoscaler
from dovetail.install.doctor.node_role import check_node_role
from dovetail.install.doctor.own_state import check_clocks, check_lab, check_safe_mode
from dovetail.install.doctor.preinstall import check_cluster, check_other_controllers, check_room, check_subnets
from dovetail.install.doctor.rollout import check_dns, check_rollout
from dovetail.install.doctor.routes import check_ways_out
from dovetail.install.doctor.spot import check_spot
from dovetail.install.doctor.volumes import check_volume_keys
from dovetail.language import message, source

ACCOUNT, CONTROLLER, CAPACITY, WORKLOADS = (
    source("AWS account"),
    source("controller"),
    source("NodePools and nodes"),
    source("workloads"),
)
BEFORE = source("before the installation")


class CheckPhase(StrEnum):
    """In which run a check is made: with `--pre`, without, or both."""

    INSTALLED = "installed"
    BEFORE = "before"
    BOTH = "both"


class Check(msgspec.Struct, frozen=True):
    """`causes` are the checks whose failure explains the symptoms that this one finds."""

    id: str
    group: str
    title: str
    faults: Callable[[Facts], Iterator[Fault]]
    causes: tuple[str, ...] = ()
    when: CheckPhase = CheckPhase.INSTALLED


#: What keeps a controller from starting, and so leads to most of what it does not do.
START = ("D04", "D06", "V02")

#: What keeps instances from being launched or from joining, so that pods wait.
WAITING = (*START, "D01", "D02", "D03", "D05", "D08", "D09", "D16", "D17", "D18", "V01", "V03")

CHECKS: tuple[Check, ...] = (
    Check("P01", BEFORE, source("EKS knows the cluster, and supports it"), check_cluster, when=CheckPhase.BEFORE),
    Check("P02", BEFORE, source("nodes have room for the controller"), check_room, when=CheckPhase.BEFORE),
    Check("P03", BEFORE, source("the cluster's subnets are usable"), check_subnets, when=CheckPhase.BEFORE),
    Check("P04", BEFORE, source("no other autoscaler of nodes runs"), check_other_controllers, when=CheckPhase.BEFORE),
    Check("D01", ACCOUNT, source("the node role may join the cluster"), check_node_role_may_join),
    Check("D02", ACCOUNT, source("subnets and security groups are selected"), check_network, ("D03", "D04")),
    Check("D03", ACCOUNT, source("the controller's policy allows launches"), check_controller_policy, ("D04",)),
    Check("D04", ACCOUNT, source("the controller has an AWS identity"), check_controller_identity),
    Check("D05", ACCOUNT, source("the node role exists and has its policies"), check_node_role, ("D03", "D04")),
    Check("D17", ACCOUNT, source("keys of volumes can be used"), check_volume_keys),
    Check("D18", ACCOUNT, source("subnets lead out of the VPC, or it has endpoints"), check_ways_out),
    Check("D06", CONTROLLER, source("custom resource definitions match"), check_definitions),
    Check("D07", CONTROLLER, source("Kubernetes and controller versions match"), check_versions),
    Check(
        "D09",
        CONTROLLER,
        source("the controller runs, outside its own nodes"),
        check_controller_runs,
        (*START, "D01", "D02", "D03", "D05", "D07", "D18", "V04"),
    ),
    Check("V01", CONTROLLER, source("one controller holds the lease"), check_lease, (*START, "D03", "D09", "V04")),
    Check("V02", CONTROLLER, source("the controller has its rights in the cluster"), check_rights),
    Check("V07", CONTROLLER, source("the controller is not in safe mode"), check_safe_mode),
    Check("V08", CONTROLLER, source("clocks agree"), check_clocks, when=CheckPhase.BOTH),
    Check("V09", CONTROLLER, source("no fault is injected into a lab"), check_lab, when=CheckPhase.BOTH),
    Check(
        "D08", CAPACITY, source("spot interruptions reach the controller"), check_spot, (*START, "D03", "D09", "V01")
    ),
    Check("D10", CAPACITY, source("NodePools can launch instances"), check_node_pools, WAITING),
    Check("D11", CAPACITY, source("predicted allocatable holds"), check_allocatable),
    Check("D13", CAPACITY, source("a new AMI does not replace a whole pool at once"), check_image_rollout),
    Check("D14", CAPACITY, source("no other autoscaler acts on the same nodes"), check_other_autoscalers),
    Check("D15", CAPACITY, source("registered nodes initialise"), check_initialisation, ("D05", "D12", "D16")),
    Check("D16", CAPACITY, source("nodes have an address for every pod"), check_max_pods),
    Check(
        "V03",
        CAPACITY,
        source("NodePools and EC2NodeClasses are ready"),
        check_ready,
        (*START, "D02", "D03", "D05", "D09", "D17", "V01"),
    ),
    Check("V05", CAPACITY, source("changed NodePools replace their nodes"), check_rollout),
    Check("V06", CAPACITY, source("Cluster Autoscaler finds its groups"), check_cluster_autoscaler),
    Check("D12", WORKLOADS, source("DaemonSet pods fit the nodes that exist"), check_daemon_sets),
    Check("D19", WORKLOADS, source("admission webhooks answer"), check_webhooks, when=CheckPhase.BOTH),
    Check(
        "D20",
        WORKLOADS,
        source("metrics are served, and autoscalers do not collide"),
        check_metrics,
        when=CheckPhase.BOTH,
    ),
    Check("V04", WORKLOADS, source("the cluster's DNS runs"), check_dns, ("D19",), when=CheckPhase.BOTH),
)


def checks_of(*, pre: bool = False) -> tuple[Check, ...]:
    left_out = CheckPhase.INSTALLED if pre else CheckPhase.BEFORE
    return tuple(check for check in CHECKS if check.when is not left_out)


def report(facts: Facts, only: Sequence[str] = (), *, pre: bool = False) -> list[Finding]:
    """The findings of each check, in the table's order; a check without any has passed.

    Symptoms need the checks that may explain them, so all are made, whatever is asked for.
    """
    checks = checks_of(pre=pre)
    faults = {check.id: faults_of(check, facts) for check in checks}
    failed = _failed(checks, {check: rows for check, (rows, _) in faults.items()})
    findings: list[Finding] = []
    for check in checks:
        if not only or check.id in only:
            explained_by = [cause for cause in check.causes if cause in failed]
            findings.extend(findings_of(check, *faults[check.id], explained_by))
    return findings


def _failed(checks: Sequence[Check], faults: Mapping[str, Sequence[Fault]]) -> set[str]:
    """The checks that fail by themselves: a symptom counts where none of its causes failed."""
    causes = {check.id: check.causes for check in checks}

    @cache
    def fails(check: str) -> bool:
        rows = [row for row in faults.get(check, ()) if row.status is Status.FAILED]
        if not rows or not all(row.symptom for row in rows):
            return bool(rows)
        return not any(map(fails, causes[check]))

    return {check.id for check in checks if fails(check.id)}


def faults_of(check: Check, facts: Facts) -> tuple[list[Fault], str]:
    """What a check found, and the evidence that it lacked: faults found before that are kept."""
    faults: list[Fault] = []
    try:
        for fault in check.faults(facts):
            faults.append(fault)
    except NotAvailable as missing:
        return faults, str(missing)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return faults, message("an object has a form that this check does not understand ({error!r})", error=error)
    return faults, ""


def findings_of(check: Check, faults: Sequence[Fault], missing: str, explained_by: Sequence[str] = ()) -> list[Finding]:
    """A symptom that another failure explains only warns."""
    findings: list[Finding] = []
    for fault in faults:
        status, text = fault.status, fault.message
        if fault.symptom and explained_by:
            status, text = (
                Status.WARNING,
                message("{text}; {explained_by} is the likely cause", text=text, explained_by=explained_by[0]),
            )
        findings.append(Finding(check.id, status, fault.object, text, fault.remedy, fault.safe))
    if missing:
        findings.append(
            Finding(check.id, Status.NOT_CHECKED, "", message("not checked: {missing}", missing=missing), "")
        )
    return findings or [Finding(check.id, Status.PASSED, "", check.title, "")]
