"""AWS behind the cloud seam: each question goes to the small module that knows the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import capacity, cluster, drift, fleet, machines, nodeclass
from dovetail.cloud.aws.ageing import Ageing
from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.errors import CAPACITY_CODES, SPOT_ROLE_CODE, code_of, explain, is_not_found, message_of
from dovetail.cloud.aws.images import Images
from dovetail.cloud.aws.messages import Queue
from dovetail.cloud.aws.network import Network, Subnet
from dovetail.cloud.aws.pricing import REFRESH, Pricing
from dovetail.cloud.aws.profiles import Profiles
from dovetail.cloud.aws.reservations import Reservations
from dovetail.cloud.aws.status import Resolver
from dovetail.cloud.aws.templates import IDLE, Blueprint, Templates
from dovetail.cloud.aws.types import Types
from dovetail.cloud.aws.userdata import Boot, render
from dovetail.cloud.protocol import (
    CloudError,
    Interruption,
    Launch,
    LaunchOption,
    Machine,
    MachineNotFound,
    NodeClassNotReady,
    NodeClassStatus,
    NodeRole,
    Remedy,
    RepairPolicy,
)
from dovetail.cloud.unavailable import Unavailable
from dovetail.model.instancetype import InstanceType

T = TypeVar("T")

NAME_TAG = "Name"
EFA = "vpc.amazonaws.com/efa"
ENCLAVE = "eks.amazonaws.com/nitro-sandbox"

_REPAIRS = (
    ("Ready", "False", 1800), ("Ready", "Unknown", 1800), ("AcceleratedHardwareReady", "False", 600),
    ("StorageReady", "False", 1800), ("NetworkingReady", "False", 1800), ("KernelReady", "False", 1800),
    ("ContainerRuntimeReady", "False", 1800),
)


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """By Karpenter's flags. Empty endpoint, certificate and version are asked of EKS."""

    cluster_name: str
    region: str
    cluster_endpoint: str = ""
    cluster_ca_bundle: str = ""
    kubernetes_version: str = ""
    interruption_queue: str = ""
    queue_wait: int = 20
    vm_memory_overhead_percent: float = capacity.VM_MEMORY_OVERHEAD
    reserved_enis: int = 0
    isolated_vpc: bool = False
    ami_refresh_interval: float = 60.0
    subnet_refresh_interval: float = 60.0
    aws_endpoint: str | None = None


class Aws:
    """A provider over one account, region and cluster."""

    name = "aws"
    node_class_required = True

    def __init__(self, settings: AwsSettings, clock: Clock, calls: Calls | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self.calls = calls or Calls(clock, region=settings.region, endpoint=settings.aws_endpoint)
        self.unavailable = Unavailable(clock)
        self.pricing = Pricing(self.calls, clock, isolated=settings.isolated_vpc)
        self._network = Network(self.calls, clock, settings.subnet_refresh_interval)
        self._images = Images(self.calls, clock, settings.ami_refresh_interval)
        self._profiles = Profiles(self.calls, clock, settings.cluster_name)
        self.templates = Templates(self.calls, clock, settings.cluster_name)
        self._machines = machines.Machines(self.calls, settings.cluster_name)
        self._reservations = Reservations(self.calls, clock)
        limits = capacity.Settings(
            memory_overhead=settings.vm_memory_overhead_percent, reserved_enis=settings.reserved_enis
        )
        self._types = Types(self.calls, clock, self.pricing, self.unavailable, limits)
        self._resolver = Resolver(self._network, self._images, self._profiles, self._version, self._tags)
        queue, wait = settings.interruption_queue, settings.queue_wait
        self._queue = Queue(self.calls, clock, queue, wait) if queue else None
        self._priced: Ageing[None] = Ageing(clock, REFRESH)
        self._swept: Ageing[None] = Ageing(clock, IDLE / 2)
        self._facts: cluster.ClusterFacts | None = None
        self._bought: dict[str, Machine] | None = None
        self._starting = asyncio.Lock()

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]:
        spec = node_class["spec"]
        subnets = await self._asked(self._network.subnets(spec.get("subnetSelectorTerms") or ()))
        held = await self._asked(self._reservations.select(spec.get("capacityReservationSelectorTerms") or ()))
        zones = {subnet.zone: subnet.zone_id for subnet in subnets}
        return await self._asked(self._types.list(node_class, zones, held))

    async def launch(self, launch: Launch) -> Machine:
        known = await self._asked(self._known())
        if launch.token in known:
            return known[launch.token]
        kind, options = fleet.choose(launch.options, _flexible(launch.claim))
        found = await self._buy(launch, kind, options)
        known[launch.token] = found
        return found

    async def get(self, provider_id: str) -> Machine:
        return await self._asked(self._machines.get(provider_id))

    async def machines(self) -> tuple[Machine, ...]:
        found = await self._asked(self._machines.all())
        self._bought = {machine.claim_uid: machine for machine in found if machine.claim_uid}
        return found

    async def terminate(self, provider_id: str) -> None:
        found = await self.get(provider_id)
        if found.state != "shutting-down":
            await self._asked(self._machines.end(provider_id))

    async def resolve(self, node_class: Mapping[str, Any]) -> NodeClassStatus:
        found = await self._resolver.resolve(node_class)
        return msgspec.structs.replace(found, annotations=drift.fingerprint(node_class))

    async def release(self, node_class: Mapping[str, Any]) -> None:
        meta = node_class["metadata"]
        await self._asked(self.templates.release(meta["name"]))
        if not self._settings.isolated_vpc:
            await self._asked(self._profiles.release(meta.get("uid", "")))

    async def drift(self, claim: Mapping[str, Any], machine: Machine, node_class: Mapping[str, Any]) -> str | None:
        return drift.reason(claim, machine, node_class)

    async def node_role(self, node_class: Mapping[str, Any]) -> NodeRole | None:
        profile = (node_class.get("status") or {}).get("instanceProfile")
        arn = await self._asked(self._profiles.role_arn(profile)) if profile else None
        if arn is None:
            return None
        return NodeRole(arn, await self._asked(cluster.admits(self.calls, self._settings.cluster_name, arn)))

    async def interruptions(self) -> AsyncIterator[Sequence[Interruption]]:
        if self._queue is None:
            return
        async for batch in self._queue.receive():
            yield batch

    async def acknowledge(self, messages: Sequence[Interruption]) -> None:
        if self._queue is not None:
            await self._asked(self._queue.acknowledge(messages))

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        return tuple(
            RepairPolicy(condition_type=kind, condition_status=status, toleration_seconds=float(seconds))
            for kind, status, seconds in _REPAIRS
        )

    async def refresh(self) -> None:
        """What is due: prices twice a day, idle launch templates twice an hour. Old prices stay where AWS fails."""

        async def price() -> None:
            await self.pricing.refresh()
            self._types.forget()

        await self._asked(self._priced.get("prices", price))
        await self._asked(self._swept.get("templates", self.templates.sweep))

    async def _buy(self, launch: Launch, kind: str, options: Sequence[LaunchOption]) -> Machine:
        spec = launch.node_class["spec"]
        pods = min((o.instance_type.capacity.get("pods", 0) for o in options), default=0)
        subnets = self._network.by_zone(await self._asked(self._network.subnets(spec["subnetSelectorTerms"])), pods)
        configs = await self._configs(launch, kind, options, subnets)
        tags = self._launch_tags(launch)
        asked = fleet.request(kind, configs, tags, launch.token, spec.get("context"))
        try:
            bought, refusals = await self._asked(self._fleet(kind, asked, configs))
        except CloudError:
            self._network.give_back(subnets, set(), pods)
            raise
        self._network.give_back(subnets, {bought.subnet} if bought else set(), pods)
        self._remember(refusals)
        if bought is None:
            raise fleet.failure(refusals)
        chosen = next(
            (o for o in options if (o.instance_type.name, o.offering.zone) == (bought.instance_type, bought.zone)), None
        )
        return self._machine(launch, bought, kind, chosen, tags)

    async def _fleet(
        self, kind: str, asked: dict[str, Any], configs: Sequence[Mapping[str, Any]]
    ) -> tuple[fleet.Bought | None, tuple[fleet.Refusal, ...]]:
        """Buy; a template deleted under us is forgotten, so that the retry makes it anew."""
        try:
            return await fleet.buy(self.calls, kind, asked)
        except Exception as error:
            if is_not_found(error):
                for config in configs:
                    self.templates.forget(config["LaunchTemplateSpecification"]["LaunchTemplateName"])
            raise

    async def _configs(
        self, launch: Launch, kind: str, options: Sequence[LaunchOption], subnets: Mapping[str, Subnet]
    ) -> list[dict[str, Any]]:
        """One launch template for each image and pod count among the options, with its overrides."""
        groups: dict[tuple[str, int], list[LaunchOption]] = {}
        images = await self._asked(
            self._images.select(launch.node_class["spec"].get("amiSelectorTerms") or (), await self._version())
        )
        for option in options:
            image = next((i for i in images if i.suits(option.instance_type.labels)), None)
            if image is not None:
                groups.setdefault((image.id, option.instance_type.capacity.get("pods", 0)), []).append(option)
        configs = []
        for (image_id, pods), members in groups.items():
            listed = fleet.overrides(members, subnets, image_id)
            if listed:
                name = await self._template(launch, kind, image_id, pods, members)
                configs.append({
                    "LaunchTemplateSpecification": {"LaunchTemplateName": name, "Version": "$Latest"},
                    "Overrides": listed,
                })
        if not configs:
            raise CloudError(
                "InsufficientCapacityError",
                "no subnet with free addresses and no image fits any of the requested offerings",
                Remedy.NEXT_OFFERING,
            )
        return configs

    async def _template(
        self, launch: Launch, kind: str, image_id: str, pods: int, members: Sequence[LaunchOption]
    ) -> str:
        node_class = launch.node_class
        spec = node_class["spec"]
        status = node_class.get("status") or {}
        groups = tuple(group["id"] for group in status.get("securityGroups") or ())
        profile = status.get("instanceProfile")
        if not groups or not profile:
            raise NodeClassNotReady(
                f"EC2NodeClass {node_class['metadata']['name']!r} has no"
                f" {'security groups' if not groups else 'instance profile'} in its status yet"
            )
        requests = ((launch.claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
        blueprint = Blueprint(
            family=nodeclass.family_name(spec),
            image_id=image_id,
            profile=profile,
            groups=groups,
            user_data=render(nodeclass.family_name(spec), await self._boot(launch, kind, pods)),
            spec=spec,
            tags=self._tags(node_class),
            capacity_type=kind,
            efa=max(o.instance_type.capacity.get(EFA, 0) for o in members) if EFA in requests else 0,
            enclave=ENCLAVE in requests,
            reservation_id=members[0].offering.reservation_id if kind == "reserved" else None,
        )
        return await self._asked(self.templates.ensure(blueprint, node_class["metadata"]["name"]))

    async def _boot(self, launch: Launch, kind: str, pods: int) -> Boot:
        facts = await self._cluster()
        spec = launch.node_class["spec"]
        block: Mapping[str, Any] = spec.get("kubelet") or {}
        labels = dict(launch.labels) | {"karpenter.sh/capacity-type": kind, "karpenter.sh/do-not-sync-taints": "true"}
        return Boot(
            cluster_name=facts.name,
            endpoint=facts.endpoint,
            ca_bundle=facts.ca_bundle,
            service_cidr=facts.service_cidr,
            cluster_dns=facts.cluster_dns,
            ipv6=facts.ipv6,
            labels=labels,
            taints=launch.taints,
            kubelet=block,
            max_pods=pods,
            raid0=spec.get("instanceStorePolicy") == "RAID0",
            custom=spec.get("userData"),
        )

    def _machine(
        self, launch: Launch, bought: fleet.Bought, kind: str, chosen: LaunchOption | None, tags: Mapping[str, str]
    ) -> Machine:
        labels = dict(launch.labels)
        room: Mapping[str, int] = {}
        left: Mapping[str, int] = {}
        if chosen is not None:
            labels |= {k: v[0] for k, v in chosen.instance_type.labels.items() if len(v) == 1}
            labels |= chosen.offering.labels
            room, left = chosen.instance_type.capacity, chosen.instance_type.allocatable
        labels |= {
            "node.kubernetes.io/instance-type": bought.instance_type,
            "topology.kubernetes.io/zone": bought.zone,
            "karpenter.sh/capacity-type": kind,
        }
        return Machine(
            provider_id=machines.provider_id(bought.zone, bought.instance_id),
            instance_type=bought.instance_type,
            zone=bought.zone,
            capacity_type=kind,
            image_id=bought.image_id,
            capacity=room,
            allocatable=left,
            labels=labels,
            created=self._clock.now(),
            claim_uid=launch.token,
            claim_name=launch.claim["metadata"]["name"],
            node_pool=tags.get(machines.POOL_TAG),
            tags=tags,
            annotations=drift.fingerprint(launch.node_class),
            network={"subnet": bought.subnet},
        )

    def _remember(self, refusals: Sequence[fleet.Refusal]) -> None:
        for refusal in refusals:
            if refusal.code == "InsufficientFreeAddressesInSubnet" and refusal.subnet:
                self._network.exhausted(refusal.subnet)
            elif refusal.code == SPOT_ROLE_CODE:
                self.unavailable.mark(("*", "*", "spot"))
            elif refusal.code in CAPACITY_CODES:
                self.unavailable.mark(refusal.key)

    def _tags(self, node_class: Mapping[str, Any]) -> dict[str, str]:
        """Tags of everything that is made for a node class."""
        name = self._settings.cluster_name
        return {
            **(node_class["spec"].get("tags") or {}),
            f"kubernetes.io/cluster/{name}": "owned",
            machines.CLUSTER_TAG: name,
            machines.CLASS_TAG: node_class["metadata"]["name"],
        }

    def _launch_tags(self, launch: Launch) -> dict[str, str]:
        meta = launch.claim["metadata"]
        pool = (meta.get("labels") or {}).get("karpenter.sh/nodepool", "")
        return self._tags(launch.node_class) | {
            **launch.tags,
            NAME_TAG: (launch.node_class["spec"].get("tags") or {}).get(NAME_TAG, f"{pool}/{meta['name']}"),
            machines.POOL_TAG: pool,
            machines.CLAIM_TAG: meta["name"],
            machines.UID_TAG: launch.token,
        }

    async def _known(self) -> dict[str, Machine]:
        """Machines by the claim they were bought for; read once, so that a new life finds the old one's purchases."""
        async with self._starting:
            if self._bought is None:
                found = await self._machines.all()
                self._bought = {machine.claim_uid: machine for machine in found if machine.claim_uid}
        return self._bought

    async def _cluster(self) -> cluster.ClusterFacts:
        async with self._starting:
            if self._facts is None:
                self._facts = await cluster.describe(
                    self.calls, self._settings.cluster_name, endpoint=self._settings.cluster_endpoint,
                    ca_bundle=self._settings.cluster_ca_bundle, version=self._settings.kubernetes_version,
                )
        return self._facts

    async def _version(self) -> str:
        return (await self._cluster()).version

    async def _asked(self, answer: Awaitable[T]) -> T:
        """Await an answer; AWS's errors come out as ours."""
        try:
            return await answer
        except (CloudError, asyncio.CancelledError):
            raise
        except Exception as error:  # whatever botocore raises is classified in one place
            raise explain(code_of(error), message_of(error)) from error


def _flexible(claim: Mapping[str, Any]) -> bool:
    requirements = (claim.get("spec") or {}).get("requirements") or ()
    return any(requirement.get("minValues") for requirement in requirements)


__all__ = ["Aws", "AwsSettings", "MachineNotFound"]
