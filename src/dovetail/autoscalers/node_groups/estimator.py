"""The bin-packing estimator: how many nodes of one template a set of pods needs.

First fit, largest pods first. A pod goes to a node that this estimate added before, or to one more. Two habits of the
original are kept, since sizes depend on them: a last node without pods ends the pods alike, and a pod spread over
hosts that the last node refuses is tried on every node of the cluster, which then counts as added.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.autoscalers.node_groups.equivalence import PodGroup
from dovetail.autoscalers.node_groups.limits import EstimationLimiter
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.model.fit import Fit, NodeInfo, PodInfo, Rejection
from dovetail.model.fit.local import is_scalar
from dovetail.model.fit.spread import counts_on, includes
from dovetail.model.labels import HOSTNAME
from dovetail.model.pods import Pod


class ScaleUpEstimate(msgspec.Struct, frozen=True):
    """Nodes to add, and the pods that would run on them."""

    nodes: int
    pods: tuple[Pod, ...]


def estimate(
    groups: Sequence[PodGroup], template: NodeInfo, snapshot: ClusterSnapshot, limiter: EstimationLimiter
) -> ScaleUpEstimate:
    """Pack the pods onto fresh copies of the template; the snapshot is left as it was."""
    packing = _Packing(template, snapshot, limiter)
    try:
        may_add = True
        for group in largest_first(groups, template, snapshot):
            may_add = packing.add(group, may_add)
        return ScaleUpEstimate(len(packing.used), tuple(packing.pods))
    finally:
        packing.undo()


def largest_first(groups: Sequence[PodGroup], template: NodeInfo, snapshot: ClusterSnapshot) -> list[PodGroup]:
    """The groups by the share of a node that one of their pods takes."""

    def share(group: PodGroup) -> float:
        requests = snapshot.info(group.exemplar).shape.requests
        return sum(
            requests.get(name, 0) / total for name in ("cpu", "memory") if (total := template.allocatable.get(name, 0))
        )

    return sorted(groups, key=share, reverse=True)


class _Packing:
    def __init__(self, template: NodeInfo, snapshot: ClusterSnapshot, limiter: EstimationLimiter) -> None:
        self.template = template
        self.snapshot = snapshot
        self.limiter = limiter
        self.added: list[NodeInfo] = []
        self.added_names: set[str] = set()
        #: Pods put on nodes that were there before, to be taken off again.
        self.lent: list[tuple[NodeInfo, str]] = []
        self.used: dict[str, None] = {}
        self.pods: list[Pod] = []
        self.vocal = False

    def add(self, group: PodGroup, may_add: bool) -> bool:
        """Place the group's pods; whether later groups may still add nodes."""
        fit = self._fit(self.snapshot.info(group.exemplar))
        if fit.rejection is not None:
            return may_add
        infos = [self.snapshot.info(pod) for pod in group.pods]
        left = self._on_added(fit, infos)
        return self._on_new(fit, infos[left:]) if may_add else False

    def _fit(self, exemplar: PodInfo) -> Fit:
        if self.vocal:
            return Fit(exemplar, self.snapshot.cluster)
        shared = self.snapshot.fit(exemplar)
        if shared.plain:
            return shared
        fit = shared.copy()
        for node in self.added:
            admit(fit, node)
        return fit

    def _on_added(self, fit: Fit, infos: Sequence[PodInfo]) -> int:
        """First fit on nodes that were added before; how many pods found a place, in order."""
        if fit.plain:
            return self._fill_added(fit, infos)
        for position, info in enumerate(infos):
            node = next((node for node in self.added if fit.check(node) is None), None)
            if node is None:
                return position
            self._place(fit, info, node)
        return len(infos)

    def _fill_added(self, fit: Fit, infos: Sequence[PodInfo]) -> int:
        """The same for pods that mind nothing but the node itself: each node is filled before the next is asked."""
        done = 0
        for node in self.added:
            for info in infos[done : done + alike_that_fit(fit, node)]:
                self._place(fit, info, node)
                done += 1
            if done == len(infos):
                break
        return done

    def _on_new(self, fit: Fit, infos: Sequence[PodInfo]) -> bool:
        left = 0  # pods alike for which the last node is known to have room
        for info in infos:
            last = self.added[-1] if self.added else None
            if left > 0 and last is not None:
                self._place(fit, info, last)
                left -= 1
                continue
            if last is not None:
                rejection = fit.check(last)
                if rejection is None:
                    self._place(fit, info, last)
                    continue
                if _spread_over_hosts(info, rejection):
                    other = self._anywhere(fit, info, last)
                    if other is not None:
                        self._place(fit, info, other)
                        continue
                if last.name not in self.used:
                    return True
            if not self.limiter.permit():
                return False
            node = self._add_node(fit)
            if fit.check(node) is not None:
                return True
            if fit.plain:
                left = alike_that_fit(fit, node) - 1
            self._place(fit, info, node)
        return True

    def _anywhere(self, fit: Fit, info: PodInfo, last: NodeInfo) -> NodeInfo | None:
        for node in self.snapshot.nodes.values():
            if node is not last and fit.check(node) is None:
                return node
        return None

    def _add_node(self, fit: Fit) -> NodeInfo:
        node = fresh_node(self.template, f"{self.template.name}-e-{len(self.added)}")
        self.snapshot.cluster.nodes[node.name] = node
        self.added.append(node)
        self.added_names.add(node.name)
        if not fit.plain:
            admit(fit, node)
        return node

    def _place(self, fit: Fit, info: PodInfo, node: NodeInfo) -> None:
        node.add(info)
        if node.name not in self.added_names:
            self.lent.append((node, info.key))
        self.vocal = self.vocal or bool(info.shape.anti_affinity)
        if not fit.plain:
            fit.move(info, node, 1)
        self.used[node.name] = None
        self.pods.append(info.pod)

    def undo(self) -> None:
        """Leave the snapshot as it was."""
        for node, key in self.lent:
            node.remove(key)
        for name in self.added_names:
            del self.snapshot.cluster.nodes[name]


def alike_that_fit(fit: Fit, node: NodeInfo) -> int:
    """How many pods of the shape the node takes, for a shape that minds nothing but the node itself."""
    if fit.check(node) is not None:
        return 0
    shape = fit.pod.shape
    if shape.ports:
        return 1
    count = node.allocatable.get("pods", 0) - len(node.pods)
    for name, amount in shape.requests.items():
        if amount > 0 and (name in ("cpu", "memory", "ephemeral-storage") or is_scalar(name)):
            count = min(count, (node.allocatable.get(name, 0) - node.requested.get(name, 0)) // amount)
    return count


def fresh_node(template: NodeInfo, name: str) -> NodeInfo:
    """A copy of the template under a name of its own, with the pods that come with every node."""
    node = template.copy()
    metadata = template.node.metadata
    labels = {**metadata.labels, HOSTNAME: name}
    node.node = msgspec.structs.replace(
        template.node, metadata=msgspec.structs.replace(metadata, name=name, labels=labels, uid="")
    )
    node.name = name
    return node


def admit(fit: Fit, node: NodeInfo) -> None:
    """Let a pod's question know of a node that was not there when it was first asked."""
    if fit.spread is not None and all(constraint.topology_key in node.labels for constraint in fit.spread.constraints):
        for constraint, counts in zip(fit.spread.constraints, fit.spread.counts, strict=True):
            if includes(constraint, fit.pod.shape, node):
                value = node.labels[constraint.topology_key]
                counts[value] = counts.get(value, 0) + counts_on(constraint, fit.pod.shape, node)
    if fit.affinity is not None:
        for placed in node.pods.values():
            fit.affinity.move(placed, node, 1)


def _spread_over_hosts(info: PodInfo, rejection: Rejection) -> bool:
    if rejection.plugin != "PodTopologySpread":
        return False
    return any(constraint.topology_key == HOSTNAME for constraint in info.shape.spread)
