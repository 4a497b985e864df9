"""Checks of `dovetail doctor`: NodePools, EC2NodeClasses and the nodes they launch. Each fault gives a finding."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.install.doctor.collect import REFUSALS
from dovetail.install.doctor.facts import SourceAnswer, State
from dovetail.install.doctor.node_groups import DISCOVERY
from dovetail.kube import resources as kinds
from dovetail.model.kinds.adopt import PROVISIONER_ANNOTATION
from dovetail.model.labels import AWS_GROUP, PROVISIONER_NAME
from dovetail.model.wellknown import node_class_label
from tests.install.doctor_facts import (
    ALL_RULES,
    CLAIMS,
    CLASS,
    CLASSES,
    DEPLOYMENTS,
    EVENTS,
    FAILED,
    GROUPS,
    KARPENTER,
    NODES,
    OPEN_QUEUE,
    PODS,
    POOLS,
    SPOT,
    WARNING,
    ZONE,
    Case,
    a_class,
    ago,
    assert_found,
    budget,
    changed_pool,
    claim,
    cluster_autoscaler,
    crowded,
    daemon_set,
    denial,
    deployment,
    everywhere,
    gated,
    general_pool,
    group,
    node,
    not_ready,
    of,
    pending_pod,
    pool,
    refusal,
    unschedulable_pod,
    with_kubelet,
    with_policy,
    with_queue,
    without_network,
    without_queue,
    zonal_volume,
)


def other_kind() -> dict[str, Any]:
    made = pool()
    made["spec"]["template"]["spec"]["nodeClassRef"]["kind"] = "EC2Nodeclass"
    return made


def in_region(region: str) -> dict[str, Any]:
    made = deployment(KARPENTER)
    made["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "AWS_REGION", "value": region}]
    return made


CASES: list[Case] = [
    *(
        ("D08", FAILED, "does not let events.amazonaws.com send", with_policy(statement))
        for statement in (
            {"Effect": "Deny", "Principal": {"Service": EVENTS}, "Action": "sqs:SendMessage", "Resource": "*"},
            {"Effect": "Allow", "Principal": {"Service": EVENTS}, "Action": "sqs:ReceiveMessage"},
            {"Effect": "Allow", "Principal": {"Service": EVENTS}, "Resource": "arn:other"},
        )
    ),
    (
        "D16",
        FAILED,
        "it does not exist, and node n1 is not ready: cni plugin not initialized: NetworkPluginNotReady",
        {NODES: [without_network()]},
    ),
    (
        "D10",
        FAILED,
        "no NodePool serves it and 1 more: NodePool a: taint x (UNTOLERATED_TAINT)",
        {
            PODS: [unschedulable_pod("a"), unschedulable_pod("b"), unschedulable_pod("c")],
            REFUSALS: [
                refusal("a", "NodePool a: taint x (UNTOLERATED_TAINT)"),
                refusal("b", "NodePool a: taint x (UNTOLERATED_TAINT)"),
                refusal("c", "out of capacity (NO_OFFERING)"),
            ],
        },
    ),
    (
        "D16",
        FAILED,
        "maxPods is 1, and pods of 1 DaemonSets (agent) go to every node",
        {CLASSES: [with_kubelet(maxPods=1)], kinds.DAEMONSETS.name: [everywhere("agent")]},
    ),
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
        "spec.limits.nodes is 2 and 2 are in use",
        {
            POOLS: [{**pool(limits={"nodes": "2"}), "status": {"resources": {"nodes": "2"}}}],
            PODS: [pending_pod()],
        },
    ),
    (
        "D10",
        WARNING,
        "spec.minAvailable is 2, and it selects 2 pods",
        {
            POOLS: [pool()],
            kinds.PDBS.name: [
                {**budget("web", minAvailable=2), "status": {"expectedPods": 2, "desiredHealthy": 2}},
            ],
        },
    ),
    ("V03", FAILED, "names the kind EC2Nodeclass of karpenter.k8s.aws", {CLASSES: [CLASS], POOLS: [other_kind()]}),
    (
        "D09",
        FAILED,
        "AWS_REGION is us-east-1, and the cluster is in us-west-2",
        {
            DEPLOYMENTS: [in_region("us-east-1")],
            "eks:DescribeCluster": {"arn": "arn:aws:eks:us-west-2:111122223333:cluster/demo"},
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
    ("D16", FAILED, "maxPods is 110, and 180 of 698 instance types", general_pool(max_pods=110)),
    ("D16", WARNING, "maxPods is 30, and 56 of 698 instance types", general_pool(max_pods=30)),
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
    ("V03", FAILED, "says why", {CLASSES: [not_ready("AMIsReady", "AMINotFound")]}),
    ("V03", FAILED, "no such EC2NodeClass", {POOLS: [pool()]}),
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
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_fault_is_found(case: Case) -> None:
    assert_found(*case)


def test_a_raised_limit_holds_an_instance_for_the_largest_pod_that_waits() -> None:
    full = {**pool(limits={"cpu": "8"}), "status": {"resources": {"cpu": "8"}}}
    large = pending_pod(containers=[{"resources": {"requests": {"cpu": "3"}}}])
    remedies = [row.remedy for row in of("D10", {POOLS: [full], PODS: [pending_pod(), large]})]
    assert any('"limits":{"cpu":"12"}' in remedy for remedy in remedies), remedies


def test_labels_of_a_provisioner_and_of_the_class_are_declared() -> None:
    """The NodePool that carries out a Provisioner declares the label of its generation only on nodes and NodeClaims."""
    selected = (PROVISIONER_NAME, node_class_label(AWS_GROUP, "EC2NodeClass"))
    pods = [pending_pod(nodeSelector=dict.fromkeys(selected, "default"))]
    assert any(PROVISIONER_NAME in row.message for row in of("D10", {POOLS: [pool()], PODS: pods}))
    derived = {**pool(), "metadata": {"name": "default", "annotations": {PROVISIONER_ANNOTATION: "default"}}}
    assert [row.message for row in of("D10", {POOLS: [derived], PODS: pods}) if "declares" in row.message] == []
