"""Aggregations as VerticalPodAutoscalerCheckpoint objects: the same format as upstream's, in both directions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.autoscalers.vpa.histogram import CheckpointError, HistogramCheckpoint
from dovetail.autoscalers.vpa.usage import Aggregation, AggregationSettings
from dovetail.model.meta import stamp

#: The format, and with it the bucket boundaries. Another one cannot be read.
VERSION = "v3"


class _Histogram(msgspec.Struct, rename="camel"):
    bucket_weights: dict[str, int] | None = None
    total_weight: float = 0.0
    reference_timestamp: datetime | None = None

    def checkpoint(self) -> HistogramCheckpoint:
        try:
            weights = {int(bucket): weight for bucket, weight in (self.bucket_weights or {}).items()}
        except ValueError as error:
            raise CheckpointError(f"bucketWeights: {error}") from error
        reference = self.reference_timestamp
        return HistogramCheckpoint(weights, self.total_weight, None if reference is None else reference.timestamp())


class _Status(msgspec.Struct, rename="camel"):
    version: str = ""
    cpu_histogram: _Histogram = msgspec.field(default_factory=_Histogram)
    memory_histogram: _Histogram = msgspec.field(default_factory=_Histogram)
    first_sample_start: datetime | None = None
    last_sample_start: datetime | None = None
    total_samples_count: int = 0


def checkpoint_name(vpa: str, container: str) -> str:
    return f"{vpa}-{container}"


def saved(usage: Aggregation, now: datetime) -> dict[str, Any]:
    """The status of a checkpoint. As upstream's, it leaves out weights and counts of zero."""
    status = {
        "lastUpdateTime": stamp(now),
        "version": VERSION,
        "cpuHistogram": _saved(usage.cpu.checkpoint()),
        "memoryHistogram": _saved(usage.memory.checkpoint()),
        "firstSampleStart": _stamp(usage.first_sample_s),
        "lastSampleStart": _stamp(usage.last_sample_s),
    }
    return {**status, "totalSamplesCount": usage.samples} if usage.samples else status


def loaded(status: object, settings: AggregationSettings, created_s: float) -> Aggregation:
    """The aggregation that a checkpoint's status describes. Raises CheckpointError if it does not."""
    try:
        read = msgspec.convert(status, _Status, strict=False)
    except msgspec.ValidationError as error:
        raise CheckpointError(f"status: {error}") from error
    if read.version != VERSION:
        raise CheckpointError(f"unsupported checkpoint version {read.version}")
    if read.total_samples_count < 0:
        raise CheckpointError(f"totalSamplesCount: {read.total_samples_count} is negative")
    usage = Aggregation(settings, created_s)
    usage.memory.load(read.memory_histogram.checkpoint())
    usage.cpu.load(read.cpu_histogram.checkpoint())
    usage.samples = read.total_samples_count
    usage.first_sample_s = None if read.first_sample_start is None else read.first_sample_start.timestamp()
    usage.last_sample_s = None if read.last_sample_start is None else read.last_sample_start.timestamp()
    return usage


def _saved(checkpoint: HistogramCheckpoint) -> dict[str, Any]:
    histogram: dict[str, Any] = {"referenceTimestamp": _stamp(checkpoint.reference_s)}
    if checkpoint.bucket_weights:
        weights = sorted(checkpoint.bucket_weights.items())
        histogram["bucketWeights"] = {str(bucket): weight for bucket, weight in weights}
    if checkpoint.total_weight:
        histogram["totalWeight"] = checkpoint.total_weight
    return histogram


def _stamp(time_s: float | None) -> str | None:
    return None if time_s is None else stamp(datetime.fromtimestamp(time_s, UTC))
