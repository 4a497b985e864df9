"""The loop around the decision: every autoscaler is looked at every fifteen seconds, the first time after as long.

It keeps two things in memory: what each autoscaler wished and did lately, and which pods each selects, because
two autoscalers for the same pods must both refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.autoscalers.hpa.decision import (
    HpaEvent,
    PodSelectionError,
    ScaleDecision,
    decide,
    metrics_wanted,
    unscalable,
    unselective,
)
from dovetail.autoscalers.hpa.limits import ScaleHistory
from dovetail.autoscalers.hpa.proposal import Reading
from dovetail.autoscalers.hpa.sources import NoScale, Sources, Targets, said
from dovetail.autoscalers.hpa.spec import HorizontalPodAutoscaler, HpaFlags, HpaStatus
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import BadRequest, KubeError
from dovetail.kube.log import Log
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import HPAS, PODS
from dovetail.model.meta import ObjectMeta
from dovetail.model.pods import Pod
from dovetail.model.selector import LabelQuery, SelectorError, parse_labels

log = Log(__name__)

#: Records an event about an autoscaler.
Say = Callable[[HorizontalPodAutoscaler, HpaEvent], None]


class HorizontalAutoscaling:
    """`run` looks after every HorizontalPodAutoscaler until cancelled."""

    def __init__(self, kube: Kube, clock: Clock, say: Say, settings: HpaFlags | None = None) -> None:
        self._kube = kube
        self._clock = clock
        self._say = say
        self._settings = settings or HpaFlags()
        self._targets = Targets(kube)
        self._sources = Sources(kube, self._targets)
        self._reflector = Reflector(kube, HPAS, HorizontalPodAutoscaler, on_event=self._on_change)
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._history: dict[str, ScaleHistory] = {}
        self._selectors: dict[str, LabelQuery] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            await self._reflector.run()

    def _on_change(self, change: CacheChange[HorizontalPodAutoscaler]) -> None:
        assert self._tasks is not None
        if change.kind == "added":
            self._watched[change.key] = self._tasks.create_task(self._look_after(change.key), name=f"hpa {change.key}")
        elif change.kind == "deleted":
            self._watched.pop(change.key).cancel()
            self._history.pop(change.key, None)
            self._selectors.pop(change.key, None)

    async def _look_after(self, key: str) -> None:
        while True:
            await asyncio.sleep(self._settings.sync_period)
            hpa = self._reflector.store.get(key)
            try:
                if hpa is not None:
                    await self.look(hpa)
            except KubeError as error:
                log.info("autoscaler not looked at", hpa=key, problem=str(error))

    async def look(self, hpa: HorizontalPodAutoscaler) -> None:
        """Measure, decide, write, say."""
        decision = await self._decided(hpa)
        self._history[hpa.metadata.key] = decision.history
        for saying in decision.sayings:
            self._say(hpa, saying)
        await self._write(hpa, decision.status())

    async def _decided(self, hpa: HorizontalPodAutoscaler) -> ScaleDecision:
        now = self._clock.now()
        namespace, history = hpa.metadata.namespace, self._history.get(hpa.metadata.key, ScaleHistory())
        try:
            resource, scale = await self._targets.read(namespace, hpa.spec.scale_target_ref)
        except NoScale as error:
            return unscalable(hpa, str(error), history, now)
        pods: list[Pod] = []
        readings: list[Reading] = []
        if metrics_wanted(hpa, scale, self._settings):
            selector = scale.status.selector
            try:
                pods = await self._selected(hpa.metadata, selector)
            except PodSelectionError as problem:
                return unselective(hpa, scale, problem, history, now)
            readings = await self._sources.readings(hpa.spec.metrics, namespace, selector, now)
        decision = decide(hpa, scale, readings, pods, history, now, self._settings)
        if decision.replicas is None:
            return decision
        try:
            await self._targets.write(resource, scale, decision.replicas)
        except NoScale as error:
            return decision.refused(str(error), now)
        return decision.rescaled(now, self._settings)

    async def _selected(self, who: ObjectMeta, selector: str) -> list[Pod]:
        """The pods of a workload. PodSelectionError without a readable selector, or if two autoscalers have them."""
        if not selector:
            raise PodSelectionError(
                "SelectorRequired", "selector is required", "the HPA target's scale is missing a selector"
            )
        try:
            pods = (await self._kube.list(PODS, who.namespace, labels=selector, type=Pod)).items
            self._selectors[who.key] = parse_labels(selector)
        except (BadRequest, SelectorError) as error:
            problem = said(error, f"list {PODS.name}")
            text = f"couldn't convert selector into a corresponding internal selector object: {problem}"
            raise PodSelectionError("InvalidSelector", text) from error
        prefix = f"{who.namespace}/"
        claiming = sorted(
            other
            for other, query in self._selectors.items()
            if other.startswith(prefix) and any(query.matches(pod.metadata.labels) for pod in pods)
        )
        if len(claiming) > 1:
            text = f"pods by selector {selector} are controlled by multiple HPAs: [{' '.join(claiming)}]"
            raise PodSelectionError("AmbiguousSelector", text)
        return pods

    async def _write(self, hpa: HorizontalPodAutoscaler, status: HpaStatus) -> None:
        if status == hpa.status:
            return
        meta = hpa.metadata
        spelled: dict[str, Any] = msgspec.to_builtins(status)
        if status.last_scale_time is None:
            del spelled["lastScaleTime"]
        try:
            body = {"metadata": {"resourceVersion": meta.resource_version}, "status": spelled}
            await self._kube.patch(HPAS, meta.name, body, meta.namespace, subresource="status")
        except KubeError as error:
            self._say(hpa, HpaEvent("Warning", "FailedUpdateStatus", said(error, f"patch {HPAS.name}")))
