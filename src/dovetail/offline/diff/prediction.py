"""What is predicted of a change: the cluster now, at rest without the change, and at rest with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec


class PredictedObjectChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object that the change creates (`+`), changes (`~`) or deletes (`-`), with the fields that differ."""

    action: str
    object: str
    fields: tuple[tuple[str, str, str], ...] = ()


class PredictedNodeChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A node that comes (`+`) or goes (`-`), `at` so many seconds after the change.

    `node` is its name if it is there now; `reason` is Provisioned or that of a disruption, `detail` what drifted;
    `pods` are those that it is launched for.
    """

    action: str
    at: float
    claim: str
    node: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    reason: str = ""
    detail: str = ""
    pods: int = 0


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is evicted, when, and from which node."""

    at: float
    pod: str
    node: str


class Wave(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One command of disruption: the nodes that go, how many replace them, evictions, and the budgets that hold."""

    at: float
    reason: str
    nodes: tuple[str, ...]
    pools: tuple[str, ...]
    replacements: int
    evictions: int
    detail: str = ""
    budgets: tuple[str, ...] = ()


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods without a node at rest, by reason."""

    pods: tuple[str, ...]
    count: int
    code: str
    message: str
    remedy: str = ""


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """A node that should go and cannot, and everything that holds it."""

    node: str
    pool: str
    reason: str
    blockers: tuple[str, ...]


class PredictedState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster at a moment. Dollars are those of NodePools' nodes with a known price; `unpriced` counts the others.

    `other_nodes` belong to no NodePool, and stay as they are.
    """

    per_hour: float
    lower_bound: float
    nodes: int
    pods: int
    pending: int
    unpriced: int = 0
    other_nodes: int = 0
    by_pool: dict[str, tuple[int, float]] = {}


class PredictedRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One run: from where it starts to rest. `seconds` until the last change, `at_rest` whether there was an end."""

    start: PredictedState
    end: PredictedState
    objects: tuple[PredictedObjectChange, ...]
    nodes: tuple[PredictedNodeChange, ...]
    evictions: tuple[Eviction, ...]
    waves: tuple[Wave, ...]
    pending: tuple[Pending, ...]
    blocked: tuple[Blocked, ...]
    seconds: float
    at_rest: bool


class Prediction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Both runs, and what was assumed. `horizon_s` is how far they were allowed to go."""

    without: PredictedRun
    applied: PredictedRun
    notes: tuple[str, ...]
    market: tuple[str, ...]
    horizon_s: float

    @property
    def now(self) -> PredictedState:
        return self.without.start

    @property
    def changed(self) -> bool:
        """Whether the change does anything: to objects, to the market, or to what becomes of the cluster."""
        return bool(self.applied.objects or self.market) or self.differs

    @property
    def differs(self) -> bool:
        """Whether the cluster comes to rest elsewhere, or on another way."""
        before, after = self.without, self.applied
        return (
            fleet(before.nodes) != fleet(after.nodes)
            or len(before.evictions) != len(after.evictions)
            or pending_keys(before.pending) != pending_keys(after.pending)
            or abs(before.end.per_hour - after.end.per_hour) > 1e-9
        )

    @property
    def cost_change(self) -> float | None:
        """By which share the cluster at rest costs more with the change; None where it cost nothing before."""
        before = self.without.end.per_hour
        return (self.applied.end.per_hour - before) / before if before else None


def fleet(changes: Sequence[PredictedNodeChange]) -> Counter[tuple[str, str, str, str, str]]:
    """How many nodes of each offering come and go."""
    return Counter(
        (change.action, change.pool, change.instance_type, change.zone, change.capacity_type) for change in changes
    )


def pending_keys(pending: Sequence[Pending]) -> Counter[str]:
    return Counter({reason.code: reason.count for reason in pending})


class PredictionSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The counts of a prediction. A node that is launched and removed again before rest counts as `passing` alone."""

    added: int
    replaced: int
    removed: int
    passing: int
    evictions: int
    evictions_without: int
    pending: int
    pending_without: int
    seconds: float
    dollars_per_hour: float
    dollars_per_hour_without: float
    cost_change: float | None


def lasting(outcome: PredictedRun) -> tuple[list[PredictedNodeChange], list[PredictedNodeChange], int]:
    """Nodes that come and stay, nodes of now that go, and how many come and go again."""
    came = {change.claim for change in outcome.nodes if change.action == "+"}
    went = {change.claim for change in outcome.nodes if change.action == "-"}
    added = [change for change in outcome.nodes if change.action == "+" and change.claim not in went]
    removed = [change for change in outcome.nodes if change.action == "-" and change.claim not in came]
    return added, removed, len(came & went)


def replaced_nodes(outcome: PredictedRun) -> set[str]:
    """The nodes of commands that launch something in their place."""
    return {node for wave in outcome.waves if wave.replacements for node in wave.nodes}


def summary(prediction: Prediction) -> PredictionSummary:
    added, removed, passing = lasting(prediction.applied)
    replaced = replaced_nodes(prediction.applied)
    gone = [change for change in removed if change.node not in replaced]
    replacements = [change for change in added if change.reason != "Provisioned"]
    return PredictionSummary(
        added=len(added) - len(replacements),
        replaced=len(removed) - len(gone),
        removed=len(gone),
        passing=passing,
        evictions=len(prediction.applied.evictions),
        evictions_without=len(prediction.without.evictions),
        pending=prediction.applied.end.pending,
        pending_without=prediction.without.end.pending,
        seconds=prediction.applied.seconds,
        dollars_per_hour=prediction.applied.end.per_hour,
        dollars_per_hour_without=prediction.without.end.per_hour,
        cost_change=prediction.cost_change,
    )
