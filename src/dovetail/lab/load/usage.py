"""Who uses what right now: every running container's CPU and memory, with requests shared among a service's pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.kubelet.pod_worker import PodRun
from dovetail.lab.load.model import Load, demand, load_of
from dovetail.model.quantity import milli, whole


class Use(msgspec.Struct, frozen=True):
    """A container's use: milli-CPU and bytes."""

    name: str
    cpu: float
    memory: int


#: Services as (namespace, name) to their selectors.
Services = Mapping[tuple[str, str], Mapping[str, str]]


def usage(runs: Sequence[PodRun], services: Services, at: float, now: datetime) -> dict[str, list[Use]]:
    """Pod key → the use of its containers. `at` is the loop's time of `now`; who started later is left out."""
    models: dict[str, list[tuple[Any, Load]]] = {}
    for run in runs:
        living = [each for each in run.everything if each.started is not None and each.started <= at]
        if living:
            models[run.key] = [(each, load_of(each.spec, run.pod.metadata.annotations)) for each in living]
    asked = _asked(runs, models, services, now)
    found: dict[str, list[Use]] = {}
    for run in runs:
        if run.key in models:
            extra = asked.get(run.key, 0.0)
            found[run.key] = [_use(each, model, extra, at, now) for each, model in models[run.key]]
    return found


def _asked(
    runs: Sequence[PodRun], models: Mapping[str, list[tuple[Any, Load]]], services: Services, now: datetime
) -> dict[str, float]:
    """Pod key → milli-CPU of requests from elsewhere."""
    asked: dict[str, float] = {}
    generators = [
        (run, model) for run in runs for _, model in models.get(run.key, ()) if model.asks and run.stopping is None
    ]
    for run, model in generators:
        name, _, rest = model.asks.partition(".")
        namespace = rest.split(".", 1)[0] if rest else run.pod.metadata.namespace
        selector = services.get((namespace, name))
        if not selector:
            continue
        targets = [each for each in runs if each.key in models and _serves(each, namespace, selector)]
        cost = max((model.seconds_per_request for each in targets for _, model in models[each.key]), default=0.0)
        if targets and cost:
            share = demand(model, cost, now) / len(targets)
            for each in targets:
                asked[each.key] = asked.get(each.key, 0.0) + share
    return asked


def _serves(run: PodRun, namespace: str, selector: Mapping[str, str]) -> bool:
    meta = run.pod.metadata
    if meta.namespace != namespace or run.stopping is not None or not all(each.ready for each in run.mains):
        return False
    return all(meta.labels.get(key) == value for key, value in selector.items())


def _use(each: Any, model: Load, extra: float, at: float, now: datetime) -> Use:
    limits = each.spec.resources.get("limits", {})
    cpu = model.cpu_at(now) + (extra if model.seconds_per_request else 0.0)
    if "cpu" in limits:
        cpu = min(cpu, float(milli(limits["cpu"])))
    memory = model.memory_at(at - (each.started or at))
    if "memory" in limits:
        memory = min(memory, whole(limits["memory"]))
    return Use(each.spec.name, cpu, memory)


def total(uses: Iterable[Use]) -> tuple[float, int]:
    cpu, memory = 0.0, 0
    for use in uses:
        cpu += use.cpu
        memory += use.memory
    return cpu, memory
