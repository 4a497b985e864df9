"""Everything that keeps a machine from being disrupted now, all at once.

Karpenter stops at the first reason it finds. A person who asks why a node is still there wants them all:
each pod with its annotation or its budget, the node's own annotation, the state it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from dovetail.cluster import keys
from dovetail.cluster.guards import Guards
from dovetail.controllers.termination import drain, protection
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import condition, stamp
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import PodDisruptionBudget

#: How many blockers an event names.
SHOWN = 5


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is of the reason vocabulary; `budgets` hold the `pod`; `until` where the blocker goes away by itself."""

    code: str
    message: str
    pod: str = ""
    budgets: tuple[str, ...] = ()
    until: datetime | None = None


def words(blocker: Blocker) -> str:
    """A blocker in one line, with its pod and its end."""
    pod = f"pod {blocker.pod}: " if blocker.pod else ""
    budgets = f" ({', '.join(blocker.budgets)})" if blocker.budgets else ""
    until = f", until {stamp(blocker.until)}" if blocker.until else ""
    return f"{pod}{blocker.message}{budgets}{until} [{blocker.code}]"


def together(found: Sequence[Blocker]) -> str:
    """Several blockers as one event tells them, in an order that does not change with that of the pods."""
    told = sorted(map(_told, found))
    more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return "; ".join(told[:SHOWN]) + more


def _told(blocker: Blocker) -> str:
    """As Karpenter tells it, with the pod wherever there is one."""
    several = "(s)" if len(blocker.budgets) > 1 else ""
    about = [f"Pod={blocker.pod}"] if blocker.pod else []
    about += [f"PodDisruptionBudget{several}=[{' '.join(blocker.budgets)}]"] if blocker.budgets else []
    return f"{blocker.message} ({', '.join(about)})" if about else blocker.message


def of_machine(node: Node | None, claim: NodeClaim | None, *, going: bool, nominated: bool) -> list[Blocker]:
    """What the machine itself says, in Karpenter's words."""
    if node is None or claim is None:
        return [Blocker(code="NOT_MANAGED", message="node isn't managed by a NodeClaim")]
    found = [Blocker(code="REBOOTING", message="node is rebooting")] if claim.is_true("Rebooting") else []
    if going:
        return [*found, Blocker(code="DELETING", message="node is deleting or marked for deletion")]
    if not claim.is_true("Initialized"):
        text = "node isn't initialized" if claim.is_true("Registered") else "node isn't initialized nor registered"
        found.append(Blocker(code="NOT_INITIALIZED", message=text))
    if nominated:
        found.append(Blocker(code="NOMINATED", message="node is nominated for a pending pod"))
    found += _of_node(node)
    if keys.NODEPOOL not in node.metadata.labels:
        found.append(Blocker(code="NOT_MANAGED", message=f'node doesn\'t have required label "{keys.NODEPOOL}"'))
    return found


def forbidden(node: Node, pods: Iterable[Pod], now: datetime) -> list[Blocker]:
    """What people have said by an annotation."""
    return [*_of_node(node), *(each for pod in pods if not _leaves(pod) for each in _of_shield(pod, now))]


def of_pods(pods: Iterable[Pod], guards: Guards, now: datetime) -> list[Blocker]:
    """What each pod on the machine says."""
    found = []
    for pod in pods:
        if _leaves(pod):
            continue
        found += _of_shield(pod, now)
        if drain.drainable(pod):
            found += of_budgets(pod, guards.of(pod))
    return found


def _leaves(pod: Pod) -> bool:
    return pod.finished or pod.terminating


def _of_node(node: Node) -> list[Blocker]:
    if node.metadata.annotations.get(keys.DO_NOT_DISRUPT) != "true":
        return []
    text = f'disruption is blocked through the "{keys.DO_NOT_DISRUPT}" annotation'
    return [Blocker(code="DO_NOT_DISRUPT_NODE", message=text)]


def _of_shield(pod: Pod, now: datetime) -> list[Blocker]:
    shield = protection.of(pod)
    if not shield.holds(now):
        return []
    text = f'pod has "{keys.DO_NOT_DISRUPT}" annotation'
    return [Blocker(code="DO_NOT_DISRUPT_POD", message=text, pod=pod.metadata.key, until=shield.until)]


def of_budgets(pod: Pod, guards: Sequence[PodDisruptionBudget]) -> list[Blocker]:
    name = pod.metadata.key
    if len(guards) > 1:
        budgets = tuple(each.metadata.key for each in guards)
        text = "eviction does not support multiple PDBs"
        return [Blocker(code="MANY_BUDGETS", message=text, pod=name, budgets=budgets)]
    return [
        Blocker(code="PDB", message="pdb prevents pod evictions", pod=name, budgets=(guard.metadata.key,))
        for guard in guards
        if guard.status.disruptions_allowed < 1 and not _passes_unready(pod, guard)
    ]


def _passes_unready(pod: Pod, budget: PodDisruptionBudget) -> bool:
    """An unready pod may go under a budget that always allows it."""
    ready = condition(pod.status.conditions, "Ready")
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" and (ready is None or ready.status != "True")
