"""The scheduler at work: pop a pod, decide, assume it in the cache, bind it asynchronously, go on.

It keeps nothing that the API server does not know, except bindings under way; killed at any line, the next one
starts from what it finds.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.clock import Clock
from dovetail.kube.errors import ApiError, KubeError, NotFound
from dovetail.kube.events import EventSink
from dovetail.kube.log import Log
from dovetail.lab.direct_client import DirectKube
from dovetail.lab.scheduler import binder, messages, queueing_hints
from dovetail.lab.scheduler.cache import Cache
from dovetail.lab.scheduler.events import EventWriter
from dovetail.lab.scheduler.preemption import PreemptionOutcome, Victims
from dovetail.lab.scheduler.queue import Entry, SchedulingQueue
from dovetail.lab.scheduler.schedule_one import SchedulingDecision
from dovetail.lab.scheduler.vectorised.schedule import Decider
from dovetail.model.fit import PodInfo

log = Log(__name__)

_MAX_CONCURRENT_BINDINGS = 32
#: A failure's message, and the plugins that rejected the pod.
_Why = tuple[str, frozenset[str]]


class Scheduler:
    """One scheduler of one API server.

    `failed_attempt_s` is the time in seconds that a failed attempt takes. At zero every pod is retried at every
    change, which no real scheduler has the time for. `quiet` and `event_sink` are those of its events.
    """

    def __init__(
        self,
        kube: DirectKube,
        clock: Clock,
        *,
        quiet: bool = False,
        event_sink: EventSink | None = None,
        failed_attempt_s: float = 0.0,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._failed_attempt_s = failed_attempt_s
        self._last: tuple[SchedulingDecision, str | None, _Why] | None = None
        self.queue = SchedulingQueue(clock)
        self.cache = Cache(kube, self.queue, retry_unhelpful=not (quiet or failed_attempt_s))
        self.events = EventWriter(kube, clock, quiet=quiet, event_sink=event_sink)
        self._decider = Decider(self.cache.cluster)
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_BINDINGS)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.events.run(), name="scheduler events")
            await self.cache.run(tasks)
            while True:
                entry = self.queue.pop()
                if entry is None:
                    await self.queue.wait()
                    continue
                pause = self._attempt(entry, tasks)
                if pause is not None:
                    await asyncio.sleep(pause)

    def _attempt(self, entry: Entry, tasks: asyncio.TaskGroup) -> float | None:
        """One attempt; the seconds to yield to other tasks before the next one (None: do not yield)."""
        info = entry.info
        nominated = {node: tuple(pods.values()) for node, pods in self.cache.nominated.items()}
        decision, outcome = self._decider.decide(info, nominated, self.cache.budgets)
        if decision.node is not None:
            self.cache.cluster.place(info, decision.node)
            self.cache.assumed.add(info.key)
            self.cache.set_nomination(info.key, None, "")
            meta = info.pod.metadata
            if not info.shape.volumes and self._kube.bind_at_once(meta.name, meta.namespace, decision.node, meta.uid):
                self._bound(entry, decision.node)
                return None
            tasks.create_task(self._bind(entry, decision.node), name=f"bind {meta.key}")
            return 0.0
        self._failed(entry, decision, outcome, tasks)
        return self._failed_attempt_s

    def _failed(
        self, entry: Entry, decision: SchedulingDecision, outcome: PreemptionOutcome, tasks: asyncio.TaskGroup
    ) -> None:
        info, victims = entry.info, outcome.victims
        nominated_node: str | None = None
        if victims is not None:
            nominated_node = victims.node
        elif outcome.words.startswith("0/"):
            nominated_node = ""
        if nominated_node is not None:
            self.cache.set_nomination(info.key, info, nominated_node)
        message, plugins = self._why(decision, None if victims is not None else outcome.words)
        self.queue.failed(entry, plugins)
        self.events.warning(info.pod, "FailedScheduling", "Scheduling", message)
        status = binder.unscheduled(self._clock, info.pod, "Unschedulable", message, nominated_node)
        if status or victims is not None:
            tasks.create_task(
                self._report_failure(info, status, victims), name=f"report failure of {info.pod.metadata.key}"
            )

    def _why(self, decision: SchedulingDecision, preemption: str | None) -> _Why:
        """The message of a failure and the plugins behind it; pods that are alike fail by one and the same decision."""
        last = self._last
        if last is not None and last[0] is decision and last[1] == preemption:
            return last[2]
        plugins = {rejection.plugin for rejection in decision.rejection_counts()}
        if decision.refused is not None:
            plugins.add(queueing_hints.rejector(decision.refused))
        if decision.unnamed:
            plugins.add("NodeAffinity")
        why = messages.failure(decision, preemption), frozenset(plugins)
        self._last = decision, preemption, why
        return why

    async def _report_failure(self, info: PodInfo, status: dict[str, Any], victims: Victims | None) -> None:
        pod = info.pod
        try:
            async with self._slots:
                for victim in victims.pods if victims else ():
                    if victim.pod.metadata.deletion_timestamp is None:
                        await self._evict(victim, info, victims.node if victims else "")
                if status:
                    await binder.patch_status(self._kube, pod, status)
        except NotFound:
            return
        except KubeError as problem:
            log.warning("pod status not written", pod=pod.metadata.key, problem=str(problem))

    async def _evict(self, victim: PodInfo, preemptor: PodInfo, node: str) -> None:
        try:
            await binder.evict_for(self._kube, self._clock, victim.pod)
        except NotFound:
            return
        text = f"Preempted by pod {preemptor.pod.metadata.uid} on node {node}"
        self.events.normal(victim.pod, "Preempted", "Preempting", text, related=preemptor.pod)

    async def _bind(self, entry: Entry, node: str) -> None:
        info = entry.info
        meta = info.pod.metadata
        try:
            if info.shape.volumes:
                await binder.bind_volumes(self._kube, self._clock, self.cache.cluster, info.pod, node)
            async with self._slots:
                await self._kube.bind(meta.name, meta.namespace, node, meta.uid or None)
        except (KubeError, binder.BindFailed) as problem:
            await self._unbind(entry, problem)
            return
        self._bound(entry, node)

    def _bound(self, entry: Entry, node: str) -> None:
        pod = entry.info.pod
        text = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
        self.events.normal(pod, "Scheduled", "Binding", text)

    async def _unbind(self, entry: Entry, problem: Exception) -> None:
        """The node's resources are free again; the pod is tried again after a while if it still needs a node."""
        key, pod = entry.key, entry.info.pod
        if key not in self.cache.assumed:
            return
        self.cache.assumed.discard(key)
        self.cache.cluster.remove(key)
        self.queue.again(entry)
        if isinstance(problem, NotFound):
            return
        detail = problem.message if isinstance(problem, ApiError) else str(problem)
        volumes = isinstance(problem, binder.BindFailed)
        part = 'PreBind plugin "VolumeBinding"' if volumes else 'Bind plugin "DefaultBinder"'
        message = f"running {part}: {detail}"
        self.events.warning(pod, "FailedScheduling", "Scheduling", message)
        await self._report_failure(
            entry.info, binder.unscheduled(self._clock, pod, "SchedulerError", message, None), None
        )
