"""What is seen of a run: nodes that come and go and why, evictions, pods without a node, what holds nodes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.cloud.provider import Instance
from dovetail.cluster.nodepools import for_planner
from dovetail.cluster.pdb import PdbIndex
from dovetail.controllers.disruption import candidates
from dovetail.controllers.disruption.simulation import Simulation
from dovetail.controllers.history.decisions import CreatedNodeClaim, Decision
from dovetail.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS, NODES, PDBS, PODS
from dovetail.lab.cluster import Lab
from dovetail.lab.controllers.views import PodFields
from dovetail.lab.scenario.autoscaler import Autoscaled
from dovetail.language import english, message, source
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds import budgets
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import Budget, NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.reasons import reason
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.offline.diff.prediction import (
    Blocked,
    Eviction,
    Pending,
    PredictedNodeChange,
    PredictedObjectChange,
    PredictedRun,
    PredictedState,
    Wave,
)
from dovetail.studies.bound import OfferBounds
from dovetail.studies.what_if.cloud import RestoredCloud

#: A NodePool's quiet time is waited for, up to so many seconds, and a minute more.
MAX_QUIET_S = 86_400.0
#: So long after its window opened, a budget has been used.
MARGIN_S = 120.0
#: So many pods of a reason are named.
MAX_PODS = 50


class Observation:
    """Follows a lab from when it is made."""

    def __init__(self, lab: Lab, fleet: Autoscaled, names: Mapping[str, str]) -> None:
        """`names` are those of the Nodes that are there from the start, by their instances."""
        assert lab.controllers is not None and isinstance(fleet.cloud, RestoredCloud)
        self._lab = lab
        self._cloud: RestoredCloud = fleet.cloud
        self._fleet = fleet
        self._names = names
        self._zero = lab.clock.monotonic()
        self._began = lab.clock.now()
        self._evictions: list[Eviction] = []
        self._changed_at = self._zero
        self._pools: dict[str, NodePool] = {}
        lab.controllers.context.pods.listen(self._pod_changed)

    @property
    def last_change(self) -> float:
        """When an instance or a pod last came or went, in seconds of the loop."""
        return max(self._changed_at, self._cloud.log[-1].at if self._cloud.log else self._zero)

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        came = old is None or (new is not None and bool(new.spec.node_name) != bool(old.spec.node_name))
        if new is None or came:
            self._changed_at = self._lab.clock.monotonic()
        if new is None and old is not None and is_evicted(old):
            moment = round(self._lab.clock.monotonic() - self._zero, 1)
            self._evictions.append(Eviction(at=moment, pod=old.metadata.key, node=old.spec.node_name))

    # -- when it is at rest

    async def quiet_limit_s(self) -> float:
        """After how many quiet seconds something may still happen: quiet times, and budgets that open later."""
        pools = await self._nodepools()
        claims = (await self._lab.kube.list(NODECLAIMS, type=NodeClaim)).items
        now = self._lab.clock.now()
        quiet = [pool.spec.disruption.quiet_time for pool in pools.values()]
        waits = [wait.total_seconds() for wait in quiet if wait is not None]
        longest = min(MAX_QUIET_S, max(waits, default=0.0)) + 2 * MARGIN_S
        waiting = Counter(claim.node_pool or "" for claim in claims if claim.is_true("Drifted"))
        for name, pool in pools.items():
            total = sum(claim.node_pool == name for claim in claims)
            for why, count in (("Drifted", waiting[name]), ("Underutilized", total)):
                longest = max(longest, self._until_open(pool, why, count, total, now))
        if any(claim.metadata.deletion_timestamp is not None and claim.spec.grace is not None for claim in claims):
            longest = max(longest, *(claim.spec.grace.total_seconds() for claim in claims if claim.spec.grace), 0.0)
        return longest

    def _until_open(self, pool: NodePool, why: str, count: int, total: int, now: datetime) -> float:
        """Seconds from the last change until a budget that is shut opens; 0 where it is open or nothing waits."""
        given = pool.spec.disruption.budgets
        if not count or not any(budget.schedule for budget in given):
            return 0.0
        opens = budgets.opens(given, why, total, now)
        if opens is None or opens <= now:
            return 0.0
        gone = self._lab.clock.monotonic() - self.last_change
        return gone + (opens - now).total_seconds() + MARGIN_S

    # -- the cluster at a moment

    async def _nodepools(self) -> dict[str, NodePool]:
        listed = (await self._lab.kube.list(NODEPOOLS, type=NodePool)).items
        self._pools |= {pool.name: pool for pool in listed}
        return {pool.name: pool for pool in listed}

    async def state(self) -> PredictedState:
        pods = (await self._lab.kube.list(PODS, type=Pod)).items
        nodes = (await self._lab.kube.list(NODES, type=Node)).items
        standing = self._cloud.standing()
        ours = {instance.provider_id for instance in standing}
        others = [node for node in nodes if node.spec.provider_id not in ours]
        live = [pod for pod in pods if not pod.finished and not pod.terminating]
        by_pool: dict[str, tuple[int, float]] = {}
        unpriced = 0
        for instance in standing:
            price = self._price(instance)
            unpriced += price is None
            count, cost = by_pool.get(instance.node_pool or "", (0, 0.0))
            by_pool[instance.node_pool or ""] = count + 1, round(cost + (price or 0.0), 6)
        bound = await self._bound(live, others)
        return PredictedState(
            per_hour=round(sum(cost for _, cost in by_pool.values()), 6),
            lower_bound=round(bound, 6),
            nodes=len(standing),
            pods=len(live),
            pending=sum(not pod.spec.node_name for pod in live),
            unpriced=unpriced,
            other_nodes=len(others),
            by_pool=dict(sorted(by_pool.items())),
        )

    def _price(self, instance: Instance) -> float | None:
        return self._cloud.price(instance.instance_type, instance.zone, instance.capacity_type)

    async def _bound(self, pods: Sequence[Pod], others: Sequence[Node]) -> float:
        """What the pods would cost at least on any nodes that the NodePools allow now."""
        listed = (await self._lab.kube.list(NODEPOOLS)).items
        classes = {
            node_class["metadata"]["name"]: node_class
            for node_class in (await self._lab.kube.list(EC2NODECLASSES)).items
        }
        pools = []
        for body in listed:
            pool = msgspec.convert(body, NodePool)
            node_class = classes.get(pool.spec.template.spec.node_class_ref.name, {})
            types: tuple[InstanceType, ...] = await self._cloud.instance_types(body, node_class)
            if not pool.static:
                pools.append(for_planner(pool, types))
        return OfferBounds(pools).per_hour(pods, others)

    # -- all of it

    async def outcome(
        self, start: PredictedState, objects: Sequence[PredictedObjectChange], *, at_rest: bool
    ) -> PredictedRun:
        decisions = self._decisions()
        pools = await self._nodepools()
        end = await self.state()
        return PredictedRun(
            start=start,
            end=end,
            objects=tuple(objects),
            nodes=tuple(self._node_changes(decisions)),
            evictions=tuple(self._evictions),
            waves=tuple(self._waves(decisions)),
            pending=await self._pending(decisions),
            blocked=await self._blocked(pools),
            seconds=round(self.last_change - self._zero, 1),
            at_rest=at_rest,
        )

    def _decisions(self) -> list[Decision]:
        """What was decided since the change."""
        autoscaler = self._fleet.autoscaler
        assert autoscaler is not None
        began = self._began.timestamp()
        return [
            decision
            for decision in autoscaler.decision_history.decisions()
            if datetime.fromisoformat(decision.time).timestamp() >= began - 1.0
        ]

    def _seconds(self, decision: Decision) -> float:
        return max(0.0, (datetime.fromisoformat(decision.time) - self._began).total_seconds())

    def _node_changes(self, decisions: Sequence[Decision]) -> list[PredictedNodeChange]:
        made: dict[str, tuple[Decision, CreatedNodeClaim]] = {}
        ends: dict[str, Decision] = {}
        for decision in decisions:
            for created in decision.node_claims:
                made[created.claim] = decision, created
            if decision.kind in ("disrupt", "end"):
                ends |= dict.fromkeys((*decision.about, *decision.removed, decision.subject), decision)
        changes = []
        for event in self._cloud.log:
            instance = event.instance
            claim = instance.claim_name or ""
            decided = made.get(claim)
            why = (decided[0] if decided else None) if event.came else ends.get(claim)
            changes.append(
                PredictedNodeChange(
                    action="+" if event.came else "-",
                    at=round(event.at - self._zero, 1),
                    claim=claim,
                    node=self._names.get(instance.provider_id, ""),
                    pool=instance.node_pool or "",
                    instance_type=instance.instance_type,
                    zone=instance.zone,
                    capacity_type=instance.capacity_type,
                    price=event.price,
                    reason=_reason_of(why),
                    pods=decided[1].pods if decided and event.came else 0,
                    detail=_cause(why) if why is not None else "",
                )
            )
        return changes

    def _waves(self, decisions: Sequence[Decision]) -> list[Wave]:
        waves = []
        for decision in decisions:
            if decision.kind != "disrupt":
                continue
            pools = tuple(name for name in decision.about if name in self._pools)
            now = datetime.fromisoformat(decision.time)
            waves.append(
                Wave(
                    at=round(self._seconds(decision), 1),
                    reason=str(decision.reason),
                    nodes=decision.removed,
                    pools=pools,
                    replacements=len(decision.node_claims),
                    evictions=decision.evictions,
                    detail=_cause(decision),
                    budgets=tuple(text for name in pools for text in _active(self._pools[name], decision.reason, now)),
                )
            )
        return waves

    async def _pending(self, decisions: Sequence[Decision]) -> tuple[Pending, ...]:
        pods = (await self._lab.kube.list(PODS, type=Pod)).items
        waiting = [
            pod.metadata.key
            for pod in pods
            if not pod.finished and not pod.terminating and not pod.spec.node_name and not pod.spec.scheduling_gates
        ]
        said: dict[str, tuple[str, str, str]] = {}
        last: tuple[str, str, str] | None = None
        for decision in decisions:
            for refusal in decision.refusals:
                last = refusal.code, refusal.message, refusal.remedy
                said |= dict.fromkeys(refusal.pods, last)
        groups: dict[tuple[str, str, str], list[str]] = {}
        for key in waiting:
            groups.setdefault(
                said.get(key) or last or ("NOT_PLANNED", source("no plan was made for it"), ""), []
            ).append(key)
        return tuple(
            Pending(
                pods=tuple(sorted(names)[:MAX_PODS]),
                count=len(names),
                code=code,
                message=text,
                remedy=remedy or (reason(code).remedy if code != "NOT_PLANNED" else ""),
            )
            for (code, text, remedy), names in sorted(groups.items())
        )

    async def _blocked(self, pools: Mapping[str, NodePool]) -> tuple[Blocked, ...]:
        """NodeClaims that are drifted or terminating at the end, and what holds them."""
        kube, now = self._lab.kube, self._lab.clock.now()
        claims = (await kube.list(NODECLAIMS, type=NodeClaim)).items
        going = [claim for claim in claims if claim.is_true("Drifted") or claim.metadata.deletion_timestamp is not None]
        if not going:
            return ()
        nodes = {node.spec.provider_id: node for node in (await kube.list(NODES, type=Node)).items}
        pods: dict[str, list[Pod]] = {}
        for pod in (await kube.list(PODS, type=Pod)).items:
            pods.setdefault(pod.spec.node_name, []).append(pod)
        pdbs = PdbIndex(tuple((await kube.list(PDBS, type=PodDisruptionBudget)).items))
        blocked = []
        for claim in going:
            node = nodes.get(claim.status.provider_id)
            name = node.metadata.name if node is not None else claim.name
            blockers = candidates.node_blockers(node, claim, terminating=False, nominated=False)
            blockers += candidates.pod_blockers(pods.get(name, ()), pdbs, now)
            why = "Drifted" if claim.is_true("Drifted") else "Terminating"
            pool = pools.get(claim.node_pool or "")
            shut = _shut(pool, why, now)
            if not blockers and not shut and why == "Drifted" and node is not None:
                blockers = await self._without_a_place(claim, node)
            texts = tuple(sorted(map(candidates.describe, blockers)))
            blocked.append(Blocked(node=name, pool=claim.node_pool or "", reason=why, blockers=texts or shut))
        return tuple(sorted(blocked, key=lambda node: node.node))

    async def _without_a_place(self, claim: NodeClaim, node: Node) -> list[candidates.Blocker]:
        """Pods of a node that cannot be replaced, because no node would hold them."""
        autoscaler = self._fleet.autoscaler
        assert autoscaler is not None
        offered = await autoscaler.context.instance_types.all()
        candidate = candidates.candidate_of(autoscaler.context, node, claim, candidates.prices(offered))
        refused = Simulation(autoscaler.context, offered).unschedulable(candidate)
        return [candidates.Blocker(code=why.code, message=why.message, pod=pod) for pod, why in refused.items()]


def is_evicted(pod: PodFields) -> bool:
    """Whether a pod that went was evicted: by a drain, with its node, by preemption. DaemonSet pods do not count."""
    owner = pod.metadata.controller
    daemon = owner is not None and owner.kind in ("DaemonSet", "Node")
    return not daemon and pod.status.condition("DisruptionTarget") is not None


def _reason_of(decision: Decision | None) -> str:
    if decision is None:
        return ""
    return "Provisioned" if decision.kind == "provision" else str(decision.reason or decision.kind)


def _cause(decision: Decision) -> str:
    """What drifted, or which condition of the node; empty for neither."""
    return str(decision.detail.get("cause") or "")


def _active(pool: NodePool, why: str, now: datetime) -> list[str]:
    """The budgets of a NodePool that hold for a reason at a moment, as text."""
    if why == "Expired":
        return []  # no budget holds expiration back
    return [
        f"{pool.name}: {describe(budget)}"
        for budget in pool.spec.disruption.budgets
        if budgets.covers(budget, why) and budgets.is_active(budget, now)
    ]


def describe(budget: Budget) -> str:
    """A budget in one line; data, so in English."""
    with english():
        reasons = message(" for {reasons}", reasons=", ".join(budget.reasons)) if budget.reasons else ""
        window = message(", {schedule} for {duration}", schedule=budget.schedule, duration=budget.duration)
        return message(
            "{nodes} at once{reasons}{window}",
            nodes=budget.nodes,
            reasons=reasons,
            window=window if budget.schedule else "",
        )


def _shut(pool: NodePool | None, why: str, now: datetime) -> tuple[str, ...]:
    if pool is None:
        return ()
    allowance = budgets.allowance(pool.spec.disruption.budgets, why, 1, now)
    if allowance.nodes > 0:
        return ()
    return tuple(describe(budget) for budget in pool.spec.disruption.budgets if budgets.covers(budget, why))
