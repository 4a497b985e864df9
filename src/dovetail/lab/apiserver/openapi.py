"""OpenAPI: the schemas of everything served, enough for `kubectl explain`, `apply` and `diff`.

The documents are made from the same type tree that decodes requests, so they cannot disagree with it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.registry import GoField, ResourceType, Schema
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.status_errors import PlainError

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode
_SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "boolean": {"type": "boolean"},
    "number": {"type": "number", "format": "double"},
    "time": {"type": "string", "format": "date-time"},
    "microtime": {"type": "string", "format": "date-time"},
    "duration": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
}
_MACHINERY = "io.k8s.apimachinery.pkg"
#: Types that have a name of their own though they are no structs: (name, schema) by what the type tree calls them.
_NAMED: dict[str, tuple[str, Json]] = {
    "quantity": (f"{_MACHINERY}.api.resource.Quantity", {"oneOf": [{"type": "string"}, {"type": "number"}]}),
    "intorstring": (
        f"{_MACHINERY}.util.intstr.IntOrString",
        {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    ),
    "v1.FieldsV1": (f"{_MACHINERY}.apis.meta.v1.FieldsV1", {"type": "object"}),
    "runtime.RawExtension": (f"{_MACHINERY}.runtime.RawExtension", {"type": "object"}),
}
#: What every kind has, in our own words.
_WORDS = {
    "apiVersion": "The version of this object's form.",
    "kind": "What this object is.",
    "metadata": "The object's metadata.",
    "spec": "What is wanted.",
    "status": "What is there.",
}
_INFO = {"title": "Kubernetes", "version": "1.36"}


_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def old_document() -> Response:
    """For kubectl up to 1.28, which asks in protobuf and only to check fields itself.

    A document that knows no kind makes it leave that to the server, which does it better.
    """
    title, version = _INFO["title"].encode(), _INFO["version"].encode()
    info = b"\x0a" + bytes([len(title)]) + title + b"\x12" + bytes([len(version)]) + version
    body = b"\x0a\x032.0" + b"\x12" + bytes([len(info)]) + info + b"\x42\x00" + b"\x4a\x00"
    media = _PROTOBUF.replace("@", ".")  # the name that is asked for is no media type
    return Response(status=200, headers={"content-type": media, "vary": "Accept"}, body=body)


class OpenApi:
    """The index and one document for each group and version."""

    def __init__(self, server: ServerState) -> None:
        self.server = server
        self._made: dict[str, tuple[int, bytes, str]] = {}

    def handle(self, request: Request, parts: list[str]) -> Response:
        if len(parts) >= 2 and parts[1] == "v3":
            return self.index() if len(parts) == 2 else self.document("/".join(parts[2:]))
        if parts[1:] == ["v2"]:
            return old_document() if _PROTOBUF in request.headers.get("accept", "") else self.version_two()
        raise PlainError()

    def versions(self) -> list[tuple[str, str]]:
        return sorted({(resource.group, resource.version) for resource in self.server.registry.all()})

    def index(self) -> Response:
        paths: Json = {}
        for group, version in self.versions():
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = self._document(name, group, version)[1]
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"}
        headers = {"content-type": "text/plain; charset=utf-8", "cache-control": "no-cache, private"}
        return Response(status=200, headers=headers, body=_encode({"paths": paths}))

    def document(self, name: str) -> Response:
        for group, version in self.versions():
            if name == (f"apis/{group}/{version}" if group else f"api/{version}"):
                body, digest = self._document(name, group, version)
                headers = {
                    "content-type": "application/json",
                    "etag": f'"{digest}"',
                    "cache-control": "public, immutable",
                    "vary": "Accept",
                }
                return Response(status=200, headers=headers, body=body)
        raise PlainError(404, "")

    def _document(self, name: str, group: str, version: str) -> tuple[bytes, str]:
        generation = self.server.registry.generation
        made = self._made.get(name)
        custom = any(r.custom for r in self.server.registry.all() if (r.group, r.version) == (group, version))
        if made is None or (custom and made[0] != generation):
            body = _encode(self.build(group, version))
            made = self._made[name] = (generation, body, hashlib.sha512(body).hexdigest().upper())
        return made[1], made[2]

    def resources(self, group: str, version: str) -> list[ResourceType]:
        resources = [r for r in self.server.registry.all() if (r.group, r.version) == (group, version)]
        return sorted(resources, key=lambda resource: resource.plural)

    def build(self, group: str, version: str) -> Json:
        schemas: Json = {}
        paths: Json = {}
        for resource in self.resources(group, version):
            reference = define(resource, schemas)
            paths.update(paths_of(resource, reference))
        return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}

    def version_two(self) -> Response:
        """One document of all kinds, for older readers: the same schemas under another roof."""
        generation = self.server.registry.generation
        made = self._made.get("v2")
        if made is None or made[0] != generation:
            schemas: Json = {}
            for group, version in self.versions():
                schemas |= self.build(group, version)["components"]["schemas"]
            document = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": dict(sorted(schemas.items()))}
            body = _encode(document).replace(b"#/components/schemas/", b"#/definitions/")
            made = self._made["v2"] = (generation, body, hashlib.sha512(body).hexdigest().upper())
        headers = {"content-type": "application/json", "etag": f'"{made[2]}"'}
        return Response(status=200, headers=headers, body=made[1])


def gvk(resource: ResourceType, kind: str = "") -> Json:
    return {"group": resource.group, "kind": kind or resource.kind, "version": resource.version}


def define(resource: ResourceType, schemas: Json) -> str:
    """Put the kind and everything it refers to into `schemas`; the kind's own name."""
    schema = resource.schema
    if resource.custom:
        name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
        if name not in schemas:
            published = getattr(schema.custom, "published", None)
            own: Json = published() if callable(published) else inline(schema, schemas)
            own["x-kubernetes-group-version-kind"] = [gvk(resource)]
            schemas[name] = own
        return name
    name = schema.definition
    add(schema, schemas)
    schemas[name]["x-kubernetes-group-version-kind"] = [gvk(resource)]
    for word, text in _WORDS.items():
        if word in schemas[name].get("properties", {}):
            schemas[name]["properties"][word].setdefault("description", text)
    list_name = f"{name}List"
    if "list" in resource.verbs and list_name not in schemas:
        schemas[list_name] = _list(resource, name)
    return name


def _list(resource: ResourceType, name: str) -> Json:
    items = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
    properties: Json = {
        "apiVersion": {"type": "string"},
        "items": items,
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    own = gvk(resource, resource.list_kind or f"{resource.kind}List")
    return {
        "type": "object",
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": [own],
    }


def add(schema: Schema, schemas: Json) -> None:
    if schema.definition in schemas:
        return
    schemas[schema.definition] = {}
    schemas[schema.definition] = inline(schema, schemas)


def inline(schema: Schema, schemas: Json) -> Json:
    """An object's own schema."""
    out: Json = {"type": "object"}
    if schema.fields:
        out["properties"] = {name: _field(field, schemas) for name, field in sorted(schema.fields.items())}
    required = sorted(field.name for field in schema.fields.values() if field.required)
    if required:
        out["required"] = required
    if schema.map_type:
        out["x-kubernetes-map-type"] = schema.map_type
    if schema.preserve_unknown:
        out["x-kubernetes-preserve-unknown-fields"] = True
    return out


def _field(field: GoField, schemas: Json) -> Json:
    out = dict(_value(field.schema, schemas))
    if field.pointer:
        out.pop("default", None)
    elif not field.omitempty and field.schema.kind in _ZEROS:
        out["default"] = _ZEROS[field.schema.kind]
    if field.enum and "items" in out:
        out["items"] = {**out["items"], "enum": list(field.enum)}
    elif field.enum:
        out["enum"] = list(field.enum)
    if field.patch_strategy:
        out["x-kubernetes-patch-strategy"] = ",".join(field.patch_strategy)
    if field.merge_key:
        out["x-kubernetes-patch-merge-key"] = field.merge_key
    return out


def _value(schema: Schema, schemas: Json) -> Json:
    kind = schema.kind
    if kind == "object":
        if not schema.definition:
            return inline(schema, schemas)
        add(schema, schemas)
        return {"allOf": [{"$ref": f"#/components/schemas/{schema.definition}"}], "default": {}}
    if kind == "array":
        out: Json = {"type": "array", "items": _item(schema.items, schemas)}
        if schema.list_type:
            out["x-kubernetes-list-type"] = schema.list_type
        if schema.list_keys:
            out["x-kubernetes-list-map-keys"] = list(schema.list_keys)
        return out
    if kind == "map":
        out = {"type": "object", "additionalProperties": _item(schema.items, schemas)}
        if schema.map_type:
            out["x-kubernetes-map-type"] = schema.map_type
        return out
    if kind == "integer":
        return {"type": "integer", "format": f"int{schema.bits or 64}"}
    named = _NAMED.get(kind) or _NAMED.get(schema.name)
    if named is not None:
        schemas[named[0]] = named[1]
        return {"allOf": [{"$ref": f"#/components/schemas/{named[0]}"}]}
    return _SCALARS[kind]


def _item(schema: Schema | None, schemas: Json) -> Json:
    if schema is None:
        return {"type": "object"}
    value = _value(schema, schemas)
    if schema.kind in _NAMED:
        reference: Json = value["allOf"][0]
        return reference
    if schema.kind == "string":
        return {**value, "default": ""}
    return value


_ZEROS: Json = {"string": "", "integer": 0, "boolean": False, "number": 0}
_QUERY = {
    "post": ("dryRun", "fieldManager", "fieldValidation"),
    "put": ("dryRun", "fieldManager", "fieldValidation"),
    "patch": ("dryRun", "fieldManager", "fieldValidation", "force"),
    "delete": ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"),
    "get": (),
}


def paths_of(resource: ResourceType, reference: str) -> Json:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection: Json = {}
    single: Json = {}
    verbs = set(resource.verbs)
    if "list" in verbs:
        collection["get"] = _operation(resource, "get", "list", reference)
    if "create" in verbs:
        collection["post"] = _operation(resource, "post", "post", reference)
    for verb, method in (("get", "get"), ("update", "put"), ("patch", "patch"), ("delete", "delete")):
        if verb in verbs:
            single[method] = _operation(resource, method, method, reference)
    paths: Json = {f"{root}{scope}/{resource.plural}": collection}
    if single:
        paths[f"{root}{scope}/{resource.plural}/{{name}}"] = single
    return paths


def _operation(resource: ResourceType, method: str, action: str, reference: str) -> Json:
    own = {"$ref": f"#/components/schemas/{reference}"}
    content = {"application/json": {"schema": own}}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in _QUERY[method]
    ]
    operation: Json = {
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(resource),
    }
    if parameters:
        operation["parameters"] = parameters
    if method in ("post", "put"):
        operation["requestBody"] = {"content": {"*/*": {"schema": own}}, "required": True}
    elif method == "patch":
        media = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
        media += [] if resource.custom else ["application/strategic-merge-patch+json"]
        body = {media_type: {"schema": {"type": "object"}} for media_type in media}
        operation["requestBody"] = {"content": body, "required": True}
    return operation
