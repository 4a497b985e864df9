"""Drift: a NodeClaim that no longer matches its NodePool and its NodeClass.

What we compare ourselves (hashes, labels) is evidence at once. What a cloud reports (images, networks, types)
must be reported twice, some time apart, before a node is replaced for it: an empty or partial answer has
taken down whole fleets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dovetail.cluster.indexes import DRIFTED, STAGE
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.candidates import blocking, candidate_of, prices
from dovetail.controllers.disruption.replacement import ReplacementRefused, stage
from dovetail.controllers.disruption.types import Candidate, Command, CommandQueue, DisruptionReason
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds import nodepool_hash
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.nodes import Node
from dovetail.model.requirements import Requirements
from dovetail.planner.snapshot import Pool

POOL, REQUIREMENTS, TYPE_GONE = "NodePoolDrifted", "RequirementsDrifted", "InstanceTypeNotFound"

#: Seconds between the two reports of a cloud.
CONFIRM_AFTER_S = 60.0
#: A type that cannot be found drifts no NodeClaim younger than this.
MIN_AGE_WITHOUT_TYPE = timedelta(hours=1)


def static(claim: NodeClaim, pool: NodePool) -> str | None:
    """What follows from the objects alone."""
    mine, its = claim.metadata.annotations, pool.metadata.annotations
    keys = (nodepool_hash.HASH_ANNOTATION, nodepool_hash.VERSION_ANNOTATION)
    if all(key in side for key in keys for side in (mine, its)):
        same_version = mine[nodepool_hash.VERSION_ANNOTATION] == its[nodepool_hash.VERSION_ANNOTATION]
        if same_version and mine[nodepool_hash.HASH_ANNOTATION] != its[nodepool_hash.HASH_ANNOTATION]:
            return POOL
    requirements = Requirements.of_entries(pool.spec.template.spec.requirements)
    labels = claim.metadata.labels
    has = Requirements.of_labels({key: labels[key] for key in requirements if key in labels})
    return None if has.compatible(requirements) else REQUIREMENTS


def type_gone(claim: NodeClaim, types: Mapping[str, InstanceType]) -> str | None:
    """Whether a complete list no longer has the NodeClaim's type, zone and capacity type."""
    labels = claim.metadata.labels
    if not types or INSTANCE_TYPE not in labels:
        return None
    drifted = types.get(labels[INSTANCE_TYPE])
    if drifted is None:
        return TYPE_GONE
    kinds = (
        {labels.get(CAPACITY_TYPE), "on-demand"}
        if labels.get(CAPACITY_TYPE) == "reserved"
        else {labels.get(CAPACITY_TYPE)}
    )
    if not any(o.zone == labels.get(ZONE) and o.capacity_type in kinds for o in drifted.offerings):
        return TYPE_GONE
    return None


# Replacing drifted nodes: each by its own command, oldest drift first, as many as the budgets allow.


class DriftMethod:
    """`waiting` says whether the last pass left a drifted node for the next one."""

    def __init__(self, context: Context, queue: CommandQueue) -> None:
        self._context = context
        self._queue = queue
        self.waiting = False

    async def once(self, pools: Sequence[Pool]) -> bool:
        """Whether a command was started."""
        drifted = self._drifted(pools)
        self.waiting = False
        self._context.metrics.disruption_eligible.labels("drifted").set(len(drifted))
        if not drifted:
            return False
        allowed = RemainingBudgets.now(self._context, DisruptionReason.DRIFTED)
        acted = False
        for candidate in drifted:
            if not allowed.fits((candidate,)):
                self.waiting = True
            elif await self._replace(candidate, pools):
                allowed.take((candidate,))
                acted = True
        return acted

    def _drifted(self, pools: Sequence[Pool]) -> list[Candidate]:
        """Drifted nodes that may be disrupted: those without pods first, then by the age of their drift.

        Pods do not block a node with a terminationGracePeriod.
        """
        context = self._context
        now = context.clock.now()
        unblocked: list[tuple[NodeClaim, Node, datetime]] = []
        for claim in context.cluster_state.claims.store.by(STAGE, DRIFTED):
            marked = claim.condition("Drifted")
            if marked is None or marked.last_transition_time is None:
                continue
            node = context.cluster_state.node_for(claim)
            if node is not None and not blocking(context, node, claim, now, waive_pods=True):
                unblocked.append((claim, node, marked.last_transition_time))
        if not unblocked:
            return []
        drifted: list[tuple[bool, datetime, str, Candidate]] = []
        prices_by_offering = prices(pools)
        for claim, node, since in unblocked:
            candidate = candidate_of(context, node, claim, prices_by_offering)
            drifted.append((bool(candidate.pods), since, candidate.node, candidate))
        return [candidate for *_, candidate in sorted(drifted, key=lambda entry: entry[:3])]

    async def _replace(self, candidate: Candidate, pools: Sequence[Pool]) -> bool:
        context = self._context
        staged = await stage(context, pools, candidate, terminate_first=context.settings.gate("TerminateFirstDrift"))
        if isinstance(staged, ReplacementRefused):
            self.waiting |= not staged.why
            if staged.why:
                cluster_state = context.cluster_state
                node, claim = (
                    cluster_state.nodes.store.get(candidate.node),
                    cluster_state.claims.store.get(candidate.claim),
                )
                context.event_publisher.blocked(node, claim, staged.why)
            return False
        claim = context.cluster_state.claims.store.get(candidate.claim)
        marked = claim.condition("Drifted") if claim is not None else None
        command = Command(
            id=context.decision_history.new_id(),
            reason=DisruptionReason.DRIFTED,
            candidates=(candidate,),
            drift=marked.reason if marked is not None else "",
            terminate_first=staged.terminate_first,
        )
        begun = await self._queue.start(command, staged.plan, staged.copy)
        self.waiting |= not begun
        return begun
