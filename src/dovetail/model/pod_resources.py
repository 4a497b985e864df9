"""What a pod asks of a node: its containers, its start, its overhead.

Containers and sidecars run together, so they add up. Init containers run one after another beside the
sidecars started before them, so only their peak counts. A pod-level request replaces the sum, and a
resize in flight counts as the larger of what was asked, what was granted and what is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from dovetail.model.meta import Amount
from dovetail.model.pods import Container, ContainerStatus, Pod, ResourceRequirements
from dovetail.model.quantity import Quantity, QuantityError, milli, parse

V = TypeVar("V", int, Quantity)
Reader = Callable[[Mapping[str, Amount]], dict[str, V]]

#: What kube-scheduler assumes, when it scores nodes, of a container that does not say.
_UNSAID = {"cpu": 100, "memory": 200 * 1024 * 1024 * 1000}


def requests(pod: Pod) -> dict[str, int]:
    """The pod's requests as integers; sums are exact and rounded up once."""
    return _whole(_requests(pod, _thousandths, {}))


def unreadable(pod: Pod) -> str | None:
    """The first request of a container that is not a quantity: where it stands, what it says, how it could be said."""
    for group, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            for name, amount in container.resources.requests.items():
                try:
                    parse(amount)
                except QuantityError:
                    where = f"spec.{group}[{index}].resources.requests.{name}"
                    return f'{where}: "{amount}" is not a quantity (such as 500m or 2Gi)'
    return None


def scored_requests(pod: Pod) -> dict[str, int]:
    """What a placed pod counts for when nodes are scored: a guess for containers that ask for no CPU or memory."""
    unsaid = _UNSAID
    if pod.spec.resources is not None and any(_pod_level(name) for name in pod.spec.resources.requests):
        cached = _requests(pod, _thousandths, {})
        unsaid = {name: guess for name, guess in _UNSAID.items() if name not in cached}
    return _whole(_requests(pod, _thousandths, unsaid))


def incoming_requests(pod: Pod) -> dict[str, int]:
    """What kube-scheduler counts, when it scores nodes, for the pod it is placing: pod-level requests are left out."""
    containers = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None))
    return _whole(_requests(containers, _thousandths, _UNSAID))


def quantities(pod: Pod) -> dict[str, Quantity]:
    """The pod's requests as they would be printed."""
    return _requests(pod, _quantities, {})


def limits(pod: Pod) -> dict[str, int]:
    """The pod's limits as integers."""
    total = _combined(pod, lambda container, _: _thousandths(container.resources.limits))
    spec = pod.spec.resources
    if spec is not None and any(_pod_level(name) for name in (*spec.requests, *spec.limits)):
        total.update({name: container for name, container in _thousandths(spec.limits).items() if _pod_level(name)})
    for name, container in _thousandths(pod.spec.overhead).items():
        if total.get(name):
            total[name] += container
    return _whole(total)


def total(pods: list[Pod]) -> dict[str, int]:
    """The requests of several pods, and how many they are as `pods`."""
    summed: dict[str, int] = {}
    for pod in pods:
        _add(summed, requests(pod))
    summed["pods"] = len(pods)
    return summed


def _thousandths(amounts: Mapping[str, Amount]) -> dict[str, int]:
    return {name: milli(text) for name, text in amounts.items()}


def _quantities(amounts: Mapping[str, Amount]) -> dict[str, Quantity]:
    return {name: parse(text) for name, text in amounts.items()}


def _whole(thousandths: dict[str, int]) -> dict[str, int]:
    return {name: count if name == "cpu" else -(-count // 1000) for name, count in thousandths.items()}


def _requests(pod: Pod, read: Reader[V], unsaid: Mapping[str, V]) -> dict[str, V]:
    if _simple(pod):
        requests_ = read(pod.spec.containers[0].resources.requests)
        return {**unsaid, **requests_} if unsaid else requests_

    def of(container: Container, status: ContainerStatus | None) -> dict[str, V]:
        effective = read(container.resources.requests)
        if status is not None and status.resources is not None:
            effective = _effective(pod, effective, read(status.resources.requests), read(status.allocated_resources))
        return {**unsaid, **effective}

    combined = _combined(pod, of)
    spec = pod.spec.resources
    if spec is not None and any(_pod_level(name) for name in spec.requests):
        combined.update(_pod_requests(pod, spec, read))
    _add(combined, read(pod.spec.overhead))
    return combined


def _simple(pod: Pod) -> bool:
    """One container and nothing else: the common case."""
    spec = pod.spec
    if len(spec.containers) != 1 or spec.init_containers or spec.overhead or spec.resources is not None:
        return False
    return all(status.resources is None for status in pod.status.container_statuses)


def _combined(pod: Pod, of: Callable[[Container, ContainerStatus | None], dict[str, V]]) -> dict[str, V]:
    """Running together, or starting up, whichever is more."""
    statuses = {
        container_status.name: container_status
        for container_status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    }
    running: dict[str, V] = {}
    for container in pod.spec.containers:
        _add(running, of(container, statuses.get(container.name)))
    sidecars: dict[str, V] = {}
    starting: dict[str, V] = {}
    for container in pod.spec.init_containers:
        if container.sidecar:
            requested = of(container, statuses.get(container.name))
            _add(running, requested)
            _add(sidecars, requested)
            _raise(starting, sidecars)
        else:
            requested = of(container, None)
            _add(requested, sidecars)
            _raise(starting, requested)
    _raise(running, starting)
    return running


def _pod_requests(pod: Pod, spec: ResourceRequirements, read: Reader[V]) -> dict[str, V]:
    requested = read(spec.requests)
    if pod.status.resources is not None:
        granted, in_force = read(pod.status.allocated_resources), read(pod.status.resources.requests)
        effective = _effective(pod, requested, in_force, granted)
        requested = {name: effective.get(name, amount) for name, amount in requested.items()}
    return {name: amount for name, amount in requested.items() if _pod_level(name)}


def _pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _effective(pod: Pod, requested: dict[str, V], in_force: dict[str, V], granted: dict[str, V]) -> dict[str, V]:
    infeasible = any(
        amount.type == "PodResizePending" and amount.reason == "Infeasible" for amount in pod.status.conditions
    )
    largest: dict[str, V] = {} if infeasible else dict(requested)
    _raise(largest, in_force)
    _raise(largest, granted)
    return largest


def _add(to: dict[str, V], more: Mapping[str, V]) -> None:
    for name, amount in more.items():
        current = to.get(name)
        to[name] = amount if current is None else current + amount


def _raise(to: dict[str, V], more: Mapping[str, V]) -> None:
    for name, amount in more.items():
        current = to.get(name)
        if current is None or amount > current:
            to[name] = amount
