"""The values of a view. Resources are integers (milli-CPU, bytes, counts); money is whole billionths of a dollar.

Sums of integers can be changed by what changed alone, and are exact however often that happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from dovetail.language import source

#: A lower bound holds for a fleet whose price has changed by this share at most since it was computed.
MAX_COST_CHANGE = 0.05
NANO = 10**9
HOURS_PER_MONTH = 730
_OF_REASONS = source("{nodes} of reason {reasons}")
_IN_A_WINDOW = source("{nodes} from {schedule} for {duration}")
_OF_REASONS_IN_A_WINDOW = source("{nodes} of reason {reasons} from {schedule} for {duration}")

Amounts = Mapping[str, int]


class NodePhase(StrEnum):
    """How far a node is, from its request to its end."""

    LAUNCHING = "launching"  # a NodeClaim without an instance
    JOINING = "joining"  # an instance whose node is not initialized
    READY = "ready"
    NOT_READY = "not-ready"
    CORDONED = "cordoned"
    REPLACING = "replacing"  # will be drained as soon as its replacement is ready
    DRAINING = "draining"


class HourlyPrice(msgspec.Struct, frozen=True):
    """Dollars an hour, and where the figure comes from."""

    per_hour: float
    source: str


class Money(msgspec.Struct, frozen=True):
    """A sum of prices: what is known of it, and how many of its parts have no known price."""

    nano: int = 0
    parts: int = 0
    unpriced: int = 0

    @property
    def known(self) -> float:
        """Dollars an hour of the parts with a price."""
        return self.nano / NANO

    @property
    def per_hour(self) -> float | None:
        """Dollars an hour of all parts; None where a price is unknown."""
        return None if self.unpriced else self.known

    @property
    def per_month(self) -> float | None:
        per_hour = self.per_hour
        return None if per_hour is None else per_hour * HOURS_PER_MONTH

    def plus(self, other: Money, sign: int = 1) -> Money:
        return Money(
            self.nano + sign * other.nano, self.parts + sign * other.parts, self.unpriced + sign * other.unpriced
        )


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a node. `requests` is None where they cannot be read."""

    namespace: str
    name: str
    uid: str
    workload: str
    phase: str
    requests: Amounts | None
    daemon: bool = False
    terminating: bool = False
    ready: bool | None = None
    created: datetime | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PendingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod without a node: `code` is of the reason vocabulary, or empty; `waits_for` is a NodeClaim or node."""

    namespace: str
    name: str
    uid: str
    workload: str
    requests: Amounts | None
    reason: str
    code: str = ""
    remedy: str = ""
    waits_for: str = ""
    decision: str = ""
    created: datetime | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node, or a NodeClaim that has none yet.

    `until` is when the present state ends at the latest: a drain that is forced, a launch that is given up.
    `usage` is None where there are no metrics, `requests` where the pods may not be read.
    """

    name: str
    claim: str | None
    has_node: bool
    state: NodePhase
    reason: str
    until: datetime | None
    pool: str | None
    group: str | None
    zone: str | None
    instance_type: str | None
    capacity_type: str | None
    architecture: str | None
    price: HourlyPrice | None
    capacity: Amounts
    allocatable: Amounts
    requests: Amounts | None
    usage: Amounts | None
    pods: tuple[PodView, ...]
    created: datetime | None = None
    expires: datetime | None = None
    provider_id: str = ""
    kubelet_version: str = ""

    @property
    def key(self) -> str:
        """Names of nodes and of NodeClaims may be equal."""
        return f"node/{self.name}" if self.has_node else f"nodeclaim/{self.name}"

    @property
    def is_paid(self) -> bool:
        """Whether there is an instance, as far as is known."""
        return self.state is not NodePhase.LAUNCHING

    def share(self, resource: str) -> float | None:
        """The requested part of what pods may have; None where either is unknown."""
        total = self.allocatable.get(resource)
        return None if not total or self.requests is None else self.requests.get(resource, 0) / total

    def usage_share(self, resource: str) -> float | None:
        total = self.allocatable.get(resource)
        used = self.usage.get(resource) if self.usage is not None else None
        return None if not total or used is None else used / total

    @property
    def binding(self) -> str | None:
        """The resource that the requests fill most."""
        shares = {name: share for name in self.allocatable if (share := self.share(name)) is not None}
        return max(shares, key=lambda name: shares[name]) if shares else None


class Sum(msgspec.Struct, frozen=True):
    """Nodes, pods and money of a part of the fleet: a pool, a namespace, a workload, a capacity type."""

    nodes: int = 0
    pods: int = 0
    cpu: int = 0
    memory: int = 0
    money: Money = Money()

    def plus(self, other: Sum, sign: int = 1) -> Sum:
        return Sum(
            self.nodes + sign * other.nodes,
            self.pods + sign * other.pods,
            self.cpu + sign * other.cpu,
            self.memory + sign * other.memory,
            self.money.plus(other.money, sign),
        )


class LowerBound(msgspec.Struct, frozen=True):
    """What no fleet for the same pods costs less than, for the prices and the relaxation that `of` names.

    `of` is untranslated: viewers may speak any language.
    """

    per_hour: float
    of: tuple[str, ...] = ()
    #: What the fleet cost that it was computed for.
    cost: float | None = None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole fleet. `fleet` has every node; `idle` is what no pod requests of what is paid."""

    fleet: Sum = Sum()
    allocatable_cpu: int = 0
    allocatable_memory: int = 0
    usage_cpu: int | None = None
    usage_memory: int | None = None
    states: Mapping[str, int] = {}
    pools: Mapping[str, Sum] = {}
    namespaces: Mapping[str, Sum] = {}
    workloads: Mapping[str, Sum] = {}
    capacity_types: Mapping[str, Sum] = {}
    pending: int = 0
    pods: int | None = None
    bound: LowerBound | None = None
    saved_per_hour: float | None = None

    @property
    def current_bound(self) -> LowerBound | None:
        """The lower bound, unless it lags: a bound of a fleet of quite another price says nothing of this one.

        One above the cost lags as well: the pods changed, and the price did not.
        """
        cost = self.fleet.money.per_hour
        if cost is None or self.bound is None or self.bound.per_hour > cost * (1 + 1e-9):
            return None
        bounded = self.bound.cost if self.bound.cost is not None else cost
        return None if abs(cost - bounded) > MAX_COST_CHANGE * bounded else self.bound

    @property
    def gap(self) -> float | None:
        """How far the fleet is above the lower bound at most; None where either is unknown, or no pod needs a node."""
        cost, bound = self.fleet.money.per_hour, self.current_bound
        return None if cost is None or bound is None or not bound.per_hour else max(0.0, cost / bound.per_hour - 1)


class BudgetView(msgspec.Struct, frozen=True):
    """A disruption budget: how many nodes may be disrupted, for which reasons, and in which window."""

    nodes: str
    reasons: tuple[str, ...] = ()
    schedule: str | None = None
    duration: str | None = None

    def words(self, say: Callable[..., str]) -> str:
        """The budget in the language that `say` speaks: viewers of one view may speak several."""
        if self.schedule is None and not self.reasons:
            return self.nodes
        facts = {"nodes": self.nodes, "reasons": ", ".join(self.reasons)}
        if self.schedule is None:
            return say(_OF_REASONS, **facts)
        template = _OF_REASONS_IN_A_WINDOW if self.reasons else _IN_A_WINDOW
        return say(template, schedule=self.schedule, duration=self.duration, **facts)


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """A NodePool. `ready` is None where no controller has said."""

    name: str
    ready: bool | None
    problem: str = ""
    weight: int = 0
    limits: Amounts = {}
    used: Amounts = {}
    budgets: tuple[BudgetView, ...] = ()


class WatchHealth(msgspec.Struct, frozen=True, kw_only=True):
    """`problems` are watches that broke, by kind; `unread` are kinds not served or not permitted, with the reason.

    `safe_mode` is None where no decision history can be read, and empty while it is off.
    """

    connected: bool = True
    problems: Mapping[str, str] = {}
    unread: Mapping[str, str] = {}
    safe_mode: str | None = None
    autoscaler: str | None = None
    api_errors: int = 0
    last_api_error: str = ""
    metrics: str = ""
    kubernetes: str | None = None
    dovetail: str = ""
    kubelets: Mapping[str, int] = {}


class RecentDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that changed the fleet, or says why it was not changed; `time` is as recorded."""

    id: str
    kind: str
    time: str
    summary: str
    reason: str = ""


class FleetView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment. Nodes and pods that did not change keep their identity from view to view."""

    nodes: Mapping[str, NodeView] = {}
    pending: Mapping[str, PendingPod] = {}
    pools: Mapping[str, PoolView] = {}
    totals: Totals = Totals()
    health: WatchHealth = WatchHealth()
    #: The newest decisions, newest first; empty where there are none or none may be read.
    recent: tuple[RecentDecision, ...] = ()
