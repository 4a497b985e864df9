"""Conditions by the rules of Karpenter's kinds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dovetail.controllers.conditions import CLAIM, POOL, Conditions, instant, truncated
from dovetail.model.meta import Condition, stamp

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
NOW = CREATED + timedelta(minutes=5)


def _conditions(existing: tuple[Condition, ...] = (), now: datetime = NOW) -> Conditions:
    return Conditions(CLAIM, existing, now=now, created=CREATED, generation=1)


def test_a_new_object_awaits_reconciliation_since_its_creation() -> None:
    found = _conditions()
    launched = found.get("Launched")
    assert launched is not None
    assert (launched.status, launched.reason) == ("Unknown", "AwaitingReconciliation")
    assert launched.last_transition_time == CREATED
    ready = found.get("Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("Unknown", "ReconcilingDependents")
    assert ready.message == "Initialized=Unknown, Launched=Unknown, Registered=Unknown"


def test_the_root_is_true_only_when_all_dependents_are() -> None:
    found = _conditions()
    for kind in ("Launched", "Registered"):
        found.true(kind)
        assert found.status("Ready") == "Unknown"
    found.true("Initialized")
    assert found.status("Ready") == "True"


def test_one_false_dependent_makes_the_root_unhealthy() -> None:
    found = Conditions(POOL, (), now=NOW, created=CREATED, generation=2)
    found.true("ValidationSucceeded")
    found.false("NodeClassReady", "NodeClassNotFound", "NodeClass not found on cluster")
    ready = found.get("Ready")
    assert ready is not None
    assert (ready.status, ready.reason, ready.message) == ("False", "UnhealthyDependents", "NodeClassReady=False")


def test_a_transition_time_moves_only_with_the_status() -> None:
    first = _conditions()
    first.unknown("Launched", "LaunchFailed", "no")
    assert first.since("Launched") == CREATED
    second = _conditions(first.all(), NOW + timedelta(minutes=1))
    second.true("Launched")
    assert second.since("Launched") == NOW + timedelta(minutes=1)
    third = _conditions(second.all(), NOW + timedelta(minutes=2))
    third.true("Launched")
    assert third.since("Launched") == NOW + timedelta(minutes=1)
    assert not third.changed


def test_conditions_are_written_sorted_and_whole() -> None:
    written = _conditions().manifest()
    assert [each["type"] for each in written] == ["Initialized", "Launched", "Ready", "Registered"]
    assert written
    assert all({"message", "reason", "lastTransitionTime", "observedGeneration"} <= each.keys() for each in written)


def test_long_messages_are_truncated_to_what_an_event_holds() -> None:
    assert truncated("x" * 2000) == "x" * 1021 + "..."
    assert truncated("short") == "short"


def test_an_instant_is_read_as_it_is_written_and_an_unreadable_one_is_none() -> None:
    assert instant(stamp(NOW)) == NOW
    assert instant("2026-01-01T01:00:00+01:00") == CREATED
    assert instant("2026-01-01T00:00:00") == CREATED, "in UTC where it does not say"
    assert instant("tomorrow") is None
    assert instant("") is None
