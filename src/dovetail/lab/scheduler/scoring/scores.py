"""Scores: which of the nodes that will do is best, by kube-scheduler's default plugins and weights."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.lab.scheduler.scoring.affinity import affinity_scores
from dovetail.lab.scheduler.scoring.spread import spread_scores
from dovetail.model.fit import ClusterNodes, NodeInfo, PodInfo
from dovetail.model.fit.podinfo import term_matches
from dovetail.model.taints import PREFER_NO_SCHEDULE, tolerates

MAX = 100
WEIGHTS = {"taints": 3, "node affinity": 2, "fit": 1, "spread": 2, "affinity": 2, "balance": 1, "images": 1}

_MEGABYTE = 1024 * 1024
_IMAGE_FLOOR = 23 * _MEGABYTE
_IMAGE_CEILING = 1000 * _MEGABYTE


def scores(pod: PodInfo, cluster: ClusterNodes, nodes: Sequence[NodeInfo]) -> list[int]:
    """The weighted sum for every node, in order."""
    total = [0] * len(nodes)
    for weight, plugin_scores in (
        (WEIGHTS["taints"], taint_scores(pod, nodes)),
        (WEIGHTS["node affinity"], preference_scores(pod, nodes)),
        (WEIGHTS["fit"], [least_allocated(pod, info) for info in nodes]),
        (WEIGHTS["spread"], spread_scores(pod, cluster, nodes)),
        (WEIGHTS["affinity"], affinity_scores(pod, cluster, nodes)),
        (WEIGHTS["balance"], balance_scores(pod, nodes)),
        (WEIGHTS["images"], image_scores(pod, cluster, nodes)),
    ):
        if plugin_scores is not None:
            for index, score in enumerate(plugin_scores):
                total[index] += weight * score
    return total


def merit(pod: PodInfo, info: NodeInfo) -> int:
    """The scores that depend on nothing but the node: least allocated and balance."""
    cpu, memory = pod.shape.requests.get("cpu", 0), pod.shape.requests.get("memory", 0)
    balance = _balance(info, cpu, memory) if cpu or memory else 0
    return WEIGHTS["fit"] * least_allocated(pod, info) + WEIGHTS["balance"] * balance


def taint_scores(pod: PodInfo, nodes: Sequence[NodeInfo]) -> list[int]:
    """Fewest soft taints in the way."""
    tolerations = [toleration for toleration in pod.shape.tolerations if toleration.effect in ("", PREFER_NO_SCHEDULE)]
    counts = [
        sum(
            1
            for taint in info.node.spec.taints
            if taint.effect == PREFER_NO_SCHEDULE
            and not any(tolerates(toleration, taint) for toleration in tolerations)
        )
        for info in nodes
    ]
    most = max(counts)
    return [MAX - MAX * count // most for count in counts] if most else [MAX] * len(nodes)


def preference_scores(pod: PodInfo, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """Most of the preferred node affinity."""
    preferences = [node_preference for node_preference in pod.shape.node_preferences if node_preference.weight]
    if not preferences:
        return None
    sums = [
        sum(preference.weight for preference in preferences if term_matches(preference.preference, info.node))
        for info in nodes
    ]
    most = max(sums)
    return [MAX * sum_ // most for sum_ in sums] if most else sums


def least_allocated(pod: PodInfo, info: NodeInfo) -> int:
    """Highest where least is allocated, with a guess for containers without requests."""
    cpu, memory = info.allocatable.get("cpu", 0), info.allocatable.get("memory", 0)
    total = weights = 0
    if cpu:
        total += _room(info.scored_cpu + pod.shape.scored.get("cpu", 0), cpu)
        weights += 1
    if memory:
        total += _room(info.scored_memory + pod.shape.scored.get("memory", 0), memory)
        weights += 1
    return total // weights if weights else 0


def _room(requested: int, capacity: int) -> int:
    return 0 if requested > capacity else (capacity - requested) * MAX // capacity


def balance_scores(pod: PodInfo, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """CPU and memory used evenly, compared with the node before the pod came."""
    cpu, memory = pod.shape.requests.get("cpu", 0), pod.shape.requests.get("memory", 0)
    if not cpu and not memory:
        return None
    return [_balance(info, cpu, memory) for info in nodes]


def _balance(info: NodeInfo, cpu: int, memory: int) -> int:
    used_cpu, used_memory = info.requested.get("cpu", 0), info.requested.get("memory", 0)
    after = _evenness(info, used_cpu + cpu, used_memory + memory)
    before = _evenness(info, used_cpu, used_memory)
    return MAX // 2 + int((MAX // 2 + after - before) / 2)


def _evenness(info: NodeInfo, cpu: int, memory: int) -> int:
    all_cpu, all_memory = info.allocatable.get("cpu", 0), info.allocatable.get("memory", 0)
    if not all_cpu or not all_memory:
        return MAX
    return int((1 - abs((min(cpu / all_cpu, 1.0) - min(memory / all_memory, 1.0)) / 2)) * MAX)


def image_scores(pod: PodInfo, cluster: ClusterNodes, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """Images that are there already, weighed by size and by how many nodes have them."""
    names = [image_name(image) for image in pod.shape.images]
    if not names or not any(info.images for info in nodes):
        return None
    ceiling = _IMAGE_CEILING * len(names)
    names += [image_name(volume.image.reference) for volume in pod.shape.volumes if volume.image is not None]
    worth = {name: _image_worth(name, cluster) for name in names}
    plugin_scores = []
    for info in nodes:
        here = sum(worth[name] for name in names if name in info.images)
        plugin_scores.append(MAX * (min(max(here, _IMAGE_FLOOR), ceiling) - _IMAGE_FLOOR) // (ceiling - _IMAGE_FLOOR))
    return plugin_scores


def _image_worth(name: str, cluster: ClusterNodes) -> int:
    """An image's size, as the first node has it, by the share of the nodes that have it."""
    sizes = [info.images[name] for info in cluster.nodes.values() if name in info.images]
    return int(float(sizes[0]) * (len(sizes) / len(cluster.nodes))) if sizes else 0


def image_name(name: str) -> str:
    """An image without a tag means its latest."""
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
