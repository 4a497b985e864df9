"""`dovetail install` on a fresh EKS cluster: moto over HTTP, the lab's API server, workload controllers and kubelets.

Interrupted at any call it goes on when it is repeated, and `uninstall` leaves the account and the cluster as they were.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.install.chart import Chart, Release, ValuesError, chart_directory
from dovetail.install.iam import OWNER_TAG
from dovetail.install.kubernetes_parts import APPLIED, Object
from dovetail.install.plan import InstallOptions, RefusedError, plan
from dovetail.install.sprig import load_yaml
from dovetail.install.steps import StepStatus, Write
from dovetail.kube import resources as kinds
from dovetail.lab.aws import addons
from dovetail.lab.aws.account import client
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from tests.install.install_site import (
    CLUSTER,
    REGION,
    RELEASE,
    Interrupted,
    Site,
    endpoint,
    tell,
)

__all__ = ["endpoint"]


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
    tried = [after for after in range(1, max(total, removals) + 1) if chosen(after)]
    for after in tried:
        with pytest.raises(Interrupted):
            await site.install(after=min(after, total))
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


def test_an_interrupted_installation_is_uninstalled_without_being_completed(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        total = len(await site.install())
        await site.uninstall()
        tried = range(3, total + 1, 8)
        assert len(tried) >= 5
        for after in tried:
            with pytest.raises(Interrupted):
                await site.install(after=after)
            await site.uninstall()
            assert await site.state() == before, f"interrupted after write {after}"

    tell(endpoint, story)


def test_a_class_that_terminates_is_reported_once(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        finalizers = {"metadata": {"finalizers": ["karpenter.k8s.aws/termination"]}}
        await site.kube.patch(kinds.EC2NODECLASSES, "default", finalizers, manager="controller")
        site.shown.clear()
        removal = asyncio.create_task(site.uninstall())
        await asyncio.sleep(10.0)
        assert not removal.done(), "the controller is still to release the class"
        await site.kube.patch(kinds.EC2NODECLASSES, "default", {"metadata": {"finalizers": None}}, manager="controller")
        await removal
        removed = [title for title, change in site.shown if change.status is StepStatus.REMOVE]
        assert removed.count("EC2NodeClass default") == 1
        assert len(removed) == len(set(removed))

    tell(endpoint, story, nodes=2)


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
    ("prepare", "interval", "remainder"),
    [
        (pod_identity, 50, 25),
        *(
            pytest.param(prepare, 4, remainder, marks=[pytest.mark.slow, pytest.mark.timeout(900)])
            for prepare in (pod_identity, config_map)
            for remainder in range(4)
        ),
    ],
)
def test_interrupted_with_other_ways_to_credentials_and_access(
    endpoint: AwsEndpoint, prepare: Callable[[Site], Awaitable[None]], interval: int, remainder: int
) -> None:
    async def story(site: Site) -> None:
        await prepare(site)
        _, _, changes = await site.planned()
        titles = " ".join(part.title for part, _ in changes)
        assert ("Pod Identity association" in titles) == (prepare is pod_identity)
        assert ("OIDC provider" in titles) == (prepare is not pod_identity)
        assert await interrupt_and_repeat(site, lambda after: after % interval == remainder) >= 1

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


def test_each_step_has_the_command_that_does_the_same(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        _, _, changes = await site.planned()
        commands = [step.command for _, change in changes for step in change.steps]
        assert len(commands) > 40
        role = next(command for command in commands if command.startswith("aws iam create-role "))
        assert f"--role-name KarpenterNodeRole-{CLUSTER} --assume-role-policy-document '{{" in role
        writes = [step for _, change in changes for step in change.steps if isinstance(step, Write)]
        manifests = {write.name: write for write in writes if "<<" in write.command}
        assert {"karpenter", "karpenter-admin", "default"} <= set(manifests)
        for write in manifests.values():
            first, *lines, last = write.command.split("\n")
            where = f" -n {write.namespace}" if write.namespace else ""
            assert (first, last) == (f"kubectl apply --server-side{where} -f - <<'EOF'", "EOF")
            assert load_yaml("\n".join(lines)) == write.body
        (definition,) = (write.command for write in writes if write.name == "nodepools.karpenter.sh")
        printed, label, annotate = definition.split("\n")
        assert printed == "dovetail crds nodepools.karpenter.sh | kubectl apply --server-side -f -"
        assert label.startswith("kubectl label --overwrite customresourcedefinitions.apiextensions.k8s.io nodepools.")
        assert f" dovetail.sh/installed-by={CLUSTER} " in annotate

    tell(endpoint, story)
