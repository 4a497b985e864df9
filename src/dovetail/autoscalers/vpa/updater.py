"""The updater: evicts or resizes pods whose requests are too far from what their VPA recommends.

It acts only while the admission controller is alive, because an evicted pod would come back as it was. What one
loop may disrupt is decided by `disruption`, in which order by `priority`; PodDisruptionBudgets are honoured by the
API server's answer to each eviction.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail import __version__
from dovetail.autoscalers.vpa.api import (
    AUTO,
    IN_PLACE,
    IN_PLACE_OR_RECREATE,
    INITIAL,
    LIMITRANGES,
    OFF,
    RECREATE,
    VPAS,
    LimitRange,
    Pod,
    PodRecommendation,
    VerticalPodAutoscaler,
)
from dovetail.autoscalers.vpa.capping import NamespaceLimits, fit
from dovetail.autoscalers.vpa.disruption import (
    DisruptionGroups,
    InPlaceDecision,
    TooFewReplicas,
    asks_less,
    group_key,
    group_pods,
    in_place_decision,
    is_resizing,
    may_evict,
)
from dovetail.autoscalers.vpa.loops import at_intervals, lead
from dovetail.autoscalers.vpa.metrics import UpdaterMetrics, size_log2
from dovetail.autoscalers.vpa.patches import resize_annotation_patches, resize_patches
from dovetail.autoscalers.vpa.priority import NOT_ACCEPTED, UpdateDecision, meets_requirements, verdict
from dovetail.autoscalers.vpa.proportions import limit_bounds
from dovetail.autoscalers.vpa.recommendation import targets_text
from dovetail.autoscalers.vpa.settings import UpdaterSettings
from dovetail.autoscalers.vpa.startup_boost import BoostError, boost_remaining_s, expired_boosts, is_boosted
from dovetail.autoscalers.vpa.targets import Selected, TargetError, Workloads, controlling
from dovetail.clock import Clock
from dovetail.kube.backoff import Retries
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, KubeError
from dovetail.kube.events import EventRecorder, reference
from dovetail.kube.log import Log
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import LEASES, PODS
from dovetail.kube.workqueue import WorkQueue
from dovetail.model.meta import ObjectMeta, View, condition
from dovetail.runtime.token_bucket import TokenBucket

log = Log("vpa-updater")

_POD_FIELDS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
#: So many times a boosted pod without a VPA is looked at again.
MAX_VPA_LOOKUPS = 5
#: The cause by which the API server says that a node has no room for a resize.
NODE_CAPACITY = "NodeCapacity"


class _LeaseSpec(View, frozen=True, kw_only=True):
    renew_time: datetime | None = None


class _Lease(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


async def run(
    settings: UpdaterSettings,
    kube: Kube,
    clock: Clock,
    *,
    identity: str = "vpa-updater",
    metrics: UpdaterMetrics | None = None,
) -> None:
    """Update pods until cancelled."""
    log.info("Vertical Pod Autoscaler Updater", version=__version__)
    measured = metrics or UpdaterMetrics(clock, settings.interval_s)

    async def act(client: Kube) -> None:
        await Updater(settings, client, clock, measured).run()

    await lead(kube, settings.election, identity, act)


class _NothingToPatch(Exception):
    """A resize that would change no resource."""


class RateLimit:
    """`rate` a second after the first `burst`; a rate of None is no limit."""

    def __init__(self, clock: Clock, rate: float | None, burst: int) -> None:
        self._clock = clock
        self._tokens = None if rate is None else TokenBucket.full(burst, rate, clock.monotonic())

    async def wait(self, deadline_s: float) -> bool:
        """Wait for a token; False if none would be there before the deadline."""
        if self._tokens is None:
            return True
        if self._tokens.size < 1:
            return False
        now = self._clock.monotonic()
        if now + self._tokens.pause(now) > deadline_s:
            return False
        await asyncio.sleep(self._tokens.spend(now))
        return True


class Updater:
    """One updater; `run` loops, `once` is one loop."""

    def __init__(self, settings: UpdaterSettings, kube: Kube, clock: Clock, metrics: UpdaterMetrics) -> None:
        self._settings = settings
        self._kube = kube
        self._clock = clock
        self._metrics = metrics
        self._events = EventRecorder(kube, "vpa-updater")
        namespace = settings.common.namespace or None
        self._workloads = Workloads(kube, settings.common.namespace)
        self._vpas = Reflector(kube, VPAS, VerticalPodAutoscaler, namespace=namespace)
        self._pods = Reflector(kube, PODS, Pod, namespace=namespace, fields=_POD_FIELDS, on_event=self._pod_changed)
        self._limit_ranges = Reflector(
            kube, LIMITRANGES, LimitRange, namespace=namespace, indices={"namespace": _namespace}
        )
        self._evictions = RateLimit(clock, settings.rate_limit, settings.rate_burst)
        self._resizes = RateLimit(clock, settings.rate_limit, settings.rate_burst)
        #: When this process first saw a pod being resized, by pod.
        self._resizing_since_s: dict[str, float] = {}
        #: The recommendation that a node had no room for, by uid of the pod (mode InPlace).
        self._infeasible: dict[str, PodRecommendation] = {}
        self._boosted: WorkQueue[str] = WorkQueue(Retries(base=0.1, cap=1000.0), kube.chance.child("boost"))
        self._lookups: Counter[str] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for watch in (self._vpas, self._pods, self._limit_ranges, self._workloads, self._events):
                tasks.create_task(watch.run())
            await self.start()
            if self._settings.common.gates.cpu_startup_boost:
                work = self._boosted.work(self._unboost, failed=_log_unboost, workers=self._settings.boost_workers)
                tasks.create_task(work)
            await at_intervals(self._clock, self._settings.interval_s, self.once)

    async def start(self) -> None:
        """Wait for all watches."""
        for watch in (self._vpas, self._pods, self._limit_ranges):
            await watch.synced.wait()
        await self._workloads.synced()

    async def once(self) -> None:
        """One loop, at most as long as the interval."""
        deadline_s = self._clock.monotonic() + self._settings.interval_s
        with self._metrics.step("total"):
            if self._settings.require_admission_status and not await self._admission_is_alive():
                self._metrics.active()
                return
            with self._metrics.step("ListVPAs"):
                candidates = await self._candidates()
            if not candidates:
                log.info("No VPA objects to process")
                self._metrics.active()
                return
            with self._metrics.step("FilterPods"):
                controlled = await self._controlled(candidates)
            with self._metrics.step("EvictPods"):
                self._metrics.begin_loop()
                for vpa, pods in controlled:
                    if not await self._update(vpa, pods, deadline_s):
                        break
        self._metrics.active()

    # What there is

    async def _admission_is_alive(self) -> bool:
        """Whether evicted pods would come back changed: the lease was renewed, or created, not long ago."""
        settings = self._settings
        try:
            lease = await self._kube.get(
                LEASES, settings.status_lease_name, settings.status_lease_namespace, type=_Lease
            )
        except KubeError as problem:
            log.error("Error getting Admission Controller status. Skipping update loop", problem=str(problem))
            self._metrics.status_invalid.labels("error").inc()
            return False
        seen = lease.spec.renew_time or lease.metadata.creation_timestamp
        if seen is None or (self._clock.now() - seen).total_seconds() > settings.status_lease_timeout_s:
            log.info(
                "Admission Controller status is not valid. Skipping update loop",
                timeout=settings.status_lease_timeout_s,
            )
            self._metrics.status_invalid.labels("invalid").inc()
            return False
        return True

    async def _candidates(self) -> list[Selected]:
        chosen: list[Selected] = []
        for vpa in self._vpas.store.all():
            if vpa.metadata.namespace in self._settings.common.ignored_namespaces:
                continue
            updating = vpa.update_mode in (RECREATE, AUTO, IN_PLACE_OR_RECREATE, IN_PLACE)
            if not updating and not vpa.has_startup_boost:
                continue
            if vpa.update_mode == AUTO:
                log.debug("VPA uses deprecated UpdateMode 'Auto'", vpa=vpa.metadata.key)
            chosen += await self._selected(vpa)
        return chosen

    async def _selected(self, vpa: VerticalPodAutoscaler) -> list[Selected]:
        """A VPA with its selector; nothing if it has none."""
        try:
            return [Selected(vpa, await self._workloads.selector(vpa))]
        except TargetError as problem:
            log.debug("Skipping VPA object because we cannot fetch selector", problem=str(problem))
            return []

    async def _controlled(self, candidates: list[Selected]) -> list[tuple[VerticalPodAutoscaler, list[Pod]]]:
        """The live pods of each VPA, VPAs in order of their key."""
        by_key: dict[str, tuple[VerticalPodAutoscaler, list[Pod]]] = {}
        uids = set()
        namespaces: dict[str, list[Selected]] = {}
        for item in candidates:
            namespaces.setdefault(item.vpa.metadata.namespace, []).append(item)
        for pod in sorted(self._pods.store.all(), key=_pod_order):
            if pod.metadata.deletion_timestamp is not None:
                continue
            uids.add(pod.metadata.uid)
            near = namespaces.get(pod.metadata.namespace)
            owner = await self._owner(pod, near) if near else None
            if owner is not None:
                by_key.setdefault(owner.vpa.metadata.key, (owner.vpa, []))[1].append(pod)
        for uid in self._infeasible.keys() - uids:
            del self._infeasible[uid]
        self._note_resizing()
        return [by_key[key] for key in sorted(by_key)]

    def _note_resizing(self) -> None:
        now_s = self._clock.monotonic()
        resizing = {pod.metadata.key for pod in self._pods.store.all() if is_resizing(pod)}
        for key in self._resizing_since_s.keys() - resizing:
            del self._resizing_since_s[key]
        for key in resizing - self._resizing_since_s.keys():
            self._resizing_since_s[key] = now_s

    async def _owner(self, pod: Pod, candidates: list[Selected]) -> Selected | None:
        try:
            return await controlling(pod, candidates, self._workloads)
        except TargetError as problem:
            log.debug("Fail to get pod controller", pod=pod.metadata.key, problem=str(problem))
            return None

    def _limits(self, namespace: str) -> NamespaceLimits:
        ranges = self._limit_ranges.store.by("namespace", namespace)
        return NamespaceLimits(container=limit_bounds(ranges, "Container"), pod=limit_bounds(ranges, "Pod"))

    def _groups(self, pods: list[Pod], vpa: VerticalPodAutoscaler) -> DisruptionGroups:
        keys = {key for key in map(group_key, pods) if key is not None}
        sizes = {key: self._workloads.group_size(key) for key in keys}
        groups = group_pods(pods, vpa, sizes, self._settings.disruption)
        for skipped in groups.skipped:
            name = f"{skipped.key.namespace}/{skipped.key.name}"
            if isinstance(skipped, TooFewReplicas):
                log.info(
                    "Too few replicas",
                    kind=skipped.key.kind,
                    object=name,
                    livePods=skipped.live,
                    requiredPods=skipped.required,
                    globalMinReplicas=self._settings.disruption.min_replicas,
                )
            else:
                log.error("Failed to obtain replication info", kind=skipped.key.kind, object=name)
        return groups

    # What is done

    async def _update(self, vpa: VerticalPodAutoscaler, pods: list[Pod], deadline_s: float) -> bool:
        """Update the pods of one VPA. False if the loop has to end because of a rate limit."""
        mode, size = vpa.update_mode, size_log2(len(pods))
        self._metrics.controlled.labels(size, mode).inc(len(pods))
        groups = self._groups(pods, vpa)
        self._metrics.show_counters(size, mode, vpa.metadata.name, vpa.metadata.namespace)
        gates = self._settings.common.gates
        if mode in (OFF, INITIAL) or (mode == IN_PLACE and not gates.in_place):
            if mode == IN_PLACE:
                log.info("Warning: feature gate is not enabled for this updateMode", featuregate="InPlace")
            return True
        if gates.cpu_startup_boost and vpa.has_startup_boost:
            pods = [pod for pod in pods if not is_boosted(pod)]
        evictions: list[Pod] = []
        if mode in (IN_PLACE_OR_RECREATE, IN_PLACE):
            going_on = await self._resize_all(vpa, pods, groups, size, evictions, deadline_s)
        else:
            going_on = True
            evictions = self._in_order([pod for pod in pods if self._may_evict(pod, groups)], vpa)
            self._metrics.evictable.labels(size, mode).inc(len(evictions))
            if evictions:
                self._metrics.vpas_evictable.labels(size, mode).inc()
        return going_on and await self._evict_all(vpa, evictions, groups, size, deadline_s)

    def _in_order(self, pods: Iterable[Pod], vpa: VerticalPodAutoscaler) -> list[Pod]:
        """The pods worth an update, the most urgent first."""
        policy = vpa.spec.update_policy
        requirements = None if policy is None else policy.eviction_requirements or ()
        now, limits = self._clock.now(), self._limits(vpa.metadata.namespace)
        ranked: list[tuple[UpdateDecision, Pod]] = []
        for pod in pods:
            fitted = fit(vpa, pod, limits)
            items = fitted.items if fitted is not None else []
            tried = self._infeasible.get(pod.metadata.uid)
            if vpa.update_mode == IN_PLACE and tried is not None and not asks_less(items, tried):
                continue
            judged = verdict(pod, vpa, items, now, self._settings.thresholds)
            if judged.quick_oom:
                log.info("Quick OOM detected in pod", pod=pod.metadata.key)
            if not judged.accepted:
                log.debug(NOT_ACCEPTED[judged.reason], pod=pod.metadata.key)
            elif not meets_requirements(pod, items, requirements):
                log.info("Pod removed from update queue by PodEvictionAdmission", pod=pod.metadata.key)
            else:
                log.info(
                    "Pod accepted for update",
                    pod=pod.metadata.key,
                    updatePriority=judged.priority.resource_diff,
                    processedRecommendations=targets_text(items),
                )
                ranked.append((judged, pod))
        ranked.sort(key=lambda item: item[0].priority.rank, reverse=True)
        return [pod for _, pod in ranked]

    def _may_evict(self, pod: Pod, groups: DisruptionGroups) -> bool:
        return may_evict(pod, groups, self._resizing_for_s(pod))

    def _resizing_for_s(self, pod: Pod) -> float:
        now_s = self._clock.monotonic()
        return now_s - self._resizing_since_s.get(pod.metadata.key, now_s)

    def _decision(self, pod: Pod, vpa: VerticalPodAutoscaler, groups: DisruptionGroups) -> InPlaceDecision:
        return in_place_decision(
            pod,
            vpa,
            groups,
            self._settings.disruption,
            resizing_for_s=self._resizing_for_s(pod),
            infeasible=self._infeasible.get(pod.metadata.uid),
            in_place_gate=self._settings.common.gates.in_place,
        )

    async def _resize_all(
        self,
        vpa: VerticalPodAutoscaler,
        pods: list[Pod],
        groups: DisruptionGroups,
        size: str,
        evictions: list[Pod],
        deadline_s: float,
    ) -> bool:
        """Resize what may be resized; what has to be evicted instead is added to `evictions`."""
        mode, metadata = vpa.update_mode, vpa.metadata
        due = self._in_order(self._resizable(pods, vpa, groups, size), vpa)
        self._metrics.updatable.labels(size).inc(len(due))
        if due:
            self._metrics.vpas_updatable.labels(size).inc()
        resized = False
        for pod in due:
            decision = self._decision(pod, vpa, groups)
            if decision == "Evict":
                evictions.append(pod)
                continue
            if decision == "InfeasibleCached":
                continue
            if decision == "Deferred":
                log.info("In-place update deferred", pod=pod.metadata.key)
                if mode == IN_PLACE_OR_RECREATE:
                    continue
            elif decision == "Infeasible":
                self._remember_infeasible(pod, vpa)
            else:
                log.info("In-place update approved", pod=pod.metadata.key)
            if not await self._resizes.wait(deadline_s):
                self._count_failed_resize(vpa, size, "InPlaceUpdateRateLimiterWaitFailed")
                return False
            try:
                await self._resize(pod, vpa, groups)
            except (KubeError, BoostError, _NothingToPatch) as problem:
                reason = "InPlaceUpdateError"
                if mode == IN_PLACE:
                    if _is_infeasible(problem):
                        reason = "InPlaceUpdateInfeasible"
                        self._remember_infeasible(pod, vpa)
                    log.info("In-place resize failed", pod=pod.metadata.key, problem=str(problem), reason=reason)
                else:
                    evictions.append(pod)
                    log.info(
                        "In-place resize failed, falling back to eviction", pod=pod.metadata.key, problem=str(problem)
                    )
                self._count_failed_resize(vpa, size, reason)
                continue
            resized = True
            self._metrics.updated.labels(size, metadata.name, metadata.namespace).inc()
        if resized:
            self._metrics.vpas_updated.labels(size).inc()
        return True

    def _resizable(self, pods: list[Pod], vpa: VerticalPodAutoscaler, groups: DisruptionGroups, size: str) -> list[Pod]:
        """Pods that are not known to be without room; of the others an event says why they are left alone."""
        kept = []
        for pod in pods:
            decision = self._decision(pod, vpa, groups)
            if decision == "InfeasibleCached":
                text = (
                    "Previously recorded in-place update was infeasible, current recommendation is not lower than "
                    "previous, skipping resize"
                )
                self._events.record(reference(PODS, pod), "Normal", "InPlaceResizeSkipped", text)
                self._metrics.infeasible.labels(size, vpa.metadata.name, vpa.metadata.namespace).inc()
            elif decision != "Deferred" or vpa.update_mode == IN_PLACE:
                kept.append(pod)
        return kept

    async def _resize(self, pod: Pod, vpa: VerticalPodAutoscaler, groups: DisruptionGroups) -> None:
        """Resize one pod, then note it on the pod; failing to note it is not a failure."""
        metadata, now = pod.metadata, self._clock.now()
        group = groups.of_pod.get(metadata.key)
        if group is None:
            raise _NothingToPatch(f"pod not suitable for in-place update {metadata.name}: not in replicated pods map")
        patches = resize_patches(pod, vpa, now, self._limits(metadata.namespace))
        if not patches:
            raise _NothingToPatch("no resource patches were calculated to apply")
        body = msgspec.json.encode(patches)
        await self._kube.patch(PODS, metadata.name, body, metadata.namespace, kind="json", subresource="resize")
        log.info("In-place patched pod /resize subresource using patches", pod=metadata.key, patches=patches)
        notes = msgspec.json.encode(resize_annotation_patches(pod, vpa, now))
        try:
            await self._kube.patch(PODS, metadata.name, notes, metadata.namespace, kind="json")
        except KubeError as problem:
            log.info("Failed to patch pod annotations", pod=metadata.key, problem=str(problem))
        text = "Pod was resized in place by VPA Updater."
        self._events.record(reference(PODS, pod), "Normal", "InPlaceResizedByVPA", text)
        group.resized += 1

    async def _evict_all(
        self, vpa: VerticalPodAutoscaler, pods: list[Pod], groups: DisruptionGroups, size: str, deadline_s: float
    ) -> bool:
        mode, named = vpa.update_mode, (vpa.metadata.name, vpa.metadata.namespace)
        evicted = False
        for pod in pods:
            if not self._may_evict(pod, groups):
                continue
            if not await self._evictions.wait(deadline_s):
                self._metrics.failed_evictions.labels(size, mode, "EvictionRateLimiterWaitFailed", *named).inc()
                return False
            log.info("Evicting pod", pod=pod.metadata.key)
            try:
                await self._kube.evict(pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid or None)
            except KubeError as problem:
                log.info("Eviction failed", pod=pod.metadata.key, problem=str(problem))
                self._metrics.failed_evictions.labels(size, mode, "EvictionError", *named).inc()
                continue
            if pod.status.phase != "Pending":
                groups.of_pod[pod.metadata.key].evicted += 1
            evicted = True
            self._metrics.evicted.labels(size, mode, *named).inc()
            self._events.record(
                reference(PODS, pod),
                "Normal",
                "EvictedByVPA",
                "Pod was evicted by VPA Updater to apply resource recommendation.",
            )
            text = f"VPA Updater evicted Pod {pod.metadata.name} to apply resource recommendation."
            self._events.record(reference(VPAS, vpa), "Normal", "EvictedPod", text)
        if evicted:
            self._metrics.vpas_evicted.labels(size, mode).inc()
        return True

    def _remember_infeasible(self, pod: Pod, vpa: VerticalPodAutoscaler) -> None:
        if vpa.status.recommendation is not None:
            self._infeasible[pod.metadata.uid] = vpa.status.recommendation

    def _count_failed_resize(self, vpa: VerticalPodAutoscaler, size: str, reason: str) -> None:
        self._metrics.failed_updates.labels(size, reason, vpa.metadata.name, vpa.metadata.namespace).inc()

    # Startup boosts

    async def _selectors(self, namespace: str) -> list[Selected]:
        """All VPAs of a namespace, whatever their mode: a boost ends also if the VPA no longer asks for it."""
        chosen: list[Selected] = []
        for vpa in self._vpas.store.all():
            if vpa.metadata.namespace == namespace:
                chosen += await self._selected(vpa)
        return chosen

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is None or not self._settings.common.gates.cpu_startup_boost:
            return
        ready = condition(pod.status.conditions, "Ready")
        ignored = pod.metadata.namespace in self._settings.common.ignored_namespaces
        if ready is not None and ready.status == "True" and is_boosted(pod) and not ignored:
            self._boosted.add(pod.metadata.key)

    async def _unboost(self, key: str) -> None:
        """End a boost whose time is over. Raises to be called again after a growing pause."""
        pod = self._pods.store.get(key)
        if pod is None or not is_boosted(pod):
            self._lookups.pop(key, None)
            return
        owner = await self._owner(pod, await self._selectors(pod.metadata.namespace))
        if owner is None:
            self._lookups[key] += 1
            if self._lookups[key] > MAX_VPA_LOOKUPS:
                del self._lookups[key]
                return
            raise _BoostNotOver(f"no VPA controls pod {key}")
        self._lookups.pop(key, None)
        vpa, now = owner.vpa, self._clock.now()
        if not expired_boosts(pod, vpa, now):
            self._boosted.add_after(key, max(boost_remaining_s(pod, vpa, now), 0.1))
            return
        alike = [
            other
            for other in self._pods.store.all()
            if other.metadata.namespace == pod.metadata.namespace
            and other.metadata.deletion_timestamp is None
            and owner.query.matches(other.metadata.labels)
        ]
        groups = self._groups(alike, vpa)
        group = groups.of_pod.get(key)
        if pod.status.phase == "Pending" or group is None or is_resizing(pod) or not group.is_disruptable:
            raise _BoostNotOver(f"pod {key} cannot be unboosted yet")
        await self._resizes.wait(float("inf"))
        try:
            await self._resize(pod, vpa, groups)
        except (KubeError, BoostError, _NothingToPatch):
            self._count_failed_resize(vpa, size_log2(len(alike)), "UnboostError")
            raise
        self._metrics.updated.labels(size_log2(len(alike)), vpa.metadata.name, vpa.metadata.namespace).inc()


class _BoostNotOver(Exception):
    """A boost that cannot be ended now."""


def _log_unboost(key: str, problem: Exception, pause_s: float) -> None:
    log.debug("Unboosting failed", pod=key, problem=str(problem), again_in_s=round(pause_s, 1))


def _is_infeasible(problem: Exception) -> bool:
    """Whether the API server refused a resize because the node has no room."""
    if not isinstance(problem, ApiError) or problem.status != 403:
        return False
    causes = (problem.body.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == NODE_CAPACITY for cause in causes)


def _pod_order(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def _namespace(item: LimitRange) -> tuple[str]:
    return (item.metadata.namespace,)
