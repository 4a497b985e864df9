"""The controller manager: every workload controller on one set of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.events import EventRecorder, EventSink
from dovetail.kube.resources import REPLICATIONCONTROLLERS
from dovetail.lab.controllers.attach_detach import Attachments
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.cronjobs import CronJobs
from dovetail.lab.controllers.daemonset.controller import DaemonSets
from dovetail.lab.controllers.deployment.controller import Deployments
from dovetail.lab.controllers.endpoints import Endpoints
from dovetail.lab.controllers.endpoints_mirroring import EndpointMirroring
from dovetail.lab.controllers.endpointslices import EndpointSlices
from dovetail.lab.controllers.hpa import horizontal
from dovetail.lab.controllers.job.controller import Jobs
from dovetail.lab.controllers.namespaces import Namespaces
from dovetail.lab.controllers.nodelifecycle import Liveness, NodeLifecycle
from dovetail.lab.controllers.pdb import DisruptionBudgets
from dovetail.lab.controllers.podgc import PodGarbage
from dovetail.lab.controllers.replicaset import ReplicaSets
from dovetail.lab.controllers.resourcequotas import ResourceQuotas
from dovetail.lab.controllers.serviceaccounts import ServiceAccounts
from dovetail.lab.controllers.statefulset.controller import StatefulSets
from dovetail.lab.controllers.tainteviction import TaintEviction
from dovetail.lab.controllers.volume.controller import Volumes
from dovetail.lab.controllers.worker import KeyWorker

Job = Callable[[], Coroutine[Any, Any, None]]


class ControllerManager:
    """Builds the controllers; `run` keeps them running."""

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        chance: Chance,
        *,
        liveness: Liveness | None = None,
        quiet: bool = False,
        event_sink: EventSink | None = None,
        lean: bool = False,
        certificate: str = "",
    ) -> None:
        self._recorders: dict[str, EventRecorder] = {}

        def recorder(component: str) -> EventRecorder:
            made = EventRecorder(kube, component, max_queued=0, quiet=quiet, event_sink=event_sink)
            return self._recorders.setdefault(component, made)

        def context(component: str) -> ControllerContext:
            return base.with_recorder(recorder(component))

        base = ControllerContext(kube, clock, chance, recorder("controller-manager"))
        self.context = base
        lifecycle = NodeLifecycle(base, recorder("node-controller"), liveness)
        garbage = PodGarbage(base)
        autoscaling = horizontal(kube, clock, recorder("horizontal-pod-autoscaler"))
        self._workers: list[KeyWorker] = [
            Deployments(context("deployment-controller")).worker,
            ReplicaSets(context("replicaset-controller")).worker,
            ReplicaSets(context("replication-controller"), REPLICATIONCONTROLLERS).worker,
            StatefulSets(context("statefulset-controller")).worker,
            DaemonSets(context("daemonset-controller")).worker,
            Jobs(context("job-controller")).worker,
            CronJobs(context("cronjob-controller")).worker,
            EndpointSlices(context("endpoint-slice-controller")).worker,
            DisruptionBudgets(context("controllermanager")).worker,
            Namespaces(base).worker,
            ServiceAccounts(base, certificate).worker,
            ResourceQuotas(base).worker,
            Volumes(context("persistentvolume-controller"), recorder("ebs.csi.aws.com")).worker,
            Attachments(context("attachdetach-controller")).worker,
            lifecycle.worker,
            TaintEviction(base, recorder("taint-eviction-controller")).worker,
        ]
        if not lean:  # large simulations do without the older form of slices, and gather what comes together
            self._workers.append(Endpoints(context("endpoint-controller")).worker)
            self._workers.append(EndpointMirroring(base).worker)
            for worker in self._workers:
                worker.gather = 0.0
        self._jobs: list[tuple[str, Job]] = [
            ("node monitor", lifecycle.run),
            ("pod garbage", garbage.run),
            ("horizontal autoscaling", autoscaling.run),
        ]

    async def run(self) -> None:
        """Fill the stores, then work for ever."""
        async with asyncio.TaskGroup() as tasks:
            for resource, informer in self.context.informers.items():
                tasks.create_task(informer.run(), name=f"store {resource.plural}")
            for component, recorder in self._recorders.items():
                tasks.create_task(recorder.run(), name=f"events {component}")
            for informer in list(self.context.informers.values()):
                await informer.synced.wait()
            for worker in self._workers:
                tasks.create_task(worker.run(), name=f"controller {worker.name}")
            for name, job in self._jobs:
                tasks.create_task(job(), name=name)

    @property
    def idle(self) -> bool:
        return all(worker.idle for worker in self._workers)
