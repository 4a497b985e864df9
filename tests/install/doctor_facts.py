"""Values of facts for the checks of `dovetail doctor`: a sound cluster, and its parts with one fault each."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.install.doctor.checks import CHECKS, faults_of, findings_of
from dovetail.install.doctor.collect import (
    AWS_AUTH,
    LAB_FAULTS,
    LISTED,
    METRICS,
    REFUSALS,
    SAFE_MODE,
    VERSION,
)
from dovetail.install.doctor.facts import Facts, Finding, SourceAnswer, State, Status
from dovetail.install.doctor.permissions import BROAD_PASS_ROLE, BROAD_TERMINATION
from dovetail.install.plan import general_node_pool
from dovetail.kube import resources as kinds
from dovetail.model.kinds import crds

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
#: The group that EKS makes: all traffic between its members, and out.
SHARED_GROUP: dict[str, Any] = {
    "GroupId": "sg-1",
    "VpcId": "vpc-1",
    "IpPermissions": [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-1"}]}],
    "IpPermissionsEgress": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}],
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
        "control plane groups": SourceAnswer(data=[SHARED_GROUP]),
        "route tables": SourceAnswer(data=[OPEN_TABLE]),
        "network ACLs": SourceAnswer(data=[]),
        "VPC DNS": SourceAnswer(data={"enableDnsSupport": True}),
        "VPC endpoints": SourceAnswer(data=[]),
        "denied to the controller": SourceAnswer(data=EXPECTED_DENIALS),
        LAB_FAULTS: SourceAnswer(state=State.REFUSED),
        SAFE_MODE: SourceAnswer(data=[]),
        REFUSALS: SourceAnswer(data=[]),
        "security groups of default": SourceAnswer(data=[SHARED_GROUP]),
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


def owned_by(definition: dict[str, Any], release: str) -> dict[str, Any]:
    annotations = {"meta.helm.sh/release-name": release}
    return {**definition, "metadata": {**definition["metadata"], "annotations": annotations}}


def with_kubelet(**settings: Any) -> dict[str, Any]:
    return a_class(kubelet=settings)


def everywhere(name: str) -> dict[str, Any]:
    """A DaemonSet with a pod on each node."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]}}
    metadata = {"name": name, "namespace": "a"}
    return {"metadata": metadata, "spec": {"template": template}, "status": {"desiredNumberScheduled": 1}}


def unschedulable_pod(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "a"}
    return {"metadata": metadata, "spec": {"containers": []}, "status": unscheduled(ago(hours=1))}


def refusal(pod: str, text: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "a", "name": pod}
    metadata = {"name": f"{pod}.1", "creationTimestamp": ago(minutes=5)}
    return {"metadata": metadata, "involvedObject": about, "message": f"Failed to schedule pod, {text}"}


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


def general_pool(max_pods: int) -> dict[str, Any]:
    """The NodePool of an installation, with a limit of pods, beside the Amazon VPC CNI."""
    return {
        CLASSES: [a_class(kubelet={"maxPods": max_pods})],
        POOLS: [general_node_pool("amd64", "default")],
        kinds.DAEMONSETS.name: [daemon_set("aws-node")],
    }


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


def unscalable(*deployments: str) -> dict[str, Any]:
    """An HPA whose target does not exist, beside Deployments."""
    scaler = hpa()
    scaler["spec"]["scaleTargetRef"] = {"kind": "Deployment", "name": "wbe"}
    row = {"type": "AbleToScale", "status": "False", "reason": "FailedGetScale", "message": "not found"}
    scaler["status"] = {"conditions": [row]}
    there = [deployment("example.com/web:1", name) for name in deployments]
    for item in there:
        item["metadata"]["namespace"] = scaler["metadata"]["namespace"]
    return {kinds.HPAS.name: [scaler], DEPLOYMENTS: there}


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
OPEN_QUEUE = {
    "QueueArn": "arn:q",
    "Policy": '{"Statement": [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}}]}',
}
ALL_RULES = [
    {"EventPattern": f'{{"detail-type": ["{kind}"]}}'}
    for kind in (
        "EC2 Spot Instance Interruption Warning",
        "EC2 Instance Rebalance Recommendation",
        "EC2 Instance State-change Notification",
        "AWS Health Event",
    )
]
SHARED = {"resourcesVpcConfig": {"vpcId": "vpc-1", "clusterSecurityGroupId": "sg-1"}}
#: A controller by IAM Roles for Service Accounts, whose role trusts service accounts.
ANNOTATED = {
    DEPLOYMENTS: [deployment(KARPENTER)],
    kinds.SERVICEACCOUNTS.name: [
        {
            "metadata": {
                "name": "karpenter",
                "namespace": "kube-system",
                "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/controller"},
            }
        }
    ],
    "role controller": {
        "AssumeRolePolicyDocument": {
            "Statement": [
                {"Effect": "Allow", "Principal": {"Federated": "arn:aws:iam::111122223333:oidc-provider/oidc/A"}}
            ]
        }
    },
    "eks:DescribeCluster": {"identity": {"oidc": {"issuer": "https://oidc/A"}}},
    "iam:ListOpenIDConnectProviders": [{"Arn": "arn:aws:iam::111122223333:oidc-provider/oidc/A"}],
}
#: The same role, with a trust policy that lets the controller's service account in.
TRUSTING_ROLE = {
    "AssumeRolePolicyDocument": {
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRoleWithWebIdentity",
                "Principal": {"Federated": "arn:aws:iam::111122223333:oidc-provider/oidc/A"},
                "Condition": {"StringEquals": {"oidc/A:sub": "system:serviceaccount:kube-system:karpenter"}},
            }
        ]
    }
}


def controller_pod(role_arn: str) -> dict[str, Any]:
    """A pod of the controller that was created with a role."""
    labels = {"app.kubernetes.io/name": "karpenter"}
    container = {"name": "controller", "image": KARPENTER, "env": [{"name": "AWS_ROLE_ARN", "value": role_arn}]}
    return {
        "metadata": {"name": role_arn.rsplit("/", 1)[-1], "namespace": "kube-system", "labels": labels},
        "spec": {"containers": [container]},
        "status": {},
    }


EVENTS = "events.amazonaws.com"


def without_network() -> dict[str, Any]:
    waiting = node()
    text = "cni plugin not initialized: NetworkPluginNotReady"
    waiting["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": text}]
    return waiting


def with_policy(*statements: dict[str, Any]) -> dict[str, Any]:
    """A queue with this policy, and all its rules."""
    policy = json.dumps({"Statement": list(statements)})
    queue = {"QueueArn": "arn:q", "Policy": policy}
    return {DEPLOYMENTS: [with_queue("demo")], "queue demo": queue, "rules of demo": ALL_RULES}


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

#: A case: the check, the status of its finding, words of its message, and the answers of the sources.
Case = tuple[str, Status, str, dict[str, Any]]


def assert_found(check: str, status: Status, words: str, answers: dict[str, Any]) -> None:
    """The check finds the fault, and names the object and the remedy."""
    findings = of(check, answers)
    matching = [row for row in findings if row.status is status and words in row.message]
    assert matching, findings
    assert [row for row in matching if status is not NOT_CHECKED and not (row.object and row.remedy)] == []
