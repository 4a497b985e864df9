"""AWS behind the cloud interface: each question goes to the small module that knows the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import capacity, drift, eks, instance_status, instances, periodic_tasks
from dovetail.cloud.aws.amis import Images
from dovetail.cloud.aws.api_server import ApiServerInfo
from dovetail.cloud.aws.assumed_role import AssumedRole
from dovetail.cloud.aws.capacity_reservations import Reservations
from dovetail.cloud.aws.client import OUR_SHARE, Calls
from dovetail.cloud.aws.create_fleet import RefusedOffering
from dovetail.cloud.aws.errors import asked
from dovetail.cloud.aws.instance_profiles import IDLE_S, Profiles
from dovetail.cloud.aws.instance_types import Types
from dovetail.cloud.aws.launch import FleetLauncher, LaunchDependencies
from dovetail.cloud.aws.launch_template_params import LaunchConfigs, full
from dovetail.cloud.aws.launch_templates import IDLE, LaunchTemplates
from dovetail.cloud.aws.nodeclass_status import Resolver
from dovetail.cloud.aws.nodeclass_validation import DryRunLaunch
from dovetail.cloud.aws.observer import SILENT, CallObserver
from dovetail.cloud.aws.periodic_tasks import PeriodicTask
from dovetail.cloud.aws.placement_groups import PlacementGroups, selector
from dovetail.cloud.aws.pricing import REFRESH, Pricing
from dovetail.cloud.aws.read_only import ReadOnlyCalls
from dovetail.cloud.aws.sqs import InterruptionQueue
from dovetail.cloud.aws.subnets import Network
from dovetail.cloud.aws.ttl_cache import TtlCache
from dovetail.cloud.provider import (
    UNAUTHORIZED,
    CloudError,
    Instance,
    InstanceNotFound,
    Interruption,
    LaunchRequest,
    NodeClassStatus,
    NodeRole,
    Remedy,
    RepairPolicy,
)
from dovetail.cloud.unavailable_offerings import UnavailableOfferings
from dovetail.language import source
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import RESERVATION

#: How long the cluster's own facts are believed, in seconds: its version changes with an upgrade.
FACTS = 300.0
#: How many seconds EC2 may take until it shows an instance that was launched.
SHOWN = 3.0
#: How many instances are named at once: each takes a call.
MOST_NAMED = 40

_REPAIRS = (
    ("Ready", "False", 1800),
    ("Ready", "Unknown", 1800),
    ("AcceleratedHardwareReady", "False", 600),
    ("StorageReady", "False", 1800),
    ("NetworkingReady", "False", 1800),
    ("KernelReady", "False", 1800),
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
    disable_dry_run: bool = False
    reserved_capacity: bool = True
    eks_control_plane: bool = True
    tags: Mapping[str, str] = {}
    ec2_share: float = OUR_SHARE
    assume_role_arn: str = ""
    assume_role_duration: float = 900.0
    aws_endpoint: str | None = None
    read_only: bool = False
    """Refuse every call that may change the account: a dry run's."""


class Aws:
    """A provider over one account, region and cluster."""

    name = "aws"
    node_class_required = True

    def __init__(
        self,
        settings: AwsSettings,
        clock: Clock,
        calls: Calls | None = None,
        *,
        api_server: Callable[[], Awaitable[ApiServerInfo]] | None = None,
    ) -> None:
        """`api_server` tells what the cluster says of itself; without it EKS is asked for everything."""
        self._settings = settings
        self._clock = clock
        self._api_server = api_server
        self.calls = calls or _calls(settings, clock)
        self.observer: CallObserver = SILENT
        self.unavailable = UnavailableOfferings(clock)
        self.pricing = Pricing(self.calls, clock, isolated=settings.isolated_vpc)
        self._network = Network(self.calls, clock, settings.subnet_refresh_interval)
        self._images = Images(self.calls, clock, settings.ami_refresh_interval)
        self._profiles = Profiles(self.calls, clock, settings.cluster_name)
        self.templates = LaunchTemplates(self.calls, clock, settings.cluster_name)
        self._instances = instances.Ec2Instances(self.calls, settings.cluster_name, self._batch)
        self._reservations = Reservations(self.calls, clock, enabled=settings.reserved_capacity)
        self._placement = PlacementGroups(self.calls, clock)
        limits = capacity.CapacitySettings(
            memory_overhead=settings.vm_memory_overhead_percent, reserved_enis=settings.reserved_enis
        )
        self._types = Types(self.calls, clock, self.pricing, self.unavailable, limits)
        configs = LaunchConfigs(
            self._images, self.templates, self._cluster, self._tags, open_reservations=not settings.reserved_capacity
        )
        self._rehearsal = DryRunLaunch(
            self.calls, clock, self._network, self._placement, configs, self._types_of, self._tags
        )
        self._resolver = self._nodeclass_resolver()
        self._launcher = self._fleet_launcher(configs)
        queue, wait = settings.interruption_queue, settings.queue_wait
        self._queue = InterruptionQueue(self.calls, clock, queue, wait) if queue else None
        self._prices = self._price_chores()
        self._leaders_chores = self._chores_of_leader()
        self._facts: TtlCache[eks.ClusterFacts] = TtlCache(clock, FACTS)
        self._last_facts: eks.ClusterFacts | None = None
        self._launched_by_claim: dict[str, Instance] = {}
        self._looked: float | None = None
        self._sure = False
        self._unnamed: tuple[Instance, ...] = ()
        self._starting = asyncio.Lock()

    def _nodeclass_resolver(self) -> Resolver:
        return Resolver(
            self._network,
            self._images,
            self._profiles,
            self.templates,
            self._reservations,
            self._placement,
            None if self._settings.disable_dry_run else self._rehearsal,
            self._version,
            self._tags,
            iam=not self._settings.isolated_vpc,
        )

    def _fleet_launcher(self, configs: LaunchConfigs) -> FleetLauncher:
        dependencies = LaunchDependencies(
            self.calls,
            self._network,
            self._placement,
            configs,
            self.templates,
            self._reservations,
            self.unavailable,
            self._tags,
        )
        return FleetLauncher(dependencies, self._clock, self._refused, self._batch)

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]:
        return await self._types_of(node_class)

    async def _types_of(self, node_class: Mapping[str, Any]) -> tuple[InstanceType, ...]:
        spec = node_class["spec"]
        subnets = await asked(self._network.subnets(spec.get("subnetSelectorTerms") or ()))
        reservations = await asked(self._reservations.select(spec.get("capacityReservationSelectorTerms") or ()))
        zones = {subnet.zone: subnet.zone_id for subnet in subnets if self._network.has_addresses(subnet)}
        if subnets and not zones:
            raise full(node_class, {subnet.zone for subnet in subnets})
        group = await asked(self._placement.of(node_class))
        return await asked(self._types.list(node_class, zones, reservations, group))

    async def launch(self, launch: LaunchRequest) -> Instance:
        launched = await asked(self._known())
        if launch.token in launched:
            return launched[launch.token]
        try:
            instance = await self._launcher.launch_fleet(launch)
        except CloudError as problem:
            if problem.remedy is Remedy.RETRY:  # it may have been sold all the same, and the answer lost
                self._looked, self._sure = self._clock.monotonic(), False
            raise
        marks = drift.fingerprint(launch.node_class, await self._certificate())
        self._launched_by_claim[launch.token] = instance = msgspec.structs.replace(instance, annotations=marks)
        return instance

    async def get(self, provider_id: str) -> Instance:
        return await asked(self._instances.get(provider_id))

    async def instances(self) -> tuple[Instance, ...]:
        return await asked(self._look())

    async def terminate(self, provider_id: str) -> None:
        instance = await self.get(provider_id)
        if self._instances.is_foreign(instance):
            owner = instance.tags[instances.CLUSTER_TAG]
            raise CloudError(
                "InstanceOfOtherCluster",
                source(
                    "{provider_id} is tagged {tag}={owner}, and is not terminated for cluster {cluster}; correct the"
                    " providerID of the NodeClaim or Node, or --cluster-name"
                ).format(
                    provider_id=provider_id,
                    tag=instances.CLUSTER_TAG,
                    owner=owner,
                    cluster=self._settings.cluster_name,
                ),
                Remedy.OPERATOR,
            )
        if instance.state != "shutting-down":
            try:
                await asked(self._instances.end(provider_id))
            except InstanceNotFound:
                raise
            except CloudError:
                self.observer.termination_failed(instance.zone, self._network.zone_id(instance.zone))
                raise
            self._reservations.given_back(instance.labels.get(RESERVATION, ""))

    async def reboot(self, provider_id: str, operation: str) -> None:
        await asked(self._instances.restart(provider_id))

    async def resolve(
        self, node_class: Mapping[str, Any], node_pools: Sequence[Mapping[str, Any]] = ()
    ) -> NodeClassStatus:
        resolution = await self._resolver.resolve(node_class, node_pools)
        return msgspec.structs.replace(resolution, annotations=drift.fingerprint(node_class, await self._certificate()))

    async def release(self, node_class: Mapping[str, Any]) -> None:
        meta = node_class["metadata"]
        self._rehearsal.forget(meta["name"])
        await asked(self.templates.release(meta["name"]))
        if self._settings.isolated_vpc:
            return
        try:
            await asked(self._profiles.release(meta.get("uid", "")))
        except CloudError as problem:
            # A class with a profile of its own has most likely none of ours, and its role may lack every IAM right.
            if problem.reason != UNAUTHORIZED or not node_class["spec"].get("instanceProfile"):
                raise

    async def drift(self, claim: Mapping[str, Any], instance: Instance, node_class: Mapping[str, Any]) -> str | None:
        return drift.reason(claim, instance, node_class, await self._certificate(), await self._group(node_class))

    async def node_role(self, node_class: Mapping[str, Any]) -> NodeRole | None:
        profile = (node_class.get("status") or {}).get("instanceProfile")
        if not profile or self._settings.isolated_vpc:
            return None
        try:
            arn = await asked(self._profiles.role_arn(profile))
        except CloudError as problem:
            if problem.reason == UNAUTHORIZED:
                return None  # the role may not ask IAM: which role it is stays unknown
            raise
        if arn is None:
            return None
        return NodeRole(arn, await eks.admits(self.calls, self._settings.cluster_name, arn))

    async def interruptions(self) -> AsyncIterator[Sequence[Interruption]]:
        if self._queue is None:
            return
        while True:
            if batch := await asked(self._queue.receive()):
                yield batch

    async def acknowledge(self, messages: Sequence[Interruption]) -> None:
        if self._queue is not None:
            await asked(self._queue.acknowledge(messages))

    async def unhealthy(self) -> Sequence[Interruption]:
        return await asked(instance_status.unhealthy(self.calls, self._clock.now()))

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        """The first stands in for unknown reasons; the others take any reason."""
        return tuple(
            RepairPolicy(
                condition_type=kind,
                condition_status=status,
                toleration_seconds=float(seconds),
                grace_seconds=0.0,
                reason_regex=".*" if number else "",
            )
            for number, (kind, status, seconds) in enumerate(_REPAIRS)
        )

    async def refresh(self) -> None:
        """What is due: prices twice a day, idle launch templates and profiles twice an hour, names of instances.

        Each by itself: old prices stay where AWS fails, and templates are swept all the same.
        """
        await periodic_tasks.act([*self._prices, *self._leaders_chores])

    async def refresh_prices(self) -> None:
        """Prices alone, if they are due: of use to a replica that does not lead."""
        await periodic_tasks.act(self._prices)

    def _price_chores(self) -> list[PeriodicTask]:
        return [
            PeriodicTask(self._clock, "spot prices", REFRESH, self._price(self.pricing.refresh_spot)),
            PeriodicTask(self._clock, "on-demand prices", REFRESH, self._price(self.pricing.refresh_on_demand)),
        ]

    def _chores_of_leader(self) -> list[PeriodicTask]:
        """What changes the account: only the replica that leads does it."""
        chores = [
            PeriodicTask(self._clock, "launch templates", IDLE / 2, self.templates.sweep),
            PeriodicTask(self._clock, "instance names", 0.0, self.name_instances),
        ]
        if not self._settings.isolated_vpc:
            chores.append(PeriodicTask(self._clock, "instance profiles", IDLE_S / 2, self._profiles.sweep))
        return chores

    def _price(self, refresh: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            await refresh()
            self._types.forget()

        return act

    async def name_instances(self) -> None:
        """Instances that were launched together get the names of their claims, some at a time."""
        now, self._unnamed = self._unnamed[:MOST_NAMED], self._unnamed[MOST_NAMED:]
        for instance in now:
            await asked(self._instances.name(instance))

    def _tags(self, node_class: Mapping[str, Any]) -> dict[str, str]:
        """Tags of everything that is made for a node class."""
        name = self._settings.cluster_name
        return {
            **self._settings.tags,
            **(node_class["spec"].get("tags") or {}),
            f"kubernetes.io/cluster/{name}": "owned",
            instances.CLUSTER_TAG: name,
            instances.CLASS_TAG: node_class["metadata"]["name"],
        }

    async def _look(self) -> tuple[Instance, ...]:
        listed = await self._instances.all()
        self._launched_by_claim = {instance.claim_uid: instance for instance in listed if instance.claim_uid}
        self._unnamed = tuple(instance for instance in listed if instance.claim_name and not instances.named(instance))
        if self._looked is None:
            self._looked = self._clock.monotonic()
        return listed

    async def _known(self) -> dict[str, Instance]:
        """Instances by the claim they were launched for.

        A new life looks twice before it launches, and finds the purchases of the one before even if EC2 did not show
        them at first; after a purchase without an answer there is another look.
        """
        async with self._starting:
            if self._looked is None:
                await self._look()
            if not self._sure:
                await asyncio.sleep(max(0.0, (self._looked or 0.0) + SHOWN - self._clock.monotonic()))
                await self._look()
                self._sure = True
        return self._launched_by_claim

    async def _cluster(self) -> eks.ClusterFacts:
        async with self._starting:
            return await self._facts.get("cluster", self._describe_cluster)

    async def _describe_cluster(self) -> eks.ClusterFacts:
        """The cluster now; where EKS does not answer, as it was."""
        settings = self._settings
        try:
            self._last_facts = await eks.describe(
                self.calls,
                settings.cluster_name,
                endpoint=settings.cluster_endpoint,
                ca_bundle=settings.cluster_ca_bundle,
                version=settings.kubernetes_version,
                eks_version=settings.eks_control_plane or self._api_server is None,
                api=await self._api_server() if self._api_server else None,
            )
        except CloudError:
            if self._last_facts is None:
                raise
        return self._last_facts

    def observe(self, observer: CallObserver) -> None:
        """Report calls, refusals, failed terminations and batches to it from now on."""
        self.observer = observer
        self.calls.observers.append(observer.call)

    def _refused(self, refusal: RefusedOffering) -> None:
        _, zone, kind = refusal.key
        self.observer.launch_refused(zone, self._network.zone_id(zone), kind, refusal.code)

    def _batch(self, batcher: str, size: int, seconds: float) -> None:
        self.observer.batch(batcher, size, seconds)

    async def _group(self, node_class: Mapping[str, Any]) -> str | None:
        """The id of a class's placement group, empty if it wants none; None where it is not known."""
        if not selector(node_class):
            return ""
        try:
            group = await asked(self._placement.of(node_class))
        except CloudError:
            return None
        return group.id if group else None

    async def _version(self) -> str:
        return (await self._cluster()).version

    async def _certificate(self) -> str:
        try:
            return (await self._cluster()).ca_bundle
        except CloudError:
            return ""


def _calls(settings: AwsSettings, clock: Clock) -> Calls:
    """The AWS client of the settings: of the assumed role if there is one, read-only in a dry run."""
    role = AssumedRole(settings.assume_role_arn, int(settings.assume_role_duration))
    client = ReadOnlyCalls if settings.read_only else Calls
    return client(
        clock,
        region=settings.region,
        endpoint=settings.aws_endpoint,
        share=settings.ec2_share,
        role=role if role.arn else None,
    )


__all__ = ["Aws", "AwsSettings", "InstanceNotFound"]
