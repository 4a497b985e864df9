"""Demand: what the pods of every class take of a machine, by dimension; classes that take the same are one size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

import numpy as np

from dovetail.planner.asks import Size
from dovetail.planner.classes import TOO_MUCH, PodClass
from dovetail.planner.columns import Ints
from dovetail.planner.ports import port_requests
from dovetail.planner.sharing import Sharing
from dovetail.planner.storage import NOTHING as NO_VOLUMES

Addresses = dict[tuple[str, int], set[str]]
_NOTHING: Mapping[str, int] = {}


class Demand(NamedTuple):
    """`requests` has a row for each class, `sizes` its size; `total` is what all pods take together."""

    dims: list[str]
    requests: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    counts: Ints
    sizes: list[Size]
    total: dict[str, int]


def demand_of(classes: Sequence[PodClass], addresses: Addresses, shared: Sharing) -> Demand:
    """What classes ask for, with ports and volumes as resources of their own; every class is told its `requests`."""
    found: list[Mapping[str, int]] = []
    number: dict[object, int] = {}
    which: list[int] = []
    for one in classes:
        volumes = Counter(shared.taken(one.storage)) if one.storage is not NO_VOLUMES else _NOTHING
        key = (one.shape.takes, *sorted(volumes.items())) if volumes else one.shape.takes
        at = number.get(key)
        if at is None:
            at = number[key] = len(found)
            found.append(_requests(one, addresses, volumes))
        one.requests = found[at]
        which.append(at)
    dims = sorted({"pods"}.union(*found))
    rows = [tuple([requests.get(name, 0) for name in dims]) for requests in found]
    counts = np.array([one.count for one in classes], dtype=np.int64)
    pods = [0] * len(rows)
    for at, count in zip(which, counts.tolist(), strict=True):
        pods[at] += count
    same = {row: Size(row) for row in rows}
    sizes = [same[row] for row in rows]
    requests = np.array(rows, dtype=np.int64).reshape(len(rows), len(dims))
    return Demand(
        dims=dims,
        requests=requests[np.array(which, dtype=np.int64)],
        counts=counts,
        sizes=[sizes[at] for at in which],
        total={name: sum(map(mul, column, pods)) for name, column in zip(dims, zip(*rows, strict=True), strict=False)},
    )


def _requests(one: PodClass, addresses: Addresses, volumes: Mapping[str, int]) -> Mapping[str, int]:
    """What a pod of a class asks for; more than anybody has is cut to what can still be counted."""
    requests: Mapping[str, int] = one.shape.requests
    if one.shape.ports or volumes:
        requests = {**requests, **port_requests(one.shape.ports, addresses), **volumes}
    if max(requests.values(), default=0) > TOO_MUCH:
        requests = {name: min(amount, TOO_MUCH) for name, amount in requests.items()}
    return requests
