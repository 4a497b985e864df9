"""EC2 instances as nodes of the lab: they boot after a while, join if they may, and vanish when terminated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.cloud.aws import capacity, catalog
from dovetail.cloud.aws.awsauth import NODES, refusal
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS, DAEMONSETS, SERVICEACCOUNTS
from dovetail.lab.aws import user_data
from dovetail.lab.aws.account import AwsAccount
from dovetail.lab.aws.authorization import denial_of
from dovetail.lab.aws.eks_images import kubernetes_release, system_of
from dovetail.lab.aws.endpoint import ACCOUNT, AwsEndpoint
from dovetail.lab.aws.eventbridge import Bridge
from dovetail.lab.aws.permissions import Permission
from dovetail.lab.instances import SimulatedInstance, host_name
from dovetail.lab.kubelet.kubelets import Kubelets
from dovetail.lab.programs.execution import ROLE_ANNOTATION

LOOK_SECONDS = 0.5
RETRY_SECONDS = 10.0
CNI = "aws-node"
GONE = ("shutting-down", "terminated", "stopping", "stopped")


class Timing(msgspec.Struct, frozen=True):
    """Seconds from launch to joining, and from joining to Ready."""

    boot: float = 25.0
    spread: float = 10.0
    ready: float = 5.0


class Ec2:
    """Watches moto's instances. `stuck` has the reason for each running instance that cannot join."""

    def __init__(
        self,
        endpoint: AwsEndpoint,
        account: AwsAccount,
        fleet: Kubelets,
        kube: Kube,
        chance: Chance,
        timing: Timing | None = None,
        note: Callable[[str], None] = lambda line: None,
        bridge: Bridge | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._account = account
        self._fleet = fleet
        self._kube = kube
        self._chance = chance
        self._timing = timing or Timing()
        self._note = note
        self._bridge = bridge
        self._states: dict[str, str] = {}
        self._seen: dict[str, asyncio.Task[None]] = {}
        self._joined: dict[str, str] = {}
        self.stuck: dict[str, str] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                for instance in self._endpoint.instances():
                    self._look(instance, tasks)
                await asyncio.sleep(LOOK_SECONDS)

    def node_instances(self) -> dict[str, str]:
        """The nodes that are instances, and which."""
        return {node: instance for instance, node in self._joined.items()}

    def adopt(self, instance_id: str, node: str) -> None:
        """An instance of a node that the lab itself made: it is up, and its node ends with it."""
        self._joined[instance_id] = node

    def role_of(self, node: str) -> str:
        """The role of the instance that a node is; that of the first node group for the lab's own nodes."""
        instance_id = self.node_instances().get(node)
        instance = next((item for item in self._endpoint.instances() if item.id == instance_id), None)
        role = self._role(instance) if instance is not None else None
        return role or f"arn:aws:iam::{ACCOUNT}:role/eks-{self._account.cluster}-nodes"

    def _look(self, instance: Any, tasks: asyncio.TaskGroup) -> None:
        if self._bridge is not None and self._states.get(instance.id) != instance.state:
            self._states[instance.id] = instance.state
            self._bridge.state(instance.id, instance.state)
        if instance.state in GONE:
            if (started := self._seen.pop(instance.id, None)) is not None:
                started.cancel()
            self.stuck.pop(instance.id, None)
            if (node := self._joined.pop(instance.id, None)) is not None:
                self._fleet.vanish(node)
        elif instance.id not in self._seen and instance.id not in self._joined:
            self._seen[instance.id] = tasks.create_task(self._boot(instance), name=f"boot {instance.id}")

    async def _boot(self, instance: Any) -> None:
        delay = self._timing.boot + self._chance.child(instance.id).uniform(0, self._timing.spread)
        await asyncio.sleep(delay)
        intent = user_data.read(str(instance.user_data or ""))
        while (why := await self._refusal(instance, intent)) is not None:
            if self.stuck.get(instance.id) != why:
                self.stuck[instance.id] = why
                self._note(f"{instance.id} runs and has not joined: {why}")
            await asyncio.sleep(RETRY_SECONDS)  # a kubelet goes on asking; a mapping added later lets it in
        assert intent is not None
        self.stuck.pop(instance.id, None)
        simulated = self._simulated(instance, intent)
        self._joined[instance.id] = simulated.name
        await self._fleet.join(simulated, lambda: self._network(instance))

    async def _refusal(self, instance: Any, intent: user_data.Intent | None) -> str | None:
        if intent is None:
            return "its user data joins no cluster"
        if intent.cluster != self._account.cluster:
            return f"its user data joins the cluster {intent.cluster!r}, not {self._account.cluster!r}"
        try:
            config_map = await self._kube.get(CONFIGMAPS, "aws-auth", "kube-system", type=dict)
        except NotFound:
            config_map = {}
        entries = list(self._endpoint.front.entries.get(self._account.cluster, {}).values())
        role = self._role(instance)
        admitted = any(entry["principalArn"] == role and NODES in entry["kubernetesGroups"] for entry in entries)
        why = refusal(role, config_map.get("data"), admitted)
        if why is None and role is not None and not self._may(role, "ec2:DescribeInstances"):
            return f"{role} may not ec2:DescribeInstances, by which an instance learns its name"
        return why

    async def _network(self, instance: Any) -> None:
        """Wait until aws-node can give pods addresses, in a cluster that has it: before that its node is not ready."""
        noted = ""
        while why := await self._network_problem(self._role(instance) or ""):
            if why != noted:
                noted = why
                self._note(f"{instance.id} is a node without a network: {why}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _network_problem(self, node_role: str) -> str:
        try:
            await self._kube.get(DAEMONSETS, CNI, "kube-system", type=dict)
        except NotFound:
            return ""
        if not self._may(node_role, "ecr:GetAuthorizationToken"):
            return f"{node_role} may not pull the images of kube-system from ECR"
        try:
            account = await self._kube.get(SERVICEACCOUNTS, CNI, "kube-system", type=dict)
        except NotFound:
            account = {"metadata": {}}
        own = (account["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION, "")
        own = own or self._endpoint.pod_identity.role_of(self._account.cluster, "kube-system", CNI)
        role = own or node_role
        return "" if self._may(role, "ec2:AssignPrivateIpAddresses") else f"{role} may not ec2:AssignPrivateIpAddresses"

    def _may(self, role: str, action: str) -> bool:
        """Whether the role's policies allow an action on some resource."""
        principal = self._endpoint.authorization.named(role)
        return principal is not None and denial_of(principal, Permission(action, None)) is None

    def _role(self, instance: Any) -> str | None:
        profile = instance.iam_instance_profile
        if profile is None:
            return None
        name = profile["Arn"].rsplit("/", 1)[-1] if isinstance(profile, dict) else profile.name
        instance_profiles = self._endpoint.backend("iam", "aws").instance_profiles.values()
        held = next((p for p in instance_profiles if p.name == name), None)
        return f"arn:aws:iam::{ACCOUNT}:role/{held.roles[0].name}" if held is not None and held.roles else None

    def _simulated(self, instance: Any, intent: user_data.Intent) -> SimulatedInstance:
        spec = catalog.specs()[instance.instance_type]
        kubelet = capacity.KubeletConfig(max_pods=intent.max_pods)
        total = capacity.capacity(spec, kubelet=kubelet)
        kept = capacity.overhead(spec, kubelet=kubelet)
        zone = instance.placement.zone
        image = self._endpoint.backend("ec2").amis.get(instance.image_id)
        system = system_of(image.name if image is not None else "")
        return SimulatedInstance(
            name=host_name(instance.private_ip, self._account.region),
            provider_id=f"aws:///{zone}/{instance.id}",
            instance_type=instance.instance_type,
            zone=zone,
            region=self._account.region,
            ip=instance.private_ip,
            capacity=total,
            allocatable={name: amount - kept.get(name, 0) for name, amount in total.items()},
            capacity_type="spot" if instance.lifecycle == "spot" else "on-demand",
            arch="arm64" if spec.arches[:1] == ("arm64",) else "amd64",
            labels=dict(intent.labels),
            taints=tuple(intent.taints),
            attach_limit=catalog.attach_limits(spec).get(catalog.EBS_DRIVER, 25),
            ready_seconds=self._timing.ready,
            kubelet_version=system.kubelet_version or kubernetes_release(self._cluster_version()),
            os_image=system.os_image,
            kernel=system.kernel,
        )

    def _cluster_version(self) -> str:
        return str(self._endpoint.backend("eks").clusters[self._account.cluster].version)
