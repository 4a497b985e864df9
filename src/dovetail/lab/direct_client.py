"""The lab's own client: what is done to many pods is given to a server in the same process without a request.

Over any other transport, and for anything else, it is `kube.client.Kube`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from typing_extensions import TypeVar

from dovetail.kube.client import Body, Kube, PatchKind
from dovetail.kube.decode import AS_DICT, decode
from dovetail.kube.resources import PODS, Resource
from dovetail.kube.transport import Transport

T = TypeVar("T", default=dict[str, Any])


@runtime_checkable
class DirectTransport(Protocol):
    """Each method may decline, and leaves no trace then: the request goes the usual way."""

    def cast(self, namespace: str, body: bytes, type: type[T]) -> T | None:
        """Make a pod from bytes that another was made from before."""

    def bind(self, namespace: str, name: str, node: str, uid: str | None) -> bool: ...

    def report(self, namespace: str, name: str, body: Mapping[str, Any]) -> bool:
        """Apply a strategic patch to a pod's status."""

    def update_status(self, resource: Resource, body: Mapping[str, Any]) -> bytes | None:
        """Replace the status of an object; the stored object."""


class DirectKube(Kube):
    """A client that asks the transport first whether it takes a write without a request."""

    def __init__(self, transport: Transport, *arguments: Any, **options: Any) -> None:
        super().__init__(transport, *arguments, **options)
        self._direct = transport if self.fence is None and isinstance(transport, DirectTransport) else None

    def fenced(self, check: Callable[[], None]) -> Kube:
        return self._by_request(super().fenced(check))

    def read_only(self) -> Kube:
        return self._by_request(super().read_only())

    def _by_request(self, twin: Kube) -> Kube:
        """A twin whose every write is a request, so that it can be refused."""
        assert isinstance(twin, DirectKube)
        twin._direct = None
        return twin

    async def create(
        self,
        resource: Resource,
        body: Body,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        type: type[T] = AS_DICT,
    ) -> T:
        if self._direct is not None and isinstance(body, bytes) and resource is PODS and namespace and not dry_run:
            made = self._direct.cast(namespace, body, type)
            if made is not None:
                return made
        return await super().create(resource, body, namespace, dry_run=dry_run, type=type)

    async def update(
        self, resource: Resource, body: Body, *, subresource: str | None = None, type: type[T] = AS_DICT
    ) -> T:
        if self._direct is not None and subresource == "status" and isinstance(body, Mapping):
            written = self._direct.update_status(resource, body)
            if written is not None:
                return decode(written, type)
        return await super().update(resource, body, subresource=subresource, type=type)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        namespace: str | None = None,
        *,
        kind: PatchKind = "merge",
        subresource: str | None = None,
        manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        type: type[T] = AS_DICT,
    ) -> T:
        is_status = resource is PODS and subresource == "status" and kind == "strategic" and not dry_run
        direct = self._direct if is_status else None
        if direct is not None and isinstance(body, Mapping) and direct.report(namespace or "", name, body):
            return decode(b"{}", type)
        return await super().patch(
            resource,
            name,
            body,
            namespace,
            kind=kind,
            subresource=subresource,
            manager=manager,
            force=force,
            dry_run=dry_run,
            type=type,
        )

    def bind_at_once(self, pod: str, namespace: str, node: str, uid: str | None = None) -> bool:
        """Bind without waiting, where the transport can; whether it was done."""
        return self._direct is not None and self._direct.bind(namespace, pod, node, uid)

    async def bind(self, pod: str, namespace: str, node: str, uid: str | None = None) -> None:
        if not self.bind_at_once(pod, namespace, node, uid):
            await super().bind(pod, namespace, node, uid)
