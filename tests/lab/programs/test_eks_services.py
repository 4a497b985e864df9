"""EKS add-ons, tokens of `aws eks get-token`, and CloudTrail at the lab's AWS."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import boto3
import msgspec
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.signers import RequestSigner

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.install import iam as documents
from dovetail.kube.resources import DAEMONSETS, DEPLOYMENTS, PODS
from dovetail.kube.transport import Request
from dovetail.lab.apiserver import rbac
from dovetail.lab.apiserver.auth import ADMIN, User, authenticate
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.aws import account
from dovetail.lab.aws.addons import DEFAULTS, Addons, objects
from dovetail.lab.aws.cluster_tokens import CLUSTER_HEADER, PREFIX, ClusterTokens
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.cluster import Lab
from dovetail.lab.instances import plain_pool
from dovetail.lab.server import LabServer
from tests.lab.programs import test_authorization as authorization

served, endpoint = authorization.served, authorization.endpoint


def token(client: Any, cluster: str) -> str:
    """As `aws eks get-token` makes it."""
    meta = client.meta
    credentials = client._request_signer._credentials
    signer = RequestSigner(meta.service_model.service_id, meta.region_name, "sts", "v4", credentials, meta.events)
    request = {
        "method": "GET",
        "url": f"{meta.endpoint_url}/?Action=GetCallerIdentity&Version=2011-06-15",
        "body": {},
        "headers": {CLUSTER_HEADER: cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name=meta.region_name, expires_in=60, operation_name="")
    return PREFIX + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def user(tokens: ClusterTokens, text: str) -> User:
    return authenticate(
        Request(method="GET", path="/api", query=(), headers={"authorization": f"Bearer {text}"}, body=b""), tokens.get
    )


def test_the_accounts_own_credentials_are_the_clusters_administrator(endpoint: AwsEndpoint) -> None:
    tokens = ClusterTokens({"secret": ADMIN}, endpoint, "demo")
    sts = account.client(endpoint, "sts")
    assert user(tokens, "secret") is ADMIN
    assert user(tokens, token(sts, "demo")) is ADMIN
    for wrong in (token(sts, "other"), token(sts, "demo")[:-8] + "AAAAAAAA", PREFIX + "x", PREFIX, "other"):
        with pytest.raises(StatusError):
            user(tokens, wrong)


def test_a_role_comes_in_by_its_access_entry_and_rbac_decides_for_it(endpoint: AwsEndpoint) -> None:
    tokens = ClusterTokens({}, endpoint, "demo")
    sts = authorization.as_controller(endpoint, "sts")
    with pytest.raises(StatusError):
        user(tokens, token(sts, "demo"))
    account.client(endpoint, "eks").create_access_entry(
        clusterName="demo", principalArn=authorization.ROLE, username="ops", kubernetesGroups=["viewers"]
    )
    found = user(tokens, token(sts, "demo"))
    assert (found.name, found.groups, found.borrowed) == ("ops", ("viewers", "system:authenticated"), True)


def test_aws_auth_maps_roles_users_and_accounts_and_the_authentication_mode_decides(endpoint: AwsEndpoint) -> None:
    account.build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:1", ca=b"")
    cluster, data = endpoint.backend("eks").clusters["demo"], dict[str, str]()
    tokens = ClusterTokens({}, endpoint, "demo", lambda: data)
    role = authorization.as_controller(endpoint, "sts")
    iam = account.client(endpoint, "iam")
    iam.create_user(UserName="ann")
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = boto3.session.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="ap-northeast-2").client(
        "sts", endpoint_url=endpoint.url
    )
    for caller in (role, ann):
        with pytest.raises(StatusError):
            user(tokens, token(caller, "demo"))
    data["mapRoles"] = f"- rolearn: {authorization.ROLE}\n  username: ops:{{{{SessionName}}}}\n  groups: [ops]\n"
    data["mapUsers"] = f"- userarn: arn:aws:iam::{ACCOUNT}:user/ann\n  username: ann\n  groups: [system:masters]\n"
    found = user(tokens, token(role, "demo"))
    assert (found.name, found.groups) == ("ops:s1", ("ops", "system:authenticated"))
    assert user(tokens, token(ann, "demo")).groups == ("system:masters", "system:authenticated")
    data["mapUsers"] = "not: [a list"
    with pytest.raises(StatusError):
        user(tokens, token(ann, "demo"))
    data["mapAccounts"] = f"- '{ACCOUNT}'\n"
    assert user(tokens, token(ann, "demo")).name == f"arn:aws:iam::{ACCOUNT}:user/ann"
    cluster.access_config = {"authenticationMode": "API"}
    with pytest.raises(StatusError):
        user(tokens, token(role, "demo"))
    account.client(endpoint, "eks").create_access_entry(clusterName="demo", principalArn=authorization.ROLE)
    assert user(tokens, token(role, "demo")).name == f"arn:aws:sts::{ACCOUNT}:assumed-role/controller/s1"
    cluster.access_config = {"authenticationMode": "CONFIG_MAP"}
    assert user(tokens, token(role, "demo")).name == "ops:s1"


POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKS{}Policy"


def test_access_policies_grant_what_the_default_roles_grant_in_their_scope(endpoint: AwsEndpoint) -> None:
    eks = account.client(endpoint, "eks")
    tokens = ClusterTokens({}, endpoint, "demo")
    caller = authorization.as_controller(endpoint, "sts")
    about = {"clusterName": "demo", "principalArn": authorization.ROLE}
    eks.create_access_entry(**about)
    name = user(tokens, token(caller, "demo")).name
    loop = asyncio.new_event_loop()
    server = LabServer(Clock(loop, EPOCH), Chance(1))
    loop.close()
    seed_defaults(server, EPOCH)
    server.cluster.role_sources.append(tokens.granted_roles)

    def may(verb: str, resource: str, namespace: str = "") -> bool:
        asked = rbac.Ask(verb=verb, group="", resource=resource, namespace=namespace)
        return rbac.allowed(server.cluster, name, ("system:authenticated",), asked)

    def associate(policy: str, *namespaces: str) -> None:
        scope = {"type": "namespace", "namespaces": list(namespaces)} if namespaces else {"type": "cluster"}
        eks.associate_access_policy(**about, policyArn=POLICY.format(policy), accessScope=scope)

    assert not may("list", "pods", "web")
    associate("View", "we*")
    assert may("list", "pods", "web") and not may("list", "pods", "other") and not may("list", "pods")
    assert not may("delete", "pods", "web") and not may("get", "secrets", "web")
    associate("Edit", "web")
    assert may("delete", "pods", "web") and may("get", "secrets", "web")
    associate("Admin")
    assert may("delete", "pods", "other") and not may("delete", "nodes")
    associate("ClusterAdmin")
    assert may("delete", "nodes")
    listed = eks.list_associated_access_policies(**about)["associatedAccessPolicies"]
    assert [row["policyArn"].rpartition("/")[2] for row in listed] == [
        f"AmazonEKS{policy}Policy" for policy in ("Admin", "ClusterAdmin", "Edit", "View")
    ]
    for policy in ("ClusterAdmin", "Admin"):
        eks.disassociate_access_policy(**about, policyArn=POLICY.format(policy))
    assert not may("delete", "nodes") and may("delete", "pods", "web")
    assert len(eks.list_access_policies()["accessPolicies"]) == 4
    code, _ = authorization.refusal(
        eks.associate_access_policy, **about, policyArn=POLICY.format("Wrong"), accessScope={"type": "cluster"}
    )
    assert code == "InvalidParameterException"


def test_cloudtrail_shows_who_launched_what(endpoint: AwsEndpoint) -> None:
    authorization.prepare_template(endpoint, authorization.SITE.node_role)
    for name, policy in documents.controller_policies(authorization.SITE).items():
        authorization.allow(endpoint, *policy["Statement"], name=name)
    (launched,) = authorization.launch(authorization.as_controller(endpoint, "ec2"))["Instances"]
    trail = account.client(endpoint, "cloudtrail")
    names = [{"AttributeKey": "ResourceName", "AttributeValue": launched["InstanceIds"][0]}]
    (event,) = trail.lookup_events(LookupAttributes=names)["Events"]
    record = json.loads(event["CloudTrailEvent"])
    identity = record["userIdentity"]
    assert record["eventName"] == "RunInstances"
    assert record["requestParameters"]["instanceType"] == "m5.large"
    assert identity["arn"] == f"arn:aws:sts::{ACCOUNT}:assumed-role/controller/s1"
    assert identity["sessionContext"]["sessionIssuer"]["userName"] == "controller"
    assert identity["invokedBy"] == record["sourceIPAddress"] == "ec2fleet.amazonaws.com"
    by_name = [{"AttributeKey": "EventName", "AttributeValue": "CreateFleet"}]
    assert len(trail.lookup_events(LookupAttributes=by_name)["Events"]) == 1
    reads = [{"AttributeKey": "EventName", "AttributeValue": "LookupEvents"}]
    assert not trail.lookup_events(LookupAttributes=reads)["Events"]
    assert identity["principalId"] == f"{identity['sessionContext']['sessionIssuer']['principalId']}:s1"
    # a refused call launches nothing, and says why
    with pytest.raises(ClientError):
        authorization.launch(authorization.as_controller(endpoint, "ec2"), **{"kubernetes.io/cluster/demo": "no"})
    refused, _ = trail.lookup_events(LookupAttributes=by_name)["Events"]
    assert json.loads(refused["CloudTrailEvent"])["errorCode"] == "Client.UnauthorizedOperation"
    launches = [{"AttributeKey": "EventName", "AttributeValue": "RunInstances"}]
    assert len(trail.lookup_events(LookupAttributes=launches)["Events"]) == 1


def test_cloudtrail_shows_the_provider_of_a_service_account_and_a_token_that_was_refused(endpoint: AwsEndpoint) -> None:
    issuer = "https://oidc.eks.us-west-2.amazonaws.com/id/TRAIL"
    site = msgspec.structs.replace(authorization.SITE, issuer=issuer.removeprefix("https://"))
    iam, trail = account.client(endpoint, "iam"), account.client(endpoint, "cloudtrail")
    iam.create_open_id_connect_provider(Url=issuer, ClientIDList=["sts.amazonaws.com"], ThumbprintList=["0" * 40])
    trust = json.dumps(documents.controller_trust(site))
    arn = iam.create_role(RoleName="by-token", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    sts = boto3.client(
        "sts", region_name="us-west-2", endpoint_url=endpoint.url, config=Config(signature_version=UNSIGNED)
    )
    arguments = {"RoleArn": arn, "RoleSessionName": "karpenter"}

    def token(service_account: str) -> str:
        return endpoint.web_identity.token(issuer, site.namespace, service_account)

    with pytest.raises(ClientError, match="AccessDenied"):
        sts.assume_role_with_web_identity(WebIdentityToken=token("other"), **arguments)
    (event,) = trail.lookup_events(
        LookupAttributes=[{"AttributeKey": "EventName", "AttributeValue": "AssumeRoleWithWebIdentity"}]
    )["Events"]
    record = json.loads(event["CloudTrailEvent"])
    assert record["errorCode"] == "AccessDenied"
    assert record["userIdentity"]["userName"] == f"system:serviceaccount:{site.namespace}:other"
    assert "WebIdentityToken" not in record["requestParameters"]
    given = sts.assume_role_with_web_identity(WebIdentityToken=token(site.service_account), **arguments)["Credentials"]
    session = boto3.session.Session(
        given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], region_name="us-west-2"
    )
    with pytest.raises(ClientError):
        session.client("ec2", endpoint_url=endpoint.url).describe_images()
    (event,) = trail.lookup_events(
        LookupAttributes=[{"AttributeKey": "EventName", "AttributeValue": "DescribeImages"}]
    )["Events"]
    context = json.loads(event["CloudTrailEvent"])["userIdentity"]["sessionContext"]
    assert context["webIdFederationData"]["federatedProvider"].endswith(f":oidc-provider/{site.issuer}")
    assert context["attributes"]["creationDate"]


def test_add_ons_are_listed_created_and_deleted(endpoint: AwsEndpoint) -> None:
    eks = account.client(endpoint, "eks")
    endpoint.addons.install_defaults("demo")
    assert eks.list_addons(clusterName="demo")["addons"] == sorted(DEFAULTS)
    name = "eks-pod-identity-agent"
    assert eks.create_addon(clusterName="demo", addonName=name)["addon"]["status"] == "CREATING"
    assert eks.describe_addon(clusterName="demo", addonName=name)["addon"]["status"] == "ACTIVE"
    assert authorization.refusal(eks.create_addon, clusterName="demo", addonName=name)[0] == "ResourceInUseException"
    eks.delete_addon(clusterName="demo", addonName=name)
    assert authorization.refusal(eks.describe_addon, clusterName="demo", addonName=name)[0] == (
        "ResourceNotFoundException"
    )
    assert authorization.refusal(eks.create_addon, clusterName="demo", addonName="x")[0] == "InvalidParameterException"
    (versions,) = eks.describe_addon_versions(addonName="coredns")["addons"]
    assert versions["addonVersions"]


def test_daemon_sets_of_add_ons_keep_away_from_fargate() -> None:
    for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"):
        (body,) = objects(name, "v1", "ap-northeast-2")
        terms = body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        keys = {row["key"]: row for row in term["matchExpressions"]}
        assert "fargate" in keys["eks.amazonaws.com/compute-type"]["values"]


def test_replicas_of_an_add_on_wait_for_the_first_nodes_and_are_spread_over_them() -> None:
    """Placed while the nodes join, both would be on whichever came first."""

    async def main() -> None:
        async with Lab.embedded(1) as lab:
            addons = Addons("us-west-2", ACCOUNT)
            addons.install_defaults("demo")
            work = asyncio.create_task(addons.run(lab.client("eks"), first_nodes=2))
            first, second = plain_pool(2, "m5.large", ("us-west-2a", "us-west-2b"))
            await lab.join([first])
            await asyncio.sleep(60)
            assert len((await lab.kube.list(DAEMONSETS)).items) == 2
            assert not (await lab.kube.list(DEPLOYMENTS)).items
            await lab.join([second])
            await asyncio.sleep(60)
            pods = (await lab.kube.list(PODS, "kube-system", labels="k8s-app=kube-dns")).items
            assert {pod["spec"]["nodeName"] for pod in pods} == {first.name, second.name}
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    run_virtual(main())
