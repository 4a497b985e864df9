"""An EKS cluster without an autoscaler, an installation, and the pods that then launch instances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.clock import run_virtual
from dovetail.cloud.aws.client import Calls
from dovetail.install import run as installing
from dovetail.install.chart import Release
from dovetail.install.discovery import discover
from dovetail.install.plan import InstallOptions, plan
from dovetail.install.steps import Account
from dovetail.kube.errors import ApiError
from dovetail.kube.resources import (
    CONFIGMAPS,
    CORE_EVENTS,
    CRDS,
    DEPLOYMENTS,
    EC2NODECLASSES,
    LEASES,
    NAMESPACES,
    NODECLAIMS,
    NODES,
    PODS,
    PROVISIONERS,
    SERVICEACCOUNTS,
    Resource,
)
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.aws import account
from dovetail.lab.aws.ec2 import Timing
from dovetail.lab.aws.eks import Eks, EksSettings
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.initial_instances import labelled
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.instances import plain_pool
from tests.lab.programs.program_pods import ProgramLab, is_ready

_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING_WEBHOOKS = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
URL = "https://127.0.0.1:6443"
ZONES = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
CONTROLLER = "app.kubernetes.io/instance=karpenter"


class FreshCluster(ProgramLab):
    def __init__(self, lab: Lab, eks: Eks) -> None:
        super().__init__(lab)
        self.eks = eks

    @property
    def endpoint(self) -> AwsEndpoint:
        assert self.eks.endpoint is not None
        return self.eks.endpoint

    async def install(self) -> int:
        endpoint = self.endpoint
        calls = Calls(self.lab.clock, region="ap-northeast-2", endpoint=endpoint.url, session=endpoint.session())
        access = Account(calls, self.lab.client("dovetail-install"))
        try:
            found = await discover(access, "dovetail", URL)
            # A long poll at the queue takes real time, during which virtual time stands still.
            values = {"settings": {"interruptionQueue": ""}}
            release = Release(name="karpenter", namespace="karpenter")
            planned = plan(found, InstallOptions(release=release, values=values))
            return await installing.install(access, planned, lambda part, change: None, wait_s=120.0)
        finally:
            calls.close()

    async def leader(self) -> str:
        leases = (await self.kube.list(LEASES, "karpenter")).items
        return str(leases[0]["spec"].get("holderIdentity", "")) if leases else ""

    async def claimed_nodes(self) -> list[dict[str, Any]]:
        return (await self.kube.list(NODES, labels="karpenter.sh/nodepool=default")).items

    async def inflate(self, replicas: int) -> None:
        container = {"name": "c", "image": "registry.k8s.io/pause:3.7", "resources": {"requests": {"cpu": "1"}}}
        spec = {"containers": [container], "nodeSelector": {"karpenter.sh/nodepool": "default"}}
        template = {"metadata": {"labels": {"app": "inflate"}}, "spec": spec}
        selector = {"matchLabels": {"app": "inflate"}}
        body = {
            "metadata": {"name": "inflate"},
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }
        await self.kube.create(DEPLOYMENTS, body, "default")

    async def running(self) -> int:
        pods = (await self.kube.list(PODS, "default", labels="app=inflate")).items
        return sum(is_ready(pod) for pod in pods)


def play(body: Callable[[FreshCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        settings = EksSettings(fresh=True, families=frozenset({"m5", "c5"}), timing=Timing(20.0, 0.0, 2.0))
        eks = Eks(settings, URL, b"certificate")
        eks.initial_instances = labelled(plain_pool(3, "m5.large", ZONES))
        try:
            async with Lab.embedded(1, LabParts(programs=True)) as lab:
                assert lab.server is not None
                seed_defaults(lab.server, lab.clock.now())
                lab.add(eks.run)
                await lab.join(eks.initial_instances)
                await eks.ready.wait()
                await body(FreshCluster(lab, eks))
        finally:
            if eks.endpoint is not None:
                eks.endpoint.forget()

    run_virtual(main())


def test_an_installation_on_a_fresh_cluster_launches_a_node() -> None:
    async def body(world: FreshCluster) -> None:
        namespaces = {item["metadata"]["name"] for item in (await world.kube.list(NAMESPACES)).items}
        assert "karpenter" not in namespaces
        assert not (await world.kube.list(CRDS)).items
        assert await world.install() > 0
        await world.ready(2, CONTROLLER, "karpenter")
        first = await world.leader()
        assert first
        await world.inflate(2)

        async def placed() -> bool:
            return await world.running() == 2

        await world.until(placed, 300)
        assert await world.claimed_nodes()
        # The leader's pod is deleted: the other replica goes on.
        await world.kube.delete(PODS, first.rpartition("_")[0], "karpenter")

        async def followed() -> bool:
            return await world.leader() not in ("", first)

        await world.until(followed)
        # Without a controller nothing is launched.
        await world.scale("karpenter", 0, "karpenter")
        await world.ready(0, CONTROLLER, "karpenter")
        nodes = len(await world.claimed_nodes())
        await world.kube.patch(DEPLOYMENTS, "inflate", {"spec": {"replicas": 40}}, "default")
        await asyncio.sleep(120)
        assert len(await world.claimed_nodes()) == nodes
        assert await world.running() < 40

    play(body)


def test_the_first_node_group_its_nodes_and_its_instances_agree() -> None:
    async def body(world: FreshCluster) -> None:
        eks, scaling = (account.client(world.endpoint, name) for name in ("eks", "autoscaling"))
        group = eks.describe_nodegroup(clusterName="dovetail", nodegroupName="system")["nodegroup"]
        assert (group["version"], group["instanceTypes"], group["scalingConfig"]["desiredSize"]) == (
            "1.36",
            ["m5.large"],
            3,
        )
        name = group["resources"]["autoScalingGroups"][0]["name"]
        (described,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        nodes = (await world.kube.list(NODES)).items
        provider_ids = {node["spec"]["providerID"].rpartition("/")[2] for node in nodes}
        assert {row["InstanceId"] for row in described["Instances"]} == provider_ids
        assert len(provider_ids) == 3
        templates = {node["metadata"]["labels"]["eks.amazonaws.com/sourceLaunchTemplateId"] for node in nodes}
        assert templates == {group["launchTemplate"]["id"]}
        # an instance more is a node more, of the same group
        sizes = {"minSize": 1, "maxSize": 4, "desiredSize": 4}
        eks.update_nodegroup_config(clusterName="dovetail", nodegroupName="system", scalingConfig=sizes)

        async def grown() -> bool:
            return len((await world.kube.list(NODES, labels="eks.amazonaws.com/nodegroup=system")).items) == 4

        await world.until(grown)

    play(body)


def test_a_wrong_role_annotation_is_reported_in_the_log_and_by_readiness() -> None:
    async def body(world: FreshCluster) -> None:
        await world.install()
        await world.ready(2, CONTROLLER, "karpenter")
        wrong = {"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/wrong"}}}
        await world.kube.patch(SERVICEACCOUNTS, "karpenter", wrong, "karpenter")
        for pod in await world.pods("karpenter", CONTROLLER):
            await world.kube.delete(PODS, pod["metadata"]["name"], "karpenter")
        await asyncio.sleep(60)
        pods = await world.pods("karpenter", CONTROLLER)
        assert len(pods) == 2
        for pod in pods:
            assert not is_ready(pod)
            log = await world.log(pod["metadata"]["name"], "karpenter")
            assert "AccessDenied" in log
            assert "sts:AssumeRoleWithWebIdentity on arn:aws:iam::123456789012:role/wrong" in log

    play(body)


def _without_create_fleet(endpoint: AwsEndpoint) -> None:
    """Take the action out of the controller's policy."""
    role, name = "KarpenterControllerRole-dovetail", "KarpenterNodeLifecycle"
    iam = account.client(endpoint, "iam")
    policy = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    for statement in policy["Statement"]:
        statement["Action"] = [action for action in statement["Action"] if action != "ec2:CreateFleet"]
    iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(policy))


DENIED = (
    "User: arn:aws:sts::123456789012:assumed-role/KarpenterControllerRole-dovetail/karpenter is not authorized to"
    " perform: ec2:CreateFleet on resource: arn:aws:ec2:ap-northeast-2:123456789012:fleet/* because no identity-based"
    " policy allows the ec2:CreateFleet action"
)


@pytest.mark.parametrize("validated", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_policy_without_create_fleet_is_reported_in_log_event_and_condition(validated: bool) -> None:
    """On the EC2NodeClass by its dry run; once that has succeeded, on the NodeClaim that could not be launched."""

    async def body(world: FreshCluster) -> None:
        await world.install()
        await world.ready(2, CONTROLLER, "karpenter")
        resource = NODECLAIMS if validated else EC2NODECLASSES

        async def class_ready() -> bool:
            (node_class,) = (await world.kube.list(EC2NODECLASSES)).items
            conditions = node_class.get("status", {}).get("conditions") or ()
            return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

        if validated:
            await world.until(class_ready)
        _without_create_fleet(world.endpoint)
        await world.inflate(1)

        async def in_condition() -> bool:
            objects = (await world.kube.list(resource)).items
            conditions = [item for obj in objects for item in obj.get("status", {}).get("conditions") or ()]
            return any(item["status"] != "True" and DENIED in item.get("message", "") for item in conditions)

        await world.until(in_condition, 300)

        async def in_event() -> bool:
            messages = [event.get("message", "") for event in (await world.kube.list(CORE_EVENTS)).items]
            return any(DENIED in message and "controller's IAM policy" in message for message in messages)

        await world.until(in_event)
        pods = await world.pods("karpenter", CONTROLLER)
        logs = [await world.log(pod["metadata"]["name"], "karpenter") for pod in pods]
        assert any(DENIED in text for text in logs)
        assert not await world.claimed_nodes()

    play(body)


def _old_webhooks() -> list[tuple[Resource, dict[str, Any]]]:
    """As the chart of 0.31 registers them."""
    client = {"service": {"name": "karpenter", "namespace": "karpenter", "port": 8443}}
    common = {
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Fail",
        "sideEffects": "None",
    }
    rules = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resources]}
        for group, resources in (("karpenter.sh", "*"), ("karpenter.k8s.aws", "*"))
    ]
    selector = {"matchLabels": {"app.kubernetes.io/part-of": "karpenter"}}
    configs = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}]
    defaulting = {"clientConfig": {"service": {**client["service"], "path": "/default/karpenter.sh"}}}
    return [
        (kind, {"metadata": {"name": name}, "webhooks": [{"name": name, **common, **fields}]})
        for kind, name, fields in (
            (MUTATING_WEBHOOKS, "defaulting.webhook.karpenter.sh", {"rules": rules, **defaulting}),
            (VALIDATING_WEBHOOKS, "validation.webhook.karpenter.sh", {"rules": rules}),
            (
                VALIDATING_WEBHOOKS,
                "validation.webhook.config.karpenter.sh",
                {"rules": configs, "objectSelector": selector},
            ),
        )
    ]


def test_webhooks_of_an_old_chart_do_not_block_writes() -> None:
    """The controller in the pods answers them, also after the last replica that came is gone."""

    async def body(world: FreshCluster) -> None:
        await world.install()
        pods = await world.ready(2, CONTROLLER, "karpenter")
        for kind, configuration in _old_webhooks():
            await world.kube.create(kind, configuration)
        await world.kube.delete(PODS, pods[-1]["metadata"]["name"], "karpenter")
        await asyncio.sleep(1)
        labels = {"app.kubernetes.io/part-of": "karpenter"}
        settings = {"metadata": {"name": "karpenter-global-settings", "labels": labels}, "data": {"x": "y"}}
        await world.kube.create(CONFIGMAPS, settings, "karpenter")
        spec = {"providerRef": {"name": "default"}}
        made = await world.kube.create(PROVISIONERS, {"metadata": {"name": "old"}, "spec": spec})
        assert {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]} in made["spec"]["requirements"]
        await world.scale("karpenter", 0, "karpenter")
        await world.ready(0, CONTROLLER, "karpenter")
        with pytest.raises(ApiError, match="failed calling webhook"):
            await world.kube.create(PROVISIONERS, {"metadata": {"name": "older"}, "spec": spec})

    play(body)


def test_settings_of_an_old_chart_come_from_their_config_map() -> None:
    """The pods of 0.31 have no CLUSTER_NAME in their environment."""

    async def body(world: FreshCluster) -> None:
        await world.install()
        await world.ready(2, CONTROLLER, "karpenter")
        data = {"aws.clusterName": "dovetail", "batchIdleDuration": "2s"}
        await world.kube.create(
            CONFIGMAPS, {"metadata": {"name": "karpenter-global-settings"}, "data": data}, "karpenter"
        )
        held = await world.kube.get(DEPLOYMENTS, "karpenter", "karpenter")
        container = held["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [item for item in container["env"] if item["name"] != "CLUSTER_NAME"]
        await world.kube.update(DEPLOYMENTS, held)

        async def renewed() -> bool:
            pods = await world.pods("karpenter", CONTROLLER)
            old = [pod for pod in pods if "CLUSTER_NAME" in str(pod["spec"]["containers"][0].get("env"))]
            return len(pods) == 2 and not old and all(map(is_ready, pods))

        await world.until(renewed, 300)

    play(body)
