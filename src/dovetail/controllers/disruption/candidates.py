"""Candidates: nodes that may be disrupted now, and how many there are that budgets count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.cluster.nominations import NominationTarget
from dovetail.cluster.pdb import PdbIndex
from dovetail.cluster.state import ClusterState
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import consolidation
from dovetail.controllers.disruption.types import Candidate, DisruptionReason
from dovetail.controllers.node.termination import do_not_disrupt, drain
from dovetail.controllers.provisioning.provisionable_pods import reschedulable
from dovetail.language import message
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import condition, stamp
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod, returning
from dovetail.model.workloads import PodDisruptionBudget
from dovetail.planner.snapshot import Pool

# Everything that keeps a node from being disrupted now, all at once.
#
# Karpenter stops at the first reason it finds. An operator who asks why a node is still there wants them all:
# each pod with its annotation or its budget, the node's own annotation, the state it is in.

#: How many blockers an event names.
MAX_SHOWN_BLOCKERS = 5


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is of the reason vocabulary; `budgets` select the `pod`; `until` is when the blocker ends by itself."""

    code: str
    message: str
    pod: str = ""
    budgets: tuple[str, ...] = ()
    until: datetime | None = None


def describe(blocker: Blocker) -> str:
    """A blocker in one line, with its pod and its end."""
    pod = message("pod {name}: ", name=blocker.pod) if blocker.pod else ""
    budgets = f" ({', '.join(blocker.budgets)})" if blocker.budgets else ""
    until = message(", until {time}", time=stamp(blocker.until)) if blocker.until else ""
    return f"{pod}{blocker.message}{budgets}{until} [{blocker.code}]"


def joined(blockers: Sequence[Blocker]) -> str:
    """Several blockers as one event message, in an order that does not depend on that of the pods."""
    texts = sorted(map(_formatted, blockers))
    more = f"; and {len(texts) - MAX_SHOWN_BLOCKERS} more" if len(texts) > MAX_SHOWN_BLOCKERS else ""
    return "; ".join(texts[:MAX_SHOWN_BLOCKERS]) + more


def _formatted(blocker: Blocker) -> str:
    """As Karpenter formats it, with the pod wherever there is one."""
    several = "(s)" if len(blocker.budgets) > 1 else ""
    about = [f"Pod={blocker.pod}"] if blocker.pod else []
    about += [f"PodDisruptionBudget{several}=[{' '.join(blocker.budgets)}]"] if blocker.budgets else []
    return f"{blocker.message} ({', '.join(about)})" if about else blocker.message


def node_blockers(node: Node | None, claim: NodeClaim | None, *, terminating: bool, nominated: bool) -> list[Blocker]:
    """Blockers of the node itself, in Karpenter's words."""
    if node is None or claim is None:
        return [Blocker(code="NOT_MANAGED", message=message("node isn't managed by a NodeClaim"))]
    blockers = [Blocker(code="REBOOTING", message=message("node is rebooting"))] if claim.is_true("Rebooting") else []
    if terminating:
        return [*blockers, Blocker(code="DELETING", message=message("node is deleting or marked for deletion"))]
    if not claim.is_true("Initialized"):
        text = (
            message("node isn't initialized")
            if claim.is_true("Registered")
            else message("node isn't initialized nor registered")
        )
        blockers.append(Blocker(code="NOT_INITIALIZED", message=text))
    if nominated:
        blockers.append(Blocker(code="NOMINATED", message=message("node is nominated for a pending pod")))
    blockers += _annotation_blockers(node)
    if wellknown.NODEPOOL not in node.metadata.labels:
        blockers.append(
            Blocker(
                code="NOT_MANAGED",
                message=message('node doesn\'t have required label "{label}"', label=wellknown.NODEPOOL),
            )
        )
    return blockers


def forbidden(node: Node, pods: Iterable[Pod], now: datetime) -> list[Blocker]:
    """Blockers set by annotations."""
    return [
        *_annotation_blockers(node),
        *(blocker for pod in pods if not _is_ending(pod) for blocker in _do_not_disrupt_blockers(pod, now)),
    ]


def pod_blockers(pods: Iterable[Pod], pdbs: PdbIndex, now: datetime) -> list[Blocker]:
    """Blockers of each pod on the node."""
    blockers = []
    for pod in pods:
        if _is_ending(pod):
            continue
        blockers += _do_not_disrupt_blockers(pod, now)
        if drain.drainable(pod):
            blockers += pdb_blockers(pod, pdbs.of(pod))
    return blockers


def _is_ending(pod: Pod) -> bool:
    return pod.finished or pod.terminating


def _annotation_blockers(node: Node) -> list[Blocker]:
    if node.metadata.annotations.get(wellknown.DO_NOT_DISRUPT) != "true":
        return []
    text = message('disruption is blocked through the "{annotation}" annotation', annotation=wellknown.DO_NOT_DISRUPT)
    return [Blocker(code="DO_NOT_DISRUPT_NODE", message=text)]


def _do_not_disrupt_blockers(pod: Pod, now: datetime) -> list[Blocker]:
    protection = do_not_disrupt.of(pod)
    if not protection.holds(now):
        return []
    text = message('pod has "{annotation}" annotation', annotation=wellknown.DO_NOT_DISRUPT)
    return [Blocker(code="DO_NOT_DISRUPT_POD", message=text, pod=pod.metadata.key, until=protection.until)]


def pdb_blockers(pod: Pod, pdbs: Sequence[PodDisruptionBudget]) -> list[Blocker]:
    name = pod.metadata.key
    if len(pdbs) > 1:
        budgets = tuple(pdb.metadata.key for pdb in pdbs)
        text = message("eviction does not support multiple PDBs")
        return [Blocker(code="MANY_BUDGETS", message=text, pod=name, budgets=budgets)]
    return [
        Blocker(code="PDB", message=message("pdb prevents pod evictions"), pod=name, budgets=(pdb.metadata.key,))
        for pdb in pdbs
        if pdb.status.disruptions_allowed < 1 and not _passes_unready(pod, pdb)
    ]


def _passes_unready(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """An unready pod may be evicted under a PDB with AlwaysAllow."""
    ready = condition(pod.status.conditions, "Ready")
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and (ready is None or ready.status != "True")


#: The key of a price: type, zone and capacity type.
Offered = tuple[str, str, str]
#: Conditions of a NodeClaim that counts for budgets, and of one that uses a budget up.
_COUNTED, _CONSUMING = frozenset({"Rebooting", "Initialized"}), frozenset({"Rebooting", "DisruptionReason"})


def blocking(
    context: Context, node: Node, claim: NodeClaim, now: datetime, *, waive_pods: bool = False
) -> list[Blocker]:
    """Everything that blocks the disruption of one node."""
    cluster_state = context.cluster_state
    name = node.metadata.name
    nominated_pods = any(cluster_state.nominations.on(NominationTarget("node", name))) or any(
        cluster_state.nominations.on(NominationTarget("claim", claim.name))
    )
    why = node_blockers(node, claim, terminating=cluster_state.is_terminating(claim, node), nominated=nominated_pods)
    if waive_pods and claim.spec.grace is not None:
        return why
    return why + pod_blockers(cluster_state.pods_on(name), cluster_state.pdbs, now)


def candidate_of(
    context: Context,
    node: Node,
    claim: NodeClaim,
    prices_by_offering: Mapping[Offered, float | None],
    *,
    guarded: bool = False,
) -> Candidate:
    """A node as a candidate. `guarded`: pods that may not be evicted count as well."""
    labels = node.metadata.labels
    where = (
        labels.get(wellknown.INSTANCE_TYPE, ""),
        labels.get(wellknown.ZONE, ""),
        labels.get(wellknown.CAPACITY_TYPE, ""),
    )
    pods = movable(context, node.metadata.name, guarded=guarded)
    return Candidate(
        node=node.metadata.name,
        claim=claim.name,
        provider_id=claim.status.provider_id,
        pool=claim.node_pool or "",
        instance_type=where[0],
        zone=where[1],
        capacity_type=where[2],
        price=prices_by_offering.get(where),
        cost=consolidation.node_disruption_cost(pods, managed=context.settings.gate("PodDeletionCostManagement")),
        pods=tuple(pod.metadata.key for pod in pods),
    )


def movable(context: Context, node: str, *, guarded: bool = False) -> list[Pod]:
    """Pods that will be recreated elsewhere once the node is removed."""
    if guarded:
        return [pod for pod in context.cluster_state.pods_on(node) if returning(pod)]
    return [pod for pod in context.cluster_state.pods_on(node) if reschedulable(pod, context.cluster_state.pdbs)]


def prices(pools: Sequence[Pool]) -> dict[Offered, float | None]:
    """What each offering costs now, whether or not it is available."""
    return {
        (kind.name, offering.zone, offering.capacity_type): offering.price
        for pool in pools
        for kind in pool.types
        for offering in kind.offerings
    }


def weight(cluster_state: ClusterState, node: Node, claim: NodeClaim, reason: str) -> tuple[int, int]:
    """(whether a node counts for the budgets of its NodePool, whether it already uses them up).

    A node that is not ready uses them up for every reason but Unhealthy.
    """
    true = {condition.type for condition in claim.status.conditions if condition.status == "True"}
    if "InstanceTerminating" in true or true.isdisjoint(_COUNTED):
        return 0, 0
    away = not node.ready and reason != DisruptionReason.UNHEALTHY
    return 1, int(away or not true.isdisjoint(_CONSUMING) or cluster_state.is_terminating(claim, node))


def totals(cluster_state: ClusterState, reason: str) -> dict[str, tuple[int, int]]:
    """What the nodes of each NodePool weigh together."""
    sums: dict[str, tuple[int, int]] = {}
    for claim in cluster_state.claims.store.all():
        node = cluster_state.node_for(claim)
        if node is not None:
            add(sums, claim.node_pool or "", weight(cluster_state, node, claim, reason))
    return sums


def add(totals: dict[str, tuple[int, int]], pool: str, weight_: tuple[int, int]) -> None:
    counted, consuming = totals.get(pool, (0, 0))
    totals[pool] = (counted + weight_[0], consuming + weight_[1])
