"""All controllers together, on a client, a cloud and a clock: the autoscaler as `dovetail run` and the lab run it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from dovetail import language
from dovetail.chance import Chance
from dovetail.clock import Clock, virtual
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import Cloud
from dovetail.cloud.read_only import ReadOnlyCloud
from dovetail.cluster.snapshot import SnapshotBuilder
from dovetail.cluster.state import ClusterState
from dovetail.cluster.workload_selectors import Selectors
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.controller import DisruptionController
from dovetail.controllers.events import EventPublisher
from dovetail.controllers.health_server import serving
from dovetail.controllers.history import store
from dovetail.controllers.history.decisions import DecisionHistory, DecisionStore
from dovetail.controllers.history.external_deletions import ExternalDeletions
from dovetail.controllers.instance_types import InstanceTypes
from dovetail.controllers.interruption import Interruptions
from dovetail.controllers.legacy.machine import MachineViews
from dovetail.controllers.legacy.node_repair import LegacyRepair
from dovetail.controllers.legacy.provisioner import ProvisionerMigration
from dovetail.controllers.memory_limit import keep_below
from dovetail.controllers.metrics.aws_calls import AwsMetrics
from dovetail.controllers.metrics.condition_transitions import ConditionTransitions
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.metrics.gauges import sheet
from dovetail.controllers.metrics.loop_lag import measure_lag
from dovetail.controllers.metrics.pod_latency import PodLatency
from dovetail.controllers.node.reboot import Reboots
from dovetail.controllers.node.taint_expiry import TaintExpiry
from dovetail.controllers.node.termination.controller import Termination
from dovetail.controllers.node.termination.do_not_disrupt import DoNotDisruptController
from dovetail.controllers.nodeclaim.capacity_reservation import CapacityReservations
from dovetail.controllers.nodeclaim.consistency import Consistency
from dovetail.controllers.nodeclaim.creation import NodeClaimCreator
from dovetail.controllers.nodeclaim.disruption_conditions import DisruptionConditions
from dovetail.controllers.nodeclaim.garbage_collection import GarbageCollection
from dovetail.controllers.nodeclaim.lifecycle import Lifecycle
from dovetail.controllers.nodeclaim.registration_diagnosis import RegistrationDiagnosis
from dovetail.controllers.nodeclass import NodeClasses
from dovetail.controllers.nodepool.controller import NodePools
from dovetail.controllers.nodepool.registration_health import RegistrationHealth
from dovetail.controllers.nodepool.static import StaticCapacity
from dovetail.controllers.pod_deletion_cost import DeletionCosts
from dovetail.controllers.profiling import serving_profiles
from dovetail.controllers.provisioning.provisioner import Provisioner
from dovetail.controllers.python_gc import collect_when_idle
from dovetail.controllers.rights import MissingRights
from dovetail.controllers.safemode import DISABLING, SafeMode
from dovetail.controllers.safemode_monitor import SafeModeMonitor
from dovetail.controllers.settings import Settings
from dovetail.controllers.shadow.controller import Shadow
from dovetail.controllers.supervision import Supervisor
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.events import EventRecorder
from dovetail.kube.lease import LeaderElection, LeadershipLost
from dovetail.model.scheduler_config import default_constraints
from dovetail.planner.snapshot import MinValues, Preferences


class Controller(Protocol):
    async def run(self) -> None: ...


class SimulatedInstances(Protocol):
    """Simulated instances: `recover` finds those of an earlier leader, `run` simulates them."""

    async def recover(self) -> None: ...

    async def run(self) -> None: ...


class Start(Protocol):
    """What a cloud needs before this process may stand for election, and whether it is reachable since."""

    async def ready(self, provider_ids: Sequence[str]) -> None:
        """Wait until the cloud is usable; raises where it is not the cloud of these instances."""
        ...

    def waiting_for(self) -> str: ...

    def outage(self) -> str | None: ...


#: Makes a controller from the context.
MakeController = Callable[[Context], Controller]
#: Every controller, in the order it is started. Each takes the context and runs until cancelled.
CONTROLLERS: tuple[MakeController, ...] = (
    ConditionTransitions,
    ProvisionerMigration,
    NodeClasses,
    NodePools,
    ExternalDeletions,
    Lifecycle,
    RegistrationDiagnosis,
    TaintExpiry,
    Provisioner,
    GarbageCollection,
    Consistency,
    SafeModeMonitor,
    Termination,
    DoNotDisruptController,
    DisruptionConditions,
    DisruptionController,
    Interruptions,
    LegacyRepair,
    Reboots,
    CapacityReservations,
    StaticCapacity,
    DeletionCosts,
    MachineViews,
)
#: What runs in a dry run: one controller that records, and the observer that writes decisions to their file.
SHADOW_CONTROLLERS: tuple[MakeController, ...] = (SafeModeMonitor, Shadow)
#: How often it is logged, in seconds, that the cluster cannot be read yet.
SYNC_LOG_INTERVAL_S = 10.0


class Autoscaler:
    """Made once; `run` watches, waits for the lease if asked to, and leads until cancelled."""

    def __init__(
        self,
        kube: Kube,
        cloud: Cloud,
        clock: Clock,
        chance: Chance,
        settings: Settings,
        *,
        log: FilteringBoundLogger | None = None,
        identity: str = "dovetail",
        lease: Kube | None = None,
        start: Start | None = None,
        instances: SimulatedInstances | None = None,
        namespace: str = "",
        controllers: Sequence[MakeController] | None = None,
    ) -> None:
        """`namespace` is that of the pod we run in, if we run in one: the lease is there unless settings say otherwise.

        `lease` is a client of its own for the election, so that nothing of ours can delay it.

        `instances` are those of a simulated cloud: they run while this process leads.

        `controllers` are those that run instead of ours; a study of another autoscaler replaces some of them.
        """
        self._controllers = tuple(CONTROLLERS if controllers is None else controllers)
        self._instances = instances
        self._start = start
        self._started = start is None
        self.settings = settings
        self.log = log or logs.logger(clock, level=settings.log_level, encoding=settings.log_encoding)
        self.metrics = Metrics(clock)
        if isinstance(cloud, Aws):
            cloud.observe(AwsMetrics(self.metrics.registry))
        if settings.dry_run:
            kube, cloud = kube.read_only(), ReadOnlyCloud(cloud)
        kube = kube.observed(self.metrics.runtime.observe_request)
        self.cluster_state = ClusterState(kube, clock)
        self.supervisor = Supervisor(clock, chance.child("supervisor"), self.metrics, self.log)
        self.cluster_state.listener_failed = lambda problem: self.supervisor.report("listener", problem)
        self._spread = default_constraints(settings.scheduler_config)
        self._selectors = Selectors(kube) if self._spread else None
        self.safety = SafeMode(clock, self.metrics, self.log)
        self.rights = MissingRights(clock, self.metrics, self.log)
        chosen = settings.leader_election_namespace or settings.system_namespace
        self.namespace = chosen or namespace or store.NAMESPACE
        self.election = self._leader_election(lease or kube, identity)
        writer = kube.fenced(self.election.check) if self.election else kube
        dropped = self.metrics.runtime.events_dropped.inc
        self._recorder = EventRecorder(writer, "karpenter", on_drop=dropped, silent=settings.dry_run)
        self.decision_history = DecisionHistory(clock, chance.child("decisions"), self._store(writer))
        self.context = self._context(writer, cloud, clock, chance)
        if not settings.disable_cluster_state_observability:
            self.metrics.sources.append(lambda: sheet(self.context))

    def _leader_election(self, kube: Kube, identity: str) -> LeaderElection | None:
        """The election, with its metrics; None for a process that leads alone, and for a dry run, which never leads."""
        settings, runtime = self.settings, self.metrics.runtime
        election = (
            None
            if settings.disable_leader_election or settings.dry_run
            else LeaderElection(kube, settings.leader_election_name, self.namespace, identity)
        )
        alone = settings.disable_leader_election and not settings.dry_run
        master = runtime.master.labels(settings.leader_election_name)
        master.set_function(lambda: float(alone if election is None else election.leading))
        slow = runtime.slow_path.labels(settings.leader_election_name)
        if election is not None:
            election.on_slow_path = slow.inc
        return election

    def _context(self, kube: Kube, cloud: Cloud, clock: Clock, chance: Chance) -> Context:
        """What every controller is given; `kube` writes only while this process leads."""
        settings = self.settings
        return Context(
            kube=kube,
            cloud=cloud,
            clock=clock,
            chance=chance,
            settings=settings,
            cluster_state=self.cluster_state,
            snapshot_builder=SnapshotBuilder(
                self.cluster_state,
                preferences=Preferences(settings.preference_policy),
                min_values=MinValues(settings.min_values_policy),
                default_spread=self._spread,
                selectors=self._selectors,
            ),
            instance_types=InstanceTypes(
                self.cluster_state,
                cloud,
                clock,
                self.log,
                overlays=settings.gate("NodeOverlay"),
                without_status=settings.dry_run,
            ),
            nodeclaim_creator=NodeClaimCreator(kube, self.cluster_state),
            decision_history=self.decision_history,
            safety=self.safety,
            health=RegistrationHealth(),
            metrics=self.metrics,
            pod_latency=PodLatency(clock, self.metrics),
            event_publisher=EventPublisher(self._recorder, clock),
            rights=self.rights,
            log=self.log,
        )

    def _store(self, kube: Kube) -> DecisionStore:
        if self.settings.history:
            return store.File(Path(self.settings.history))
        if self.settings.dry_run:
            return store.File(store.shadow_file())
        return store.ConfigMaps(kube, self.namespace)

    async def run(self) -> None:
        settings = self.settings
        language.use("en")  # for this task and those it starts: events, logs and status are read by everyone
        async with (
            serving(
                self.metrics,
                self.problems,
                settings.metrics_port,
                settings.health_probe_port,
                self.remarks,
                self.supervisor.unrecovered,
            ),
            serving_profiles(settings.profiling_port) if settings.enable_profiling else nullcontext(),
            asyncio.TaskGroup() as group,
        ):
            if not virtual():
                group.create_task(measure_lag(self.metrics.runtime.loop_lag), name="loop lag")
            if settings.memory_limit > 0:
                group.create_task(keep_below(settings.memory_limit, self.log), name="memory limit")
            group.create_task(self.supervisor.supervise("cluster-state", self.cluster_state.run), name="cluster state")
            if self._selectors is not None:
                group.create_task(self.supervisor.supervise("selectors", self._selectors.run), name="selectors")
            if self._start is not None:
                await self._read()
                await self._start.ready(self._provider_ids())
                self._started = True
            if self.election is None:
                await self.lead()
            else:
                await self._lead_whenever_elected(self.election)

    async def _lead_whenever_elected(self, election: LeaderElection) -> None:
        """A lost lease stops every controller; the watches stay, and the process stands for election again."""
        while True:
            try:
                await election.run(self.lead)
            except LeadershipLost as problem:
                self.log.error("leader election lost", error=str(problem))

    async def lead(self) -> None:
        """Run the controllers until cancelled."""
        await self._read()
        try:
            await self.decision_history.restore()
        except (KubeError, OSError) as problem:
            self.log.error("history not read, continuing without", error=str(problem))
        await self._recover_instances()
        self.context.nodeclaim_creator.begin()
        with self.cluster_state.listening():
            self.context.pod_latency.follow(self.cluster_state)
            chosen = SHADOW_CONTROLLERS if self.settings.dry_run else self._controllers
            controllers = [self._supervised(make) for make in chosen]
            self.log.info(
                "Starting Controllers",
                controllers=len(controllers),
                nodepools=len(self.cluster_state.pools.store),
                nodeclaims=len(self.cluster_state.claims.store),
                nodes=len(self.cluster_state.nodes.store),
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(self.supervisor.supervise("events", self._recorder.run), name="events")
                if not virtual():
                    group.create_task(collect_when_idle(lambda: not self.cluster_state.unbound()), name="python gc")
                if self._instances is not None:
                    instances = self.supervisor.supervise("instances", self._instances.run)
                    group.create_task(instances, name="instances")
                for name, run in controllers:
                    group.create_task(self.supervisor.supervise(name, run), name=name)

    def _supervised(self, make: MakeController) -> tuple[str, Callable[[], Awaitable[None]]]:
        """A controller's name, and a call that runs it; each call after the first runs a new one in its place."""
        first, remove = self.cluster_state.registered(lambda: make(self.context))
        running: list[tuple[Controller, Callable[[], None]]] = [(first, remove)]

        async def run() -> None:
            controller, forget = running.pop() if running else self.cluster_state.registered(lambda: make(self.context))
            try:
                await controller.run()
            except Exception:
                forget()
                raise

        return type(first).__name__, run

    async def _read(self) -> None:
        """Wait until the cluster is synced, and log what it waits for."""
        while not self.cluster_state.synced.is_set():
            try:
                async with asyncio.timeout(SYNC_LOG_INTERVAL_S):
                    await self.cluster_state.synced.wait()
            except TimeoutError:
                self.log.error("waiting for the cluster", error=self._unread_kinds())

    def _unread_kinds(self) -> str:
        failures = self.cluster_state.failures()
        waiting = "".join(f"; {kind}: {why}" for kind, why in failures.items())
        absent = any(isinstance(why, NotFound) for why in failures.values())
        remedy = "; install the definitions: dovetail crds | kubectl apply -f -" if absent else ""
        return f"the cluster has not been read yet{waiting}{remedy}"

    async def _recover_instances(self) -> None:
        """Recover the instances of an earlier leader first: otherwise they would look orphaned."""
        while self._instances is not None:
            try:
                await self._instances.recover()
                return
            except KubeError as problem:
                self.log.error("simulated instances not recovered yet", error=str(problem))
                await asyncio.sleep(1.0)

    def problems(self) -> list[str]:
        """Why a pending pod would not get a node now; a standby replica has no problem of its own.

        One that cannot even read the lease does not stand by: there may be no other replica.
        """
        if self._start is not None and not self._started:
            waiting = self._start.waiting_for() if self.cluster_state.synced.is_set() else self._unread_kinds()
            return [f"not standing for election yet: {waiting}"]
        outage = self._start.outage() if self._start else None
        if outage is not None:
            return [f"the cloud cannot be reached: {outage}"]
        if self.election is not None and not self.election.leading:
            failure = self.election.failure
            return [f"lease not reached: {failure}"] if failure is not None else []
        if not self.cluster_state.synced.is_set():
            return [self._unread_kinds()]
        return [f"{cause}: {why}" for cause, why in self.safety.causes().items() if cause in DISABLING]

    def _provider_ids(self) -> list[str]:
        """The instances of the cluster's Nodes and NodeClaims."""
        nodes = (node.spec.provider_id for node in self.cluster_state.nodes.store.all())
        claims = (claim.status.provider_id for claim in self.cluster_state.claims.store.all())
        return sorted({provider_id for provider_id in (*nodes, *claims) if provider_id})

    def remarks(self) -> list[str]:
        """Remarks of a healthy process."""
        return [
            *(f"safe mode, {cause}: {why}" for cause, why in self.safety.causes().items()),
            *self.rights.missing(),
        ]


async def run(kube: Kube, cloud: Cloud, clock: Clock, chance: Chance, settings: Settings) -> None:
    """Run the autoscaler until cancelled."""
    await Autoscaler(kube, cloud, clock, chance, settings).run()
