"""EKS in the lab: an account beside the cluster, nodes that come from EC2, and the autoscaler running as a pod.

The autoscaler is the very one `dovetail run` starts, with the very AWS calls; only the endpoint differs. It shows
itself as the Deployment `karpenter` in the namespace `karpenter`, so that the usual `kubectl logs` finds its lines.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.provider import Aws, AwsSettings
from dovetail.controllers import logs
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.resources import CONFIGMAPS, CRDS, DEPLOYMENTS, NAMESPACES
from dovetail.kube.transport import Request, Response
from dovetail.lab import metrics
from dovetail.lab.aws import account, controller_access
from dovetail.lab.aws.ec2 import Ec2, Timing
from dovetail.lab.aws.endpoint import ACCOUNT, Endpoint, new_credentials
from dovetail.lab.aws.eventbridge import Bridge
from dovetail.lab.aws.fault_injection import AwsFaults
from dovetail.lab.aws.initial_instances import register
from dovetail.lab.aws.node_groups import NodeGroups, create_configured
from dovetail.lab.aws.offerings import Market
from dovetail.lab.aws.pod_credentials import PodCredentials
from dovetail.lab.chart_registry import ChartRegistry
from dovetail.lab.cluster import Lab
from dovetail.lab.cluster_config import ClusterConfig
from dovetail.lab.instances import SimulatedInstance
from dovetail.lab.server import LabServer
from dovetail.model.kinds import crds

NAMESPACE = "karpenter"
IMAGE = "dovetail/controller"
KEPT_LINES = 20_000
#: Seconds of the lab until AWS is asked for prices.
FIRST_PRICES = 12 * 3600.0
#: Between two passes that name instances, in seconds.
UPKEEP = 60.0
_LOG = re.compile(rf"^/api/v1/namespaces/{NAMESPACE}/pods/{NAMESPACE}-[^/]+/log$")


class EksSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`families` narrows what EC2 sells; a small market answers quickly."""

    cluster_name: str = "dovetail"
    region: str = "ap-northeast-2"
    version: str = "1.36"
    timing: Timing = Timing()
    families: frozenset[str] | None = None
    gates: Mapping[str, bool] = {}
    aws_port: int = 0
    #: Whether the charts are served, for Helm.
    serves_charts: bool = False
    charts_port: int = 0
    #: Node groups to start with, and the network that they are in.
    config: ClusterConfig | None = None
    #: A cluster as EKS leaves it, without an autoscaler and all that it needs: an installation brings them.
    fresh: bool = False


class Eks:
    """An extra of the lab. `ready` is set once the account stands and the autoscaler runs."""

    def __init__(self, settings: EksSettings, api_url: str, ca: bytes) -> None:
        self.settings = settings
        #: The instances of the nodes that the lab starts with.
        self.initial_instances: Sequence[SimulatedInstance] = ()
        self.ready = asyncio.Event()
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.endpoint: Endpoint | None = None
        self.charts: ChartRegistry | None = None
        self.autoscaler: Autoscaler | None = None
        self.instances: Ec2 | None = None
        self._api_url = api_url
        self._ca = ca
        self._more = asyncio.Event()

    async def run(self, lab: Lab) -> None:
        """Until cancelled."""
        settings = self.settings
        self.charts = ChartRegistry(settings.charts_port) if settings.serves_charts else None
        try:
            await self._run(lab)
        finally:
            if self.charts is not None:
                self.charts.close()

    async def _run(self, lab: Lab) -> None:
        settings = self.settings
        if not settings.fresh:
            if isinstance(lab.server, LabServer):
                lab.server.middleware.insert(0, self.intercept_logs)
            await _install(lab, settings.cluster_name)
            await metrics.install(lab.kube)
        loop = asyncio.get_running_loop()
        market = Market(settings.region, settings.families)
        endpoint = await loop.run_in_executor(None, lambda: Endpoint(market, settings.aws_port, new_credentials()))
        self.endpoint = endpoint
        try:
            made = await loop.run_in_executor(None, lambda: self._account(endpoint))
            await _authorise(lab, made)
            config = settings.config
            if config is not None:
                await loop.run_in_executor(None, lambda: create_configured(endpoint, made, config))
            kubelet, chance = lab.client("kubelet"), lab.chance.child("ec2")
            bridge = Bridge(endpoint, made.queue, lab.clock, by_rules=True)
            self.instances = Ec2(endpoint, made, lab.fleet, kubelet, chance, settings.timing, bridge=bridge)
            if lab.faults is not None:
                lab.faults.strikes |= AwsFaults(endpoint, bridge, lab.clock, self.instances, lab.faults).kinds
            if lab.programs is not None:
                issuer = str(endpoint.backend("eks").clusters[made.cluster].identity["oidc"]["issuer"])
                lab.programs.aws = PodCredentials(endpoint, made.cluster, issuer, self.instances.role_of)
            async with asyncio.TaskGroup() as group:
                endpoint.scaling.now = lab.clock.now
                node_groups = NodeGroups(endpoint, made, kubelet, frozenset({made.node_group}))
                if settings.fresh:
                    nodes = await loop.run_in_executor(None, lambda: register(endpoint, made, self.initial_instances))
                    for instance_id, node in nodes.items():
                        self.instances.adopt(instance_id, node)
                else:
                    self._start_autoscaler(lab, endpoint, group)
                group.create_task(self.instances.run(), name="ec2 instances")
                group.create_task(node_groups.run(), name="node groups")
                self.ready.set()
        finally:
            endpoint.close()

    def _start_autoscaler(self, lab: Lab, endpoint: Endpoint, group: asyncio.TaskGroup) -> None:
        cloud = self._cloud(endpoint, lab)
        self.autoscaler = Autoscaler(
            lab.client("karpenter"),
            cloud,
            lab.clock,
            lab.chance.child("autoscaler"),
            self._settings(),
            log=logs.logger(lab.clock, write=self._line),
        )
        group.create_task(self.autoscaler.run(), name="autoscaler")
        group.create_task(self._prices(cloud), name="prices")
        ids = reconcile_ids(self.autoscaler.context.chance, "nodeclaim.tagging")
        naming = every(UPKEEP, cloud.name_instances, "nodeclaim.tagging", self.autoscaler.log, ids)
        group.create_task(naming, name="names of instances")

    def environment(self) -> dict[str, str]:
        charts = {"DOVETAIL_CHARTS": self.charts.address} if self.charts is not None else {}
        return {**self.endpoint.environment(), **charts} if self.endpoint is not None else charts

    async def intercept_logs(self, request: Request) -> Response | None:
        """The autoscaler's own lines as the log of its pod."""
        if request.method != "GET" or not _LOG.match(request.path):
            return None
        tail = request.parameter("tailLines")
        lines = list(self.lines)[-int(tail) :] if tail else list(self.lines)
        if request.parameter("follow") == "true":
            return Response(status=200, headers={"content-type": "text/plain"}, stream=self._follow(lines))
        return Response(status=200, headers={"content-type": "text/plain"}, body="".join(lines).encode())

    async def _follow(self, lines: list[str]) -> AsyncIterator[bytes]:
        yield "".join(lines).encode()
        last = self.lines[-1] if self.lines else None
        while True:
            await self._more.wait()
            fresh: list[str] = []
            for line in reversed(self.lines):
                if line is last:
                    break
                fresh.append(line)
            if fresh:
                last = fresh[0]
                yield "".join(reversed(fresh)).encode()

    def _line(self, line: str) -> None:
        self.lines.append(line if line.endswith("\n") else line + "\n")
        self._more.set()
        self._more = asyncio.Event()

    def _account(self, endpoint: Endpoint) -> account.AwsAccount:
        config = self.settings.config
        made = account.build(
            endpoint,
            self.settings.cluster_name,
            version=self.settings.version,
            api_url=self._api_url,
            ca=self._ca,
            cidr=config.cidr if config is not None else "",
            node_group=config is None,
            fresh=self.settings.fresh,
            oidc_provider=config is None or config.with_oidc,
        )
        if not self.settings.fresh:
            controller_access.grant(endpoint, made)
        return made

    def _cloud(self, endpoint: Endpoint, lab: Lab) -> Aws:
        settings = self.settings
        calls = Calls(lab.clock, region=settings.region, endpoint=endpoint.url, session=endpoint.session())
        return Aws(
            AwsSettings(
                cluster_name=settings.cluster_name,
                region=settings.region,
                interruption_queue=settings.cluster_name,
                queue_wait=1,  # a lab that is stopped does not wait for mail
            ),
            lab.clock,
            calls,
        )

    def _settings(self) -> Settings:
        gates = {**Settings().feature_gates, **self.settings.gates}
        return Settings(
            cluster_name=self.settings.cluster_name,
            interruption_queue=self.settings.cluster_name,
            metrics_port=0,
            health_probe_port=0,
            disable_leader_election=True,
            feature_gates=gates,
        )

    async def _prices(self, cloud: Aws) -> None:
        """The catalogue's prices are the market's own at first, so a lab need not ask for them while it starts."""
        while True:
            await asyncio.sleep(FIRST_PRICES)
            await cloud.pricing.refresh()


async def _install(lab: Lab, cluster: str) -> None:
    """Our kinds, and the Deployment that stands for us."""
    for definition in crds.definitions():
        await _create(lab, CRDS, definition)
    await _create(lab, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for kind, body, namespace in controller_access.objects(cluster, NAMESPACE):
        await _create(lab, kind, body, namespace)
    labels = {"app.kubernetes.io/instance": "karpenter", "app.kubernetes.io/name": "karpenter"}
    container = {
        "name": "controller",
        "image": IMAGE,
        "env": controller_access.settings(cluster),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "ports": [{"name": "http-metrics", "containerPort": 8080}, {"name": "http", "containerPort": 8081}],
    }
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}
                ]
            }
        }
    }
    await _create(
        lab,
        DEPLOYMENTS,
        {
            "metadata": {"name": "karpenter", "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": controller_access.NAME,
                        "containers": [container],
                        "affinity": affinity,
                        "priorityClassName": "system-cluster-critical",
                    },
                },
            },
        },
        NAMESPACE,
    )


async def _authorise(lab: Lab, made: account.AwsAccount) -> None:
    """aws-auth as EKS and the installer leave it: both node roles are mapped."""
    roles = "".join(
        f"- groups:\n  - system:bootstrappers\n  - system:nodes\n  rolearn: arn:aws:iam::{ACCOUNT}:role/{role}\n"
        "  username: system:node:{{EC2PrivateDNSName}}\n"
        for role in filter(None, (f"eks-{made.cluster}-nodes", made.node_role))
    )
    await _create(lab, CONFIGMAPS, {"metadata": {"name": "aws-auth"}, "data": {"mapRoles": roles}}, "kube-system")


async def _create(lab: Lab, kind: Any, body: dict[str, Any], namespace: str | None = None) -> None:
    try:
        await lab.kube.create(kind, body, namespace)
    except AlreadyExists:
        return  # a lab that kept its data has it already
