"""Budgets: the smallest that applies counts; what cannot be read stops disruption."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.kinds.budgets import UNLIMITED, allowance, ever_opens, opens
from dovetail.model.kinds.nodepool import Budget

NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def test_a_percentage_is_rounded_up() -> None:
    assert allowance([Budget(nodes="10%")], "Empty", 1, NOON).nodes == 1
    assert allowance([Budget(nodes="10%")], "Empty", 11, NOON).nodes == 2
    assert allowance([Budget(nodes="10%")], "Empty", 0, NOON).nodes == 0


def test_no_budget_is_no_limit() -> None:
    assert allowance([], "Empty", 100, NOON).unlimited


def test_the_smallest_that_applies_counts_and_is_named() -> None:
    small = Budget(nodes="1")
    found = allowance([Budget(nodes="50%"), small, Budget(nodes="3")], "Drifted", 100, NOON)
    assert (found.nodes, found.decided_by) == (1, small)


def test_a_budget_is_for_its_reasons_only() -> None:
    budgets = [Budget(nodes="0", reasons=("Drifted",))]
    assert allowance(budgets, "Drifted", 10, NOON).nodes == 0
    assert allowance(budgets, "Empty", 10, NOON).nodes == UNLIMITED


@pytest.mark.parametrize(
    ("schedule", "duration", "active"),
    [
        ("0 9 * * 1-5", "8h", True),
        ("0 13 * * *", "1h", False),
        ("0 12 * * *", "1h", True),
        ("0 11 * * *", "1h", False),
        ("TZ=Asia/Seoul 0 21 * * *", "30m", True),
        ("CRON_TZ=Asia/Seoul 0 12 * * *", "30m", False),
        ("@daily", "12h1m", True),
    ],
)
def test_a_window_opens_at_its_time_in_utc_or_in_its_zone(schedule: str, duration: str, active: bool) -> None:
    budgets = [Budget(nodes="0", schedule=schedule, duration=duration)]
    assert (allowance(budgets, "Empty", 10, NOON).nodes == 0) is active


@pytest.mark.parametrize(
    "budget",
    [
        Budget(nodes="many"),
        Budget(nodes="1", schedule="a b c d e", duration="1h"),
        Budget(nodes="1", schedule="@daily"),
    ],
)
def test_a_budget_that_cannot_be_read_stops_disruption(budget: Budget) -> None:
    found = allowance([Budget(nodes="5"), budget], "Empty", 10, NOON)
    assert found.nodes == 0
    assert found.problem


def test_whether_a_budget_ever_opens() -> None:
    assert not ever_opens([Budget(nodes="0")], "Empty", 10, NOON)
    nights = Budget(nodes="0", schedule="0 9 * * *", duration="9h")
    assert ever_opens([nights], "Empty", 10, NOON)
    always = Budget(nodes="0", schedule="0 0 * * *", duration="24h")
    assert not ever_opens([always], "Empty", 10, NOON)
    assert not ever_opens([nights, Budget(nodes="0", schedule="0 18 * * *", duration="15h")], "Empty", 10, NOON)


@given(st.lists(st.sampled_from(["0", "1", "5", "10%", "100%"])), st.sampled_from(["0", "2", "7%"]), st.integers(0, 99))
def test_adding_a_budget_never_allows_more(nodes: list[str], more: str, total: int) -> None:
    budgets = [Budget(nodes=each) for each in nodes]
    before = allowance(budgets, "Empty", total, NOON).nodes
    assert allowance([*budgets, Budget(nodes=more)], "Empty", total, NOON).nodes <= before


def test_when_a_budget_opens_is_the_end_of_the_last_window_that_shuts_it() -> None:
    day = Budget(nodes="0", schedule="0 9 * * *", duration="8h")
    late = Budget(nodes="0", schedule="TZ=Asia/Seoul 0 20 * * *", duration="7h")  # from 11:00 to 18:00 in UTC
    assert opens([day], "Empty", 10, NOON) == NOON.replace(hour=17)
    assert opens([day, late], "Empty", 10, NOON) == NOON.replace(hour=18)
    assert opens([day, Budget(nodes="0", reasons=("Drifted",))], "Drifted", 10, NOON) is None
    assert opens([Budget(nodes="1")], "Empty", 10, NOON) == NOON


def test_a_schedule_without_a_duration_never_opens_anything() -> None:
    """The API server refuses the half; lint must read it all the same."""
    half = Budget(nodes="0", schedule="@daily")
    assert opens([half], "Empty", 10, NOON) is None
    assert allowance([half], "Empty", 10, NOON).problem == "schedule and duration go together"


def test_a_window_whose_day_never_comes_is_always_open() -> None:
    """Karpenter holds it so; a mistyped date leaves nodes safe, and lint reports it."""
    never = Budget(nodes="0", schedule="0 0 31 2 *", duration="1h")
    assert allowance([never], "Empty", 10, NOON).nodes == 0
    assert not ever_opens([never], "Empty", 10, NOON)
