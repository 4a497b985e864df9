"""What is worth sending again, and after which pause: pauses grow up to their cap, and stay there for ever."""

from __future__ import annotations

import pytest

from dovetail.chance import Chance
from dovetail.kube.backoff import Retries, doubled, worth_repeating
from dovetail.kube.errors import Conflict, Disconnected, KubeError, ServerError, TooManyRequests, Unavailable


def test_each_pause_is_twice_the_last_up_to_the_cap() -> None:
    assert [doubled(10.0, 60.0, failures) for failures in (1, 2, 3, 4, 5)] == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_what_fails_for_weeks_is_still_tried_again() -> None:
    """A pod that fits nowhere is looked at every minute; after a day that is a power of two no float can hold."""
    assert doubled(10.0, 60.0, 100_000) == 60.0
    assert doubled(0.005, 1000.0, 100_000) == 1000.0


def test_jitter_keeps_those_who_failed_together_apart() -> None:
    retries, chance = Retries(base=1.0, cap=8.0), Chance(0)
    pauses = {retries.pause(4, chance) for _ in range(20)}
    assert len(pauses) == 20
    assert pauses and all(4.0 <= pause <= 12.0 for pause in pauses)


@pytest.mark.parametrize(
    ("error", "of_reads", "of_creates"),
    [
        (TooManyRequests(429, "TooManyRequests", "later"), True, True),
        (Unavailable(503, "ServiceUnavailable", "starting"), True, False),
        (Disconnected("reset by peer"), True, False),
        (Disconnected("refused", sent=False), True, True),
        (Conflict(409, "Conflict", "it moved on"), False, False),
        (ServerError(500, "InternalError", "no"), False, False),
    ],
)
def test_whatever_has_surely_not_been_done_is_sent_again(error: KubeError, of_reads: bool, of_creates: bool) -> None:
    assert worth_repeating(error, idempotent=True) is of_reads
    assert worth_repeating(error, idempotent=False) is of_creates


def test_a_version_that_the_server_has_not_reached_is_not_asked_for_again() -> None:
    body = {"details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}
    assert not worth_repeating(Unavailable(504, "Timeout", "too large", body), idempotent=True)
