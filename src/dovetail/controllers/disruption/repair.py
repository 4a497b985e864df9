"""Repair: a node that has been unhealthy for too long is replaced or rebooted, within its NodePool's budgets.

The replacement comes first, as for every other reason, and the drain is bounded by the repair policy. When
more than a fifth of a NodePool is unhealthy the cause is not the nodes, and repairing them would make it worse. The
gate NodeRepair enables it; `--legacy-node-repair` puts the older controller in its place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from dovetail.cloud.provider import RepairAction
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.candidates import blocking, candidate_of, prices
from dovetail.controllers.disruption.repair_policies import Diagnosis, RepairPolicies
from dovetail.controllers.disruption.replacement import ReplacementRefused, stage
from dovetail.controllers.disruption.types import Candidate, Command, CommandQueue, DisruptionReason
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.node import reboot
from dovetail.controllers.nodeclaim.deletion import termination_mode
from dovetail.language import source
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node
from dovetail.planner.snapshot import Pool

UNHEALTHY_SHARE = 0.2
#: A condition that has lasted for so long is recorded; nodes are not ready for a moment when they join.
RECORDED_AFTER = timedelta(minutes=1)
#: Blockers that do not block a repair: it also covers nodes that never initialized and do-not-disrupt nodes.
WAIVED = frozenset({"DO_NOT_DISRUPT_NODE", "NOT_INITIALIZED"})


class UnhealthyNode(NamedTuple):
    """A node that is to be repaired now."""

    node: Node
    claim: NodeClaim
    diagnosis: Diagnosis
    escalated: bool

    @property
    def bound(self) -> float | None:
        """Seconds for the drain: the shorter of the policy's and the NodeClaim's; None leaves it to the NodeClaim."""
        grace, policy = self.claim.spec.grace, self.diagnosis.grace
        if policy is None or grace is None:
            return policy
        return min(policy, grace.total_seconds())


class Repair:
    """Does nothing unless the gate is open. Invalid policies stop the start."""

    def __init__(self, context: Context, queue: CommandQueue) -> None:
        self._context = context
        self._queue = queue
        settings = context.settings
        open_ = settings.gate("NodeRepair") and not settings.legacy_node_repair
        self._policies = RepairPolicies(context.cloud.repair_policies()) if open_ else None
        #: What was last recorded about each unhealthy NodeClaim.
        self._recorded: dict[str, str] = {}

    def due(self) -> bool:
        """Whether a node is due for repair."""
        return bool(self._unhealthy_nodes())

    async def once(self, pools: Sequence[Pool]) -> bool:
        """One repair at most; whether it was started."""
        due_nodes = [unhealthy for unhealthy in self._unhealthy_nodes() if self._is_unblocked(unhealthy)]
        self._context.metrics.disruption_eligible.labels("unhealthy").set(len(due_nodes))
        if not due_nodes:
            return False
        prices_by_offering, allowed, tripped = (
            prices(pools),
            RemainingBudgets.now(self._context, DisruptionReason.UNHEALTHY),
            self._tripped(),
        )
        ranked = [
            (unhealthy, candidate_of(self._context, unhealthy.node, unhealthy.claim, prices_by_offering, guarded=True))
            for unhealthy in due_nodes
        ]
        for unhealthy_node, candidate in sorted(
            ranked, key=lambda row: (-row[0].diagnosis.score, row[1].cost, row[1].node)
        ):
            if candidate.pool in tripped:
                self._publish_many_unhealthy(unhealthy_node)
            elif unhealthy_node.claim.is_true("Initialized") and not allowed.fits((candidate,)):
                self._write(unhealthy_node, "the disruption budget of its NodePool for Unhealthy allows no more")
            elif await self._repair(unhealthy_node, candidate, pools):
                return True
        return False

    # -- unhealthy nodes

    def _unhealthy_nodes(self) -> list[UnhealthyNode]:
        if self._policies is None:
            return []
        context, unhealthy = self._context, []
        now, busy, before, self._recorded = context.clock.now(), self._queue.busy(), self._recorded, {}
        for claim in context.cluster_state.claims.store.all():
            node = context.cluster_state.node_for(claim)
            if node is None or claim.name in busy or not self._policies.is_unhealthy(node):
                continue
            if context.cluster_state.is_terminating(claim, node) or claim.is_true("Rebooting"):
                continue
            diagnosis = self._policies.due_repair(node, claim, now)
            if diagnosis is None:
                continue
            if claim.metadata.uid in before:
                self._recorded[claim.metadata.uid] = before[claim.metadata.uid]
            exhausted = diagnosis.action is RepairAction.REBOOT and reboot.exhausted(claim, now)
            unhealthy_node = UnhealthyNode(node, claim, diagnosis, exhausted)
            if diagnosis.due <= now:
                unhealthy.append(unhealthy_node)
            elif diagnosis.since <= now - RECORDED_AFTER:
                self._write(unhealthy_node)
        return unhealthy

    def _is_unblocked(self, unhealthy_node: UnhealthyNode) -> bool:
        """Whether nothing blocks the repair; a blocker is published."""
        why = self._blocker(unhealthy_node)
        if why is not None:
            self._context.event_publisher.blocked(unhealthy_node.node, unhealthy_node.claim, why)
            self._write(unhealthy_node, why)
        return why is None

    def _write(self, unhealthy_node: UnhealthyNode, waits_for: str = "") -> None:
        """Record when a node will be repaired, or what its repair waits for; once each time it changes."""
        decision_history, uid = self._context.decision_history, unhealthy_node.claim.metadata.uid
        text = unhealthy_node.diagnosis.forecast + (f", waits: {waits_for}" if waits_for else "")
        if self._recorded.get(uid) == text:
            return
        self._recorded[uid] = text
        decision_history.record(
            Decision(
                id=decision_history.new_id(),
                kind="unhealthy",
                time=decision_history.now(),
                summary=text,
                reason=unhealthy_node.diagnosis.condition,
                subject=unhealthy_node.node.metadata.name,
                about=(unhealthy_node.claim.name, unhealthy_node.claim.node_pool or ""),
                detail={"status": unhealthy_node.diagnosis.status},
            )
        )

    def _blocker(self, unhealthy_node: UnhealthyNode) -> str | None:
        node, claim = unhealthy_node.node, unhealthy_node.claim
        if wellknown.NODEPOOL not in node.metadata.labels:
            return source("repair requires a NodePool to construct and budget a safe replacement")
        if (claim.node_pool or "") not in self._context.cluster_state.pools.store:
            return source("NodePool not found (NodePool={pool})").format(pool=claim.node_pool)
        why = blocking(self._context, node, claim, self._context.clock.now())
        node_blockers = [blocker for blocker in why if not blocker.pod and blocker.code not in WAIVED]
        if not claim.is_true("Initialized"):
            node_blockers = [blocker for blocker in node_blockers if blocker.code != "NOMINATED"]
        if not claim.is_true("Registered"):
            return source("node isn't initialized nor registered")
        if node_blockers:
            return node_blockers[0].message
        if node.metadata.annotations.get(wellknown.DO_NOT_REPAIR) == "true":
            return source('repair is blocked through the "{annotation}" annotation').format(
                annotation=wellknown.DO_NOT_REPAIR
            )
        unbounded = unhealthy_node.diagnosis.grace is None and claim.spec.grace is None
        if any(blocker.pod for blocker in why) and unbounded:
            return source("repair requires a termination grace period to bypass blocking pods")
        return None

    def _tripped(self) -> frozenset[str]:
        """NodePools with so many unhealthy nodes, however lately, that none of them is repaired."""
        assert self._policies is not None
        total: Counter[str] = Counter()
        unhealthy_count: Counter[str] = Counter()
        for node in self._context.cluster_state.nodes.store.all():
            pool = node.metadata.labels.get(wellknown.NODEPOOL)
            if pool:
                total[pool] += 1
                unhealthy_count[pool] += self._policies.is_unhealthy(node)
        return frozenset(
            pool for pool, count in unhealthy_count.items() if count > math.ceil(UNHEALTHY_SHARE * total[pool])
        )

    def _publish_many_unhealthy(self, unhealthy_node: UnhealthyNode) -> None:
        """Publish on Node, NodeClaim and NodePool that too many nodes are unhealthy at once."""
        context, name = self._context, unhealthy_node.claim.node_pool or ""
        text = source('more than {share:.0%} of nodes in nodepool "{name}" are unhealthy').format(
            share=UNHEALTHY_SHARE, name=name
        )
        self._write(unhealthy_node, text)
        for subject in (unhealthy_node.node, unhealthy_node.claim, context.cluster_state.pools.store.get(name)):
            if subject is not None:
                context.event_publisher.publish(subject, "Warning", "NodeRepairBlocked", text, dedupe=900.0)

    # -- repairs

    async def _repair(self, unhealthy_node: UnhealthyNode, candidate: Candidate, pools: Sequence[Pool]) -> bool:
        context = self._context
        if unhealthy_node.diagnosis.action is RepairAction.REBOOT and not unhealthy_node.escalated:
            return await self._reboot(unhealthy_node, candidate)
        staged = await stage(context, pools, candidate, terminate_first=context.settings.gate("TerminateFirstRepair"))
        if isinstance(staged, ReplacementRefused):
            if staged.why:
                context.event_publisher.blocked(unhealthy_node.node, unhealthy_node.claim, staged.why)
                self._write(unhealthy_node, staged.why)
            return False
        command = Command(
            id=context.decision_history.new_id(),
            reason=DisruptionReason.UNHEALTHY,
            candidates=(candidate,),
            grace=unhealthy_node.bound,
            condition=unhealthy_node.diagnosis.condition,
            terminate_first=staged.terminate_first,
        )
        self._log(unhealthy_node)
        return await self._queue.start(command, staged.plan, staged.copy)

    async def _reboot(self, unhealthy_node: UnhealthyNode, candidate: Candidate) -> bool:
        context = self._context
        if not await reboot.commit(
            context, unhealthy_node.claim, unhealthy_node.diagnosis.condition_reason, unhealthy_node.bound
        ):
            return False
        self._log(unhealthy_node)
        mode = termination_mode(unhealthy_node.claim, unhealthy_node.bound)
        context.metrics.disruption_decisions.labels("reboot", "unhealthy", "").inc()
        context.metrics.claims_disrupted.labels("unhealthy", candidate.pool, candidate.capacity_type, "", mode).inc()
        return True

    def _log(self, unhealthy_node: UnhealthyNode) -> None:
        diagnosis = unhealthy_node.diagnosis
        more = {"reboot-escalated": True} if unhealthy_node.escalated else {}
        self._context.log.info(
            "selected repair policy",
            controller="disruption",
            Node=logs.ref(unhealthy_node.node.metadata.name),
            NodeClaim=logs.ref(unhealthy_node.claim.name),
            condition=diagnosis.condition,
            status=diagnosis.status,
            reason=diagnosis.reason,
            action=str(diagnosis.action),
            **{"eligible-at": stamp(diagnosis.due), **more},
        )
