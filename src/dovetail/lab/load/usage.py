"""Who uses what right now: every running container's CPU and memory, with requests shared among a service's pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.kubelet.pod_worker import PodRun
from dovetail.lab.load.model import Load, load_of, request_rate
from dovetail.model.quantity import milli, whole


class Use(msgspec.Struct, frozen=True):
    """A container's use: milli-CPU and bytes."""

    name: str
    cpu: float
    memory: int


#: Services as (namespace, name) to their selectors.
Services = Mapping[tuple[str, str], Mapping[str, str]]


class RequestRates(msgspec.Struct, frozen=True):
    """Requests a second: by the key of the pod that answers them, and by service (namespace, name)."""

    by_pod: dict[str, float]
    by_service: dict[tuple[str, str], float]


#: The running containers of pods by pod key, with their models.
_Models = Mapping[str, list[tuple[Any, Load]]]


class _Stream(msgspec.Struct, frozen=True):
    """One generator's requests: to which service and pods, how many a second, and the CPU seconds of one."""

    service: tuple[str, str]
    targets: list[str]
    rate: float
    cost: float


def usage(runs: Sequence[PodRun], services: Services, monotonic: float, now: datetime) -> dict[str, list[Use]]:
    """Pod key → the use of its containers. `monotonic` is the loop's time of `now`; containers that started later are
    left out.
    """
    models = _models(runs, monotonic)
    load: dict[str, float] = {}
    for stream in _streams(runs, models, services, now):
        for key in stream.targets:
            load[key] = load.get(key, 0.0) + 1000.0 * stream.rate * stream.cost / len(stream.targets)
    used: dict[str, list[Use]] = {}
    for run in runs:
        if run.key in models:
            extra = load.get(run.key, 0.0)
            used[run.key] = [_use(container, model, extra, monotonic, now) for container, model in models[run.key]]
    return used


def requests(runs: Sequence[PodRun], services: Services, monotonic: float, now: datetime) -> RequestRates:
    """Who is asked how often right now."""
    by_pod: dict[str, float] = {}
    by_service: dict[tuple[str, str], float] = {}
    for stream in _streams(runs, _models(runs, monotonic), services, now):
        by_service[stream.service] = by_service.get(stream.service, 0.0) + stream.rate
        for key in stream.targets:
            by_pod[key] = by_pod.get(key, 0.0) + stream.rate / len(stream.targets)
    return RequestRates(by_pod, by_service)


def _models(runs: Sequence[PodRun], monotonic: float) -> dict[str, list[tuple[Any, Load]]]:
    models: dict[str, list[tuple[Any, Load]]] = {}
    for run in runs:
        living = [
            container
            for container in run.everything
            if container.started is not None and container.started <= monotonic
        ]
        if living:
            annotations = run.pod.metadata.annotations
            models[run.key] = [(container, load_of(container.spec, annotations)) for container in living]
    return models


def _streams(runs: Sequence[PodRun], models: _Models, services: Services, now: datetime) -> Iterator[_Stream]:
    """The requests between pods; those to a service without pods that answer load nothing."""
    generators = [
        (run, model) for run in runs for _, model in models.get(run.key, ()) if model.asks and run.stopping is None
    ]
    for run, model in generators:
        name, _, rest = model.asks.partition(".")
        namespace = rest.split(".", 1)[0] if rest else run.pod.metadata.namespace
        selector = services.get((namespace, name))
        if not selector:
            continue
        targets = [other.key for other in runs if other.key in models and _serves(other, namespace, selector)]
        cost = max((load.seconds_per_request for key in targets for _, load in models[key]), default=0.0)
        if targets:
            yield _Stream((namespace, name), targets, request_rate(model, cost, now), cost)


def _serves(run: PodRun, namespace: str, selector: Mapping[str, str]) -> bool:
    meta = run.pod.metadata
    if meta.namespace != namespace or run.stopping is not None or not all(main.ready for main in run.mains):
        return False
    return all(meta.labels.get(key) == value for key, value in selector.items())


def _use(run: Any, model: Load, extra: float, monotonic: float, now: datetime) -> Use:
    limits = run.spec.resources.get("limits", {})
    cpu = model.cpu_at(now) + (extra if model.seconds_per_request else 0.0)
    if "cpu" in limits:
        cpu = min(cpu, float(milli(limits["cpu"])))
    memory = model.memory_at(monotonic - (run.started or monotonic))
    if "memory" in limits:
        memory = min(memory, whole(limits["memory"]))
    return Use(run.spec.name, cpu, memory)


def total(uses: Iterable[Use]) -> tuple[float, int]:
    cpu, memory = 0.0, 0
    for use in uses:
        cpu += use.cpu
        memory += use.memory
    return cpu, memory
