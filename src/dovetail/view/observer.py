"""Watches a cluster and publishes a view of its fleet whenever it changes: once for all who look. It writes nothing.

A cluster without our kinds, or one of which some kinds may not be read, is shown as far as it goes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.clock import Clock, beside, stopwatch
from dovetail.cluster.state import ClusterState
from dovetail.controllers.explain.answer import no_autoscaler, safe_mode
from dovetail.controllers.history.store import LABEL, NAMESPACE
from dovetail.controllers.settings import Settings
from dovetail.kube.backoff import NEVER
from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden, KubeError, NotFound
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import CONFIGMAPS, CORE_EVENTS, HPAS, LEASES, NODECLAIMS, NODEPOOLS, NODES, PODS, Resource
from dovetail.kube.transport import Request
from dovetail.language import message, source
from dovetail.model.meta import ObjectMeta, View
from dovetail.model.nodes import Event, Lease
from dovetail.model.quantity import QuantityError, resources
from dovetail.view import events
from dovetail.view.decisions import DecisionLog
from dovetail.view.difference import Difference, difference
from dovetail.view.fleet import Fleet
from dovetail.view.lower_bound import Bounds, bound
from dovetail.view.model import Amounts, FleetView, WatchHealth
from dovetail.view.scaling import ScalingLog

VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False)

#: Changes within so many seconds become one difference.
COALESCE_S = 0.25
#: How often the server is asked whether it is there, and how long it may take to answer.
PROBE_INTERVAL_S, PROBE_TIMEOUT_S = 3.0, 3.0
#: How often it is checked whether a watch broke.
HEALTH_INTERVAL_S = 0.75
USAGE_INTERVAL_S = 15.0
LEASES_INTERVAL_S = 30.0
#: How often the lower bound may be computed; and how many times as long as that took is waited at least.
BOUND_INTERVAL_S, BOUND_PAUSE = 1.0, 60.0
SETTLE_INTERVAL_S = 0.02
#: What is said of usage before the first answer.
NOT_ASKED = source("not asked yet")
#: What is said of a kind that may not be listed.
NOT_PERMITTED = source("not permitted")

#: Kinds without a namespace, whose events are in one nevertheless.
_CLUSTER_SCOPED = frozenset(("Node", "NodeClaim", "NodePool"))

#: What the containers of a pod use, by their names.
ContainerUsage = Mapping[str, Amounts]
Listener = Callable[[FleetView, Difference], None]


class NodeMetrics(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    usage: Mapping[str, str] = {}


class ContainerMetrics(View, frozen=True, kw_only=True):
    name: str = ""
    usage: Mapping[str, str] = {}


class PodMetrics(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    containers: tuple[ContainerMetrics, ...] = ()


class Observer:
    """Runs until cancelled. `speed` is how many seconds of the loop pass in a second of the viewer."""

    def __init__(self, kube: Kube, clock: Clock, *, history_namespace: str | None = None, speed: float = 1.0) -> None:
        self.kube = kube.read_only().observed(self._observe)
        self.clock = clock
        self._speed = speed
        self._history_namespace = history_namespace
        self.state = ClusterState(self.kube, clock, only_viewed=True)
        self.fleet = Fleet(self.state)
        self.events = events.Events()
        self.decisions = DecisionLog()
        self.scaling = ScalingLog()
        self.hpas: Reflector[dict[str, Any]] = Reflector(self.kube, HPAS, on_event=self._take_hpa)
        self.vpas: Reflector[dict[str, Any]] = Reflector(self.kube, VPAS, on_event=self._take_vpa)
        self._event_watch: Reflector[Event] = Reflector(
            self.kube, CORE_EVENTS, Event, keep=events.kept, on_event=self._take_event
        )
        #: Watches of the decision history, by namespace.
        self.histories: dict[str, Reflector[dict[str, Any]]] = {}
        for reflector in (self.hpas, self.vpas, self._event_watch):
            reflector.optional = True
        self.view = FleetView()
        #: Set once there is a whole view.
        self.ready = asyncio.Event()
        self._listeners: list[Listener] = []
        #: Called with the kind and key of what changed beside the view: an HPA, a VPA, an object with a new event.
        self.on_object: Callable[[str, str], None] = lambda kind, key: None
        self._pod_usage: dict[str, tuple[float, Mapping[str, ContainerUsage] | None]] = {}
        self._changed = asyncio.Event()
        self._decided = False
        self._unreachable = ""
        self._metrics_problem = NOT_ASKED
        self._bounded = False
        self._autoscaler: str | None = None
        self._kubernetes: str | None = None
        self._api_errors = 0
        self._last_api_error = ""
        for resource in (PODS, NODES, NODECLAIMS, NODEPOOLS):
            self.state.listen(resource, self._note)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every new view and what changed; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.state.run(), name="view cluster state")
            for reflector in (self.hpas, self.vpas, self._event_watch):
                group.create_task(reflector.run(), name=f"view {reflector.resource.name}")
            group.create_task(self._watch_history(group), name="view history")
            group.create_task(self._probe(), name="view probe")
            group.create_task(self._measure(), name="view usage")
            group.create_task(self._publish(), name="view publish")
            group.create_task(self._bound(), name="view lower bound")

    async def settle(self, seconds: float) -> None:
        """Wait until events, history, usage and bound are known or known to be missing, or so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds * self._speed):
                while not self._is_complete():  # noqa: ASYNC110 (several watches, each with its own event)
                    await asyncio.sleep(SETTLE_INTERVAL_S)
        self._update()

    def _is_complete(self) -> bool:
        watches: tuple[Reflector[Any], ...] = (self._event_watch, *self.histories.values())
        has_answers = self._metrics_problem != NOT_ASKED and self._bounded and bool(self.histories)
        return has_answers and all(watch.synced.is_set() or watch.failure is not None for watch in watches)

    # -- what the watches say

    def _note(self, change: CacheChange[Any]) -> None:
        self._changed.set()

    def _take_event(self, change: CacheChange[Event]) -> None:
        self.events.take(change)
        self._changed.set()
        subject = events.subject_of(change.object)
        key = f"{subject.namespace}/{subject.name}" if subject.kind not in _CLUSTER_SCOPED else subject.name
        self.on_object(subject.kind.lower(), key)

    def _take_hpa(self, change: CacheChange[dict[str, Any]]) -> None:
        self.scaling.take(change, self.clock.now().timestamp())
        self.on_object("hpa", change.key)

    def _take_vpa(self, change: CacheChange[dict[str, Any]]) -> None:
        self.on_object("vpa", change.key)

    async def pod_usage(self, namespace: str) -> Mapping[str, ContainerUsage] | None:
        """What the containers of a namespace's pods use, by the name of the pod; None where there are no metrics.

        Read when it is looked at, for the usage of all pods of a large cluster would cost more than all else here.
        """
        now = self.clock.monotonic()
        held = self._pod_usage.get(namespace)
        if held is None or held[0] <= now:
            try:
                items = (await self.kube.list(POD_METRICS, namespace, type=PodMetrics)).items
                usage: Mapping[str, ContainerUsage] | None = {
                    pod.metadata.name: {measured.name: _amounts(measured.usage) for measured in pod.containers}
                    for pod in items
                }
            except KubeError:
                usage = None
            self._pod_usage = {name: entry for name, entry in self._pod_usage.items() if entry[0] > now}
            held = self._pod_usage[namespace] = (now + USAGE_INTERVAL_S * self._speed, usage)
        return held[1]

    def _take_history(self, change: CacheChange[dict[str, Any]]) -> None:
        self.decisions.take(change)
        self._decided = True
        self._changed.set()

    def _observe(self, request: Request, answer: int | KubeError, seconds: float) -> None:
        """Count what the API server refuses; a kind that it does not serve is no error."""
        failed = answer >= 400 and answer not in (404, 410) if isinstance(answer, int) else True
        if failed and not isinstance(answer, NotFound):
            self._api_errors += 1
            self._last_api_error = f"{request.method} {request.path}: {answer}"

    async def _watch_history(self, group: asyncio.TaskGroup) -> None:
        """The decision history is beside the controller: in the namespaces that have its lease."""
        while True:
            leases = await self._leases()
            if leases is not None:
                self._autoscaler = no_autoscaler(leases, self.clock.now()) if leases else None
            named = {lease.metadata.namespace for lease in leases or ()} or {NAMESPACE}
            for namespace in {self._history_namespace} if self._history_namespace else named:
                if namespace not in self.histories:
                    history: Reflector[dict[str, Any]] = Reflector(
                        self.kube, CONFIGMAPS, namespace=namespace, labels=f"{LABEL}=true", on_event=self._take_history
                    )
                    history.optional = True
                    self.histories[namespace] = history
                    group.create_task(history.run(), name=f"view history {namespace}")
            await asyncio.sleep(LEASES_INTERVAL_S)

    async def _leases(self) -> list[Lease] | None:
        named = f"metadata.name={Settings().leader_election_name}"
        try:
            return (await self.kube.list(LEASES, self._history_namespace, fields=named, type=Lease)).items
        except KubeError:
            return None

    async def _probe(self) -> None:
        while True:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT_S * self._speed):
                    body = (await self.kube.request("GET", "/version", retries=NEVER)).body
                self._kubernetes = msgspec.json.decode(body).get("gitVersion")
                self._unreachable = ""
            except (KubeError, TimeoutError, msgspec.DecodeError) as problem:
                self._unreachable = str(problem) or message(
                    "no answer within {probe_timeout_s:g} s", probe_timeout_s=PROBE_TIMEOUT_S
                )
            await asyncio.sleep(PROBE_INTERVAL_S * self._speed)

    async def _measure(self) -> None:
        """Usage of the nodes; without metrics it is unknown."""
        while True:
            try:
                metrics = (await self.kube.list(NODE_METRICS, type=NodeMetrics)).items
                self.fleet.set_usage(
                    {node_metrics.metadata.name: _amounts(node_metrics.usage) for node_metrics in metrics}
                )
                self._metrics_problem = ""
            except NotFound:
                self._metrics_problem = message("metrics.k8s.io is not served: install metrics-server")
                self.fleet.set_usage({})
            except KubeError as problem:
                self._metrics_problem = str(problem)
                self.fleet.set_usage({})
            self._changed.set()
            await asyncio.sleep(USAGE_INTERVAL_S)

    async def _bound(self) -> None:
        """The lower bound, anew after the nodes changed: beside the loop, and for a small part of a processor."""
        await self.ready.wait()
        bounds, nodes, pending = Bounds(self.state), None, None
        while True:
            took = 0.0
            if self.view.nodes is not nodes or self.view.pending is not pending:
                nodes, pending, began = self.view.nodes, self.view.pending, stopwatch()
                problem = bounds.problem(self.view)
                lower_bound = await beside(partial(bound, problem)) if problem is not None else None
                took = stopwatch() - began
                self.fleet.set_bound(lower_bound)
                self._bounded = True
                self._changed.set()
            await asyncio.sleep(max(BOUND_INTERVAL_S, took * BOUND_PAUSE) * self._speed)

    # -- publishing

    async def _publish(self) -> None:
        await self.state.synced.wait()
        while True:
            self._update()
            self.ready.set()
            await asyncio.sleep(COALESCE_S * self._speed)
            with suppress(TimeoutError):  # a watch that breaks says nothing by itself
                async with asyncio.timeout(HEALTH_INTERVAL_S * self._speed):
                    await self._changed.wait()
            self._changed.clear()

    def _update(self) -> None:
        if self._decided:
            self._decided = False
            self.fleet.set_decisions(self.decisions.all())
        subjects = tuple(self.events.changed)
        self.events.changed.clear()
        pods = [f"{subject.namespace}/{subject.name}" for subject in subjects if subject.kind == "Pod"]
        self.fleet.set_scheduler_messages(self._scheduler_says, pods)
        self.fleet.set_health(self._health())
        new = self.fleet.view()
        if new is self.view:
            return
        old, self.view = self.view, new
        change = difference(old, new)
        for listener in tuple(self._listeners):
            listener(new, change)

    def _scheduler_says(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return self.events.last_message(namespace, name, "FailedScheduling")

    def _health(self) -> WatchHealth:
        failures = dict(self.state.unread())
        watches: tuple[Reflector[Any], ...] = (self.hpas, self.vpas, self._event_watch, *self.histories.values())
        for reflector in watches:
            if reflector.failure is not None:
                failures[reflector.resource.name] = reflector.failure
        refused = {name: why for name, why in failures.items() if isinstance(why, NotFound | Forbidden)}
        problems = {name: str(why) for name, why in failures.items() if name not in refused}
        if self._unreachable:
            problems["API server"] = self._unreachable
        read = any(history.synced.is_set() for history in self.histories.values())
        kubelets = Counter(node.status.node_info.kubelet_version for node in self.state.nodes.store)
        return WatchHealth(
            connected=not problems,
            problems=problems,
            unread={name: _short(why) for name, why in refused.items()},
            safe_mode=safe_mode(self.decisions.all()) if read else None,
            autoscaler=self._autoscaler,
            api_errors=self._api_errors,
            last_api_error=self._last_api_error,
            metrics=self._metrics_problem,
            kubernetes=self._kubernetes,
            dovetail=__version__,
            kubelets={version or "unknown": count for version, count in kubelets.items()},
        )


def _short(why: KubeError) -> str:
    """Untranslated: it is compared, and shown to viewers of any language."""
    return source("not served") if isinstance(why, NotFound) else NOT_PERMITTED


def _amounts(usage: Mapping[str, str]) -> Amounts:
    """What cannot be read is absent, so drawn as unknown."""
    with suppress(QuantityError):
        return resources(usage)
    return {}
