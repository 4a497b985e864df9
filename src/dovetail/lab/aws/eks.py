"""EKS in the lab: an account beside the cluster, nodes that come from EC2, and the autoscaler as it is installed.

The autoscaler is the pod of the chart's Deployment `karpenter` in the namespace `karpenter`, with its service account,
roles and IAM role; only the address of AWS differs. Without the Deployment nothing is launched.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.install.chart import Chart, Release, chart_directory
from dovetail.install.iam import Site
from dovetail.install.kubernetes_parts import resource_of
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.resources import CONFIGMAPS, CRDS, NAMESPACES, NODES, SERVICEACCOUNTS
from dovetail.lab import custom_metrics, metrics
from dovetail.lab.apiserver_only import StartError
from dovetail.lab.aws import account, controller_access, pod_identity_webhook
from dovetail.lab.aws.cluster_tokens import ClusterTokens
from dovetail.lab.aws.ec2 import Ec2, Timing
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint, new_credentials
from dovetail.lab.aws.eventbridge import Bridge
from dovetail.lab.aws.fargate import Fargate
from dovetail.lab.aws.fault_injection import AwsFaults
from dovetail.lab.aws.initial_instances import register
from dovetail.lab.aws.node_groups import NodeGroups, create_configured
from dovetail.lab.aws.offerings import LabOfferings
from dovetail.lab.aws.pod_credentials import PodCredentials
from dovetail.lab.aws.service_account_roles import create_roles
from dovetail.lab.chart_registry import ChartRegistry
from dovetail.lab.cluster import Lab
from dovetail.lab.cluster_config import ClusterConfig
from dovetail.lab.eksctl_fields import ConfigRefused
from dovetail.lab.instances import SimulatedInstance
from dovetail.lab.programs.execution import ROLE_ANNOTATION
from dovetail.lab.server import LabServer
from dovetail.model.kinds import crds

NAMESPACE = "karpenter"


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
    #: Whether the cluster has aws-node, kube-proxy and coredns.
    system_pods: bool = False
    #: Node groups to start with, and the network that they are in.
    config: ClusterConfig | None = None
    #: A cluster as EKS leaves it, without an autoscaler and all that it needs: an installation brings them.
    fresh: bool = False


class Eks:
    """An extra of the lab. `ready` is set once the account stands and the autoscaler is installed."""

    def __init__(self, settings: EksSettings, api_url: str, ca: bytes) -> None:
        self.settings = settings
        #: The instances of the nodes that the lab starts with.
        self.initial_instances: Sequence[SimulatedInstance] = ()
        self.ready = asyncio.Event()
        self.endpoint: AwsEndpoint | None = None
        self.charts: ChartRegistry | None = None
        self.instances: Ec2 | None = None
        self._api_url = api_url
        self._ca = ca

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
            for definition in crds.definitions():  # before AWS is there: manifests may be applied at once
                await _create(lab, CRDS, definition)
            await metrics.install(lab.kube)
            if lab.server is not None:
                await custom_metrics.register(lab.kube)
                lab.metrics.registry = lab.kube
        loop = asyncio.get_running_loop()
        market = LabOfferings(settings.region, settings.families)
        endpoint = await loop.run_in_executor(None, lambda: AwsEndpoint(market, settings.aws_port, new_credentials()))
        self.endpoint = endpoint
        try:
            made = await loop.run_in_executor(None, lambda: self._account(endpoint))
            await _authorise(lab, made)
            if lab.server is not None and lab.server.tokens is not None:
                _admit_principals(lab.server, endpoint, made.cluster)
            config = settings.config
            if config is not None:
                try:
                    await loop.run_in_executor(None, lambda: create_configured(endpoint, made, config))
                except ConfigRefused as problem:
                    raise StartError(f"--config: {problem}") from problem
            kubelet, chance = lab.client("kubelet"), lab.chance.child("ec2")
            bridge = Bridge(endpoint, made.queue, lab.clock, by_rules=True)
            self.instances = Ec2(endpoint, made, lab.fleet, kubelet, chance, settings.timing, bridge=bridge)
            if lab.faults is not None:
                lab.faults.handlers |= AwsFaults(endpoint, bridge, lab.clock, self.instances, lab.faults).kinds
            if lab.programs is not None:
                issuer = str(endpoint.backend("eks").clusters[made.cluster].identity["oidc"]["issuer"])
                lab.programs.aws = PodCredentials(endpoint, made.cluster, issuer, self.instances.role_of)
            role_of = functools.partial(endpoint.pod_identity.role_of, made.cluster)
            webhook = pod_identity_webhook.registered(
                lab.client("eks"), lab.server, lab.clock, settings.region, role_of
            )
            async with webhook, asyncio.TaskGroup() as group:
                endpoint.scaling.now = endpoint.trail.now = lab.clock.now
                await self._register_nodes(lab, endpoint, made)
                if not settings.fresh:
                    await _install(lab, self._site(endpoint, made), settings.gates)
                if config is not None:
                    await _create_service_accounts(lab, endpoint, config)
                node_groups = NodeGroups(endpoint, made, kubelet)
                group.create_task(self.instances.run(), name="ec2 instances")
                group.create_task(node_groups.run(), name="node groups")
                fargate = Fargate(
                    endpoint, made, lab.fleet, lab.client("eks"), lab.chance.child("fargate"), settings.timing
                )
                group.create_task(fargate.run(lab.clock, lab.server), name="fargate")
                if settings.system_pods:
                    endpoint.addons.install_defaults(made.cluster)
                first_nodes = sum(nodes.desired for nodes in config.groups) if config is not None else 0
                addons = endpoint.addons.run(lab.client("eks"), first_nodes=first_nodes)
                group.create_task(addons, name="add-ons")
                self.ready.set()
        finally:
            endpoint.close()

    async def _register_nodes(self, lab: Lab, endpoint: AwsEndpoint, made: account.AwsAccount) -> None:
        """Instances and a node group for the nodes that the lab started with."""
        assert self.instances is not None
        version = self.settings.version
        registered = await asyncio.get_running_loop().run_in_executor(
            None, lambda: register(endpoint, made, self.initial_instances, version)
        )
        for instance_id, node in registered.nodes.items():
            self.instances.adopt(instance_id, node)
        for node in registered.nodes.values():
            try:
                await lab.kube.patch(NODES, node, {"metadata": {"labels": registered.labels}})
            except NotFound:
                continue  # it has not joined, or is gone again

    def _site(self, endpoint: AwsEndpoint, made: account.AwsAccount) -> Site:
        """Without a queue where the ClusterConfig's `karpenter:` block has none."""
        site, config = controller_access.site(endpoint, made), self.settings.config
        if config is None or config.karpenter is None or config.karpenter.interruption_queue:
            return site
        return msgspec.structs.replace(site, queue="")

    def environment(self) -> dict[str, str]:
        charts = {"DOVETAIL_CHARTS": self.charts.address} if self.charts is not None else {}
        return {**self.endpoint.environment(), **charts} if self.endpoint is not None else charts

    def _account(self, endpoint: AwsEndpoint) -> account.AwsAccount:
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
            oidc_provider=not self.settings.fresh or config is None or config.with_oidc,
        )
        if not self.settings.fresh:
            controller_access.grant(endpoint, made)
        return made


def _admit_principals(server: LabServer, endpoint: AwsEndpoint, cluster: str) -> None:
    """Let in the tokens of `aws eks get-token`, and give their callers what their access policies grant."""

    def aws_auth() -> Mapping[str, str] | None:
        config_map = server.cluster.get("", "configmaps", "kube-system", "aws-auth")
        return None if config_map is None else config_map.get("data") or {}

    assert server.tokens is not None
    tokens = ClusterTokens(server.tokens, endpoint, cluster, aws_auth)
    server.tokens = tokens
    server.cluster.role_sources.append(tokens.granted_roles)


async def _install(lab: Lab, site: Site, gates: Mapping[str, bool]) -> None:
    """The objects of the chart, as `dovetail install` leaves them."""
    await _create(lab, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    values = {
        "replicas": 1,
        "serviceAccount": {"annotations": {ROLE_ANNOTATION: site.role_arn(site.controller_role)}},
        "controller": {"resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}},
        "settings": {
            "clusterName": site.cluster,
            "interruptionQueue": site.queue,
            "featureGates": {f"{name[0].lower()}{name[1:]}": is_open for name, is_open in gates.items()},
        },
    }
    release = Release(name=NAMESPACE, namespace=NAMESPACE)
    for body in Chart(chart_directory()).objects(release, values):
        resource = resource_of(body)
        namespace = body["metadata"].get("namespace", NAMESPACE) if resource.namespaced else None
        await _create(lab, resource, body, namespace)


async def _create_service_accounts(lab: Lab, endpoint: AwsEndpoint, config: ClusterConfig) -> None:
    try:
        bodies = await asyncio.get_running_loop().run_in_executor(None, lambda: create_roles(endpoint, config))
    except ConfigRefused as problem:
        raise StartError(f"--config: {problem}") from problem
    for body in bodies:
        namespace = body["metadata"]["namespace"]
        await _create(lab, NAMESPACES, {"metadata": {"name": namespace}})
        await _create(lab, SERVICEACCOUNTS, body, namespace)


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
