"""How fast, how far, and not too nervously: what may come of the desired number of replicas.

Recent recommendations hold a decision back (stabilisation), recent changes slow it down (policies), the spec bounds it.
Without a `behavior` an older rule holds: at most double, or four. What was wished and done is kept in memory by
the caller; forgetting it is safe, only less smooth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from dovetail.autoscalers.hpa.spec import Behavior, HpaFlags, HpaSpec, Rules, ScalingPolicy

GROWTH = 2
LEAST_GROWTH = 4


class Past(msgspec.Struct, frozen=True):
    """A number of replicas at an instant: wished for, added, or taken away."""

    replicas: int
    at: datetime


class ScaleHistory(msgspec.Struct, frozen=True):
    """What an autoscaler remembers of itself."""

    recommendations: tuple[Past, ...] = ()
    added: tuple[Past, ...] = ()
    removed: tuple[Past, ...] = ()


class Word(msgspec.Struct, frozen=True):
    """A condition's reason and message."""

    reason: str
    message: str


READY = Word("ReadyForNewScale", "recommended size matches current size")
HELD_DOWN = Word(
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
HELD_UP = Word(
    "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"
)
WITHIN = Word("DesiredWithinRange", "the desired count is within the acceptable range")
TOO_FAST_UP = Word("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
TOO_FAST_DOWN = Word("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
TOO_MANY = Word("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FEW = Word("TooFewReplicas", "the desired replica count is less than the minimum replica count")


class NormalizedReplicas(msgspec.Struct, frozen=True):
    """What may be done now, and the words for both conditions."""

    replicas: int
    able: Word
    limited: bool
    limit: Word
    history: ScaleHistory


def settle(
    spec: HpaSpec, current: int, desired: int, history: ScaleHistory, now: datetime, settings: HpaFlags
) -> NormalizedReplicas:
    """The desired number, held back and slowed down as the spec says."""
    if spec.behavior is None:
        held, able = _held_by_flag(desired, history, now, settings.downscale_stabilization), HELD_DOWN
        replicas, limit = _at_most_double(spec, current, held)
    else:
        held = _held_by_rules(spec.behavior, current, desired, history, now, settings)
        able = HELD_UP if desired >= current else HELD_DOWN
        replicas, limit = _by_policies(spec, spec.behavior, current, held, history, now)
    window = _longest_window(spec, settings)
    kept = (*_since(history.recommendations, now, window), Past(desired, now))
    remembered = msgspec.structs.replace(history, recommendations=kept)
    return NormalizedReplicas(replicas, able if held != desired else READY, replicas != held, limit, remembered)


def initial_history(history: ScaleHistory, replicas: int, now: datetime) -> ScaleHistory:
    """The history of an autoscaler that is first looked at starts with what its workload has."""
    return (
        history if history.recommendations else msgspec.structs.replace(history, recommendations=(Past(replicas, now),))
    )


def changed(spec: HpaSpec, history: ScaleHistory, before: int, after: int, now: datetime) -> ScaleHistory:
    """The history with a change that was made; remembered only where policies ask for it."""
    if spec.behavior is None:
        return history
    rules = spec.behavior.scale_up if after > before else spec.behavior.scale_down
    period = max((policy.period_seconds for policy in rules.policies), default=0)
    made = Past(abs(after - before), now)
    if after > before:
        return msgspec.structs.replace(history, added=(*_since(history.added, now, period), made))
    return msgspec.structs.replace(history, removed=(*_since(history.removed, now, period), made))


def _since(past: Iterable[Past], now: datetime, seconds: float) -> list[Past]:
    return [entry for entry in past if entry.at >= now - timedelta(seconds=seconds)]


def _within(past: Iterable[Past], now: datetime, seconds: float) -> list[int]:
    return [entry.replicas for entry in past if entry.at > now - timedelta(seconds=seconds)]


def _longest_window(spec: HpaSpec, settings: HpaFlags) -> float:
    if spec.behavior is None:
        return settings.downscale_stabilization
    return max(spec.behavior.scale_up.stabilization_window_seconds or 0, _down_window(spec.behavior, settings))


def _down_window(behavior: Behavior, settings: HpaFlags) -> float:
    window_s = behavior.scale_down.stabilization_window_seconds
    return settings.downscale_stabilization if window_s is None else float(window_s)


def _held_by_flag(desired: int, history: ScaleHistory, now: datetime, window: float) -> int:
    return max([desired, *(recommendation.replicas for recommendation in _since(history.recommendations, now, window))])


def _held_by_rules(
    behavior: Behavior, current: int, desired: int, history: ScaleHistory, now: datetime, settings: HpaFlags
) -> int:
    up = behavior.scale_up.stabilization_window_seconds or 0
    lowest = min([desired, *_within(history.recommendations, now, up)])
    highest = max([desired, *_within(history.recommendations, now, _down_window(behavior, settings))])
    return min(max(current, lowest), highest)


def _at_most_double(spec: HpaSpec, current: int, desired: int) -> tuple[int, Word]:
    rate = max(GROWTH * current, LEAST_GROWTH)
    most, word = (rate, TOO_FAST_UP) if spec.max_replicas > rate else (spec.max_replicas, TOO_MANY)
    if desired < spec.least:
        return spec.least, TOO_FEW
    return (most, word) if desired > most else (desired, WITHIN)


def _by_policies(
    spec: HpaSpec, behavior: Behavior, current: int, desired: int, history: ScaleHistory, now: datetime
) -> tuple[int, Word]:
    if desired > current:
        rate = max(current, _limit(behavior.scale_up, current, history, now, up=True))
        most, word = (rate, TOO_FAST_UP) if spec.max_replicas > rate else (spec.max_replicas, TOO_MANY)
        if desired > most:
            return most, word
    elif desired < current:
        rate = min(current, _limit(behavior.scale_down, current, history, now, up=False))
        least, word = (rate, TOO_FAST_DOWN) if spec.least < rate else (spec.least, TOO_FEW)
        if desired < least:
            return least, word
    return desired, WITHIN


def _limit(rules: Rules, current: int, history: ScaleHistory, now: datetime, *, up: bool) -> int:
    """How far one direction may go now."""
    if rules.select_policy == "Disabled" or not rules.policies:
        return current
    reach = [_reach(policy, current, history, now, up) for policy in rules.policies]
    farthest = rules.select_policy != "Min"
    return max(reach) if up == farthest else min(reach)


def _reach(policy: ScalingPolicy, current: int, history: ScaleHistory, now: datetime, up: bool) -> int:
    added = sum(_within(history.added, now, policy.period_seconds))
    removed = sum(_within(history.removed, now, policy.period_seconds))
    start = current - added + removed
    if policy.type == "Pods":
        return start + policy.value if up else start - policy.value
    if up:
        return math.ceil(start * (1 + policy.value / 100))
    return int(start * (1 - policy.value / 100))
