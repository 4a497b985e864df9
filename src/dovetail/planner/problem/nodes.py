"""Facts about existing nodes and NodeClaims in progress: what their pods and daemons use.

The facts depend on one node alone and are cached as long as it is the same object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model.labels import HOSTNAME
from dovetail.model.pod_defaults import stored
from dovetail.model.pods import Pod, Toleration
from dovetail.model.workloads import DaemonSet
from dovetail.planner.cache import PlannerCache
from dovetail.planner.problem.pod_spec import PodConstraints, forgotten_shape_of, shape_of
from dovetail.planner.requirements import NODE_NAME, Term, all_hold, tolerates_all
from dovetail.planner.snapshot import NodeState, Snapshot

#: Tolerations that the DaemonSet controller adds to its pods.
DAEMON_TOLERATIONS = tuple(
    Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)


class Daemon:
    """A DaemonSet as overhead: the nodes that it runs on, and its requests."""

    __slots__ = ("name", "shape", "tolerations", "uid")

    def __init__(self, source: DaemonSet, shape: PodConstraints) -> None:
        self.name = source.metadata.name
        self.uid = source.metadata.uid
        self.shape = shape
        self.tolerations = (*shape.tolerations, *DAEMON_TOLERATIONS)

    def runs_on(self, node: NodeState, labels: Mapping[str, str]) -> bool:
        matched = any(all_hold(term, labels) for term in self.shape.required)
        return matched and tolerates_all(self.tolerations, node.taints, prefer=True)


def daemons_of(snapshot: Snapshot) -> list[Daemon]:
    """The DaemonSets of a snapshot, without those that claim devices: a new node has none."""
    daemons = []
    for source in snapshot.daemons:
        template = source.spec.template
        if template.spec.resource_claims:
            continue
        pod = Pod(metadata=template.metadata, spec=stored(template.spec))
        daemons.append(Daemon(source, shape_of(pod, PlannerCache())))
    return daemons


#: Shared empty values: for nodes without such pods, and where all daemons are running.
_NONE: frozenset[Any] = frozenset()
_NO_MISSING_DAEMONS: Counter[str] = Counter()


class NodeFacts:
    """The totals of the pods on one node."""

    __slots__ = ("claims", "daemon_used", "labels", "leaving", "missing_daemons", "ports", "shapes", "used")

    def __init__(self, node: NodeState, memory: PlannerCache) -> None:
        self.labels = node_labels(node)
        self.daemon_used: dict[str, Mapping[str, int]] = {}
        self.shapes: dict[PodConstraints, int] = {}
        self.leaving: tuple[PodConstraints, ...] = ()
        """Terminating pods: they satisfy no affinity, but their anti-affinity and ports apply until they end."""
        self.ports: frozenset[tuple[str, str, int]] = _NONE
        self.claims: frozenset[tuple[str, str | None]] = _NONE
        self.used: dict[str, int] = {}
        self.missing_daemons = _NO_MISSING_DAEMONS
        for pod in node.pods:
            self._add(pod, shape_of(pod, memory))

    def _add(self, pod: Pod, shape: PodConstraints) -> None:
        if pod.finished:
            return
        for name, amount in shape.amounts:
            self.used[name] = self.used.get(name, 0) + amount
        if shape.ports:
            self.ports |= frozenset(shape.ports)
        if shape.claims:
            self.claims |= frozenset(shape.claims)
        if shape.daemon:
            self.daemon_used[shape.controller] = shape.requests
        if pod.terminating:
            self.leaving = (*self.leaving, shape)
        else:
            self.shapes[shape] = self.shapes.get(shape, 0) + 1

    def after(self, old: NodeState, node: NodeState, memory: PlannerCache) -> NodeFacts | None:
        """The facts of the same node after a few pods were added or removed; None where they must be computed again."""
        before, now = set(map(id, old.pods)), set(map(id, node.pods))
        gone = [(pod, forgotten_shape_of(pod, memory)) for pod in old.pods if id(pod) not in now]
        come = [(pod, shape_of(pod, memory)) for pod in node.pods if id(pod) not in before]
        special = any(shape.ports or shape.claims for _, shape in gone)
        if special or node.labels != old.labels or any(shape.daemon for _, shape in (*gone, *come)):
            return None
        twin = object.__new__(NodeFacts)
        twin.labels, twin.missing_daemons, twin.daemon_used = self.labels, self.missing_daemons, self.daemon_used
        twin.ports, twin.claims = self.ports, self.claims
        twin.used, twin.shapes, twin.leaving = dict(self.used), dict(self.shapes), self.leaving
        for pod, shape in gone:
            twin._take(pod, shape)
        for pod, shape in come:
            twin._add(pod, shape)
        return twin

    def _take(self, pod: Pod, shape: PodConstraints) -> None:
        if pod.finished:
            return
        for name, amount in shape.amounts:
            self.used[name] -= amount
        if pod.terminating:
            index = self.leaving.index(shape)
            self.leaving = (*self.leaving[:index], *self.leaving[index + 1 :])
            return
        self.shapes[shape] -= 1
        if not self.shapes[shape]:
            del self.shapes[shape]

    def count_missing_daemons(self, node: NodeState, daemons: Sequence[Daemon]) -> None:
        """Compute what the DaemonSets that will run here, and are not running yet, will take.

        Each is counted by itself: the running pod of another DaemonSet leaves no room for it.
        """
        if not daemons:
            self.missing_daemons = _NO_MISSING_DAEMONS
            return
        short: Counter[str] = Counter()
        for daemon in daemons:
            if daemon.runs_on(node, self.labels):
                used = self.daemon_used.get(daemon.uid, {})
                short.update(
                    {name: max(0, amount - used.get(name, 0)) for name, amount in daemon.shape.requests.items()}
                )
        self.missing_daemons = +short


def node_labels(node: NodeState) -> dict[str, str]:
    """A node's labels, with its name as label and field."""
    labels = dict(node.labels)
    labels.setdefault(HOSTNAME, node.name)
    labels[NODE_NAME] = node.name
    return labels


def facts_of(node: NodeState, memory: PlannerCache) -> NodeFacts:
    table = memory.table("nodes")
    cached: tuple[NodeState, NodeFacts] | None = table.get(node.name)
    if cached is not None and cached[0] is node:
        return cached[1]
    facts = (cached[1].after(cached[0], node, memory) if cached is not None else None) or NodeFacts(node, memory)
    table[node.name] = (node, facts)
    return facts


def passes(labels: Mapping[str, str], terms: tuple[Term, ...]) -> bool:
    return any(all_hold(term, labels) for term in terms)
