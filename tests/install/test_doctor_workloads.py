"""Checks of `dovetail doctor`: DaemonSets, webhooks, metrics and DNS. Each fault gives a finding."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.install.doctor.collect import (
    APISERVICES,
    LIMITRANGES,
    METRICS,
    MUTATING,
    VPAS,
)
from dovetail.install.doctor.facts import SourceAnswer, State, Status
from dovetail.kube import resources as kinds
from dovetail.model.labels import COMPUTE_TYPE, FARGATE
from tests.install.doctor_facts import (
    CLASSES,
    DEPLOYMENTS,
    FAILED,
    NODES,
    PODS,
    POOLS,
    WARNING,
    Case,
    ago,
    assert_found,
    certificate,
    coredns,
    daemon_pod,
    daemon_set,
    deployment,
    dns_pod,
    hpa,
    node,
    of,
    pool,
    tainted_pool,
    unscalable,
    vpa,
    webhook,
    with_kubelet,
)

SERVICE_RANGE = {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}}


def waiting_dns_pod() -> dict[str, Any]:
    made = dns_pod()
    made["status"] = {"containerStatuses": [{"name": "coredns", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}
    return made


def leaving_out(name: str, desired: int = 0, waits: str = "") -> dict[str, Any]:
    """An agent that selects no node, or whose pod waits, beside a node."""
    agent = daemon_set(name, annotated=True)
    agent["spec"] |= {"selector": {"matchLabels": {"k8s-app": name}}}
    agent["status"] = {"desiredNumberScheduled": desired}
    state = {"name": name, "state": {"waiting": {"reason": waits}}}
    metadata = {"name": f"{name}-1", "namespace": "kube-system", "labels": {"k8s-app": name}}
    pod = {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": {"containerStatuses": [state]}}
    if not desired:
        agent["spec"]["template"]["spec"]["nodeSelector"] = {"no": "such"}
    return {kinds.DAEMONSETS.name: [agent], NODES: [node()], PODS: [pod] if waits else []}


CASES: list[Case] = [
    ("D16", FAILED, "nodeSelector selects none of the 1 nodes: pods on its nodes get no", leaving_out("aws-node")),
    ("D16", FAILED, "do not start (ImagePullBackOff)", leaving_out("aws-node", 1, "ImagePullBackOff")),
    ("D12", FAILED, "nodeSelector selects none of the 1 nodes: pods on its nodes reach no", leaving_out("kube-proxy")),
    (
        "D19",
        FAILED,
        "calls port 443 of the Service a/hook, which has 8443 alone",
        {
            MUTATING.name: [webhook()],
            kinds.SERVICES.name: [
                {"metadata": {"name": "hook", "namespace": "a"}, "spec": {"ports": [{"port": 8443}]}}
            ],
        },
    ),
    (
        "V04",
        WARNING,
        "it does not start (ImagePullBackOff); others of Deployment coredns run",
        {DEPLOYMENTS: [coredns(ready=1)], PODS: [waiting_dns_pod()], NODES: [node()]},
    ),
    ("D20", FAILED, "spec.scaleTargetRef Deployment/wbe: not found", unscalable("web")),
    (
        "V04",
        FAILED,
        "clusterDNS has 10.100.0.11 of the cluster's Service range, and no Service has this address",
        {
            "eks:DescribeCluster": SERVICE_RANGE,
            CLASSES: [with_kubelet(clusterDNS=["169.254.20.10", "10.100.0.10", "10.100.0.11"])],
            kinds.SERVICES.name: [{"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": "10.100.0.10"}}],
        },
    ),
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
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[2]}")
def test_a_fault_is_found(case: Case) -> None:
    assert_found(*case)


@pytest.mark.parametrize("resolver", ["10.0.0.2", "169.254.20.10", "192.168.7.53", "fd00:ec2::253"])
def test_a_resolver_outside_of_the_service_range_is_not_judged(resolver: str) -> None:
    answers = {"eks:DescribeCluster": SERVICE_RANGE, CLASSES: [with_kubelet(clusterDNS=[resolver])]}
    assert [row.status for row in of("V04", answers)] == [Status.PASSED]


def test_an_absent_dns_service_is_taken_from_the_addresses_and_other_resolvers_stay() -> None:
    network = {"kubernetesNetworkConfig": {"ipFamily": "ipv6", "serviceIpv6Cidr": "fd12:3456::/108"}}
    mixed = with_kubelet(clusterDNS=["fd12:3456::b", "fd00:ec2::253"])
    (finding,) = of("V04", {"eks:DescribeCluster": network, CLASSES: [mixed]})
    assert finding.status is FAILED
    assert finding.remedy.endswith(
        '-p \'[{"op":"replace","path":"/spec/kubelet/clusterDNS","value":["fd00:ec2::253"]}]\''
    )


def test_a_resolver_is_not_judged_without_the_service_range() -> None:
    refused = SourceAnswer(state=State.REFUSED, right="eks:DescribeCluster", message="no")
    answers = {"eks:DescribeCluster": refused, CLASSES: [with_kubelet(clusterDNS=["10.100.0.11"])]}
    assert [row.status for row in of("V04", answers)] == [Status.NOT_CHECKED]


def test_an_agent_that_another_network_replaces_may_select_no_node() -> None:
    answers = leaving_out("aws-node")
    answers[kinds.DAEMONSETS.name].append(daemon_set("cilium"))
    assert [row for row in of("D16", answers) if row.status is FAILED] == []


def test_a_webhook_of_other_groups_only_warns() -> None:
    hook = webhook()
    hook["webhooks"][0]["rules"] = [{"apiGroups": ["example.com"], "resources": ["widgets"]}]
    assert [row.status for row in of("D19", {MUTATING.name: [hook]})] == [WARNING]
