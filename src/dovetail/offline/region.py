"""The region that `dovetail plan` launches in when no catalogue is given, and what a NodeClass makes of its types."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.cloud.aws import catalog
from dovetail.errors import UserError
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.kubelet import KUBELET_ANNOTATION, with_kubelet
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.labels import REGION, ZONE
from dovetail.model.nodes import Node
from dovetail.offline.objects import Objects

_DEFAULT = "ap-northeast-2"
_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_OF_ZONE = re.compile(r"([a-z]+(?:-[a-z]+)+-\d)[a-z]")
#: The class of nodes whose own is not in the input.
_USUAL: Mapping[str, Any] = {"spec": {"amiFamily": "AL2023"}}


def region_of(region: str | None, objects: Objects) -> str:
    """The region asked for, else the one that the input is about, else the environment's."""
    variable = next((name for name in _VARIABLES if os.environ.get(name)), "")
    chosen = region or _named(objects) or os.environ.get(variable) or _DEFAULT
    try:
        catalog.region(chosen)
    except catalog.UnknownRegion as error:
        raise UserError(f"{'--region' if region else variable}: {error}") from error
    return chosen


def _named(objects: Objects) -> str | None:
    """The region that most nodes are in, by their region or zone, or whose zones NodePools name."""
    nodes = [node.metadata.labels for node in objects.of(Node)]
    zones = [labels.get(ZONE, "") for labels in nodes if REGION not in labels]
    zones += [
        zone
        for pool in objects.of(NodePool)
        for need in pool.spec.template.spec.requirements
        if need.key == ZONE
        for zone in need.values
    ]
    named = [labels.get(REGION, "") for labels in nodes]
    named += [match[1] for zone in zones if (match := _OF_ZONE.fullmatch(zone))]
    counts = Counter(name for name in named if name in catalog.regions())
    return counts.most_common(1)[0][0] if counts else None


def types_of_pools(
    pools: Iterable[NodePool], classes: Mapping[str, Mapping[str, Any]], region: str
) -> dict[str, tuple[InstanceType, ...]]:
    """The types of a region by NodePool, as nodes of its NodeClass show them.

    NodePools of one NodeClass share one tuple: the planner recognises what is alike by identity.
    """
    shown: dict[tuple[str, str | None], tuple[InstanceType, ...]] = {}
    types: dict[str, tuple[InstanceType, ...]] = {}
    for pool in pools:
        name, annotations = pool.spec.template.spec.node_class_ref.name, pool.metadata.annotations
        key = (name, annotations.get(KUBELET_ANNOTATION))
        if key not in shown:
            node_class = with_kubelet(classes.get(name, _USUAL), annotations)
            shown[key] = catalog.load(region) if node_class is _USUAL else catalog.of_class(region, node_class)
        types[pool.name] = shown[key]
    return types
