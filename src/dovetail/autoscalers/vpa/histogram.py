"""Histograms of usage whose samples lose half of their weight every half-life.

A sample at time t weighs `w * 2 ** ((t - reference) / half_life)`, so old samples need not be touched when new
ones arrive. Only relative weights matter: once the exponent passes `MAX_DECAY_EXPONENT` the reference moves to
a later multiple of the half-life and all weights are scaled by a power of two.

Bucket boundaries, the epsilon below which a bucket counts as empty, and the checkpoint format are those of
VPA 1.8, so checkpoints of either implementation load in the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

#: The instant that Go calls zero, in seconds since 1970. References are whole half-lives away from it.
ZERO_TIME_S = -62135596800.0
#: The longest difference of two instants that Go can express, in seconds.
MAX_DIFFERENCE_S = (2**63 - 1) / 1e9
#: Past so many half-lives after the reference, the reference moves.
MAX_DECAY_EXPONENT = 100
#: The weight of the heaviest bucket in a checkpoint.
MAX_CHECKPOINT_WEIGHT = 10_000


def power(base: float, exponent: int) -> float:
    """A whole power by repeated squaring, as Go computes it.

    The C library rounds some powers differently in the last bit, which moves a bucket boundary of whole bytes by one.
    """
    result, left = 1.0, abs(exponent)
    while left:
        if left & 1:
            result *= base
        base *= base
        left >>= 1
    return 1.0 / result if exponent < 0 else result


#: The logarithm of 2 in two parts, of which the first has zeros at its end, so that products with it are exact.
_LOG_2 = (0.693147180369123816490, 1.90821492927058770002e-10)
#: The polynomial in r² of Remez' approximation to r·(eʳ + 1) / (eʳ - 1), highest power first.
_REMEZ = (
    4.13813679705723846039e-08,
    -1.65339022054652515390e-06,
    6.61375632143793436117e-05,
    -2.77777777770155933842e-03,
    1.66666666666666657415e-01,
)


def exp2(exponent: float) -> float:
    """Two to a real power, rounded as Go's library rounds it.

    Weights are sums of such powers. Where several containers were measured at one time, percentiles are ties that the
    last bit decides, and a tie decided otherwise is another target.
    """
    if not -1074.0 <= exponent <= 1023.9999999999999:
        return math.exp2(exponent)
    whole = int(exponent + 0.5) if exponent > 0 else int(exponent - 0.5)
    rest = exponent - whole
    high, low = rest * _LOG_2[0], -rest * _LOG_2[1]
    power_of_e = high - low
    square, polynomial = power_of_e * power_of_e, 0.0
    for coefficient in _REMEZ:
        polynomial = coefficient + square * polynomial
    divisor = power_of_e - square * polynomial
    return math.ldexp(1.0 - ((low - (power_of_e * divisor) / (2.0 - divisor)) - high), whole)


class CheckpointError(ValueError):
    """A checkpoint that no histogram can have written."""


class LinearBuckets(msgspec.Struct, frozen=True, dict=True):
    """Buckets of one size, from 0 to beyond `max_value`."""

    max_value: float
    bucket_size: float
    epsilon: float

    def __post_init__(self) -> None:
        if self.max_value <= 0 or self.bucket_size <= 0 or self.epsilon <= 0:
            raise ValueError(f"buckets need max_value, bucket_size and epsilon > 0, not {self}")

    @cached_property
    def count(self) -> int:
        return math.ceil(self.max_value / self.bucket_size) + 1

    def bucket(self, value: float) -> int:
        return max(0, min(int(value / self.bucket_size), self.count - 1))

    def start(self, bucket: int) -> float:
        if not 0 <= bucket < self.count:
            raise IndexError(f"bucket {bucket} is not one of 0 to {self.count - 1}")
        return bucket * self.bucket_size


class ExponentialBuckets(msgspec.Struct, frozen=True, dict=True):
    """Buckets of which each is `ratio` times as wide as the one before it."""

    max_value: float
    first_bucket_size: float
    ratio: float
    epsilon: float

    def __post_init__(self) -> None:
        if self.max_value <= 0 or self.first_bucket_size <= 0 or self.ratio <= 1 or self.epsilon <= 0:
            raise ValueError(f"buckets need max_value, first_bucket_size and epsilon > 0 and ratio > 1, not {self}")

    @cached_property
    def _log_ratio(self) -> float:
        return math.log(self.ratio)

    @cached_property
    def _per_first(self) -> float:
        return self.ratio - 1

    @cached_property
    def count(self) -> int:
        span = self.max_value * (self.ratio - 1) / self.first_bucket_size + 1
        return math.ceil(math.log(span) / self._log_ratio) + 1

    @cached_property
    def starts(self) -> list[float]:
        """The start of every bucket, in order."""
        return [0.0] + [
            self.first_bucket_size * (power(self.ratio, bucket) - 1) / (self.ratio - 1)
            for bucket in range(1, self.count)
        ]

    def bucket(self, value: float) -> int:
        if value < self.first_bucket_size:
            return 0
        number = int(math.log(value * self._per_first / self.first_bucket_size + 1) / self._log_ratio)
        return min(number, self.count - 1)

    def start(self, bucket: int) -> float:
        if not 0 <= bucket < self.count:
            raise IndexError(f"bucket {bucket} is not one of 0 to {self.count - 1}")
        return self.starts[bucket]


Buckets = LinearBuckets | ExponentialBuckets


class HistogramCheckpoint(msgspec.Struct, frozen=True, rename="camel"):
    """A histogram as a VerticalPodAutoscalerCheckpoint stores it; the reference is in seconds since 1970."""

    bucket_weights: dict[int, int]
    total_weight: float
    reference_s: float | None = None


class Histogram:
    """Weights by bucket. `weights` has no entry for a bucket that never had a sample."""

    __slots__ = ("buckets", "highest", "lowest", "total", "weights")

    def __init__(self, buckets: Buckets) -> None:
        self.buckets = buckets
        self.weights: dict[int, float] = {}
        self.total = 0.0
        #: The lowest and the highest bucket that is not empty; crossed over while all are.
        self.lowest = buckets.count - 1
        self.highest = 0

    @property
    def is_empty(self) -> bool:
        return self.weights.get(self.lowest, 0.0) < self.buckets.epsilon

    def add(self, value: float, weight: float) -> None:
        if weight < 0:
            raise ValueError(f"a sample cannot weigh {weight}")
        bucket = self.buckets.bucket(value)
        now = self.weights.get(bucket, 0.0) + weight
        self.weights[bucket] = now
        self.total += weight
        if now >= self.buckets.epsilon:
            if bucket < self.lowest:
                self.lowest = bucket
            if bucket > self.highest:
                self.highest = bucket

    def subtract(self, value: float, weight: float) -> None:
        """Take a sample back; what would weigh less than epsilon then weighs nothing."""
        if weight < 0:
            raise ValueError(f"a sample cannot weigh {weight}")
        epsilon, bucket = self.buckets.epsilon, self.buckets.bucket(value)
        total, rest = self.total - weight, self.weights.get(bucket, 0.0) - weight
        self.total = total if total >= epsilon else 0.0
        self.weights[bucket] = rest if rest >= epsilon else 0.0
        self._trim()

    def percentile(self, fraction: float) -> float:
        """The end of the bucket below which `fraction` of the weight lies; 0 without samples."""
        return self.percentiles((fraction,))[0]

    def percentiles(self, fractions: Sequence[float]) -> list[float]:
        """Several percentiles at the price of sorting the buckets once."""
        if self.is_empty:
            return [0.0] * len(fractions)
        filled, weights, last = self._filled(), self.weights, self.buckets.count - 1
        answers = []
        for fraction in fractions:
            threshold, reached, bucket = fraction * self.total, 0.0, self.highest
            for number in filled:
                if number >= self.highest:
                    break
                reached += weights[number]
                if reached >= threshold:
                    bucket = number
                    break
            answers.append(self.buckets.start(min(bucket + 1, last)))
        return answers

    def merge(self, other: Histogram) -> None:
        """Add the samples of another histogram with the same buckets."""
        if self.buckets != other.buckets:
            raise ValueError(f"histograms with different buckets do not merge: {self.buckets}, {other.buckets}")
        weights, lowest, highest = self.weights, other.lowest, other.highest
        if not weights:
            self.weights = {bucket: weight for bucket, weight in other.weights.items() if lowest <= bucket <= highest}
        else:
            for bucket, weight in other.weights.items():
                if lowest <= bucket <= highest:
                    weights[bucket] = weights.get(bucket, 0.0) + weight
        self.total += other.total
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)

    def scale(self, factor: float) -> None:
        """Multiply all weights; the percentiles stay, unless a bucket falls below epsilon."""
        for bucket in self.weights:
            if self.lowest <= bucket <= self.highest:
                self.weights[bucket] *= factor
        self.total *= factor
        self._trim()

    def checkpoint(self) -> HistogramCheckpoint:
        """Weights relative to the heaviest bucket, without those that round to 0."""
        held = {bucket: self.weights[bucket] for bucket in self._filled()}
        heaviest = max(held.values(), default=0.0)
        if heaviest <= 0:
            return HistogramCheckpoint({}, self.total)
        rounded = {
            bucket: math.floor(weight * (MAX_CHECKPOINT_WEIGHT / heaviest) + 0.5) for bucket, weight in held.items()
        }
        return HistogramCheckpoint({bucket: weight for bucket, weight in rounded.items() if weight > 0}, self.total)

    def load(self, checkpoint: HistogramCheckpoint) -> None:
        """Add what a checkpoint holds. Raises CheckpointError and changes nothing if it is not one."""
        _check(checkpoint.bucket_weights, checkpoint.total_weight, self.buckets.count)
        total = sum(checkpoint.bucket_weights.values())
        if total == 0:
            return
        ratio = checkpoint.total_weight / total
        for bucket, weight in checkpoint.bucket_weights.items():
            self.lowest = min(self.lowest, bucket)
            self.highest = max(self.highest, bucket)
            self.weights[bucket] = self.weights.get(bucket, 0.0) + weight * ratio
        self.total += checkpoint.total_weight
        self._trim()  # a rounded weight may be below epsilon, and an empty lowest bucket means an empty histogram

    def _filled(self) -> list[int]:
        lowest, highest = self.lowest, self.highest
        return sorted([bucket for bucket in self.weights if lowest <= bucket <= highest])

    def _trim(self) -> None:
        epsilon = self.buckets.epsilon
        full = [
            bucket
            for bucket, weight in self.weights.items()
            if weight >= epsilon and self.lowest <= bucket <= self.highest
        ]
        self.lowest = min(full, default=self.buckets.count - 1)
        self.highest = max(full, default=0)


class DecayingHistogram(Histogram):
    """A histogram whose samples have a time, in seconds since 1970."""

    __slots__ = ("half_life_s", "reference_s")

    def __init__(self, buckets: Buckets, half_life_s: float) -> None:
        super().__init__(buckets)
        self.half_life_s = half_life_s
        self.reference_s = ZERO_TIME_S

    def add_at(self, value: float, weight: float, time_s: float) -> None:
        self.add(value, weight * self._decay(time_s))

    def subtract_at(self, value: float, weight: float, time_s: float) -> None:
        self.subtract(value, weight * self._decay(time_s))

    def merge(self, other: Histogram) -> None:
        """Add the samples of another. The older reference of the two, also the other's, moves to the younger one."""
        if not isinstance(other, DecayingHistogram) or self.half_life_s != other.half_life_s:
            raise ValueError("histograms with different half-lives do not merge")
        if self.reference_s < other.reference_s:
            self._shift(other.reference_s)
        elif other.reference_s < self.reference_s:
            other._shift(self.reference_s)
        super().merge(other)

    def checkpoint(self) -> HistogramCheckpoint:
        reference_s = None if self.reference_s == ZERO_TIME_S else self.reference_s
        return msgspec.structs.replace(super().checkpoint(), reference_s=reference_s)

    def load(self, checkpoint: HistogramCheckpoint) -> None:
        super().load(checkpoint)
        self.reference_s = ZERO_TIME_S if checkpoint.reference_s is None else checkpoint.reference_s

    def _decay(self, time_s: float) -> float:
        if time_s > self.reference_s + self.half_life_s * MAX_DECAY_EXPONENT:
            self._shift(time_s)
        return exp2(difference_s(time_s, self.reference_s) / self.half_life_s)

    def _shift(self, reference_s: float) -> None:
        """Move the reference to the multiple of the half-life nearest to an instant."""
        past = math.fmod(reference_s - ZERO_TIME_S, self.half_life_s)
        reference_s = reference_s - past if past + past < self.half_life_s else reference_s + self.half_life_s - past
        halvings = math.floor(difference_s(self.reference_s, reference_s) / self.half_life_s + 0.5)
        self.scale(math.ldexp(1.0, max(halvings, -2000)))
        self.reference_s = reference_s


def difference_s(later_s: float, earlier_s: float) -> float:
    """Seconds between two instants, at most as many as Go can express."""
    return max(-MAX_DIFFERENCE_S, min(MAX_DIFFERENCE_S, later_s - earlier_s))


def _check(weights: Mapping[int, int], total: float, count: int) -> None:
    if total < 0:
        raise CheckpointError(f"cannot load checkpoint with negative weight {total:g}")
    for bucket, weight in weights.items():
        if bucket >= count:
            raise CheckpointError(f"checkpoint has bucket {bucket} that is exceeding histogram buckets {count}")
        if bucket < 0:
            raise CheckpointError(f"checkpoint has a negative bucket {bucket}")
        if weight < 0:
            raise CheckpointError(f"checkpoint has a negative weight {weight} in bucket {bucket}")
