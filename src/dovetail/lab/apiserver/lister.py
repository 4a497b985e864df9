"""The stored objects as the hooks of kinds see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dovetail.lab.apiserver import create_update, deletion, managedfields
from dovetail.lab.apiserver.registry import RequestContext, ResourceType
from dovetail.lab.apiserver.request import table_of
from dovetail.lab.apiserver.server_state import ServerState

Json = dict[str, Any]


class StoredCluster:
    """Reads straight from the store; writes as the server itself, past admission."""

    def __init__(self, server: ServerState) -> None:
        self.server = server
        self._known: dict[tuple[str, str], ResourceType | None] = {}
        #: Asked for the ClusterRoles that a user has in a namespace without a binding.
        self.role_sources: list[Callable[[str, str], Iterable[str]]] = []
        server.registry.on_change(self._known.clear)

    def _stored(self, group: str, plural: str) -> ResourceType | None:
        key = (group, plural)
        if key not in self._known:
            self._known[key] = self.server.registry.stored(group, plural)
        return self._known[key]

    def _resource(self, group: str, plural: str) -> ResourceType:
        stored = self._stored(group, plural)
        if stored is None:
            raise LookupError(f"no resource {plural}.{group}")
        return stored

    def _context(self, resource: ResourceType, namespace: str | None, name: str, operation: Any) -> RequestContext:
        server = self.server
        return RequestContext(
            operation=operation,
            resource=resource,
            namespace=namespace,
            name=name,
            now=server.clock.now(),
            chance=server.chance,
            cluster=self,
            registry=server.registry,
            user="system:apiserver",
            groups=("system:masters",),
            defer=server.defer,
        )

    def get(self, group: str, plural: str, namespace: str | None, name: str) -> Json | None:
        resource = self._stored(group, plural)
        if resource is None:
            return None
        record = self.server.store.get(table_of(resource), f"{namespace}/{name}" if namespace else name)
        return None if record is None else record.obj

    def list(self, group: str, plural: str, namespace: str | None = None) -> Iterable[Json]:
        resource = self._stored(group, plural)
        if resource is None:
            return
        prefix = f"{namespace}/" if namespace else ""
        for record in self.server.store.table(table_of(resource)).under(prefix):
            yield record.obj

    def granted_roles(self, user: str, namespace: str) -> Iterable[str]:
        return (role for source in self.role_sources for role in source(user, namespace))

    def create(self, group: str, plural: str, obj: Json) -> Json:
        resource = self._resource(group, plural)
        metadata = obj.setdefault("metadata", {})
        ctx = self._context(resource, metadata.get("namespace"), metadata.get("name", ""), "CREATE")
        create_update.fill_metadata(obj, ctx, {})
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        key = create_update.key_of(resource, obj)
        stored = self.server.store.put(table_of(resource), key, obj).obj
        resource.strategy.committed(stored, None, ctx)
        return stored

    def update(self, group: str, plural: str, obj: Json, manager: str = "") -> Json:
        resource = self._resource(group, plural)
        key = create_update.key_of(resource, obj)
        table = table_of(resource)
        record = self.server.store.get(table, key)
        if record is None:
            raise LookupError(f"{resource.qualified} {key} is not there to be updated")
        if obj == record.obj:
            return record.obj
        ctx = self._context(resource, obj["metadata"].get("namespace"), obj["metadata"]["name"], "UPDATE")
        if manager:
            managedfields.track_update(resource, record.obj, obj, manager, "", ctx.now, self.server.registry)
        old = record.obj
        stored = self.server.store.put(table, key, obj).obj
        resource.strategy.committed(stored, old, ctx)
        return stored

    def reread(self, group: str, plural: str) -> None:
        """Read stored objects again by a schema that changed: its new defaults show, what it dropped does not."""
        resource = self._stored(group, plural)
        if resource is not None:
            strategy, version = resource.strategy, resource.storage[1]

            def read(obj: Json) -> Json:
                """What a webhook would have to convert stays as it is, and is converted when it is read."""
                return strategy.to_storage(obj, version) if strategy.is_current(obj) else obj

            self.server.store.reread(table_of(resource), read)

    def take(self, group: str, plural: str, namespace: str | None, name: str) -> None:
        """Remove what nothing holds any more."""
        resource = self._resource(group, plural)
        ctx = self._context(resource, namespace, name, "UPDATE")
        key = f"{namespace}/{name}" if namespace else name
        record = self.server.store.get(table_of(resource), key)
        if record is not None:
            self.server.store.delete(table_of(resource), key)
            resource.strategy.committed(None, record.obj, ctx)

    def delete(self, group: str, plural: str, namespace: str | None, name: str, options: Json) -> Json:
        resource = self._resource(group, plural)
        ctx = self._context(resource, namespace, name, "DELETE")
        return deletion.delete_object(self.server, resource, namespace or "", name, options, ctx).body
