"""Metrics by upstream's names and labels, one registry a program; and the endpoints that serve them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import product

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from dovetail.autoscalers.go_flags import listen_address
from dovetail.autoscalers.vpa.api import AUTO, NAMED_MODES
from dovetail.clock import Clock
from dovetail.runtime.http_log import http_log

disable_created_metrics()  # type: ignore[no-untyped-call]

_STEPS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    70.0,
    80.0,
    90.0,
    100.0,
    120.0,
    150.0,
    240.0,
    300.0,
)
_REQUESTS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    30.0,
    60.0,
    120.0,
    300.0,
)
_LATENCIES = (
    1.0,
    2.0,
    5.0,
    7.5,
    10.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    90.0,
    120.0,
    150.0,
    180.0,
    240.0,
    300.0,
    600.0,
    900.0,
    1800.0,
)
_CORES = tuple(0.01 * 2**n for n in range(17))
_BYTES = tuple(1e6 * 2**n for n in range(17))
_RELATIVE = (
    -1.0,
    -0.75,
    -0.5,
    -0.25,
    -0.1,
    -0.05,
    -0.025,
    -0.01,
    -0.005,
    -0.0025,
    -0.001,
    0.0,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
)
#: A program that did not finish a loop for so many intervals is not healthy.
UNHEALTHY_INTERVALS = 5


UPDATE_MODES = (*NAMED_MODES, AUTO)
#: Pods of a VPA are counted by the logarithm of their number, from 0 to 19.
SIZES = 20


def size_log2(pods: int) -> str:
    """The size of a VPA as metrics show it: the whole logarithm of its pods, 0 for none."""
    return str(min(SIZES, max(pods, 1).bit_length() - 1))


class ProgramMetrics:
    """What all three programs measure: how long their steps take, and when they last finished a loop."""

    def __init__(self, prefix: str, clock: Clock, interval_s: float | None) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._active_s = clock.monotonic()
        self.prefix = prefix
        self.registry = CollectorRegistry()
        #: Counters whose names upstream does not end with `_total`, which the library appends.
        self._exact_names: list[str] = []
        ProcessCollector(registry=self.registry)
        self._steps = self.histogram(f"{prefix}_execution_latency_seconds", "Time spent in a step.", ("step",), _STEPS)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        if not name.endswith("_total"):
            self._exact_names.append(name)
        return Counter(name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._steps.labels(name).observe(self._clock.monotonic() - began)

    def active(self) -> None:
        self._active_s = self._clock.monotonic()

    def problem(self) -> str | None:
        """Why the program is not healthy; None if it is."""
        if self._interval_s is None:
            return None
        longest_s = self._interval_s * UNHEALTHY_INTERVALS
        silent_s = self._clock.monotonic() - self._active_s
        return f"Error: last activity more than {silent_s:g}s ago" if silent_s > longest_s else None

    def text(self) -> bytes:
        text = generate_latest(self.registry)
        for name in self._exact_names:
            text = re.sub(rb"(?m)^((?:# (?:HELP|TYPE) )?" + name.encode() + rb")_total\b", rb"\1", text)
        return text


class RecommenderMetrics(ProgramMetrics):
    def __init__(self, clock: Clock, interval_s: float) -> None:
        prefix = "vpa_recommender"
        super().__init__(prefix, clock, interval_s)
        labels = ("update_mode", "has_recommendation", "api", "matches_pods", "unsupported_config")
        self.objects = self.gauge(f"{prefix}_vpa_objects_count", "VPA objects.", labels)
        self.latency = self.histogram(
            f"{prefix}_recommendation_latency_seconds", "From creation to first recommendation.", (), _LATENCIES
        )
        self.aggregations = self.gauge(f"{prefix}_aggregate_container_states_count", "Aggregations in memory.")
        self.responses = self.counter(
            f"{prefix}_metric_server_responses", "Answers of the metrics API.", ("is_error", "client_name")
        )
        self.prometheus_requests = self.counter(
            f"{prefix}_prometheus_client_api_requests_count", "Requests to Prometheus.", ("code", "method")
        )
        self.prometheus_durations = self.histogram(
            f"{prefix}_prometheus_client_api_requests_duration_seconds", "Their time.", ("code", "method"), _REQUESTS
        )
        self.quality = QualityMetrics(self)

    def count_objects(self, counts: Mapping[tuple[str, str, str, str, str], int]) -> None:
        """Every combination of labels has a value, also 0: an alert on an absent series would never fire."""
        flags = ("false", "true")
        for labels in product(UPDATE_MODES, flags, ("v1beta1", "v1beta2", "v1"), flags, flags):
            self.objects.labels(*labels).set(counts.get(labels, 0))


class QualityMetrics:
    """How well recommendations fit what is used afterwards."""

    def __init__(self, metrics: ProgramMetrics) -> None:
        mode, missing, oom = "update_mode", "recommendation_missing", "is_oom"
        self._relative = metrics.histogram(
            "vpa_quality_usage_recommendation_relative_diffs",
            "Usage against recommendation, relative.",
            (mode, "resource", oom),
            _RELATIVE,
        )
        self._missing = metrics.counter(
            "vpa_quality_usage_sample_missing_recommendation_count",
            "Samples without a recommendation.",
            (mode, "resource", oom),
        )
        self._over = {
            "cpu": metrics.histogram(
                "vpa_quality_cpu_recommendation_over_usage_diffs_cores", "Above usage.", (mode, missing), _CORES
            ),
            "memory": metrics.histogram(
                "vpa_quality_mem_recommendation_over_usage_diffs_bytes", "Above usage.", (mode, missing, oom), _BYTES
            ),
        }
        self._under = {
            "cpu": metrics.histogram(
                "vpa_quality_cpu_recommendation_lower_equal_usage_diffs_cores",
                "At or below usage.",
                (mode, missing),
                _CORES,
            ),
            "memory": metrics.histogram(
                "vpa_quality_mem_recommendation_lower_equal_usage_diffs_bytes",
                "At or below usage.",
                (mode, missing, oom),
                _BYTES,
            ),
        }
        self._recommended = {
            "cpu": metrics.histogram("vpa_quality_cpu_recommendations_cores", "Recommended CPU.", (mode,), _CORES),
            "memory": metrics.histogram(
                "vpa_quality_mem_recommendations_bytes", "Recommended memory.", (mode, oom), _BYTES
            ),
        }
        self._changes = metrics.histogram(
            "vpa_quality_relative_recommendation_changes",
            "New recommendation against the old one.",
            (mode, "resource", "vpa_size_log2"),
            _RELATIVE,
        )

    def sample(self, resource: str, usage: float, recommended: float, mode: str, oom: bool = False) -> None:
        """One sample, in cores or bytes; a recommendation of 0 is a missing one."""
        flag, absent = str(oom).lower(), str(not recommended).lower()
        tail = () if resource == "cpu" else (flag,)
        if recommended:
            self._recommended[resource].labels(mode, *tail).observe(recommended)
            self._relative.labels(mode, resource, flag).observe((usage - recommended) / recommended)
        else:
            self._missing.labels(mode, resource, flag).inc()
        family = self._over if recommended > usage else self._under
        family[resource].labels(mode, absent, *tail).observe(abs(usage - recommended))

    def change(self, before: Mapping[str, int], after: Mapping[str, int], mode: str, pods: int) -> None:
        """One aggregation's new recommendation, also if it is the old one."""
        for name, amount in after.items():
            old = before.get(name, 0)
            if old > 0:
                self._changes.labels(mode, name, size_log2(pods)).observe(amount / old - 1.0)


class UpdaterMetrics(ProgramMetrics):
    def __init__(self, clock: Clock, interval_s: float) -> None:
        prefix = "vpa_updater"
        super().__init__(prefix, clock, interval_s)
        size, mode, named = "vpa_size_log2", "update_mode", ("vpa_name", "vpa_namespace")
        self.controlled = self.gauge(f"{prefix}_controlled_pods_total", "Pods under VPAs.", (size, mode))
        self.evictable = self.gauge(f"{prefix}_evictable_pods_total", "Pods due for eviction.", (size, mode))
        self.vpas_evictable = self.gauge(f"{prefix}_vpas_with_evictable_pods_total", "Their VPAs.", (size, mode))
        self.vpas_evicted = self.gauge(f"{prefix}_vpas_with_evicted_pods_total", "VPAs that evicted.", (size, mode))
        self.updatable = self.gauge(f"{prefix}_in_place_updatable_pods_total", "Pods due for a resize.", (size,))
        self.vpas_updatable = self.gauge(f"{prefix}_vpas_with_in_place_updatable_pods_total", "Their VPAs.", (size,))
        self.vpas_updated = self.gauge(f"{prefix}_vpas_with_in_place_updated_pods_total", "VPAs that resized.", (size,))
        self.evicted = self.counter(f"{prefix}_evicted_pods_total", "Pods evicted.", (size, mode, *named))
        self.failed_evictions = self.counter(
            f"{prefix}_failed_eviction_attempts_total", "Evictions refused.", (size, mode, "reason", *named)
        )
        self.updated = self.counter(f"{prefix}_in_place_updated_pods_total", "Pods resized.", (size, *named))
        self.failed_updates = self.counter(
            f"{prefix}_failed_in_place_update_attempts_total", "Resizes refused.", (size, "reason", *named)
        )
        self.infeasible = self.counter(
            f"{prefix}_in_place_infeasible_skip_pods_total", "Pods whose node has no room.", (size, *named)
        )
        self.status_invalid = self.counter(
            f"{prefix}_admission_controller_status_invalid_total", "Loops skipped.", ("reason",)
        )

    def begin_loop(self) -> None:
        for family in (
            self.controlled,
            self.evictable,
            self.vpas_evictable,
            self.vpas_evicted,
            self.updatable,
            self.vpas_updatable,
            self.vpas_updated,
        ):
            family.clear()
        for family in (self.updatable, self.vpas_updatable, self.vpas_updated):
            for size in range(SIZES):
                family.labels(str(size)).set(0)

    def show_counters(self, size: str, mode: str, name: str, namespace: str) -> None:
        """Let the counters of a VPA be seen before they count anything."""
        self.evicted.labels(size, mode, name, namespace).inc(0)
        self.updated.labels(size, name, namespace).inc(0)


class AdmissionMetrics(ProgramMetrics):
    def __init__(self, clock: Clock) -> None:
        prefix = "vpa_admission_controller"
        super().__init__(prefix, clock, None)
        self.pods = self.counter(f"{prefix}_admission_pods_total", "Pods seen.", ("applied",))
        self.latency = self.histogram(
            f"{prefix}_admission_latency_seconds", "Time of a review.", ("status", "resource"), _REQUESTS
        )


@asynccontextmanager
async def serving(address: str, metrics: ProgramMetrics) -> AsyncIterator[None]:
    """Serve /metrics and /health-check at `host:port` while the block runs; an empty address serves nothing."""
    listening = listen_address("address", address)
    if listening is None:
        yield
        return
    app = web.Application()
    app.add_routes([web.get("/metrics", _answer(metrics.text)), web.get("/health-check", _health(metrics))])
    runner = web.AppRunner(app, access_log=None, logger=http_log)
    await runner.setup()
    try:
        await web.TCPSite(runner, *listening).start()
        yield
    finally:
        await runner.cleanup()


def _answer(text: Callable[[], bytes]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    return answer


def _health(metrics: ProgramMetrics) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.Response:
        problem = metrics.problem()
        return web.Response(status=500 if problem else 200, text=problem or "OK")

    return answer
