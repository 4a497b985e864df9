"""One decision: which node a pod gets, or why it gets none. Pure.

The filters live in `dovetail.model.fit`; here they check every node, together with pods that are
nominated for it and not bound yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dovetail.lab.scheduler.scoring.scores import scores
from dovetail.model.fit import ClusterNodes, Fit, NodeInfo, PodInfo, Rejection

Nominated = Mapping[str, Sequence[PodInfo]]
NO_NOMINATIONS: Nominated = {}

#: Below this many nodes all of them are looked at.
_ALWAYS_ALL = 100


class SchedulingDecision(msgspec.Struct, frozen=True):
    """`node`, or the rejections: of all nodes at once (`refused`), or node by node.

    `unnamed` counts the nodes that were not looked at because the pod names others.
    """

    node: str | None
    total: int
    refused: Rejection | None = None
    rejections: Mapping[str, Rejection] = {}
    unnamed: int = 0
    feasible: int = 0
    #: How often each rejection is among `rejections`, where that was counted already.
    counted: Mapping[Rejection, int] = {}

    def rejection_counts(self) -> Mapping[Rejection, int]:
        """How often each rejection is among `rejections`."""
        return self.counted or Counter(self.rejections.values())


class FilterRejections:
    """Rejections by node for pods of one shape, for as long as they do not change.

    Only for pods that look at nothing but the node itself: no nominations, volumes, spread or affinity.
    """

    def __init__(self) -> None:
        self._answers: dict[str, tuple[NodeInfo, int, Rejection | None]] = {}

    def ask(self, fit: Fit, nodes: Iterable[NodeInfo]) -> Iterator[tuple[NodeInfo, Rejection | None]]:
        """One node after the other, and its rejection."""
        answers = self._answers
        for info in nodes:
            existing = answers.get(info.name)
            if existing is None or existing[0] is not info or existing[1] != info.generation:
                existing = answers[info.name] = (info, info.generation, fit.check(info))
            yield info, existing[2]

    def trim(self, nodes: int) -> None:
        """Forget it all once most of it is of nodes that are gone."""
        if len(self._answers) > 2 * nodes:
            self._answers.clear()


def schedule(
    pod: PodInfo,
    cluster: ClusterNodes,
    nominated: Nominated = NO_NOMINATIONS,
    start: int = 0,
    memory: FilterRejections | None = None,
) -> SchedulingDecision:
    """Decide for one pod. `start` is where the search begins when there are more nodes than need be looked at."""
    fit = Fit(pod, cluster)
    total = len(cluster.nodes)
    if fit.rejection is not None:
        return SchedulingDecision(None, total, refused=fit.rejection)
    nominated_node = cluster.nodes.get(pod.pod.status.nominated_node_name)
    if nominated_node is not None and passes(fit, nominated_node, nominated) is None:
        return SchedulingDecision(nominated_node.name, total, feasible=1)
    nodes = _candidates(fit, cluster, start)
    enough = nodes_to_find(len(nodes))
    feasible: list[NodeInfo] = []
    rejections: dict[str, Rejection] = {}
    answers: Iterator[tuple[NodeInfo, Rejection | None]]
    if memory is None or nominated or not fit.plain:
        answers = ((info, passes(fit, info, nominated)) for info in nodes)
    else:
        memory.trim(total)
        answers = memory.ask(fit, nodes)
    for info, rejection in answers:
        if rejection is not None:
            rejections[info.name] = rejection
            continue
        feasible.append(info)
        if len(feasible) >= enough:
            break
    if not feasible:
        return SchedulingDecision(None, total, rejections=rejections, unnamed=total - len(nodes))
    if len(feasible) == 1:
        return SchedulingDecision(feasible[0].name, total, rejections=rejections, feasible=1)
    return SchedulingDecision(best(pod, cluster, feasible), total, rejections=rejections, feasible=len(feasible))


def _candidates(fit: Fit, cluster: ClusterNodes, start: int) -> list[NodeInfo]:
    nodes = list(cluster.nodes.values())
    if fit.only is not None:
        return [info for info in nodes if info.name in fit.only]
    first = start % len(nodes) if nodes else 0
    return nodes[first:] + nodes[:first] if first else nodes


def nodes_to_find(total: int) -> int:
    """How many feasible nodes are enough: all of few, half of many, five percent of very many."""
    if total < _ALWAYS_ALL:
        return total
    percent = max(50 - total // 125, 5)
    return max(total * percent // 100, _ALWAYS_ALL)


def best(pod: PodInfo, cluster: ClusterNodes, feasible: Sequence[NodeInfo]) -> str:
    """The node with the highest score; of equals the first by name."""
    node_scores = scores(pod, cluster, feasible)
    top = max(node_scores)
    return min(info.name for info, score in zip(feasible, node_scores, strict=True) if score == top)


def passes(fit: Fit, info: NodeInfo, nominated: Nominated) -> Rejection | None:
    """Check a node twice where pods of no lower priority are nominated for it: with them and without."""
    nominated_pods = [
        other
        for other in nominated.get(info.name, ())
        if other.priority >= fit.pod.priority and other.key != fit.pod.key and other.key not in info.pods
    ]
    if nominated_pods:
        rejection = _with(fit, info, nominated_pods)
        if rejection is not None:
            return rejection
    return fit.check(info)


def _with(fit: Fit, info: NodeInfo, nominated_pods: Iterable[PodInfo]) -> Rejection | None:
    crowded, question = info.copy(), fit.copy()
    for other in nominated_pods:
        crowded.add(other)
        question.move(other, crowded, 1)
    return question.check(crowded)
