"""The recommender: reads usage, keeps histograms, writes recommendations and checkpoints.

Every interval: VPAs, pods, metrics and out-of-memory kills come in; statuses go out, then checkpoints. Pods that
are gone leave the model only after the kills were counted, so that the kill of a deleted pod still counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.autoscalers.vpa import checkpoints, out_of_memory
from dovetail.autoscalers.vpa.api import (
    CHECKPOINTS,
    VPAS,
    Checkpoint,
    Pod,
    VerticalPodAutoscaler,
    VpaStatus,
)
from dovetail.autoscalers.vpa.histogram import CheckpointError
from dovetail.autoscalers.vpa.loops import at_intervals, lead
from dovetail.autoscalers.vpa.metrics import RecommenderMetrics
from dovetail.autoscalers.vpa.metrics_api import MeasuredPod, PodMetrics, external_pod_metrics, pod_metrics
from dovetail.autoscalers.vpa.model import (
    CONFIG_DEPRECATED,
    CONFIG_UNSUPPORTED,
    FETCHING_HISTORY,
    NO_PODS_MATCHED,
    Model,
    VpaState,
)
from dovetail.autoscalers.vpa.prometheus import PrometheusError, fetch_history
from dovetail.autoscalers.vpa.recommendation import recommendations
from dovetail.autoscalers.vpa.settings import RecommenderSettings
from dovetail.autoscalers.vpa.targets import ControllerRef, TargetError, Workloads, selector_text
from dovetail.autoscalers.vpa.usage import Aggregation
from dovetail.clock import Clock
from dovetail.kube.backoff import Retries
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.log import Log
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import CORE_EVENTS, PODS
from dovetail.model.quantity import QuantityError, parse
from dovetail.model.selector import LabelQuery

log = Log("vpa-recommender")

#: Between two collections of aggregations that nothing feeds.
AGGREGATION_GC_INTERVAL_S = 3600.0
#: A VPA without a recommendation for so long is named in the log.
MISSING_RECOMMENDATION_S = 1800.0
DEFAULT_NAME = "default"


async def run(
    settings: RecommenderSettings,
    kube: Kube,
    clock: Clock,
    *,
    identity: str = "vpa-recommender",
    metrics: RecommenderMetrics | None = None,
) -> None:
    """Recommend until cancelled."""
    log.info("Vertical Pod Autoscaler Recommender", version=__version__)
    measured = metrics or RecommenderMetrics(clock, settings.interval_s)

    async def act(client: Kube) -> None:
        await Recommender(settings, client, clock, measured).run()

    await lead(kube, settings.election, identity, act)


class Recommender:
    """One recommender; `run` loops, `once` is one loop."""

    def __init__(self, settings: RecommenderSettings, kube: Kube, clock: Clock, metrics: RecommenderMetrics) -> None:
        self._settings = settings
        self._kube = kube
        self._clock = clock
        self._metrics = metrics
        self.model = Model(settings.aggregation, settings.estimators, settings.formats)
        namespace = settings.common.namespace or None
        self._workloads = Workloads(kube, settings.common.namespace)
        self._vpas = Reflector(kube, VPAS, VerticalPodAutoscaler, namespace=namespace)
        self._pods = Reflector(
            kube, PODS, Pod, namespace=namespace, fields="status.phase!=Pending", on_event=self._observe
        )
        self._kills: list[out_of_memory.OutOfMemory] = []
        self._last_aggregation_gc_s = float("-inf")
        self._last_checkpoint_gc_s = clock.now().timestamp()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in (self._vpas.run, self._pods.run, self._workloads.run, self._watch_evictions):
                tasks.create_task(watch())
            await self.start()
            await at_intervals(self._clock, self._settings.interval_s, self.once)

    async def start(self) -> None:
        """Wait for all watches, then read what earlier recommenders knew."""
        await self._vpas.synced.wait()
        await self._pods.synced.wait()
        await self._workloads.synced()
        await self._load_vpas()
        if self._settings.from_prometheus:
            await self._load_history()
        else:
            await self._load_checkpoints()

    async def once(self) -> None:
        """One loop. A failing API costs its step, not the loop."""
        step = self._metrics.step
        with step("total"):
            with step("LoadVPAs"):
                await self._load_vpas()
            with step("LoadPods"):
                live = self._load_pods()
            with step("LoadMetrics"):
                await self._load_metrics()
            with step("DeleteRemovedPods"):
                self.model.remove_pods_except(live)
            with step("UpdateVPAs"):
                await self._update_vpas()
            with step("MaintainCheckpoints"):
                if not self._settings.from_prometheus:
                    await self._maintain_checkpoints()
            with step("GarbageCollect"):
                await self._collect_garbage()
        self._metrics.active()

    # Input

    def _observe(self, change: CacheChange[Pod]) -> None:
        if change.kind == "modified" and change.old is not None and change.new is not None:
            self._kills += out_of_memory.kills(change.old, change.new)

    async def _watch_evictions(self) -> None:
        """Evictions by kubelets for lack of memory, those of the last hour included.

        What they say of the present interval is in no checkpoint; counting one again changes nothing.
        """
        pauses, failures = Retries(base=1.0, cap=60.0), 0
        namespace = self._settings.common.namespace or None
        while True:
            try:
                events = self._kube.watch(CORE_EVENTS, namespace, fields="reason=Evicted")
                async with aclosing(events) as stream:  # type: ignore[type-var]
                    async for event in stream:
                        failures = 0
                        if event.type == "ADDED":
                            self._kills += out_of_memory.evictions(event.object)
                failures += 1
            except KubeError as problem:
                failures += 1
                log.info("An attempt to watch eviction events finished", problem=str(problem))
            await asyncio.sleep(pauses.pause(max(1, failures), self._kube.chance))

    def _serves(self, vpa: VerticalPodAutoscaler) -> bool:
        names = [item.name for item in vpa.spec.recommenders or ()]
        ours = self._settings.name in names if names else self._settings.name == DEFAULT_NAME
        return ours and not self._settings.common.ignores(vpa.metadata.namespace)

    async def _load_vpas(self) -> None:
        served = [vpa for vpa in self._vpas.store.all() if self._serves(vpa)]
        for vpa in served:
            query, problem = await self._selector(vpa)
            state = self.model.put_vpa(vpa, query, selector_text(query))
            state.drop_condition(CONFIG_DEPRECATED)
            if problem is None:
                state.drop_condition(CONFIG_UNSUPPORTED)
            else:
                state.set_condition(CONFIG_UNSUPPORTED, True, "", problem, self._now())
        for key in self.model.vpas.keys() - {vpa.metadata.key for vpa in served}:
            self.model.remove_vpa(key)

    async def _selector(self, vpa: VerticalPodAutoscaler) -> tuple[LabelQuery | None, str | None]:
        """The selector of a supported target, or what is wrong with it."""
        try:
            query = await self._workloads.selector(vpa)
        except TargetError as error:
            log.info("Cannot get target selector from VPA's targetRef", vpa=vpa.metadata.key, problem=str(error))
            return None, f"Cannot read targetRef. Reason: {error}"
        ref = vpa.spec.target_ref
        assert ref is not None
        target = f"{ref.api_version}.{ref.kind}/{ref.name}"
        what = f"target {target} is a topmost well-known or scalable controller"
        own = ControllerRef(vpa.metadata.namespace, ref.kind, ref.name, ref.api_version)
        try:
            top = await self._workloads.topmost(own)
        except TargetError as error:
            return None, f"Error checking if {what}: {error}"
        if top is None:
            return None, f"Unknown error during checking if {what}"
        if top != own:
            return None, (
                f"The target {target} has a parent controller but it should point to a topmost well-known "
                "or scalable controller"
            )
        return query, None

    def _load_pods(self) -> list[str]:
        now_s = self._now_s()
        pods = self._pods.store.all()
        for pod in pods:
            self.model.put_pod(pod, now_s, only_under_vpa=self._settings.memory_saver)
        return [pod.metadata.key for pod in pods]

    async def _load_metrics(self) -> None:
        items: list[PodMetrics] = []
        try:
            items = await self._measured()
            self._metrics.responses.labels("false", "default-metrics-client").inc()
        except KubeError as problem:
            self._metrics.responses.labels("true", "default-metrics-client").inc()
            log.error("Cannot get ContainerMetricsSnapshot from MetricsClient", problem=str(problem))
        counts = Counter[str]()
        for item in items:
            self._add_samples(item, counts)
        log.debug(
            "ClusterSpec fed with ContainerUsageSamples",
            sampleCount=counts["added"],
            containerCount=counts["containers"],
            droppedSampleCount=counts["dropped"],
        )
        kills, self._kills = self._kills, []
        for kill in kills:
            usage = self.model.container(f"{kill.namespace}/{kill.pod}", kill.container, self._now_s())
            needed = usage.needed_after_oom(kill.memory_bytes) if usage is not None else 0
            if usage is None or not usage.record_oom(kill.time_s, kill.memory_bytes):
                log.info("Failed to record OOM", pod=f"{kill.namespace}/{kill.pod}", container=kill.container)
            else:
                log.info("OOM detected", pod=f"{kill.namespace}/{kill.pod}", container=kill.container)
                self._measure_quality(usage.aggregation, "memory", needed, oom=True)
        self._metrics.aggregations.set(len(self.model.aggregations))

    async def _measured(self) -> list[PodMetrics]:
        """What pods use, from the API of the settings. Raises KubeError."""
        external = self._settings.external
        if external is None:
            return await pod_metrics(self._kube, self._settings.common.namespace)
        pods = [
            MeasuredPod(pod.namespace, pod.name, state.selector)
            for state in self.model.vpas.values()
            if state.selector is not None
            for pod in self.model.pods_of(state)
        ]
        return await external_pod_metrics(self._kube, external, pods)

    def _add_samples(self, item: PodMetrics, counts: Counter[str]) -> None:
        key = item.metadata.key
        pod = self.model.pods.get(key)
        if pod is None or item.timestamp is None:
            counts["dropped"] += 2 * len(item.containers)
            return
        time_s, now_s = item.timestamp.timestamp(), self._now_s()
        for container in item.containers:
            counts["containers"] += 1
            usage = None if container.name in pod.init_containers else self.model.usage(key, container.name)
            if usage is None:
                counts["dropped"] += 2
                continue
            try:
                cpu = parse(container.usage.get("cpu", 0)).milli
                memory = parse(container.usage.get("memory", 0)).whole
            except QuantityError:
                counts["dropped"] += 2
                continue
            if usage.takes_cpu(cpu, time_s) or usage.takes_memory(memory, time_s):
                self.model.container(
                    key, container.name, now_s
                )  # one that was collected returns only with a sample that counts
            if added_cpu := usage.add_cpu(cpu, time_s):
                self._measure_quality(usage.aggregation, "cpu", cpu)
            if added_memory := usage.add_memory(memory, time_s):
                self._measure_quality(usage.aggregation, "memory", memory)
            counts["added"] += added_cpu + added_memory
            counts["dropped"] += 2 - added_cpu - added_memory

    def _measure_quality(self, aggregation: Aggregation, resource: str, amount: int, *, oom: bool = False) -> None:
        """Compare a sample that counted with what was recommended before it."""
        if aggregation.needs_recommendation:
            recommended = (aggregation.last_recommendation or {}).get(resource, 0)
            unit = 1000.0 if resource == "cpu" else 1.0
            self._metrics.quality.sample(resource, amount / unit, recommended / unit, aggregation.update_mode, oom)

    # Output

    async def _update_vpas(self) -> None:
        pods = self.model.pod_counts()
        counts = Counter[tuple[str, str, str, str, str]]()
        now_s, now = self._now_s(), self._now()
        changed: list[tuple[VpaState, dict[str, Any]]] = []
        for key, state in self.model.vpas.items():
            self._recommend(state, pods[key], now_s, now)
            status = state.status()
            if msgspec.convert(status, VpaStatus, strict=False) != state.vpa.status:
                changed.append((state, status))
            has = state.recommendation is not None and bool(state.recommendation.container_recommendations)
            labels = (has, NO_PODS_MATCHED not in state.conditions, CONFIG_UNSUPPORTED in state.conditions)
            provided, matches, unsupported = (str(label).lower() for label in labels)
            counts[state.vpa.update_mode, provided, "v1", matches, unsupported] += 1
        self._metrics.count_objects(counts)
        await self._in_parallel([partial(self._write_status, *item) for item in changed])

    def _recommend(self, state: VpaState, pods: int, now_s: float, now: datetime) -> None:
        had = state.recommendation
        state.recommendation = self.model.recommend(state, now_s)
        before, after = recommendations(had), recommendations(state.recommendation)
        uncapped = {
            item.container: {
                name: quantity.milli if name == "cpu" else quantity.whole
                for name, quantity in (item.uncapped or {}).items()
            }
            for item in after
        }
        for key, aggregation in state.aggregations.items():
            if key.container not in uncapped:
                continue
            last, aggregation.last_recommendation = aggregation.last_recommendation, uncapped[key.container]
            if last is not None:
                self._metrics.quality.change(last, aggregation.last_recommendation, aggregation.update_mode, pods)
        created = state.vpa.metadata.creation_timestamp
        if after and not before and created is not None:
            self._metrics.latency.observe(now_s - created.timestamp())
        state.update_conditions(pods > 0, now)
        if after:
            state.missing_since_s = None
        elif state.missing_since_s is None:
            state.missing_since_s = now_s
        elif now_s - state.missing_since_s > MISSING_RECOMMENDATION_S:
            state.missing_since_s = now_s
            log.info("VPA is missing recommendation for more than 30m", vpa=state.vpa.metadata.key)

    async def _write_status(self, state: VpaState, status: dict[str, Any]) -> None:
        metadata = state.vpa.metadata
        patch = [{"op": "add", "path": "/status", "value": status}]
        try:
            await self._kube.patch(
                VPAS, metadata.name, msgspec.json.encode(patch), metadata.namespace, kind="json", subresource="status"
            )
        except KubeError as problem:
            log.error("Cannot update VPA", vpa=metadata.key, problem=str(problem))

    async def _in_parallel(self, acts: list[Callable[[], Awaitable[None]]], until_s: float | None = None) -> bool:
        """Do all with so many workers; each does at least one before it heeds the deadline. Whether all were done."""
        waiting = iter(acts)
        done = 0

        async def work() -> None:
            nonlocal done
            for act in waiting:
                await act()
                done += 1
                if until_s is not None and self._clock.monotonic() >= until_s:
                    return

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(self._settings.workers, len(acts))):
                tasks.create_task(work())
        return done == len(acts)

    # Checkpoints

    async def _load_checkpoints(self) -> None:
        try:
            listing = await self._kube.list(CHECKPOINTS, self._settings.common.namespace or None, type=Checkpoint)
        except KubeError as problem:
            log.error("Cannot list VPA checkpoints", problem=str(problem))
            return
        for item in listing.items:
            state = self.model.vpas.get(f"{item.metadata.namespace}/{item.spec.vpa_object_name}")
            if state is None:
                continue
            try:
                usage = checkpoints.loaded(item.status, self._settings.aggregation, self._now_s())
            except CheckpointError as problem:
                log.error("Error while loading checkpoint", checkpoint=item.metadata.key, problem=str(problem))
                continue
            state.initial[item.spec.container_name] = usage

    async def _maintain_checkpoints(self) -> None:
        deadline = self._clock.monotonic() + self._settings.checkpoints_timeout_s
        self.model.begin_checkpoints()
        due = [state for state in self.model.vpas.values() if not _is_fetching(state)]
        due.sort(key=lambda state: state.checkpoint_written_s)
        if not await self._in_parallel([partial(self._write_checkpoints, state) for state in due], deadline):
            log.info("Failed to store all checkpoints within the configured `checkpoints-timeout`", vpas=len(due))
        now_s = self._now_s()
        if now_s - self._last_checkpoint_gc_s > self._settings.checkpoints_gc_interval_s:
            self._last_checkpoint_gc_s = now_s
            await self._collect_checkpoints()

    async def _write_checkpoints(self, state: VpaState) -> None:
        metadata, now = state.vpa.metadata, self._now()
        for container, usage in self.model.checkpointed(state, now.timestamp()).items():
            name = checkpoints.checkpoint_name(metadata.name, container)
            status = checkpoints.saved(usage, now)
            try:
                await self._put_checkpoint(name, metadata.namespace, metadata.name, container, status)
                state.checkpoint_written_s = now.timestamp()
            except KubeError as problem:
                log.error("Cannot save checkpoint for VPA", vpa=metadata.key, container=container, problem=str(problem))

    async def _put_checkpoint(
        self, name: str, namespace: str, vpa: str, container: str, status: dict[str, Any]
    ) -> None:
        patch = msgspec.json.encode([{"op": "replace", "path": "/status", "value": status}])
        try:
            await self._kube.patch(CHECKPOINTS, name, patch, namespace, kind="json")
        except NotFound:
            body = {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"vpaObjectName": vpa, "containerName": container},
                "status": status,
            }
            await self._kube.create(CHECKPOINTS, body)

    async def _collect_checkpoints(self) -> None:
        """Delete the checkpoints of VPAs that are gone."""
        try:
            items = (await self._kube.list(CHECKPOINTS, self._settings.common.namespace or None, type=Checkpoint)).items
        except KubeError as problem:
            log.error("Cannot list VPA checkpoints", problem=str(problem))
            return
        for item in items:
            metadata = item.metadata
            owner = f"{metadata.namespace}/{item.spec.vpa_object_name}"
            if self._settings.common.ignores(metadata.namespace) or owner in self._vpas.store:
                continue
            try:
                await self._kube.delete(CHECKPOINTS, metadata.name, metadata.namespace, uid=metadata.uid)
                log.info("Orphaned VPA checkpoint cleanup - deleting", checkpoint=metadata.key)
            except KubeError as problem:
                log.error(
                    "Orphaned VPA checkpoint cleanup - failed to delete",
                    checkpoint=metadata.key,
                    problem=str(problem),
                )

    async def _load_history(self) -> None:
        try:
            history = await fetch_history(
                self._settings.prometheus, self._clock, self._metrics, self._settings.common.namespace
            )
        except PrometheusError as problem:
            log.error("Cannot get cluster history", problem=str(problem))
            return
        for pod in history:
            self.model.put_history(pod, self._now_s())

    async def _collect_garbage(self) -> None:
        now_s = self._now_s()
        if now_s - self._last_aggregation_gc_s < AGGREGATION_GC_INTERVAL_S:
            return
        self._last_aggregation_gc_s = now_s
        gone = self.model.collect_garbage(now_s, await self._finished_but_controlled())
        if gone:
            log.info("Removed AggregateCollectionStates", count=len(gone))

    async def _finished_but_controlled(self) -> set[str]:
        """Finished pods under a VPA whose target still exists."""
        kept: set[str] = set()
        for key, pod in self.model.pods.items():
            if pod.phase not in ("Succeeded", "Failed"):
                continue
            state = self.model.vpa_of(pod)
            ref = state.vpa.spec.target_ref if state is not None else None
            if ref is None:
                continue
            try:
                top = await self._workloads.topmost(ControllerRef(pod.namespace, ref.kind, ref.name, ref.api_version))
            except TargetError:
                continue
            if top is not None:
                kept.add(key)
        return kept

    def _now(self) -> datetime:
        return self._clock.now().replace(microsecond=0)

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


def _is_fetching(state: VpaState) -> bool:
    held = state.conditions.get(FETCHING_HISTORY)
    return held is not None and held.status == "True"
