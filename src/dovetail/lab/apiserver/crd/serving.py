"""From a definition to the resource types that answer for it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.crd.jsonpath import compile_path, dotted, get
from dovetail.lab.apiserver.crd.strategy import CustomStrategy
from dovetail.lab.apiserver.crd.structural import Structural, as_schema
from dovetail.lab.apiserver.kinds import types
from dovetail.lab.apiserver.registry import Converter, CustomResourceColumn, Object, Registry, ResourceType, Subresource

_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")
_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def resource_types(definition: Object, registry: Registry) -> list[ResourceType]:
    """One type for each served version, the newest first."""
    spec = definition["spec"]
    names = definition["status"].get("acceptedNames") or spec["names"]
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    webhook = _webhook_converter(definition, registry)
    return [
        _type(definition, version, storage, names, registry, webhook)
        for version in spec["versions"]
        if version.get("served")
    ]


def _webhook_converter(definition: Object, registry: Registry) -> Converter | None:
    """The converter of a definition that asks a webhook; conversions that this process knows need none."""
    asks = (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"
    if not asks or registry.webhook_converter is None or definition["metadata"]["name"] in registry.converters:
        return None
    return registry.webhook_converter(definition)


def _type(
    definition: Object,
    version: Mapping[str, Any],
    storage: str,
    names: Mapping[str, Any],
    registry: Registry,
    webhook: Converter | None,
) -> ResourceType:
    spec = definition["spec"]
    node = _structural(version)
    kept = node if version["name"] == storage else _structural(_named(spec["versions"], storage))
    namespaced = spec["scope"] == "Namespaced"
    converter = registry.converters.get(definition["metadata"]["name"])
    strategy = CustomStrategy(version, node, kept, spec["group"], namespaced, storage, converter, webhook)
    deprecation = ""
    if version.get("deprecated"):
        api = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
        deprecation = version.get("deprecationWarning") or f"{api} is deprecated{_successor(spec, version['name'])}"
    return ResourceType(
        group=spec["group"],
        version=version["name"],
        plural=spec["names"]["plural"],
        singular=names.get("singular") or spec["names"]["kind"].lower(),
        kind=spec["names"]["kind"],
        list_kind=names.get("listKind") or f"{spec['names']['kind']}List",
        namespaced=namespaced,
        verbs=_VERBS,
        schema=as_schema(node),
        strategy=strategy,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=_subresources(version, as_schema(node), spec),
        storage=(spec["group"], storage),
        storage_plural=spec["names"]["plural"],
        custom=True,
        columns=_columns(version),
        deprecation=deprecation,
        storage_hash=_storage_hash(spec["group"], storage, spec["names"]["kind"]),
        definition=definition,
    )


def _named(versions: list[Object], name: str) -> Object:
    return next(version for version in versions if version["name"] == name)


def _structural(version: Mapping[str, Any]) -> Structural:
    raw = (version.get("schema") or {}).get("openAPIV3Schema") or {"x-kubernetes-preserve-unknown-fields": True}
    return Structural({"type": "object", **raw}, root=True)


def _age(version: str) -> tuple[int, int, int]:
    """Order of versions: stable after beta after alpha, then by number."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (-1, 0, 0)
    return ({"alpha": 0, "beta": 1}.get(match[2] or "", 2), int(match[1]), int(match[3] or 0))


def _successor(spec: Mapping[str, Any], name: str) -> str:
    newer = [
        v["name"]
        for v in spec["versions"]
        if v.get("served") and not v.get("deprecated") and _age(v["name"]) > _age(name)
    ]
    if not newer:
        return ""
    return f"; use {spec['group']}/{max(newer, key=_age)} {spec['names']['kind']}"


def _storage_hash(group: str, version: str, kind: str) -> str:
    digest = hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _columns(version: Mapping[str, Any]) -> tuple[CustomResourceColumn, ...]:
    return tuple(
        CustomResourceColumn(
            name=column["name"],
            type=column.get("type", "string"),
            path=column["jsonPath"],
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
            value=_cell(column),
        )
        for column in version.get("additionalPrinterColumns") or ()
    )


def _cell(column: Mapping[str, Any]) -> Any:
    """The cell of a column; empty where its path, which is only looked at when used, leads nowhere."""
    kind = column.get("type", "string")
    try:
        find = compile_path(column["jsonPath"])
    except ValueError:
        return lambda obj: None

    def value(obj: Object) -> Any:
        values = find(obj)
        return _cell_value(values[0], kind) if values else None

    return value


def _cell_value(value: Any, kind: str) -> Any:
    """Cells keep the column's type; what does not fit is empty."""
    if kind == "integer":
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date":
        return value if isinstance(value, str) else None
    if value is None or isinstance(value, str):
        return value
    from dovetail.model.validation.field_errors import go_json

    return go_json(value)


def _subresources(version: Mapping[str, Any], schema: Any, spec: Mapping[str, Any]) -> dict[str, Subresource]:
    subresources: dict[str, Subresource] = {}
    declared = version.get("subresources") or {}
    group, name, kind = spec["group"], version["name"], spec["names"]["kind"]
    if "status" in declared:
        subresources["status"] = Subresource(
            name="status", verbs=_SUBRESOURCE_VERBS, group=group, version=name, kind=kind
        )
    if "scale" in declared:
        subresources["scale"] = _scale(declared["scale"])
    return subresources


def _scale(paths: Mapping[str, Any]) -> Subresource:
    spec_path, current = dotted(paths["specReplicasPath"]), dotted(paths["statusReplicasPath"])
    selector = dotted(paths["labelSelectorPath"]) if paths.get("labelSelectorPath") else None

    def view(obj: Object, resource: ResourceType) -> Object:
        replicas = get(obj, spec_path)
        if replicas is None:
            raise missing_replicas(paths["specReplicasPath"])
        status: Object = {"replicas": get(obj, current) or 0}
        text = get(obj, selector) if selector else None
        if text:
            status["selector"] = text
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: obj["metadata"][key] for key in _META if key in obj["metadata"]},
            "spec": {"replicas": replicas} if replicas else {},
            "status": status,
        }

    def merge(obj: Object, body: Object, resource: ResourceType) -> Object:
        return _put(obj, spec_path, (body.get("spec") or {}).get("replicas", 0))

    schema = types.schema_of("autoscaling", "v1", "Scale")
    return Subresource(
        name="scale",
        verbs=_SUBRESOURCE_VERBS,
        group="autoscaling",
        version="v1",
        kind="Scale",
        schema=schema,
        view=view,
        merge=merge,
    )


def missing_replicas(path: str) -> Exception:
    from dovetail.lab.apiserver.registry import RequestRefused

    text = f'the spec replicas field "{path}" does not exist'
    return RequestRefused(500, "InternalError", f"Internal error occurred: {text}", {"causes": [{"message": text}]})


def _put(obj: Object, names: tuple[str, ...], value: Any) -> Object:
    """The object with a value deep inside replaced; nothing shared is changed."""
    first, *rest = names
    inner = obj.get(first)
    if not rest:
        return {**obj, first: value}
    return {**obj, first: _put(inner if isinstance(inner, dict) else {}, tuple(rest), value)}
