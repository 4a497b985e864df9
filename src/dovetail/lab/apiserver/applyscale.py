"""Server-side apply through the scale subresource: the configuration speaks of the replicas alone."""

from __future__ import annotations

from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import apply as applying
from dovetail.lab.apiserver import fieldset, managedfields, respond, scalefields, status, typedcheck, views, writes
from dovetail.lab.apiserver.call import Call
from dovetail.lab.apiserver.managedfields import Manager
from dovetail.lab.apiserver.options import WriteOptions
from dovetail.lab.apiserver.store import Record

Json = dict[str, Any]


def apply(call: Call, record: Record | None, config: Json, options: WriteOptions) -> Response:
    door, resource = call.door, call.resource
    assert door is not None and door.view is not None and door.schema is not None
    if record is None:
        raise status.not_found(resource.group, resource.plural, call.name)
    found = typedcheck.problems(door.schema, config)
    if found:
        metadata = config.get("metadata")
        where = f"{applying.text_at(metadata, 'namespace')}/{applying.text_at(metadata, 'name')}"
        where += f"; {door.group}/{door.version}, Kind={door.kind}"
        raise status.internal(f"failed to create typed patch object ({where}): {typedcheck.message(found)}")
    live = respond.in_version(record.fresh(), resource)
    view = door.view(live, resource)
    wanted = (config.get("spec") or {}).get("replicas")
    path = views.replicas_path(resource)
    if wanted is not None and wanted != (view.get("spec") or {}).get("replicas", 0) and not options.force:
        _refuse_conflicts(call, live, options.manager, path)
    if wanted is not None:
        view["spec"] = {"replicas": wanted}
    view["metadata"].pop("resourceVersion", None)
    given = (config.get("metadata") or {}).get("resourceVersion")
    if given:
        view["metadata"]["resourceVersion"] = given
    obj = views.merge_view(call, record, view)

    def track(made: Json) -> None:
        scalefields.track(resource, live, made, options.manager, path, "Apply")

    stored = writes.update_object(call, record, obj, options, track, unconditional=True)
    return respond.one(call, door.view(respond.in_version(stored.fresh(), resource), resource), 200)


def _refuse_conflicts(call: Call, live: Json, manager: str, path: fieldset.Path) -> None:
    me = Manager(manager, "Apply", "", "scale")
    managers = managedfields.read(live["metadata"].get("managedFields")) or {}
    owners = [each for each, owned in managers.items() if fieldset.has(owned.fields, path)]
    if not owners:  # what nobody owns belongs to whoever wrote before anybody applied
        owners = [Manager(managedfields.BEFORE_FIRST_APPLY, "Update", "", "scale")]
    found = [applying.Conflict(_as_scale(each), ("f:spec", "f:replicas")) for each in owners if each != me]
    if found:
        raise applying.conflict_error(found)


def _as_scale(manager: Manager) -> Manager:
    """Seen through the scale, an updater wrote in the scale's version."""
    if manager.operation == "Apply":
        return manager
    return Manager(manager.name, manager.operation, "autoscaling/v1", manager.subresource)
