"""Each check of `dovetail doctor` on a small value of facts: the fault gives a finding, its absence gives none."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.install.doctor.checks import CHECKS, checks_of, faults_of, findings_of, report
from dovetail.install.doctor.collect import (
    APISERVICES,
    AWS_AUTH,
    LAB_FAULTS,
    LIMITRANGES,
    LISTED,
    METRICS,
    MUTATING,
    SAFE_MODE,
    SECRET_TEXT,
    VERSION,
    VPAS,
    trimmed,
    without_secrets,
)
from dovetail.install.doctor.facts import Facts, Finding, SourceAnswer, State, Status
from dovetail.install.doctor.node_groups import DISCOVERY
from dovetail.install.doctor.permissions import BROAD_PASS_ROLE, BROAD_TERMINATION
from dovetail.kube import resources as kinds
from dovetail.model.kinds import crds
from dovetail.model.labels import COMPUTE_TYPE, FARGATE

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ARN = "arn:aws:iam::111122223333:role/nodes"
USER = "system:node:{{EC2PrivateDNSName}}"
MAPPED = f"- {{rolearn: '{ARN}', username: '{USER}', groups: [system:bootstrappers, system:nodes]}}"
EC2_TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}}]}
#: A narrow policy is denied what it should be.
EXPECTED_DENIALS = [
    {"purpose": purpose, "action": "any", "resource": "any", "decision": "implicitDeny"}
    for purpose in (BROAD_TERMINATION, BROAD_PASS_ROLE)
]
OPEN_TABLE: dict[str, Any] = {
    "Associations": [{"Main": True}],
    "Routes": [
        {"DestinationCidrBlock": "10.0.0.0/16", "GatewayId": "local"},
        {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": "nat-1"},
    ],
}
CLOSED_TABLE = {**OPEN_TABLE, "Routes": OPEN_TABLE["Routes"][:1]}
CLASS = {
    "metadata": {"name": "default"},
    "spec": {"role": "nodes", "amiSelectorTerms": [{"alias": "al2023@v20260401"}]},
}


def subnet(name: str, zone: str, vpc: str = "vpc-1", free: int = 500) -> dict[str, Any]:
    return {"SubnetId": name, "AvailabilityZone": f"us-west-2{zone}", "VpcId": vpc, "AvailableIpAddressCount": free}


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


def node(memory: str = "7Gi", cpu: str = "", **labels: str) -> dict[str, Any]:
    allocatable = {"memory": memory} | ({"cpu": cpu} if cpu else {})
    return {"metadata": {"name": "n1", "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}}


def facts(**given: Any) -> Facts:
    """A cluster with nothing in it, and what is given; `a_b` stands for the source's name in SOURCES."""
    answers: dict[str, SourceAnswer] = {resource.name: SourceAnswer(data=[]) for resource in LISTED}
    answers |= {
        AWS_AUTH: SourceAnswer(data={"mapRoles": MAPPED}),
        METRICS: SourceAnswer(data={}),
        VERSION: SourceAnswer(data={"major": "1", "minor": "34+"}),
        "eks:DescribeCluster": SourceAnswer(
            data={"accessConfig": {"authenticationMode": "CONFIG_MAP"}, "resourcesVpcConfig": {"vpcId": "vpc-1"}}
        ),
        "eks:ListPodIdentityAssociations": SourceAnswer(data=[]),
        "node groups": SourceAnswer(data=[]),
        "role nodes": SourceAnswer(data={"Arn": ARN, "AssumeRolePolicyDocument": EC2_TRUST}),
        "policies of nodes": SourceAnswer(
            data=[{"PolicyName": "AmazonEKSWorkerNodePolicy"}, {"PolicyName": "AmazonEC2ContainerRegistryPullOnly"}]
        ),
        "inline policies of nodes": SourceAnswer(data=[]),
        "role AWSServiceRoleForEC2Spot": SourceAnswer(data={}),
        "subnets of default": SourceAnswer(data=[subnet("subnet-1", "a"), subnet("subnet-2", "b")]),
        "cluster subnets": SourceAnswer(data=[subnet("subnet-1", "a"), subnet("subnet-2", "b")]),
        "control plane groups": SourceAnswer(data=[{"GroupId": "sg-1"}]),
        "route tables": SourceAnswer(data=[OPEN_TABLE]),
        "VPC endpoints": SourceAnswer(data=[]),
        "denied to the controller": SourceAnswer(data=EXPECTED_DENIALS),
        LAB_FAULTS: SourceAnswer(state=State.REFUSED),
        SAFE_MODE: SourceAnswer(data=[]),
        "security groups of default": SourceAnswer(data=[{"GroupId": "sg-1", "VpcId": "vpc-1"}]),
    }
    for source, data in given.pop("answers", {}).items():
        answers[source] = data if isinstance(data, SourceAnswer) else SourceAnswer(data=data)
    return Facts(time=NOW, cluster="demo", region="us-west-2", answers=answers)


def of(check: str, answers: Mapping[str, Any]) -> list[Finding]:
    entry = next(entry for entry in CHECKS if entry.id == check)
    return findings_of(entry, *faults_of(entry, facts(answers=answers)))


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


def unscheduled(since: str) -> dict[str, Any]:
    row = {"type": "PodScheduled", "status": "False", "lastTransitionTime": since, "message": "no cpu"}
    return {"conditions": [{**row, "reason": "Unschedulable"}]}


def daemon_pod(since: str = "", cpu: str = "1m") -> dict[str, Any]:
    metadata = {"name": "agent-1", "namespace": "a", "ownerReferences": [{"kind": "DaemonSet", "name": "agent"}]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": metadata,
        "spec": {"affinity": {"nodeAffinity": required}, "containers": containers},
        "status": unscheduled(since or ago(minutes=9)),
    }


def pending_pod(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "web-1", "namespace": "a", "labels": {"app": "web"}}
    return {"metadata": metadata, "spec": {"containers": [], **spec}, "status": unscheduled(ago(minutes=1))}


def zonal_volume(zone: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {
        "metadata": {"name": "pv-1"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    }


def budget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"expectedPods": 1},
    }


def daemon_set(name: str, resources: Any = None, annotated: bool = False, **variables: str) -> dict[str, Any]:
    """In kube-system; `annotated` ones tolerate everything."""
    container = {
        "name": name,
        "image": f"{name}:1",
        "resources": resources or {},
        "env": [{"name": key, "value": value} for key, value in variables.items()],
    }
    spec: dict[str, Any] = {"containers": [container]}
    if annotated:
        spec["tolerations"] = [{"operator": "Exists"}]
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"template": {"spec": spec}}}


def tainted_pool(field: str, key: str) -> dict[str, Any]:
    made = pool()
    made["spec"]["template"]["spec"][field] = [{"key": key, "effect": "NoSchedule"}]
    return made


def denial(purpose: str, action: str, resource: str = "arn:aws:x") -> dict[str, str]:
    return {"purpose": purpose, "action": action, "resource": resource, "decision": "implicitDeny"}


def endpoints(*services: str) -> list[dict[str, str]]:
    return [{"ServiceName": f"com.amazonaws.us-west-2.{service}", "State": "available"} for service in services]


def crowded() -> dict[str, Any]:
    """A class with more pods to a node than m5.large has addresses."""
    m5 = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}]
    return {CLASSES: [a_class(kubelet={"maxPods": 110})], POOLS: [pool(requirements=m5)]}


def coredns(replicas: int = 2, ready: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"name": "coredns", "namespace": "kube-system"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"k8s-app": "kube-dns"}},
            "template": {"spec": {"containers": [{"name": "coredns", "image": "coredns:1"}]}},
        },
        "status": {"readyReplicas": ready},
    }


def dns_pod(waiting: bool = False, killed: bool = False) -> dict[str, Any]:
    status: dict[str, Any] = unscheduled(ago(minutes=1)) if waiting else {}
    if killed:
        ended = {"reason": "OOMKilled", "finishedAt": ago(minutes=1)}
        status["containerStatuses"] = [{"name": "coredns", "lastState": {"terminated": ended}}]
    metadata = {"name": "coredns-1", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": status}


def changed_pool(budgets: Any = None, **conditions: tuple[str, str]) -> dict[str, Any]:
    versions = {"karpenter.sh/nodepool-hash-version": "v3"}
    changed = pool(**({"disruption": {"budgets": budgets}} if budgets else {}))
    changed["metadata"]["annotations"] = {"karpenter.sh/nodepool-hash": "2", **versions}
    old = claim(**conditions)
    old["metadata"]["labels"] = {"karpenter.sh/nodepool": "default"}
    old["metadata"]["annotations"] = {"karpenter.sh/nodepool-hash": "1", **versions}
    return {POOLS: [changed], CLAIMS: [old]}


def gated(gates: str) -> dict[str, Any]:
    controller = deployment(KARPENTER)
    controller["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "FEATURE_GATES", "value": gates}]
    return {DEPLOYMENTS: [controller]}


def cluster_autoscaler(*flags: str) -> dict[str, Any]:
    made = deployment("registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0", "cluster-autoscaler")
    del made["spec"]["template"]["spec"]["serviceAccountName"]
    return {DEPLOYMENTS: [{**made, "flags": list(flags)}]}


def group(*tags: str) -> dict[str, Any]:
    return {"AutoScalingGroupName": "ng", "Tags": [{"Key": tag, "Value": "true"} for tag in tags]}


def ready_node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2", "memory": "7Gi", "pods": "29"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def claims_without_gte() -> dict[str, Any]:
    made = next(row for row in crds.definitions() if row["metadata"]["name"] == "nodeclaims.karpenter.sh")
    text = json.dumps(made).replace('"Gte"', '"Gt"').replace('"Lte"', '"Lt"')
    changed: dict[str, Any] = json.loads(text)
    return changed


def hpa() -> dict[str, Any]:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": [{"resource": cpu}]}
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


def scaled_to_zero() -> dict[str, Any]:
    made = deployment(KARPENTER)
    made["spec"]["replicas"] = 0
    return made


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
ALL_RULES = [
    {"EventPattern": f'{{"detail-type": ["{kind}"]}}'}
    for kind in (
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
        "AWS Health Event",
    )
]
OWN_GROUP = {"resourcesVpcConfig": {"vpcId": "vpc-1", "clusterSecurityGroupId": "sg-9"}}
ENCRYPTED = a_class(blockDeviceMappings=[{"ebs": {"kmsKeyID": "k"}}])
VOLUME_KEY = {"KeyId": "k", "Arn": "arn:aws:kms:us-west-2:1:key/k", "KeyState": "Enabled", "KeyManager": "CUSTOMER"}
KEY_USE = {"Effect": "Allow", "Action": "kms:*", "Resource": "*"}
GROUPS = "scaling groups"
ZONE = "topology.kubernetes.io/zone"
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
            "access entry nodes": SourceAnswer(state=State.ABSENT),
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
            "access entry nodes": SourceAnswer(state=State.REFUSED, right="eks:DescribeAccessEntry"),
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
    (
        "D02",
        WARNING,
        "us-west-2a alone",
        {CLASSES: [CLASS], "subnets of default": [subnet("subnet-1", "a")]},
    ),
    (
        "D02",
        WARNING,
        "admits its groups at port 443",
        {CLASSES: [CLASS], "eks:DescribeCluster": OWN_GROUP, "control plane groups": [{"GroupId": "sg-9"}]},
    ),
    (
        "D03",
        FAILED,
        "do not allow ec2:CreateFleet on arn",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            "denied to the controller": [denial("launch", "ec2:CreateFleet"), *EXPECTED_DENIALS],
        },
    ),
    (
        "D03",
        WARNING,
        "instances of other clusters",
        {DEPLOYMENTS: [deployment(KARPENTER)], "denied to the controller": EXPECTED_DENIALS[1:]},
    ),
    (
        "D03",
        NOT_CHECKED,
        "iam:SimulatePrincipalPolicy",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            "denied to the controller": SourceAnswer(state=State.REFUSED, right="iam:SimulatePrincipalPolicy"),
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
    (
        "D04",
        FAILED,
        "does not name pods.eks.amazonaws.com",
        {
            DEPLOYMENTS: [deployment(KARPENTER)],
            kinds.SERVICEACCOUNTS.name: [{"metadata": {"name": "karpenter", "namespace": "kube-system"}}],
            "eks:ListPodIdentityAssociations": [{"namespace": "kube-system", "serviceAccount": "karpenter"}],
            "controller association": {"roleArn": "arn:aws:iam::111122223333:role/controller"},
            "role controller": {"AssumeRolePolicyDocument": EC2_TRUST},
        },
    ),
    (
        "D05",
        FAILED,
        "iam:PassRole on arn",
        {"denied to the controller": [denial("pass role", "iam:PassRole"), *EXPECTED_DENIALS]},
    ),
    ("D05", WARNING, "iam:PassRole on every role to every service", {"denied to the controller": EXPECTED_DENIALS[:1]}),
    ("D05", FAILED, "not its ARN", {CLASSES: [a_class(role=ARN)]}),
    ("D05", FAILED, "no such role", {CLASSES: [CLASS], "role nodes": SourceAnswer(state=State.ABSENT)}),
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
            kinds.DAEMONSETS.name: [daemon_set("aws-node")],
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
    (
        "D08",
        WARNING,
        "sends AWS Health Event to it",
        {DEPLOYMENTS: [with_queue("demo")], "queue demo": OPEN_QUEUE, "rules of demo": ALL_RULES[:3]},
    ),
    (
        "D08",
        FAILED,
        "waits for 300 s",
        {
            DEPLOYMENTS: [with_queue("demo")],
            "queue demo": OPEN_QUEUE,
            "rules of demo": ALL_RULES,
            "age of demo": 300.0,
        },
    ),
    (
        "D08",
        FAILED,
        "cannot encrypt messages",
        {
            DEPLOYMENTS: [with_queue("demo")],
            "queue demo": {**OPEN_QUEUE, "KmsMasterKeyId": "k"},
            "policy of key k": "{}",
            "rules of demo": ALL_RULES,
        },
    ),
    (
        "D08",
        FAILED,
        "may not create it",
        {
            POOLS: [pool(requirements=SPOT)],
            "role AWSServiceRoleForEC2Spot": SourceAnswer(state=State.ABSENT),
            "denied to the controller": [denial("spot role", "iam:CreateServiceLinkedRole")],
        },
    ),
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
    ("D10", WARNING, "spec.limits is not set", {POOLS: [pool(limits=None)]}),
    ("D10", WARNING, "spec.limits.cpu: cpu 0", {POOLS: [pool(limits={"cpu": "0"})]}),
    ("D10", FAILED, "is less than one", {POOLS: [pool(limits={"cpu": "100m"})]}),
    (
        "D10",
        FAILED,
        "spec.limits.cpu is 8 and 8 are in use",
        {
            POOLS: [{**pool(limits={"cpu": "8"}), "status": {"resources": {"cpu": "8"}}}],
            PODS: [pending_pod()],
        },
    ),
    (
        "D10",
        FAILED,
        "label team=a, which no NodePool declares",
        {POOLS: [pool()], PODS: [pending_pod(nodeSelector={"team": "a"})]},
    ),
    (
        "D10",
        FAILED,
        "its volume data is in us-west-2c",
        {
            POOLS: [pool(requirements=[{"key": ZONE, "operator": "In", "values": ["us-west-2a"]}])],
            PODS: [pending_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])],
            kinds.PERSISTENTVOLUMECLAIMS.name: [
                {"metadata": {"name": "data", "namespace": "a"}, "spec": {"volumeName": "pv-1"}}
            ],
            kinds.PERSISTENTVOLUMES.name: [zonal_volume("us-west-2c")],
        },
    ),
    (
        "D10",
        WARNING,
        "no pod of it may be evicted",
        {POOLS: [pool()], kinds.PDBS.name: [budget("one", maxUnavailable=0)]},
    ),
    (
        "D10",
        WARNING,
        "refuses every eviction",
        {
            POOLS: [pool()],
            PODS: [pending_pod()],
            kinds.PDBS.name: [budget("one", maxUnavailable=1), budget("two", maxUnavailable=1)],
        },
    ),
    ("D11", WARNING, "more memory", {CLAIMS: [claim("8Gi", Initialized=("True", ago(minutes=1)))], NODES: [node()]}),
    ("D12", FAILED, "no cpu", {PODS: [daemon_pod()]}),
    (
        "D12",
        FAILED,
        "1 of its pods wait for Fargate nodes, first agent-1 for n1",
        {PODS: [daemon_pod()], NODES: [node(**{COMPUTE_TYPE: FARGATE})]},
    ),
    (
        "D12",
        FAILED,
        "node n1 has no room for its request of cpu 500m",
        {PODS: [daemon_pod(since=ago(seconds=5), cpu="500m")], NODES: [node(cpu="200m")]},
    ),
    (
        "D12",
        FAILED,
        "does not tolerate the taint gpu:NoSchedule",
        {
            kinds.DAEMONSETS.name: [daemon_set("kube-proxy")],
            POOLS: [tainted_pool("taints", "gpu")],
        },
    ),
    (
        "D12",
        WARNING,
        "limits and no requests",
        {
            kinds.DAEMONSETS.name: [daemon_set("agent", resources={"limits": {"cpu": "1"}})],
            POOLS: [pool()],
        },
    ),
    (
        "D12",
        WARNING,
        "a LimitRange of namespace kube-system adds them",
        {
            kinds.DAEMONSETS.name: [daemon_set("agent")],
            LIMITRANGES.name: [
                {
                    "metadata": {"name": "l", "namespace": "kube-system"},
                    "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]},
                }
            ],
            POOLS: [pool()],
        },
    ),
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
        "D15",
        FAILED,
        "no DaemonSet of yours tolerates the taint",
        {
            CLAIMS: [
                {
                    **claim(Registered=("True", ago(minutes=3)), Initialized=("Unknown", ago(minutes=3))),
                    "spec": {"startupTaints": [{"key": "wait", "effect": "NoSchedule"}]},
                }
            ],
            NODES: [{**node(), "spec": {"taints": [{"key": "wait", "effect": "NoSchedule"}]}}],
        },
    ),
    (
        "D15",
        WARNING,
        "is not initialised",
        {CLAIMS: [claim(Registered=("True", ago(minutes=3)), Initialized=("Unknown", ago(minutes=3)))]},
    ),
    (
        "D15",
        FAILED,
        "ENABLE_POD_ENI",
        {
            kinds.DAEMONSETS.name: [daemon_set("aws-node")],
            PODS: [pending_pod(containers=[{"resources": {"requests": {"vpc.amazonaws.com/pod-eni": "1"}}}])],
        },
    ),
    (
        "D15",
        FAILED,
        "Karpenter 0.32.1 does not know",
        {
            DEPLOYMENTS: [deployment(KARPENTER.replace("1.8.1", "0.32.1"))],
            PODS: [pending_pod(containers=[{"resources": {"requests": {"vpc.amazonaws.com/pod-eni": "1"}}}])],
        },
    ),
    ("D16", FAILED, "spec.kubelet.maxPods is 110", {**crowded(), kinds.DAEMONSETS.name: [daemon_set("aws-node")]}),
    ("D16", WARNING, "no prefix is delegated", crowded()),
    (
        "D16",
        FAILED,
        "RESERVED_ENIS is 0",
        {
            CLASSES: [CLASS],
            DEPLOYMENTS: [without_queue()],
            kinds.DAEMONSETS.name: [daemon_set("aws-node", AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG="true")],
        },
    ),
    ("D17", FAILED, "does not exist", {CLASSES: [ENCRYPTED], "key k": SourceAnswer(state=State.ABSENT)}),
    (
        "D17",
        FAILED,
        "admits neither the role",
        {
            CLASSES: [ENCRYPTED],
            "key k": VOLUME_KEY,
            "policy of key k": {"Statement": [{**KEY_USE, "Principal": {"AWS": "arn:aws:iam::1:role/other"}}]},
        },
    ),
    (
        "D17",
        FAILED,
        "is not allowed kms:CreateGrant",
        {
            CLASSES: [ENCRYPTED],
            "key k": VOLUME_KEY,
            "policy of key k": {"Statement": [{**KEY_USE, "Principal": {"AWS": "arn:aws:iam::1:root"}}]},
            "denied to the controller": [denial("volume key", "kms:CreateGrant", VOLUME_KEY["Arn"])],
        },
    ),
    (
        "D17",
        FAILED,
        "the key's policy denies its use",
        {
            CLASSES: [ENCRYPTED],
            "key k": VOLUME_KEY,
            "policy of key k": {"Statement": [{**KEY_USE, "Effect": "Deny", "Principal": "*"}]},
        },
    ),
    (
        "D18",
        FAILED,
        "no endpoint for ec2, ecr.api, ecr.dkr, s3, sts",
        {CLASSES: [CLASS], "route tables": [CLOSED_TABLE]},
    ),
    (
        "D18",
        FAILED,
        "which the controller calls",
        {
            CLASSES: [CLASS],
            DEPLOYMENTS: [without_queue()],
            "route tables": [CLOSED_TABLE],
            "VPC endpoints": endpoints("ec2", "ecr.api", "ecr.dkr", "s3", "sts"),
        },
    ),
    (
        "D18",
        WARNING,
        "ISOLATED_VPC is not true",
        {
            CLASSES: [CLASS],
            DEPLOYMENTS: [without_queue()],
            "route tables": [CLOSED_TABLE],
            "VPC endpoints": endpoints("ec2", "ecr.api", "ecr.dkr", "s3", "sts", "ssm", "eks"),
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
    (
        "D20",
        FAILED,
        "metrics-server is not installed",
        {kinds.HPAS.name: [hpa()], METRICS: SourceAnswer(state=State.ABSENT)},
    ),
    (
        "D20",
        FAILED,
        "metrics-server is not installed",
        {kinds.HPAS.name: [hpa()], APISERVICES.name: [{"metadata": {"name": "v1.apps"}}]},
    ),
    (
        "D20",
        FAILED,
        "kube-system/metrics-server, which has no ready endpoint",
        {
            kinds.HPAS.name: [hpa()],
            kinds.SERVICES.name: [{"metadata": {"name": "metrics-server", "namespace": "kube-system"}}],
            APISERVICES.name: [
                {
                    "metadata": {"name": "v1beta1.metrics.k8s.io"},
                    "spec": {"service": {"name": "metrics-server", "namespace": "kube-system"}},
                }
            ],
        },
    ),
    ("D20", WARNING, "against each other", {kinds.HPAS.name: [hpa()], VPAS.name: [vpa()]}),
    (
        "D20",
        WARNING,
        "argocd-controller sets spec.replicas",
        {
            kinds.HPAS.name: [hpa()],
            DEPLOYMENTS: [
                {
                    **deployment("web:1", "web"),
                    "metadata": {"name": "web", "namespace": "a"},
                    "replicas set by": ["argocd-controller"],
                }
            ],
        },
    ),
    (
        "D20",
        FAILED,
        "missing request for cpu",
        {
            kinds.HPAS.name: [
                {
                    **hpa(),
                    "status": {
                        "conditions": [
                            {
                                "type": "ScalingActive",
                                "status": "False",
                                "reason": "FailedGetResourceMetric",
                                "message": "missing request for cpu in container c of Pod web-1",
                            }
                        ]
                    },
                }
            ]
        },
    ),
    ("V01", FAILED, "lead at once", {kinds.LEASES.name: [LEASE, SECOND]}),
    ("V01", FAILED, "no controller holds it", {DEPLOYMENTS: [deployment(KARPENTER)], kinds.LEASES.name: [STALE]}),
    ("V02", FAILED, "no ClusterRole bound", {DEPLOYMENTS: [deployment("dovetail/controller:1")]}),
    ("V03", FAILED, "says why", {CLASSES: [not_ready("AMIsReady", "AMINotFound")]}),
    ("V03", FAILED, "no such EC2NodeClass", {POOLS: [pool()]}),
    ("V04", FAILED, "spec.replicas is 0", {DEPLOYMENTS: [coredns(replicas=0)]}),
    ("V04", FAILED, "status.readyReplicas is 0", {DEPLOYMENTS: [coredns()], NODES: [node()]}),
    ("V04", FAILED, "cannot be scheduled: no cpu", {DEPLOYMENTS: [coredns()], PODS: [dns_pod(waiting=True)]}),
    ("V04", FAILED, "OOMKilled", {DEPLOYMENTS: [coredns()], PODS: [dns_pod(killed=True)]}),
    (
        "V04",
        WARNING,
        "has 700 Mi for pods (t3.micro)",
        {
            DEPLOYMENTS: [coredns(ready=1)],
            PODS: [dns_pod()],
            NODES: [node(memory="700Mi", **{"node.kubernetes.io/instance-type": "t3.micro"})],
        },
    ),
    ("V05", WARNING, "so none is ever replaced", {**changed_pool(budgets=[{"nodes": "0"}])}),
    ("V05", WARNING, "is drifted since", changed_pool(Drifted=("True", ago(hours=2)))),
    ("V05", WARNING, "the feature gate Drift is off", {**changed_pool(), **gated("SpotToSpot=true, Drift=false")}),
    (
        "V05",
        WARNING,
        "is drifted since",
        {**changed_pool(Drifted=("True", ago(hours=2))), **gated("TerminateFirstDrift=false")},
    ),
    ("V05", WARNING, "a changed Provisioner", {DEPLOYMENTS: [deployment(KARPENTER.replace("1.8.1", "0.31.4"))]}),
    ("V06", FAILED, "has all of these tags", {**cluster_autoscaler(f"{DISCOVERY}=asg:tag=a,b"), GROUPS: [group("a")]}),
    (
        "V06",
        FAILED,
        "placeholder",
        {**cluster_autoscaler(f"{DISCOVERY}=asg:tag=a,k8s/<YOUR CLUSTER NAME>"), GROUPS: []},
    ),
    ("V06", FAILED, "no Auto Scaling group 'gone'", {**cluster_autoscaler("--nodes=1:3:gone"), GROUPS: [group("a")]}),
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


@pytest.mark.parametrize(("check", "status", "words", "answers"), CASES, ids=[f"{row[0]} {row[2]}" for row in CASES])
def test_a_fault_is_found(check: str, status: Status, words: str, answers: dict[str, Any]) -> None:
    findings = of(check, answers)
    matching = [row for row in findings if row.status is status and words in row.message]
    assert matching, findings
    assert [row for row in matching if status is not NOT_CHECKED and not (row.object and row.remedy)] == []


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


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_cluster_gives_no_failure_and_no_warning(name: str) -> None:
    findings = report(facts(answers=HEALTHY[name]))
    assert len(findings) >= len(checks_of())
    assert [row for row in findings if row.status in (FAILED, WARNING)] == []


def test_every_check_has_a_case() -> None:
    assert {check.id for check in CHECKS} == {row[0] for row in CASES}


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
