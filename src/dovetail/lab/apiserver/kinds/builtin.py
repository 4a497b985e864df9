"""The catalogue: every built-in resource type, with its schema, subresources and strategy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.lab.apiserver.kinds import types
from dovetail.lab.apiserver.kinds.strategies import strategy_of
from dovetail.lab.apiserver.kinds.subresources import subresources_of
from dovetail.lab.apiserver.registry import Registry, ResourceType, Subresource

_STORED_AS = {
    ("events.k8s.io", "events"): ("", "v1"),
    ("autoscaling", "horizontalpodautoscalers"): ("autoscaling", "v2"),
}
_METRICS: list[dict[str, Any]] = [
    {"plural": "nodes", "kind": "NodeMetrics", "namespaced": False},
    {"plural": "pods", "kind": "PodMetrics", "namespaced": True},
]


def builtin(metrics: bool = False) -> Registry:
    """A registry of every built-in kind; `metrics` adds metrics.k8s.io, which a bare server does not have."""
    return Registry(builtin_types(metrics))


def builtin_types(metrics: bool = False) -> Iterator[ResourceType]:
    """Every built-in resource type, in the order of discovery."""
    for row in types.resources():
        yield _resource(row)
    if metrics:
        for row in _METRICS:
            filled = row | {"group": "metrics.k8s.io", "version": "v1beta1", "singular": "", "verbs": ["get", "list"]}
            yield _resource(filled)


def _resource(row: dict[str, Any]) -> ResourceType:
    group, version, plural, kind = row["group"], row["version"], row["plural"], row["kind"]
    acts = subresources_of(group, plural)
    return ResourceType(
        group=group,
        version=version,
        plural=plural,
        singular=row["singular"],
        kind=kind,
        list_kind=f"{kind}List",
        namespaced=row["namespaced"],
        verbs=tuple(row["verbs"]),
        schema=types.schema_of(group, version, kind),
        strategy=strategy_of(group, version, plural),
        short_names=tuple(row.get("short", ())),
        categories=tuple(row.get("categories", ())),
        subresources={entry[0]: _subresource(row, entry, acts) for entry in row.get("sub", ())},
        storage=_STORED_AS.get((group, plural), (group, version)),
        storage_plural=plural,
        stored="list" in row["verbs"],
        storage_hash=row.get("hash", ""),
        deprecation=_DEPRECATED.get((group, plural), ""),
    )


_DEPRECATED = {
    ("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    ("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
}


def _subresource(row: dict[str, Any], entry: list[Any], acts: dict[str, dict[str, Any]]) -> Subresource:
    name, group, version, kind, verbs = entry
    group, version = (group, version) if version else (row["group"], row["version"])
    is_registered = kind not in ("PodAttachOptions", "PodExecOptions", "PodPortForwardOptions", "NodeProxyOptions")
    proxied = kind.endswith("ProxyOptions") or not is_registered
    return Subresource(
        name=name,
        verbs=tuple(verbs),
        group=group,
        version=version,
        kind=kind,
        schema=None if proxied else types.schema_of(group, version, kind),
        **acts.get(name, {}),
    )
