"""What AWS says of a cluster: EKS, network, roles, queue, rules and keys. Every call only reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, is_not_found, message_of
from dovetail.cloud.aws.subnets import filters
from dovetail.install.doctor.facts import Answer, Json, State, environment
from dovetail.kube import resources as kinds

#: A call that takes longer is given up, so that the whole command stays below 15 s.
ANSWER_TIMEOUT_S = 10.0
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
ABSENT_CODES = frozenset(
    (
        "404",
        "NoSuchEntity",
        "NotFoundException",
        "ResourceNotFoundException",
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
    )
)
PAGED = frozenset(("describe_subnets", "describe_security_groups"))
REFUSED_MARKS = ("AccessDenied", "Unauthorized", "NotAuthorized", "AuthFailure", "AuthorizationError")
#: What is asked, for `doctor --rbac`.
ACTIONS = (
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "eks:DescribeAccessEntry",
    "eks:DescribeCluster",
    "eks:DescribeNodegroup",
    "eks:ListClusters",
    "eks:ListNodegroups",
    "eks:ListPodIdentityAssociations",
    "events:ListRuleNamesByTarget",
    "events:DescribeRule",
    "iam:GetInstanceProfile",
    "iam:GetRole",
    "iam:ListAttachedRolePolicies",
    "iam:ListOpenIDConnectProviders",
    "iam:ListRolePolicies",
    "kms:DescribeKey",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
)

Answers = dict[str, Answer]


async def ask(calls: Calls, service: str, operation: str, right: str, field: str = "", **arguments: Any) -> Answer:
    """One answer, over all pages of a list. `field`: the part of it that is kept."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            if operation.startswith("list_") or operation in PAGED:
                return Answer(data=_plain(await calls.all(service, operation, field, **arguments)), right=right)
            said = await calls(service, operation, **arguments)
    except TimeoutError:
        return Answer(
            state=State.UNREACHABLE, right=right, message=f"{right}: no answer within {ANSWER_TIMEOUT_S:.0f} s"
        )
    except Exception as error:  # each failure of botocore is kept as what it means for the evidence
        return _without(error, right)
    kept = said.get(field) if field else {key: value for key, value in said.items() if key != "ResponseMetadata"}
    return Answer(data=_plain(kept), right=right)


def _without(error: Exception, right: str) -> Answer:
    code = code_of(error)
    if is_not_found(error) or code in ABSENT_CODES:
        return Answer(state=State.ABSENT, right=right)
    refused = any(mark in code for mark in REFUSED_MARKS)
    state = State.REFUSED if refused else State.UNREACHABLE
    return Answer(state=state, right=right, message=f"{code}: {message_of(error)}"[:400])


def _plain(value: Any) -> Any:
    """JSON can hold it: times become text."""
    return json.loads(json.dumps(value, default=str))


async def collect_account(
    calls: Calls, answers: Mapping[str, Answer], cluster: str, server: str
) -> tuple[str, Answers]:
    """The cluster's name, found by its endpoint where it is not given, and what AWS says of it."""
    name = cluster or await _cluster_at(calls, server)
    made: Answers = {}
    if name:
        made["eks:DescribeCluster"] = await ask(
            calls, "eks", "describe_cluster", "eks:DescribeCluster", "cluster", name=name
        )
    await asyncio.gather(
        _eks(calls, name, made),
        _node_classes(calls, _data(answers, kinds.EC2NODECLASSES.name), name, made),
        _controller(calls, answers, made),
    )
    return name, made


def _data(answers: Mapping[str, Answer], source: str) -> list[Json]:
    return list(answers[source].data or ()) if source in answers else []


async def _cluster_at(calls: Calls, server: str) -> str:
    listed = await ask(calls, "eks", "list_clusters", "eks:ListClusters", "clusters")
    for name in listed.data or ():
        described = await ask(calls, "eks", "describe_cluster", "eks:DescribeCluster", "cluster", name=name)
        if ((described.data or {}).get("endpoint") or "").rstrip("/") == server.rstrip("/"):
            return str(name)
    return ""


async def _eks(calls: Calls, cluster: str, made: Answers) -> None:
    made["iam:ListOpenIDConnectProviders"] = await ask(
        calls, "iam", "list_open_id_connect_providers", "iam:ListOpenIDConnectProviders", "OpenIDConnectProviderList"
    )
    if not cluster:
        return
    right = "eks:ListPodIdentityAssociations"
    made[right] = await ask(calls, "eks", "list_pod_identity_associations", right, "associations", clusterName=cluster)
    groups = await ask(calls, "eks", "list_nodegroups", "eks:ListNodegroups", "nodegroups", clusterName=cluster)
    described = []
    for name in groups.data or ():
        answer = await ask(
            calls,
            "eks",
            "describe_nodegroup",
            "eks:DescribeNodegroup",
            "nodegroup",
            clusterName=cluster,
            nodegroupName=name,
        )
        if answer.state is not State.READ:
            groups = answer
            break
        described.append(answer.data)
    made["node groups"] = Answer(data=described, right=groups.right) if groups.state is State.READ else groups


async def _node_classes(calls: Calls, classes: Iterable[Json], cluster: str, made: Answers) -> None:
    roles: set[str] = set()
    for node_class in classes:
        name, spec = node_class["metadata"]["name"], node_class.get("spec") or {}
        made[f"subnets of {name}"] = await _selected(
            calls, "describe_subnets", "Subnets", spec.get("subnetSelectorTerms"), "subnet-id"
        )
        made[f"security groups of {name}"] = await _selected(
            calls, "describe_security_groups", "SecurityGroups", spec.get("securityGroupSelectorTerms"), "group-id"
        )
        if spec.get("instanceProfile"):
            profile = await ask(
                calls,
                "iam",
                "get_instance_profile",
                "iam:GetInstanceProfile",
                "InstanceProfile",
                InstanceProfileName=spec["instanceProfile"],
            )
            made[f"instance profile {spec['instanceProfile']}"] = profile
            roles |= {role["RoleName"] for role in (profile.data or {}).get("Roles") or ()}
        elif spec.get("role") and ":" not in spec["role"]:
            roles.add(spec["role"])
        for mapping in spec.get("blockDeviceMappings") or ():
            key = (mapping.get("ebs") or {}).get("kmsKeyID")
            if key:
                made[f"key {key}"] = await ask(
                    calls, "kms", "describe_key", "kms:DescribeKey", "KeyMetadata", KeyId=key
                )
    for role in sorted(roles):
        await _role(calls, role, made)
        arn = (made[f"role {role}"].data or {}).get("Arn")
        if arn and cluster and "API" in _mode(made):
            made[f"access entry {role}"] = await ask(
                calls,
                "eks",
                "describe_access_entry",
                "eks:DescribeAccessEntry",
                "accessEntry",
                clusterName=cluster,
                principalArn=arn,
            )


def _mode(made: Answers) -> str:
    described = made.get("eks:DescribeCluster", Answer()).data or {}
    return str((described.get("accessConfig") or {}).get("authenticationMode") or "CONFIG_MAP")


async def _selected(calls: Calls, operation: str, field: str, terms: Any, ids: str) -> Answer:
    """All rows that any of the terms selects."""
    right = "ec2:DescribeSubnets" if field == "Subnets" else "ec2:DescribeSecurityGroups"
    names = "group-name" if field == "SecurityGroups" else None
    rows: dict[str, Any] = {}
    for term in terms or ():
        wanted = [{"Name": ids, "Values": [term["id"]]}] if term.get("id") else filters(term, names=names)
        if not wanted:
            continue
        answer = await ask(calls, "ec2", operation, right, field, Filters=wanted)
        if answer.state is not State.READ:
            return answer
        for row in answer.data or ():
            tags = {tag["Key"] for tag in row.get("Tags") or ()}
            if set(term.get("tags") or {}) <= tags:
                rows[row.get("SubnetId") or row["GroupId"]] = row
    return Answer(data=list(rows.values()), right=right)


async def _role(calls: Calls, role: str, made: Answers) -> None:
    made[f"role {role}"], made[f"policies of {role}"], made[f"inline policies of {role}"] = await asyncio.gather(
        ask(calls, "iam", "get_role", "iam:GetRole", "Role", RoleName=role),
        ask(
            calls,
            "iam",
            "list_attached_role_policies",
            "iam:ListAttachedRolePolicies",
            "AttachedPolicies",
            RoleName=role,
        ),
        ask(calls, "iam", "list_role_policies", "iam:ListRolePolicies", "PolicyNames", RoleName=role),
    )


async def _controller(calls: Calls, answers: Mapping[str, Answer], made: Answers) -> None:
    """The controller's role and queue, and the service-linked role for spot instances."""
    made[f"role {SPOT_ROLE}"] = await ask(calls, "iam", "get_role", "iam:GetRole", "Role", RoleName=SPOT_ROLE)
    for deployment in _data(answers, kinds.DEPLOYMENTS.name):
        labels = deployment["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/name") != "karpenter":
            continue
        await _queue(calls, environment(deployment).get("INTERRUPTION_QUEUE", ""), made)
        namespace = deployment["metadata"].get("namespace")
        account = deployment["spec"]["template"]["spec"].get("serviceAccountName")
        for item in _data(answers, kinds.SERVICEACCOUNTS.name):
            metadata = item["metadata"]
            arn = (metadata.get("annotations") or {}).get("eks.amazonaws.com/role-arn", "")
            if (metadata["name"], metadata.get("namespace")) == (account, namespace) and ":role/" in arn:
                await _role(calls, arn.rsplit("/", 1)[-1], made)


async def _queue(calls: Calls, queue: str, made: Answers) -> None:
    if not queue or ":" in queue:
        return
    url = await ask(calls, "sqs", "get_queue_url", "sqs:GetQueueUrl", "QueueUrl", QueueName=queue)
    made[f"queue {queue}"] = url
    if url.state is not State.READ:
        return
    right = "sqs:GetQueueAttributes"
    attributes = await ask(
        calls, "sqs", "get_queue_attributes", right, "Attributes", QueueUrl=url.data, AttributeNames=["All"]
    )
    made[f"queue {queue}"] = attributes
    arn = (attributes.data or {}).get("QueueArn")
    if not arn:
        return
    names = await ask(
        calls, "events", "list_rule_names_by_target", "events:ListRuleNamesByTarget", "RuleNames", TargetArn=arn
    )
    rules = []
    for name in names.data or ():
        rule = await ask(calls, "events", "describe_rule", "events:DescribeRule", Name=name)
        if rule.state is not State.READ:
            names = rule
            break
        rules.append(rule.data)
    made[f"rules of {queue}"] = Answer(data=rules, right=names.right) if names.state is State.READ else names
