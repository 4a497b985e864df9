"""Views: an object seen as another kind through one of its subresources. Scale is the only one.

A changed view is put back into the object; of the object's fields only the replicas change hands.
"""

from __future__ import annotations

from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import create_update, fieldpath, managedfields, responses, scale_ownership, status_errors
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.options import WriteOptions
from dovetail.lab.apiserver.registry import RequestRefused, ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import StoredVersion
from dovetail.lab.apiserver.webhooks.pending_calls import after_commit

Json = dict[str, Any]


def put(call: RequestCall) -> Response:
    """PUT on a view."""
    subresource = call.subresource_type
    assert subresource is not None and subresource.view is not None
    view, options = create_update.incoming(call)
    record = call.server.store.get(call.table, call.key)
    if record is None:
        raise status_errors.not_found(call.resource.group, call.resource.plural, call.name)
    stored = update(call, record, view, options, unconditional=True)
    return shown_view(call, stored)


def shown_view(call: RequestCall, stored: StoredVersion) -> Response:
    """The response of a write through a view."""
    subresource = call.subresource_type
    assert subresource is not None and subresource.view is not None
    view = subresource.view

    def show() -> Response:
        return responses.one(call, view(responses.in_version(stored.fresh(), call.resource), call.resource), 200)

    return after_commit(show)


def update(
    call: RequestCall, record: StoredVersion, view: Json, options: WriteOptions, unconditional: bool = False
) -> StoredVersion:
    """Put a changed view back; of the object's fields only the replicas change hands."""
    resource = call.resource
    obj = merge_view(call, record, view)
    manager = call.manager(options.manager)
    old = responses.show(record, resource)
    path = replicas_path(resource)

    def track(made: Json) -> None:
        scale_ownership.track(resource, old, made, manager, path)
        show_owners(call, made, view)

    try:
        return create_update.update_object(
            call, record, obj, options, track, unconditional, (view, owned_view(call, old))
        )
    except StatusError as error:
        raise in_view(call, error) from error


def owned_view(call: RequestCall, obj: Json) -> Json:
    """The view of an object with the owners of its fields, as mutating admission sees it."""
    subresource = call.subresource_type
    assert subresource is not None and subresource.view is not None
    view = subresource.view(obj, call.resource)
    show_owners(call, obj, view)
    return view


def show_owners(call: RequestCall, obj: Json, view: Json) -> None:
    """Put the owners of an object's replicas into its view, which is changed."""
    path = replicas_path(call.resource)
    managedfields.put(view, scale_ownership.of_scale(obj, path, stamp(call.server.clock.now())))


def in_view(call: RequestCall, error: StatusError) -> StatusError:
    """An invalid scale is called a scale."""
    subresource, resource = call.subresource_type, call.resource
    if error.code != 422 or subresource is None or error.details is None or resource.custom:
        return error
    message = error.message.replace(resource.qualified_kind, f"{subresource.kind}.{subresource.group}", 1)
    details = {**error.details, "group": subresource.group, "kind": subresource.kind}
    return StatusError(error.code, error.reason, message, details, error.headers)


def at_path(path: fieldpath.Path, value: Any) -> Json:
    """A document that holds one value, where the path says."""
    for name in reversed(path):
        value = {name[2:]: value}
    assert isinstance(value, dict)
    return value


def replicas_path(resource: ResourceType) -> fieldpath.Path:
    """Where the scale subresource finds the replicas."""
    if resource.custom and resource.definition is not None:
        for version in resource.definition["spec"]["versions"]:
            if version["name"] == resource.version:
                scale = (version.get("subresources") or {}).get("scale") or {}
                names = scale.get("specReplicasPath", ".spec.replicas").strip(".").split(".")
                return tuple(fieldpath.field(name) for name in names)
    return ("f:spec", "f:replicas")


def merge_view(call: RequestCall, record: StoredVersion, view: Json) -> Json:
    subresource = call.subresource_type
    assert subresource is not None and subresource.merge is not None
    given = view["metadata"].get("resourceVersion")
    uid = view["metadata"].get("uid")
    try:
        obj = subresource.merge(responses.in_version(record.fresh(), call.resource), view, call.resource)
    except RequestRefused as refusal:
        raise create_update.refused(refusal) from refusal
    if given:
        obj["metadata"]["resourceVersion"] = given
    else:
        obj["metadata"].pop("resourceVersion", None)
    if uid:
        obj["metadata"]["uid"] = uid
    return obj
