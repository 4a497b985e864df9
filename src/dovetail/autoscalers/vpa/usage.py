"""Usage samples of a container, and the aggregation that all containers alike share.

CPU samples go into the histogram as they come. Of memory only the peak of each aggregation interval counts, and
it is stored at the end of its interval, so that a higher sample in the same interval can replace it.
"""

from __future__ import annotations

import math

import msgspec

from dovetail.autoscalers.vpa.api import ContainerPolicy
from dovetail.autoscalers.vpa.histogram import DecayingHistogram, ExponentialBuckets
from dovetail.model.quantity import parse

#: The weight of a CPU sample before decay.
CPU_SAMPLE_WEIGHT = 0.1
MEMORY_PEAK_WEIGHT = 1.0
#: Buckets lighter than this count as empty.
EPSILON = 0.001 * CPU_SAMPLE_WEIGHT
BUCKET_GROWTH = 1.05
#: Cores, and bytes: from 0.01 to 1000 cores, from 10 MB to 1 TB. The checkpoint version stands for these numbers.
CPU_BUCKETS = ExponentialBuckets(1000.0, 0.01, BUCKET_GROWTH, EPSILON)
MEMORY_BUCKETS = ExponentialBuckets(1e12, 1e7, BUCKET_GROWTH, EPSILON)
#: No amount of milli-cores or bytes is larger.
MAX_AMOUNT = 10**14

DAY_S = 86400.0


def bounded_amount(value: float) -> int:
    """A number as an amount: truncated, not negative, at most MAX_AMOUNT; not a number is 0."""
    if math.isnan(value) or value < 0:
        return 0
    return MAX_AMOUNT if value > MAX_AMOUNT else int(value)


class AggregationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How samples are kept; the defaults are upstream's."""

    memory_interval_s: float = DAY_S
    memory_interval_count: int = 8
    memory_half_life_s: float = DAY_S
    cpu_half_life_s: float = DAY_S
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: float = 100.0 * 1024 * 1024
    #: Whether policies may set the four values above for their containers (gate PerVPAConfig).
    per_vpa_config: bool = False


DEFAULT_SETTINGS = AggregationSettings()


class Aggregation:
    """What is known of the usage of all containers of one name in pods with the same labels."""

    __slots__ = (
        "controlled_resources",
        "cpu",
        "created_s",
        "first_sample_s",
        "last_recommendation",
        "last_sample_s",
        "memory",
        "memory_interval_count",
        "memory_interval_s",
        "mode",
        "oom_bump_up_ratio",
        "oom_min_bump_up_bytes",
        "samples",
        "settings",
        "under_vpa",
        "update_mode",
    )

    def __init__(self, settings: AggregationSettings = DEFAULT_SETTINGS, created_s: float = 0.0) -> None:
        self.settings = settings
        self.cpu = DecayingHistogram(CPU_BUCKETS, settings.cpu_half_life_s)
        self.memory = DecayingHistogram(MEMORY_BUCKETS, settings.memory_half_life_s)
        #: Of CPU samples only.
        self.first_sample_s: float | None = None
        self.last_sample_s: float | None = None
        self.samples = 0
        self.created_s = created_s
        self.under_vpa = False
        self.mode: str | None = None
        self.controlled_resources: tuple[str, ...] | None = None
        #: Milli-cores and bytes, against which new samples are measured.
        self.last_recommendation: dict[str, int] | None = None
        self.update_mode = ""
        self.oom_bump_up_ratio = settings.oom_bump_up_ratio
        self.oom_min_bump_up_bytes = settings.oom_min_bump_up_bytes
        self.memory_interval_s = settings.memory_interval_s
        self.memory_interval_count = settings.memory_interval_count

    def add_cpu(self, millicores: int, time_s: float) -> None:
        self.cpu.add_at(millicores / 1000.0, CPU_SAMPLE_WEIGHT, time_s)
        if self.last_sample_s is None or time_s > self.last_sample_s:
            self.last_sample_s = time_s
        if self.first_sample_s is None or time_s < self.first_sample_s:
            self.first_sample_s = time_s
        self.samples += 1

    def add_memory_peak(self, size_bytes: int, time_s: float) -> None:
        self.memory.add_at(float(size_bytes), MEMORY_PEAK_WEIGHT, time_s)

    def subtract_memory_peak(self, size_bytes: int, time_s: float) -> None:
        self.memory.subtract_at(float(size_bytes), MEMORY_PEAK_WEIGHT, time_s)

    def merge(self, other: Aggregation) -> None:
        self.cpu.merge(other.cpu)
        self.memory.merge(other.memory)
        if other.first_sample_s is not None and (
            self.first_sample_s is None or other.first_sample_s < self.first_sample_s
        ):
            self.first_sample_s = other.first_sample_s
        if other.last_sample_s is not None and (self.last_sample_s is None or other.last_sample_s > self.last_sample_s):
            self.last_sample_s = other.last_sample_s
        self.samples += other.samples

    def take_policy(self, policy: ContainerPolicy | None) -> None:
        """Follow a policy. Values of its own stay when the policy loses them, as in upstream's recommender."""
        self.mode = (policy.mode if policy is not None else None) or "Auto"
        controlled = policy.controlled_resources if policy is not None else None
        self.controlled_resources = (
            ("cpu", "memory") if controlled is None else tuple(name for name in controlled if name in ("cpu", "memory"))
        )
        if policy is None or not self.settings.per_vpa_config:
            return
        if policy.oom_bump_up_ratio is not None:
            self.oom_bump_up_ratio = parse(policy.oom_bump_up_ratio).milli / 1000.0
        if policy.oom_min_bump_up is not None:
            self.oom_min_bump_up_bytes = parse(policy.oom_min_bump_up).milli / 1000.0
        if policy.memory_aggregation_interval_seconds is not None:
            self.memory_interval_s = float(policy.memory_aggregation_interval_seconds)
        if policy.memory_aggregation_interval_count is not None:
            self.memory_interval_count = policy.memory_aggregation_interval_count

    def leave_vpa(self) -> None:
        self.under_vpa = False
        self.mode = None
        self.update_mode = ""
        self.controlled_resources = None
        self.last_recommendation = None

    @property
    def needs_recommendation(self) -> bool:
        return self.under_vpa and self.mode not in (None, "Off")

    @property
    def is_empty(self) -> bool:
        return self.samples == 0

    def is_expired(self, now_s: float) -> bool:
        """Whether the newest sample, or without one the aggregation itself, is older than all intervals together."""
        newest_s = self.created_s if self.is_empty else self.last_sample_s
        assert newest_s is not None
        return now_s - newest_s >= self.memory_interval_s * self.memory_interval_count


class ContainerUsage:
    """The samples of one container of one pod. Amounts are milli-cores and bytes, times seconds since 1970."""

    __slots__ = (
        "aggregation",
        "last_cpu_sample_s",
        "last_memory_sample_s",
        "memory_peak",
        "oom_peak",
        "window_end_s",
    )

    def __init__(self, aggregation: Aggregation) -> None:
        self.aggregation = aggregation
        self.last_cpu_sample_s: float | None = None
        self.last_memory_sample_s: float | None = None
        self.memory_peak = 0
        #: Estimated from an out-of-memory kill in the present interval; it never adds to a later estimate.
        self.oom_peak = 0
        self.window_end_s: float | None = None

    @property
    def peak(self) -> int:
        return max(self.memory_peak, self.oom_peak)

    def takes_cpu(self, millicores: int, time_s: float) -> bool:
        """Whether a sample counts: one that is not newer than the last does not."""
        return millicores >= 0 and (self.last_cpu_sample_s is None or time_s > self.last_cpu_sample_s)

    def takes_memory(self, size_bytes: int, time_s: float) -> bool:
        """Whether a sample counts: one that is older than the last does not."""
        return size_bytes >= 0 and (self.last_memory_sample_s is None or time_s >= self.last_memory_sample_s)

    def add_cpu(self, millicores: int, time_s: float) -> bool:
        """Whether the sample counted."""
        if not self.takes_cpu(millicores, time_s):
            return False
        self.aggregation.add_cpu(millicores, time_s)
        self.last_cpu_sample_s = time_s
        return True

    def add_memory(self, size_bytes: int, time_s: float) -> bool:
        return self.takes_memory(size_bytes, time_s) and self._add_memory(size_bytes, time_s, oom=False)

    def record_oom(self, time_s: float, requested_bytes: int) -> bool:
        """Count a kill as a peak above what was requested or used. False if it is too old to matter."""
        aggregation = self.aggregation
        if self.last_memory_sample_s is not None and time_s < self.last_memory_sample_s - aggregation.memory_interval_s:
            return False
        return self._add_memory(self.needed_after_oom(requested_bytes), time_s, oom=True)

    def needed_after_oom(self, requested_bytes: int) -> int:
        """The memory that a killed container is thought to need."""
        aggregation, used = self.aggregation, max(requested_bytes, self.memory_peak)
        return max(
            used + bounded_amount(aggregation.oom_min_bump_up_bytes),
            bounded_amount(used * aggregation.oom_bump_up_ratio),
        )

    def _add_memory(self, size_bytes: int, time_s: float, *, oom: bool) -> bool:
        if size_bytes < 0:
            return False
        self.last_memory_sample_s = time_s
        if self.window_end_s is None:
            self.window_end_s = time_s
        aggregation = self.aggregation
        if time_s < self.window_end_s:
            if self.peak == 0 or size_bytes <= self.peak:
                return True
            aggregation.subtract_memory_peak(self.peak, self.window_end_s)
        else:
            interval_s = aggregation.memory_interval_s
            self.window_end_s += math.floor((time_s - self.window_end_s) / interval_s) * interval_s + interval_s
            self.memory_peak = self.oom_peak = 0
        aggregation.add_memory_peak(size_bytes, self.window_end_s)
        if oom:
            self.oom_peak = size_bytes
        else:
            self.memory_peak = size_bytes
        return True
