"""`dovetail install` with values that choose other names and options, and `dovetail uninstall` without them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dovetail.install import iam
from dovetail.install.chart import Chart, Release, chart_directory
from dovetail.install.kubernetes_parts import RELEASE_KINDS, Object, resource_of
from dovetail.install.plan import InstallOptions, RefusedError, plan
from dovetail.install.pod_role import AGENT_VARIABLE, ROLE_VARIABLE, PodRole, holds_role
from dovetail.install.removal import Nodes
from dovetail.install.run import RESTARTED_AT
from dovetail.install.steps import StepStatus
from dovetail.kube import resources as kinds
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.model.kinds import crds
from tests.install.install_site import CLUSTER, RELEASE, Site, endpoint, tell
from tests.install.karpenter_values import nested

__all__ = ["endpoint"]

REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
OPTIONS = ("alerts", "dashboard", "dashboards", "flowSchemas", "networkPolicy", "serviceMonitor", "webhook")
RENAMED: dict[str, Any] = {
    **nested({f"{option}.enabled": True for option in OPTIONS if option not in ("alerts", "serviceMonitor")}),
    "fullnameOverride": "scaler",
    "nameOverride": "node-scaler",
    "settings": {"interruptionQueue": "notices"},
}


def test_other_names_are_those_of_the_chart_and_a_removal_needs_no_values(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        await site.install(values=RENAMED, wait_s=300.0)
        assert await site.install(values=RENAMED, wait_s=300.0) == []
        found, planned, _ = await site.planned(values=RENAMED)
        assert [obj["metadata"]["name"] for obj in found.autoscalers] == ["scaler"], "the page is no second one"
        trust = iam.controller_trust(planned.site)
        assert "system:serviceaccount:karpenter:scaler" in str(trust)
        with pytest.raises(RefusedError, match="repeat with --namespace karpenter --release karpenter and its values"):
            plan(found, InstallOptions(release=RELEASE))
        await site.uninstall()
        assert await site.state() == before

    tell(endpoint, story, nodes=2)


def test_every_kind_that_the_chart_renders_is_looked_for_at_the_removal() -> None:
    enabled = nested({f"{option}.enabled": True for option in (*OPTIONS, "vpa")})
    objects = Chart(chart_directory()).objects(RELEASE, {**enabled, "settings": {"clusterName": CLUSTER}})
    rendered = {(obj["apiVersion"], obj["kind"]) for obj in objects}
    assert len(rendered) > 10
    assert rendered <= set(RELEASE_KINDS)


@pytest.mark.parametrize("nodes", Nodes)
def test_nodes_of_another_controller_are_neither_ended_nor_released(endpoint: AwsEndpoint, nodes: Nodes) -> None:
    """A release that Helm installed, or Karpenter, with a node, its lease and its definitions."""

    async def story(site: Site) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karpenter"}}
        release = Chart(chart_directory()).objects(RELEASE, {"settings": {"clusterName": CLUSTER}})
        for body in (namespace, *crds.definitions(), *release):
            await site.kube.apply(resource_of(body), body, manager="helm")
        await site.settle()
        spec = {"nodeClassRef": REFERENCE, "requirements": list[Any]()}
        pool = {"metadata": {"name": "theirs"}, "spec": {"template": {"spec": spec}}}
        claim = {"metadata": {"name": "theirs-1", "finalizers": ["karpenter.sh/termination"]}, "spec": spec}
        await site.kube.create(kinds.NODEPOOLS, pool)
        await site.kube.create(kinds.NODECLAIMS, claim)
        before = await site.state()
        assert await site.uninstall(nodes) == []
        assert await site.state() == before
        (kept,) = (await site.kube.list(kinds.NODECLAIMS)).items
        assert kept["metadata"]["finalizers"] == ["karpenter.sh/termination"]

    tell(endpoint, story, nodes=2)


@pytest.mark.parametrize(
    ("values", "deployment", "account", "labels"),
    [
        ({}, "karpenter", "karpenter", "karpenter"),
        ({"fullnameOverride": "other"}, "other", "other", "karpenter"),
        ({"nameOverride": "other"}, "karpenter", "karpenter", "other"),
        ({"serviceAccount": {"name": "mine"}}, "karpenter", "mine", "karpenter"),
        ({"serviceAccount": {"create": False}}, "karpenter", "default", "karpenter"),
    ],
)
def test_names_are_those_that_the_chart_renders(
    values: dict[str, Any], deployment: str, account: str, labels: str
) -> None:
    release = Release(name="karpenter", namespace="karpenter")
    given = {**values, "settings": {"clusterName": CLUSTER}}
    rendered = next(obj for obj in Chart(chart_directory()).objects(release, given) if obj["kind"] == "Deployment")
    template = rendered["spec"]["template"]
    assert rendered["metadata"]["name"] == release.deployment_name(values) == deployment
    assert template["spec"]["serviceAccountName"] == release.service_account_name(values) == account
    selector = ",".join(f"{key}={text}" for key, text in rendered["spec"]["selector"]["matchLabels"].items())
    assert release.pod_labels(values) == selector
    assert f"app.kubernetes.io/name={labels}," in selector


def _pod(**variables: str) -> dict[str, Any]:
    rows = [{"name": name, "value": value} for name, value in variables.items()]
    return {"spec": {"containers": [{"name": "controller", "env": rows}]}}


def test_pods_hold_the_role_that_they_were_created_with() -> None:
    assert holds_role(_pod(**{ROLE_VARIABLE: "arn:role"}), "arn:role")
    assert not holds_role(_pod(**{ROLE_VARIABLE: "arn:former"}), "arn:role")
    assert not holds_role(_pod(), "arn:role")
    assert not holds_role(_pod(), "")
    assert holds_role(_pod(**{AGENT_VARIABLE: "http://169.254.170.23"}), "arn:role")
    part = PodRole(deployment="karpenter", namespace="karpenter", role_arn="arn:role")
    change = part.change(_pod(**{ROLE_VARIABLE: "arn:former"}))
    assert change.why == "they started with arn:former"
    assert [step.command for step in change.steps] == ["kubectl rollout restart deployment/karpenter -n karpenter"]


def test_pods_without_their_role_are_restarted(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        await site.install(wait_s=300.0)
        webhook = {"metadata": {"name": "pod-identity-webhook"}, "webhooks": []}
        admission = "admissionregistration.k8s.io"
        resource = kinds.Resource(
            admission, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
        )
        await site.kube.create(resource, webhook)
        _, _, changes = await site.planned()
        changed = {part.title: change.why for part, change in changes if change.status is StepStatus.CHANGE}
        assert changed == {"role of the pods of Deployment karpenter/karpenter": "they started without a role"}
        await site.install()
        deployment = await site.kube.get(kinds.DEPLOYMENTS, "karpenter", "karpenter")
        assert RESTARTED_AT in deployment["spec"]["template"]["metadata"]["annotations"]
        await site.kube.delete(resource, "pod-identity-webhook")
        assert await site.install(wait_s=300.0) == [], "the restart is no edit"
        await site.uninstall()

    tell(endpoint, story, nodes=2)


def test_a_release_that_helm_installed_is_left_to_helm(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        found, _, _ = await site.planned()
        objects = Chart(chart_directory()).objects(RELEASE, {"settings": {"clusterName": CLUSTER}})
        deployment = next(obj for obj in objects if obj["kind"] == "Deployment")
        installed = msgspec.structs.replace(found, autoscalers=(deployment,))
        with pytest.raises(RefusedError, match="that Helm installed; change it by helm upgrade"):
            plan(installed, InstallOptions(release=RELEASE))

    tell(endpoint, story)


def test_a_long_wait_is_shown_once_and_its_end_names_the_remedy(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        remedy = r"0 of 2 replicas are ready after 60 s; dovetail doctor names the cause"
        with pytest.raises(RefusedError, match=remedy):
            await site.install(wait_s=60.0)
        waits = [title for title, change in site.shown if change.status is StepStatus.WAIT]
        assert waits == ["Deployment karpenter/karpenter: 0 of 2 replicas are ready"]
        await site.uninstall()

    tell(endpoint, story)


def test_a_part_with_nothing_to_act_on_is_no_line_of_a_plan(endpoint: AwsEndpoint) -> None:
    async def story(site: Site) -> None:
        _, planned, changes = await site.planned()
        titles = {part.title for part in planned.cluster} - {part.title for part, _ in changes}
        assert titles == {"role of the pods of Deployment karpenter/karpenter"}
        assert [part for part in planned.cluster if not isinstance(part, Object | PodRole)] == []

    tell(endpoint, story)
