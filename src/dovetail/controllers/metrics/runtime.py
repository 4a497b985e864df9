"""Metrics of the controllers themselves, by the names of controller-runtime, client-go and its work queues.

Alerts on stuck or failing controllers use these names whatever the controllers are written in. What only Go has
(panics of a conversion webhook in the same process, reconciliation timeouts, terminal errors: every error here is
retried) is left out and listed in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dovetail.clock import Clock
from dovetail.kube.errors import KubeError
from dovetail.kube.transport import Request

#: Buckets of durations, in seconds, as controller-runtime and client-go have them.
RECONCILE_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.35,
    0.4,
    0.45,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
    3.5,
    4.0,
    4.5,
    5,
    6,
    7,
    8,
    9,
    10,
    15,
    20,
    25,
    30,
    40,
    50,
    60,
)
QUEUE_BUCKETS = tuple(10.0**exponent for exponent in range(-8, 4))
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


#: What a reconciliation ends in.
RESULTS = ("success", "error")


class RuntimeMetrics:
    """One per run, on the run's registry."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._children: dict[str, _ControllerChildren] = {}
        self._request_counters: dict[tuple[str, str], tuple[Counter, Counter]] = {}
        self._request_durations: dict[tuple[str, ...], Histogram] = {}
        controller = ("controller",)
        queue = ("controller", "name")

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        runtime = "controller_runtime_"
        self.reconciled = counter(f"{runtime}reconcile", "Reconciliations, by result.", (*controller, "result"))
        self.errors = counter(f"{runtime}reconcile_errors", "Reconciliations that failed.", controller)
        self.panics = counter(
            f"{runtime}reconcile_panics", "Failures that neither Kubernetes nor the cloud explains.", controller
        )
        self.seconds = histogram(
            f"{runtime}reconcile_time_seconds", "Time of a reconciliation.", controller, RECONCILE_BUCKETS
        )
        self.active = gauge(f"{runtime}active_workers", "Reconciliations under way.", controller)
        self.most = gauge(f"{runtime}max_concurrent_reconciles", "Most reconciliations at once.", controller)
        self.depth = gauge("workqueue_depth", "Objects that wait.", queue)
        self.adds = counter("workqueue_adds", "Objects that were added.", queue)
        self.retries = counter("workqueue_retries", "Objects that were added again after a failure.", queue)
        self.queued_seconds = histogram(
            "workqueue_queue_duration_seconds", "How long objects waited.", queue, QUEUE_BUCKETS
        )
        self.work_seconds = histogram(
            "workqueue_work_duration_seconds", "How long objects were worked on.", queue, QUEUE_BUCKETS
        )
        self.unfinished = gauge("workqueue_unfinished_work_seconds", "Age of all work under way, summed.", queue)
        self.longest = gauge("workqueue_longest_running_processor_seconds", "Age of the oldest work under way.", queue)
        self.requests = counter("client_go_request", "Requests to the API server.", ("code", "method"))
        self.rest_requests = counter(
            "rest_client_requests", "Requests to the API server; <error> where there was no answer.", ("code", "method")
        )
        self.request_seconds = histogram(
            "client_go_request_duration_seconds",
            "Time of a request to the API server, without watches.",
            ("verb", "group", "version", "kind", "subresource"),
            REQUEST_BUCKETS,
        )
        self.master = gauge("leader_election_master_status", "1 while this process leads.", ("name",))
        self.slow_path = counter(
            "leader_election_slowpath", "Renewals of the lease that had to read it first.", ("name",)
        )
        self.events_dropped = counter("dovetail_events_dropped", "Events that were not written.")
        self.history_failures = counter(
            "dovetail_history_write_failures", "Writes of decisions to their store that failed."
        )
        self.loop_lag = histogram("dovetail_loop_lag_seconds", "How late the event loop runs.", (), LAG_BUCKETS)

    def queue(self, controller: str, depth: Callable[[], int], workers: int) -> QueueMetrics:
        """The numbers of one work queue. Its counters begin at 0: an absent one has no rate."""
        self.most.labels(controller).set(workers)
        for counter in (self.errors, self.panics):
            counter.labels(controller)
        for result in RESULTS:
            self.reconciled.labels(controller, result)
        return QueueMetrics(self, controller, depth, self._clock.monotonic)

    def reconciliation(self, controller: str, expected: tuple[type[Exception], ...]) -> _CountedReconciliation:
        """Count one reconciliation. Failures other than `expected` are the ones Go would have panicked with."""
        children = self._children.get(controller)
        if children is None:
            children = self._children[controller] = _ControllerChildren(self, controller)
        return _CountedReconciliation(children, expected, self._clock.monotonic)

    def observe_request(self, request: Request, answer: int | KubeError, seconds: float) -> None:
        """One request: its status, or the error that there was instead of an answer."""
        code = str(answer) if isinstance(answer, int) else "<error>"
        counters = self._request_counters.get((code, request.method))
        if counters is None:
            counters = self.requests.labels(code, request.method), self.rest_requests.labels(code, request.method)
            self._request_counters[code, request.method] = counters
        for counter in counters:
            counter.inc()
        address = address_of(request)
        if address[0] != "WATCH":
            durations = self._request_durations.get(address)
            if durations is None:
                durations = self._request_durations[address] = self.request_seconds.labels(*address)
            durations.observe(seconds)


class _ControllerChildren:
    """The series of one controller, looked up once: reconciliations are many."""

    def __init__(self, metrics: RuntimeMetrics, controller: str) -> None:
        self.active = metrics.active.labels(controller)
        self.seconds = metrics.seconds.labels(controller)
        self._of = metrics
        self._controller = controller
        self._reconciled: dict[str, Counter] = {}

    def count(self, result: str) -> None:
        counter = self._reconciled.get(result)
        if counter is None:
            counter = self._reconciled[result] = self._of.reconciled.labels(self._controller, result)
        counter.inc()

    def fail(self, panic: bool) -> None:
        self._of.errors.labels(self._controller).inc()
        if panic:
            self._of.panics.labels(self._controller).inc()


class _CountedReconciliation:
    """One reconciliation under way."""

    __slots__ = ("_began", "_children", "_expected", "_now")

    def __init__(
        self, children: _ControllerChildren, expected: tuple[type[Exception], ...], now: Callable[[], float]
    ) -> None:
        self._children = children
        self._expected = expected
        self._now = now

    def __enter__(self) -> None:
        self._began = self._now()
        self._children.active.inc()

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        failed = isinstance(problem, Exception)
        if failed:
            self._children.fail(panic=not isinstance(problem, self._expected))
        self._children.active.dec()
        self._children.count("error" if failed else "success")
        self._children.seconds.observe(self._now() - self._began)


def address_of(request: Request) -> tuple[str, str, str, str, str]:
    """Verb, group, version, resource and subresource of a request, as the API server's audit log has them."""
    parts = request.path.strip("/").split("/")
    group, version, rest = "", "", parts
    if parts[0] == "api" and len(parts) > 1:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 2:
        group, version, rest = parts[1], parts[2], parts[3:]
    if len(rest) > 2 and rest[0] == "namespaces":
        rest = rest[2:]
    verb = request.method
    if verb == "GET" and len(rest) == 1:
        verb = "LIST"
    if request.parameter("watch") is not None:
        verb = "WATCH"
    return verb, group, version, rest[0] if rest else "", rest[2] if len(rest) > 2 else ""


class QueueMetrics:
    """Metrics of one work queue; ages of work under way are computed at scrape time."""

    def __init__(
        self, metrics: RuntimeMetrics, controller: str, depth: Callable[[], int], now: Callable[[], float]
    ) -> None:
        labels: Any = (controller, controller)
        self._now = now
        self._waiting: dict[Hashable, float] = {}
        self._working: dict[Hashable, float] = {}
        self._adds = metrics.adds.labels(*labels)
        self._retries = metrics.retries.labels(*labels)
        self._queued = metrics.queued_seconds.labels(*labels)
        self._work = metrics.work_seconds.labels(*labels)
        metrics.depth.labels(*labels).set_function(lambda: float(depth()))
        metrics.unfinished.labels(*labels).set_function(lambda: sum(self._ages()))
        metrics.longest.labels(*labels).set_function(lambda: max(self._ages(), default=0.0))

    def added(self, key: Hashable) -> None:
        self._adds.inc()
        self._waiting[key] = self._now()

    def taken(self, key: Hashable) -> None:
        now = self._working[key] = self._now()
        self._queued.observe(now - self._waiting.pop(key, now))

    def done(self, key: Hashable) -> None:
        now = self._now()
        self._work.observe(now - self._working.pop(key, now))

    def retried(self) -> None:
        self._retries.inc()

    def _ages(self) -> list[float]:
        now = self._now()
        return [now - since for since in tuple(self._working.values())]
