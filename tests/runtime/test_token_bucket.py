"""A token bucket never gives more than its size and its rate allow, and serves in the order of the calls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dovetail.runtime.token_bucket import TokenBucket


def test_tokens_that_are_not_there_yet_are_waited_for_in_order() -> None:
    bucket = TokenBucket.full(2.0, 0.5, now=0.0)
    assert [bucket.spend(0.0, count) for count in (1.0, 1.0, 1.0, 2.0)] == [0.0, 0.0, 2.0, 6.0]


def test_a_bucket_fills_up_to_its_size_and_no_further() -> None:
    bucket = TokenBucket.full(2.0, 0.5, now=0.0)
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]
    assert bucket.pause(1000.0) == 2.0
    assert bucket.take(1002.0)


def test_a_drained_bucket_has_nothing_left() -> None:
    bucket = TokenBucket.full(2.0, 0.5, now=0.0)
    bucket.drain(0.0)
    assert not bucket.take(0.0)
    assert bucket.spend(0.0) == 2.0
    bucket.drain(0.0)
    assert bucket.pause(0.0) == 4.0, "what is owed already stays owed"


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=60), st.integers(1, 5), st.sampled_from([0.25, 1.0, 4.0]))
def test_no_more_are_taken_than_burst_and_rate_allow(gaps: list[float], size: int, rate: float) -> None:
    bucket, now, taken = TokenBucket.full(size, rate, 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        taken += bucket.take(now)
        assert taken <= size + now * rate + 1e-6
    assert taken >= 1
