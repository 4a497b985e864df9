"""Occasions: when another pass over the fleet could come to another end than the last one.

A pass costs what the fleet is large, so it is made for what could let a machine go: one that became quiet, pods that
left, a budget that opened, a machine that was opened or closed, other prices. Who comes takes room and gives no
occasion. Some things end by themselves: the life of a machine, the protection of a pod. And a settled fleet is looked
at again after a while in any case.
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dovetail.cluster import keys
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import expiration
from dovetail.kube.reflector import Change
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS
from dovetail.model.instancetype import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.snapshot import Pool

#: Without any change, everything is looked at again after so many seconds.
SETTLED_FOR = 900.0
#: Conditions whose change, or whose coming, is an occasion.
_EITHER_WAY, _COMING = ("Drifted", "DisruptionReason", "Rebooting"), ("Consolidatable", "Drifted")


class Occasions:
    """`count` says how many there were; `woken` is set when one should not wait for the next round."""

    def __init__(self, context: Context) -> None:
        self.count = 0
        self.woken = asyncio.Event()
        self._context = context
        self._settled_at = -1
        self._until = 0.0
        self._offers: list[tuple[InstanceType, ...]] = []
        self._expiries = expiration.Expiries(context.mirror)
        context.mirror.listen(PODS, self._pod)
        context.mirror.listen(NODES, self._node)
        context.mirror.listen(NODECLAIMS, self._claim)
        context.mirror.listen(NODEPOOLS, self._pool)
        context.mirror.listen(PDBS, self._budget)

    def passed(self, count: int, settled: bool, again: float) -> None:
        """A pass that began at that count is over, and whether it left nothing to do.

        The next is due at `again`, an instant of the loop's clock, or when a machine expires.
        """
        self._settled_at = count if settled else -1
        expiry = self.instant(self._expiries.first())
        self._until = min(again, self._context.clock.monotonic() + SETTLED_FOR, expiry)

    @property
    def none(self) -> bool:
        """Whether a pass would come to the same end as the last one."""
        return self._settled_at == self.count and self._context.clock.monotonic() < self._until

    def left(self) -> float:
        """Seconds until something is due by itself."""
        left = self._until - self._context.clock.monotonic()
        return left if left > 0 else math.inf

    def sold(self, pools: Sequence[Pool]) -> None:
        """What is for sale now: other offers than before are an occasion."""
        offers = [pool.types for pool in pools]
        self.count += len(offers) != len(self._offers) or any(map(operator.is_not, offers, self._offers))
        self._offers = offers

    def instant(self, date: datetime | None) -> float:
        """A moment just after the date, on the loop's clock."""
        clock = self._context.clock
        return math.inf if date is None else clock.monotonic() + (date - clock.now()).total_seconds() + 0.001

    def expired(self) -> list[NodeClaim]:
        """Claims past their date, oldest date first."""
        return self._expiries.due(self._context.clock.now())

    # -- what the watches say

    def _pod(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if new is None:
            self.count += 1
        elif old is not None:
            left, resized = _ends(new) and not _ends(old), bool(old.spec.node_name) and old.spec != new.spec
            self.count += left or resized or _guarded(old) != _guarded(new)

    def _node(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        mine = self._context.mirror.claim_for(change.object) is not None
        if old is None or (mine and old.metadata.labels.get(keys.INITIALIZED) != "true"):
            self.count += not mine  # a machine of ours is being set up: the claim tells when it is quiet
        else:
            self.count += new is None or _state(new) != _state(old)

    def _claim(self, change: Change[NodeClaim]) -> None:
        old, new = change.old, change.new
        if new is None:
            self.count += 1
            return
        if old is None:
            pool = self._context.mirror.pools.store.get(new.node_pool or "")
            self._until = min(self._until, self.instant(expiration.date(new, pool)))
        came = any(new.is_true(kind) and not (old and old.is_true(kind)) for kind in _COMING)
        self.count += came or any(new.is_true(kind) != bool(old and old.is_true(kind)) for kind in _EITHER_WAY)
        if came:
            self.woken.set()

    def _pool(self, change: Change[NodePool]) -> None:
        old, new = change.old, change.new
        self.count += old is None or new is None or old.spec != new.spec

    def _budget(self, change: Change[PodDisruptionBudget]) -> None:
        old, new = change.old, change.new
        if new is None or old is None or old.spec != new.spec:
            self.count += 1
        else:
            self.count += new.status.disruptions_allowed > 0 >= old.status.disruptions_allowed


def _state(node: Node) -> Any:
    """What of a machine matters to others."""
    return node.ready, node.spec, node.status.allocatable, _guarded(node)


def _guarded(thing: Pod | Node) -> str | None:
    return thing.metadata.annotations.get(keys.DO_NOT_DISRUPT)


def _ends(pod: Pod) -> bool:
    return pod.finished or pod.terminating
