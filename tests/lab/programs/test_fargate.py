"""Fargate profiles in the lab: selected pods get nodes of their own, and the autoscaler leaves those alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from dovetail.kube.resources import CORE_EVENTS, DAEMONSETS, NAMESPACES, NODECLAIMS, NODES, PODS
from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.fargate_profiles import (
    PROFILE_LABEL,
    SCHEDULER,
    Profile,
    capacity_for,
    profile_for,
    unsupported,
)
from dovetail.model.labels import COMPUTE_TYPE
from tests.lab.programs import test_authorization as authorization
from tests.lab.programs.program_pods import is_ready
from tests.lab.programs.test_installed_autoscaler import FreshCluster, play

served, endpoint = authorization.served, authorization.endpoint
ROLE = f"arn:aws:iam::{ACCOUNT}:role/FargatePodExecutionRole"


def create_role(endpoint: AwsEndpoint, service: str = "eks-fargate-pods.amazonaws.com") -> None:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    account.client(endpoint, "iam").create_role(RoleName="FargatePodExecutionRole", AssumeRolePolicyDocument=document)


def create_profile(endpoint: AwsEndpoint, cluster: str, *selectors: dict[str, Any], name: str = "fp") -> None:
    account.client(endpoint, "eks").create_fargate_profile(
        clusterName=cluster, fargateProfileName=name, podExecutionRoleArn=ROLE, selectors=list(selectors)
    )


def pod(name: str = "app", *, cpu: str = "", memory: str = "", **spec: Any) -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    container = {"name": "c", "image": "nginx", "resources": {"requests": requests} if requests else {}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest.mark.parametrize(
    ("cpu", "memory", "provisioned"),
    [
        ("", "", "0.25vCPU 0.5GB"),
        ("100m", "256Mi", "0.25vCPU 0.5GB"),
        ("100m", "257Mi", "0.25vCPU 1GB"),
        ("250m", "2Gi", "0.5vCPU 3GB"),
        ("1", "8Gi", "2vCPU 9GB"),
        ("4", "29Gi", "4vCPU 30GB"),
        ("4", "30Gi", "8vCPU 32GB"),
        ("16", "119Gi", "16vCPU 120GB"),
    ],
)
def test_a_pod_gets_the_smallest_combination_that_holds_it_and_256_mb_more(
    cpu: str, memory: str, provisioned: str
) -> None:
    assert str(capacity_for(pod(cpu=cpu, memory=memory))) == provisioned


def test_init_containers_count_alone_sidecars_and_containers_together_and_too_much_is_too_much() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [container("600m"), container("300m")], "initContainers": [container("2")]}
    assert str(capacity_for({"spec": spec})) == "2vCPU 4GB"
    spec["initContainers"] = [container("200m", restartPolicy="Always")]
    assert str(capacity_for({"spec": spec})) == "2vCPU 4GB"
    spec["initContainers"] = [container("100m")]
    assert str(capacity_for({"spec": spec})) == "1vCPU 2GB"
    assert capacity_for(pod(memory="120Gi")) is None


def test_a_profile_is_chosen_by_namespace_labels_and_wildcards_and_the_first_name_wins() -> None:
    def profile(name: str, namespace: str, **labels: str) -> Profile:
        return Profile(name=name, role_arn=ROLE, selectors=((namespace, labels),))

    profiles = [profile("b", "prod*"), profile("a", "prod-web", tier="f?ont"), profile("c", "other")]

    def chosen(namespace: str, labels: dict[str, str], **metadata: Any) -> str:
        found = profile_for(profiles, {"metadata": {"labels": labels, **metadata}, "spec": {}}, namespace)
        return found.name if found is not None else ""

    assert chosen("prod-web", {"tier": "front"}) == "a"
    assert chosen("prod-web", {"tier": "frront"}) == "b"
    assert chosen("prod-web", {"tier": "front", PROFILE_LABEL: "b"}) == "b"
    assert chosen("prod-web", {PROFILE_LABEL: "c"}) == ""
    assert chosen("default", {}) == ""
    assert chosen("prod-web", {}, ownerReferences=[{"kind": "DaemonSet"}]) == ""
    assert chosen("prod-web", {}, annotations={COMPUTE_TYPE: "ec2"}) == ""


def test_what_fargate_cannot_run_is_named_as_its_scheduler_names_it() -> None:
    privileged = {"name": "c", "securityContext": {"privileged": True}, "ports": [{"hostPort": 80}]}
    found = unsupported({"spec": {"containers": [privileged], "volumes": [{"name": "d", "hostPath": {}}]}}, {})
    assert found == (
        "Pod not supported on Fargate: invalid SecurityContext fields: Privileged, port contains HostIP or HostPort,"
        " volumes not supported: d is of an unsupported volume Type"
    )
    assert unsupported(pod(hostNetwork=True), {}).endswith("fields not supported: HostNetwork")
    claimed = pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    assert "v not supported because: PVC data not bound" in unsupported(claimed, {"data": None})
    assert "v is of an unsupported volume Type" in unsupported(claimed, {"data": "ebs.csi.aws.com"})
    assert unsupported(claimed, {"data": "efs.csi.aws.com"}) == ""


def test_a_profile_needs_a_role_that_trusts_fargate(endpoint: AwsEndpoint) -> None:
    account.build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:1", ca=b"")
    with pytest.raises(ClientError, match="cannot be found"):
        create_profile(endpoint, "demo", {"namespace": "web"})
    create_role(endpoint, "ec2.amazonaws.com")
    with pytest.raises(ClientError, match=r"Misconfigured PodExecutionRole Trust Policy; Please add the eks-fargate"):
        create_profile(endpoint, "demo", {"namespace": "web"})
    account.client(endpoint, "iam").delete_role(RoleName="FargatePodExecutionRole")
    create_role(endpoint)
    create_profile(endpoint, "demo", {"namespace": "web"})
    eks = account.client(endpoint, "eks")
    assert eks.list_fargate_profiles(clusterName="demo")["fargateProfileNames"] == ["fp"]
    entry = eks.describe_access_entry(clusterName="demo", principalArn=ROLE)["accessEntry"]
    assert entry["type"] == "FARGATE_LINUX"


async def in_thread(act: Any, *arguments: Any) -> None:
    await asyncio.get_running_loop().run_in_executor(None, lambda: act(*arguments))


DAEMON = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "fluent-bit", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"app": "fluent-bit"}},
        "template": {
            "metadata": {"labels": {"app": "fluent-bit"}},
            "spec": {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "fluent-bit"}]},
        },
    },
}
NOT_ON_FARGATE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": COMPUTE_TYPE, "operator": "NotIn", "values": ["fargate"]}]}
            ]
        }
    }
}


@pytest.mark.timeout(400)
def test_a_selected_pod_gets_a_fargate_node_that_goes_with_it_and_daemons_stay_pending_there() -> None:
    async def body(world: FreshCluster) -> None:
        kube = world.kube
        create_role(world.endpoint)
        await kube.create(NAMESPACES, {"metadata": {"name": "web"}})
        task = in_thread(create_profile, world.endpoint, "dovetail", {"namespace": "web", "labels": {"tier": "front"}})
        await task
        wanted = pod("app", cpu="1", memory="8Gi")
        wanted["metadata"]["labels"] = {"tier": "front"}
        await kube.create(PODS, wanted, "web")
        created = await kube.get(PODS, "app", "web")
        assert created["spec"]["schedulerName"] == SCHEDULER
        assert created["spec"]["priorityClassName"] == "system-node-critical"
        assert created["metadata"]["labels"][PROFILE_LABEL] == "fp"
        other = await kube.create(PODS, pod("other"), "web")
        assert other["spec"]["schedulerName"] == "default-scheduler"

        async def runs() -> bool:
            return is_ready(await kube.get(PODS, "app", "web"))

        await world.until(runs, 300)
        node = await _fargate_node(world)
        _check_node(node)
        placed = await kube.get(PODS, "app", "web")
        assert placed["spec"]["nodeName"] == node["metadata"]["name"]
        assert placed["metadata"]["annotations"]["CapacityProvisioned"] == "2vCPU 9GB"

        # the DaemonSet's pod on the Fargate node stays pending; with the walk-through's affinity there is none
        await kube.create(DAEMONSETS, DAEMON, "default")
        await asyncio.sleep(60)
        pending = [item for item in await world.pods("default", "app=fluent-bit") if not item["spec"].get("nodeName")]
        assert len(pending) == 1
        assert "Too many pods" in pending[0]["status"]["conditions"][0]["message"]
        spec = {"template": {"spec": {"affinity": NOT_ON_FARGATE}}}
        await kube.patch(DAEMONSETS, "fluent-bit", {"spec": spec}, "default")
        await asyncio.sleep(120)
        daemons = await world.pods("default", "app=fluent-bit")
        assert len(daemons) == 3 and all(is_ready(item) for item in daemons)

        await kube.delete(PODS, "app", "web")

        async def gone() -> bool:
            return not (await kube.list(NODES, labels=f"{COMPUTE_TYPE}=fargate")).items

        await world.until(gone, 300)
        interfaces = account.client(world.endpoint, "ec2").describe_network_interfaces()["NetworkInterfaces"]
        assert not [row for row in interfaces if row["Description"] == "fargate"]

    play(body)


async def _fargate_node(world: FreshCluster) -> dict[str, Any]:
    (node,) = (await world.kube.list(NODES, labels=f"{COMPUTE_TYPE}=fargate")).items
    return dict(node)


def _check_node(node: dict[str, Any]) -> None:
    name, labels = node["metadata"]["name"], node["metadata"]["labels"]
    assert name.startswith("fargate-ip-10-0-") and name.endswith(".ap-northeast-2.compute.internal")
    assert labels["kubernetes.io/hostname"] == name.removeprefix("fargate-")
    assert "node.kubernetes.io/instance-type" not in labels
    assert node["spec"]["taints"] == [{"key": COMPUTE_TYPE, "value": "fargate", "effect": "NoSchedule"}]
    assert node["spec"]["providerID"].endswith(f"/{name}")
    capacity = node["status"]["capacity"]
    assert (capacity["cpu"], capacity["memory"], capacity["pods"]) == ("2", "9Gi", "1")


@pytest.mark.timeout(400)
def test_a_pod_that_fargate_refuses_says_why_and_the_autoscaler_buys_nothing_for_it() -> None:
    async def body(world: FreshCluster) -> None:
        create_role(world.endpoint)
        assert await world.install() > 0
        await in_thread(create_profile, world.endpoint, "dovetail", {"namespace": "web"})
        await world.kube.create(NAMESPACES, {"metadata": {"name": "web"}})
        await world.kube.create(PODS, pod("host", hostNetwork=True), "web")
        await world.kube.create(PODS, pod("app", cpu="1"), "web")

        async def reported() -> bool:
            events = (await world.kube.list(CORE_EVENTS, "web")).items
            return any("fields not supported: HostNetwork" in event["message"] for event in events)

        async def runs() -> bool:
            return is_ready(await world.kube.get(PODS, "app", "web"))

        await world.until(reported)
        await world.until(runs, 300)
        # ten minutes of consolidation: the node of Fargate stays, and nothing is launched
        await asyncio.sleep(600)
        assert is_ready(await world.kube.get(PODS, "app", "web"))
        assert not (await world.kube.list(NODECLAIMS)).items
        node = await _fargate_node(world)
        assert not node["spec"].get("unschedulable") and len(node["spec"]["taints"]) == 1

    play(body)
