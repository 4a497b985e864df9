"""Least privilege: what the controllers ask of Kubernetes and of AWS is granted, and nothing else is.

A slice of the controllers' own tests runs under the recorder; what they do not reach is asked here. Each recorded AWS
call is judged by the policy with its own tags, as IAM would.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from click.testing import CliRunner

from dovetail.chance import Chance
from dovetail.cli.iam import iam as iam_command
from dovetail.cli.webhook import CERTIFICATE_SECRET, keep_certificate
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.history.store import ConfigMaps
from dovetail.controllers.provisioning import batcher
from dovetail.install import iam, iam_formats
from dovetail.install.policy import allowed
from dovetail.install.rbac import RULES, Grant, PolicyRule, RuleCondition, Scope, grants
from dovetail.kube.client import Kube
from dovetail.kube.resources import CRDS, NAMESPACES, SECRETS
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.model.kinds import crds
from dovetail.model.meta import OwnerReference
from tests.install import recording

ROOT = Path(__file__).parents[2]
SITE = iam.Site(cluster="demo", region="ap-northeast-2", account="123456789012", queue="demo", reboots=True)
#: Tests that together reach every request of the controllers.
SLICE = (
    "tests/controllers/test_aws_placement.py",
    "tests/controllers/test_aws_handover.py",
    "tests/controllers/test_aws_calls.py",
    "tests/controllers/test_aws_reservations.py",
    "tests/controllers/test_legacy_provisioner.py",
    "tests/controllers/test_batch_window.py",
    "tests/controllers/test_repair.py",
    "tests/controllers/test_unhealthy_nodes.py",
    "tests/controllers/test_leader_election.py",
    "tests/controllers/test_scale_down.py",
    "tests/controllers/test_binding.py",
    "tests/controllers/test_volume_detachment.py",
    "tests/cloud/aws/test_provider.py",
    "tests/cloud/aws/test_launch.py",
    "tests/cloud/aws/test_launch_templates.py",
    "tests/cloud/aws/test_placement_groups.py",
    "tests/cloud/aws/test_queue.py",
    "tests/cloud/aws/test_nodeclass_validation.py",
    "tests/cloud/aws/test_capacity_reservations.py",
    "tests/cloud/aws/test_profiles.py",
    "tests/install/test_node_role_steps.py",
)
#: AWS operations that only the tests and the lab make, to set a scene.
SCENERY = frozenset({"cancel_capacity_reservation", "create_capacity_reservation", "create_placement_group",
                     "delete_placement_group", "describe_launch_template_versions", "send_message", "ask"})  # fmt: skip
#: IAM actions that a call needs beside its own.
IMPLIED = {
    "create_fleet": ("ec2:RunInstances", "ec2:CreateTags", "iam:PassRole"),
    "run_instances": ("ec2:CreateTags", "iam:PassRole"),
    "create_launch_template": ("ec2:CreateTags",),
    "create_instance_profile": ("iam:TagInstanceProfile",),
    "add_role_to_instance_profile": ("iam:PassRole",),
}
#: What of the AWS provider Cluster Autoscaler uses.
NODE_GROUP_MODULES = ("auto_scaling_groups.py", "group_templates.py", "managed_node_groups.py")
#: Operations by another name in IAM.
RENAMED = {"delete_message_batch": "sqs:DeleteMessage"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("recording") / "asked.json"
    assert [name for name in SLICE if not (ROOT / name).exists()] == [], "the slice names tests that are gone"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.install.recording", "-p", "no:cacheprovider", "-q",
         "-m", "not slow and not kubernetes", *SLICE],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "DOVETAIL_RECORDING": str(file)},
    )  # fmt: skip
    assert file.exists(), run.stdout[-2000:] + run.stderr[-2000:]
    return dict(json.loads(file.read_text()))


def kubernetes_requests(recorded: dict[str, Any]) -> set[tuple[str, str, str, str, str]]:
    return {tuple(row) for rows in recorded["kubernetes"].values() for row in rows}


def aws_calls(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    texts = {text for rows in recorded["aws"].values() for text in rows}
    calls = [json.loads(text) for text in sorted(texts)]
    return [call for call in calls if call["operation"] not in SCENERY and not _is_scenery(call["arguments"])]


def _is_scenery(arguments: dict[str, Any]) -> bool:
    """A launch template that a test made by hand."""
    return not arguments.get("LaunchTemplateName", "karpenter.k8s.aws/").startswith("karpenter.k8s.aws/")


async def _remaining_requests() -> set[tuple[str, str, str, str, str]]:
    """What no test of the slice reaches: the owners of pods, an old history, and the webhook."""
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    recording.KUBERNETES.pop("outside", None)
    server = InProcess(ApiServer(clock, Chance(1)))
    kube, operator = Kube(recording.Recorder(server), clock), Kube(server, clock)
    asking = batcher.OwnersStillCreating(kube, None)
    for kind in ("Job", "StatefulSet", "ReplicationController", "ReplicaSet"):
        await asking._wanted_pods("default", OwnerReference(kind=kind, name="x", uid="u"))
    for definition in crds.definitions():
        await kube.create(CRDS, definition)
    await kube.create(NAMESPACES, {"metadata": {"name": "karpenter"}})
    recording.KUBERNETES["outside"] -= {
        row for row in recording.KUBERNETES["outside"] if row[0] == "create" and row[2] != "secrets"
    }
    history = ConfigMaps(kube, "karpenter")
    for second in (1, 2):
        history._name = ""
        time = f"2026-01-01T00:00:0{second}Z"
        await history.append([Decision(id=f"d{second}", time=time, kind="provision", summary="x")])
    await history.forget("2027-01-01T00:00:00Z")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    keeping = asyncio.ensure_future(keep_certificate(kube, context, "karpenter", "karpenter-webhook", 8443))
    await asyncio.sleep(60.0)
    await operator.patch(SECRETS, CERTIFICATE_SECRET, {"data": {"tls.crt": ""}}, "karpenter")
    await asyncio.sleep(2 * 3600.0)
    keeping.cancel()
    return recording.KUBERNETES.pop("outside")


def granting(request: tuple[str, str, str, str, str], rules: tuple[PolicyRule, ...]) -> list[Grant]:
    """Grants that a request makes use of."""
    verb, group, resource, _, name = request
    return [
        grant for grant in grants(rules)
        if (grant.verb, grant.group, grant.resource) == (verb, group, resource) and grant.name in ("", name)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_controllers_ask_of_kubernetes_is_granted_and_nothing_more(recorded: dict[str, Any]) -> None:
    requests = kubernetes_requests(recorded) | run_virtual(_remaining_requests())
    missing = sorted(request for request in requests if not granting(request, RULES))
    assert missing == []
    used = {grant for request in requests for grant in granting(request, RULES)}
    # an API server that sends no initial events with a watch is asked for a list first
    used |= {Grant("list", grant.group, grant.resource, grant.name) for grant in used if grant.verb == "watch"}
    # selectors of spread constraints are watched only with a scheduler configuration, which the slice does not have
    optional = grants([rule for rule in RULES if rule.when is RuleCondition.SCHEDULER_CONFIG])
    assert sorted(grants(RULES) - used - optional) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_controllers_ask_of_aws_is_granted_and_nothing_more(recorded: dict[str, Any]) -> None:
    calls = aws_calls(recorded)
    policies = list(iam.controller_policies(SITE).values())
    granted = {action for policy in policies for row in policy["Statement"] for action in row["Action"]}
    needed: set[str] = set()
    for call in calls:
        needed |= set(actions(call))
        refusal = refused(call, policies)
        assert refusal is None, f"{call['service']} {call['operation']}: {refusal}: {call['arguments']}"
    assert needed - granted == set()
    assert granted - needed == set()


@cache
def operations(service: str) -> dict[str, str]:
    """Methods of the client -> operations of the service."""
    client = boto3.client(service, region_name=SITE.region, aws_access_key_id="x", aws_secret_access_key="x")
    return dict(client.meta.method_to_api_mapping)


def actions(call: dict[str, Any]) -> list[str]:
    service, operation = call["service"], call["operation"]
    own = RENAMED.get(operation) or f"{service}:{operations(service)[operation]}"
    return [own, *IMPLIED.get(operation, ())]


def refused(call: dict[str, Any], policies: list[dict[str, Any]]) -> str | None:
    """Why the policy would refuse a recorded call, judged by the tags that the call carries."""
    service, operation, arguments = call["service"], call["operation"], call["arguments"]
    context: dict[str, str | list[str]] = {"aws:RequestedRegion": SITE.region}
    tagged = {
        tag["Key"]: tag["Value"]
        for specification in arguments.get("TagSpecifications", ())
        for tag in specification["Tags"]
    } | {tag["Key"]: tag["Value"] for tag in arguments.get("Tags", ())}
    context |= {f"aws:RequestTag/{key}": value for key, value in tagged.items()}
    context["aws:TagKeys"] = list(tagged)
    owned = {f"aws:ResourceTag/kubernetes.io/cluster/{SITE.cluster}": "owned", f"aws:ResourceTag/{iam.NODEPOOL}": "x",
             f"aws:ResourceTag/{iam.NODECLASS}": "x", f"aws:ResourceTag/{iam.REGION_TAG}": SITE.region}  # fmt: skip
    action = actions(call)[0]
    profile = f"arn:aws:iam::{SITE.account}:instance-profile"
    resources = {
        "create_fleet": "arn:aws:ec2:ap-northeast-2:123456789012:fleet/x",
        "run_instances": "arn:aws:ec2:ap-northeast-2:123456789012:instance/x",
        "create_launch_template": "arn:aws:ec2:ap-northeast-2:123456789012:launch-template/x",
        "delete_launch_template": "arn:aws:ec2:ap-northeast-2:123456789012:launch-template/x",
        "create_tags": "arn:aws:ec2:ap-northeast-2:123456789012:instance/x",
        "terminate_instances": "arn:aws:ec2:ap-northeast-2:123456789012:instance/x",
        "reboot_instances": "arn:aws:ec2:ap-northeast-2:123456789012:instance/x",
        "get_parameter": f"arn:aws:ssm:ap-northeast-2::parameter{arguments.get('Name')}",
        "create_instance_profile": f"{profile}{arguments.get('Path')}{arguments.get('InstanceProfileName')}",
        "get_instance_profile": f"{profile}/{arguments.get('InstanceProfileName')}",
        "describe_cluster": SITE.cluster_arn,
        "describe_access_entry": SITE.access_entries_arn.replace("*", "x"),
        "list_access_entries": SITE.cluster_arn,
    }
    default = SITE.queue_arn if service == "sqs" else "*"
    if operation.endswith("_instance_profile") and operation not in resources:
        default = f"{profile}/karpenter/{SITE.region}/{SITE.cluster}/uid/name"
    made_with = operation.startswith(("create_", "run_")) and operation != "create_tags"
    judged = context if made_with else context | owned  # type: ignore[operator]
    if not allowed(policies, action, resources.get(operation, default), judged):
        return f"{action} on {resources.get(operation, default)} is not allowed"
    return None


def test_rules_of_a_setting_are_granted_only_with_it() -> None:
    from dovetail.install.chart import Chart, Release, chart_directory

    chart, release = Chart(chart_directory()), Release(name="karpenter", namespace="karpenter")

    def rendered(**settings: Any) -> set[tuple[str, str, str]]:
        roles = [o for o in chart.objects(release, settings) if o["kind"] in ("ClusterRole", "Role")
                 and not o["metadata"]["name"].endswith("-admin")]  # fmt: skip
        return {
            (verb, group, resource)
            for role in roles for rule in role["rules"] for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"]
        }  # fmt: skip

    def table(*conditions: RuleCondition) -> set[tuple[str, str, str]]:
        rules = [rule for rule in RULES if rule.when in (RuleCondition.ALWAYS, *conditions)]
        return {(grant.verb, grant.group, grant.resource) for grant in grants(rules)}

    assert rendered() == table(RuleCondition.BIND)
    assert rendered(settings={"place": "off"}) == table()
    assert rendered(settings={"place": "nominate"}) == table(RuleCondition.NOMINATE)
    assert rendered(webhook={"enabled": True}) == table(RuleCondition.BIND, RuleCondition.WEBHOOK)
    gates = {"podDeletionCostManagement": True}
    assert rendered(settings={"featureGates": gates}) == table(RuleCondition.BIND, RuleCondition.DELETION_COST)
    assert ("create", "", "pods/binding") not in rendered(settings={"place": "off"})
    assert not any(resource == "secrets" for _, _, resource in rendered())


def test_secrets_and_leases_are_granted_by_name() -> None:
    named = [rule for rule in RULES if {"secrets", "leases"} & set(rule.resources) and rule.verbs != ("create",)]
    assert len(named) == 2
    assert {rule.scope for rule in named} == {Scope.NAMESPACE}
    assert [bool(rule.names) for rule in named] == [True, True]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"aws:RequestTag/kubernetes.io/cluster/demo": "shared"}, "another cluster's"),
        ({"aws:RequestTag/karpenter.sh/nodepool": None}, "of no NodePool"),
        ({"aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": None}, "of no EC2NodeClass"),
    ],
)
def test_a_launch_without_its_tags_is_refused(change: dict[str, str | None], why: str) -> None:
    policies = list(iam.controller_policies(SITE).values())
    context = {
        "aws:RequestTag/kubernetes.io/cluster/demo": "owned", "aws:RequestTag/eks:eks-cluster-name": "demo",
        "aws:RequestTag/karpenter.sh/nodepool": "default", "aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": "default",
    }  # fmt: skip
    instance = "arn:aws:ec2:ap-northeast-2:123456789012:instance/*"
    assert allowed(policies, "ec2:RunInstances", instance, context)
    less = {key: value for key, value in {**context, **change}.items() if value is not None}
    assert not allowed(policies, "ec2:RunInstances", instance, less), why


def test_nothing_of_another_cluster_or_role_is_within_reach() -> None:
    policies = list(iam.controller_policies(SITE).values())
    instance = "arn:aws:ec2:ap-northeast-2:123456789012:instance/i-1"
    theirs = {"aws:ResourceTag/kubernetes.io/cluster/other": "owned", f"aws:ResourceTag/{iam.NODEPOOL}": "x"}
    assert not allowed(policies, "ec2:TerminateInstances", instance, theirs)
    ours = {"aws:ResourceTag/kubernetes.io/cluster/demo": "owned", f"aws:ResourceTag/{iam.NODEPOOL}": "x"}
    assert allowed(policies, "ec2:TerminateInstances", instance, ours)
    service = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert allowed(policies, "iam:PassRole", SITE.role_arn(SITE.node_role), service)
    assert not allowed(policies, "iam:PassRole", SITE.role_arn("Admin"), service)
    assert not allowed(policies, "ec2:CreateTags", instance, {**ours, "aws:TagKeys": ["team"]})
    other = f"arn:aws:iam::{SITE.account}:instance-profile/other"
    assert not allowed(policies, "iam:DeleteInstanceProfile", other, ours)


def test_reboots_and_the_queue_are_granted_only_where_they_are_used() -> None:
    plain = iam.Site(cluster="demo", region="ap-northeast-2", account="123456789012")
    text = json.dumps(iam.controller_policy(plain))
    assert "RebootInstances" not in text
    assert "sqs:" not in text


def test_inline_policies_fit_into_a_role() -> None:
    """IAM counts 10,240 characters for all inline policies of a role, and 6,144 for a managed one."""
    long = iam.Site(cluster="c" * 100, region="ap-northeast-2", account="123456789012", queue="q" * 80, reboots=True)
    sizes = {name: len(json.dumps(policy, separators=(",", ":")))
             for name, policy in iam.controller_policies(long).items()}  # fmt: skip
    assert sum(sizes.values()) < 10_240, sizes
    assert max(sizes.values()) < 6_144, sizes


def test_names_of_roles_and_rules_fit_into_64_characters() -> None:
    long = iam.Site(cluster="c" * 100, region="ap-northeast-2", account="123456789012")
    other = iam.Site(cluster="c" * 99 + "d", region="ap-northeast-2", account="123456789012")
    names = [
        long.node_role,
        long.controller_role,
        *(iam.rule_name(long.cluster, event) for event in iam.EVENT_PATTERNS),
    ]
    assert max(map(len, names)) <= 64
    assert len(set(names)) == len(names)
    assert long.node_role != other.node_role


def test_cloudformation_names_no_account_and_is_accepted() -> None:
    template = iam_formats.cloudformation(SITE)
    text = json.dumps(template)
    assert SITE.account not in text
    assert len(template["Resources"]) == 15
    trust = template["Resources"]["NodeRole"]["Properties"]["AssumeRolePolicyDocument"]
    assert trust["Statement"][0]["Action"] == "sts:AssumeRole"


def test_terraform_has_every_resource_and_whole_documents() -> None:
    text = iam_formats.terraform(SITE)
    kinds = re.findall(r'^resource "(\w+)" "(\w+)" \{$', text, re.MULTILINE)
    assert len(kinds) == len(set(kinds)) == 24
    documents = re.findall(r"jsonencode\((\{.*?\n  \})\)", text, re.DOTALL)
    assert len(documents) == 13
    for document in documents:
        json.loads(document)
    assert "${data.aws_partition.current.partition}" in text


def test_cluster_autoscalers_policy_has_what_its_provider_calls_and_nothing_more() -> None:
    folder = ROOT / "src" / "dovetail" / "cloud" / "aws"
    text = "".join((folder / name).read_text() for name in NODE_GROUP_MODULES)
    made = re.findall(r'_calls(?:\.all|\.pages)?\(\s*"(autoscaling|ec2|eks)",\s*"([a-z_]+)"', text)
    assert len(made) > 8
    called = {actions({"service": service, "operation": operation})[0] for service, operation in made}
    policy = iam.cluster_autoscaler_policy(SITE)
    granted = {action for row in policy["Statement"] for action in row["Action"]}
    assert called == granted


def test_the_command_prints_each_part_and_format() -> None:
    base = ["--cluster", "demo", "--region", "ap-northeast-2", "--account", "123456789012"]
    printed = {}
    for part in ("controller", "controller-trust", "node-trust", "queue"):
        result = CliRunner().invoke(iam_command, [*base, "--part", part])
        assert result.exit_code == 0, result.output
        printed[part] = json.loads(result.output)
    assert printed["controller"] == iam.controller_policy(
        iam.Site(cluster="demo", region="ap-northeast-2", account="123456789012", queue="demo")
    )
    issuer = CliRunner().invoke(iam_command, [*base, "--part", "controller-trust", "--oidc-issuer", "https://oidc/x"])
    assert "oidc/x:sub" in issuer.output
    scaler = CliRunner().invoke(iam_command, [*base, "--for", "cluster-autoscaler"])
    assert "autoscaling:SetDesiredCapacity" in scaler.output
    for form in ("cloudformation", "terraform"):
        assert CliRunner().invoke(iam_command, ["--cluster", "demo", "--format", form]).exit_code == 0
