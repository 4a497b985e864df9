"""The account the lab starts with: a VPC, an EKS cluster with one node group, roles, images, a queue.

Everything is made through the API, as an operator would have made it, except what only AWS itself can
make (its own images and parameters, the cluster's security group): that is put into moto directly.
"""

from __future__ import annotations

import base64
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dovetail.cloud.aws import catalog
from dovetail.cloud.aws.amis import variants
from dovetail.lab.aws.eks_images import LAST_AL2_MINOR, VERSIONS
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint

MANAGED = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryReadOnly",
    "AmazonSSMManagedInstanceCore",
)
NODE_POLICIES = tuple(f"arn:aws:iam::aws:policy/{policy}" for policy in MANAGED)
ALIASES = ("al2", "al2023", "bottlerocket", "windows2019", "windows2022")


class AwsAccount(msgspec.Struct, frozen=True, kw_only=True):
    """What was made, by id."""

    cluster: str
    region: str
    vpc: str
    subnets: Mapping[str, str]  # zone -> id
    security_group: str
    node_role: str
    node_group: str
    launch_template: str
    queue: str
    queue_url: str


def client(endpoint: AwsEndpoint, service: str) -> Any:
    return endpoint.session().client(service, endpoint_url=endpoint.url)


def build(
    endpoint: AwsEndpoint,
    cluster: str,
    *,
    version: str,
    api_url: str,
    ca: bytes,
    cidr: str = "",
    node_group: bool = True,
    fresh: bool = False,
    oidc_provider: bool = False,
) -> AwsAccount:
    """Make the account. `api_url` and `ca` are the lab's own API server: what EKS gives its instances.

    `cidr` is the VPC's, a /16; without `node_group` EKS knows of none. A `fresh` account is as EKS leaves it: nothing
    that the installation of an autoscaler adds. With `oidc_provider` IAM knows the cluster's issuer, as eksctl and
    the EKS modules of Terraform leave it.
    """
    ec2, iam, eks, sqs = (client(endpoint, service) for service in ("ec2", "iam", "eks", "sqs"))
    network = _create_network(endpoint, ec2, cluster, ipaddress.ip_network(cidr or "10.0.0.0/16"), fresh)
    _create_roles(iam, cluster, fresh)
    subnets = list(network.subnets.values())
    eks.create_cluster(
        name=cluster,
        version=version,
        roleArn=f"arn:aws:iam::{ACCOUNT}:role/eks-{cluster}",
        resourcesVpcConfig={"subnetIds": subnets, "securityGroupIds": [network.security_group]},
    )
    _describe_cluster(endpoint, cluster, vpc=network.vpc, group=network.security_group, api_url=api_url, ca=ca)
    if oidc_provider:
        issuer = endpoint.backend("eks").clusters[cluster].identity["oidc"]["issuer"]
        iam.create_open_id_connect_provider(Url=issuer, ClientIDList=["sts.amazonaws.com"])
    template = ec2.create_launch_template(
        LaunchTemplateName=f"eks-{cluster}-system",
        LaunchTemplateData={"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [network.security_group]}]},
    )["LaunchTemplate"]["LaunchTemplateId"]
    if node_group:
        eks.create_nodegroup(
            clusterName=cluster,
            nodegroupName="system",
            subnets=subnets,
            nodeRole=f"arn:aws:iam::{ACCOUNT}:role/eks-{cluster}-nodes",
            launchTemplate={"id": template, "version": "1"},
            scalingConfig={"minSize": 1, "maxSize": 3, "desiredSize": 2},
        )
    queue = "" if fresh else sqs.create_queue(QueueName=cluster)["QueueUrl"]
    _images(endpoint, version)
    return AwsAccount(
        cluster=cluster,
        region=endpoint.market.region,
        vpc=network.vpc,
        subnets=network.subnets,
        security_group=network.security_group,
        node_role="" if fresh else _karpenter_node_role(cluster),
        node_group="system" if node_group else "",
        launch_template=template,
        queue=cluster,
        queue_url=queue,
    )


class _ClusterNetwork(NamedTuple):
    """The ids of the cluster's VPC, its subnets by zone, and the security group that EKS makes."""

    vpc: str
    subnets: Mapping[str, str]
    security_group: str


def _create_network(
    endpoint: AwsEndpoint, ec2: Any, cluster: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network, fresh: bool
) -> _ClusterNetwork:
    """A VPC with a public subnet in each zone and the cluster's security group, tagged as eksctl and EKS tag them."""
    tags = [
        {"Key": "Name", "Value": cluster},
        {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"},
    ]
    if not fresh:
        tags += [
            {"Key": "karpenter.sh/discovery", "Value": cluster},
            {"Key": f"karpenter.sh/discovery/{cluster}", "Value": cluster},
        ]
    vpc = ec2.create_vpc(CidrBlock=str(network))["Vpc"]["VpcId"]
    blocks = [str(block) for block in network.subnets(new_prefix=19)]
    subnets = {}
    # From the second block on: the first is where the nodes that the lab starts with have their addresses.
    for block, zone in enumerate(sorted(catalog.region(endpoint.market.region).zones), start=1):
        created = ec2.create_subnet(VpcId=vpc, CidrBlock=blocks[block], AvailabilityZone=zone)
        subnets[zone] = created["Subnet"]["SubnetId"]
    group = ec2.create_security_group(
        GroupName=f"eks-cluster-sg-{cluster}", Description="EKS created security group", VpcId=vpc
    )["GroupId"]
    ec2.authorize_security_group_ingress(
        GroupId=group, IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    )
    ec2.create_tags(Resources=[vpc, *subnets.values(), group], Tags=tags)
    _route_to_internet(ec2, vpc, subnets.values())
    # The tag EKS itself puts on its security group; no other client may write tags that begin with "aws:".
    endpoint.backend("ec2").create_tags([group], {"aws:eks:cluster-name": cluster})
    return _ClusterNetwork(vpc, subnets, group)


def _karpenter_node_role(cluster: str) -> str:
    """The role of nodes that Karpenter's getting-started stack makes."""
    return f"KarpenterNodeRole-{cluster}"


def _create_roles(iam: Any, cluster: str, fresh: bool) -> None:
    """The roles of the cluster, of its node group and of spot, and unless `fresh` Karpenter's role of nodes."""
    if not fresh:
        role, profile = _karpenter_node_role(cluster), f"KarpenterNodeInstanceProfile-{cluster}"
        create_node_role(iam, role)
        iam.create_instance_profile(InstanceProfileName=profile)
        iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=role)
    _create_role(iam, f"eks-{cluster}", "eks.amazonaws.com")
    # An account that has launched a spot instance before has this role; EC2 makes it then.
    iam.create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    create_node_role(iam, f"eks-{cluster}-nodes")


def _route_to_internet(ec2: Any, vpc: str, subnets: Iterable[str]) -> None:
    """A way out of the VPC, as eksctl's public subnets have it."""
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    tables = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    ec2.create_route(RouteTableId=tables[0]["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    for subnet in subnets:
        ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})


def create_node_role(iam: Any, name: str, policy_arns: Sequence[str] = NODE_POLICIES) -> None:
    """A role of instances; without the default policies a node cannot join."""
    _create_role(iam, name, "ec2.amazonaws.com")
    for arn in policy_arns:
        iam.attach_role_policy(RoleName=name, PolicyArn=arn)


def _create_role(iam: Any, name: str, service: str) -> None:
    trust = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}],
    }
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))


def _describe_cluster(endpoint: AwsEndpoint, name: str, *, vpc: str, group: str, api_url: str, ca: bytes) -> None:
    """The fields that EKS sets: security group, VPC, API endpoint, certificate authority and OIDC issuer."""
    cluster = endpoint.backend("eks").clusters[name]
    access = {"endpointPublicAccess": True, "endpointPrivateAccess": True, "publicAccessCidrs": ["0.0.0.0/0"]}
    cluster.resources_vpc_config |= {"clusterSecurityGroupId": group, "vpcId": vpc, **access}
    cluster.endpoint = api_url
    cluster.certificate_authority = {"data": base64.b64encode(ca).decode()}
    cluster.access_config = {"authenticationMode": "API_AND_CONFIG_MAP"}


def _images(endpoint: AwsEndpoint, version: str) -> None:
    """The EKS images of every version, behind the SSM parameters that AWS publishes."""
    from moto.ec2.models.amis import Ami
    from moto.ssm.models import Parameter

    ec2, ssm = endpoint.backend("ec2"), endpoint.backend("ssm")
    number = 0
    for kubernetes in VERSIONS:
        for alias in ALIASES:
            if alias == "al2" and int(kubernetes.partition(".")[2]) > LAST_AL2_MINOR:
                continue  # AWS publishes none
            for variant in variants(alias, "latest", kubernetes):
                if variant.parameter in ssm._parameters:
                    continue
                number += 1
                arch = "arm64" if "arm64" in variant.parameter else "x86_64"
                image_id = f"ami-{0xE5000000 + number:017x}"
                ec2.amis[image_id] = Ami(
                    ec2,
                    image_id,
                    name=_image_name(variant.parameter),
                    architecture=arch,
                    owner_alias="amazon",
                    owner_id="602401143452",
                    public=True,
                    virtualization_type="hvm",
                    hypervisor="xen",
                    root_device_type="ebs",
                    root_device_name="/dev/xvda",
                    region_name=endpoint.market.region,
                )
                ssm._parameters[variant.parameter].append(_parameter(Parameter, variant.parameter, image_id))


def _parameter(make: Any, name: str, value: str) -> Any:
    return make(
        account_id=ACCOUNT,
        name=name,
        value=value,
        parameter_type="String",
        description="",
        allowed_pattern=None,
        keyid=None,
        last_modified_date=0.0,
        version=1,
        data_type="text",
    )


def _image_name(parameter: str) -> str:
    parts = [part for part in parameter.split("/") if part not in ("", "aws", "service", "image_id", "recommended")]
    return "-".join(parts)
