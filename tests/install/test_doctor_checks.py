"""Each check of `dovetail doctor` on a small value of facts: the fault gives a finding, its absence gives none."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.install.doctor.checks import CHECKS, findings_of, report
from dovetail.install.doctor.collect import AWS_AUTH, LISTED, METRICS, MUTATING, VERSION, VPAS, without_secrets
from dovetail.install.doctor.facts import Answer, Facts, Finding, State, Status
from dovetail.kube import resources as kinds
from dovetail.model.kinds import crds

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ARN = "arn:aws:iam::111122223333:role/nodes"
USER = "system:node:{{EC2PrivateDNSName}}"
MAPPED = f"- {{rolearn: '{ARN}', username: '{USER}', groups: [system:bootstrappers, system:nodes]}}"
EC2_TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}}]}
CLASS = {
    "metadata": {"name": "default"},
    "spec": {"role": "nodes", "amiSelectorTerms": [{"alias": "al2023@v20260401"}]},
}


def ago(**units: float) -> str:
    return (NOW - timedelta(**units)).isoformat().replace("+00:00", "Z")


def pool(**spec: Any) -> dict[str, Any]:
    inner = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}
    template = {"spec": {**inner, "requirements": spec.pop("requirements", [])}}
    return {"metadata": {"name": "default"}, "spec": {"limits": {"cpu": "100"}, "template": template, **spec}}


def deployment(image: str, name: str = "karpenter", **status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": name}
    spec = {"serviceAccountName": name, "containers": [{"name": "controller", "image": image}]}
    return {
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {"spec": spec}},
        "status": {"readyReplicas": 1, **status},
    }


def claim(allocatable: str = "7Gi", **conditions: tuple[str, str]) -> dict[str, Any]:
    rows = [
        {"type": kind, "status": status, "lastTransitionTime": since, "reason": "StartupTaintsExist", "message": "x"}
        for kind, (status, since) in conditions.items()
    ]
    status = {"nodeName": "n1", "allocatable": {"memory": allocatable}, "conditions": rows}
    return {"metadata": {"name": "default-1"}, "status": status}


def node(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": labels}, "status": {"allocatable": {"memory": "7Gi"}}}


def facts(**given: Any) -> Facts:
    """A cluster with nothing in it, and what is given; `a_b` stands for the source's name in SOURCES."""
    answers: dict[str, Answer] = {resource.name: Answer(data=[]) for resource in LISTED}
    answers |= {
        AWS_AUTH: Answer(data={"mapRoles": MAPPED}),
        METRICS: Answer(data={}),
        VERSION: Answer(data={"major": "1", "minor": "34+"}),
        "eks:DescribeCluster": Answer(
            data={"accessConfig": {"authenticationMode": "CONFIG_MAP"}, "resourcesVpcConfig": {"vpcId": "vpc-1"}}
        ),
        "eks:ListPodIdentityAssociations": Answer(data=[]),
        "node groups": Answer(data=[]),
        "role nodes": Answer(data={"Arn": ARN, "AssumeRolePolicyDocument": EC2_TRUST}),
        "policies of nodes": Answer(
            data=[{"PolicyName": "AmazonEKSWorkerNodePolicy"}, {"PolicyName": "AmazonEC2ContainerRegistryPullOnly"}]
        ),
        "inline policies of nodes": Answer(data=[]),
        "role AWSServiceRoleForEC2Spot": Answer(data={}),
        "subnets of default": Answer(data=[{"SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailableIpAddressCount": 500}]),
        "security groups of default": Answer(data=[{"GroupId": "sg-1", "VpcId": "vpc-1"}]),
    }
    for source, data in given.pop("answers", {}).items():
        answers[source] = data if isinstance(data, Answer) else Answer(data=data)
    return Facts(time=NOW, cluster="demo", region="us-west-2", answers=answers)


def of(check: str, answers: Mapping[str, Any]) -> list[Finding]:
    entry = next(entry for entry in CHECKS if entry.id == check)
    return findings_of(entry, facts(answers=answers))


CLASSES, POOLS, CLAIMS = kinds.EC2NODECLASSES.name, kinds.NODEPOOLS.name, kinds.NODECLAIMS.name
DEPLOYMENTS, PODS, NODES = kinds.DEPLOYMENTS.name, kinds.PODS.name, kinds.NODES.name
KARPENTER = "public.ecr.aws/karpenter/controller:1.8.1@sha256:0"


def api_mode(mode: str) -> dict[str, Any]:
    return {"accessConfig": {"authenticationMode": mode}, "resourcesVpcConfig": {"vpcId": "vpc-1"}}


def a_class(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "default"}, "spec": {"role": "nodes", **spec}}


def not_ready(kind: str, reason: str) -> dict[str, Any]:
    rows = [{"type": name, "status": "False", "reason": reason, "message": "says why"} for name in (kind, "Ready")]
    return {**CLASS, "status": {"conditions": rows}}


def daemon_pod() -> dict[str, Any]:
    metadata = {"name": "agent-1", "namespace": "a", "ownerReferences": [{"kind": "DaemonSet", "name": "agent"}]}
    row = {"type": "PodScheduled", "status": "False", "lastTransitionTime": ago(minutes=9), "message": "no cpu"}
    return {"metadata": metadata, "spec": {}, "status": {"conditions": [{**row, "reason": "Unschedulable"}]}}


def hpa() -> dict[str, Any]:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [{"resource": {"name": "cpu"}}]}
    return {"metadata": {"name": "web", "namespace": "a"}, "spec": spec}


def vpa() -> dict[str, Any]:
    return {"metadata": {"name": "web", "namespace": "a"}, "spec": {"targetRef": {"kind": "Deployment", "name": "web"}}}


def webhook(bundle: str = "", policy: str = "Fail") -> dict[str, Any]:
    inner = {
        "name": "pods.example.com",
        "failurePolicy": policy,
        "rules": [{"apiGroups": [""], "resources": ["pods"]}],
        "clientConfig": {"caBundle": bundle} if bundle else {"service": {"namespace": "a", "name": "hook"}},
    }
    return {"metadata": {"name": "hook"}, "webhooks": [inner]}


def certificate(days: int) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=365))
        .not_valid_after(NOW + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def without_queue() -> dict[str, Any]:
    made = deployment(KARPENTER)
    made["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "CLUSTER_NAME", "value": "demo"}]
    return made


def with_queue(value: str) -> dict[str, Any]:
    made = deployment(KARPENTER)
    made["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "INTERRUPTION_QUEUE", "value": value}]
    return made


SPOT = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
OPEN_QUEUE = {"QueueArn": "arn:q", "Policy": '{"Statement": [{"Principal": {"Service": "events.amazonaws.com"}}]}'}
CLUSTER_TAG = [{"Key": "kubernetes.io/cluster/demo", "Value": "owned"}]
CONTROLLER_POD: dict[str, Any] = {
    "metadata": {"name": "karpenter-1", "namespace": "kube-system", "labels": {"app.kubernetes.io/name": "karpenter"}},
    "spec": {"nodeName": "n1"},
}
LEASE: dict[str, Any] = {
    "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": ago(seconds=5)},
}
STALE = {**LEASE, "spec": {**LEASE["spec"], "renewTime": ago(minutes=5)}}
SECOND = {**LEASE, "metadata": {**LEASE["metadata"], "namespace": "other"}}


def stand_in() -> dict[str, Any]:
    """The lab's Deployment: the controller itself is the lab's process, without a lease and a service account."""
    made = deployment("dovetail/lab:1")
    del made["spec"]["template"]["spec"]["serviceAccountName"]
    return made


def crd(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"versions": [{"name": "v1", "served": True}]}, "status": status}


THREE = [
    crd(name) for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")
]
BUNDLED = crds.definitions()
FAILED, WARNING, NOT_CHECKED = Status.FAILED, Status.WARNING, Status.NOT_CHECKED

CASES: list[tuple[str, Status, str, dict[str, Any]]] = [
    ("D01", FAILED, "does not map", {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": "[]"}}),
    ("D01", FAILED, "not YAML", {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": "- [a: {"}}),
    (
        "D01",
        FAILED,
        "groups system:nodes",
        {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": MAPPED.replace(", system:nodes", "")}},
    ),
    (
        "D01",
        FAILED,
        "username",
        {CLASSES: [CLASS], AWS_AUTH: {"mapRoles": MAPPED.replace("{{EC2PrivateDNSName}}", "x")}},
    ),
    (
        "D01",
        FAILED,
        "type STANDARD",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": api_mode("API_AND_CONFIG_MAP"),
            "access entry nodes": {"type": "STANDARD"},
        },
    ),
    (
        "D01",
        FAILED,
        "has none for this role",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": api_mode("API"),
            "access entry nodes": Answer(state=State.ABSENT),
        },
    ),
    (
        "D01",
        WARNING,
        "deleting the node group",
        {CLASSES: [CLASS], "node groups": [{"nodegroupName": "g", "nodeRole": ARN}]},
    ),
    (
        "D01",
        NOT_CHECKED,
        "eks:DescribeAccessEntry",
        {
            CLASSES: [CLASS],
            "eks:DescribeCluster": api_mode("API"),
            "access entry nodes": Answer(state=State.REFUSED, right="eks:DescribeAccessEntry"),
        },
    ),
    ("D02", FAILED, "selects no subnet", {CLASSES: [CLASS], "subnets of default": []}),
    ("D02", FAILED, "selects no security group", {CLASSES: [CLASS], "security groups of default": []}),
    (
        "D02",
        FAILED,
        "outside the cluster's VPC",
        {CLASSES: [CLASS], "subnets of default": [{"SubnetId": "s", "VpcId": "vpc-2"}]},
    ),
    (
        "D02",
        FAILED,
        "below 16",
        {
            CLASSES: [CLASS],
            "subnets of default": [{"SubnetId": "s", "VpcId": "vpc-1", "AvailableIpAddressCount": 3}],
        },
    ),
    (
        "D02",
        WARNING,
        "expect exactly one",
        {
            CLASSES: [CLASS],
            "security groups of default": [
                {"GroupId": "sg-1", "VpcId": "vpc-1", "Tags": CLUSTER_TAG},
                {"GroupId": "sg-2", "VpcId": "vpc-1", "Tags": CLUSTER_TAG},
            ],
        },
    ),
    ("D03", FAILED, "says why", {CLASSES: [not_ready("ValidationSucceeded", "CreateFleetAuthCheckFailed")]}),
    ("D04", NOT_CHECKED, "no controller is installed", {}),
    (
        "D04",
        FAILED,
        "no Pod Identity association",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
        },
    ),
    ("D05", FAILED, "not its ARN", {CLASSES: [a_class(role=ARN)]}),
    ("D05", FAILED, "no such role", {CLASSES: [CLASS], "role nodes": Answer(state=State.ABSENT)}),
    (
        "D05",
        FAILED,
        "does not name ec2.amazonaws.com",
        {CLASSES: [CLASS], "role nodes": {"Arn": ARN, "AssumeRolePolicyDocument": {}}},
    ),
    (
        "D05",
        FAILED,
        "cannot pull images",
        {CLASSES: [CLASS], "policies of nodes": [{"PolicyName": "AmazonEKSWorkerNodePolicy"}]},
    ),
    (
        "D05",
        FAILED,
        "AmazonEKS_CNI_Policy",
        {
            CLASSES: [CLASS],
            kinds.DAEMONSETS.name: [{"metadata": {"name": "aws-node", "namespace": "kube-system"}}],
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
    ("D07", FAILED, "needs 1.6.0 or later", {DEPLOYMENTS: [deployment(KARPENTER.replace("1.8.1", "1.2.0"))]}),
    (
        "D08",
        WARNING,
        "INTERRUPTION_QUEUE is not set",
        {DEPLOYMENTS: [without_queue()], POOLS: [pool(requirements=SPOT)]},
    ),
    ("D08", FAILED, "the name of the queue is expected", {DEPLOYMENTS: [with_queue("arn:aws:sqs:us-west-2:1:demo")]}),
    (
        "D08",
        WARNING,
        "no EventBridge rule",
        {
            DEPLOYMENTS: [with_queue("demo")],
            "queue demo": OPEN_QUEUE,
            "rules of demo": [],
        },
    ),
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
    ("D10", WARNING, "spec.limits is not set", {POOLS: [pool(limits=None)]}),
    ("D10", WARNING, "spec.limits.cpu: cpu 0", {POOLS: [pool(limits={"cpu": "0"})]}),
    ("D10", FAILED, "is less than one", {POOLS: [pool(limits={"cpu": "100m"})]}),
    ("D11", WARNING, "more memory", {CLAIMS: [claim("8Gi", Initialized=("True", ago(minutes=1)))], NODES: [node()]}),
    ("D12", FAILED, "no cpu", {PODS: [daemon_pod()]}),
    (
        "D13",
        WARNING,
        "at once",
        {
            CLASSES: [a_class(amiSelectorTerms=[{"alias": "al2023@latest"}])],
            POOLS: [pool(disruption={"budgets": [{"nodes": "100%"}]})],
        },
    ),
    (
        "D14",
        WARNING,
        "cluster-autoscaler runs",
        {
            DEPLOYMENTS: [deployment("registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0", "cluster-autoscaler")],
            POOLS: [pool()],
        },
    ),
    (
        "D15",
        FAILED,
        "is not initialised",
        {
            CLAIMS: [claim(Registered=("True", ago(minutes=20)), Initialized=("Unknown", ago(minutes=20)))],
        },
    ),
    (
        "D17",
        FAILED,
        "is Disabled",
        {
            CLASSES: [a_class(blockDeviceMappings=[{"ebs": {"kmsKeyID": "k"}}])],
            "key k": {"KeyState": "Disabled"},
        },
    ),
    ("D19", FAILED, "does not exist", {MUTATING.name: [webhook()]}),
    (
        "D19",
        FAILED,
        "no ready endpoint",
        {
            MUTATING.name: [webhook()],
            kinds.SERVICES.name: [{"metadata": {"name": "hook", "namespace": "a"}}],
        },
    ),
    ("D19", FAILED, "has expired", {MUTATING.name: [webhook(certificate(-1))]}),
    ("D19", WARNING, "expires in 3 days", {MUTATING.name: [webhook(certificate(3))]}),
    ("D20", FAILED, "metrics-server is not installed", {kinds.HPAS.name: [hpa()], METRICS: Answer(state=State.ABSENT)}),
    ("D20", WARNING, "against each other", {kinds.HPAS.name: [hpa()], VPAS.name: [vpa()]}),
    ("V01", FAILED, "lead at once", {kinds.LEASES.name: [LEASE, SECOND]}),
    ("V01", FAILED, "no controller holds it", {DEPLOYMENTS: [deployment(KARPENTER)], kinds.LEASES.name: [STALE]}),
    ("V02", FAILED, "no ClusterRole bound", {DEPLOYMENTS: [deployment("dovetail/controller:1")]}),
    ("V03", FAILED, "says why", {CLASSES: [not_ready("AMIsReady", "AMINotFound")]}),
    ("V03", FAILED, "no such EC2NodeClass", {POOLS: [pool()]}),
]


@pytest.mark.parametrize(("check", "status", "words", "answers"), CASES, ids=[f"{row[0]} {row[2]}" for row in CASES])
def test_a_fault_is_found(check: str, status: Status, words: str, answers: dict[str, Any]) -> None:
    findings = of(check, answers)
    matching = [row for row in findings if row.status is status and words in row.message]
    assert matching, findings
    assert [row for row in matching if status is not NOT_CHECKED and not (row.object and row.remedy)] == []


HEALTHY: dict[str, dict[str, Any]] = {
    "Cluster Autoscaler alone": {
        DEPLOYMENTS: [deployment("registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0", "cluster-autoscaler")],
        **{kind: Answer(state=State.ABSENT) for kind in (CLASSES, POOLS, CLAIMS)},
    },
    "Karpenter": {
        CLASSES: [CLASS],
        POOLS: [pool(requirements=SPOT)],
        DEPLOYMENTS: [with_queue("demo")],
        "queue demo": OPEN_QUEUE,
        "rules of demo": [{"EventPattern": '{"detail-type": ["EC2 Spot Instance Interruption Warning"]}'}],
        kinds.CRDS.name: THREE,
        kinds.LEASES.name: [LEASE],
        kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
        "eks:ListPodIdentityAssociations": [{"namespace": "kube-system", "serviceAccount": "karpenter"}],
        kinds.DAEMONSETS.name: [
            {"metadata": {"name": "eks-pod-identity-agent", "namespace": "kube-system"}, "status": {"numberReady": 1}}
        ],
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
        AWS_AUTH: Answer(state=State.ABSENT),
    },
    "policies of one's own": {CLASSES: [CLASS], "policies of nodes": [{"PolicyName": "OurNodes"}]},
    "IPv6": {
        CLASSES: [CLASS],
        "eks:DescribeCluster": {**api_mode("CONFIG_MAP"), "kubernetesNetworkConfig": {"ipFamily": "ipv6"}},
        "subnets of default": [{"SubnetId": "s", "VpcId": "vpc-1", "AvailableIpAddressCount": 3}],
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_cluster_gives_no_failure_and_no_warning(name: str) -> None:
    findings = report(facts(answers=HEALTHY[name]))
    assert len(findings) >= len(CHECKS)
    assert [row for row in findings if row.status in (FAILED, WARNING)] == []


def test_every_check_has_a_case() -> None:
    assert {check.id for check in CHECKS} == {row[0] for row in CASES}


def test_what_was_not_read_is_never_passed() -> None:
    """Absent evidence is not evidence: without a single source no check passes."""
    refused = Answer(state=State.REFUSED, right="list everything", message="no")
    nothing = Facts(time=NOW, answers={resource.name: refused for resource in LISTED})
    findings = report(nothing)
    assert len(findings) == len(CHECKS)
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
