"""Demand: the requests of every pod class by dimension; classes with equal requests have one size.

A host port is a resource of which a node has one for each address; a pod on 0.0.0.0 takes the port on all addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

import numpy as np

from dovetail.planner.offerings.catalog import Ints
from dovetail.planner.problem.pod_classes import TOO_MUCH, PodClass
from dovetail.planner.problem.pod_spec import Port
from dovetail.planner.problem.request import RequestSize
from dovetail.planner.problem.shared_volumes import ATTACH, SharedVolumes
from dovetail.planner.problem.volumes import NO_VOLUMES, Volume

Addresses = dict[tuple[str, int], set[str]]
_NOTHING: Mapping[str, int] = {}


class ClassDemand(NamedTuple):
    """`requests` has a row for each class, `sizes` its size; `total` is the sum over all pods."""

    dims: list[str]
    requests: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    counts: Ints
    sizes: list[RequestSize]
    total: dict[str, int]


def demand_of(classes: Sequence[PodClass], addresses: Addresses, shared: SharedVolumes) -> ClassDemand:
    """The requests of classes, with host ports and volumes as resources; sets the `requests` of every class.

    They include shared volumes: they are what a pod takes of an otherwise empty node.
    """
    distinct: list[Mapping[str, int]] = []
    number: dict[object, int] = {}
    which: list[int] = []
    shared_volume_masks: list[int] = []
    for pod_class in classes:
        storage = pod_class.storage
        key: object = pod_class.shape.requests_key
        volumes = _attachments(storage.attached) if storage is not NO_VOLUMES else _NOTHING
        if volumes or storage.shared:
            key = (key, storage.shared, *sorted(volumes.items()))
        index = number.get(key)
        if index is None:
            index = number[key] = len(distinct)
            distinct.append(_requests(pod_class, addresses, volumes))
            shared_volume_masks.append(shared.mask(storage.shared))
        pod_class.requests = distinct[index]
        if storage.shared:
            pod_class.requests = _requests(pod_class, addresses, _attachments((*storage.attached, *storage.shared)))
        which.append(index)
    dims = sorted({"pods"}.union(shared.names, *distinct))
    rows = [tuple([requests.get(name, 0) for name in dims]) for requests in distinct]
    counts = np.array([pod_class.count for pod_class in classes], dtype=np.int64)
    pods = [0] * len(rows)
    for index, count in zip(which, counts.tolist(), strict=True):
        pods[index] += count
    same = {key: RequestSize(*key) for key in zip(rows, shared_volume_masks, strict=True)}
    sizes = [same[key] for key in zip(rows, shared_volume_masks, strict=True)]
    requests = np.array(rows, dtype=np.int64).reshape(len(rows), len(dims))
    return ClassDemand(
        dims=dims,
        requests=requests[np.array(which, dtype=np.int64)],
        counts=counts,
        sizes=[sizes[index] for index in which],
        total={
            name: sum(map(mul, amounts, pods)) for name, amounts in zip(dims, zip(*rows, strict=True), strict=False)
        },
    )


def _attachments(volumes: Iterable[Volume]) -> Mapping[str, int]:
    return Counter(ATTACH + driver for driver, _ in volumes)


def _requests(pod_class: PodClass, addresses: Addresses, volumes: Mapping[str, int]) -> Mapping[str, int]:
    """The requests of a pod of a class, cut to `TOO_MUCH`."""
    requests: Mapping[str, int] = pod_class.shape.requests
    if pod_class.shape.ports or volumes:
        requests = {**requests, **port_requests(pod_class.shape.ports, addresses), **volumes}
    if max(requests.values(), default=0) > TOO_MUCH:
        requests = {name: min(amount, TOO_MUCH) for name, amount in requests.items()}
    return requests


PORT = "port:"
EVERYWHERE = "0.0.0.0"


def with_ports(requests: dict[str, int], ports: Sequence[Port]) -> dict[str, int]:
    return {**requests, **port_requests(tuple(ports), {})}


def port_requests(ports: tuple[Port, ...], addresses: dict[tuple[str, int], set[str]]) -> dict[str, int]:
    """Host ports as resources of amount one; the wildcard address takes the port on every address."""
    port_requests: dict[str, int] = {}
    for ip, protocol, number in ports:
        conflicting = {ip} | (addresses.get((protocol, number), set()) if ip == EVERYWHERE else set())
        for address in conflicting:
            port_requests[f"{PORT}{protocol}/{number}/{address}"] = 1
    return port_requests
