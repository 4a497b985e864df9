"""Namespaces end, also where no controller runs: what is in them goes first, then they do.

An API server alone has no controller manager for it, and `kubectl delete namespace` would never return.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError
from dovetail.kube.resources import NAMESPACES
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import StoreEvent
from dovetail.lab.controllers.namespaces import FINALIZER, NAMESPACE_QUIET_S, conditions, empty
from dovetail.lab.in_process import InProcess

Json = dict[str, Any]
#: Seconds between two looks at a namespace.
PAUSE = 1.0


class NamespaceFinalizer:
    """Empties and finishes namespaces that were deleted."""

    def __init__(self, server: ApiServer, token: str) -> None:
        self._server = server
        transport = InProcess(server, {"authorization": f"Bearer {token}"})
        manager = "kube-controller-manager"
        self._kube = Kube(
            transport, server.clock, chance=server.chance.child(manager), manager=manager, user_agent=manager
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        for record in self._server.store.table("/namespaces").records.values():
            self._consider(record.obj)
        self._server.store.observers.append(self._notice)

    def _notice(self, event: StoreEvent) -> None:
        if event.table == "/namespaces" and event.record is not None:
            self._consider(event.record.obj)

    def _consider(self, namespace: Json) -> None:
        name = namespace["metadata"]["name"]
        if "deletionTimestamp" in namespace["metadata"] and name not in self._tasks:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._end(name))

    async def _end(self, name: str) -> None:
        pause = NAMESPACE_QUIET_S
        try:
            while pause:
                await asyncio.sleep(pause)
                pause = PAUSE if await self._round(name) else 0.0
        finally:
            self._tasks.pop(name, None)

    async def _round(self, name: str) -> bool:
        """One look; whether there is anything left to do."""
        try:
            namespace = await self._kube.get(NAMESPACES, name)
            left = await empty(self._kube, name)
            existing = namespace["status"].get("conditions", [])
            items = conditions(left, existing, self._server.clock.now())
            if items != existing:
                body = {**namespace, "status": {**namespace["status"], "conditions": items}}
                namespace = await self._kube.update(NAMESPACES, body, subresource="status")
            if left.resources:
                return True
            rest = [finalizer for finalizer in namespace["spec"].get("finalizers", []) if finalizer != FINALIZER]
            body = {**namespace, "spec": {**namespace["spec"], "finalizers": rest}}
            await self._kube.update(NAMESPACES, body, subresource="finalize")
        except ApiError as error:
            return error.status != 404
        return False

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
