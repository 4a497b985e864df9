"""Faults that an operator can make with kubectl and aws alone, each undone when its block ends, and their checks."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from dovetail.install.doctor.collect import CLUSTERROLES, VALIDATING
from dovetail.install.doctor.facts import Status
from dovetail.kube import resources as kinds
from dovetail.kube.resources import Resource
from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import ACCOUNT
from tests.install.install_site import CLUSTER, REGION, Site

NODE_ROLE, CONTROLLER_ROLE = f"KarpenterNodeRole-{CLUSTER}", f"KarpenterControllerRole-{CLUSTER}"
NODE_ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/{NODE_ROLE}"
QUEUE_ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{CLUSTER}"
Break = Callable[[Site], AbstractAsyncContextManager[None]]
Edit = Callable[[dict[str, Any]], None]


class Scenario(msgspec.Struct, frozen=True):
    check: str
    name: str
    breaks: Break
    status: Status = Status.FAILED
    pre: bool = False
    #: Seconds of the lab until schedulers and controllers have acted on the fault.
    settling_s: float = 5.0


def statement(effect: str, *actions: str, **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": list(actions), "Resource": "*", **more}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


# Building blocks


def edited(kind: Resource, name: str, edit: Edit, namespace: str | None = None) -> Break:
    """`kubectl edit`, and back."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        before = await site.kube.get(kind, name, namespace)
        after = copy.deepcopy(before)
        edit(after)
        await site.kube.update(kind, after)
        yield
        now = await site.kube.get(kind, name, namespace)
        before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
        await site.kube.update(kind, before)

    return block


def applied(*objects: tuple[Resource, dict[str, Any]]) -> Break:
    """`kubectl apply`, with the status where the object has one, and `kubectl delete`."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        for kind, body in objects:
            namespace = body["metadata"].get("namespace")
            await site.kube.create(kind, body, namespace)
            if "status" in body:
                await site.kube.patch(
                    kind, body["metadata"]["name"], {"status": body["status"]}, namespace, subresource="status"
                )
        yield
        for kind, body in reversed(objects):
            await site.kube.delete(kind, body["metadata"]["name"], body["metadata"].get("namespace"))

    return block


def at_aws(act: Callable[[Site], Any], undo: Callable[[Site, Any], Any]) -> Break:
    """Calls of aws; what the first returns, the second gets."""

    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        kept = act(site)
        yield
        undo(site, kept)

    return block


def both(*parts: Break) -> Break:
    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        if not parts:
            yield
            return
        async with parts[0](site), both(*parts[1:])(site):
            yield

    return block


def put(path: str, value: Any) -> Edit:
    """Sets a field, given as `spec.limits`."""

    def edit(obj: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for part in parents:
            obj = obj.setdefault(part, {})
        obj[last] = value

    return edit


def variable(name: str, value: str) -> Edit:
    """`kubectl set env`."""

    def edit(obj: dict[str, Any]) -> None:
        rows = obj["spec"]["template"]["spec"]["containers"][0].setdefault("env", [])
        rows[:] = [row for row in rows if row["name"] != name] + [{"name": name, "value": value}]

    return edit


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


def _entry(site: Site, kind: str | None) -> None:
    eks = client(site.endpoint, "eks")
    eks.delete_access_entry(clusterName=CLUSTER, principalArn=NODE_ROLE_ARN)
    if kind:
        eks.create_access_entry(clusterName=CLUSTER, principalArn=NODE_ROLE_ARN, type=kind)


def _restore_entry(site: Site, _: Any) -> None:
    site.endpoint.front.entries[CLUSTER].pop(NODE_ROLE_ARN, None)
    client(site.endpoint, "eks").create_access_entry(
        clusterName=CLUSTER, principalArn=NODE_ROLE_ARN, type="EC2_LINUX", tags={"dovetail.sh/installed-by": CLUSTER}
    )


def _authentication(mode: str) -> Break:
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


def _delete_provider(site: Site) -> dict[str, Any]:
    iam = client(site.endpoint, "iam")
    arn = iam.list_open_id_connect_providers()["OpenIDConnectProviderList"][0]["Arn"]
    before = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    return {"Url": f"https://{before['Url'].removeprefix('https://')}", "ClientIDList": before["ClientIDList"],
            "Tags": before.get("Tags", [])}  # fmt: skip


def _delete_spot_role(site: Site) -> None:
    client(site.endpoint, "iam").delete_role(RoleName="AWSServiceRoleForEC2Spot")


def _create_spot_role(site: Site, _: Any) -> None:
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


def _delete_queue(site: Site) -> tuple[dict[str, str], dict[str, str]]:
    sqs = client(site.endpoint, "sqs")
    url = sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"]
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    tags = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
    sqs.delete_queue(QueueUrl=url)
    return policy, tags


def _create_queue(site: Site, kept: tuple[dict[str, str], dict[str, str]]) -> None:
    client(site.endpoint, "sqs").create_queue(QueueName=CLUSTER, Attributes=kept[0], tags=kept[1])


def _rule(enabled: bool) -> Callable[..., None]:
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


# Objects


def workload(kind: str, name: str, namespace: str, image: str, labels: dict[str, str] | None = None, **pod: Any) -> Any:
    selected = labels or {"app": name}
    container = {"name": name, "image": image, **pod.pop("container", {})}
    template = {"metadata": {"labels": selected}, "spec": {"containers": [container], **pod}}
    spec: dict[str, Any] = {"selector": {"matchLabels": selected}, "template": template}
    if kind == "Deployment":
        spec["replicas"] = 1
    return {"metadata": {"name": name, "namespace": namespace, "labels": selected}, "spec": spec}


def daemon_set(name: str, **pod: Any) -> tuple[Resource, dict[str, Any]]:
    return kinds.DAEMONSETS, workload("DaemonSet", name, "kube-system", f"example.com/{name}:1", **pod)


def deployment(name: str, image: str, **pod: Any) -> tuple[Resource, dict[str, Any]]:
    return kinds.DEPLOYMENTS, workload("Deployment", name, "kube-system", image, **pod)


def cluster_autoscaler(*flags: str) -> Break:
    container = {"command": ["./cluster-autoscaler", *flags]}
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0"
    return applied(deployment("cluster-autoscaler", image, container=container))


def pending_pod(**spec: Any) -> tuple[Resource, dict[str, Any]]:
    body = {
        "metadata": {"name": "waiting", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "example.com/c:1"}], **spec},
    }
    return kinds.PODS, body


@asynccontextmanager
async def uninitialised_node(site: Site) -> AsyncIterator[None]:
    """A NodeClaim whose node registered a quarter of an hour ago and still has its startup taint."""
    since = (site.lab.clock.now() - timedelta(minutes=15)).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = [
        {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since}
        for kind, status, reason in (
            ("Registered", "True", "Registered"),
            ("Initialized", "Unknown", "StartupTaintsExist"),
        )
    ]
    claim = {
        "metadata": {"name": "default-1", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
        "status": {"conditions": rows, "nodeName": "absent"},
    }
    async with applied((kinds.NODECLAIMS, claim))(site):
        yield


@asynccontextmanager
async def own_node(site: Site) -> AsyncIterator[None]:
    """The node of a replica of the controller becomes one of a NodePool."""

    async def hosts() -> list[str]:
        pods = (await site.kube.list(kinds.PODS, "karpenter")).items
        return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]

    for _ in range(60):  # an earlier fault may have scaled it to 0 just before
        if names := await hosts():
            break
        await asyncio.sleep(1.0)
    async with edited(
        kinds.NODES, names[0], lambda node: node["metadata"]["labels"].update({"karpenter.sh/nodepool": "p"})
    )(site):
        yield


@asynccontextmanager
async def cordoned(site: Site) -> AsyncIterator[None]:
    nodes = (await site.kube.list(kinds.NODES)).items
    blocks = [edited(kinds.NODES, node["metadata"]["name"], put("spec.unschedulable", True)) for node in nodes]
    async with both(*blocks)(site):
        yield


@asynccontextmanager
async def without_definition(site: Site) -> AsyncIterator[None]:
    before = await site.kube.get(kinds.CRDS, "nodeclaims.karpenter.sh")
    await site.kube.delete(kinds.CRDS, "nodeclaims.karpenter.sh")
    yield
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        before["metadata"].pop(field, None)
    before.pop("status", None)
    await site.kube.create(kinds.CRDS, before)


def without_operators(definition: dict[str, Any]) -> None:
    for version in definition["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        operator = spec["requirements"]["items"]["properties"]["operator"]
        operator["enum"] = [name for name in operator["enum"] if name not in ("Gte", "Lte")]


def lease(namespace: str, ahead_s: float = 0.0) -> Break:
    @asynccontextmanager
    async def block(site: Site) -> AsyncIterator[None]:
        time = (site.lab.clock.now() + timedelta(seconds=ahead_s)).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        name = "another" if ahead_s else "karpenter-leader-election"
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 60, "renewTime": time}
        async with applied((kinds.LEASES, {"metadata": {"name": name, "namespace": namespace}, "spec": spec}))(site):
            yield

    return block


HPA = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
    },
}
WEBHOOK = {
    "metadata": {"name": "left-behind"},
    "webhooks": [
        {
            "name": "pods.example.com",
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "gone", "name": "hook"}, "caBundle": ""},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}],
        }
    ],
}
CLASS, POOL = (kinds.EC2NODECLASSES, "default"), (kinds.NODEPOOLS, "default")
BY_TAG = [{"tags": {"scenario": "yes"}}]
SPOT = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}]
ACCOUNT_ROLE = "eks.amazonaws.com/role-arn"
spot_pool = edited(*POOL, put("spec.template.spec.requirements", SPOT))


def annotate_role(arn: str) -> Break:
    def edit(account: dict[str, Any]) -> None:
        account["metadata"]["annotations"][ACCOUNT_ROLE] = arn

    return edited(kinds.SERVICEACCOUNTS, "karpenter", edit, "karpenter")


def controller(edit: Edit) -> Break:
    return edited(kinds.DEPLOYMENTS, "karpenter", edit, "karpenter")


def image(text: str) -> Edit:
    def edit(obj: dict[str, Any]) -> None:
        obj["spec"]["template"]["spec"]["containers"][0]["image"] = text

    return edit


BROKEN_AWS_AUTH = edited(kinds.CONFIGMAPS, "aws-auth", put("data.mapRoles", "- rolearn: [\n"), "kube-system")
WARNING = Status.WARNING
SCENARIOS: tuple[Scenario, ...] = (
    Scenario("D01", "no access entry", at_aws(lambda site: _entry(site, None), _restore_entry)),
    Scenario("D01", "an entry of another type", at_aws(lambda site: _entry(site, "STANDARD"), _restore_entry)),
    Scenario("D01", "aws-auth that is no YAML", both(_authentication("CONFIG_MAP"), BROKEN_AWS_AUTH)),
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
            _delete_provider,
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
    Scenario("D08", "no queue", at_aws(_delete_queue, _create_queue)),
    Scenario("D08", "a closed queue", queue_attributes(Policy=document())),
    Scenario("D08", "a queue by ARN", controller(variable("INTERRUPTION_QUEUE", QUEUE_ARN))),
    Scenario("D08", "a queue with a closed key", encrypted_queue),
    Scenario("D08", "a disabled rule", at_aws(_rule(False), _rule(True)), WARNING),
    Scenario("D08", "no spot role", both(spot_pool, at_aws(_delete_spot_role, _create_spot_role))),
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
