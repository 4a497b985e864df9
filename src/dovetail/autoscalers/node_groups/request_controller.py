"""The controller of ProvisioningRequests: one open request a loop, bookings of those that were provisioned, their end.

Where the kind is not installed, or may not be read, there are no requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.autoscalers.node_groups.balancing import Increase
from dovetail.autoscalers.node_groups.provisioning_requests import (
    ACCEPTED_VERDICT,
    CHECK_CAPACITY,
    FOUND,
    GIVEN_UP,
    NOT_FOUND,
    SCALED_UP,
    PodTemplate,
    ProvisioningRequest,
    RequestCondition,
    broken,
    conditions,
    consumed,
    ended,
    is_booked,
    is_obsolete,
    is_open,
    pods_of,
)
from dovetail.autoscalers.node_groups.scale_up import ScaleUpInput, ScaleUpResult, plan_scale_up
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.kube.client import Kube
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import PODTEMPLATES, PROVISIONINGREQUESTS
from dovetail.model.meta import stamp
from dovetail.model.pods import Pod


class RequestBackoff(msgspec.Struct, frozen=True):
    """How long a request for which no capacity was found waits. Seconds."""

    initial_s: float = 60.0
    longest_s: float = 600.0


class ProvisioningRequestController:
    """`log` takes lines."""

    def __init__(self, kube: Kube, backoff: RequestBackoff, log: Callable[[str], None]) -> None:
        self._kube = kube
        self._backoff = backoff
        self._log = log
        self._requests: Reflector[ProvisioningRequest] = Reflector(kube, PROVISIONINGREQUESTS, ProvisioningRequest)
        self._templates: Reflector[PodTemplate] = Reflector(kube, PODTEMPLATES, PodTemplate)
        self._requests.optional = self._templates.optional = True
        #: When a request is tried again, and after which wait.
        self._waits: dict[str, tuple[datetime, float]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in (self._requests, self._templates):
                group.create_task(reflector.run(), name=f"watch {reflector.resource.name}")

    def _pods(self, request: ProvisioningRequest) -> list[Pod] | str:
        return pods_of(request, {template.metadata.key: template for template in self._templates.store})

    def booked_pods(self, pods: Iterable[Pod], now: datetime) -> list[Pod]:
        """Pods that stand for booked capacity; those that were created meanwhile stand for themselves."""
        created: dict[str, int] = {}
        for pod in pods:
            name = consumed(pod)
            if name and not pod.finished:
                key = f"{pod.metadata.namespace}/{name}"
                created[key] = created.get(key, 0) + 1
        booked: list[Pod] = []
        for request in self._requests.store:
            if is_booked(request, now):
                made = self._pods(request)
                booked += made[created.get(request.metadata.key, 0) :] if isinstance(made, list) else []
        return booked

    async def end_expired(self, now: datetime) -> None:
        """Bookings and requests that have had their time."""
        for request in list(self._requests.store):
            if is_obsolete(request, now):
                await self._delete(request)
            elif (verdict := ended(request, now)) is not None:
                await self._settle(request, (verdict,), now)

    async def serve(
        self,
        snapshot: ClusterSnapshot,
        scale_up_input: ScaleUpInput,
        increase: Callable[[Sequence[Increase]], Awaitable[bool]],
        now: datetime,
    ) -> bool:
        """Find capacity for the oldest open request; whether groups were resized for it."""
        request = self._next(now)
        if request is None:
            return False
        pods = self._pods(request)
        if isinstance(pods, str):
            await self._settle(request, (broken(pods),), now)
            return False
        snapshot.fork()
        placed = snapshot.schedule(pods)
        left = [pod for pod in pods if (pod.metadata.uid or pod.metadata.key) not in placed]
        if not left:
            snapshot.commit()
            await self._settle(request, (ACCEPTED_VERDICT, FOUND), now)
            return False
        if request.spec.provisioning_class_name == CHECK_CAPACITY:
            snapshot.revert()
            await self._refuse(request, now)
            return False
        plan = plan_scale_up(left, scale_up_input, all_or_nothing=True)
        snapshot.revert()
        if plan.result is ScaleUpResult.SUCCESSFUL and await increase(plan.increases):
            await self._settle(request, (ACCEPTED_VERDICT, SCALED_UP), now)
            return True
        await self._refuse(request, now)
        return False

    def _next(self, now: datetime) -> ProvisioningRequest | None:
        waiting = [
            request
            for request in self._requests.store
            if is_open(request) and self._waits.get(request.metadata.uid, (now, 0.0))[0] <= now
        ]
        return min(
            waiting,
            key=lambda request: (request.metadata.creation_timestamp or now, request.metadata.key),
            default=None,
        )

    async def _refuse(self, request: ProvisioningRequest, now: datetime) -> None:
        verdicts = (ACCEPTED_VERDICT, NOT_FOUND) if request.retries else (ACCEPTED_VERDICT, NOT_FOUND, GIVEN_UP)
        earlier = self._waits.get(request.metadata.uid, (now, 0.0))[1]
        wait = min(2 * earlier, self._backoff.longest_s) if earlier else self._backoff.initial_s
        self._waits[request.metadata.uid] = now + timedelta(seconds=wait), wait
        await self._settle(request, verdicts, now)

    async def _settle(self, request: ProvisioningRequest, verdicts: Sequence[RequestCondition], now: datetime) -> None:
        meta = request.metadata
        try:
            there: dict[str, Any] = await self._kube.get(PROVISIONINGREQUESTS, meta.name, meta.namespace, type=dict)
            status = {**(there.get("status") or {}), "conditions": conditions(request, verdicts, stamp(now))}
            written = await self._kube.update(
                PROVISIONINGREQUESTS, {**there, "status": status}, subresource="status", type=ProvisioningRequest
            )
        except (Conflict, NotFound):
            return  # it changed meanwhile; the next loop looks at it again
        except KubeError as problem:
            self._log(f"status of ProvisioningRequest {meta.key} not written: {problem}")
            return
        self._requests.store.put(meta.key, written)  # the next loop must not serve it again before the watch tells
        self._log(f"ProvisioningRequest {meta.key}: {verdicts[-1].kind} {verdicts[-1].reason}")

    async def _delete(self, request: ProvisioningRequest) -> None:
        meta = request.metadata
        try:
            await self._kube.delete(PROVISIONINGREQUESTS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return
        except KubeError as problem:
            self._log(f"ProvisioningRequest {meta.key} not deleted: {problem}")
