"""An EKS cluster and its account, an installer that can be interrupted, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import boto3
import pytest

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.install import removal, run
from dovetail.install.chart import Release
from dovetail.install.discovery import Found, discover
from dovetail.install.plan import Installation, InstallOptions, plan
from dovetail.install.removal import Nodes
from dovetail.install.steps import Account, Change, InstallPart
from dovetail.install.take_over import plan_take_over, take_over
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.aws.account import AwsAccount, build, client
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import ReportingDetail

REGION, CLUSTER = "ap-northeast-2", "demo"
SERVER = "https://127.0.0.1:6443"
RELEASE = Release(name="karpenter", namespace="karpenter")
RBAC = "rbac.authorization.k8s.io"
WATCHED = (
    kinds.NAMESPACES,
    kinds.CONFIGMAPS,
    kinds.SECRETS,
    kinds.SERVICEACCOUNTS,
    kinds.SERVICES,
    kinds.DEPLOYMENTS,
    kinds.PDBS,
    kinds.CRDS,
    kinds.LEASES,
    kinds.NODEPOOLS,
    kinds.EC2NODECLASSES,
    kinds.Resource(RBAC, "v1", "clusterroles", "ClusterRole", False),
    kinds.Resource(RBAC, "v1", "roles", "Role"),
    kinds.Resource(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    kinds.Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
)


class Interrupted(BaseException):
    """The operator pressed Ctrl-C here."""


class Interrupter:
    """Counts what is written, at AWS and in Kubernetes, and ends the process right after one of them."""

    def __init__(self, inner: Transport, after: int | None) -> None:
        self._inner = inner
        self._after = after
        self.writes: list[str] = []

    async def send(self, request: Request) -> Response:
        response = await self._inner.send(request)
        if request.method != "GET":
            self._count(f"{request.method} {request.path}")
        return response

    def observe(self, record: CallRecord) -> None:
        if not record.operation.startswith(("describe_", "get_", "list_")):
            self._count(f"{record.service} {record.operation}")

    def _count(self, what: str) -> None:
        self.writes.append(what)
        if len(self.writes) == self._after:
            raise Interrupted

    async def close(self) -> None:
        return None


@pytest.fixture(scope="module")
def endpoint() -> Iterator[AwsEndpoint]:
    made = AwsEndpoint(LabOfferings(REGION, frozenset({"m5"})))
    built = build(made, CLUSTER, version="1.34", api_url=SERVER, ca=b"ca")
    _forget_installation(made, built)
    yield made
    made.close()
    made.forget()


def _forget_installation(endpoint: AwsEndpoint, built: AwsAccount) -> None:
    """An EKS cluster on which nothing was installed: no node role, profile, queue and discovery tags."""
    ec2, iam, sqs = (client(endpoint, service) for service in ("ec2", "iam", "sqs"))
    profile, role = f"KarpenterNodeInstanceProfile-{CLUSTER}", built.node_role
    iam.remove_role_from_instance_profile(InstanceProfileName=profile, RoleName=role)
    iam.delete_instance_profile(InstanceProfileName=profile)
    for row in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=role, PolicyArn=row["PolicyArn"])
    iam.delete_role(RoleName=role)
    sqs.delete_queue(QueueUrl=built.queue_url)
    ec2.delete_tags(
        Resources=[*built.subnets.values(), built.security_group, built.vpc], Tags=[{"Key": "karpenter.sh/discovery"}]
    )
    endpoint.backend("eks").clusters[CLUSTER].access_config = {"authenticationMode": "API_AND_CONFIG_MAP"}


def account_state(endpoint: AwsEndpoint) -> str:
    """Everything of the account that an installation may touch."""
    ec2, iam, sqs, events = (client(endpoint, service) for service in ("ec2", "iam", "sqs", "events"))
    roles = {
        role["RoleName"]: [
            iam.get_role(RoleName=role["RoleName"])["Role"].get("Tags", []),
            iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"],
            iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"],
        ]
        for role in iam.list_roles()["Roles"]
    }
    tags = sorted(f"{t['ResourceId']} {t['Key']}={t['Value']}" for t in ec2.describe_tags()["Tags"])
    return json.dumps(
        {
            "roles": roles,
            "tags": tags,
            "profiles": sorted(p["InstanceProfileName"] for p in iam.list_instance_profiles()["InstanceProfiles"]),
            "providers": iam.list_open_id_connect_providers()["OpenIDConnectProviderList"],
            "queues": sqs.list_queues().get("QueueUrls", []),
            "rules": [rule["Name"] for rule in events.list_rules()["Rules"]],
            "entries": sorted(endpoint.front.entries.get(CLUSTER, {})),
            "associations": [
                row["serviceAccount"]
                for row in client(endpoint, "eks").list_pod_identity_associations(clusterName=CLUSTER)["associations"]
            ],
        },
        indent=1,
        sort_keys=True,
        default=str,
    )


async def cluster_state(kube: Kube) -> str:
    state: dict[str, Any] = {}
    for kind in WATCHED:
        try:
            items = (await kube.list(kind)).items
        except NotFound:
            continue
        for obj in items:
            meta = obj["metadata"]
            for field in ("clusterIP", "clusterIPs"):
                (obj.get("spec") or {}).pop(field, None)
            state[f"{kind.name} {meta.get('namespace', '')}/{meta['name']}"] = [
                meta.get("annotations"),
                meta.get("labels"),
                obj.get("data"),
                obj.get("spec"),
            ]
    return json.dumps(state, indent=1, sort_keys=True)


class Site:
    """A cluster and its account, and a way to run the installer in them."""

    def __init__(self, endpoint: AwsEndpoint, lab: Lab) -> None:
        self.endpoint = endpoint
        self.lab = lab
        self.kube = lab.client("test")
        self.shown: list[tuple[str, Change]] = []
        self._session = boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab", region_name=REGION)

    async def _as_operator(self, work: Callable[[Account], Awaitable[Any]], after: int | None) -> list[str]:
        interrupter = Interrupter(self.lab.transport, after)
        calls = Calls(
            self.lab.clock,
            region=REGION,
            endpoint=self.endpoint.url,
            session=self._session,
            observe=interrupter.observe,
        )
        try:
            await work(Account(calls, Kube(interrupter, self.lab.clock)))
        finally:
            calls.close()
        return interrupter.writes

    def report(self, part: InstallPart | str, change: Change) -> None:
        self.shown.append((part if isinstance(part, str) else part.title, change))

    async def install(self, *, after: int | None = None, wait_s: float = 0.0, **options: Any) -> list[str]:
        async def work(account: Account) -> None:
            found = await discover(account, None, SERVER)
            planned = plan(found, InstallOptions(release=RELEASE, **options))
            await run.install(account, planned, self.report, wait_s=wait_s)

        return await self._as_operator(work, after)

    async def uninstall(self, nodes: Nodes = Nodes.REFUSE, *, after: int | None = None) -> list[str]:
        async def work(account: Account) -> None:
            found = await discover(account, None, SERVER)
            planned = plan(found, InstallOptions(release=RELEASE, removing=True))
            order = removal.plan_removal(found, planned, nodes)
            await removal.uninstall(account, planned, order, nodes, self.report, wait_s=60.0)

        return await self._as_operator(work, after)

    async def take_over(self, *, after: int | None = None, wait_s: float = 300.0) -> list[str]:
        async def work(account: Account) -> None:
            found = await discover(account, None, SERVER)
            planned = plan_take_over(found, InstallOptions(release=RELEASE))
            await take_over(account, planned, self.report, wait_s=wait_s)

        return await self._as_operator(work, after)

    async def hand_back(self, *, after: int | None = None) -> list[str]:
        async def work(account: Account) -> None:
            found = await discover(account, None, SERVER)
            planned = plan_take_over(found, InstallOptions(release=RELEASE))
            await removal.hand_back(account, found, planned, self.report, wait_s=60.0)

        return await self._as_operator(work, after)

    async def planned(self, **options: Any) -> tuple[Found, Installation, list[tuple[InstallPart, Change]]]:
        kept: list[Any] = []

        async def work(account: Account) -> None:
            found = await discover(account, None, SERVER)
            planned = plan(found, InstallOptions(release=RELEASE, **options))
            parts = (*planned.cloud, *planned.cluster, *planned.first_pool)
            kept.extend((found, planned, await run.changes(account, parts)))

        assert await self._as_operator(work, None) == [], "a plan writes nothing"
        return kept[0], kept[1], kept[2]

    async def settle(self) -> None:
        """Until the namespace controller and the garbage collector are through."""
        await asyncio.sleep(60.0)

    async def state(self) -> tuple[str, str]:
        await self.settle()
        return account_state(self.endpoint), await cluster_state(self.kube)


def tell(endpoint: AwsEndpoint, story: Callable[[Site], Awaitable[None]], nodes: int = 0) -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        parts = LabParts(
            pace=ReportingDetail(lean=True, heartbeat_seconds=None), quiet=True, check=False, storage=False
        )
        async with Lab.embedded(7, parts, clock=clock) as lab:
            roles = (
                f"- groups:\n  - system:bootstrappers\n  - system:nodes\n"
                f"  rolearn: arn:aws:iam::{ACCOUNT}:role/eks-{CLUSTER}-nodes\n"
                "  username: system:node:{{EC2PrivateDNSName}}\n"
            )
            await lab.kube.create(
                kinds.CONFIGMAPS, {"metadata": {"name": "aws-auth"}, "data": {"mapRoles": roles}}, "kube-system"
            )
            if nodes:
                await lab.nodes(nodes, zones=("us-west-2a", "us-west-2b"))
            await asyncio.sleep(60.0)
            await story(Site(endpoint, lab))

    run_virtual(main())
