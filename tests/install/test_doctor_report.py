"""The report of `dovetail doctor`: healthy clusters, what was not read, secrets, and symptoms of other faults."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.install.doctor.checks import CHECKS, checks_of, report
from dovetail.install.doctor.collect import (
    AWS_AUTH,
    LISTED,
    METRICS,
    REFUSALS,
    SECRET_TEXT,
    trimmed,
    without_secrets,
)
from dovetail.install.doctor.facts import Facts, SourceAnswer, State
from dovetail.install.doctor.node_groups import DISCOVERY
from dovetail.kube import resources as kinds
from tests.install import test_doctor_account as account
from tests.install import test_doctor_before as before
from tests.install import test_doctor_capacity as capacity
from tests.install import test_doctor_controller as controller
from tests.install import test_doctor_workloads as workloads
from tests.install.doctor_facts import (
    ALL_RULES,
    ARN,
    BUNDLED,
    CLAIMS,
    CLASS,
    CLASSES,
    CLOSED_TABLE,
    CONTROLLER_POD,
    DEPLOYMENTS,
    ENCRYPTED,
    EXPECTED_DENIALS,
    FAILED,
    GROUPS,
    KARPENTER,
    KEY_USE,
    LEASE,
    NODES,
    NOT_CHECKED,
    NOW,
    OPEN_QUEUE,
    OPEN_TABLE,
    PODS,
    POOLS,
    SPOT,
    THREE,
    VOLUME_KEY,
    WARNING,
    a_class,
    ago,
    api_mode,
    changed_pool,
    claim,
    cluster_autoscaler,
    coredns,
    crowded,
    daemon_set,
    denial,
    deployment,
    dns_pod,
    endpoints,
    facts,
    group,
    node,
    not_ready,
    of,
    pool,
    ready_node,
    refusal,
    stand_in,
    subnet,
    tainted_pool,
    unschedulable_pod,
    with_queue,
)

ALL_CASES = [*before.CASES, *account.CASES, *controller.CASES, *capacity.CASES, *workloads.CASES]


HEALTHY: dict[str, dict[str, Any]] = {
    "Cluster Autoscaler alone": {
        **cluster_autoscaler(f"{DISCOVERY}=asg:tag=a,b", "--nodes=1:3:ng"),
        GROUPS: [group("a", "b", "c")],
        **{kind: SourceAnswer(state=State.ABSENT) for kind in (CLASSES, POOLS, CLAIMS)},
    },
    "Karpenter": {
        CLASSES: [CLASS],
        POOLS: [pool(requirements=SPOT)],
        DEPLOYMENTS: [with_queue("demo")],
        "queue demo": OPEN_QUEUE,
        "rules of demo": ALL_RULES,
        kinds.CRDS.name: THREE,
        kinds.LEASES.name: [LEASE],
        kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
        "eks:ListPodIdentityAssociations": [{"namespace": "kube-system", "serviceAccount": "karpenter"}],
        kinds.DAEMONSETS.name: [
            {**daemon_set("eks-pod-identity-agent"), "status": {"numberReady": 1}},
            daemon_set("aws-node", annotated=True),
        ],
        "policies of nodes": [
            {"PolicyName": name}
            for name in (
                "AmazonEKSWorkerNodePolicy",
                "AmazonEC2ContainerRegistryPullOnly",
                "AmazonEKS_CNI_Policy",
            )
        ],
        "controller association": {"roleArn": "arn:aws:iam::111122223333:role/controller"},
        "role controller": {
            "AssumeRolePolicyDocument": {
                "Statement": [{"Effect": "Allow", "Principal": {"Service": "pods.eks.amazonaws.com"}}]
            }
        },
        CLAIMS: [claim(Registered=("True", ago(hours=1)), Initialized=("True", ago(hours=1)))],
        NODES: [node()],
        PODS: [CONTROLLER_POD],
    },
    "a controller without leader election": {
        DEPLOYMENTS: [stand_in()],
        CLASSES: [CLASS],
        POOLS: [pool(requirements=SPOT)],
        kinds.CRDS.name: BUNDLED,
    },
    "access entries": {
        CLASSES: [CLASS],
        "eks:DescribeCluster": api_mode("API"),
        "access entry nodes": {"type": "EC2_LINUX"},
        AWS_AUTH: SourceAnswer(state=State.ABSENT),
    },
    "policies of one's own": {CLASSES: [CLASS], "policies of nodes": [{"PolicyName": "OurNodes"}]},
    "IPv6": {
        CLASSES: [CLASS],
        "eks:DescribeCluster": {**api_mode("CONFIG_MAP"), "kubernetesNetworkConfig": {"ipFamily": "ipv6"}},
        "subnets of default": [subnet("s", "a", free=3), subnet("t", "b", free=3)],
    },
    "private subnets with endpoints": {
        CLASSES: [CLASS],
        "route tables": [CLOSED_TABLE],
        "VPC endpoints": endpoints("ec2", "ecr.api", "ecr.dkr", "s3", "sts"),
    },
    "public subnets": {
        CLASSES: [CLASS],
        "subnets of default": [{**subnet("s", "a"), "MapPublicIpOnLaunch": True}, subnet("t", "b")],
        "route tables": [
            {
                "Associations": [{"SubnetId": "s"}],
                "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}],
            },
            OPEN_TABLE,
        ],
    },
    "prefix delegation": {
        **crowded(),
        kinds.DAEMONSETS.name: [daemon_set("aws-node", annotated=True, ENABLE_PREFIX_DELEGATION="true")],
        "policies of nodes": [{"PolicyName": "OurNodes"}],
    },
    "another network": {**crowded(), kinds.DAEMONSETS.name: [daemon_set("cilium", annotated=True)]},
    "a key that IAM grants": {
        CLASSES: [ENCRYPTED],
        "key k": VOLUME_KEY,
        "policy of key k": {"Statement": [{**KEY_USE, "Principal": {"AWS": "arn:aws:iam::1:root"}}]},
    },
    "fresh EKS": {
        **{kind: SourceAnswer(state=State.ABSENT) for kind in (CLASSES, POOLS, CLAIMS)},
        DEPLOYMENTS: [coredns(ready=2)],
        PODS: [dns_pod()],
        NODES: [ready_node("n1"), ready_node("n2")],
        kinds.DAEMONSETS.name: [daemon_set("aws-node", annotated=True), daemon_set("kube-proxy", annotated=True)],
        METRICS: SourceAnswer(state=State.ABSENT),
        "node groups": [{"nodegroupName": "g", "nodeRole": ARN}],
    },
    "Fargate": {
        DEPLOYMENTS: [coredns(ready=2)],
        PODS: [{**dns_pod(), "spec": {"nodeName": "fargate-1", "containers": []}}],
        NODES: [
            {
                **ready_node("fargate-1"),
                "metadata": {"name": "fargate-1", "labels": {"eks.amazonaws.com/compute-type": "fargate"}},
                "spec": {"taints": [{"key": "eks.amazonaws.com/compute-type", "effect": "NoSchedule"}]},
            }
        ],
    },
    "several node groups": {
        CLASSES: [CLASS],
        "eks:DescribeCluster": api_mode("API_AND_CONFIG_MAP"),
        "access entry nodes": {"type": "EC2_LINUX"},
        "node groups": [{"nodegroupName": name, "nodeRole": f"{ARN}-{name}"} for name in ("a", "b", "c")],
    },
    "many pools": {
        CLASSES: [CLASS],
        kinds.DAEMONSETS.name: [daemon_set("kube-proxy", annotated=True)],
        POOLS: [
            {**tainted_pool("taints", f"team-{number}"), "metadata": {"name": f"team-{number}"}} for number in range(60)
        ],
    },
    "DNS on nodes with room": {DEPLOYMENTS: [coredns(ready=2)], PODS: [dns_pod()], NODES: [node()]},
    "a changed pool that rolls": {CLASSES: [CLASS], **changed_pool(Drifted=("True", ago(minutes=2)))},
}


def auto_mode() -> dict[str, Any]:
    """EKS's own NodePool: its class is of another group, and it has no limits."""
    general = pool(limits=None)
    general["spec"]["template"]["spec"]["nodeClassRef"]["group"] = "eks.amazonaws.com"
    return {kinds.NODEPOOLS.name: [general]}


def of_windows() -> dict[str, Any]:
    windows = [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]
    return {kinds.NODEPOOLS.name: [pool(requirements=windows)]}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_cluster_gives_no_failure_and_no_warning(name: str) -> None:
    findings = report(facts(answers=HEALTHY[name]))
    assert len(findings) >= len(checks_of())
    assert [row for row in findings if row.status in (FAILED, WARNING)] == []


@pytest.mark.parametrize("answers", [auto_mode(), of_windows()], ids=["EKS Auto Mode", "Windows"])
def test_pools_that_are_not_judged_by_limits_and_types(answers: dict[str, Any]) -> None:
    rows = [row for row in report(facts(answers=answers), ["D10"]) if row.status in (FAILED, WARNING)]
    assert rows == []


def test_private_subnets_with_endpoints_are_fit_for_an_installation() -> None:
    services = ("ec2", "ecr.api", "ecr.dkr", "s3", "sts", "ssm", "eks")
    for there, statuses in ((services, {"passed"}), (services[:-1], {WARNING})):
        answers = {"route tables": [CLOSED_TABLE], "VPC endpoints": endpoints(*there)}
        assert {row.status for row in report(facts(answers=answers), ["P03"], pre=True)} == statuses


def test_every_check_has_a_case() -> None:
    assert {check.id for check in CHECKS} == {case[0] for case in ALL_CASES}


def test_what_was_not_read_is_never_passed() -> None:
    """Absent evidence is not evidence: without a single source no check passes."""
    refused = SourceAnswer(state=State.REFUSED, right="list everything", message="no")
    nothing = Facts(time=NOW, answers={resource.name: refused for resource in LISTED})
    for pre in (False, True):
        findings = report(nothing, pre=pre)
        assert len(findings) == len(checks_of(pre=pre))
        assert {row.status for row in findings} == {NOT_CHECKED}


def test_secrets_are_not_kept() -> None:
    container = {
        "name": "c",
        "args": ["--token=abc"],
        "env": [{"name": "PASSWORD", "value": "abc"}, {"name": "CLUSTER_NAME", "value": "demo"}],
    }
    pod = {"metadata": {"labels": {"data": "kept"}}, "spec": {"userData": "abc", "containers": [container]}}
    kept = without_secrets(pod)
    assert "abc" not in str(kept)
    assert kept["metadata"]["labels"] == {"data": "kept"}
    assert kept["spec"]["containers"][0]["env"] == [{"name": "CLUSTER_NAME", "value": "demo"}]
    noted = {"example.com/password": "abc", "eks.amazonaws.com/role-arn": "kept", "k8s.io/x": "AKIAABCDEFGHIJKLMNOP"}
    annotated = without_secrets({"metadata": {"annotations": noted}})["metadata"]["annotations"]
    assert annotated == {"eks.amazonaws.com/role-arn": "kept", "k8s.io/x": "(removed)"}
    whole = {"metadata": {"name": "p", "annotations": {"a": "abc"}}, "spec": {"containers": [container]}}
    assert "abc" not in str(trimmed(kinds.PODS, whole))
    lines = 'level=info token="abcdef" key AKIAABCDEFGHIJKLMNOP Authorization: Bearer abcdef'
    assert "abcdef" not in SECRET_TEXT.sub("", lines)
    assert "AKIA" not in SECRET_TEXT.sub("", lines)


def test_a_symptom_only_warns_where_its_cause_failed() -> None:
    """A controller without credentials is not ready: the credentials fail, the rest follows."""
    lone = deployment(KARPENTER, readyReplicas=0)
    lone["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "AWS_ACCESS_KEY_ID"}]
    alone = {row.id: row for row in report(facts(answers={DEPLOYMENTS: [lone], kinds.CRDS.name: THREE}))}
    assert alone["D09"].status is FAILED
    account = [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}]
    both = {DEPLOYMENTS: [deployment(KARPENTER, readyReplicas=0)], kinds.SERVICEACCOUNTS.name: account}
    both[kinds.CRDS.name] = THREE
    findings = {row.id: row for row in report(facts(answers=both))}
    assert findings["D04"].status is FAILED
    assert (findings["D09"].status, "D04 is the likely cause" in findings["D09"].message) == (WARNING, True)
    assert {row.id: row for row in report(facts(answers=both), ["D09"])}["D09"].status is WARNING


def test_a_denied_launch_is_one_finding_with_the_command_that_ends_it() -> None:
    """A further policy does not undo a Deny, so the refused dry run must not propose one beside the right command."""
    resources = ("arn:aws:ec2:*:*:instance/*", "arn:aws:ec2:*:*:subnet/*")
    denied = [
        {**denial("launch", "ec2:CreateFleet", resource), "decision": "explicitDeny", "policy": "no-fleets"}
        for resource in resources
    ]
    findings = of(
        "D03",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            CLASSES: [not_ready("ValidationSucceeded", "CreateFleetAuthCheckFailed")],
            "denied to the controller": [*denied, *EXPECTED_DENIALS],
        },
    )
    (finding,) = [row for row in findings if row.status is FAILED]
    assert all(resource in finding.message for resource in resources)
    assert finding.remedy.startswith("aws iam delete-role-policy") and finding.remedy.endswith("no-fleets")


@pytest.mark.parametrize(("code", "fails"), [("UNTOLERATED_TAINT", True), ("NO_TYPE_FITS", False)])
def test_a_refusal_for_the_pods_own_reasons_fails_beside_another_fault(code: str, fails: bool) -> None:
    waiting = {PODS: [unschedulable_pod("a")], REFUSALS: [refusal("a", f"NodePool a: why ({code})")]}
    rows = report(facts(answers={CLASSES: [a_class(role=ARN)], **waiting}))
    failed = {row.id for row in rows if row.status is FAILED}
    assert "D05" in failed
    assert ("D10" in failed) is fails
