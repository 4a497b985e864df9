"""The remedies that `dovetail doctor` prints: of the right object, so that typing them mends the fault."""

from __future__ import annotations

import json
from typing import Any

from dovetail.install.doctor.checks import report
from dovetail.install.doctor.collect import (
    APISERVICES,
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    METRICS,
    REFUSALS,
    ROLEBINDINGS,
    ROLES,
)
from dovetail.install.doctor.facts import Finding, SourceAnswer, State, Status
from dovetail.install.rbac import RULES, Scope, grants
from dovetail.kube import resources as kinds
from tests.install.doctor_facts import (
    ALL_RULES,
    CLAIMS,
    CLOSED_TABLE,
    EVENTS,
    KARPENTER,
    LEASE,
    OPEN_QUEUE,
    POOLS,
    SHARED_GROUP,
    THREE,
    VOLUME_KEY,
    a_class,
    ago,
    changed_pool,
    denial,
    deployment,
    facts,
    hpa,
    pool,
    refusal,
    subnet,
    unscalable,
    unschedulable_pod,
    with_policy,
    with_queue,
)

CLUSTER_GRANTS = [
    row for row in grants(rule for rule in RULES if rule.scope is Scope.CLUSTER) if row.resource != "leases"
]
CLASSES, DEPLOYMENTS = kinds.EC2NODECLASSES.name, kinds.DEPLOYMENTS.name
NETWORK = {"vpcId": "vpc-1", "subnetIds": ["subnet-1", "subnet-2"], "clusterSecurityGroupId": "sg-1"}
CLUSTER = {"accessConfig": {"authenticationMode": "CONFIG_MAP"}, "resourcesVpcConfig": NETWORK}


PULL_ONLY = {"PolicyName": "AmazonEC2ContainerRegistryPullOnly"}


def tagged(row: dict[str, Any], **tags: str) -> dict[str, Any]:
    return {**row, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def findings(check: str, status: Status = Status.FAILED, **answers: Any) -> list[Finding]:
    given = {"eks:DescribeCluster": CLUSTER, **answers}
    return [row for row in report(facts(answers=given)) if row.id == check and row.status is status]


def selecting(field: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {CLASSES: [a_class(**{field: list(terms)})]}


def test_a_misspelt_tag_value_is_corrected_in_the_selector() -> None:
    own = [tagged(subnet(f"subnet-{n}", zone), discovery="demo") for n, zone in ((1, "a"), (2, "b"))]
    given = {**selecting("subnetSelectorTerms", {"tags": {"discovery": "dmeo"}}), "subnets of default": []}
    (row,) = findings("D02", **given, **{"cluster subnets": own})
    terms = '{"spec":{"subnetSelectorTerms":[{"tags":{"discovery":"demo"}}]}}'
    assert row.remedy == f"kubectl patch ec2nodeclass default --type=merge -p '{terms}'"
    (row,) = findings("D02", **given)
    assert row.remedy.startswith("aws ec2 create-tags --resources subnet-1 subnet-2 --tags Key=discovery,Value=dmeo ")


def test_a_subnet_of_another_vpc_is_not_selected_any_more() -> None:
    """One that is named by its id keeps being selected whatever tags it has."""
    foreign = {"subnets of default": [subnet("subnet-9", "a", vpc="vpc-2"), subnet("subnet-8", "b", vpc="vpc-2")]}
    (row,) = findings("D02", **selecting("subnetSelectorTerms", {"id": "subnet-9"}, {"id": "subnet-8"}), **foreign)
    assert row.remedy.endswith('\'{"spec":{"subnetSelectorTerms":[{"id":"subnet-1"},{"id":"subnet-2"}]}}\'')
    (row,) = findings("D02", **selecting("subnetSelectorTerms", {"tags": {"team": "a"}}), **foreign)
    assert row.remedy.startswith("aws ec2 delete-tags --resources subnet-9 subnet-8 --tags Key=team --region ")


def test_a_single_zone_is_widened_by_the_subnets_of_the_cluster() -> None:
    given = {"subnets of default": [subnet("subnet-1", "a")]}
    (row,) = findings("D02", Status.WARNING, **selecting("subnetSelectorTerms", {"tags": {"team": "a"}}), **given)
    assert row.remedy.startswith("aws ec2 create-tags --resources subnet-2 --tags Key=team,Value=a ")
    (row,) = findings("D02", Status.WARNING, **selecting("subnetSelectorTerms", {"id": "subnet-1"}), **given)
    assert row.remedy.endswith('[{"id":"subnet-1"},{"id":"subnet-2"}]}}\'')


def test_of_two_groups_with_the_cluster_tag_the_one_of_eks_keeps_it() -> None:
    rows = [tagged({**SHARED_GROUP, "GroupId": group}) for group in ("sg-0", "sg-1")]
    for row in rows:
        row["Tags"] = [{"Key": "kubernetes.io/cluster/demo", "Value": "owned"}]
    given = {**selecting("securityGroupSelectorTerms", {"tags": {"a": "b"}}), "security groups of default": rows}
    (second,) = findings("D02", Status.WARNING, **given)
    assert second.remedy.startswith("aws ec2 delete-tags --resources sg-0 --tags Key=kubernetes.io/cluster/demo")


def test_a_service_account_with_the_node_role_is_given_the_role_of_the_controller() -> None:
    """Changing the trust policy of the node role would take it from the nodes."""
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/nodes"}
    account = {"metadata": {"name": "karpenter", "namespace": "kube-system", "annotations": annotations}}
    given = {
        DEPLOYMENTS: [deployment(KARPENTER)],
        kinds.CRDS.name: THREE,
        kinds.SERVICEACCOUNTS.name: [account],
        "eks:DescribeCluster": {**CLUSTER, "arn": "arn:aws:eks:us-west-2:111122223333:cluster/demo"},
        "denied to the controller": [
            denial("launch", "ec2:CreateFleet"),
            denial("pass role", "iam:PassRole"),
        ],
    }
    rows = [row for row in report(facts(answers=given)) if row.status is Status.FAILED]
    assert [row.id for row in rows] == ["D04"]
    assert "admits ec2.amazonaws.com, no service account" in rows[0].message
    assert rows[0].remedy.startswith("kubectl annotate serviceaccount karpenter -n kube-system --overwrite")


def test_an_endpoint_of_another_cluster_fails() -> None:
    for stated, fails in (("https://A.eks.amazonaws.com/", False), ("https://b.eks.amazonaws.com", True), ("", False)):
        lone = deployment(KARPENTER)
        lone["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "CLUSTER_ENDPOINT", "value": stated}]
        described = {**CLUSTER, "endpoint": "https://a.eks.amazonaws.com"}
        rows = findings("D09", **{DEPLOYMENTS: [lone], "eks:DescribeCluster": described})
        assert [row.remedy.rpartition(" ")[2] for row in rows] == (
            ["CLUSTER_ENDPOINT=https://a.eks.amazonaws.com"] if fails else []
        )


def test_dns_without_a_service_fails() -> None:
    labels = {"k8s-app": "kube-dns"}
    dns = deployment("coredns:1", "coredns")
    dns["spec"]["template"]["metadata"] = {"labels": labels}
    service = {"metadata": {"name": "kube-dns", "namespace": "kube-system"}, "spec": {"selector": labels}}
    given = {DEPLOYMENTS: [dns]}
    assert [row.object for row in findings("V04", **given)] == ["deployment/kube-system/coredns"]
    assert findings("V04", **given, **{kinds.SERVICES.name: [service]}) == []
    api = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": {"clusterIP": "10.100.0.1"}}
    (row,) = findings("V04", **given, **{kinds.SERVICES.name: [api]})
    assert '"clusterIP":"10.100.0.10","selector":{"k8s-app":"kube-dns"}' in row.remedy


def test_rights_on_leases_are_granted_in_the_namespace_of_the_election() -> None:
    """Without them the controller is never elected, and is not ready for it."""
    account = {"kind": "ServiceAccount", "name": "karpenter", "namespace": "kube-system"}
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": [row.resource]} for row in CLUSTER_GRANTS]
    lease = {"verbs": ["get", "update"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}

    def bound(namespace: str, rules: list[dict[str, Any]]) -> list[Finding]:
        where = {"name": "karpenter", "namespace": namespace}
        reference = {"roleRef": {"kind": "Role", "name": "karpenter"}, "subjects": [account]}
        return findings(
            "V02",
            **{
                DEPLOYMENTS: [deployment("dovetail/controller:1")],
                CLUSTERROLES.name: [{"metadata": {"name": "karpenter"}, "rules": everything}],
                CLUSTERROLEBINDINGS.name: [{**reference, "metadata": {"name": "karpenter"}}],
                ROLES.name: [{"metadata": where, "rules": rules}],
                ROLEBINDINGS.name: [{**reference, "metadata": where}],
            },
        )

    assert bound("kube-system", [lease | {"resourceNames": ["karpenter-leader-election"]}]) == []
    assert ["get, update leases" in row.message for row in bound("kube-system", [])] == [True]
    assert len(bound("elsewhere", [lease])) == 1


def test_images_that_do_not_exist_fail_beside_a_class_without_subnets() -> None:
    """Two faults in two classes: neither explains the other. What only waits for a condition is not reported."""
    waiting = {
        "type": "ValidationSucceeded",
        "status": "False",
        "reason": "DependenciesNotReady",
        "message": "Awaiting",
    }
    old = {"type": "AMIsReady", "status": "False", "reason": "AMINotFound", "message": "none"}
    images = a_class(
        amiFamily="AL2", amiSelectorTerms=[{"alias": "al2@latest"}], subnetSelectorTerms=[{"id": "subnet-1"}]
    )
    images |= {"metadata": {"name": "images"}, "status": {"conditions": [old, waiting]}}
    both: dict[str, Any] = {CLASSES: [a_class(), images], "subnets of default": [], "role of images": "nodes"}
    both |= {f"{kind} of images": facts().answers[f"{kind} of default"] for kind in ("subnets", "security groups")}
    rows = [row for row in report(facts(answers=both)) if row.status is Status.FAILED]
    assert [(row.id, row.object) for row in rows] == [("D02", "ec2nodeclass/default"), ("V03", "ec2nodeclass/images")]
    patch = '{"spec": {"amiFamily": null, "amiSelectorTerms": [{"alias": "al2023@latest"}]}}'
    assert rows[1].remedy == f"kubectl patch ec2nodeclass images --type=merge -p '{patch}'"


def test_images_of_another_architecture_fail() -> None:
    def image(architecture: str) -> dict[str, Any]:
        return {"requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": [architecture]}]}

    amd64 = pool(requirements=[{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}])
    for there, fails in ((["arm64"], True), (["arm64", "amd64"], False)):
        node_class = {**a_class(amiFamily="AL2023"), "status": {"amis": [image(name) for name in there]}}
        rows = findings("D10", **{kinds.NODEPOOLS.name: [amd64], CLASSES: [node_class]})
        assert ["are for arm64 alone" in row.message for row in rows] == ([True] if fails else [])


def with_rules(*rules: dict[str, Any]) -> dict[str, Any]:
    return {DEPLOYMENTS: [with_queue("demo")], "queue demo": OPEN_QUEUE, "rules of demo": list(rules)}


def test_each_notice_that_does_not_reach_the_queue_has_its_command() -> None:
    """A rule that is disabled is enabled; a rule that is not there is made, whatever the number."""
    warning, rebalance, state, health = ALL_RULES
    disabled = {**warning, "Name": "interruptions", "State": "DISABLED"}
    (row,) = findings("D08", Status.WARNING, **with_rules(disabled, health))
    commands = row.remedy.split(" && ")
    assert commands[0] == "aws events enable-rule --name interruptions --region us-west-2"
    assert [command.split()[2] for command in commands[1:]] == ["put-rule", "put-targets", "put-rule", "put-targets"]
    assert not findings("D08", Status.WARNING, **with_rules(warning, rebalance, state, health))


def test_a_queue_that_is_made_again_admits_eventbridge() -> None:
    described = {**CLUSTER, "arn": "arn:aws:eks:us-west-2:111122223333:cluster/demo"}
    absent = {**with_rules(), "queue demo": SourceAnswer(state=State.ABSENT), "eks:DescribeCluster": described}
    (row,) = findings("D08", **absent)
    assert "events.amazonaws.com" in row.remedy and "arn:aws:sqs:us-west-2:111122223333:demo" in row.remedy


def absent_queue(*queues: tuple[str, bool], name: str = "dmeo") -> Finding:
    rows = [{"name": queue, "fed": fed} for queue, fed in queues]
    absent = {DEPLOYMENTS: [with_queue(name)], f"queue {name}": SourceAnswer(state=State.ABSENT), "queues": rows}
    (row,) = findings("D08", **absent)
    return row


def test_a_misspelt_queue_is_corrected_in_the_setting() -> None:
    """Of the cluster's name, of a similar one, or the only one that gets the notices; else the queue is made."""
    set_queue = "kubectl set env deployment/karpenter -n kube-system INTERRUPTION_QUEUE="
    row = absent_queue(("demo", False), ("orders", False))
    assert row.remedy == f"{set_queue}demo" and row.message.endswith("no such queue in us-west-2; there is 'demo'")
    assert absent_queue(("spot-notices", True), ("orders", False), name="q").remedy == f"{set_queue}spot-notices"
    similar = absent_queue(("karpenter-blue", True), ("karpenter-green", True), name="karpenter-blu")
    assert similar.remedy == f"{set_queue}karpenter-blue"
    for others in ((), (("orders", False),), (("a", True), ("b", True))):
        assert absent_queue(*others, name="queue").remedy.startswith("aws sqs create-queue --queue-name queue ")


def test_a_metrics_server_that_is_scaled_to_zero_is_started() -> None:
    """Its manifest states no replicas, so applying it again starts none."""
    name = {"name": "metrics-server", "namespace": "kube-system"}
    stopped = deployment("registry.k8s.io/metrics-server/metrics-server:v0.8.0", "metrics-server")
    stopped["metadata"] |= name
    stopped["spec"]["replicas"] = 0
    stopped["spec"]["template"]["metadata"] = {"labels": {"k8s-app": "metrics-server"}}
    registered = {"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {"service": name}}
    given = {
        kinds.HPAS.name: [hpa()],
        METRICS: SourceAnswer(state=State.UNREACHABLE, message="503"),
        APISERVICES.name: [registered],
        kinds.SERVICES.name: [{"metadata": name, "spec": {"selector": {"k8s-app": "metrics-server"}}}],
    }
    (row,) = findings("D20", **given, **{DEPLOYMENTS: [stopped]})
    assert row.remedy == "kubectl scale deployment metrics-server -n kube-system --replicas=1"
    (row,) = findings("D20", **given, **{DEPLOYMENTS: []})
    assert row.remedy.startswith("kubectl apply -f https://")


def test_a_misspelt_node_role_is_corrected_and_a_missing_one_gets_its_policies() -> None:
    given = {CLASSES: [a_class(role="nodse")], "role nodse": SourceAnswer(state=State.ABSENT)}
    (row,) = findings("D05", **given, **{"role KarpenterNodeRole-demo": {"Arn": "arn:aws:iam::1:role/x"}})
    assert (
        row.remedy
        == 'kubectl patch ec2nodeclass default --type=merge -p \'{"spec":{"role":"KarpenterNodeRole-demo"}}\''
    )
    (row,) = findings("D05", **given)
    assert row.remedy.startswith("aws iam create-role --role-name nodse ")
    assert row.remedy.count("aws iam attach-role-policy --role-name nodse ") == 3


def test_a_key_that_does_not_exist_is_taken_from_the_volume() -> None:
    encrypted = a_class(blockDeviceMappings=[{"ebs": {}}, {"ebs": {"kmsKeyID": "k"}}])
    (row,) = findings("D17", **{CLASSES: [encrypted], "key k": SourceAnswer(state=State.ABSENT)})
    assert '[{"op":"remove","path":"/spec/blockDeviceMappings/1/ebs/kmsKeyID"}]' in row.remedy


def test_a_key_that_leaves_its_use_to_iam_is_granted_by_a_policy() -> None:
    """A grant is not seen by IAM's simulator, so doctor would fail again."""
    statement = {"Effect": "Allow", "Action": "kms:*", "Principal": {"AWS": "arn:aws:iam::1:root"}}
    given: dict[str, Any] = {
        CLASSES: [a_class(blockDeviceMappings=[{"ebs": {"kmsKeyID": "k"}}])],
        DEPLOYMENTS: [deployment(KARPENTER)],
        "key k": VOLUME_KEY,
        "policy of key k": {"Statement": [statement]},
        "denied to the controller": [denial("volume key", "kms:CreateGrant", str(VOLUME_KEY["Arn"]))],
    }
    (row,) = findings("D17", **given)
    assert row.remedy.startswith("aws iam put-role-policy ") and "kms:CreateGrant" in row.remedy
    policies = given["denied to the controller"][0]
    bounded = {**policies, "by_boundary": True}
    (row,) = findings("D17", **given | {"denied to the controller": [bounded]})
    assert "Role.PermissionsBoundary" in row.remedy and row.remedy.endswith("kms:CreateGrant")
    (row,) = findings("D17", **given | {"denied to the controller": [bounded, policies]})
    assert row.remedy.startswith("aws iam put-role-policy ")


def test_every_endpoint_that_is_missing_has_its_command() -> None:
    closed = {"route tables": [CLOSED_TABLE], CLASSES: [a_class()]}
    (row,) = findings("D18", **closed)
    assert row.remedy.count("aws ec2 create-vpc-endpoint") == 5
    assert "com.amazonaws.us-west-2.s3 --vpc-endpoint-type Gateway" in row.remedy


def test_a_lease_of_a_holder_that_is_gone_fails() -> None:
    """The controllers wait for as long as the lease lasts; a holder that renews is left alone."""
    held = {**LEASE, "spec": {**LEASE["spec"], "holderIdentity": "gone", "leaseDurationSeconds": 86400}}
    running = {DEPLOYMENTS: [deployment(KARPENTER, readyReplicas=1)]}
    silent = {**held, "spec": {**held["spec"], "renewTime": ago(minutes=5)}}
    (row,) = findings("V01", **running, **{kinds.LEASES.name: [silent]})
    assert row.remedy == "kubectl delete lease karpenter-leader-election -n kube-system"
    assert not findings("V01", **running, **{kinds.LEASES.name: [held]})


def test_a_requirement_that_no_type_meets_is_corrected_or_taken_out() -> None:
    letters = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c", "m"]}
    (row, *_) = findings("D10", **{kinds.NODEPOOLS.name: [pool(requirements=[letters])]})
    assert '"path":"/spec/template/spec/requirements/0/key","value":"karpenter.k8s.aws/instance-category"' in row.remedy
    family = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["z99"]}
    (row, *_) = findings("D10", **{kinds.NODEPOOLS.name: [pool(requirements=[family])]})
    assert '[{"op":"remove","path":"/spec/template/spec/requirements/0"}]' in row.remedy


def test_a_right_that_is_missing_is_added_and_a_role_that_is_not_bound_is_bound() -> None:
    controller = deployment("dovetail/controller:0.1.0")
    account = {"kind": "ServiceAccount", "name": "karpenter", "namespace": "kube-system"}
    rules = [
        {"apiGroups": [row.group], "resources": [row.resource], "verbs": [row.verb]}
        for row in CLUSTER_GRANTS
        if (row.verb, row.resource) != ("create", "nodeclaims")
    ]
    whole = [*rules, {"apiGroups": ["karpenter.sh"], "resources": ["nodeclaims"], "verbs": ["create"]}]
    binding = {"metadata": {"name": "b"}, "roleRef": {"name": "karpenter"}, "subjects": [account]}

    def remedy(granted: list[dict[str, Any]], *bindings: dict[str, Any]) -> str:
        role = {"metadata": {"name": "karpenter"}, "rules": granted}
        given = {DEPLOYMENTS: [controller], CLUSTERROLES.name: [role], CLUSTERROLEBINDINGS.name: list(bindings)}
        (row,) = findings("V02", **given)
        return row.remedy

    added = '{"apiGroups":["karpenter.sh"],"resources":["nodeclaims"],"verbs":["create"]}'
    assert added in remedy(rules, binding) and remedy(rules, binding).startswith("kubectl patch clusterrole karpenter ")
    assert remedy(whole) == (
        "kubectl create clusterrolebinding karpenter --clusterrole=karpenter --serviceaccount=kube-system:karpenter"
    )


def test_a_managed_policy_is_named_in_the_partition_of_the_cluster() -> None:
    described = {**CLUSTER, "arn": "arn:aws-us-gov:eks:us-gov-west-1:111122223333:cluster/demo"}
    (row,) = findings(
        "D05", **{"eks:DescribeCluster": described, CLASSES: [a_class()], "policies of nodes": [PULL_ONLY]}
    )
    assert row.remedy.endswith("--policy-arn arn:aws-us-gov:iam::aws:policy/AmazonEKSWorkerNodePolicy")


def refused(text: str, **answers: Any) -> str:
    waiting = {kinds.PODS.name: [unschedulable_pod("a"), *answers.pop("pods", [])], REFUSALS: [refusal("a", text)]}
    (row,) = findings("D10", **waiting, **answers)
    return row.remedy


def test_pods_without_a_node_pool_get_one_of_the_class_that_exists() -> None:
    text = "there is no NodePool; create a NodePool (NO_NODEPOOL)"
    remedy = refused(text, **{CLASSES: [a_class()]})
    body = json.loads(remedy.removeprefix("echo '").removesuffix("' | kubectl apply -f -"))
    assert body["kind"] == "NodePool" and body["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "default"
    assert refused(text) == "dovetail explain pod/a/a -v"


def test_a_taint_that_no_pod_tolerates_is_taken_from_the_node_pool() -> None:
    text = "NodePool default: taint team=a:NoSchedule left none of 9 offerings (UNTOLERATED_TAINT)"
    tainted = pool()
    tainted["spec"]["template"]["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    patch = '[{"op":"remove","path":"/spec/template/spec/taints/0"}]'
    agent = {"metadata": {"name": "x", "namespace": "a", "ownerReferences": [{"kind": "DaemonSet"}]}}
    tolerating = {"spec": {"containers": [], "tolerations": [{"key": "team", "operator": "Exists"}]}, "status": {}}
    given = {kinds.NODEPOOLS.name: [tainted], CLASSES: [a_class()]}
    assert refused(text, pods=[{**agent, **tolerating}], **given).endswith(f"nodepool default --type=json -p '{patch}'")
    team = {"metadata": {"name": "y", "namespace": "a"}, **tolerating}
    assert refused(text, pods=[team], **given) == "dovetail explain pod/a/a -v"


def test_a_misspelt_target_of_an_hpa_is_corrected() -> None:
    (row,) = findings("D20", **unscalable("web"))
    assert row.remedy.endswith(' --type=merge -p \'{"spec":{"scaleTargetRef":{"name":"web"}}}\'')
    (row,) = findings("D20", **unscalable("orders"))
    assert row.remedy.startswith("kubectl get deployments,statefulsets -n ")


def test_a_budget_whose_schedule_never_closes_is_reported() -> None:
    closed = {"nodes": "0", "schedule": "0 0 * * *", "duration": "24h"}
    for budget, held in ((closed, True), ({**closed, "duration": "23h"}, False)):
        changed, claim = changed_pool([budget])[POOLS][0], changed_pool([budget])[CLAIMS][0]
        rows = findings("V05", Status.WARNING, **{POOLS: [changed], CLAIMS: [claim]})
        assert ["so none is ever replaced" in row.message for row in rows] == ([True] if held else [])


def test_a_queue_may_deny_requests_without_encryption() -> None:
    """Karpenter's own template does: a Deny with a condition says nothing of EventBridge."""
    insecure = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    allowed = {"Effect": "Allow", "Principal": {"Service": [EVENTS, "sqs.amazonaws.com"]}, "Action": "sqs:SendMessage"}
    assert not findings("D08", **with_policy(allowed, insecure))


def test_a_detached_internet_gateway_is_attached_again() -> None:
    route = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1", "State": "blackhole"}
    table = {"Associations": [{"Main": True}], "Routes": [route]}
    (row,) = findings("D18", **{CLASSES: [a_class()], "route tables": [table]})
    assert row.remedy == (
        "aws ec2 attach-internet-gateway --internet-gateway-id igw-1 --vpc-id vpc-1 --region us-west-2"
    )


def test_instances_without_public_addresses_get_them_where_nothing_else_is_missing() -> None:
    table = {"Associations": [{"Main": True}], "Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": "igw-1"}]}
    (row,) = findings("D18", **{CLASSES: [a_class()], "route tables": [table]})
    assert row.remedy.endswith('{"spec":{"associatePublicIPAddress":true}}\'')


def test_an_absent_class_is_created_where_there_is_none() -> None:
    (row,) = findings("V03", **{kinds.NODEPOOLS.name: [pool()]})
    body = json.loads(row.remedy.removeprefix("echo '").removesuffix("' | kubectl apply -f -"))
    assert body["kind"] == "EC2NodeClass" and body["metadata"]["name"] == "default"
    assert body["spec"]["role"] == "KarpenterNodeRole-demo"
