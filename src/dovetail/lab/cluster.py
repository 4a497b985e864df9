"""The lab: API server, controllers, scheduler and kubelets on one clock. Used by `up`, `simulate` and tests.

All parts speak to the server through a transport, so any of them can be left out or replaced by the real one.
`extras` is the place of what is added from outside: an autoscaler, a cloud, a dashboard.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, virtual
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists
from dovetail.kube.events import EventRecorder, EventSink
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import CSIDRIVERS, SERVICES, STORAGECLASSES, Resource
from dovetail.kube.transport import Transport
from dovetail.lab.apiserver.garbage_collector import Collector
from dovetail.lab.checks.invariants import Invariants
from dovetail.lab.checks.replicasets import SHORTFALL_GRACE_S, ReplicaSetCheck
from dovetail.lab.controllers.manager import ControllerManager
from dovetail.lab.custom_metrics import CustomMetrics, discovered
from dovetail.lab.direct_client import DirectKube
from dovetail.lab.event_ttl import EventExpiry
from dovetail.lab.fast_transport.transport import FastTransport
from dovetail.lab.faults.injection import Faults
from dovetail.lab.in_process import InProcess
from dovetail.lab.instances import SimulatedInstance, plain_pool
from dovetail.lab.kubelet.eviction_manager import Pressure
from dovetail.lab.kubelet.kubelets import Kubelets, ReportingDetail
from dovetail.lab.kubelet.logs import Logs
from dovetail.lab.metrics import ResourceMetrics
from dovetail.lab.server import LabServer

if TYPE_CHECKING:
    from dovetail.lab.programs.execution import RunningPrograms

# What a lab's cluster has from the start, beside what every API server makes: storage as on EKS.

_OBJECTS: tuple[tuple[Resource, dict[str, Any]], ...] = (
    (
        STORAGECLASSES,
        {
            "metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "ebs.csi.aws.com",
            "parameters": {"type": "gp3"},
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        },
    ),
    (
        CSIDRIVERS,
        {"metadata": {"name": "ebs.csi.aws.com"}, "spec": {"attachRequired": True, "podInfoOnMount": False}},
    ),
)


async def bootstrap(kube: Kube) -> None:
    for resource, body in _OBJECTS:
        try:
            await kube.create(resource, body)
        except AlreadyExists:
            continue


#: A part added from outside: gets the lab, runs until cancelled.
Extra = Callable[["Lab"], Coroutine[Any, Any, None]]

JOIN_TOGETHER = 32
#: Seconds that a scheduler of a large cluster needs to find that a pod fits nowhere.
FAILED_ATTEMPT_S = 0.002


class LabParts(msgspec.Struct, frozen=True, kw_only=True):
    """What of the lab runs. A real control plane brings its own controllers and scheduler."""

    controllers: bool = True
    scheduler: bool = True
    pace: ReportingDetail = ReportingDetail()
    quiet: bool = False
    #: Receives the events of the lab's own components instead of the API server: a simulation's log.
    event_sink: EventSink | None = None
    faults: bool = True
    check: bool = True
    #: Storage as on EKS: a default class and its driver. A plain cluster has none.
    storage: bool = True
    #: Containers of known images run their programs; otherwise all containers are modelled.
    programs: bool = False


class Lab:
    """`async with Lab.embedded(seed=1) as lab:`; then `lab.kube` talks to it as an administrator."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        chance: Chance,
        parts: LabParts | None = None,
        *,
        server: LabServer | None = None,
        extras: Sequence[Extra] = (),
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.chance = chance
        self.parts = parts or LabParts()
        self.server = server
        self.kube = self.client("dovetail-lab")
        #: What becomes of the events of its parts.
        self._recording: dict[str, Any] = {"quiet": self.parts.quiet, "event_sink": self.parts.event_sink}
        kubelet = self.client("kubelet")
        self._kubelet_events = EventRecorder(kubelet, "kubelet", max_queued=0, **self._recording)
        self.fleet = Kubelets(kubelet, clock, chance.child("fleet"), self._kubelet_events, self.parts.pace)
        self.programs: RunningPrograms | None = None
        if self.parts.programs:
            from dovetail.lab.programs.execution import RunningPrograms  # the programs are most of the tree
            from dovetail.lab.programs.registry import find

            self.fleet.programs = self.programs = RunningPrograms(self, find)
        self.controllers: ControllerManager | None = None
        self.metrics = ResourceMetrics(self.fleet, clock, self._services)
        self.custom_metrics = CustomMetrics(self.fleet, clock, self._services, self.kube, self.metrics.is_scraped)
        own = server is not None
        self.faults = Faults(self.fleet, clock, chance.child("faults"), own_server=own) if self.parts.faults else None
        self.invariants: Invariants | None = None
        self._seen = Reflector(self.kube, SERVICES)
        self._extras = extras
        self._stack = AsyncExitStack()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: list[asyncio.Task[None]] = []

    @classmethod
    def embedded(
        cls, seed: int = 0, parts: LabParts | None = None, *, clock: Clock | None = None, extras: Sequence[Extra] = ()
    ) -> Lab:
        """A lab around an API server of its own, in this process."""
        chance = Chance(seed)
        clock = clock or Clock(asyncio.get_running_loop(), EPOCH)
        server = LabServer(clock, chance.child("apiserver"))
        Collector(server).start()
        short = parts is not None and not parts.faults
        transport: Transport = FastTransport(server) if short else InProcess(server)
        return cls(transport, clock, chance, parts, server=server, extras=extras)

    def client(self, manager: str) -> DirectKube:
        """A client that signs its writes as `manager`."""
        return DirectKube(
            self.transport, self.clock, chance=self.chance.child("client", manager), manager=manager, user_agent=manager
        )

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._install_middleware()
        if self.programs is not None:
            self._start("programs", self.programs.run())
        self._start("kubelet events", self._kubelet_events.run())
        self._start("kubelets", self.fleet.run())
        self._start("memory pressure", Pressure(self.fleet, self.clock).run())
        if self.parts.controllers:
            kube = self.client("kube-controller-manager")
            chance = self.chance.child("controllers")
            self.controllers = ControllerManager(
                kube, self.clock, chance, liveness=self.fleet, lean=self.parts.pace.lean, **self._recording
            )
            self._start("controllers", self.controllers.run())
            if self.parts.storage:
                await bootstrap(kube)
        else:
            self._start("services", self._seen.run())
        if self.parts.scheduler:
            from dovetail.lab.scheduler.run import Scheduler

            kube = self.client("kube-scheduler")
            failed_attempt_s = FAILED_ATTEMPT_S if self.parts.pace.lean else 0.0
            self._start(
                "scheduler", Scheduler(kube, self.clock, failed_attempt_s=failed_attempt_s, **self._recording).run()
            )
        for extra in self._extras:
            self.add(extra)
        await self.fleet.synced.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._running:
            task.cancel()
        await self._stack.__aexit__(kind, error, trace)
        if self.invariants is not None and error is None:
            self.invariants.check()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        assert self._tasks is not None
        self._running.append(self._tasks.create_task(work, name=name))

    def add(self, extra: Extra) -> None:
        """Run another part until the lab ends."""
        self._start(getattr(extra, "__name__", "extra"), extra(self))

    def _install_middleware(self) -> None:
        """What stands before the API server: metrics, logs, faults; and the eye on its invariants."""
        if self.server is None:
            return
        self.server.middleware += [self.metrics.intercept, self.custom_metrics.intercept]
        self.server.discovery.extensions |= discovered()
        self.server.logs = Logs(self.fleet, self.clock).read
        if self.faults is not None:
            self.server.middleware.insert(0, self.faults.intercept)
            self.server.stream = self.faults.stream
        if self.parts.check:
            self.invariants = Invariants(self.server, self._replica_check(self.server))
        self._start("event expiry", EventExpiry(self.server, self.clock).run())

    def _replica_check(self, server: LabServer) -> ReplicaSetCheck | None:
        """Whether pods go only for a cause: asked where our controllers run, and how soon only in virtual time."""
        if not self.parts.controllers:
            return None
        faults = self.faults
        grace_s = SHORTFALL_GRACE_S if virtual() else math.inf
        replica_check = ReplicaSetCheck(self.clock, lambda: faults is not None and faults.is_recovering, grace_s)
        server.middleware.append(replica_check.intercept)
        return replica_check

    def _services(self) -> dict[tuple[str, str], dict[str, str]]:
        """Services and their selectors, for requests between pods."""
        seen = self._seen.store if self.controllers is None else self.controllers.context.store(SERVICES)
        return {
            (item["metadata"]["namespace"], item["metadata"]["name"]): item["spec"].get("selector") or {}
            for item in seen.all()
        }

    async def join(self, instances: Iterable[SimulatedInstance]) -> None:
        """Boot instances; returns when all have registered."""
        waiting = list(instances)
        for start in range(0, len(waiting), JOIN_TOGETHER):
            async with asyncio.TaskGroup() as tasks:
                for instance in waiting[start : start + JOIN_TOGETHER]:
                    tasks.create_task(self.fleet.join(instance), name=f"join {instance.name}")

    async def nodes(self, count: int, instance_type: str = "m5.large", zones: Sequence[str] = ("us-west-2a",)) -> None:
        """A plain pool of nodes."""
        await self.join(plain_pool(count, instance_type, zones, first=len(self.fleet.seats)))

    async def until(self, fact: Callable[[], Coroutine[Any, Any, bool]], seconds: float = 600.0) -> None:
        """Let time pass until a fact holds. TimeoutError if it does not within `seconds`."""
        async with asyncio.timeout(seconds):
            while not await fact():  # noqa: ASYNC110 (facts are read from the API server: there is no event to wait for)
                await asyncio.sleep(0.25)
