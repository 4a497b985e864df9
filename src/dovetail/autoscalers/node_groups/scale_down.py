"""The scale-down plan: which nodes are unneeded, since when, and which of them may go now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.autoscalers.node_groups.annotations import DELETION_CANDIDATE, SCALE_DOWN_DISABLED, taint_time
from dovetail.autoscalers.node_groups.drain import DrainContext, DrainRules, is_empty
from dovetail.autoscalers.node_groups.eligibility import EligibilityRules, GroupOf, eligible
from dovetail.autoscalers.node_groups.quotas import Quotas
from dovetail.autoscalers.node_groups.removal import Removable, simulate_removal
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.autoscalers.node_groups.unremovable import Unremovable, UnremovableNodes, UnremovableReason
from dovetail.autoscalers.node_groups.utilization import Utilization
from dovetail.clock import stopwatch
from dovetail.cloud.node_groups import NodeGroup
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Node


class ScaleDownSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the flags say about shrinking."""

    unneeded_s: float = 600.0
    max_parallelism: int = 10
    simulation_timeout_s: float = 30.0
    unremovable_recheck_s: float = 300.0
    eligibility: EligibilityRules = EligibilityRules()
    drain: DrainRules = DrainRules()


class Unneeded(msgspec.Struct, frozen=True):
    """A node that could go, and since when."""

    removable: Removable
    since: datetime


class ScaleDownDecision(msgspec.Struct, frozen=True):
    """Nodes that may be deleted now, the riskless first, and why other unneeded nodes may not."""

    empty: tuple[Removable, ...] = ()
    drain: tuple[Removable, ...] = ()
    unremovable: tuple[Unremovable, ...] = ()


class ScaleDownPlanner:
    """Remembers from loop to loop what is unneeded and what was unremovable."""

    def __init__(self, settings: ScaleDownSettings, *, timer: Callable[[], float] = stopwatch) -> None:
        self.settings = settings
        self.unneeded: dict[str, Unneeded] = {}
        self.unremovable = UnremovableNodes()
        self.utilization: Mapping[str, Utilization] = {}
        self._hints: dict[str, str] = {}
        self._timer = timer
        #: When unneeded nodes were last worked out.
        self.last_update: datetime | None = None
        self._loop_interval: timedelta | None = None

    def load_candidates(self, nodes: Iterable[Node], now: datetime, life_s: float) -> None:
        """Take over what a program before this one had found, from the taints that it left."""
        for node in nodes:
            since = taint_time(node, DELETION_CANDIDATE)
            if since is not None and since + timedelta(seconds=life_s) >= now:
                self.unneeded[node.metadata.name] = Unneeded(Removable(node.metadata.name), since)

    def clear(self) -> None:
        """Forget what is unneeded: the cluster is not well."""
        self.unneeded = {}

    def in_order(self, candidates: Iterable[str], snapshot: ClusterSnapshot, now: datetime) -> list[str]:
        """Empty nodes first, since nothing has to move for them; then those unneeded before, whose time goes on."""

        def rank(name: str) -> tuple[bool, bool]:
            info = snapshot.nodes.get(name)
            pods = [placed.pod for placed in info.pods.values()] if info is not None else []
            return not is_empty(pods, self.settings.drain, now), name not in self.unneeded

        return sorted(candidates, key=rank)

    def update(
        self,
        snapshot: ClusterSnapshot,
        candidates: Sequence[str],
        destinations: Iterable[str],
        group_of: GroupOf,
        context: DrainContext,
        is_ready: Callable[[Node], bool],
    ) -> None:
        """Work out anew which of the candidates are unneeded. The snapshot is changed only for the time being."""
        now = context.now
        self._measure_interval(now)
        self.unremovable.update(snapshot.nodes, now)
        infos = [snapshot.nodes[name] for name in candidates if name in snapshot.nodes]
        eligibility = eligible(infos, group_of, self.settings.eligibility, self.unremovable, is_ready, now)
        for unremovable in eligibility.ineligible:
            self.unremovable.add(unremovable)
        self.utilization = eligibility.utilization
        snapshot.fork()
        try:
            self._simulate(snapshot, eligibility.nodes, set(destinations), group_of, context)
        finally:
            snapshot.revert()

    def _simulate(
        self,
        snapshot: ClusterSnapshot,
        names: Sequence[str],
        destinations: set[str],
        group_of: GroupOf,
        context: DrainContext,
    ) -> None:
        now = context.now
        until = now + timedelta(seconds=self.settings.unremovable_recheck_s)
        started = self._timer()
        limit = self.unneeded_limit()
        removable: list[Removable] = []
        single = 0
        hints: dict[str, str] = {}

        def is_destination(info: NodeInfo) -> bool:
            return info.name in destinations

        for name in names:
            if self._timer() - started > self.settings.simulation_timeout_s:
                break
            group = group_of(snapshot.nodes[name].node)
            whole = group is not None and group.options.zero_or_max
            if single >= limit and not whole:
                continue
            outcome = simulate_removal(name, snapshot, is_destination, self.settings.drain, context, self._hints)
            if isinstance(outcome, Unremovable):
                self.unremovable.add_until(outcome, until)
                continue
            _, at_once, _ = context.budgets.can_remove(outcome.pods)
            context.budgets.remove(outcome.pods)
            destinations.discard(name)
            hints.update(outcome.destinations)
            removable.append(msgspec.structs.replace(outcome, risky=not at_once))
            single += not whole
        self._hints = hints
        self.unneeded = {
            outcome.node: Unneeded(outcome, self.unneeded[outcome.node].since if outcome.node in self.unneeded else now)
            for outcome in removable
        }

    def unneeded_limit(self) -> int:
        """More unneeded nodes than deletions can keep up with are not looked for."""
        parallelism = self.settings.max_parallelism
        limit = len(self.unneeded) + 2 * parallelism
        if self._loop_interval is None:
            return limit
        interval = self._loop_interval.total_seconds()
        loops = int(max(self.settings.unneeded_s, interval) // interval) if interval > 0 else 1
        return min(limit, parallelism * loops + parallelism)

    def _measure_interval(self, now: datetime) -> None:
        if self.last_update is not None and now > self.last_update:
            interval = now - self.last_update
            self._loop_interval = interval if self._loop_interval is None else min(self._loop_interval, interval)
        self.last_update = now

    def removable_now(
        self,
        snapshot: ClusterSnapshot,
        group_of: GroupOf,
        quotas: Quotas,
        deletions_of: Mapping[str, int],
        is_ready: Callable[[Node], bool],
        now: datetime,
    ) -> ScaleDownDecision:
        """Which unneeded nodes may go: unneeded for long enough, above the group's minimum, within the quotas."""
        sizes: dict[str, int] = {}
        empty: list[Removable] = []
        drain: list[Removable] = []
        staying: list[Unremovable] = []
        ordered = sorted(self.unneeded.values(), key=lambda entry: bool(entry.removable.pods))
        for entry in ordered:
            reason = self._stays(entry, snapshot, group_of, quotas, deletions_of, sizes, is_ready, now)
            if reason is None:
                (drain if entry.removable.pods else empty).append(entry.removable)
            else:
                staying.append(Unremovable(entry.removable.node, reason))
        drain.sort(key=lambda removable: removable.risky)
        empty, drain, broken = _whole_groups_only(empty, drain, snapshot, group_of)
        staying += [Unremovable(removable.node, UnremovableReason.ATOMIC_FAILED) for removable in broken]
        waiting = [removable for removable in (*empty, *drain) if removable.on_completion]
        staying += [
            Unremovable(removable.node, UnremovableReason.BLOCKED_BY_ON_COMPLETION_POD) for removable in waiting
        ]
        for unremovable in staying:
            self.unremovable.add(unremovable)
        return ScaleDownDecision(
            tuple(removable for removable in empty if not removable.on_completion),
            tuple(removable for removable in drain if not removable.on_completion),
            tuple(staying),
        )

    def _stays(
        self,
        entry: Unneeded,
        snapshot: ClusterSnapshot,
        group_of: GroupOf,
        quotas: Quotas,
        deletions_of: Mapping[str, int],
        sizes: dict[str, int],
        is_ready: Callable[[Node], bool],
        now: datetime,
    ) -> UnremovableReason | None:
        info = snapshot.nodes.get(entry.removable.node)
        if info is None:
            return UnremovableReason.NO_NODE_INFO
        node = info.node
        if node.metadata.annotations.get(SCALE_DOWN_DISABLED) == "true":
            return UnremovableReason.SCALE_DOWN_DISABLED
        group = group_of(node)
        if group is None:
            return UnremovableReason.NOT_AUTOSCALED
        ready = is_ready(node)
        wait = group.options.scale_down_unneeded_s if ready else group.options.scale_down_unready_s
        if not entry.since + timedelta(seconds=wait) < now and wait > 0:
            return UnremovableReason.NOT_UNNEEDED_LONG_ENOUGH if ready else UnremovableReason.NOT_UNREADY_LONG_ENOUGH
        size = sizes.setdefault(group.id, group.target_size)
        if size - deletions_of.get(group.id, 0) <= group.min_size:
            return UnremovableReason.MIN_SIZE_REACHED
        if quotas.release(node):
            return UnremovableReason.MINIMAL_LIMIT_EXCEEDED
        sizes[group.id] = size - 1
        return None


def _whole_groups_only(
    empty: list[Removable], drain: list[Removable], snapshot: ClusterSnapshot, group_of: GroupOf
) -> tuple[list[Removable], list[Removable], list[Removable]]:
    """Groups that go whole or not at all: of those, nodes without all their siblings in the cluster stay."""
    counts: dict[str, int] = {}
    groups: dict[str, NodeGroup] = {}
    for removable in (*empty, *drain):
        group = group_of(snapshot.nodes[removable.node].node)
        if group is not None and group.options.zero_or_max:
            counts[group.id] = counts.get(group.id, 0) + 1
            groups[removable.node] = group
    if not groups:
        return empty, drain, []
    registered: dict[str, int] = {}
    for info in snapshot.nodes.values():
        sibling = group_of(info.node)
        if sibling is not None:
            registered[sibling.id] = registered.get(sibling.id, 0) + 1
    broken = [
        removable
        for removable in (*empty, *drain)
        if removable.node in groups and counts[groups[removable.node].id] < registered[groups[removable.node].id]
    ]
    names = {removable.node for removable in broken}
    return (
        [removable for removable in empty if removable.node not in names],
        [removable for removable in drain if removable.node not in names],
        broken,
    )
