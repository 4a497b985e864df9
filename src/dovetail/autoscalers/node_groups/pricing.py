"""The price expander: the cheapest way to run the pods, with a liking for nodes of a fitting size.

Nodes are priced by their instance type, pods by what their CPU and memory cost on average. A group whose nodes are
much smaller or larger than a cluster of this size wants scores worse, the less so the more nodes it would add.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from dovetail.autoscalers.node_groups.annotations import gpu_resource
from dovetail.autoscalers.node_groups.expanders import Filter, Option, Templates, lowest
from dovetail.model.fit import NodeInfo
from dovetail.model.labels import INSTANCE_TYPE
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod

GIB = 1 << 30
#: On nodes of managed node groups, and on templates made of DescribeNodegroup's answer.
CAPACITY_TYPE_LABELS = ("eks.amazonaws.com/capacityType", "capacityType")
SPOT = "SPOT"
#: An m5.large in most regions, split between CPU and memory by the difference to a c5.large and an r5.large.
CPU_PRICE_PER_CORE_H = 0.0328
MEMORY_PRICE_PER_GIB_H = 0.0042
MISSING_GROUP_FACTOR = 2.0
GPU_UNFITNESS = 1000.0
STABILIZING_CORES = 0.5
STABILIZING_GIB = 500 / 1024
UNFITNESS_HALF_LIFE_NODES = 15.0
_PREFERRED_CORES = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16))
_PREFERRED_CORES_BEYOND = 32


class Prices(msgspec.Struct, frozen=True):
    """Dollars per hour: nodes by instance type, pods by core and GiB.

    A group is known to be of spot instances by the label that EKS gives its nodes. A group that mixes both is priced
    as on-demand: which of the two comes next is the Auto Scaling group's choice.
    """

    instance_types: Mapping[str, float]
    spot: Mapping[str, float] = {}
    per_core: float = CPU_PRICE_PER_CORE_H
    per_gib: float = MEMORY_PRICE_PER_GIB_H

    def node(self, info: NodeInfo) -> float | None:
        """The price of a node, None where it is not known."""
        return self.of_labels(info.labels)

    def of_labels(self, labels: Mapping[str, str]) -> float | None:
        is_spot = any(labels.get(label) == SPOT for label in CAPACITY_TYPE_LABELS)
        return (self.spot if is_spot else self.instance_types).get(labels.get(INSTANCE_TYPE, ""))

    def pod(self, pod: Pod) -> float:
        request = requests(pod)
        return request.get("cpu", 0) / 1000 * self.per_core + request.get("memory", 0) / GIB * self.per_gib

    @property
    def stabilizer(self) -> float:
        return STABILIZING_CORES * self.per_core + STABILIZING_GIB * self.per_gib


def preferred_cores(cluster_size: int) -> int:
    """The size of node that a cluster of so many nodes wants."""
    return next((cores for most, cores in _PREFERRED_CORES if cluster_size <= most), _PREFERRED_CORES_BEYOND)


def unfitness(preferred: int, cores: float) -> float:
    """How many times too large or too small a node is."""
    return max(preferred / cores, cores / preferred) if cores else math.inf


def price_filter(prices: Prices, cluster_size: int) -> Filter:
    """Options of the lowest score. Groups of unknown price take no part, unless the price of none is known."""

    def narrow(options: Sequence[Option], templates: Templates) -> list[Option]:
        cheapest = lowest(options, lambda option: score(option, templates.get(option.group.id), prices, cluster_size))
        return cheapest or list(options)

    return narrow


def score(option: Option, template: NodeInfo | None, prices: Prices, cluster_size: int) -> float | None:
    """Lower is better; None where a price is missing."""
    price = prices.node(template) if template is not None else None
    if template is None or price is None:
        return None
    nodes_price = price * option.nodes
    pods_price = sum(prices.pod(pod) for pod in option.pods)
    ratio = (nodes_price + prices.stabilizer) / (pods_price + prices.stabilizer)
    if gpu_resource(template.node) is not None:
        unfit = GPU_UNFITNESS
    else:
        unfit = unfitness(preferred_cores(cluster_size), template.allocatable.get("cpu", 0) / 1000)
    suppressed = (unfit - 1.0) * (1.0 - math.tanh((option.nodes - 1) / UNFITNESS_HALF_LIFE_NODES)) + 1.0
    value = ratio * suppressed
    return value if option.group.exists else value * MISSING_GROUP_FACTOR
