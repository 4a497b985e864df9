"""Server-side apply: a configuration is merged into the object, and its manager comes to own the applied fields.

What the applier dropped since last time goes, unless another manager owns it. What others own differently is a
conflict, unless forced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import (
    create_update,
    decode,
    fieldpath,
    json_yaml,
    managedfields,
    responses,
    status_errors,
    structured_merge,
    typed_validation,
)
from dovetail.lab.apiserver.canonicalize import go_value
from dovetail.lab.apiserver.fieldpath import Node, Path
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.managedfields import Manager, Managers, Owned, Versions
from dovetail.lab.apiserver.options import WriteOptions
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError

Json = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_sorted = msgspec.json.Encoder(order="sorted").encode


class FieldConflict(msgspec.Struct, frozen=True):
    manager: Manager
    path: Path


class Conflicts(Exception):
    """Others own what this configuration wants different."""

    def __init__(self, conflicts: list[FieldConflict]) -> None:
        super().__init__(len(conflicts))
        self.found = conflicts


def apply(call: RequestCall, options: WriteOptions) -> Response:
    config = read_config(call)
    record = call.server.store.get(call.table, call.key)
    if record is None:
        if call.subresource:
            raise status_errors.not_found(call.resource.group, call.resource.plural, call.name)
        return _create(call, config, options)
    live = responses.in_version(record.fresh(), call.resource)
    result = applied(call, live, config, options)

    def track(obj: Json) -> None:
        managedfields.put(obj, result.managers)

    obj = decode.to_object(result.obj, [], call.expected(), "Ignore", call.warn, applied=True)
    stored = create_update.update_object(call, record, obj, options, track, unconditional=True)
    return create_update.updated(call, stored)


def read_config(call: RequestCall) -> Json:
    """The body: YAML or JSON, with the identity of the object it is sent to."""
    try:
        config, repeated = json_yaml.parse_yaml(call.request.body)
    except json_yaml.SyntaxProblem as problem:
        raise status_errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {problem}") from problem
    if config is None:
        config = {}
    if not isinstance(config, dict):
        raise status_errors.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{go_value(config)} into Go value of type map[string]interface {{}}"
        )
    if repeated and call.request.parameter("fieldValidation") == "Strict":
        raise status_errors.bad_request("error strict decoding YAML: " + ", ".join(repeated))
    for text in repeated:
        call.warn(text)
    _check_identity(call, config)
    return config


def _check_identity(call: RequestCall, config: Json) -> None:
    resource = call.resource
    group, version, kind = resource.group, resource.version, resource.kind
    subresource = call.subresource_type
    if subresource is not None and subresource.view is not None:
        group, version, kind = subresource.group, subresource.version, subresource.kind
    expected = f"{group}/{version}" if group else version
    if config.get("kind") != kind or config.get("apiVersion") != expected:
        shown_group, _, shown_version = text_at(config, "apiVersion").rpartition("/")
        raise status_errors.bad_request(
            f"invalid object type: {shown_group}/{shown_version}, Kind={text_at(config, 'kind')}"
        )
    if config.get("metadata") is None:
        config["metadata"] = {}
    metadata = config["metadata"]
    if isinstance(metadata, dict):
        if metadata.get("managedFields") is not None:
            raise status_errors.bad_request("metadata.managedFields must be nil")
        metadata.pop("managedFields", None)


class ApplyResult(msgspec.Struct):
    obj: Json
    managers: Managers
    changed: bool


def text_at(document: Any, name: str) -> str:
    """A text of a document that may hold anything; "" where it holds none."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def check_types(call: RequestCall, config: Json) -> None:
    resource = call.resource
    problems = typed_validation.problems(resource.schema, config)
    if problems:
        raise status_errors.internal(
            f"failed to create typed patch object ({named(resource, config)}): {typed_validation.message(problems)}"
        )


def named(resource: ResourceType, obj: Json) -> str:
    metadata = obj.get("metadata")
    where = f"{text_at(metadata, 'namespace')}/{text_at(metadata, 'name')}"
    return f"{where}; {resource.group}/{resource.version}, Kind={resource.kind}"


def _create(call: RequestCall, config: Json, options: WriteOptions) -> Response:
    """Apply to nothing: create, with the configuration's fields owned."""
    check_types(call, config)
    metadata = config["metadata"]
    if metadata.get("uid"):
        raise status_errors.conflict(
            call.resource.group,
            call.resource.plural,
            call.name,
            f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found",
        )
    metadata.pop("resourceVersion", None)
    if not metadata.get("name"):
        raise create_update.no_name(call)
    _check_name(call, config)
    if call.resource.namespaced and not metadata.get("namespace"):
        metadata["namespace"] = call.namespace
    create_update.check_namespace(call, config)
    resource = call.resource
    manager = Manager(options.manager, "Apply")
    fields = _owned_fields(resource, config, "")
    managers = {manager: Owned(fields, resource.api_version, stamp(call.server.clock.now()))} if fields else {}
    obj = decode.to_object(config, [], call.expected(), "Ignore", call.warn, applied=True)
    record = create_update.create_object(call, obj, options, lambda made: managedfields.put(made, managers))
    return create_update.created(call, record)


def _check_name(call: RequestCall, config: Json) -> None:
    given = config["metadata"].get("name") or ""
    if given != call.name:
        raise status_errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({call.name})"
        )


def _owned_fields(resource: ResourceType, config: Json, subresource: str) -> Node:
    fields = structured_merge.applied(resource.schema, config)
    fields = fieldpath.without_branches(fields, managedfields.ignored(resource, subresource))
    return managedfields.strip(fields)


def applied(call: RequestCall, live: Json, config: Json, options: WriteOptions) -> ApplyResult:
    """The object after the configuration, and the managers of its fields."""
    check_types(call, config)
    resource = call.resource
    given = {**config, "metadata": dict(config["metadata"])}
    metadata = config["metadata"]
    metadata.setdefault("name", call.name)
    managers = managedfields.read(live["metadata"].get("managedFields"))
    if managers is None:
        raise status_errors.internal("failed to decode managed fields")
    bare = {**live, "metadata": {k: v for k, v in live["metadata"].items() if k != "managedFields"}}
    if not managers:
        managers = _adopt(call, bare)
    me = Manager(options.manager, "Apply", "", call.subresource)
    try:
        result = lay_over(call, bare, config, managers, me, bool(options.force))
    except Conflicts as conflicts:
        if options.manager == "kubectl":
            left = _not_client_side(resource, bare, conflicts)
            if not left:
                result = lay_over(call, bare, config, managers, me, True)
            else:
                raise conflict_error(left) from conflicts
        else:
            raise conflict_error(conflicts.found) from conflicts
    except managedfields.Unreadable as problem:
        raise status_errors.internal(str(problem)) from problem
    if not metadata["name"]:
        raise create_update.no_name(call)
    _check_name(call, config)
    create_update.check_namespace(call, config)
    if options.manager == "kubectl":
        _refresh_last_applied(result.obj, given)
    return result


def _adopt(call: RequestCall, live: Json) -> Managers:
    """Fields of an untracked object belong to the manager "before-first-apply"."""
    own = Manager(managedfields.BEFORE_FIRST_APPLY, "Update", call.resource.api_version, call.subresource)
    empty = managedfields.zero_of(call.resource)
    now = call.server.clock.now()
    return managedfields.updated(call.resource, call.server.registry, {}, empty, live, own, now)


def lay_over(call: RequestCall, live: Json, config: Json, managers: Managers, me: Manager, force: bool) -> ApplyResult:
    resource = call.resource
    schema = resource.schema
    merged = structured_merge.merge(schema, live, config)
    last = managers.get(me)
    fields = structured_merge.applied(schema, config)
    fields = fieldpath.without_branches(fields, managedfields.ignored(resource, call.subresource))
    claimed = {**managers, me: Owned(fields, resource.api_version, last.time if last else None)}
    if last is not None and last.fields:
        merged = _prune(call, merged, claimed, last)
    versions = Versions(resource, call.server.registry, live, merged, call.subresource)
    conflicts = _conflicts(claimed, versions, me)
    if conflicts and not force:
        raise Conflicts(conflicts)
    left = managedfields.take(claimed, versions, me)
    changed = merged != live
    own = managedfields.strip(fields)
    if own:
        left[me] = Owned(own, resource.api_version, left[me].time)
        if changed:
            left[me].time = stamp(call.server.clock.now())
    else:
        left.pop(me, None)
    return ApplyResult(merged, left, changed)


def _conflicts(managers: Managers, versions: Versions, me: Manager) -> list[FieldConflict]:
    conflicts: list[FieldConflict] = []
    for manager, owned in managers.items():
        change = versions.change(owned.version)
        if manager == me or change is None:
            continue
        both = fieldpath.intersection(owned.fields, change.touched())
        conflicts += [FieldConflict(manager, path) for path in fieldpath.paths(both)]
    return conflicts


def _prune(call: RequestCall, merged: Json, managers: Managers, last: Owned) -> Json:
    """Take away what this applier owned last time and no manager owns now."""
    resource = call.resource
    schema = resource.schema
    if last.version != resource.api_version:
        return merged
    everything = structured_merge.with_named_fields(schema, structured_merge.applied(schema, merged))
    mine = structured_merge.with_named_fields(schema, last.fields)
    pruned = _removed(schema, merged, mine)
    kept = structured_merge.with_named_fields(schema, structured_merge.applied(schema, pruned))
    for owned in managers.values():
        if owned.version == resource.api_version:
            kept = fieldpath.union(kept, structured_merge.with_named_fields(schema, owned.fields))
    pruned = _removed(schema, merged, fieldpath.difference(everything, kept))
    kept = structured_merge.with_named_fields(schema, structured_merge.applied(schema, pruned))
    gone = fieldpath.intersection(fieldpath.difference(everything, kept), mine)
    return _removed(schema, merged, gone)


def _removed(schema: Any, value: Json, gone: Node) -> Json:
    left = structured_merge.remove(schema, value, gone)
    return {} if left is structured_merge.ABSENT else left


def _not_client_side(resource: ResourceType, live: Json, conflicts: Conflicts) -> list[FieldConflict]:
    """The conflicts left when kubectl takes over what it once applied on the client's side."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return conflicts.found
    try:
        before = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return conflicts.found
    if not isinstance(before, dict) or before.get("apiVersion") != resource.api_version:
        return conflicts.found
    if typed_validation.problems(resource.schema, before):
        return conflicts.found
    mine = structured_merge.applied(resource.schema, before)
    change = structured_merge.compare(resource.schema, before, live)
    for fields in (change.modified, change.added, change.removed):
        mine = fieldpath.difference(mine, fields)
    return [conflict for conflict in conflicts.found if not fieldpath.has(mine, conflict.path)]


def _refresh_last_applied(obj: Json, config: Json) -> None:
    annotations = obj["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    mine = dict(config["metadata"])
    if "annotations" in mine:
        mine["annotations"] = {k: v for k, v in (mine["annotations"] or {}).items() if k != LAST_APPLIED}
    text = _sorted({**config, "metadata": mine}).decode() + "\n"
    obj["metadata"] = {**obj["metadata"], "annotations": {**annotations, LAST_APPLIED: text}}


def conflict_error(conflicts: list[FieldConflict]) -> StatusError:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {conflict.manager.shown()}",
            "field": fieldpath.show(conflict.path),
        }
        for conflict in sorted(conflicts, key=lambda conflict: _order(conflict.manager))
    ]
    return StatusError(409, "Conflict", _conflict_text(conflicts), {"causes": causes})


def _order(manager: Manager) -> tuple[str, ...]:
    return (manager.name, manager.operation, manager.version, manager.subresource)


def _conflict_text(conflicts: list[FieldConflict]) -> str:
    if len(conflicts) == 1:
        conflict = conflicts[0]
        return (
            f"Apply failed with 1 conflict: conflict with {conflict.manager.shown()}: {fieldpath.show(conflict.path)}"
        )
    lines: list[str] = []
    for manager in sorted({conflict.manager for conflict in conflicts}, key=_order):
        lines.append(f"conflicts with {manager.shown()}:")
        lines += [f"- {fieldpath.show(conflict.path)}" for conflict in conflicts if conflict.manager == manager]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
