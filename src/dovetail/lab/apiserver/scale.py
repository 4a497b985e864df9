"""Server-side apply through the scale subresource: the configuration speaks of the replicas alone."""

from __future__ import annotations

from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import (
    create_update,
    fieldpath,
    managedfields,
    responses,
    scale_ownership,
    status_errors,
    subresource_views,
    typed_validation,
)
from dovetail.lab.apiserver import server_side_apply as applying
from dovetail.lab.apiserver.managedfields import Manager
from dovetail.lab.apiserver.options import WriteOptions
from dovetail.lab.apiserver.request import RequestCall

Json = dict[str, Any]


def apply(call: RequestCall, options: WriteOptions) -> Response:
    config = applying.read_config(call)
    record = call.server.store.get(call.table, call.key)
    subresource, resource = call.subresource_type, call.resource
    assert subresource is not None and subresource.view is not None and subresource.schema is not None
    if record is None:
        raise status_errors.not_found(resource.group, resource.plural, call.name)
    problems = typed_validation.problems(subresource.schema, config)
    if problems:
        metadata = config.get("metadata")
        where = f"{applying.text_at(metadata, 'namespace')}/{applying.text_at(metadata, 'name')}"
        where += f"; {subresource.group}/{subresource.version}, Kind={subresource.kind}"
        raise status_errors.internal(
            f"failed to create typed patch object ({where}): {typed_validation.message(problems)}"
        )
    live = responses.in_version(record.fresh(), resource)
    view = subresource.view(live, resource)
    replicas = (config.get("spec") or {}).get("replicas")
    path = subresource_views.replicas_path(resource)
    if replicas is not None and replicas != (view.get("spec") or {}).get("replicas", 0) and not options.force:
        _refuse_conflicts(call, live, options.manager, path)
    if replicas is not None:
        view["spec"] = {"replicas": replicas}
    view["metadata"].pop("resourceVersion", None)
    given = (config.get("metadata") or {}).get("resourceVersion")
    if given:
        view["metadata"]["resourceVersion"] = given
    obj = subresource_views.merge_view(call, record, view)

    def track_apply(made: Json) -> None:
        scale_ownership.track(resource, live, made, options.manager, path, "Apply")
        subresource_views.show_owners(call, made, view)

    views = view, subresource_views.owned_view(call, live)
    stored = create_update.update_object(call, record, obj, options, track_apply, unconditional=True, views=views)
    return responses.one(call, subresource.view(responses.in_version(stored.fresh(), resource), resource), 200)


def _refuse_conflicts(call: RequestCall, live: Json, manager: str, path: fieldpath.Path) -> None:
    me = Manager(manager, "Apply", "", "scale")
    managers = managedfields.read(live["metadata"].get("managedFields")) or {}
    owners = [manager for manager, owned in managers.items() if fieldpath.has(owned.fields, path)]
    if not owners:  # unowned fields belong to the writer before the first apply
        owners = [Manager(managedfields.BEFORE_FIRST_APPLY, "Update", "", "scale")]
    conflicts = [applying.FieldConflict(_as_scale(owner), ("f:spec", "f:replicas")) for owner in owners if owner != me]
    if conflicts:
        raise applying.conflict_error(conflicts)


def _as_scale(manager: Manager) -> Manager:
    """Seen through the scale, an updater wrote in the scale's version."""
    if manager.operation == "Apply":
        return manager
    return Manager(manager.name, manager.operation, scale_ownership.SCALE, manager.subresource)
