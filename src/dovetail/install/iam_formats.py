"""The same IAM, queue and rules for other tools: a CloudFormation template, and Terraform.

Account, region and partition are left to the tool that applies them, so that one file serves every account.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from dovetail.install.iam import (
    EVENT_PATTERNS,
    OWNER_TAG,
    QUEUE_RETENTION_S,
    Json,
    Site,
    cluster_autoscaler_policy,
    controller_policies,
    controller_trust,
    node_policy_arns,
    node_trust,
    queue_policy,
    rule_name,
)

_CLOUDFORMATION = {"region": "${AWS::Region}", "account": "${AWS::AccountId}", "partition": "${AWS::Partition}"}
_TERRAFORM = {
    "region": "${data.aws_region.current.name}",
    "account": "${data.aws_caller_identity.current.account_id}",
    "partition": "${data.aws_partition.current.partition}",
}


def cloudformation(site: Site) -> Json:
    """A template without parameters: the cluster's name stands in condition keys, where none can be put."""
    site = msgspec.structs.replace(site, **_CLOUDFORMATION)
    resources: Json = {}
    arns = []
    for name, policy in controller_policies(site).items():
        resources[f"Controller{name}Policy"] = {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "ManagedPolicyName": f"KarpenterController{name}-{site.cluster}",
                "PolicyDocument": _substituted(policy),
            },
        }
        arns.append({"Ref": f"Controller{name}Policy"})
    resources["NodeRole"] = _role(site, site.node_role, node_trust(site), _substituted(node_policy_arns(site)))
    resources["NodeInstanceProfile"] = {
        "Type": "AWS::IAM::InstanceProfile",
        "Properties": {"InstanceProfileName": site.instance_profile, "Roles": [{"Ref": "NodeRole"}]},
    }
    resources["ControllerRole"] = _role(site, site.controller_role, controller_trust(site), arns)
    if site.queue:
        resources["InterruptionQueue"] = {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "QueueName": site.queue,
                "MessageRetentionPeriod": QUEUE_RETENTION_S,
                "SqsManagedSseEnabled": True,
                "Tags": _tags(site),
            },
        }
        resources["InterruptionQueuePolicy"] = {
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {
                "Queues": [{"Ref": "InterruptionQueue"}],
                "PolicyDocument": _substituted(queue_policy(site)),
            },
        }
        for event, pattern in EVENT_PATTERNS.items():
            target = {"Id": "InterruptionQueue", "Arn": {"Fn::GetAtt": ["InterruptionQueue", "Arn"]}}
            resources[f"{event}Rule"] = {
                "Type": "AWS::Events::Rule",
                "Properties": {"Name": rule_name(site.cluster, event), "EventPattern": pattern, "Targets": [target]},
            }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"IAM, queue and rules of Dovetail in the cluster {site.cluster}",
        "Resources": resources,
    }


def cluster_autoscaler_cloudformation(site: Site) -> Json:
    site = msgspec.structs.replace(site, **_CLOUDFORMATION)
    policy = {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "ManagedPolicyName": f"ClusterAutoscaler-{site.cluster}",
            "PolicyDocument": _substituted(cluster_autoscaler_policy(site)),
        },
    }
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": {"ClusterAutoscalerPolicy": policy}}


def _role(site: Site, name: str, trust: Json, policies: Any) -> Json:
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": name,
            "AssumeRolePolicyDocument": _substituted(trust),
            "ManagedPolicyArns": policies,
            "Tags": _tags(site),
        },
    }


def _tags(site: Site) -> list[dict[str, str]]:
    return [{"Key": OWNER_TAG, "Value": site.cluster}]


def _substituted(value: Any) -> Any:
    """`Fn::Sub` around every text that names the account, the region or the partition."""
    if isinstance(value, dict):
        return {key: _substituted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_substituted(item) for item in value]
    return {"Fn::Sub": value} if isinstance(value, str) and "${" in value else value


def terraform(site: Site) -> str:
    """HCL. JSON documents are expressions of HCL as they stand."""
    site = msgspec.structs.replace(site, **_TERRAFORM)
    blocks = [_data("aws_region"), _data("aws_caller_identity"), _data("aws_partition")]
    blocks += [
        _block(
            "aws_iam_role",
            "node",
            name=site.node_role,
            assume_role_policy=_Json(node_trust(site)),
            tags={OWNER_TAG: site.cluster},
        ),
        _block("aws_iam_instance_profile", "node", name=site.instance_profile, role=_Name("aws_iam_role.node.name")),
        _block(
            "aws_iam_role",
            "controller",
            name=site.controller_role,
            assume_role_policy=_Json(controller_trust(site)),
            tags={OWNER_TAG: site.cluster},
        ),
    ]
    for arn in node_policy_arns(site):
        blocks.append(
            _block(
                "aws_iam_role_policy_attachment",
                "node_" + _snake(arn.rsplit("/", 1)[-1]),
                role=_Name("aws_iam_role.node.name"),
                policy_arn=arn,
            )
        )
    for name, policy in controller_policies(site).items():
        blocks.append(
            _block(
                "aws_iam_role_policy",
                "controller_" + _snake(name),
                name=f"Karpenter{name}",
                role=_Name("aws_iam_role.controller.id"),
                policy=_Json(policy),
            )
        )
    if site.queue:
        blocks += _terraform_queue(site)
    return "\n".join(blocks)


def _terraform_queue(site: Site) -> list[str]:
    """The queue of interruption notices, its policy, and the rules that fill it."""
    blocks = []
    blocks.append(
        _block(
            "aws_sqs_queue",
            "interruption",
            name=site.queue,
            tags={OWNER_TAG: site.cluster},
            message_retention_seconds=QUEUE_RETENTION_S,
            sqs_managed_sse_enabled=True,
        )
    )
    blocks.append(
        _block(
            "aws_sqs_queue_policy",
            "interruption",
            queue_url=_Name("aws_sqs_queue.interruption.url"),
            policy=_Json(queue_policy(site)),
        )
    )
    for event, pattern in EVENT_PATTERNS.items():
        name = _snake(event)
        blocks.append(
            _block(
                "aws_cloudwatch_event_rule",
                name,
                name=rule_name(site.cluster, event),
                event_pattern=_Json(pattern),
                tags={OWNER_TAG: site.cluster},
            )
        )
        blocks.append(
            _block(
                "aws_cloudwatch_event_target",
                name,
                arn=_Name("aws_sqs_queue.interruption.arn"),
                rule=_Name(f"aws_cloudwatch_event_rule.{name}.name"),
            )
        )
    return blocks


def cluster_autoscaler_terraform(site: Site) -> str:
    site = msgspec.structs.replace(site, **_TERRAFORM)
    policy = _block(
        "aws_iam_policy",
        "cluster_autoscaler",
        name=f"ClusterAutoscaler-{site.cluster}",
        policy=_Json(cluster_autoscaler_policy(site)),
    )
    return "\n".join([_data("aws_region"), _data("aws_caller_identity"), _data("aws_partition"), policy])


class _Json(msgspec.Struct, frozen=True):
    value: Any


class _Name(msgspec.Struct, frozen=True):
    """A reference to another resource."""

    name: str


def _data(kind: str) -> str:
    return f'data "{kind}" "current" {{}}\n'


def _block(kind: str, label: str, **arguments: Any) -> str:
    width = max(map(len, arguments))
    lines = [f"  {name:<{width}} = {_expression(value)}" for name, value in arguments.items()]
    return "\n".join([f'resource "{kind}" "{label}" {{', *lines, "}"]) + "\n"


def _expression(value: Any) -> str:
    if isinstance(value, _Name):
        return value.name
    if isinstance(value, _Json):
        text = json.dumps(value.value, indent=2).replace("\n", "\n  ")
        return f"jsonencode({text})"
    return json.dumps(value)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
