"""A running EKS cluster in virtual time: the controller, DNS and metrics-server are pods, nodes come from EC2."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from dovetail.cli.cluster_session import ClusterSession
from dovetail.cli.explain_subjects import ExplainOptions, answer, subject_of
from dovetail.clock import run_virtual
from dovetail.cloud.aws.client import Calls
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain import Answer
from dovetail.install.doctor.checks import report
from dovetail.install.doctor.collect import collect
from dovetail.install.doctor.facts import Facts, Finding
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.aws import account
from dovetail.lab.aws.ec2 import Timing
from dovetail.lab.aws.eks import Eks, EksSettings
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.initial_instances import labelled
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.instances import plain_pool
from tests.lab.programs.program_pods import ProgramLab

CLUSTER, REGION, URL = "demo", "ap-northeast-2", "https://127.0.0.1:6443"
ZONES = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
NODE_ROLE, CONTROLLER_ROLE = f"KarpenterNodeRole-{CLUSTER}", f"KarpenterControllerRole-{CLUSTER}"
DISCOVERY = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
NODE_CLASS: dict[str, Any] = {
    "metadata": {"name": "default"},
    "spec": {
        "role": NODE_ROLE,
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": DISCOVERY,
        "securityGroupSelectorTerms": DISCOVERY,
    },
}
CLASS_REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def node_pool(name: str = "default", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"nodeClassRef": CLASS_REFERENCE, "requirements": [ON_DEMAND], **spec.pop("template", {})}}
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    settings = {"template": template, "limits": {"cpu": "100"}, "disruption": disruption, **spec}
    return {"metadata": {"name": name}, "spec": settings}


def workload(name: str, replicas: int = 1, cpu: str = "1", **pod: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.7", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **pod}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


class RunningCluster(ProgramLab):
    def __init__(self, lab: Lab, eks: Eks) -> None:
        super().__init__(lab)
        self.eks = eks

    @property
    def endpoint(self) -> AwsEndpoint:
        assert self.eks.endpoint is not None
        return self.eks.endpoint

    def aws(self, service: str) -> Any:
        return account.client(self.endpoint, service)

    async def facts(self) -> Facts:
        """What doctor reads, with the operator's credentials."""
        endpoint = self.endpoint
        calls = Calls(self.lab.clock, region=REGION, endpoint=endpoint.url, session=endpoint.session())
        try:
            return await collect(Kube(self.lab.transport, self.lab.clock), calls, server=URL)
        finally:
            calls.close()

    async def findings(self, *, pre: bool = False) -> list[Finding]:
        return report(await self.facts(), pre=pre)

    async def explain(self, subject: str, **question: Any) -> Answer:
        """What `dovetail explain` answers."""
        state = ClusterState(self.kube, self.lab.clock)
        state.tolerate_absent(kinds.NODEPOOLS, kinds.NODECLAIMS)
        cluster = ClusterSession(self.kube, state, self.lab.clock.now())
        await cluster.read()
        return await answer(cluster, subject_of([subject], "default"), ExplainOptions(verbose=True, **question), None)

    async def start_workload(self) -> None:
        """A NodePool, its class, and pods that need a node of it."""
        await self.kube.create(kinds.EC2NODECLASSES, NODE_CLASS)
        await self.kube.create(kinds.NODEPOOLS, node_pool())
        selected = {"nodeSelector": {"karpenter.sh/nodepool": "default"}}
        await self.kube.create(kinds.DEPLOYMENTS, workload("web", 2, **selected), "default")

        async def placed() -> bool:
            pods = await self.pods("default", "app=web")
            return len(pods) == 2 and all(pod["status"].get("phase") == "Running" for pod in pods)

        await self.until(placed, 300)


def play(body: Callable[[RunningCluster], Awaitable[None]], *, nodes: int = 3, **settings: Any) -> None:
    async def main() -> None:
        chosen = {"families": frozenset({"m5", "c5", "t3"}), "timing": Timing(20.0, 0.0, 2.0), "system_pods": True}
        eks = Eks(EksSettings(cluster_name=CLUSTER, **(chosen | settings)), URL, b"certificate")
        eks.initial_instances = labelled(plain_pool(nodes, "m5.large", ZONES))
        try:
            async with Lab.embedded(1, LabParts(programs=True)) as lab:
                assert lab.server is not None
                seed_defaults(lab.server, lab.clock.now())
                lab.add(eks.run)
                await lab.join(eks.initial_instances)
                await eks.ready.wait()
                await body(RunningCluster(lab, eks))
        finally:
            if eks.endpoint is not None:
                eks.endpoint.forget()

    run_virtual(main())
