"""What an autoscaler decides: replicas, its status, and what it says about it. Nothing is read from outside.

`metrics_wanted` tells whether metrics matter at all; `decide` is given their readings. The caller then writes
the scale, and the decision turns into a status by whether that worked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from dovetail.autoscalers.hpa.count import Tolerance
from dovetail.autoscalers.hpa.limits import ScaleHistory, changed, initial_history, settle
from dovetail.autoscalers.hpa.proposal import MetricContext, MetricError, Reading, ReplicaProposal, propose
from dovetail.autoscalers.hpa.spec import HorizontalPodAutoscaler, HpaFlags, HpaStatus, ScaleView
from dovetail.model.meta import Condition, condition
from dovetail.model.pods import Pod
from dovetail.model.quantity import parse

ABLE, ACTIVE, LIMITED, ZERO = "AbleToScale", "ScalingActive", "ScalingLimited", "ScaledToZero"
ABOVE = "Current number of replicas above Spec.MaxReplicas"
BELOW = "Current number of replicas below Spec.MinReplicas"


class HpaEvent(msgspec.Struct, frozen=True):
    """An event to record."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class ScaleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`replicas` is what the scale should say, or None to leave it; `desired` is what the status will show."""

    asked: HorizontalPodAutoscaler
    current: int
    desired: int
    replicas: int | None = None
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    metrics: tuple[dict[str, Any], ...] | None = None
    scaled: datetime | None = None
    sayings: tuple[HpaEvent, ...] = ()
    history: ScaleHistory = ScaleHistory()

    def status(self) -> HpaStatus:
        """What the autoscaler's status should say now."""
        return HpaStatus(
            last_scale_time=self.scaled or self.asked.status.last_scale_time,
            current_replicas=self.current,
            desired_replicas=self.desired,
            current_metrics=self.metrics,
            conditions=self.conditions,
        )

    def rescaled(self, now: datetime, settings: HpaFlags) -> ScaleDecision:
        """The scale was written."""
        assert self.replicas is not None
        text = f"the HPA controller was able to update the target scale to {self.replicas}"
        conditions = put(self.conditions, ABLE, True, "SucceededRescale", text, now)
        conditions = _at_zero(self, conditions, now) if settings.scale_to_zero else _without(conditions, ZERO)
        event = HpaEvent("Normal", "SuccessfulRescale", f"New size: {self.replicas}; reason: {self.reason}")
        return msgspec.structs.replace(
            self,
            conditions=conditions,
            scaled=now.replace(microsecond=0),
            sayings=(*self.sayings, event),
            history=changed(self.asked.spec, self.history, self.current, self.replicas, now),
        )

    def refused(self, error: str, now: datetime) -> ScaleDecision:
        """The scale could not be written."""
        text = f"the HPA controller was unable to update the target scale: {error}"
        message = f"New size: {self.replicas}; reason: {self.reason}; error: {error}"
        return msgspec.structs.replace(
            self,
            desired=self.asked.status.desired_replicas,
            conditions=put(self.conditions, ABLE, False, "FailedUpdateScale", text, now),
            sayings=(*self.sayings, HpaEvent("Warning", "FailedRescale", message)),
        )


def _at_zero(decision: ScaleDecision, conditions: tuple[Condition, ...], now: datetime) -> tuple[Condition, ...]:
    spec = decision.asked.spec
    if decision.current > 0 and decision.replicas == 0 and spec.least == 0 and spec.outward:
        return put(conditions, ZERO, True, "ScaledToZero", "the HPA controller scaled the workload to zero", now)
    text = "the HPA controller did not scale the workload to zero"
    return put(conditions, ZERO, False, "NotScaledToZero", text, now)


def unscalable(hpa: HorizontalPodAutoscaler, error: str, history: ScaleHistory, now: datetime) -> ScaleDecision:
    """The target's scale could not be read."""
    text = f"the HPA controller was unable to get the target's current scale: {error}"
    before = hpa.status
    return ScaleDecision(
        asked=hpa,
        current=before.current_replicas,
        desired=before.desired_replicas,
        conditions=put(before.conditions, ABLE, False, "FailedGetScale", text, now),
        metrics=before.current_metrics,
        sayings=(HpaEvent("Warning", "FailedGetScale", error),),
        history=history,
    )


class PodSelectionError(Exception):
    """Which pods are meant is unclear: the reason and text of the event, and what the condition shows."""

    def __init__(self, reason: str, text: str, shown: str = "") -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.shown = shown or text


def unselective(
    hpa: HorizontalPodAutoscaler, scale: ScaleView, problem: PodSelectionError, history: ScaleHistory, now: datetime
) -> ScaleDecision:
    """The workload's pods cannot be determined."""
    current, reason = scale.spec.replicas, problem.reason
    condition_reason = reason if reason == "AmbiguousSelector" else "InvalidSelector"
    return ScaleDecision(
        asked=hpa,
        current=current,
        desired=hpa.status.desired_replicas,
        conditions=put(_found(hpa, now), ACTIVE, False, condition_reason, problem.shown, now),
        sayings=(
            HpaEvent("Warning", reason, problem.text),
            HpaEvent("Warning", "FailedComputeMetricsReplicas", problem.text),
        ),
        history=initial_history(history, current, now),
    )


def metrics_wanted(hpa: HorizontalPodAutoscaler, scale: ScaleView, settings: HpaFlags) -> bool:
    """Outside its bounds, or put to zero by hand, a workload is not measured."""
    current, spec = scale.spec.replicas, hpa.spec
    if current == 0:
        slept = settings.scale_to_zero and _is_true(hpa.status.conditions, ZERO)
        return slept and (spec.least != 0 or spec.outward)
    return spec.least <= current <= spec.max_replicas


def decide(
    hpa: HorizontalPodAutoscaler,
    scale: ScaleView,
    readings: Sequence[Reading],
    pods: Sequence[Pod],
    history: ScaleHistory,
    now: datetime,
    settings: HpaFlags,
) -> ScaleDecision:
    """The decision of one look. `readings` are parallel to the metrics of the spec, and empty if none are wanted."""
    current, spec = scale.spec.replicas, hpa.spec
    base = ScaleDecision(
        asked=hpa,
        current=current,
        desired=current,
        conditions=_found(hpa, now),
        history=initial_history(history, current, now),
    )
    if metrics_wanted(hpa, scale, settings):
        scene = MetricContext(
            namespace=hpa.metadata.namespace,
            scale=scale,
            pods=pods,
            tolerance=tolerance(hpa, settings),
            now=now,
            settings=settings,
        )
        return _by_metrics(base, readings, scene)
    if current == 0:
        text = "scaling is disabled since the replica count of the target is zero"
        conditions = put(base.conditions, ACTIVE, False, "ScalingDisabled", text, now)
        kept = conditions if settings.scale_to_zero else _without(conditions, ZERO)
        return msgspec.structs.replace(base, conditions=kept)
    desired, reason = (spec.max_replicas, ABOVE) if current > spec.max_replicas else (spec.least, BELOW)
    return msgspec.structs.replace(base, desired=desired, replicas=desired, reason=reason)


def _by_metrics(base: ScaleDecision, readings: Sequence[Reading], scene: MetricContext) -> ScaleDecision:
    hpa, current, now = base.asked, base.current, scene.now
    judged = [propose(metric, reading, scene) for metric, reading in zip(hpa.spec.metrics, readings, strict=True)]
    proposals = [result for result in judged if isinstance(result, ReplicaProposal)]
    refusals = [result for result in judged if isinstance(result, MetricError)]
    best = _most(proposals)
    base = msgspec.structs.replace(
        base,
        metrics=tuple(result.status if isinstance(result, ReplicaProposal) else {"type": ""} for result in judged),
        sayings=tuple(HpaEvent("Warning", refusal.reason, refusal.text) for refusal in refusals),
    )
    if best is None or (refusals and best.replicas < current):
        return _nothing(base, refusals, len(judged), now)
    text = f"the HPA was able to successfully calculate a replica count from {best.name}"
    conditions = put(base.conditions, ACTIVE, True, "ValidMetricFound", text, now)
    desired = max(0, best.replicas)
    verdict = settle(hpa.spec, current, desired, base.history, now, scene.settings)
    conditions = put(conditions, ABLE, True, verdict.able.reason, verdict.able.message, now)
    conditions = put(conditions, LIMITED, verdict.limited, verdict.limit.reason, verdict.limit.message, now)
    reason = ""
    if desired != current:
        reason = f"{best.name} above target" if desired > current else "All metrics below target"
    replicas = verdict.replicas
    if current == 0 and replicas < hpa.spec.least:
        replicas, reason = hpa.spec.least, reason or BELOW
    return msgspec.structs.replace(
        base,
        desired=replicas,
        replicas=replicas if replicas != current else None,
        reason=reason,
        conditions=conditions,
        history=verdict.history,
    )


def _most(proposals: Sequence[ReplicaProposal]) -> ReplicaProposal | None:
    """The proposal that counts: the largest, the first of equal ones; none at all gives way to whatever comes after."""
    best: ReplicaProposal | None = None
    for proposal in proposals:
        if best is None or best.replicas == 0 or proposal.replicas > best.replicas:
            best = proposal
    return best


def _nothing(base: ScaleDecision, refusals: Sequence[MetricError], metrics: int, now: datetime) -> ScaleDecision:
    first = refusals[0]
    shown = f"the HPA was unable to compute the replica count: {first.text}"
    text = f"invalid metrics ({len(refusals)} invalid out of {metrics}), first error is: {first.summary}"
    return msgspec.structs.replace(
        base,
        desired=base.asked.status.desired_replicas,
        conditions=put(base.conditions, ACTIVE, False, first.reason, shown, now),
        sayings=(*base.sayings, HpaEvent("Warning", "FailedComputeMetricsReplicas", text)),
    )


def _found(hpa: HorizontalPodAutoscaler, now: datetime) -> tuple[Condition, ...]:
    text = "the HPA controller was able to get the target's current scale"
    return put(hpa.status.conditions, ABLE, True, "SucceededGetScale", text, now)


def tolerance(hpa: HorizontalPodAutoscaler, settings: HpaFlags) -> Tolerance:
    """The autoscaler's own tolerances, or the flag's."""
    behavior = hpa.spec.behavior
    down = behavior.scale_down.tolerance if behavior is not None else None
    up = behavior.scale_up.tolerance if behavior is not None else None
    return Tolerance(
        *(settings.tolerance if tolerance is None else parse(tolerance).nano / 10**9 for tolerance in (down, up))
    )


def put(
    conditions: tuple[Condition, ...], kind: str, holds: bool, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with one said anew; its instant moves only when the answer changes."""
    status = "True" if holds else "False"
    before = condition(conditions, kind)
    since = before.last_transition_time if before is not None and before.status == status else None
    made = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since or now.replace(microsecond=0),
    )
    if before is None:
        return (*conditions, made)
    return tuple(made if current.type == kind else current for current in conditions)


def _without(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    return tuple(current for current in conditions if current.type != kind)


def _is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    current = condition(conditions, kind)
    return current is not None and current.status == "True"
