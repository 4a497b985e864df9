"""Stabilisation, policies and bounds: what may come of the desired number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dovetail.autoscalers.hpa.limits import NormalizedReplicas, Past, ScaleHistory, changed, settle
from dovetail.autoscalers.hpa.spec import Behavior, HpaFlags, HpaSpec, Rules, ScalingPolicy

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float, replicas: int) -> Past:
    return Past(replicas, NOW - timedelta(seconds=seconds))


def rules(*policies: ScalingPolicy, select: str = "Max", window: int = 0) -> Rules:
    return Rules(policies=policies, select_policy=select, stabilization_window_seconds=window)


def verdict(spec: HpaSpec, current: int, desired: int, history: ScaleHistory | None = None) -> NormalizedReplicas:
    return settle(spec, current, desired, history or ScaleHistory(), NOW, HpaFlags())


PLAIN = HpaSpec(min_replicas=2, max_replicas=20)


def test_without_behavior_a_workload_at_most_doubles() -> None:
    found = verdict(PLAIN, 5, 18)
    assert (found.replicas, found.limited, found.limit.reason) == (10, True, "ScaleUpLimit")
    assert verdict(PLAIN, 1, 18).replicas == 4


def test_the_spec_bounds_every_preference() -> None:
    high, low = verdict(PLAIN, 15, 40), verdict(PLAIN, 5, 1)
    assert (high.replicas, high.limit.reason) == (20, "TooManyReplicas")
    assert (low.replicas, low.limit.reason) == (2, "TooFewReplicas")
    assert verdict(PLAIN, 5, 6).limit.reason == "DesiredWithinRange"


def test_the_highest_preference_of_five_minutes_holds_a_scale_down_back() -> None:
    held = verdict(PLAIN, 8, 3, ScaleHistory((ago(299, 7),)))
    assert (held.replicas, held.able.reason) == (7, "ScaleDownStabilized")
    free = verdict(PLAIN, 8, 3, ScaleHistory((ago(301, 7),)))
    assert (free.replicas, free.able.reason) == (3, "ReadyForNewScale")
    assert [past.replicas for past in free.history.recommendations] == [3]


def test_the_lowest_preference_of_the_window_holds_a_scale_up_back() -> None:
    spec = HpaSpec(
        max_replicas=50,
        behavior=Behavior(
            scale_up=rules(ScalingPolicy(type="Pods", value=40, period_seconds=15), window=60), scale_down=Rules()
        ),
    )
    found = verdict(spec, 5, 20, ScaleHistory((ago(30, 8), ago(90, 6))))
    assert (found.replicas, found.able.reason) == (8, "ScaleUpStabilized")


def test_recent_preferences_hold_a_scale_down_of_rules_back_as_far_as_they_went() -> None:
    all_at_once = ScalingPolicy(type="Percent", value=100, period_seconds=15)
    found = verdict(behaving(down=rules(all_at_once, window=60)), 8, 5, ScaleHistory((ago(30, 7), ago(90, 8))))
    assert (found.replicas, found.able.reason) == (7, "ScaleDownStabilized")


def behaving(up: Rules | None = None, down: Rules | None = None) -> HpaSpec:
    both = Behavior(scale_up=up or rules(), scale_down=down or rules())
    return HpaSpec(min_replicas=1, max_replicas=100, behavior=both)


FOUR = ScalingPolicy(type="Pods", value=4, period_seconds=60)
DOUBLE = ScalingPolicy(type="Percent", value=100, period_seconds=60)


def test_the_widest_policy_counts_unless_the_narrowest_is_asked_for() -> None:
    assert verdict(behaving(up=rules(FOUR, DOUBLE)), 10, 90).replicas == 20
    assert verdict(behaving(up=rules(FOUR, DOUBLE, select="Min")), 10, 90).replicas == 14
    assert verdict(behaving(up=rules(FOUR, DOUBLE, select="Disabled")), 10, 90).replicas == 10


def test_what_was_added_within_the_period_counts_against_the_policy() -> None:
    past = ScaleHistory(added=(ago(30, 3), ago(61, 9)))
    assert verdict(behaving(up=rules(FOUR)), 10, 90, past).replicas == 11
    spent = ScaleHistory(added=(ago(30, 9),))
    found = verdict(behaving(up=rules(FOUR)), 10, 90, spent)
    assert (found.replicas, found.limit.reason) == (10, "ScaleUpLimit")


def test_shares_are_rounded_towards_change() -> None:
    tenth = ScalingPolicy(type="Percent", value=10, period_seconds=60)
    assert verdict(behaving(up=rules(tenth)), 5, 90).replicas == 6
    down = verdict(behaving(down=rules(tenth)), 5, 1)
    assert (down.replicas, down.limit.reason) == (4, "ScaleDownLimit")


def test_changes_are_remembered_only_where_policies_ask_for_them() -> None:
    assert changed(PLAIN, ScaleHistory(), 3, 5, NOW) == ScaleHistory()
    made = changed(behaving(up=rules(FOUR), down=rules(FOUR)), ScaleHistory(added=(ago(90, 1),)), 3, 5, NOW)
    assert made.added == (Past(2, NOW),)
    assert changed(behaving(down=rules(FOUR)), ScaleHistory(), 5, 3, NOW).removed == (Past(2, NOW),)
