"""Candidates: machines that may be disrupted now, and for all the others every reason why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.cluster import keys
from dovetail.cluster.mirror import Mirror
from dovetail.cluster.reservations import Target
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import blockers, costs
from dovetail.controllers.disruption.blockers import Blocker
from dovetail.controllers.disruption.commands import Candidate, Reason
from dovetail.controllers.provisioning.pending import reschedulable, returning
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.planner.snapshot import Pool


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """All machines at one instant: those that may go, and why the others may not."""

    candidates: tuple[Candidate, ...]
    blocked: Mapping[str, tuple[Blocker, ...]]

    @property
    def until(self) -> datetime | None:
        """When the first of the blockers goes away by itself."""
        return min((each.until for why in self.blocked.values() for each in why if each.until), default=None)


def survey(context: Context, pools: Sequence[Pool], *, waive_pods: bool = False) -> Field:
    """Look at every managed machine. `waive_pods`: pods do not block a machine whose end has a date anyway."""
    context.mirror.expire()
    known, now = prices(pools), context.clock.now()
    found, blocked = [], {}
    for claim in context.mirror.claims.store.all():
        node = context.mirror.node_for(claim)
        if node is None:
            continue
        why = blocking(context, node, claim, now, waive_pods=waive_pods)
        if why:
            blocked[node.metadata.name] = tuple(why)
        else:
            found.append(candidate(context, node, claim, known))
    return Field(candidates=tuple(found), blocked=blocked)


def blocking(
    context: Context, node: Node, claim: NodeClaim, now: datetime, *, waive_pods: bool = False
) -> list[Blocker]:
    """Everything that keeps one machine where it is."""
    mirror = context.mirror
    name = node.metadata.name
    promised = any(mirror.reservations.on(Target("node", name))) or any(
        mirror.reservations.on(Target("claim", claim.name))
    )
    why = blockers.of_machine(node, claim, going=mirror.going(claim, node), nominated=promised)
    if waive_pods and claim.spec.termination_grace_period is not None:
        return why
    return why + blockers.of_pods(mirror.pods_on(name), mirror.guards, now)


def candidate(
    context: Context, node: Node, claim: NodeClaim, known: Mapping[tuple[str, str, str], float | None], *,
    guarded: bool = False,
) -> Candidate:  # fmt: skip
    """A machine as a candidate. `guarded`: pods that nobody may ask to leave count as well."""
    labels = node.metadata.labels
    where = (labels.get(keys.INSTANCE_TYPE, ""), labels.get(keys.ZONE, ""), labels.get(keys.CAPACITY_TYPE, ""))
    pods = movable(context, node.metadata.name, guarded=guarded)
    return Candidate(
        node=node.metadata.name,
        claim=claim.name,
        provider_id=claim.status.provider_id,
        pool=claim.node_pool or "",
        instance_type=where[0],
        zone=where[1],
        capacity_type=where[2],
        price=known.get(where),
        cost=costs.machine(pods, managed=context.settings.gate("PodDeletionCostManagement")),
        pods=tuple(pod.metadata.key for pod in pods),
    )


def movable(context: Context, node: str, *, guarded: bool = False) -> list[Pod]:
    """Pods that will come back elsewhere once the machine goes."""
    if guarded:
        return [pod for pod in context.mirror.pods_on(node) if returning(pod)]
    return [pod for pod in context.mirror.pods_on(node) if reschedulable(pod, context.mirror.guards)]


def prices(pools: Sequence[Pool]) -> dict[tuple[str, str, str], float | None]:
    """What each offering costs now, whether or not it can be had."""
    return {
        (kind.name, offering.zone, offering.capacity_type): offering.price
        for pool in pools
        for kind in pool.types
        for offering in kind.offerings
    }


def total(mirror: Mirror, pool: NodePool, reason: str) -> tuple[int, int]:
    """(machines of a pool that count for its budgets, how many of them already use a budget up).

    A machine that is not ready uses it up for every reason but its own ill health.
    """
    counted = consuming = 0
    for claim in mirror.claims_of(pool.name):
        node, rebooting = mirror.node_for(claim), claim.is_true("Rebooting")
        if node is None or claim.is_true("InstanceTerminating") or not (rebooting or claim.is_true("Initialized")):
            continue
        counted += 1
        away = not node.ready and reason != Reason.UNHEALTHY
        consuming += away or rebooting or mirror.going(claim, node) or claim.is_true("DisruptionReason")
    return counted, consuming
