"""Server-side apply through the scale subresource: the configuration speaks of the replicas alone."""

from __future__ import annotations

from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import (
    create_update,
    fieldpath,
    managedfields,
    responses,
    status_errors,
    subresource_views,
    typed_validation,
)
from dovetail.lab.apiserver import server_side_apply as applying
from dovetail.lab.apiserver.fieldpath import Node, Path
from dovetail.lab.apiserver.managedfields import Manager, Managers, Owned
from dovetail.lab.apiserver.options import WriteOptions
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import Call
from dovetail.lab.apiserver.store import Record

Json = dict[str, Any]


def apply(call: Call, record: Record | None, config: Json, options: WriteOptions) -> Response:
    subresource, resource = call.subresource_type, call.resource
    assert subresource is not None and subresource.view is not None and subresource.schema is not None
    if record is None:
        raise status_errors.not_found(resource.group, resource.plural, call.name)
    found = typed_validation.problems(subresource.schema, config)
    if found:
        metadata = config.get("metadata")
        where = f"{applying.text_at(metadata, 'namespace')}/{applying.text_at(metadata, 'name')}"
        where += f"; {subresource.group}/{subresource.version}, Kind={subresource.kind}"
        raise status_errors.internal(
            f"failed to create typed patch object ({where}): {typed_validation.message(found)}"
        )
    live = responses.in_version(record.fresh(), resource)
    view = subresource.view(live, resource)
    wanted = (config.get("spec") or {}).get("replicas")
    path = subresource_views.replicas_path(resource)
    if wanted is not None and wanted != (view.get("spec") or {}).get("replicas", 0) and not options.force:
        _refuse_conflicts(call, live, options.manager, path)
    if wanted is not None:
        view["spec"] = {"replicas": wanted}
    view["metadata"].pop("resourceVersion", None)
    given = (config.get("metadata") or {}).get("resourceVersion")
    if given:
        view["metadata"]["resourceVersion"] = given
    obj = subresource_views.merge_view(call, record, view)

    def track_apply(made: Json) -> None:
        track(resource, live, made, options.manager, path, "Apply")

    stored = create_update.update_object(call, record, obj, options, track_apply, unconditional=True)
    return responses.one(call, subresource.view(responses.in_version(stored.fresh(), resource), resource), 200)


def _refuse_conflicts(call: Call, live: Json, manager: str, path: fieldpath.Path) -> None:
    me = Manager(manager, "Apply", "", "scale")
    managers = managedfields.read(live["metadata"].get("managedFields")) or {}
    owners = [each for each, owned in managers.items() if fieldpath.has(owned.fields, path)]
    if not owners:  # unowned fields belong to the writer before the first apply
        owners = [Manager(managedfields.BEFORE_FIRST_APPLY, "Update", "", "scale")]
    found = [applying.Conflict(_as_scale(each), ("f:spec", "f:replicas")) for each in owners if each != me]
    if found:
        raise applying.conflict_error(found)


def _as_scale(manager: Manager) -> Manager:
    """Seen through the scale, an updater wrote in the scale's version."""
    if manager.operation == "Apply":
        return manager
    return Manager(manager.name, manager.operation, "autoscaling/v1", manager.subresource)


# Who owns the replicas after a write through the scale subresource.
#
# A scale is a view of another object, and its owners are a view of that one's: they go through the scale's own version
# and back, and fields that do not survive the conversion are kept apart.


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


def _taken(managers: Managers, own: Manager, replicas: Node, version: str) -> Managers:
    """One manager owns them now, alone; none where there are no fields."""
    out: Managers = {}
    for each, owned in managers.items():
        left = owned.fields if each == own else fieldpath.difference(owned.fields, replicas)
        if left:
            out[each] = Owned(left, owned.version, owned.time)
    previous = out.pop(own, None)
    if version:
        out[own] = Owned(replicas, version, previous.time if previous else None)
    return out


def _through_scale(managers: Managers, path: Path, replicas: Node) -> Managers:
    """Updaters come back from the scale in its version, not known again as those who went: their hold on the replicas
    stands beside the rest of what they own."""
    out: Managers = {}
    for each, owned in managers.items():
        if each.operation == "Apply" or not fieldpath.has(owned.fields, path):
            out[each] = owned
            continue
        left = fieldpath.difference(owned.fields, replicas)
        if left:
            out[each] = Owned(left, owned.version, owned.time)
        out[Manager(each.name, each.operation, "autoscaling/v1", each.subresource)] = Owned(replicas, owned.version)
    return out


def _at(obj: Any, path: Path) -> Any:
    for name in path:
        obj = obj.get(name[2:]) if isinstance(obj, dict) else None
    return obj
