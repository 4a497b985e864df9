"""Candidates: machines that may be disrupted now, and how many there are that budgets count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from dovetail.cluster import keys
from dovetail.cluster.mirror import Mirror
from dovetail.cluster.reservations import Target
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import blockers, costs
from dovetail.controllers.disruption.blockers import Blocker
from dovetail.controllers.disruption.commands import Candidate, Reason
from dovetail.controllers.provisioning.pending import reschedulable
from dovetail.controllers.returning import returning
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.planner.snapshot import Pool

#: What a price is known by: type, zone and capacity type.
Offered = tuple[str, str, str]
#: Conditions of a machine that counts for budgets, and of one that uses a budget up.
_COUNTED, _CONSUMING = frozenset({"Rebooting", "Initialized"}), frozenset({"Rebooting", "DisruptionReason"})


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
    if waive_pods and claim.spec.grace is not None:
        return why
    return why + blockers.of_pods(mirror.pods_on(name), mirror.guards, now)


def candidate(
    context: Context, node: Node, claim: NodeClaim, known: Mapping[Offered, float | None], *,
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


def prices(pools: Sequence[Pool]) -> dict[Offered, float | None]:
    """What each offering costs now, whether or not it can be had."""
    return {
        (kind.name, offering.zone, offering.capacity_type): offering.price
        for pool in pools
        for kind in pool.types
        for offering in kind.offerings
    }


def weight(mirror: Mirror, node: Node, claim: NodeClaim, reason: str) -> tuple[int, int]:
    """(whether a machine counts for the budgets of its pool, whether it already uses them up).

    A machine that is not ready uses them up for every reason but its own ill health.
    """
    true = {each.type for each in claim.status.conditions if each.status == "True"}
    if "InstanceTerminating" in true or true.isdisjoint(_COUNTED):
        return 0, 0
    away = not node.ready and reason != Reason.UNHEALTHY
    return 1, int(away or not true.isdisjoint(_CONSUMING) or mirror.going(claim, node))


def totals(mirror: Mirror, reason: str) -> dict[str, tuple[int, int]]:
    """What the machines of each pool weigh together."""
    found: dict[str, tuple[int, int]] = {}
    for claim in mirror.claims.store.all():
        node = mirror.node_for(claim)
        if node is not None:
            add(found, claim.node_pool or "", weight(mirror, node, claim, reason))
    return found


def add(totals: dict[str, tuple[int, int]], pool: str, one: tuple[int, int]) -> None:
    counted, consuming = totals.get(pool, (0, 0))
    totals[pool] = (counted + one[0], consuming + one[1])
