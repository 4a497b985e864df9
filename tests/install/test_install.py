"""`dovetail install` on a fresh EKS cluster: moto over HTTP, the lab's API server, workload controllers and kubelets.

Interrupted at any call it goes on when it is repeated, and `uninstall` leaves the account and the cluster as they were.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import boto3
import pytest

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.aws.client import CallRecord, Calls
from dovetail.controllers.settings import read
from dovetail.install import cluster_autoscaler, removal, run
from dovetail.install.chart import Chart, Release, ValuesError, chart_directory
from dovetail.install.discovery import Found, discover
from dovetail.install.iam import OWNER_TAG
from dovetail.install.kubernetes_parts import APPLIED, Object
from dovetail.install.plan import Installation, InstallOptions, RefusedError, plan
from dovetail.install.removal import Nodes
from dovetail.install.steps import Account, Change, InstallPart, StepStatus
from dovetail.install.take_over import plan_take_over, take_over
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.aws import addons
from dovetail.lab.aws.account import AwsAccount, build, client
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.kubelet.kubelets import Pace
from dovetail.model.kinds import crds

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
            await take_over(account, found, planned, self.report, wait_s=wait_s)

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
        parts = LabParts(pace=Pace(lean=True, heartbeat_seconds=None), quiet=True, check=False, storage=False)
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


def test_a_fresh_cluster_is_installed_and_a_repetition_changes_nothing(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        found, _, changes = await site.planned()
        assert found.account == ACCOUNT
        assert found.authentication_mode == "API_AND_CONFIG_MAP"
        assert {change.status for _, change in changes} == {StepStatus.CREATE}
        assert await site.state() == before, "a plan touches nothing"
        made = await site.install(wait_s=300.0)
        assert len(made) > 40
        assert await site.install(wait_s=300.0) == [], "a repetition changes nothing"
        _, _, changes = await site.planned()
        assert {change.status for _, change in changes} == {StepStatus.EXISTS}
        deployment = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert deployment["status"]["availableReplicas"] >= 1
        account = await site.kube.get(kinds.SERVICEACCOUNTS, "karpenter", "karpenter")
        role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
        assert role == f"arn:aws:iam::{ACCOUNT}:role/KarpenterControllerRole-{CLUSTER}"
        node_class = await site.kube.get(kinds.EC2NODECLASSES, "default")
        assert node_class["spec"]["role"] == f"KarpenterNodeRole-{CLUSTER}"
        assert (await site.kube.get(kinds.NODEPOOLS, "default"))["spec"]["limits"] == {"cpu": "1000"}
        await site.uninstall()
        assert await site.state() == before

    tell(endpoint, story, nodes=2)


def test_an_edit_is_named_and_taken_back_but_not_of_the_first_pool(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        await site.install()
        wrong = {"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/other"}}}
        await site.kube.patch(kinds.SERVICEACCOUNTS, "karpenter", wrong, "karpenter", manager="operator")
        await site.kube.patch(
            kinds.DEPLOYMENTS, "karpenter", {"spec": {"replicas": 0}}, "karpenter", manager="operator"
        )
        limits = {"spec": {"limits": {"cpu": "8"}}}
        await site.kube.patch(kinds.NODEPOOLS, "default", limits, manager="operator")
        _, _, changes = await site.planned()
        assert {part.title: change.why for part, change in changes if change.status is StepStatus.CHANGE} == {
            "ServiceAccount karpenter/karpenter": "metadata.annotations.eks.amazonaws.com/role-arn was edited",
            "Deployment karpenter/karpenter": "spec.replicas was edited",
        }
        assert len(await site.install()) == 2
        assert await site.install() == []
        deployment = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert deployment["spec"]["replicas"] == 2
        assert (await site.kube.get(kinds.NODEPOOLS, "default"))["spec"]["limits"] == {"cpu": "8"}
        await site.uninstall()

    tell(endpoint, story, nodes=2)


def test_everything_at_aws_carries_the_owner_tag(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        await site.install()
        iam, sqs, events = (client(endpoint, service) for service in ("iam", "sqs", "events"))
        for name in (f"KarpenterNodeRole-{CLUSTER}", f"KarpenterControllerRole-{CLUSTER}"):
            assert {"Key": OWNER_TAG, "Value": CLUSTER} in iam.get_role(RoleName=name)["Role"]["Tags"]
        url = sqs.get_queue_url(QueueName=CLUSTER)["QueueUrl"]
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {OWNER_TAG: CLUSTER}
        rules = events.list_rules()["Rules"]
        assert len(rules) == 5
        for rule in rules:
            tags = events.list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"]
            assert tags == [{"Key": OWNER_TAG, "Value": CLUSTER}]
        assert endpoint.front.entries[CLUSTER][f"arn:aws:iam::{ACCOUNT}:role/KarpenterNodeRole-{CLUSTER}"]["tags"]
        await site.uninstall()

    tell(endpoint, story)


async def interrupt_and_repeat(site: Site, chosen: Callable[[int], bool]) -> int:
    """Install and uninstall, each interrupted after a write and repeated; how many were tried."""
    before = await site.state()
    total = len(await site.install())
    whole = await site.state()
    removals = len(await site.uninstall())
    assert await site.state() == before
    assert total > 40
    tried = [after for after in range(1, total + 1) if chosen(after)]
    for after in tried:
        with pytest.raises(Interrupted):
            await site.install(after=after)
        await site.install()
        assert await site.state() == whole, f"interrupted after write {after}"
        with pytest.raises(Interrupted):
            await site.uninstall(after=min(after, removals))
        await site.uninstall()
        assert await site.state() == before, f"interrupted after write {after}"
    return len(tried)


def test_interrupted_it_goes_on_and_uninstall_leaves_nothing(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        assert await interrupt_and_repeat(site, lambda after: after % 9 == 2) >= 4

    tell(endpoint, story)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("remainder", range(4))
def test_interrupted_after_every_write(endpoint: AwsEndpoint, remainder: int) -> None:
    async def story(site: Site) -> None:
        assert await interrupt_and_repeat(site, lambda after: after % 4 == remainder) >= 10

    tell(endpoint, story)


async def pod_identity(site: Site) -> None:
    """The cluster has the agent of Pod Identity, and IAM does not know its issuer."""
    name = "eks-pod-identity-agent"
    (agent,) = addons.objects(name, "v1", REGION)
    await site.kube.create(kinds.DAEMONSETS, agent, "kube-system")


async def config_map(site: Site) -> None:
    site.endpoint.backend("eks").clusters[CLUSTER].access_config = {"authenticationMode": "CONFIG_MAP"}


@pytest.mark.parametrize(
    ("prepare", "interval"),
    [
        (pod_identity, 50),
        pytest.param(pod_identity, 1, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
        pytest.param(config_map, 1, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
)
def test_interrupted_with_other_ways_to_credentials_and_access(
    endpoint: AwsEndpoint, prepare: Callable[[Site], Awaitable[None]], interval: int
) -> None:
    async def story(site: Site) -> None:
        await prepare(site)
        _, _, changes = await site.planned()
        titles = " ".join(part.title for part, _ in changes)
        assert ("Pod Identity association" in titles) == (prepare is pod_identity)
        assert ("OIDC provider" in titles) == (prepare is not pod_identity)
        assert await interrupt_and_repeat(site, lambda after: after % interval == interval // 2) >= 1

    try:
        tell(endpoint, story)
    finally:
        endpoint.backend("eks").clusters[CLUSTER].access_config = {"authenticationMode": "API_AND_CONFIG_MAP"}


def test_what_was_there_before_is_used_and_stays(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        iam, ec2 = client(endpoint, "iam"), client(endpoint, "ec2")
        name = f"KarpenterNodeRole-{CLUSTER}"
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
        subnet = ec2.describe_subnets(Filters=[{"Name": "tag:Name", "Values": [CLUSTER]}])["Subnets"][0]["SubnetId"]
        ec2.create_tags(Resources=[subnet], Tags=[{"Key": "karpenter.sh/discovery", "Value": CLUSTER}])
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.settle()
        before = await site.state()
        await site.install()
        assert iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"] == []
        await site.uninstall()
        assert await site.state() == before
        iam.delete_role(RoleName=name)
        ec2.delete_tags(Resources=[subnet], Tags=[{"Key": "karpenter.sh/discovery"}])

    tell(endpoint, story)


def test_a_cluster_that_authenticates_by_config_map_gets_a_line_in_aws_auth(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        cluster = endpoint.backend("eks").clusters[CLUSTER]
        cluster.access_config = {"authenticationMode": "CONFIG_MAP"}
        before = await site.state()
        await site.install()
        text = (await site.kube.get(kinds.CONFIGMAPS, "aws-auth", "kube-system"))["data"]["mapRoles"]
        assert text.count("rolearn") == 2
        assert f"rolearn: arn:aws:iam::{ACCOUNT}:role/KarpenterNodeRole-{CLUSTER}\n" in text
        assert await site.install() == []
        await site.uninstall()
        assert await site.state() == before
        cluster.access_config = {"authenticationMode": "API_AND_CONFIG_MAP"}

    tell(endpoint, story)


def test_a_whole_values_file_of_karpenter_leaves_the_name_to_the_cluster(endpoint: AwsEndpoint) -> None:
    """`helm show values` gives an empty name and Karpenter's image; a file kept from another cluster is refused."""

    async def story(site: Site) -> None:
        image = {"repository": "public.ecr.aws/karpenter/controller", "tag": "1.2.1", "digest": "sha256:0"}
        settings = {"clusterName": "", "interruptionQueue": "", "clusterEndpoint": ""}
        found, planned, _ = await site.planned(values={"settings": settings, "controller": {"image": image}})
        bodies = [part.body for part in planned.cluster if isinstance(part, Object)]
        deployment = next(body for body in bodies if body["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        assert variables["CLUSTER_NAME"] == CLUSTER
        assert not variables.get("INTERRUPTION_QUEUE"), (
            "an empty queue turns interruption handling off, as in Karpenter"
        )
        assert container["image"].startswith("dovetail/controller:")
        assert "controller.image = public.ecr.aws/karpenter/controller@sha256:0 has no effect" in planned.notes
        for values in ({"settings": {"aws": {"clusterName": "prod"}}}, {"clusterName": "prod"}):
            with pytest.raises(RefusedError, match=rf"clusterName prod, and this is the cluster {CLUSTER}"):
                plan(found, InstallOptions(release=RELEASE, values=values))
        for release in (Release(name="karpenter", namespace="My Apps"), Release(name="a_b", namespace="karpenter")):
            with pytest.raises(RefusedError, match=r"^--(namespace 'My Apps'|release 'a_b'): expected "):
                plan(found, InstallOptions(release=release))
        with pytest.raises(ValuesError, match="settings: "):
            plan(found, InstallOptions(release=RELEASE, values={"settings": "demo"}))

    tell(endpoint, story)


def test_the_applied_objects_are_what_the_chart_renders(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        values = {"settings": {"aws": {"interruptionQueueName": "mine"}}, "replicas": 1}
        found, planned, _ = await site.planned(values=values)
        rendered = Chart(chart_directory()).objects(RELEASE, planned.values)
        applied = [part.body for part in planned.cluster if isinstance(part, Object)]
        assert len(rendered) >= 11
        for obj in rendered:
            same = next(
                o
                for o in applied
                if (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace"))
                == (obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace"))
            )
            assert _unmarked(same) == obj
            marks = same["metadata"]["annotations"]
            assert (marks["meta.helm.sh/release-name"], marks["meta.helm.sh/release-namespace"]) == (
                "karpenter",
                "karpenter",
            )
        assert planned.site.queue == "mine"
        assert found.issuer in planned.site.issuer

    tell(endpoint, story)


def _unmarked(obj: dict[str, Any]) -> dict[str, Any]:
    meta = dict(obj["metadata"])
    ours = (OWNER_TAG, APPLIED, "meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
    meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key not in ours}
    if not meta["annotations"]:
        del meta["annotations"]
    return {**obj, "metadata": meta}


def _claim(name: str) -> dict[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "metadata": {"name": name, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"requirements": [], "nodeClassRef": reference},
    }


def test_uninstall_refuses_while_nodes_would_be_lost_and_keeps_them_if_asked(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        await site.install()
        await site.kube.create(kinds.NODECLAIMS, _claim("default-abcde"))
        whole = await site.state()
        with pytest.raises(RefusedError, match=r"1 node would be lost \(default-abcde\); --drain .* --keep-nodes"):
            await site.uninstall()
        assert await site.state() == whole, "a refusal touches nothing"
        await site.uninstall(Nodes.KEEP)
        account, cluster = await site.state()
        assert cluster == before[1]
        assert f"KarpenterNodeRole-{CLUSTER}" in json.loads(account)["roles"], "the nodes need their role"
        assert f"KarpenterControllerRole-{CLUSTER}" not in json.loads(account)["roles"]
        await site.uninstall()
        assert await site.state() == before

    tell(endpoint, story)


def test_a_running_karpenter_is_named_and_nothing_is_touched(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "kube-system")
        with pytest.raises(RefusedError, match=r"kube-system/karpenter already runs Karpenter.*--take-over"):
            await site.install()

    tell(endpoint, story)


def _karpenter(labels: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "controller",
        "image": "public.ecr.aws/karpenter/controller:1.2.1",
        "env": [
            {"name": "CLUSTER_NAME", "value": CLUSTER},
            {"name": "INTERRUPTION_QUEUE", "value": "old"},
            {"name": "FEATURE_GATES", "value": "NodeRepair=true"},
            {"name": "KARPENTER_SERVICE", "value": "k"},
        ],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "serviceAccountName": "karpenter"}}
    return {
        "metadata": {"name": "karpenter", "labels": labels},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


def test_take_over_stands_by_then_scales_karpenter_down_and_hand_back_returns(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.kube.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "karpenter"}}, "karpenter")
        for definition in crds.definitions():
            await site.kube.create(kinds.CRDS, definition)
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "karpenter")
        await asyncio.sleep(60.0)
        await site.kube.create(kinds.NODECLAIMS, _claim("default-abcde"))
        before, claim = await site.state(), await site.kube.get(kinds.NODECLAIMS, "default-abcde")

        for after in (1, 3, 2, None):
            if after is None:
                await site.take_over()
                continue
            with pytest.raises(Interrupted):
                await site.take_over(after=after)
        deployment = await site.kube.get(kinds.DEPLOYMENTS, "dovetail", "karpenter")
        pod = deployment["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == "karpenter", "the role that Karpenter had"
        variables = {row["name"]: row.get("value") for row in pod["containers"][0]["env"]}
        assert variables["LEADER_ELECTION_NAMESPACE"] == "karpenter", "the lease that Karpenter held"
        assert (variables["INTERRUPTION_QUEUE"], variables["FEATURE_GATES"]) == ("old", "NodeRepair=true")
        assert read({}, {name: value for name, value in variables.items() if value}).cluster_name == CLUSTER
        karpenter = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert karpenter["spec"]["replicas"] == 0
        assert (await site.state())[0] == before[0], "nothing at AWS changes"
        assert await site.kube.get(kinds.NODECLAIMS, "default-abcde") == claim, "no node is touched"
        assert await site.take_over() == [], "a repetition changes nothing"

        with pytest.raises(Interrupted):
            await site.hand_back(after=3)
        await site.hand_back()
        assert await site.state() == before
        assert await site.kube.get(kinds.NODECLAIMS, "default-abcde") == claim

    tell(endpoint, story, nodes=4)


def test_take_over_leaves_karpenter_alone_until_ours_is_ready(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        labels = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
        await site.kube.create(kinds.NAMESPACES, {"metadata": {"name": "karpenter"}})
        await site.kube.create(kinds.DEPLOYMENTS, _karpenter(labels), "karpenter")
        with pytest.raises(RefusedError, match="Karpenter still runs"):
            await site.take_over(wait_s=30.0)  # no node is there for our pods
        karpenter = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert karpenter["spec"]["replicas"] == 2

    tell(endpoint, story)


def test_taints_of_planned_bindings_do_not_outlive_us(endpoint: AwsEndpoint) -> None:
    """Nor the cordon of a node that waited for its DaemonSet pods."""

    async def story(site: Site) -> None:
        await site.install()
        names = [node["metadata"]["name"] for node in (await site.kube.list(kinds.NODES)).items]
        assert len(names) == 2
        for name, effect, cordon in zip(names, ("NoSchedule", "PreferNoSchedule"), (None, True), strict=True):
            taint = {"key": removal.PLACING_TAINT, "effect": effect}
            await site.kube.patch(kinds.NODES, name, {"spec": {"taints": [taint], "unschedulable": cordon}})
        await site.uninstall()
        specs = [node["spec"] for node in (await site.kube.list(kinds.NODES)).items]
        assert [(spec.get("taints"), spec.get("unschedulable")) for spec in specs] == [(None, None)] * 2

    tell(endpoint, story, nodes=2)


def test_each_step_has_the_command_that_does_the_same(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        _, _, changes = await site.planned()
        commands = [step.command for _, change in changes for step in change.steps]
        assert len(commands) > 40
        role = next(command for command in commands if command.startswith("aws iam create-role "))
        assert f"--role-name KarpenterNodeRole-{CLUSTER} --assume-role-policy-document '{{" in role
        assert any(command.startswith("kubectl apply --server-side -n karpenter -f -") for command in commands)

    tell(endpoint, story)


def test_cluster_autoscaler_is_installed_again_after_every_interruption_and_leaves_nothing(
    endpoint: AwsEndpoint,
) -> None:
    async def story(site: Site) -> None:
        async def install(after: int | None = None) -> list[str]:
            async def work(account: Account) -> None:
                found = await discover(account, None, SERVER)
                there = await cluster_autoscaler.deployment(account, "kube-system")
                planned = cluster_autoscaler.plan(found, there, "kube-system", "image", "1")
                await cluster_autoscaler.install(account, planned, site.report, wait_s=0.0)

            return await site._as_operator(work, after)

        async def uninstall(after: int | None = None) -> list[str]:
            async def work(account: Account) -> None:
                found = await discover(account, None, SERVER)
                planned = cluster_autoscaler.plan(found, None, "kube-system", "image", "1", removing=True)
                await cluster_autoscaler.uninstall(account, planned, site.report)

            return await site._as_operator(work, after)

        before = await site.state()
        for write in range(1, len(await install()) + 1):
            await uninstall()
            assert await site.state() == before
            with pytest.raises(Interrupted):
                await install(after=write)
            await install()
            assert await install() == []  # nothing is left to do
        account = await site.kube.get(kinds.SERVICEACCOUNTS, "cluster-autoscaler", "kube-system")
        role = account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"].rpartition("/")[2]
        iam = client(endpoint, "iam")
        assert iam.list_role_policies(RoleName=role)["PolicyNames"] == ["ClusterAutoscaler"]
        [statement] = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]["Statement"]
        subject = "system:serviceaccount:kube-system:cluster-autoscaler"
        assert subject in statement["Condition"]["StringEquals"].values()
        with pytest.raises(Interrupted):
            await uninstall(after=2)
        await uninstall()
        assert await site.state() == before
        await site.kube.create(kinds.SERVICEACCOUNTS, {"metadata": {"name": "cluster-autoscaler"}}, "kube-system")
        await install()
        await uninstall()
        assert await site.kube.get(kinds.SERVICEACCOUNTS, "cluster-autoscaler", "kube-system")  # it was not ours
        await site.kube.delete(kinds.SERVICEACCOUNTS, "cluster-autoscaler", "kube-system")

    tell(endpoint, story)


def test_the_provider_stays_as_long_as_one_of_the_two_autoscalers_needs_it(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        async def planned(account: Account, removing: bool) -> cluster_autoscaler.AutoscalerInstallation:
            found = await discover(account, None, SERVER)
            return cluster_autoscaler.plan(found, None, "kube-system", "image", "1", removing=removing)

        async def install(account: Account) -> None:
            await cluster_autoscaler.install(account, await planned(account, False), site.report, wait_s=0.0)

        async def uninstall(account: Account) -> None:
            await cluster_autoscaler.uninstall(account, await planned(account, True), site.report)

        before = await site.state()
        iam = client(endpoint, "iam")
        await site.install()
        await site._as_operator(install, None)
        await site.uninstall()
        assert iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        await site.settle()
        await site.install()
        await site._as_operator(uninstall, None)
        assert iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
        await site.uninstall()
        assert await site.state() == before
        assert not iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]

    tell(endpoint, story)


def test_a_cluster_autoscaler_that_runs_is_not_replaced() -> None:
    found = Found(
        cluster="a", region=REGION, account=ACCOUNT, partition="aws", version="1.34", endpoint=SERVER, issuer="oidc/x",
        authentication_mode="API", subnets=(), security_groups=(),
    )  # fmt: skip
    with pytest.raises(RefusedError, match="kubectl delete deployment cluster-autoscaler -n kube-system"):
        cluster_autoscaler.plan(found, {"metadata": {"name": "cluster-autoscaler"}}, "kube-system", "image", "1")
