"""Decaying histograms: vectors of VPA's arithmetic, and laws that hold for any samples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.autoscalers.vpa.histogram import (
    CheckpointError,
    DecayingHistogram,
    ExponentialBuckets,
    Histogram,
    HistogramCheckpoint,
    LinearBuckets,
    exp2,
)
from dovetail.autoscalers.vpa.usage import CPU_BUCKETS, MEMORY_BUCKETS

DAY_S = 86400.0
START_S = 1_767_225_600.0  # a midnight: a multiple of a day
LINEAR = LinearBuckets(10.0, 1.0, 1e-4)


def test_cpu_and_memory_buckets_have_the_numbers_of_the_checkpoint_version() -> None:
    assert CPU_BUCKETS.count == 176
    assert MEMORY_BUCKETS.count == 176
    assert CPU_BUCKETS.bucket(0.5) == 25
    assert CPU_BUCKETS.start(25) == pytest.approx(0.47727, abs=1e-5)
    assert CPU_BUCKETS.start(26) == pytest.approx(0.51113, abs=1e-5)
    assert CPU_BUCKETS.bucket(0.009) == 0
    assert CPU_BUCKETS.bucket(5000.0) == CPU_BUCKETS.count - 1
    assert MEMORY_BUCKETS.start(1) == pytest.approx(1e7)


def test_ties_of_samples_at_one_time_are_decided_as_go_decides_them() -> None:
    """Ten containers of one weight: whether five of them are half of all depends on the last bit of that weight."""
    histogram = DecayingHistogram(MEMORY_BUCKETS, DAY_S)
    for number in range(10):
        histogram.add_at(1e7 * (7 * number + 2), 1.0, 1_790_001_200.0)
    assert histogram.percentile(0.5) == MEMORY_BUCKETS.start(22)
    assert exp2(0.059722222222222225).hex() == "0x1.0ad1e216da1b6p+0"
    assert [exp2(number) for number in (-3.0, 0.0, 5.0)] == [0.125, 1.0, 32.0]
    assert exp2(-2000.0) == 0.0


@given(st.floats(-1000.0, 1000.0))
def test_powers_of_two_are_right_but_for_their_last_bit(exponent: float) -> None:
    assert exp2(exponent) == pytest.approx(math.exp2(exponent), rel=3e-16)


@pytest.mark.parametrize(
    ("fraction", "value"), [(0.0, 2.0), (0.4, 2.0), (0.5, 3.0), (0.8, 3.0), (0.9, 4.0), (1.0, 4.0)]
)
def test_a_percentile_is_the_end_of_its_bucket(fraction: float, value: float) -> None:
    histogram = Histogram(LINEAR)
    for sample, weight in ((1.1, 0.4), (2.5, 0.4), (3.0, 0.2)):
        histogram.add(sample, weight)
    assert histogram.percentile(fraction) == value


def test_the_last_bucket_answers_its_start_for_it_has_no_end() -> None:
    histogram = Histogram(LINEAR)
    histogram.add(500.0, 1.0)
    assert histogram.percentile(0.9) == 10.0


def test_an_empty_histogram_answers_zero() -> None:
    histogram = Histogram(LINEAR)
    assert histogram.is_empty
    assert histogram.percentile(0.9) == 0.0
    histogram.add(3.0, 1.0)
    histogram.subtract(3.0, 1.0 - 1e-5)
    assert histogram.is_empty
    assert histogram.total == 0.0


def test_a_sample_loses_half_of_its_weight_in_a_half_life() -> None:
    histogram = DecayingHistogram(LINEAR, 3600.0)
    histogram.add_at(2.0, 1000.0, START_S)
    histogram.add_at(1.0, 1.0, START_S + 20 * 3600)
    assert histogram.percentile(0.999) == 2.0
    assert histogram.percentile(1.0) == 3.0


def test_the_reference_moves_after_a_hundred_half_lives_and_keeps_the_percentiles() -> None:
    histogram = DecayingHistogram(LINEAR, DAY_S)
    histogram.add_at(1.0, 1.0, START_S)
    reference_s = histogram.reference_s
    assert reference_s == START_S
    histogram.add_at(4.0, 1.0, START_S + 100 * DAY_S)
    assert histogram.reference_s == reference_s
    histogram.add_at(4.0, 1.0, START_S + 101 * DAY_S)
    assert histogram.reference_s == START_S + 101 * DAY_S
    assert histogram.percentile(0.5) == 5.0


def test_references_are_multiples_of_the_half_life_since_the_year_one() -> None:
    histogram = DecayingHistogram(LINEAR, 5 * 3600.0)
    histogram.add_at(1.0, 1.0, START_S)
    assert math.fmod(histogram.reference_s + 62135596800.0, 5 * 3600.0) == 0
    assert abs(histogram.reference_s - START_S) <= 2.5 * 3600


def test_merging_aligns_the_older_reference_with_the_younger_one() -> None:
    old, new = DecayingHistogram(LINEAR, DAY_S), DecayingHistogram(LINEAR, DAY_S)
    old.add_at(1.0, 4.0, START_S)
    new.add_at(5.0, 1.0, START_S + 2 * DAY_S)
    old.merge(new)
    assert old.reference_s == START_S + 2 * DAY_S
    assert old.total == pytest.approx(2.0)  # the four weigh one by now
    assert old.percentile(0.5) == 2.0


def test_histograms_of_different_kinds_do_not_merge() -> None:
    with pytest.raises(ValueError, match="different buckets"):
        Histogram(LINEAR).merge(Histogram(LinearBuckets(20.0, 1.0, 1e-4)))
    with pytest.raises(ValueError, match="half-lives"):
        DecayingHistogram(LINEAR, 1.0).merge(DecayingHistogram(LINEAR, 2.0))


def test_a_checkpoint_has_weights_relative_to_the_heaviest() -> None:
    histogram = Histogram(LINEAR)
    histogram.add(1.0, 1.0)
    histogram.add(2.0, 0.5)
    histogram.add(3.0, 0.00002)
    assert histogram.checkpoint() == HistogramCheckpoint({1: 10000, 2: 5000}, pytest.approx(1.50002))


@pytest.mark.parametrize(("weights", "total"), [({-1: 5}, 1.0), ({11: 5}, 1.0), ({1: 5}, -1.0), ({1: -5}, 1.0)])
def test_a_checkpoint_that_no_histogram_wrote_is_refused_and_changes_nothing(
    weights: dict[int, int], total: float
) -> None:
    histogram = Histogram(LINEAR)
    with pytest.raises(CheckpointError):
        histogram.load(HistogramCheckpoint(weights, total))
    assert histogram.is_empty


def test_a_loaded_weight_below_epsilon_does_not_empty_the_histogram() -> None:
    histogram = Histogram(LINEAR)
    histogram.load(HistogramCheckpoint({0: 1, 5: 10000}, 0.5))
    assert histogram.percentile(0.9) == 6.0


_samples = st.lists(st.tuples(st.floats(0.0, 2000.0), st.floats(0.0, 30 * DAY_S)), min_size=1, max_size=60)


def _filled(samples: list[tuple[float, float]]) -> DecayingHistogram:
    histogram = DecayingHistogram(CPU_BUCKETS, DAY_S)
    for value, offset_s in samples:
        histogram.add_at(value, 0.1, START_S + offset_s)
    return histogram


@given(_samples, st.floats(0.01, 1.0))
def test_a_percentile_is_a_bucket_end_at_or_above_a_sample(samples: list[tuple[float, float]], fraction: float) -> None:
    histogram = _filled(samples)
    answer = histogram.percentile(fraction)
    ends = {CPU_BUCKETS.start(min(CPU_BUCKETS.bucket(value) + 1, CPU_BUCKETS.count - 1)) for value, _ in samples}
    assert answer in ends


@given(_samples, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_percentiles_grow_with_the_fraction(samples: list[tuple[float, float]], low: float, high: float) -> None:
    histogram = _filled(samples)
    low, high = sorted((low, high))
    assert histogram.percentile(low) <= histogram.percentile(high)


@given(_samples, _samples)
def test_merging_is_adding_all_samples(left: list[tuple[float, float]], right: list[tuple[float, float]]) -> None:
    merged, other, whole = _filled(left), _filled(right), _filled(left + right)
    merged.merge(other)
    merged.merge(_at(whole.reference_s))
    whole.merge(_at(merged.reference_s))
    assert merged.total == pytest.approx(whole.total, rel=1e-6, abs=1e-3)


def _at(reference_s: float) -> DecayingHistogram:
    """An empty histogram whose reference a merge takes over."""
    empty = DecayingHistogram(CPU_BUCKETS, DAY_S)
    empty.reference_s = reference_s
    return empty


@given(_samples)
def test_a_checkpoint_loads_to_the_same_percentiles(samples: list[tuple[float, float]]) -> None:
    histogram = _filled(samples)
    loaded = DecayingHistogram(CPU_BUCKETS, DAY_S)
    loaded.load(histogram.checkpoint())
    assert loaded.reference_s == histogram.reference_s
    assert loaded.total == pytest.approx(histogram.total)
    again = DecayingHistogram(CPU_BUCKETS, DAY_S)
    again.load(loaded.checkpoint())
    heaviest = max(histogram.weights, key=lambda bucket: histogram.weights[bucket])
    assert loaded.weights[heaviest] == pytest.approx(histogram.weights[heaviest], rel=0.02)
    for fraction in (0.5, 0.9, 0.95):
        assert again.percentile(fraction) == loaded.percentile(fraction)


@given(_samples, st.integers(1, 90))
def test_waiting_changes_no_percentile(samples: list[tuple[float, float]], days: int) -> None:
    """All samples lose weight alike, so only their relative weights matter."""
    histogram, later = _filled(samples), _filled(samples)
    later.merge(_at(later.reference_s + days * DAY_S))
    if not later.is_empty and later.weights.keys() == {b for b, w in later.weights.items() if w >= 1e-4}:
        assert later.percentile(0.9) == histogram.percentile(0.9)


def test_exponential_buckets_refuse_nonsense() -> None:
    with pytest.raises(ValueError, match="ratio > 1"):
        ExponentialBuckets(10.0, 1.0, 1.0, 0.1)
    with pytest.raises(IndexError):
        CPU_BUCKETS.start(CPU_BUCKETS.count)
