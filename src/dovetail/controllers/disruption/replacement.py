"""How a node is replaced: by new nodes for its pods, by one of the same NodePool, or, where a gate allows it, after it.

A node of a dynamic NodePool is replaced by what its pods need now, one of a static NodePool by one more of the pool.
A full capacity reservation, or a static NodePool at its limit, has no capacity for a replacement; with a
terminate-first gate the old node is terminated first and frees it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.cloud.provider import CloudError, LaunchOption
from dovetail.cluster import nodepools as cluster_pools
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.simulation import Simulation
from dovetail.controllers.disruption.types import Candidate, Copy
from dovetail.controllers.nodeclaim.offerings import cheapest, compatible, launchable
from dovetail.controllers.nodepool.static import remaining_nodes
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.labels import RESERVATION
from dovetail.model.requirements import Requirements
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Pool

RESERVED, AT_LIMIT = "no-reserved-capacity", "static-at-limit"
_REASONS = {
    RESERVED: "static NodePool's capacity reservations are full and cannot stage a replacement",
    AT_LIMIT: "static NodePool is at its node limit and cannot stage a replacement",
}


class ReplacementOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is replaced. `terminate_first` is why it is terminated before its replacement, if it is."""

    plan: Plan | None = None
    copy: Copy | None = None
    terminate_first: str = ""


class ReplacementRefused(msgspec.Struct, frozen=True):
    """Why a node cannot be replaced now. Without a text it is only a matter of time."""

    why: str = ""


async def stage(
    context: Context, pools: Sequence[Pool], candidate: Candidate, *, terminate_first: bool
) -> ReplacementOrder | ReplacementRefused:
    pool = context.cluster_state.pools.store.get(candidate.pool)
    if pool is not None and pool.static:
        return await _copied(context, pool, candidate, terminate_first=terminate_first)
    if not candidate.pods:
        return ReplacementOrder()
    simulation = Simulation(context, pools)
    plan = simulation.without((candidate,))
    if plan is not None:
        return ReplacementOrder(plan=plan)
    reservation = _reservation(context, candidate)
    credited = simulation.without((candidate,), credit=reservation) if terminate_first and reservation else None
    if credited is None or len(credited.nodes) > 1:
        return ReplacementRefused("not all pods would schedule")
    return ReplacementOrder(plan=msgspec.structs.replace(credited, nodes=()), terminate_first=RESERVED)


async def _copied(
    context: Context, pool: NodePool, candidate: Candidate, *, terminate_first: bool
) -> ReplacementOrder | ReplacementRefused:
    cluster_state = context.cluster_state
    standing = sum(
        not cluster_state.is_terminating(claim, cluster_state.node_for(claim))
        for claim in cluster_state.claims_of(pool.name)
    )
    replicas = pool.spec.replicas or 0
    if standing > replicas or (standing < replicas and remaining_nodes(cluster_state, pool) > 0):
        return ReplacementRefused()  # until the static controller has scaled it to its replicas
    offered = await _offered(context, pool)
    if terminate_first and offered is None:
        return ReplacementRefused()
    full, reservations = _reservations(offered or ()) if terminate_first else (False, set())
    if full and _reservation(context, candidate) not in reservations:
        return ReplacementRefused(_REASONS[RESERVED])
    if not full and remaining_nodes(cluster_state, pool) > 0:
        return ReplacementOrder(copy=Copy(pool, cheapest(offered or ())))
    why = RESERVED if full else AT_LIMIT
    refilled = cluster_pools.ready(pool) and pool.metadata.deletion_timestamp is None
    return ReplacementOrder(terminate_first=why) if terminate_first and refilled else ReplacementRefused(_REASONS[why])


async def _offered(context: Context, pool: NodePool) -> tuple[LaunchOption, ...] | None:
    """All offerings of a NodePool's nodes, available or not; None if they are not known now."""
    requirements = Requirements.of_entries(pool.spec.template.spec.requirements)
    try:
        return tuple(compatible(requirements, cluster_pools.labels(pool), await context.instance_types.types(pool)))
    except CloudError as problem:
        context.log.error("offerings not known", NodePool=logs.ref(pool.name), error=problem.message)
        return None


def _reservations(offered: Sequence[LaunchOption]) -> tuple[bool, set[str]]:
    """Whether only full reservations are on offer, and which of them still exist."""
    offerings = [option.offering for option in offered]
    full = bool(offerings) and all(
        offering.reservation_id is not None and not launchable(offering) for offering in offerings
    )
    return full, {
        offering.reservation_id for offering in offerings if offering.reservation_id is not None and offering.available
    }


def _reservation(context: Context, candidate: Candidate) -> str:
    """The capacity reservation that a node uses."""
    node = context.cluster_state.nodes.store.get(candidate.node)
    reserved = node is not None and candidate.capacity_type == "reserved"
    return node.metadata.labels.get(RESERVATION, "") if node is not None and reserved else ""
