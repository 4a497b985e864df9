"""What a recording says of a fleet: nodes, dollars and waiting pods over time, and every launch and removal.

The fleet is what an autoscaler launched: nodes of NodePools or of node groups; where there are neither, all nodes.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.cloud import price_estimates
from dovetail.model import wellknown
from dovetail.model.labels import ON_DEMAND
from dovetail.offline.recorded_prices import dollars_of, recorded_prices
from dovetail.offline.recording import OfferingKey, RecordedEvent, RecordedPrice, Recording
from dovetail.offline.recording.records import MAX_DOLLARS
from dovetail.view.prices import capacity_type

Json = dict[str, Any]

#: Labels of managed node groups and of eksctl's.
NODE_GROUP_LABELS = ("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name")
#: Kinds that stand for an instance before its Node is there.
CLAIM_KINDS = ("NodeClaim", "Machine")
#: On the pod of a DaemonSet that a replay makes by itself: it has no owner there.
OF_NODE_ANNOTATION = "recording.dovetail.sh/of-node"
#: Events that say that an instance could not be had.
_CAPACITY_REASONS = frozenset({"InsufficientCapacityError", "InsufficientCapacity", "UnfulfillableCapacity"})
HOUR_S = 3600.0
#: Of a recording of less than an hour the lower bound is computed so often, but not more than once a second.
MIN_BOUNDS, MIN_BOUND_INTERVAL_S = 60, 1.0


class TimelineSample(msgspec.Struct, frozen=True):
    """A moment: seconds since the start, nodes of the fleet, their $/h, live pods, pods without a node."""

    at: float
    nodes: int
    rate: float
    pods: int
    pending: int
    #: Seconds that pods have been pending until now, summed.
    waited: float
    bound: float | None = None


class ScalingDecision(msgspec.Struct, frozen=True):
    """A launch or a removal of a node."""

    at: float
    action: str
    instance_type: str
    zone: str
    capacity_type: str
    pool: str
    name: str
    reason: str = ""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet over time. Waits are seconds from a pod's creation to its binding, of pods that were created in it."""

    seconds: float
    samples: tuple[TimelineSample, ...]
    decisions: tuple[ScalingDecision, ...]
    dollars: float
    lower_bound: float | None
    pods: int
    pending_p50: float | None
    pending_p90: float | None
    pending_p99: float | None
    never_bound: int
    evictions: int
    launched: int
    removed: int
    capacity_errors: int
    #: Nodes whose price is not known; they count as nothing.
    unpriced: tuple[str, ...] = ()


#: The lower bound of a moment in $/h, given its pods that have a node, the nodes that are no part of the fleet, and the
#: lowest prices that were recorded until then: what was launched at a lower price is still paid for at that price.
Bound = Callable[[list[Json], list[Json], Mapping[OfferingKey, float]], float]


def timeline(recording: Recording, since: datetime, interval_s: float, bound: Bound | None = None) -> Timeline:
    """Sample a recording every so many seconds from an instant on."""
    return Reader(recording, since, interval_s, bound).read()


def managed_by(labels: Json) -> str:
    """The NodePool or node group of a node; empty for neither."""
    pool = labels.get(wellknown.NODEPOOL) or labels.get("karpenter.sh/provisioner-name")
    return pool or next((labels[label] for label in NODE_GROUP_LABELS if label in labels), "")


def labels_of(source: Json) -> Json:
    return source["metadata"].get("labels") or {}


class CountedNodes:
    """Which nodes of a recording count. With NodePools in it, nodes of node groups stand whatever is launched."""

    def __init__(self, recording: Recording) -> None:
        self._pools = self._groups = False
        first = recording.objects_at(recording.start)
        for source in first:
            self._look(source)
        for event in recording.events(recording.start, recording.end):
            if event.type == "ADDED":
                self._look(event.object)

    def _look(self, source: Json) -> None:
        if source["kind"] in CLAIM_KINDS:
            self._pools = True
        elif source["kind"] == "Node":
            labels = labels_of(source)
            self._pools |= wellknown.NODEPOOL in labels
            self._groups |= any(label in labels for label in NODE_GROUP_LABELS)

    def has(self, node: Json) -> bool:
        labels = labels_of(node)
        if self._pools:
            return wellknown.NODEPOOL in labels or "karpenter.sh/provisioner-name" in labels
        return not self._groups or any(label in labels for label in NODE_GROUP_LABELS)


class Reader:
    """Goes through a recording once."""

    def __init__(self, recording: Recording, since: datetime, interval_s: float, bound: Bound | None) -> None:
        self._recording = recording
        self._since = since
        self._interval_s = interval_s
        self._bound = bound
        self._fleet = CountedNodes(recording)
        self._nodes: dict[str, Json] = {}
        self._standing: dict[str, Json] = {}
        #: What is paid for, by provider id: the NodeClaim or the Node, with its price and its decision.
        self._paid: dict[str, tuple[float, ScalingDecision]] = {}
        self._pods: dict[str, Json] = {}
        self._pending_since: dict[str, float] = {}
        self._waits: list[float] = []
        self._waited = 0.0
        self._created = 0
        self._evicted: set[str] = set()
        recorded = recorded_prices(recording)
        self._prices: dict[OfferingKey, RecordedPrice] = dict(recorded.first)
        lead_s = (since - recording.start).total_seconds()
        self._price_changes = deque(
            msgspec.structs.replace(change, at=change.at - lead_s) for change in recorded.changes
        )
        self._lowest = {key: price.dollars for key, price in self._prices.items()}
        #: The offerings of instances that are paid for at the recorded price of the moment, by provider id.
        self._market_priced: dict[str, OfferingKey] = {}
        self._decisions: list[ScalingDecision] = []
        self._samples: list[TimelineSample] = []
        #: The lower bound at moments, in $/h.
        self._bounds: list[tuple[float, float]] = []
        self._dollars = 0.0
        self._rate_since = 0.0
        self._rate = 0.0
        self._capacity_errors = 0
        self._unpriced: dict[str, None] = {}

    def read(self) -> Timeline:
        recording, since = self._recording, self._since
        self._follow_prices(0.0)
        for source in recording.objects_at(since):
            self._take(RecordedEvent(since, "ADDED", source), first=True)
        seconds = (recording.end - since).total_seconds()
        moments = self._moments(seconds)
        following = next(moments)
        for event in recording.events(since, recording.end):
            now = (event.time - since).total_seconds()
            while following <= now:
                self._look_at(following)
                following = next(moments)
            self._follow_prices(now)
            self._take(event)
        while following <= seconds:
            self._look_at(following)
            following = next(moments)
        self._follow_prices(seconds)
        self._account(seconds)
        self._note_bound(seconds)
        return self._timeline(seconds)

    def _moments(self, seconds: float) -> Iterator[float]:
        """When the lower bound is computed; every so many of them is a sample."""
        parts = max(1, math.ceil(self._interval_s / max(MIN_BOUND_INTERVAL_S, seconds / MIN_BOUNDS)))
        number = 0
        while True:
            yield number // parts * self._interval_s + number % parts * self._interval_s / parts
            number += 1

    def _look_at(self, now: float) -> None:
        self._follow_prices(now)
        bound = self._note_bound(now)
        if now >= len(self._samples) * self._interval_s:
            self._sample(now, bound)

    def _note_bound(self, now: float) -> float | None:
        """The lower bound of the pods that have a node: what waits is not paid for yet."""
        if self._bound is None:
            return None
        placed = [pod for pod in self._pods.values() if (pod.get("spec") or {}).get("nodeName")]
        bound = round(self._bound(placed, list(self._standing.values()), self._lowest), 6)
        self._bounds.append((now, bound))
        return bound

    def _lower_bound(self) -> float | None:
        """Dollars. Between two moments the lower of their bounds holds: what lies between them was not looked at."""
        if not self._bounds:
            return None
        steps = itertools.pairwise(self._bounds)
        return round(math.fsum((end - start) * min(low, high) for (start, low), (end, high) in steps) / HOUR_S, 6)

    def _timeline(self, seconds: float) -> Timeline:
        waits = sorted(self._waits)
        return Timeline(
            seconds=seconds,
            samples=tuple(self._samples),
            decisions=tuple(self._decisions),
            dollars=round(self._dollars, 6),
            lower_bound=self._lower_bound(),
            pods=self._created,
            pending_p50=percentile(waits, 0.50),
            pending_p90=percentile(waits, 0.90),
            pending_p99=percentile(waits, 0.99),
            never_bound=len(self._pending_since),
            evictions=len(self._evicted),
            launched=sum(decision.action == "launch" for decision in self._decisions),
            removed=sum(decision.action == "remove" for decision in self._decisions),
            capacity_errors=self._capacity_errors,
            unpriced=tuple(sorted(self._unpriced)),
        )

    def _take(self, event: RecordedEvent, *, first: bool = False) -> None:
        now = (event.time - self._since).total_seconds()
        kind = event.object["kind"]
        if kind == "Pod":
            self._take_pod(event, now, first)
        elif kind in CLAIM_KINDS:
            self._take_claim(event, now, first)
        elif kind == "Node":
            self._take_node(event, now, first)
        elif kind == "Event" and event.type == "ADDED" and not first:
            self._capacity_errors += event.object.get("reason") in _CAPACITY_REASONS

    # Pods

    def _take_pod(self, event: RecordedEvent, now: float, first: bool) -> None:
        pod, uid = event.object, uid_of(event.object)
        if is_evicted(pod):
            self._evicted.add(uid)
        if event.type == "DELETED" or not is_live(pod):
            self._pods.pop(uid, None)
            self._stop_waiting(uid, now, bound=False)
            return
        fresh = uid not in self._pods
        self._pods[uid] = pod
        if (pod.get("spec") or {}).get("nodeName"):
            if fresh and not first and not of_node(pod):
                self._created += 1
                self._waits.append(0.0)
            self._stop_waiting(uid, now, bound=True)
        elif fresh and not of_node(pod):
            self._created += not first
            self._pending_since[uid] = now

    def _stop_waiting(self, uid: str, now: float, *, bound: bool) -> None:
        since = self._pending_since.pop(uid, None)
        if since is not None:
            self._waited += now - since
            if bound:
                self._waits.append(now - since)

    # The fleet

    def _take_claim(self, event: RecordedEvent, now: float, first: bool) -> None:
        claim = event.object
        provider = (claim.get("status") or {}).get("providerID") or ""
        if not provider:
            return
        if event.type == "DELETED":
            self._end(provider, now, disruption_reason(claim))
        else:
            self._begin(provider, claim, now, first)

    def _take_node(self, event: RecordedEvent, now: float, first: bool) -> None:
        node = event.object
        name, provider = node["metadata"]["name"], (node.get("spec") or {}).get("providerID") or ""
        mine = self._nodes if self._fleet.has(node) else self._standing
        if event.type == "DELETED":
            self._nodes.pop(name, None)
            self._standing.pop(name, None)
            self._end(provider or name, now)
            return
        mine[name] = node
        if mine is self._nodes:
            self._standing.pop(name, None)
            self._begin(provider or name, node, now, first)

    def _begin(self, provider: str, source: Json, now: float, first: bool) -> None:
        if provider in self._paid:
            return
        labels = labels_of(source)
        decision = ScalingDecision(
            at=round(now, 3),
            action="launch",
            instance_type=labels.get(wellknown.INSTANCE_TYPE, ""),
            zone=labels.get(wellknown.ZONE, ""),
            capacity_type=capacity_type(labels) or "",
            pool=managed_by(labels),
            name=source["metadata"]["name"],
        )
        price = self._price(provider, source)
        if price is None:
            self._unpriced[decision.instance_type or decision.name] = None
        self._paid[provider] = price or 0.0, decision
        self._account(now)
        if not first:
            self._decisions.append(decision)

    def _end(self, provider: str, now: float, reason: str = "") -> None:
        paid = self._paid.pop(provider, None)
        self._market_priced.pop(provider, None)
        if paid is not None:
            self._account(now)
            self._decisions.append(msgspec.structs.replace(paid[1], at=round(now, 3), action="remove", reason=reason))

    def _price(self, provider: str, source: Json) -> float | None:
        """What it was launched at, what was recorded of its offering, or the list price of an on-demand instance."""
        labels = labels_of(source)
        region, instance_type = labels.get(wellknown.REGION, ""), labels.get(wellknown.INSTANCE_TYPE, "")
        offered = capacity_type(labels) or ON_DEMAND
        key = OfferingKey(region, instance_type, labels.get(wellknown.ZONE, ""), offered)
        try:
            launched_at = float((source["metadata"].get("annotations") or {})[wellknown.PRICE])
            if not 0.0 <= launched_at <= MAX_DOLLARS:
                raise ValueError(launched_at)
        except (KeyError, ValueError):
            self._market_priced[provider] = key
            recorded = dollars_of(self._prices, *key)
            if recorded is not None:
                return recorded
            quote = price_estimates.on_demand(region, instance_type) if offered == ON_DEMAND and region else None
            return None if quote is None else quote[0]
        self._lowest[key] = min(launched_at, self._lowest.get(key, launched_at))
        return launched_at

    def _follow_prices(self, now: float) -> None:
        """Instances without a price of their launch are paid for at the price of the moment."""
        while self._price_changes and self._price_changes[0].at <= now:
            change = self._price_changes.popleft()
            self._prices[change.key] = change.price
            dollars = change.price.dollars
            self._lowest[change.key] = min(dollars, self._lowest.get(change.key, dollars))
            for provider, key in self._market_priced.items():
                paid = self._paid.get(provider)
                recorded = dollars_of(self._prices, *key)
                if paid is not None and recorded is not None:
                    self._paid[provider] = recorded, paid[1]
            self._account(max(0.0, change.at))

    def _account(self, now: float) -> None:
        self._dollars += self._rate * (now - self._rate_since) / HOUR_S
        self._rate_since = now
        self._rate = math.fsum(price for price, _ in self._paid.values())

    def _sample(self, now: float, bound: float | None) -> None:
        waiting = math.fsum(now - since for since in self._pending_since.values())
        self._samples.append(
            TimelineSample(
                at=round(now, 3),
                nodes=len(self._nodes),
                rate=round(self._rate, 6),
                pods=len(self._pods),
                pending=len(self._pending_since),
                waited=round(self._waited + waiting, 3),
                bound=bound,
            )
        )


def uid_of(source: Json) -> str:
    metadata = source["metadata"]
    return metadata.get("uid") or f"{metadata.get('namespace', '')}/{metadata['name']}"


def is_live(pod: Json) -> bool:
    """Whether a pod is neither being deleted nor finished."""
    phase = (pod.get("status") or {}).get("phase")
    return not pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed")


def of_node(pod: Json) -> bool:
    """Whether a pod comes with its node and waits for no other."""
    annotations = pod["metadata"].get("annotations") or {}
    return OF_NODE_ANNOTATION in annotations or controller(pod).get("kind") in ("DaemonSet", "Node")


def controller(source: Json) -> Json:
    owners: Iterable[Json] = source["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def is_evicted(pod: Json) -> bool:
    status = pod.get("status") or {}
    if status.get("reason") == "Evicted":
        return True
    return any(
        condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def disruption_reason(claim: Json) -> str:
    """Why a NodeClaim is disrupted, as its conditions say; empty where they say nothing."""
    for condition in (claim.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "DisruptionReason" and condition.get("status") == "True":
            return str(condition.get("reason") or "")
    return ""


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile of sorted values."""
    if not ordered:
        return None
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)
