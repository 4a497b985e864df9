"""Faults that an operator can make with kubectl and aws alone, and the check that each of them fails."""

from __future__ import annotations

import msgspec

from dovetail.install.doctor.collect import CLUSTERROLES, VALIDATING
from dovetail.install.doctor.facts import Status
from dovetail.kube import resources as kinds
from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import ACCOUNT
from tests.install.account_faults import (
    CONTROLLER_ROLE,
    NODE_ROLE,
    NODE_ROLE_ARN,
    QUEUE_ARN,
    authentication,
    create_queue,
    create_spot_role,
    delete_foreign,
    delete_provider,
    delete_queue,
    delete_spot_role,
    delete_subnet,
    detached,
    document,
    encrypted_queue,
    endpoint_without,
    foreign_subnet,
    isolated,
    key,
    network_access,
    queue_attributes,
    replace_entry,
    restore_entry,
    role_policy,
    rule,
    second_group,
    small_subnet,
    statement,
    trust,
    without_inline_policy,
)
from tests.install.object_faults import (
    BROKEN_AWS_AUTH,
    BY_TAG,
    CLASS,
    HPA,
    POOL,
    WEBHOOK,
    annotate_role,
    cluster_autoscaler,
    controller,
    cordoned,
    daemon_set,
    deployment,
    image,
    lease,
    own_node,
    pending_pod,
    spot_pool,
    uninitialised_node,
    without_definition,
    without_operators,
    workload,
)
from tests.install.reversible_changes import Break, applied, at_aws, both, edited, put, variable


class Scenario(msgspec.Struct, frozen=True):
    check: str
    name: str
    breaks: Break
    status: Status = Status.FAILED
    pre: bool = False
    #: Seconds of the lab until schedulers and controllers have acted on the fault.
    settling_s: float = 5.0


WARNING = Status.WARNING
SCENARIOS: tuple[Scenario, ...] = (
    Scenario("D01", "no access entry", at_aws(lambda site: replace_entry(site, None), restore_entry)),
    Scenario("D01", "an entry of another type", at_aws(lambda site: replace_entry(site, "STANDARD"), restore_entry)),
    Scenario("D01", "aws-auth that is no YAML", both(authentication("CONFIG_MAP"), BROKEN_AWS_AUTH)),
    Scenario("D02", "no subnet", edited(*CLASS, put("spec.subnetSelectorTerms", [{"tags": {"team": "none"}}]))),
    Scenario("D02", "no group", edited(*CLASS, put("spec.securityGroupSelectorTerms", [{"tags": {"team": "none"}}]))),
    Scenario(
        "D02",
        "a full subnet",
        both(at_aws(small_subnet, delete_subnet), edited(*CLASS, put("spec.subnetSelectorTerms", BY_TAG))),
    ),
    Scenario(
        "D02",
        "a subnet of another VPC",
        both(at_aws(foreign_subnet, delete_foreign), edited(*CLASS, put("spec.subnetSelectorTerms", BY_TAG))),
    ),
    Scenario(
        "D02",
        "two groups with the cluster tag",
        at_aws(second_group, lambda site, group: client(site.endpoint, "ec2").delete_security_group(GroupId=group)),
        WARNING,
    ),
    Scenario("D03", "no policy for launches", without_inline_policy("NodeLifecycle")),
    Scenario("D03", "a Deny for CreateFleet", role_policy(document(statement("Deny", "ec2:CreateFleet")))),
    Scenario(
        "D03", "a policy without bounds", role_policy(document(statement("Allow", "ec2:TerminateInstances"))), WARNING
    ),
    Scenario("D04", "an absent role", annotate_role(f"arn:aws:iam::{ACCOUNT}:role/absent")),
    Scenario(
        "D04",
        "a trust of another namespace",
        trust(CONTROLLER_ROLE, lambda text: text.replace(":karpenter:karpenter", ":kube-system:karpenter")),
    ),
    Scenario(
        "D04",
        "no provider",
        at_aws(
            delete_provider,
            lambda site, kept: client(site.endpoint, "iam").create_open_id_connect_provider(**kept),
        ),
    ),
    Scenario("D05", "no worker policy", detached("AmazonEKSWorkerNode")),
    Scenario("D05", "an ARN", edited(*CLASS, put("spec.role", NODE_ROLE_ARN))),
    Scenario("D05", "an absent node role", edited(*CLASS, put("spec.role", "absent"))),
    Scenario(
        "D05", "a trust without EC2", trust(NODE_ROLE, lambda text: text.replace("ec2.amazonaws", "ecs.amazonaws"))
    ),
    Scenario("D05", "a Deny for PassRole", role_policy(document(statement("Deny", "iam:PassRole")))),
    Scenario("D06", "an absent definition", without_definition),
    Scenario("D06", "a schema without Gte", edited(kinds.CRDS, "nodeclaims.karpenter.sh", without_operators)),
    Scenario("D07", "an old Karpenter", controller(image("public.ecr.aws/karpenter/controller:1.0.0"))),
    Scenario("D08", "no queue", at_aws(delete_queue, create_queue)),
    Scenario("D08", "a closed queue", queue_attributes(Policy=document())),
    Scenario("D08", "a queue by ARN", controller(variable("INTERRUPTION_QUEUE", QUEUE_ARN))),
    Scenario("D08", "a queue with a closed key", encrypted_queue),
    Scenario("D08", "a disabled rule", at_aws(rule(False), rule(True)), WARNING),
    Scenario("D08", "no spot role", both(spot_pool, at_aws(delete_spot_role, create_spot_role))),
    Scenario("D09", "more replicas than nodes", controller(put("spec.replicas", 4))),
    Scenario("D09", "scaled to 0", controller(put("spec.replicas", 0))),
    Scenario("D09", "on its own node", own_node),
    Scenario("D10", "limits below one instance", edited(*POOL, put("spec.limits", {"cpu": "100m"}))),
    Scenario("D10", "no limits", edited(*POOL, put("spec.limits", None)), WARNING),
    Scenario("D10", "an unknown label", applied(pending_pod(nodeSelector={"team": "a"}))),
    Scenario(
        "D12",
        "a DaemonSet that does not fit",
        applied(daemon_set("agent", container={"resources": {"requests": {"cpu": "90"}}})),
    ),
    Scenario(
        "D13",
        "budgets without a limit",
        both(
            edited(*CLASS, put("spec.amiSelectorTerms", [{"alias": "al2023@latest"}])),
            edited(*POOL, put("spec.disruption.budgets", [{"nodes": "100%"}])),
        ),
        WARNING,
    ),
    Scenario("D14", "Cluster Autoscaler beside NodePools", cluster_autoscaler(), WARNING),
    Scenario("D15", "a node that does not initialise", uninitialised_node),
    Scenario(
        "D16",
        "more pods than addresses",
        both(applied(daemon_set("aws-node")), edited(*CLASS, put("spec.kubelet", {"maxPods": 110}))),
    ),
    Scenario("D17", "a disabled key", key(disabled=True)),
    Scenario("D17", "a key that is deleted soon", key(deleted=True)),
    Scenario(
        "D17",
        "a key for another role",
        key(document(statement("Allow", "kms:*", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:role/other"}))),
    ),
    Scenario("D18", "no way out", isolated),
    Scenario("D18", "an endpoint that gives no images", endpoint_without("ecr.api")),
    Scenario(
        "D18",
        "an API server for other addresses",
        network_access(endpointPrivateAccess=False, publicAccessCidrs=["203.0.113.0/24"]),
        WARNING,
    ),
    Scenario("D19", "a webhook that was left behind", applied((VALIDATING, WEBHOOK))),
    Scenario(
        "D20",
        "an HPA of a workload without requests",
        applied(
            (kinds.DEPLOYMENTS, workload("Deployment", "web", "default", "example.com/web:1")),
            (kinds.HPAS, HPA),
        ),
        settling_s=60.0,
    ),
    Scenario("V01", "two leaders", lease("kube-system")),
    Scenario("V02", "no rights", edited(CLUSTERROLES, "karpenter", put("rules", []))),
    Scenario("V03", "an absent class", edited(*POOL, put("spec.template.spec.nodeClassRef.name", "absent"))),
    Scenario(
        "V04",
        "DNS that fits no node",
        applied(
            deployment("coredns", "example.com/coredns:1", container={"resources": {"requests": {"memory": "900Gi"}}})
        ),
    ),
    Scenario(
        "V06",
        "groups without tags",
        cluster_autoscaler("--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/none"),
    ),
    Scenario("V08", "a clock that is ahead", lease("default", 600.0), WARNING),
    Scenario("P02", "no room for the controller", cordoned, pre=True),
    Scenario("P04", "Cluster Autoscaler before", cluster_autoscaler(), WARNING, pre=True),
)
