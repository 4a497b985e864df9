"""From usage histograms to target and bounds.

Target and bounds are percentiles plus a safety margin. With little history the lower bound is lowered and the
upper bound raised, so that a pod is not updated on thin evidence; the confidence that decides it grows with the
time covered and the samples seen, and has no upper limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from dovetail.autoscalers.vpa.histogram import ZERO_TIME_S, difference_s, power
from dovetail.autoscalers.vpa.usage import DAY_S, Aggregation, bounded_amount

MEBIBYTE = 1024 * 1024
#: The bounds of a resource are scaled by (1 + multiplier / confidence) ** exponent.
LOWER_MULTIPLIER, LOWER_EXPONENT = 0.001, -2
UPPER_MULTIPLIER, UPPER_EXPONENT = 1.0, 1


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    target: float = 0.9
    lower: float = 0.5
    upper: float = 0.95
    confidence_interval_s: float = DAY_S


class EstimatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are upstream's."""

    margin_fraction: float = 0.15
    pod_min_cpu_millicores: float = 25.0
    pod_min_memory_mb: float = 250.0
    cpu: Percentiles = Percentiles()
    memory: Percentiles = Percentiles()


class ResourceEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Milli-cores and bytes by resource name."""

    target: dict[str, int]
    lower: dict[str, int]
    upper: dict[str, int]


def confidence(usage: Aggregation, interval_s: float) -> float:
    """In units of the interval: how long the samples reach back, or how many there are at one a minute; the less."""
    first_s, last_s = (
        ZERO_TIME_S if time_s is None else time_s for time_s in (usage.first_sample_s, usage.last_sample_s)
    )
    covered = difference_s(last_s, first_s) / interval_s
    return min(covered, usage.samples / (interval_s / 60.0))


def scaled_by_confidence(amount: int, multiplier: float, exponent: int, trust: float) -> int:
    """An amount times (1 + multiplier / trust) ** exponent; without any trust 0 or the largest amount."""
    if trust == 0:
        return bounded_amount(math.inf if exponent > 0 and amount > 0 else 0.0)
    return bounded_amount(amount * power(1.0 + multiplier / trust, exponent))


def with_margin(amount: int, fraction: float) -> int:
    return amount + bounded_amount(amount * fraction)


def estimate(usage: Aggregation, settings: EstimatorSettings) -> ResourceEstimate:
    """What one container needs, before the minimum of its pod."""
    target: dict[str, int] = {}
    lower: dict[str, int] = {}
    upper: dict[str, int] = {}
    for name, histogram, unit, percentiles in (
        ("cpu", usage.cpu, 1000.0, settings.cpu),
        ("memory", usage.memory, 1.0, settings.memory),
    ):
        trust = confidence(usage, percentiles.confidence_interval_s)
        fractions = (percentiles.target, percentiles.lower, percentiles.upper)
        target[name], low, high = (
            with_margin(bounded_amount(value * unit), settings.margin_fraction)
            for value in histogram.percentiles(fractions)
        )
        lower[name] = scaled_by_confidence(low, LOWER_MULTIPLIER, LOWER_EXPONENT, trust)
        upper[name] = scaled_by_confidence(high, UPPER_MULTIPLIER, UPPER_EXPONENT, trust)
    return ResourceEstimate(target=target, lower=lower, upper=upper)


def pod_estimates(
    usages: Mapping[str, Aggregation], settings: EstimatorSettings, controlled: Mapping[str, tuple[str, ...]]
) -> dict[str, ResourceEstimate]:
    """What each container of a pod needs. The pod's minimum is split evenly among the containers given."""
    if not usages:
        return {}
    fraction = 1.0 / len(usages)
    minimum = {
        "cpu": bounded_amount(bounded_amount(settings.pod_min_cpu_millicores * 0.001 * 1000.0) * fraction),
        "memory": bounded_amount(bounded_amount(settings.pod_min_memory_mb * MEBIBYTE) * fraction),
    }

    def floored(amounts: Mapping[str, int], names: tuple[str, ...]) -> dict[str, int]:
        return {name: max(amounts[name], minimum[name]) for name in names}

    estimates = {}
    for container, usage in usages.items():
        raw, names = estimate(usage, settings), controlled.get(container, ("cpu", "memory"))
        estimates[container] = ResourceEstimate(
            target=floored(raw.target, names), lower=floored(raw.lower, names), upper=floored(raw.upper, names)
        )
    return estimates
