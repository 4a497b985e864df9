"""Field ownership of the replicas after a write through the scale subresource.

A scale is a view of another object, and its owners are a view of that one's: they go through the scale's own version
and back, and fields that do not survive the conversion are kept apart.
"""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver import fieldpath, managedfields
from dovetail.lab.apiserver.fieldpath import Node, Path
from dovetail.lab.apiserver.managedfields import Manager, Managers, Owned
from dovetail.lab.apiserver.registry import ResourceType

Json = dict[str, Any]
#: The version of a Scale.
SCALE = "autoscaling/v1"


def track(resource: ResourceType, old: Json, obj: Json, manager: str, path: Path, operation: str = "Update") -> None:
    """A write through /scale: the replicas change hands, or gain one more owner, and the entry has no time."""
    managers = managedfields.read(old["metadata"].get("managedFields")) or {}
    obj["metadata"].pop("managedFields", None)
    own = Manager(manager, operation, "" if operation == "Apply" else resource.api_version, "scale")
    before, after = _at(old, path) or 0, _at(obj, path) or 0
    replicas = fieldpath.single(path)
    tracked = operation == "Apply" or any(fieldpath.has(owned.fields, path) for owned in managers.values())
    if before != after and tracked:
        managers = _taken(managers, own, replicas, resource.api_version if after else "")
    elif before == after:
        managers = _through_scale(managers, path, replicas)
        if operation == "Apply" and own not in managers:
            managers[own] = Owned(replicas, resource.api_version)
    managedfields.put(obj, managers)


def of_scale(obj: Json, path: Path, now: str) -> Managers:
    """The owners of an object's replicas, as owners of a Scale's; an entry without a time is of `now`."""
    replicas = fieldpath.single(("f:spec", "f:replicas"))
    managers = managedfields.read(obj["metadata"].get("managedFields"), stored=True) or {}
    return {
        Manager(manager.name, manager.operation, "" if manager.operation == "Apply" else SCALE, manager.subresource): (
            Owned(replicas, SCALE, owned.time or now)
        )
        for manager, owned in managers.items()
        if fieldpath.has(owned.fields, path)
    }


def _taken(managers: Managers, own: Manager, replicas: Node, version: str) -> Managers:
    """One manager owns them now, alone; none where there are no fields."""
    out: Managers = {}
    for manager, owned in managers.items():
        left = owned.fields if manager == own else fieldpath.difference(owned.fields, replicas)
        if left:
            out[manager] = Owned(left, owned.version, owned.time)
    previous = out.pop(own, None)
    if version:
        out[own] = Owned(replicas, version, previous.time if previous else None)
    return out


def _through_scale(managers: Managers, path: Path, replicas: Node) -> Managers:
    """Updaters come back from the scale in its version, not recognised as the same managers: their hold on the replicas
    stands beside the rest of what they own."""
    out: Managers = {}
    for manager, owned in managers.items():
        if manager.operation == "Apply" or not fieldpath.has(owned.fields, path):
            out[manager] = owned
            continue
        left = fieldpath.difference(owned.fields, replicas)
        if left:
            out[manager] = Owned(left, owned.version, owned.time)
        out[Manager(manager.name, manager.operation, SCALE, manager.subresource)] = Owned(replicas, owned.version)
    return out


def _at(obj: Any, path: Path) -> Any:
    for name in path:
        obj = obj.get(name[2:]) if isinstance(obj, dict) else None
    return obj
