"""What AWS says of a cluster: EKS, network, roles, queue, rules and keys. Every call only reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.subnets import filters
from dovetail.install.doctor import permissions
from dovetail.install.doctor.aws_call import ask
from dovetail.install.doctor.facts import Json, SourceAnswer, State, environment, images
from dovetail.install.iam import bounded_name
from dovetail.kube import resources as kinds
from dovetail.language import message, source

#: The notice that a spot instance is about to be reclaimed.
INTERRUPTION = "EC2 Spot Instance Interruption Warning"
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
CONTROLLER_LABEL = "app.kubernetes.io/name"
#: What is read of one object, as the keys of the answers name it, for readers of another language.
ANSWERS_OF_AN_OBJECT = (
    source("age of {name}"),
    source("inline policies of {name}"),
    source("log of {name}"),
    source("metrics of {name}"),
    source("policies of {name}"),
    source("policy of key {name}"),
    source("rules of {name}"),
    source("security groups of {name}"),
    source("subnets of {name}"),
)
#: How long the age of the oldest message is looked back at.
QUEUE_AGE_WINDOW = timedelta(minutes=10)
#: What is asked, for `doctor --rbac`.
ACTIONS = (
    "autoscaling:DescribeAutoScalingGroups",
    "cloudwatch:GetMetricStatistics",
    "ec2:DescribeNatGateways",
    "ec2:DescribeNetworkAcls",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcAttribute",
    "ec2:DescribeVpcEndpoints",
    "eks:DescribeAccessEntry",
    "eks:DescribeCluster",
    "eks:DescribeNodegroup",
    "eks:DescribePodIdentityAssociation",
    "eks:ListClusters",
    "eks:ListNodegroups",
    "eks:ListPodIdentityAssociations",
    "events:DescribeRule",
    "events:ListRuleNamesByTarget",
    "events:ListRules",
    "events:ListTargetsByRule",
    "iam:GetInstanceProfile",
    "iam:GetOpenIDConnectProvider",
    "iam:GetPolicy",
    "iam:GetPolicyVersion",
    "iam:GetRole",
    "iam:GetRolePolicy",
    "iam:ListAttachedRolePolicies",
    "iam:ListOpenIDConnectProviders",
    "iam:ListRolePolicies",
    "iam:SimulatePrincipalPolicy",
    "kms:DescribeKey",
    "kms:GetKeyPolicy",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ListQueues",
)

Answers = dict[str, SourceAnswer]


async def collect_account(
    calls: Calls,
    answers: Mapping[str, SourceAnswer],
    cluster: str,
    server: str,
    now: datetime,
    progress: Callable[[str], None] = lambda step: None,
) -> tuple[str, Answers]:
    """The cluster's name, found by its endpoint where it is not given or EKS has none of it, and what AWS says."""
    progress("EKS")
    made: Answers = {}
    name, described = cluster, await _cluster(calls, cluster)
    if described is None or described.state is State.ABSENT:
        name = await _cluster_at(calls, server) or cluster
        described = await _cluster(calls, name) if name != cluster else described
    if described is not None:
        made["eks:DescribeCluster"] = described
    classes = _data(answers, kinds.EC2NODECLASSES.name)
    progress(message("the account's network, roles, keys and queue"))
    await asyncio.gather(
        _eks(calls, name, made),
        _network(calls, made),
        _node_classes(calls, classes, name, made),
        _keys(calls, classes, _data(answers, kinds.STORAGECLASSES.name), made),
        _controller(calls, answers, now, made),
        _scaling_groups(calls, answers, made),
        _cni_role(calls, answers, made),
    )
    progress(message("the controller's permissions"))
    await _permissions(calls, answers, name, made)
    return name, made


def _data(answers: Mapping[str, SourceAnswer], source: str) -> list[Json]:
    return list(answers[source].data or ()) if source in answers else []


async def _cluster(calls: Calls, name: str) -> SourceAnswer | None:
    return await ask(calls, "eks", "describe_cluster", "eks:DescribeCluster", "cluster", name=name) if name else None


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
    await _audiences(calls, made)
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
    made["node groups"] = SourceAnswer(data=described, right=groups.right) if groups.state is State.READ else groups


def oidc_issuer(cluster: Json) -> str:
    """The cluster's OIDC issuer without its scheme; empty where EKS states none."""
    return str(((cluster.get("identity") or {}).get("oidc") or {}).get("issuer") or "").removeprefix("https://")


async def _audiences(calls: Calls, made: Answers) -> None:
    """The identity provider of the cluster's issuer, where it is registered."""
    issuer = oidc_issuer(made.get("eks:DescribeCluster", SourceAnswer()).data or {})
    for row in made["iam:ListOpenIDConnectProviders"].data or ():
        if issuer and row["Arn"].endswith(f":oidc-provider/{issuer}"):
            made["identity provider"] = await ask(
                calls, "iam", "get_open_id_connect_provider", "iam:GetOpenIDConnectProvider",
                OpenIDConnectProviderArn=row["Arn"],
            )  # fmt: skip


async def _network(calls: Calls, made: Answers) -> None:
    """Routes and endpoints of the cluster's VPC, its subnets and the control plane's security groups."""
    network = (made.get("eks:DescribeCluster", SourceAnswer()).data or {}).get("resourcesVpcConfig") or {}
    if not network.get("vpcId"):
        return
    in_vpc = [{"Name": "vpc-id", "Values": [network["vpcId"]]}]
    groups = [network.get("clusterSecurityGroupId"), *(network.get("securityGroupIds") or ())]
    if network.get("endpointPrivateAccess") is False and network.get("publicAccessCidrs") not in (None, ["0.0.0.0/0"]):
        made["NAT gateways"] = await ask(
            calls, "ec2", "describe_nat_gateways", "ec2:DescribeNatGateways", "NatGateways", Filter=in_vpc
        )
    subnets, named = network.get("subnetIds") or [], sorted({group for group in groups if group})
    (
        made["route tables"],
        made["network ACLs"],
        made["VPC DNS"],
        made["VPC endpoints"],
        made["cluster subnets"],
        made["control plane groups"],
    ) = await asyncio.gather(
        ask(calls, "ec2", "describe_route_tables", "ec2:DescribeRouteTables", "RouteTables", Filters=in_vpc),
        ask(calls, "ec2", "describe_network_acls", "ec2:DescribeNetworkAcls", "NetworkAcls", Filters=in_vpc),
        _dns(calls, network["vpcId"]),
        ask(calls, "ec2", "describe_vpc_endpoints", "ec2:DescribeVpcEndpoints", "VpcEndpoints", Filters=in_vpc),
        _by_id(calls, "describe_subnets", "Subnets", "subnet-id", subnets),
        _by_id(calls, "describe_security_groups", "SecurityGroups", "group-id", named),
    )


async def _dns(calls: Calls, vpc: str) -> SourceAnswer:
    """Whether the VPC resolves names, and whether its instances have some."""
    right, held = "ec2:DescribeVpcAttribute", {}
    for attribute in ("enableDnsSupport", "enableDnsHostnames"):
        field = attribute[0].upper() + attribute[1:]
        answer = await ask(
            calls, "ec2", "describe_vpc_attribute", right, field, VpcId=vpc, Attribute=attribute
        )  # fmt: skip
        if answer.state is not State.READ:
            return answer
        held[attribute] = (answer.data or {}).get("Value")
    return SourceAnswer(data=held, right=right)


async def _by_id(calls: Calls, operation: str, field: str, key: str, ids: list[str]) -> SourceAnswer:
    right = f"ec2:Describe{field}"
    if not ids:
        return SourceAnswer(data=[], right=right)
    return await ask(calls, "ec2", operation, right, field, Filters=[{"Name": key, "Values": ids}])


async def _node_classes(calls: Calls, classes: Iterable[Json], cluster: str, made: Answers) -> None:
    selected = [_select(calls, node_class, made) for node_class in classes]
    roles = sorted(set().union(*await asyncio.gather(*selected)))
    await asyncio.gather(*(_node_role(calls, role, cluster, made) for role in roles))
    usual = usual_node_role(cluster)
    if usual not in roles and any(made[f"role {role}"].state is State.ABSENT for role in roles):
        made[f"role {usual}"] = await ask(calls, "iam", "get_role", "iam:GetRole", "Role", RoleName=usual)


def usual_node_role(cluster: str) -> str:
    """The name that an installation gives to the node role."""
    return bounded_name(f"KarpenterNodeRole-{cluster}")


async def _select(calls: Calls, node_class: Json, made: Answers) -> set[str]:
    """Subnets, groups and profile of an EC2NodeClass; returns the names of its roles."""
    name, spec = node_class["metadata"]["name"], node_class.get("spec") or {}
    made[f"subnets of {name}"], made[f"security groups of {name}"] = await asyncio.gather(
        _selected(calls, "describe_subnets", "Subnets", spec.get("subnetSelectorTerms"), "subnet-id"),
        _selected(
            calls, "describe_security_groups", "SecurityGroups", spec.get("securityGroupSelectorTerms"), "group-id"
        ),
    )
    if not spec.get("instanceProfile"):
        return {spec["role"]} if spec.get("role") and ":" not in spec["role"] else set()
    profile = await ask(
        calls,
        "iam",
        "get_instance_profile",
        "iam:GetInstanceProfile",
        "InstanceProfile",
        InstanceProfileName=spec["instanceProfile"],
    )
    made[f"instance profile {spec['instanceProfile']}"] = profile
    return {role["RoleName"] for role in (profile.data or {}).get("Roles") or ()}


async def _node_role(calls: Calls, role: str, cluster: str, made: Answers) -> None:
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
    if arn:
        made[f"denied to {role}"] = await permissions.simulate(calls, arn, permissions.node_trials())


def _mode(made: Answers) -> str:
    described = made.get("eks:DescribeCluster", SourceAnswer()).data or {}
    return str((described.get("accessConfig") or {}).get("authenticationMode") or "CONFIG_MAP")


async def _selected(calls: Calls, operation: str, field: str, terms: Any, ids: str) -> SourceAnswer:
    """All rows that any of the terms selects."""
    right = f"ec2:Describe{field}"
    names = "group-name" if field == "SecurityGroups" else None
    rows: dict[str, Any] = {}
    for term in terms or ():
        term_filters = [{"Name": ids, "Values": [term["id"]]}] if term.get("id") else filters(term, names=names)
        if not term_filters:
            continue
        answer = await ask(calls, "ec2", operation, right, field, Filters=term_filters)
        if answer.state is not State.READ:
            return answer
        for row in answer.data or ():
            tags = {tag["Key"] for tag in row.get("Tags") or ()}
            if set(term.get("tags") or {}) <= tags:
                rows[row.get("SubnetId") or row["GroupId"]] = row
    return SourceAnswer(data=list(rows.values()), right=right)


def volume_keys(classes: Iterable[Json], storage_classes: Iterable[Json]) -> list[str]:
    """Keys that EC2NodeClasses and StorageClasses name."""
    keys = {
        str((mapping.get("ebs") or {}).get("kmsKeyID") or "")
        for node_class in classes
        for mapping in (node_class.get("spec") or {}).get("blockDeviceMappings") or ()
    }
    keys |= {str((row.get("parameters") or {}).get("kmsKeyId") or "") for row in storage_classes}
    return sorted(keys - {""})


async def _keys(calls: Calls, classes: list[Json], storage_classes: list[Json], made: Answers) -> None:
    await asyncio.gather(*(_key(calls, key, made) for key in volume_keys(classes, storage_classes)))


async def _key(calls: Calls, key: str, made: Answers) -> None:
    described = await ask(calls, "kms", "describe_key", "kms:DescribeKey", "KeyMetadata", KeyId=key)
    made[f"key {key}"] = described
    if (described.data or {}).get("KeyId"):
        made[f"policy of key {key}"] = await ask(
            calls, "kms", "get_key_policy", "kms:GetKeyPolicy", "Policy", KeyId=described.data["KeyId"],
            PolicyName="default",
        )  # fmt: skip


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


def _controllers(answers: Mapping[str, SourceAnswer]) -> list[Json]:
    """Deployments of Karpenter's and ours; the one that runs comes last."""
    rows = [
        deployment
        for deployment in _data(answers, kinds.DEPLOYMENTS.name)
        if (deployment["metadata"].get("labels") or {}).get(CONTROLLER_LABEL) in ("karpenter", "dovetail")
    ]
    return sorted(rows, key=lambda deployment: bool(deployment["spec"].get("replicas", 1)))


async def _controller(calls: Calls, answers: Mapping[str, SourceAnswer], now: datetime, made: Answers) -> None:
    """The controller's role and queue, and the service-linked role for spot instances."""
    made[f"role {SPOT_ROLE}"] = await ask(calls, "iam", "get_role", "iam:GetRole", "Role", RoleName=SPOT_ROLE)
    for deployment in _controllers(answers):
        await _queue(calls, environment(deployment).get("INTERRUPTION_QUEUE", ""), now, made)
        arn = role_of_account(answers, deployment)
        if arn:
            await _role(calls, arn.rsplit("/", 1)[-1], made)


async def _cni_role(calls: Calls, answers: Mapping[str, SourceAnswer], made: Answers) -> None:
    """The role that the Amazon VPC CNI has of its own, if it has one."""
    for workload in _data(answers, kinds.DAEMONSETS.name):
        if (workload["metadata"]["name"], workload["metadata"].get("namespace")) == ("aws-node", "kube-system"):
            arn = role_of_account(answers, workload)
            if arn:
                await _role(calls, arn.rsplit("/", 1)[-1], made)


def role_of_account(answers: Mapping[str, SourceAnswer], workload: Json) -> str:
    """The role that the service account of a workload is annotated with; empty if there is none."""
    namespace = workload["metadata"].get("namespace")
    account = workload["spec"]["template"]["spec"].get("serviceAccountName")
    for item in _data(answers, kinds.SERVICEACCOUNTS.name):
        metadata = item["metadata"]
        arn = str((metadata.get("annotations") or {}).get(ROLE_ANNOTATION, ""))
        if (metadata["name"], metadata.get("namespace")) == (account, namespace) and ":role/" in arn:
            return arn
    return ""


async def _queue(calls: Calls, queue: str, now: datetime, made: Answers) -> None:
    if not queue or ":" in queue:
        return
    url = await ask(calls, "sqs", "get_queue_url", "sqs:GetQueueUrl", "QueueUrl", QueueName=queue)
    made[f"queue {queue}"] = url
    if url.state is State.ABSENT:
        made["queues"] = await _queues(calls)
    if url.state is not State.READ:
        return
    right = "sqs:GetQueueAttributes"
    attributes = await ask(
        calls, "sqs", "get_queue_attributes", right, "Attributes", QueueUrl=url.data, AttributeNames=["All"]
    )
    made[f"queue {queue}"] = attributes
    if attributes.state is not State.READ:
        return
    attributes.data["QueueUrl"] = url.data
    if attributes.data.get("KmsMasterKeyId"):
        await _key(calls, attributes.data["KmsMasterKeyId"], made)
    made[f"age of {queue}"] = await _queue_age(calls, queue, now)
    arn = attributes.data.get("QueueArn")
    if arn:
        made[f"rules of {queue}"] = await _rules(calls, arn)


async def _queues(calls: Calls) -> SourceAnswer:
    """The account's queues by name, and whether a rule for interruptions sends to them."""
    listed = await ask(calls, "sqs", "list_queues", "sqs:ListQueues", "QueueUrls")
    if listed.state is not State.READ:
        return listed
    fed: set[str] = set()
    rules = await ask(calls, "events", "list_rules", "events:ListRules", "Rules")
    for rule in rules.data or ():
        if INTERRUPTION in str(rule.get("EventPattern")):
            targets = await ask(
                calls, "events", "list_targets_by_rule", "events:ListTargetsByRule", "Targets", Rule=rule["Name"]
            )
            fed |= {str(target["Arn"]).rsplit(":", 1)[-1] for target in targets.data or ()}
    names = sorted({str(url).rsplit("/", 1)[-1] for url in listed.data or ()})
    return SourceAnswer(data=[{"name": name, "fed": name in fed} for name in names], right=listed.right)


async def _queue_age(calls: Calls, queue: str, now: datetime) -> SourceAnswer:
    """Seconds that the oldest message has waited, by CloudWatch; None where it states none."""
    answer = await ask(
        calls,
        "cloudwatch",
        "get_metric_statistics",
        "cloudwatch:GetMetricStatistics",
        "Datapoints",
        Namespace="AWS/SQS",
        MetricName="ApproximateAgeOfOldestMessage",
        Dimensions=[{"Name": "QueueName", "Value": queue}],
        StartTime=now - QUEUE_AGE_WINDOW,
        EndTime=now,
        Period=60,
        Statistics=["Maximum"],
    )
    rows = sorted(answer.data or (), key=lambda row: str(row.get("Timestamp")))
    if answer.state is not State.READ:
        return answer
    return SourceAnswer(data=rows[-1]["Maximum"] if rows else None, right=answer.right)


async def _rules(calls: Calls, queue_arn: str) -> SourceAnswer:
    names = await ask(
        calls, "events", "list_rule_names_by_target", "events:ListRuleNamesByTarget", "RuleNames", TargetArn=queue_arn
    )
    if names.state is not State.READ:
        return names
    rules = []
    for name in names.data or ():
        rule = await ask(calls, "events", "describe_rule", "events:DescribeRule", Name=name)
        if rule.state is not State.READ:
            return rule
        rules.append(rule.data)
    return SourceAnswer(data=rules, right=names.right)


async def _scaling_groups(calls: Calls, answers: Mapping[str, SourceAnswer], made: Answers) -> None:
    """Only where a Cluster Autoscaler runs."""
    autoscalers = [row for row in _data(answers, kinds.DEPLOYMENTS.name) if is_cluster_autoscaler(row)]
    if not autoscalers:
        return
    right = "autoscaling:DescribeAutoScalingGroups"
    made["scaling groups"] = await ask(calls, "autoscaling", "describe_auto_scaling_groups", right, "AutoScalingGroups")
    for deployment in autoscalers:
        arn = role_of_account(answers, deployment)
        if arn:
            await _role(calls, arn.rsplit("/", 1)[-1], made)


def is_cluster_autoscaler(deployment: Json) -> bool:
    """Whether it scales node groups: the original, or ours."""
    return bool(deployment.get("flags")) or any("/cluster-autoscaler:" in image for image in images(deployment))


async def _permissions(calls: Calls, answers: Mapping[str, SourceAnswer], cluster: str, made: Answers) -> None:
    """What the controller's role is denied, if its role is known."""
    deployment = next(iter(reversed(_controllers(answers))), None)
    if deployment is None or not cluster:
        return
    arn = role_of_account(answers, deployment) or await _associated_role(calls, deployment, cluster, made)
    described = made.get(f"role {arn.rsplit('/', 1)[-1]}", SourceAnswer(state=State.ABSENT))
    if not arn or described.data is None:
        return
    classes, pools = _data(answers, kinds.EC2NODECLASSES.name), _data(answers, kinds.NODEPOOLS.name)
    specs = [node_class.get("spec") or {} for node_class in classes]
    queue = environment(deployment).get("INTERRUPTION_QUEUE", "")
    roles = {str(spec["role"]) for spec in specs if spec.get("role")}
    roles |= {
        role["RoleName"]
        for spec in specs
        for role in (made.get(f"instance profile {spec.get('instanceProfile')}", SourceAnswer()).data or {}).get(
            "Roles", ()
        )
    }
    keys = [made[f"key {key}"].data for key in volume_keys(classes, ()) if made[f"key {key}"].data]
    role = permissions.ControllerRole(
        arn=described.data["Arn"],
        cluster=cluster,
        region=calls.region,
        queue_arn=(made.get(f"queue {queue}", SourceAnswer()).data or {}).get("QueueArn", ""),
        node_roles=sorted(
            made[f"role {name}"].data["Arn"] for name in roles if made.get(f"role {name}", SourceAnswer()).data
        ),
        makes_profiles=any(spec.get("role") for spec in specs),
        reads_aliases=any(term.get("alias") for spec in specs for term in spec.get("amiSelectorTerms") or ()),
        keys=sorted(key["Arn"] for key in keys if key.get("KeyManager") != "AWS" and key.get("Arn")),
        names_provisioners=all(_is_derived(node_class) for node_class in classes),
        spot="spot" in str([pool["spec"]["template"]["spec"].get("requirements") for pool in pools]),
        dovetail=any("dovetail" in image for image in images(deployment)),
    )
    made["denied to the controller"] = await permissions.simulate(calls, role.arn, permissions.permission_checks(role))


def _is_derived(node_class: Json) -> bool:
    """Whether it stands for an AWSNodeTemplate."""
    owners = (node_class.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") == "AWSNodeTemplate" for owner in owners)


async def _associated_role(calls: Calls, deployment: Json, cluster: str, made: Answers) -> str:
    """The role of the Pod Identity association of the controller; it is described on the way."""
    account = (
        deployment["metadata"].get("namespace"),
        deployment["spec"]["template"]["spec"].get("serviceAccountName"),
    )
    for row in made.get("eks:ListPodIdentityAssociations", SourceAnswer()).data or ():
        if (row.get("namespace"), row.get("serviceAccount")) != account:
            continue
        answer = await ask(
            calls,
            "eks",
            "describe_pod_identity_association",
            "eks:DescribePodIdentityAssociation",
            "association",
            clusterName=cluster,
            associationId=row["associationId"],
        )
        made["controller association"] = answer
        arn = str((answer.data or {}).get("roleArn") or "")
        if arn:
            await _role(calls, arn.rsplit("/", 1)[-1], made)
        return arn
    return ""
