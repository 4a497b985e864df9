"""Consolidation state: whether another pass over the fleet could have another result than the last one.

A pass costs what the fleet is large, so it is made for changes that could allow a removal: a node that became
consolidatable, deleted pods, a budget that opened, a node that was cordoned or uncordoned, other prices. New pods take
capacity and trigger nothing. Some things end by themselves: the expiry of a NodeClaim, the protection of a pod. And a
settled fleet is evaluated again after a while in any case.
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dovetail.controllers.context import Context
from dovetail.controllers.disruption import expiration
from dovetail.controllers.disruption.consolidation import RejectedConsolidation
from dovetail.controllers.disruption.types import Candidate
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS
from dovetail.model import wellknown
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.snapshot import Pool

#: Without any change, everything is evaluated again after so many seconds.
SETTLED_S = 900.0
#: Conditions whose every change, or whose becoming True, triggers a pass.
_EITHER_WAY, _WHEN_TRUE = ("Drifted", "DisruptionReason", "Rebooting"), ("Consolidatable", "Drifted")


class ConsolidationState:
    """`count` is the number of triggers; `woken` is set when one should not wait for the next period."""

    def __init__(self, context: Context) -> None:
        self.count = 0
        self.woken = asyncio.Event()
        self._context = context
        self._settled_at = -1
        self._until = 0.0
        self._offers: list[tuple[InstanceType, ...]] = []
        self._expiries = expiration.ExpiryDates(context.cluster_state)
        context.cluster_state.listen(PODS, self._pod)
        context.cluster_state.listen(NODES, self._node)
        context.cluster_state.listen(NODECLAIMS, self._claim)
        context.cluster_state.listen(NODEPOOLS, self._pool)
        context.cluster_state.listen(PDBS, self._budget)

    def passed(self, count: int, settled: bool, again: float) -> None:
        """A pass that began at that count is over, and whether it left nothing to do.

        The next is due at `again`, an instant of the loop's clock, or when a NodeClaim expires.
        """
        self._settled_at = count if settled else -1
        expiry = self.instant(self._expiries.first())
        self._until = min(again, self._context.clock.monotonic() + SETTLED_S, expiry)

    @property
    def none(self) -> bool:
        """Whether a pass would have the same result as the last one."""
        return self._settled_at == self.count and self._context.clock.monotonic() < self._until

    def left(self) -> float:
        """Seconds until something is due by itself."""
        left = self._until - self._context.clock.monotonic()
        return left if left > 0 else math.inf

    def offered(self, pools: Sequence[Pool]) -> None:
        """The offers of now: other offers than before trigger a pass."""
        offers = [pool.types for pool in pools]
        self.count += len(offers) != len(self._offers) or any(map(operator.is_not, offers, self._offers))
        self._offers = offers

    def instant(self, date: datetime | None) -> float:
        """A moment just after the date, on the loop's clock."""
        clock = self._context.clock
        return math.inf if date is None else clock.monotonic() + (date - clock.now()).total_seconds() + 0.001

    def expired(self) -> list[NodeClaim]:
        """NodeClaims past their expiry, oldest first."""
        return self._expiries.due(self._context.clock.now())

    # -- changes from the watches

    def _pod(self, change: CacheChange[Pod]) -> None:
        old, new = change.old, change.new
        if new is None:
            self.count += 1
        elif old is not None:
            left, resized = _is_ending(new) and not _is_ending(old), bool(old.spec.node_name) and old.spec != new.spec
            self.count += left or resized or _do_not_disrupt(old) != _do_not_disrupt(new)

    def _node(self, change: CacheChange[Node]) -> None:
        old, new = change.old, change.new
        mine = self._context.cluster_state.claim_for(change.object) is not None
        if old is None or (mine and old.metadata.labels.get(wellknown.INITIALIZED) != "true"):
            self.count += not mine  # a node of ours is being set up: its NodeClaim becomes Consolidatable later
        else:
            self.count += new is None or _state(new) != _state(old)

    def _claim(self, change: CacheChange[NodeClaim]) -> None:
        old, new = change.old, change.new
        if new is None:
            self.count += 1
            return
        if old is None:
            pool = self._context.cluster_state.pools.store.get(new.node_pool or "")
            self._until = min(self._until, self.instant(expiration.date(new, pool)))
        came = any(new.is_true(kind) and not (old and old.is_true(kind)) for kind in _WHEN_TRUE)
        self.count += came or any(new.is_true(kind) != bool(old and old.is_true(kind)) for kind in _EITHER_WAY)
        if came:
            self.woken.set()

    def _pool(self, change: CacheChange[NodePool]) -> None:
        old, new = change.old, change.new
        self.count += old is None or new is None or old.spec != new.spec

    def _budget(self, change: CacheChange[PodDisruptionBudget]) -> None:
        old, new = change.old, change.new
        if new is None or old is None or old.spec != new.spec:
            self.count += 1
        else:
            self.count += new.status.disruptions_allowed > 0 >= old.status.disruptions_allowed


def _state(node: Node) -> Any:
    """What of a node matters to other nodes."""
    return node.ready, node.spec, node.status.allocatable, _do_not_disrupt(node)


def _do_not_disrupt(thing: Pod | Node) -> str | None:
    return thing.metadata.annotations.get(wellknown.DO_NOT_DISRUPT)


def _is_ending(pod: Pod) -> bool:
    return pod.finished or pod.terminating


# Rejections of earlier passes: a node that did not change is not evaluated again for a while.
#
# Most passes over a fleet have the same results; evaluating again costs a plan for each node. A rejection is
# dropped when the node's pods or price change, when the offers change, and in any case after some minutes. So
# is a search for whole sets that found nothing, as long as the fleet has not become dearer against a fresh one.

REJECTION_TTL_S, SEARCH_TTL_S = 900.0, 3600.0
#: A fleet is dearer than it was once it costs this share of a fresh one more.
DEARER = 0.005
#: Rejections by a simulation or a policy; the others depend on the pass they were made in.
LASTING = frozenset({"NOT_CHEAPER", "PODS_WOULD_NOT_FIT", "SPOT_TO_SPOT_OFF", "SPOT_INFLEXIBLE", "NOT_BALANCED"})


class RejectionCache:
    def __init__(self) -> None:
        self._rejections: dict[str, tuple[Candidate, RejectedConsolidation, float]] = {}
        self._offers: tuple[object, ...] = ()
        self._vain: dict[bool, tuple[float, float]] = {}

    def still(
        self, candidates: Sequence[Candidate], pools: Sequence[Pool], now: float
    ) -> dict[str, RejectedConsolidation]:
        """The rejections that still hold."""
        offers = tuple(pool.types for pool in pools)
        if len(offers) != len(self._offers) or any(a is not b for a, b in zip(offers, self._offers, strict=True)):
            self._offers = offers
            self._rejections.clear()
            self._vain.clear()
        there = {candidate.node: candidate for candidate in candidates}
        self._rejections = {
            node: (candidate, why, until)
            for node, (candidate, why, until) in self._rejections.items()
            if until > now and there.get(node) == candidate
        }
        return {node: why for node, (_, why, _) in self._rejections.items()}

    def note(self, candidates: Sequence[Candidate], stays: Mapping[str, RejectedConsolidation], now: float) -> None:
        for candidate in candidates:
            why = stays.get(candidate.node)
            if why is not None and why.code in LASTING and candidate.node not in self._rejections:
                self._rejections[candidate.node] = (candidate, why, now + REJECTION_TTL_S)

    def searched(self, above: float, now: float, *, recent_pod_events: bool) -> None:
        """Whole sets were searched for in vain in a fleet that costs the share `above` more than a fresh one."""
        self._vain[recent_pod_events] = (above + DEARER, now + SEARCH_TTL_S)

    def vain(self, now: float, *, recent_pod_events: bool) -> float:
        """Up to which share above a fresh fleet a search for whole sets is pointless.

        What was not found while pods came and went may be found once nodes are consolidatable, but not vice versa.
        """
        searches = [search for moving, search in self._vain.items() if recent_pod_events or not moving]
        return max((share for share, until in searches if now < until), default=-math.inf)
