"""What admission knows of a request: the resource as the request names it, the object before and after, who asks."""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.lab.apiserver.registry import RequestContext, ResourceType
from dovetail.lab.apiserver.request import RequestCall

Json = dict[str, Any]
Kind = tuple[str, str, str]


class Attributes(msgspec.Struct, kw_only=True):
    """One request for admission; `object` and `old_object` are in the version of `resource`, with kind and apiVersion.

    `namespace` of a Namespace is its own name.
    """

    resource: ResourceType
    kind: Kind
    subresource: str
    operation: str
    namespace: str
    name: str
    object: Json | None
    old_object: Json | None
    options: Json
    dry_run: bool
    user: Json

    @property
    def is_namespace(self) -> bool:
        return self.resource.plural == "namespaces" and not self.resource.group

    def request(self, uid: str, seen: ResourceType) -> Json:
        """The `request` of a review without its objects; `seen` is the resource in the version that a rule names."""
        own = self.resource
        kind = self.kind if seen is own else self.kind_in(seen)
        resource = {"group": seen.group, "version": seen.version, "resource": seen.plural}
        request: Json = {
            "uid": uid,
            "kind": dict(zip(("group", "version", "kind"), kind, strict=True)),
            "resource": resource,
            "subResource": self.subresource,
            "requestKind": dict(zip(("group", "version", "kind"), self.kind, strict=True)),
            "requestResource": {"group": own.group, "version": own.version, "resource": own.plural},
            "requestSubResource": self.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation,
            "userInfo": self.user,
            "dryRun": self.dry_run,
            "options": self.options or None,
        }
        for field in ("subResource", "requestSubResource", "name", "namespace"):
            if not request[field]:
                del request[field]
        return request

    def kind_in(self, seen: ResourceType) -> Kind:
        """The kind in another version of the resource; a subresource with a kind of its own keeps it."""
        if (self.resource.group, self.resource.version, self.resource.kind) != self.kind:
            return self.kind
        return seen.group, seen.version, seen.kind

    def converted(self, seen: ResourceType) -> tuple[Json | None, Json | None]:
        """The objects in the version of `seen`."""
        if seen is self.resource or self.kind_in(seen) == self.kind:
            return self.object, self.old_object
        return in_version(self.object, self.resource, seen), in_version(self.old_object, self.resource, seen)


def in_version(obj: Json | None, resource: ResourceType, other: ResourceType) -> Json | None:
    """An object of one version in another version of the same resource."""
    if obj is None or resource is other:
        return obj
    stored = obj
    if resource.storage != (resource.group, resource.version):
        stored = resource.strategy.to_storage(dict(obj), resource.version)
    shown = stored
    if other.storage != (other.group, other.version):
        shown = other.strategy.from_storage(dict(stored), other.version)
    return {**shown, "kind": other.kind, "apiVersion": other.api_version}


def attributes(
    call: RequestCall,
    obj: Json | None,
    old: Json | None,
    ctx: RequestContext,
    *,
    kind: Kind | None = None,
    name: str | None = None,
) -> Attributes:
    """Admission's view of a call; the objects are in the request's version, or of the subresource's kind."""
    resource, subresource = call.resource, call.subresource_type
    if kind is None:
        kind = (resource.group, resource.version, resource.kind)
        if subresource is not None and subresource.schema is not None:
            kind = (subresource.group, subresource.version, subresource.kind)
    given = call.name or (obj or {}).get("metadata", {}).get("name", "")
    if name is None:
        name = given
    namespace = call.namespace
    if resource.plural == "namespaces" and not resource.group:
        namespace = name
    user: Json = {"username": call.user}
    if call.uid:
        user["uid"] = call.uid
    if call.groups:
        user["groups"] = list(call.groups)
    return Attributes(
        resource=resource,
        kind=kind,
        subresource=call.subresource,
        operation=ctx.operation,
        namespace=namespace,
        name=name,
        object=_typed(obj, kind),
        old_object=_typed(old, kind),
        options=operation_options(call, ctx),
        dry_run=ctx.dry_run,
        user=user,
    )


def _typed(obj: Json | None, kind: Kind) -> Json | None:
    if obj is None:
        return None
    group, version, name = kind
    return {**obj, "kind": name, "apiVersion": f"{group}/{version}" if group else version}


_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}


def operation_options(call: RequestCall, ctx: RequestContext) -> Json:
    """The options of the write, as a review shows them."""
    if ctx.operation == "CONNECT":
        return {}
    head: Json = {"apiVersion": "meta.k8s.io/v1"}
    if ctx.operation == "DELETE":
        return {**ctx.options, "kind": "DeleteOptions", **head}
    options: Json = {"kind": _OPTIONS[ctx.operation], **head}
    query = call.request
    if query.parameter("dryRun"):
        options["dryRun"] = [value for name, value in query.query if name == "dryRun"]
    for field in ("fieldManager", "fieldValidation"):
        if query.parameter(field):
            options[field] = query.parameter(field)
    return options
