"""`dovetail doctor` and `explain` where the controller really runs: one fault fails one check, and explain names it.

Faults are what an operator can do with kubectl and aws; each is undone, and the cluster is healthy again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dovetail.install.doctor.facts import Status
from dovetail.kube import resources as kinds
from dovetail.lab.metrics import APISERVICES, GROUP
from tests.install.account_faults import document, role_policy, statement, without_inline_policy
from tests.install.object_faults import CLASS, POOL, controller, daemon_set, image
from tests.install.reversible_changes import Break, applied, both, edited, put, variable
from tests.install.running_cluster import NODE_CLASS, RunningCluster, play, workload
from tests.install.test_doctor_lab import with_status

#: Seconds until the controller has removed the nodes that a fault's pods had, and left safe mode.
HEALTHY_AGAIN_S = 1200.0
LOOK_INTERVAL_S = 60.0


class RunningFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, the check that fails or warns, and what explain says of a pod that waits meanwhile."""

    name: str
    check: str
    breaks: Break
    status: Status = Status.FAILED
    #: Of the remedy, a part that only the right one has.
    remedy: str = ""
    code: str = ""
    words: str = ""
    pod: dict[str, Any] | None = None
    settling_s: float = 90.0


def probe(**spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.7", "resources": {"requests": {"cpu": "3"}}}
    return {"metadata": {"name": "probe"}, "spec": {"containers": [container], **spec}}


@asynccontextmanager
async def class_deleted(site: Any) -> AsyncIterator[None]:
    """The class stays until its NodeClaims are gone."""
    await site.kube.delete(kinds.EC2NODECLASSES, "default")
    yield
    await site.kube.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "default")

    async def gone() -> bool:
        return not (await site.kube.list(kinds.EC2NODECLASSES)).items

    await site.until(gone, 900)
    await site.kube.create(kinds.EC2NODECLASSES, NODE_CLASS)
    await site.kube.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, "default")


def of_profile(name: str) -> Break:
    """The NodePool uses a class with this instance profile."""
    spec = {key: value for key, value in NODE_CLASS["spec"].items() if key != "role"}
    two = {"metadata": {"name": "two"}, "spec": {**spec, "instanceProfile": name}}
    return both(applied((kinds.EC2NODECLASSES, two)), edited(*POOL, put("spec.template.spec.nodeClassRef.name", "two")))


@asynccontextmanager
async def empty_profile(site: Any) -> AsyncIterator[None]:
    site.aws("iam").create_instance_profile(InstanceProfileName="empty")
    yield
    site.aws("iam").delete_instance_profile(InstanceProfileName="empty")


def deny(*actions: str) -> Break:
    return role_policy(document(statement("Deny", *actions)))


DELETE_DENIAL = "aws iam delete-role-policy --role-name KarpenterControllerRole-demo --policy-name further"
FAULTS = (
    RunningFault(
        name="no right to read EC2", check="D03", breaks=without_inline_policy("ResourceDiscovery"), code="UNAUTHORIZED"
    ),
    RunningFault(name="no right to read EKS", check="D03", breaks=deny("eks:DescribeCluster"), remedy=DELETE_DENIAL),
    RunningFault(
        name="no right to read prices",
        check="D03",
        breaks=deny("pricing:GetProducts"),
        status=Status.WARNING,
        remedy=DELETE_DENIAL,
    ),
    RunningFault(name="no right to pass the role", check="D05", breaks=deny("iam:PassRole"), remedy=DELETE_DENIAL),
    RunningFault(
        name="launches that fail",
        check="D05",
        breaks=of_profile("absent"),
        remedy="aws iam create-instance-profile --instance-profile-name absent && ",
        pod=probe(),
        words="Invalid IAM Instance Profile",
    ),
    RunningFault(
        name="a profile without a role",
        check="D05",
        breaks=both(empty_profile, of_profile("empty")),
        remedy="aws iam add-role-to-instance-profile --instance-profile-name empty --role-name KarpenterNodeRole-demo",
    ),
    RunningFault(
        name="another cluster's name",
        check="D09",
        breaks=controller(variable("CLUSTER_NAME", "other")),
        remedy="CLUSTER_NAME=demo",
        pod=probe(),
        code="BAD_NODECLASS",
    ),
    RunningFault(
        name="an image of another name",
        check="V01",
        breaks=controller(image("example.com/nothing:0")),
        settling_s=300.0,
        pod=probe(),
        code="NO_AUTOSCALER",
        words="once it runs: a node would be launched for it",
    ),
    RunningFault(
        name="no controller",
        check="D09",
        breaks=controller(put("spec.replicas", 0)),
        pod=probe(),
        code="NO_AUTOSCALER",
    ),
    RunningFault(
        name="a startup taint that nothing removes",
        check="D15",
        breaks=edited(*POOL, put("spec.template.spec.startupTaints", [{"key": "a/b", "effect": "NoSchedule"}])),
        settling_s=500.0,
        pod=probe(),
        code="STARTUP_TAINT",
    ),
    RunningFault(
        name="a DaemonSet that is larger than nodes",
        check="D12",
        breaks=applied(daemon_set("agent", container={"resources": {"requests": {"cpu": "90"}}})),
        remedy="kubectl set resources daemonset agent -n kube-system --requests=cpu=",
    ),
    RunningFault(
        name="a class selected by ids that are gone",
        check="D02",
        breaks=edited(*CLASS, put("spec.subnetSelectorTerms", [{"id": "subnet-0123456789abcdef0"}])),
        remedy='kubectl patch ec2nodeclass default --type=merge -p \'{"spec":{"subnetSelectorTerms":[{"id":"subnet-',
        pod=probe(),
        code="BAD_NODECLASS",
    ),
    RunningFault(
        name="a class by another name",
        check="V03",
        breaks=edited(*POOL, put("spec.template.spec.nodeClassRef.name", "absent")),
        remedy='{"nodeClassRef":{"name":"default"}}',
        pod=probe(),
        code="BAD_NODECLASS",
    ),
    RunningFault(name="a class that is deleted", check="V03", breaks=class_deleted, pod=probe(), code="BAD_NODECLASS"),
)


async def wrong(world: RunningCluster, fault: RunningFault) -> str:
    """What doctor and explain say wrong while the fault is there; empty if all is right."""
    async with fault.breaks(world):
        if fault.pod is not None:
            await world.kube.create(kinds.PODS, fault.pod, "default")
        await asyncio.sleep(fault.settling_s)
        findings = await world.findings()
        answer = await world.explain("pod/probe") if fault.pod is not None else None
        if fault.pod is not None:
            await world.kube.delete(kinds.PODS, "probe", "default")
    failed = with_status(findings, Status.FAILED)
    expected = {fault.check} if fault.status is Status.FAILED else set()
    if set(failed) != expected or fault.check not in with_status(findings, fault.status):
        return f"{fault.name}: failed {failed}"
    remedies = [row.remedy for row in findings if row.id == fault.check and row.status is fault.status]
    if not any(fault.remedy in remedy for remedy in remedies):
        return f"{fault.name}: remedies {remedies}"
    if answer is not None and (fault.code not in ("", answer.code) or fault.words not in answer.line):
        return f"{fault.name}: explain says {answer.line}"
    return ""


async def is_healthy(world: RunningCluster) -> bool:
    return not with_status(await world.findings(), Status.FAILED, Status.WARNING)


async def wait_until_healthy(world: RunningCluster) -> bool:
    """Looks once a minute: a look takes a hundred requests to AWS, in real time."""
    for _ in range(int(HEALTHY_AGAIN_S // LOOK_INTERVAL_S)):
        if await is_healthy(world):
            return True
        await asyncio.sleep(LOOK_INTERVAL_S)
    return False


async def prepare(world: RunningCluster) -> None:
    """Without a queue, since a long poll takes real time; with a workload on a launched node."""
    await world.kube.patch(
        kinds.DEPLOYMENTS,
        "karpenter",
        {
            "spec": {
                "template": {
                    "spec": {
                        "containers": [{"name": "controller", "env": [{"name": "INTERRUPTION_QUEUE", "value": ""}]}]
                    }
                }
            }
        },
        "karpenter",
        kind="strategic",
    )
    await asyncio.sleep(60)
    await world.start_workload()
    await asyncio.sleep(60)


def check_each(faults: Sequence[RunningFault]) -> None:
    async def body(world: RunningCluster) -> None:
        await prepare(world)
        assert await is_healthy(world)
        problems = []
        for fault in faults:
            problems.append(await wrong(world, fault))
            if not await wait_until_healthy(world):
                left = with_status(await world.findings(), Status.FAILED, Status.WARNING)
                problems.append(f"{fault.name}: left {left}")
        assert problems and not any(problems), "\n".join(filter(None, problems))

    play(body)


@pytest.mark.timeout(900)
def test_a_fault_in_a_running_cluster_fails_its_check_alone_and_explain_names_it() -> None:
    chosen = {"launches that fail", "no controller"}
    faults = [fault for fault in FAULTS if fault.name in chosen]
    assert len(faults) == len(chosen)
    check_each(faults)


HPA_SPEC: dict[str, Any] = {
    "maxReplicas": 4,
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    ],
}


@pytest.mark.timeout(900)
def test_an_hpa_without_metrics_server_is_reported_by_doctor_and_explain() -> None:
    """It is scaled to 0, then its registration is deleted; with both again the HPA reads its metric."""

    async def reported(world: RunningCluster) -> tuple[set[str], str]:
        await asyncio.sleep(60)
        return set(with_status(await world.findings(), Status.FAILED)), (await world.explain("hpa/web")).line

    async def body(world: RunningCluster) -> None:
        await world.kube.create(kinds.DEPLOYMENTS, workload("web", 1, cpu="100m"), "default")
        await world.kube.create(kinds.HPAS, {"metadata": {"name": "web"}, "spec": HPA_SPEC}, "default")
        failed, line = await reported(world)
        assert (failed, "no metric can be read" in line) == (set(), False)

        server = (kinds.DEPLOYMENTS, "metrics-server", put("spec.replicas", 0), "kube-system")
        async with edited(*server)(world):
            failed, line = await reported(world)
            assert failed == {"D20"}
            assert "the server is currently unable to handle the request (get pods.metrics.k8s.io)" in line
            assert line.endswith("; dovetail doctor --only D20 says what is wrong with the metrics server")

        registered = await world.kube.get(APISERVICES, GROUP)
        await world.kube.delete(APISERVICES, GROUP)
        failed, line = await reported(world)
        assert (failed, "the server could not find the requested resource" in line) == ({"D20"}, True)

        await world.kube.create(APISERVICES, {"metadata": {"name": GROUP}, "spec": registered["spec"]})
        failed, line = await reported(world)
        assert (failed, "no metric can be read" in line) == (set(), False)

    play(body)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_fault_in_a_running_cluster_fails_its_check_alone() -> None:
    check_each(FAULTS)
