"""A cloud that is only asked: what a dry run is given. A call that would change an account is refused, not sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NoReturn

from dovetail.cloud.provider import (
    Cloud,
    CloudError,
    Instance,
    Interruption,
    LaunchRequest,
    NodeClassStatus,
    NodeRole,
    Remedy,
    RepairPolicy,
)
from dovetail.cloud.unavailable_offerings import UnavailableOfferings
from dovetail.model.instance_type import InstanceType


def _refuse(action: str) -> NoReturn:
    raise CloudError("DryRun", f"{action}: not sent, a dry run changes nothing in the cloud", Remedy.OPERATOR)


class ReadOnlyCloud:
    """Passes questions on. Resolving a NodeClass creates profiles and templates, so it counts as a change."""

    def __init__(self, inner: Cloud) -> None:
        self._inner = inner
        self.name = inner.name
        self.node_class_required = inner.node_class_required
        self.unavailable: UnavailableOfferings = inner.unavailable

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]:
        return await self._inner.instance_types(node_pool, node_class)

    async def get(self, provider_id: str) -> Instance:
        return await self._inner.get(provider_id)

    async def instances(self) -> tuple[Instance, ...]:
        return await self._inner.instances()

    async def drift(self, claim: Mapping[str, Any], instance: Instance, node_class: Mapping[str, Any]) -> str | None:
        return await self._inner.drift(claim, instance, node_class)

    async def node_role(self, node_class: Mapping[str, Any]) -> NodeRole | None:
        return await self._inner.node_role(node_class)

    async def unhealthy(self) -> Sequence[Interruption]:
        return await self._inner.unhealthy()

    def repair_policies(self) -> tuple[RepairPolicy, ...]:
        return self._inner.repair_policies()

    async def interruptions(self) -> AsyncIterator[Sequence[Interruption]]:
        """None: receiving a message hides it from the autoscaler that acts on it."""
        return
        yield ()

    async def launch(self, launch: LaunchRequest) -> Instance:
        _refuse("launch")

    async def terminate(self, provider_id: str) -> None:
        _refuse(f"terminate {provider_id}")

    async def reboot(self, provider_id: str, operation: str) -> None:
        _refuse(f"reboot {provider_id}")

    async def resolve(
        self, node_class: Mapping[str, Any], node_pools: Sequence[Mapping[str, Any]] = ()
    ) -> NodeClassStatus:
        _refuse("resolve")

    async def release(self, node_class: Mapping[str, Any]) -> None:
        _refuse("release")

    async def acknowledge(self, messages: Sequence[Interruption]) -> None:
        _refuse("acknowledge")
