"""Disruption budgets are honoured by evictions: counted from the pods themselves, beside the server's own books.

A ready pod that is evicted must have been charged to its budget, and must leave as many healthy ones as the budget
asks for. A status that is too high because the controller has not run yet is no violation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dovetail.lab.apiserver.store import ObjectStore, StoreEvent
from dovetail.language import message
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]

PODS, BUDGETS = "/pods", "policy/poddisruptionbudgets"


class _Guard(msgspec.Struct):
    """A budget, and the healthy pods it selects."""

    selector: Json
    matcher: LabelSelector
    status: Json
    healthy: dict[str, None]


class PdbCheck:
    """Follows budgets and pods; costs what changed, times the budgets of a namespace."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._spaces: dict[str, dict[str, _Guard]] = {}

    def written(self, event: StoreEvent) -> Iterator[str]:
        if event.table == BUDGETS:
            yield from self._budget(event)
        elif event.table == PODS and self._spaces:
            yield from self._pod(event)

    def _budget(self, event: StoreEvent) -> Iterator[str]:
        namespace, _, name = event.key.partition("/")
        guards = self._spaces.setdefault(namespace, {})
        if event.record is None:
            guards.pop(name, None)
            if not guards:
                del self._spaces[namespace]
            return
        budget = event.record.obj
        selector, status = budget["spec"].get("selector"), budget.get("status", {})
        allowed = status.get("disruptionsAllowed", 0)
        if allowed < 0:
            yield message("budget {event} allows {allowed} disruptions", event=event.key, allowed=allowed)
        guard = guards.get(name)
        if guard is not None and guard.selector == selector:
            guard.status = status
            return
        matcher = LabelSelector() if selector is None else msgspec.convert(selector, LabelSelector)
        records = self._store.table(PODS).under(f"{namespace}/")
        healthy = {
            record.key: None for record in records if _healthy(record.obj) and matcher.matches(_labels(record.obj))
        }
        guards[name] = _Guard(selector, matcher, status, {} if selector is None else healthy)

    def _pod(self, event: StoreEvent) -> Iterator[str]:
        namespace, _, name = event.key.partition("/")
        pod = event.record.obj if event.record is not None else None
        for budget, guard in self._spaces.get(namespace, {}).items():
            counted = event.key in guard.healthy
            if pod is not None and counted and _evicted(pod) and not _evicted(_before(event)):
                yield from _eviction_violations(f"{namespace}/{budget}", guard, name)
            if pod is not None and _healthy(pod) and guard.selector is not None and guard.matcher.matches(_labels(pod)):
                guard.healthy[event.key] = None
            elif counted:
                del guard.healthy[event.key]


def _eviction_violations(budget: str, guard: _Guard, name: str) -> Iterator[str]:
    charged: Iterable[str] = guard.status.get("disruptedPods", ())
    if name not in charged:
        yield message("pod {name} was evicted without being charged to budget {budget}", name=name, budget=budget)
    going = {*charged, name}
    left = sum(key.partition("/")[2] not in going for key in guard.healthy)
    desired_healthy = guard.status.get("desiredHealthy", 0)
    overstated = guard.status.get("currentHealthy", 0) > len(guard.healthy)
    if left < desired_healthy and not overstated:
        yield message(
            "pod {name} was evicted, and {left} of the {wanted} that budget {budget} asks for are left",
            name=name,
            left=left,
            wanted=desired_healthy,
            budget=budget,
        )


def _labels(pod: Json) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _before(event: StoreEvent) -> Json:
    return event.previous.obj if event.previous is not None else {}


def _healthy(pod: Json) -> bool:
    """Ready and not on the way out."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _evicted(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(
        condition.get("reason") == "EvictionByEvictionAPI" and condition["status"] == "True" for condition in conditions
    )
