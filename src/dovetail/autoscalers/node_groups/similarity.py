"""Similar nodes: groups whose nodes are interchangeable, so that a scale-up may be split between them.

Capacity is equal but for a little memory, allocatable and free amounts are close, and labels agree except those
that name the node, its place or its group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from dovetail.model.fit import NodeInfo
from dovetail.model.meta import Amount
from dovetail.model.quantity import parse

BASIC_IGNORED_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
        "kops.k8s.io/instancegroup",
    }
)
AWS_IGNORED_LABELS = frozenset(
    {
        "alpha.eksctl.io/instance-id",
        "alpha.eksctl.io/nodegroup-name",
        "eks.amazonaws.com/nodegroup",
        "k8s.amazonaws.com/eniConfig",
        "lifecycle",
        "topology.ebs.csi.aws.com/zone",
        "topology.k8s.aws/zone-id",
    }
)


class DifferenceRatios(msgspec.Struct, frozen=True):
    """How far apart two nodes may be, as a share of the larger amount."""

    capacity_memory: float = 0.015
    allocatable: float = 0.05
    free: float = 0.05


Comparator = Callable[[NodeInfo, NodeInfo], bool]


def aws_comparator(ignored: Sequence[str] = (), ratios: DifferenceRatios | None = None) -> Comparator:
    """Nodes of AWS groups; labels of `ignored` do not count."""
    labels = BASIC_IGNORED_LABELS | AWS_IGNORED_LABELS | frozenset(ignored)
    limits = ratios or DifferenceRatios()
    return lambda first, other: is_similar(first, other, labels, limits)


def label_comparator(labels: Sequence[str]) -> Comparator:
    """Nodes that agree in these labels, whatever else they are."""

    def same(first: NodeInfo, other: NodeInfo) -> bool:
        return all(
            key in first.labels and key in other.labels and first.labels[key] == other.labels[key] for key in labels
        )

    return same


def is_similar(first: NodeInfo, other: NodeInfo, ignored_labels: frozenset[str], ratios: DifferenceRatios) -> bool:
    """Whether the two nodes could stand for each other."""
    if not _capacity_agrees(first.node.status.capacity, other.node.status.capacity, ratios.capacity_memory):
        return False
    mine, its = first.node.status.allocatable, other.node.status.allocatable
    if mine.keys() != its.keys() or not all(_close(mine[name], its[name], ratios.allocatable) for name in mine):
        return False
    return _free_agrees(first, other, ratios.free) and _labels_agree(first.labels, other.labels, ignored_labels)


def _capacity_agrees(first: Mapping[str, Amount], other: Mapping[str, Amount], memory_ratio: float) -> bool:
    if first.keys() != other.keys():
        return False
    for name, amount in first.items():
        if name == "memory":
            if not _close(amount, other[name], memory_ratio):
                return False
        elif parse(amount) != parse(other[name]):
            return False
    return True


def _free_agrees(first: NodeInfo, other: NodeInfo, ratio: float) -> bool:
    """What is left of the resources that pods have requested."""
    counted = ("cpu", "memory", "ephemeral-storage", "pods")
    mine, its = _free(first, counted), _free(other, counted)
    if mine.keys() != its.keys():
        return False
    return all(_within(mine[name], its[name], ratio) for name in mine)


def _free(info: NodeInfo, always: Sequence[str]) -> dict[str, int]:
    names = {*always, *(name for name, amount in info.requested.items() if amount)}
    free = {}
    for name in names:
        free[name] = info.allocatable.get(name, 0) - info.requested.get(name, 0)
    return free


def _labels_agree(first: Mapping[str, str], other: Mapping[str, str], ignored: frozenset[str]) -> bool:
    mine = {key: value for key, value in first.items() if key not in ignored}
    return mine == {key: value for key, value in other.items() if key not in ignored}


def _close(first: Amount, other: Amount, ratio: float) -> bool:
    return _within(parse(first).nano, parse(other).nano, ratio)


def _within(first: int, other: int, ratio: float) -> bool:
    larger, smaller = max(first, other), min(first, other)
    return larger - smaller <= larger * ratio
