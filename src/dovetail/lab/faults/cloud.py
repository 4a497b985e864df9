"""A faulty cloud provider: the simulated one with the answers that have taken down whole fleets.

Empty lists, a page too few, false words about drift, answers that get lost after the deed, lost permission. Each
lapse has a name and ends by itself; without one the cloud is the plain one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from dovetail.cloud.provider import CloudError, Instance, InstanceNotFound, Interruption, LaunchRequest, Remedy
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.lab.faults.kinds import FORMER_KINDS, UnknownFault
from dovetail.language import message, source
from dovetail.model.instance_type import InstanceType

#: What can be wrong with the cloud, in words.
LAPSES: Mapping[str, str] = {
    "empty-types": source("says that nothing is for sale"),
    "half-types": source("forgets half of what is for sale"),
    "shared-types": source("returns one shared list, which a caller empties"),
    "half-instances": source("forgets half of the instances"),
    "empty-instances": source("lists none of the instances, as with credentials of another account"),
    "false-drift": source("reports that every instance has the wrong image"),
    "lost-answers": source("launches and terminates, and the answer is lost"),
    "denied": source("denies every call"),
    "unreachable": source("does not answer"),
}
#: The drift that this cloud reports and that never is.
FALSE_DRIFT = "AMIDrift"
#: Seconds after which a shared list is emptied.
EMPTIED_AFTER = 1.0


async def _nothing() -> None:
    return


class FaultyCloud(SimulatedCloud):
    """`lapses` are those that began, each with its end; `given_up` are instances that others deleted."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.lapses: dict[str, float] = {}
        self.given_up: set[str] = set()
        #: Instances that fail their status checks.
        self.unhealthy_instances: set[str] = set()
        #: Called with the id of every instance whose termination is requested.
        self.on_terminate: Callable[[str], None] = lambda provider_id: None
        #: Awaited after every launch and termination, before its caller has the answer.
        self.on_mutation: Callable[[], Awaitable[None]] = _nothing
        #: Called with the token of every launch that is refused, and why.
        self.on_refuse: Callable[[str, str], None] = lambda token, reason: None

    def err(self, kind: str, seconds: float) -> str:
        """Begin a lapse; returns what it is, in words."""
        kind = FORMER_KINDS.get(kind, kind)
        if kind not in LAPSES:
            raise UnknownFault(
                message("no lapse {kind!r} of a cloud; there are {lapses}", kind=kind, lapses=", ".join(sorted(LAPSES)))
            )
        self.lapses[kind] = self._clock.monotonic() + seconds
        return message("the cloud {lapse} for {seconds:g} s", lapse=message(LAPSES[kind]), seconds=seconds)

    def _errs(self, kind: str) -> bool:
        return self._clock.monotonic() < self.lapses.get(kind, 0.0)

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]:
        types = await super().instance_types(node_pool, node_class)
        if self._errs("empty-types"):
            return ()
        if self._errs("shared-types"):
            return self._shared(types)
        return types[: len(types) // 2] if self._errs("half-types") else types

    def _shared(self, types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
        handed = list(types)
        asyncio.get_running_loop().call_later(EMPTIED_AFTER, handed.clear)
        return cast("tuple[InstanceType, ...]", handed)

    async def instances(self) -> tuple[Instance, ...]:
        instances = await super().instances()
        if self._errs("empty-instances"):
            return ()
        return instances[: len(instances) // 2] if self._errs("half-instances") else instances

    async def get(self, provider_id: str) -> Instance:
        instance = await super().get(provider_id)
        if self._errs("empty-instances"):
            raise InstanceNotFound(provider_id)
        return instance

    async def drift(self, claim: Mapping[str, Any], instance: Instance, node_class: Mapping[str, Any]) -> str | None:
        return FALSE_DRIFT if self._errs("false-drift") else None

    async def launch(self, launch: LaunchRequest) -> Instance:
        try:
            instance = await super().launch(launch)
            await self.on_mutation()
            self._lose("launch")
        except CloudError as problem:
            self.on_refuse(launch.token, problem.reason)
            raise
        return instance

    async def terminate(self, provider_id: str) -> None:
        self.on_terminate(provider_id)
        await super().terminate(provider_id)
        await self.on_mutation()
        self._lose("terminate")

    def interrupt(self, ids: Sequence[str], kind: str = "spot-interruption") -> None:
        instance_ids = tuple(id_.rsplit("/", 1)[-1] for id_ in ids)
        self.given_up |= {
            instance.provider_id for instance in self.standing() if instance.provider_id.endswith(instance_ids)
        }
        super().interrupt(ids, kind)

    def _lose(self, call: str) -> None:
        if self._errs("lost-answers"):
            raise CloudError("RequestTimeout", message("{call}: no answer within 30 s", call=call), Remedy.RETRY)

    async def unhealthy(self) -> Sequence[Interruption]:
        ids = tuple(
            instance.provider_id for instance in self.standing() if instance.provider_id in self.unhealthy_instances
        )
        return (Interruption(kind="status-check-failed", provider_ids=ids, received=self._clock.now()),) if ids else ()

    async def _call(self, name: str) -> None:
        await super()._call(name)
        if self._errs("denied"):
            text = message("{name}: you are not authorized to perform this operation", name=name)
            raise CloudError("UnauthorizedOperation", text, Remedy.OPERATOR)
        if self._errs("unreachable"):
            raise CloudError("ConnectTimeout", message("{name}: the endpoint does not answer", name=name), Remedy.RETRY)
