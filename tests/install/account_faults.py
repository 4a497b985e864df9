"""Faults of the account, made with aws alone: roles, access entries, the network, the queue and keys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dovetail.kube import resources as kinds
from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import ACCOUNT
from tests.install.install_site import CLUSTER, REGION, Site
from tests.install.reversible_changes import Break, at_aws, edited, put

NODE_ROLE, CONTROLLER_ROLE = f"KarpenterNodeRole-{CLUSTER}", f"KarpenterControllerRole-{CLUSTER}"
NODE_ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/{NODE_ROLE}"
QUEUE_ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}"


def statement(effect: str, *actions: str, **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": list(actions), "Resource": "*", **more}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def role_policy(policy: str) -> Break:
    """A further inline policy of the controller's role; several have names of their own."""

    def act(site: Site) -> str:
        iam = client(site.endpoint, "iam")
        names = iam.list_role_policies(RoleName=CONTROLLER_ROLE)["PolicyNames"]
        name = "further" if "further" not in names else f"further-{len(names)}"
        iam.put_role_policy(RoleName=CONTROLLER_ROLE, PolicyName=name, PolicyDocument=policy)
        return name

    return at_aws(
        act,
        lambda site, name: client(site.endpoint, "iam").delete_role_policy(RoleName=CONTROLLER_ROLE, PolicyName=name),
    )


def trust(role: str, change: Callable[[str], str]) -> Break:
    def act(site: Site) -> str:
        iam = client(site.endpoint, "iam")
        before = json.dumps(iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"])
        iam.update_assume_role_policy(RoleName=role, PolicyDocument=change(before))
        return before

    return at_aws(
        act,
        lambda site, before: client(site.endpoint, "iam").update_assume_role_policy(
            RoleName=role, PolicyDocument=before
        ),
    )


def queue_attributes(**attributes: str) -> Break:
    def act(site: Site) -> dict[str, str]:
        sqs = client(site.endpoint, "sqs")
        url = sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"]
        before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes=attributes)
        return {name: before.get(name, "") for name in attributes}

    def undo(site: Site, before: dict[str, str]) -> None:
        sqs = client(site.endpoint, "sqs")
        sqs.set_queue_attributes(QueueUrl=sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"], Attributes=before)

    return at_aws(act, undo)


# Access entries and roles


def replace_entry(site: Site, kind: str | None) -> None:
    eks = client(site.endpoint, "eks")
    eks.delete_access_entry(clusterName=CLUSTER, principalArn=NODE_ROLE_ARN)
    if kind:
        eks.create_access_entry(clusterName=CLUSTER, principalArn=NODE_ROLE_ARN, type=kind)


def restore_entry(site: Site, _: Any) -> None:
    site.endpoint.front.entries[CLUSTER].pop(NODE_ROLE_ARN, None)
    client(site.endpoint, "eks").create_access_entry(
        clusterName=CLUSTER, principalArn=NODE_ROLE_ARN, type="EC2_LINUX", tags={"dovetail.sh/installed-by": CLUSTER}
    )


def authentication(mode: str) -> Break:
    def act(site: Site) -> dict[str, Any]:
        cluster = site.endpoint.backend("eks").clusters[CLUSTER]
        before: dict[str, Any] = cluster.access_config
        cluster.access_config = {"authenticationMode": mode}
        return before

    def undo(site: Site, before: dict[str, Any]) -> None:
        site.endpoint.backend("eks").clusters[CLUSTER].access_config = before

    return at_aws(act, undo)


def detached(policy: str) -> Break:
    def act(site: Site) -> str:
        iam = client(site.endpoint, "iam")
        rows = iam.list_attached_role_policies(RoleName=NODE_ROLE)["AttachedPolicies"]
        arn: str = next(row["PolicyArn"] for row in rows if policy in row["PolicyName"])
        iam.detach_role_policy(RoleName=NODE_ROLE, PolicyArn=arn)
        return arn

    return at_aws(
        act,
        lambda site, arn: client(site.endpoint, "iam").attach_role_policy(RoleName=NODE_ROLE, PolicyArn=arn),
    )


def without_inline_policy(name: str) -> Break:
    def act(site: Site) -> tuple[str, str]:
        iam = client(site.endpoint, "iam")
        names = iam.list_role_policies(RoleName=CONTROLLER_ROLE)["PolicyNames"]
        policy = next(row for row in names if name in row)
        text = json.dumps(iam.get_role_policy(RoleName=CONTROLLER_ROLE, PolicyName=policy)["PolicyDocument"])
        iam.delete_role_policy(RoleName=CONTROLLER_ROLE, PolicyName=policy)
        return policy, text

    return at_aws(
        act,
        lambda site, kept: client(site.endpoint, "iam").put_role_policy(
            RoleName=CONTROLLER_ROLE, PolicyName=kept[0], PolicyDocument=kept[1]
        ),
    )


def delete_provider(site: Site) -> dict[str, Any]:
    iam = client(site.endpoint, "iam")
    arn = iam.list_open_id_connect_providers()["OpenIDConnectProviderList"][0]["Arn"]
    before = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    return {"Url": f"https://{before['Url'].removeprefix('https://')}", "ClientIDList": before["ClientIDList"],
            "Tags": before.get("Tags", [])}  # fmt: skip


def delete_spot_role(site: Site) -> None:
    client(site.endpoint, "iam").delete_role(RoleName="AWSServiceRoleForEC2Spot")


def create_spot_role(site: Site, _: Any) -> None:
    client(site.endpoint, "iam").create_service_linked_role(AWSServiceName="spot.amazonaws.com")


# The network


def _vpc(site: Site) -> str:
    vpc: str = site.endpoint.backend("eks").clusters[CLUSTER].resources_vpc_config["vpcId"]
    return vpc


def _tagged(resource: str) -> list[dict[str, Any]]:
    return [{"ResourceType": resource, "Tags": [{"Key": "scenario", "Value": "yes"}]}]


def small_subnet(site: Site) -> str:
    ec2 = client(site.endpoint, "ec2")
    made = ec2.create_subnet(
        VpcId=_vpc(site), CidrBlock="10.0.240.0/28", AvailabilityZone=f"{REGION}a", TagSpecifications=_tagged("subnet")
    )
    subnet: str = made["Subnet"]["SubnetId"]
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    return subnet


def foreign_subnet(site: Site) -> tuple[str, str]:
    ec2 = client(site.endpoint, "ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/20", TagSpecifications=_tagged("subnet"))
    return made["Subnet"]["SubnetId"], vpc


def delete_subnet(site: Site, subnet: str) -> None:
    client(site.endpoint, "ec2").delete_subnet(SubnetId=subnet)


def delete_foreign(site: Site, kept: tuple[str, str]) -> None:
    delete_subnet(site, kept[0])
    client(site.endpoint, "ec2").delete_vpc(VpcId=kept[1])


def second_group(site: Site) -> str:
    ec2 = client(site.endpoint, "ec2")
    tags = [
        {"Key": "karpenter.sh/discovery", "Value": CLUSTER},
        {"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": ""},
    ]
    group: str = ec2.create_security_group(
        GroupName="second",
        Description="second",
        VpcId=_vpc(site),
        TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
    )["GroupId"]
    return group


def _close(site: Site) -> tuple[str, str]:
    ec2 = client(site.endpoint, "ec2")
    for table in ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [_vpc(site)]}])["RouteTables"]:
        for route in table["Routes"]:
            if route.get("DestinationCidrBlock") == "0.0.0.0/0":
                ec2.delete_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0")
                return table["RouteTableId"], route["GatewayId"]
    raise AssertionError("the VPC has no way out")


def _reopen(site: Site, kept: tuple[str, str]) -> None:
    client(site.endpoint, "ec2").create_route(RouteTableId=kept[0], DestinationCidrBlock="0.0.0.0/0", GatewayId=kept[1])


isolated = at_aws(_close, _reopen)


def endpoints(*services: str) -> Break:
    def act(site: Site) -> list[str]:
        ec2 = client(site.endpoint, "ec2")
        names = [f"com.amazonaws.{REGION}.{service}" for service in services]
        return [
            ec2.create_vpc_endpoint(
                VpcId=_vpc(site), ServiceName=name, VpcEndpointType="Gateway" if name.endswith(".s3") else "Interface"
            )["VpcEndpoint"]["VpcEndpointId"]
            for name in names
        ]

    return at_aws(act, lambda site, ids: client(site.endpoint, "ec2").delete_vpc_endpoints(VpcEndpointIds=ids))


def endpoint_without(service: str) -> Break:
    """An endpoint of the VPC whose policy allows nothing of its service."""

    def act(site: Site) -> str:
        made = client(site.endpoint, "ec2").create_vpc_endpoint(
            VpcId=_vpc(site),
            ServiceName=f"com.amazonaws.{REGION}.{service}",
            VpcEndpointType="Interface",
            PolicyDocument=document(statement("Allow", "logs:PutLogEvents", Principal="*")),
        )
        endpoint: str = made["VpcEndpoint"]["VpcEndpointId"]
        return endpoint

    return at_aws(act, lambda site, name: client(site.endpoint, "ec2").delete_vpc_endpoints(VpcEndpointIds=[name]))


def network_access(**config: Any) -> Break:
    """`aws eks update-cluster-config`, and back."""

    def act(site: Site) -> dict[str, Any]:
        eks = client(site.endpoint, "eks")
        before = eks.describe_cluster(name=CLUSTER)["cluster"]["resourcesVpcConfig"]
        eks.update_cluster_config(name=CLUSTER, resourcesVpcConfig=config)
        return {name: before[name] for name in config}

    return at_aws(
        act,
        lambda site, before: client(site.endpoint, "eks").update_cluster_config(
            name=CLUSTER, resourcesVpcConfig=before
        ),
    )


# Queue, rules and keys


def delete_queue(site: Site) -> tuple[dict[str, str], dict[str, str]]:
    sqs = client(site.endpoint, "sqs")
    url = sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"]
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    tags = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
    sqs.delete_queue(QueueUrl=url)
    return policy, tags


def create_queue(site: Site, kept: tuple[dict[str, str], dict[str, str]]) -> None:
    client(site.endpoint, "sqs").create_queue(QueueName=CLUSTER, Attributes=kept[0], tags=kept[1])


def rule(enabled: bool) -> Callable[..., None]:
    def act(site: Site, _: Any = None) -> None:
        events = client(site.endpoint, "events")
        name = f"KarpenterSpotInterruptions-{CLUSTER}"
        events.enable_rule(Name=name) if enabled else events.disable_rule(Name=name)

    return act


def key(policy: str = "", *, disabled: bool = False, deleted: bool = False) -> Break:
    """A key that the EC2NodeClass encrypts volumes with; IAM grants its use unless the policy says otherwise."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        kms = client(site.endpoint, "kms")
        made = kms.create_key(**({"Policy": policy} if policy else {}))["KeyMetadata"]
        if disabled:
            kms.disable_key(KeyId=made["KeyId"])
        if deleted:
            kms.schedule_key_deletion(KeyId=made["KeyId"], PendingWindowInDays=7)
        volume = {"volumeSize": "20Gi", "encrypted": True, "kmsKeyID": made["Arn"]}
        mapping = [{"deviceName": "/dev/xvda", "ebs": volume}]
        uses = document(statement("Allow", "kms:CreateGrant", "kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext"))
        async with role_policy(uses)(site), edited(
            kinds.EC2NODECLASSES, "default", put("spec.blockDeviceMappings", mapping)
        )(site):  # fmt: skip
            yield

    return block


def queue_key(site: Site) -> str:
    made: str = client(site.endpoint, "kms").create_key()["KeyMetadata"]["KeyId"]
    return made


@asynccontextmanager
async def encrypted_queue(site: Site) -> AsyncIterator[None]:
    async with queue_attributes(KmsMasterKeyId=queue_key(site))(site):
        yield
