"""Deleting: preconditions, grace, finalizers, propagation; one object or a collection."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import decode, get_list, json_yaml, responses, selectors, status_errors
from dovetail.lab.apiserver import options as query
from dovetail.lab.apiserver.canonicalize import go_value, normalise
from dovetail.lab.apiserver.create_update import dry_record, held_by_spec, refused
from dovetail.lab.apiserver.gocompat import gotime
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.kinds.types import meta_schema
from dovetail.lab.apiserver.registry import RequestContext, RequestRefused, ResourceType
from dovetail.lab.apiserver.request import RequestCall, table_of
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.store import StoredVersion
from dovetail.lab.apiserver.webhooks import chain
from dovetail.lab.apiserver.webhooks.pending_calls import Answers, PendingCalls, after_commit
from dovetail.model.validation import field_errors

Json = dict[str, Any]
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Deleted(msgspec.Struct):
    """The answer to a deletion: the last state or a Status; `gone` if the object left the store."""

    body: Json
    gone: bool


def read_options(call: RequestCall) -> Json:
    """DeleteOptions of the body or of the query, checked."""
    body: Json | None = None
    if call.request.body:
        body = _body_options(call)
    options = query.delete_options(body, call.request)
    errors = query.dry_run_errors(options.get("dryRun") or [])
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        errors.insert(0, field_errors.invalid("propagationPolicy", policy, detail))
    if policy is not None and policy not in ("Foreground", "Background", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        errors.append(
            field_errors.FieldError(
                "FieldValueNotSupported",
                "propagationPolicy",
                policy,
                "supported values: " + ", ".join(f'"{policy}"' for policy in supported),
            )
        )
    if errors:
        raise status_errors.invalid("meta.k8s.io", "DeleteOptions", "", errors)
    return options


def _body_options(call: RequestCall) -> Json:
    media = decode.media_type(call.content_type)
    if media == decode.PROTOBUF:
        from dovetail.lab.apiserver import protobuf

        try:
            return protobuf.read_delete_options(call.request.body)
        except protobuf.ProtobufProblem as problem:
            raise status_errors.bad_request(str(problem)) from problem
    parse = json_yaml.parse_yaml if media == "application/yaml" else json_yaml.parse_json
    try:
        value, _ = parse(call.request.body)
    except json_yaml.SyntaxProblem as problem:
        raise status_errors.bad_request(f"couldn't get version/kind; json parse error: {problem}") from problem
    if value is None:
        return {}
    if not isinstance(value, dict):
        target = decode.PEEK
        text = f"json: cannot unmarshal {go_value(value)} into Go value of type {target}"
        raise status_errors.bad_request(f"couldn't get version/kind; json parse error: {text}")
    for field in ("kind", "apiVersion"):
        if not isinstance(value.get(field), str | None):
            text = f"json: cannot unmarshal {go_value(value[field])} into Go struct field .{field} of type string"
            raise status_errors.bad_request(f"couldn't get version/kind; json parse error: {text}")
    kind, version = value.get("kind") or "DeleteOptions", value.get("apiVersion") or "meta.k8s.io/v1"
    if version.count("/") > 1:
        raise status_errors.bad_request(f"unexpected GroupVersion string: {version}")
    if kind != "DeleteOptions":
        raise status_errors.bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    options, reading = normalise(meta_schema("DeleteOptions"), value)
    if reading.error is not None:
        raise status_errors.bad_request(reading.error)
    return options  # type: ignore[no-any-return]


def delete(call: RequestCall) -> Response:
    form = call.response_form()
    options = read_options(call)
    ctx = call.context("DELETE", dry_run=bool(options.get("dryRun")), options=options)
    outcome = delete_object(call.server, call.resource, call.namespace, call.name, options, ctx, call)
    if outcome.body.get("kind") == "Status":
        return responses.value(outcome.body, 200, form)
    return after_commit(lambda: responses.one(call, responses.in_version(outcome.body, call.resource), 200))


def delete_object(
    server: ServerState,
    resource: ResourceType,
    namespace: str,
    name: str,
    options: Json,
    ctx: RequestContext,
    call: RequestCall | None = None,
) -> Deleted:
    """Delete an object; policies and webhooks decide about deletions that a `call` asks for."""
    table = table_of(resource)
    key = f"{namespace}/{name}" if resource.namespaced else name
    record = server.store.get(table, key)
    if record is None:
        raise status_errors.not_found(resource.group, resource.plural, name)
    _check_preconditions(resource, record, name, options)
    try:
        resource.strategy.admit(None, record.obj, ctx)
        if call is not None:
            chain.review_deletion(call, record.obj, ctx)
        resource.strategy.review(None, record.obj, ctx)
    except RequestRefused as refusal:
        raise refused(refusal) from refusal
    return _delete(server, resource, record, options, ctx)


def _check_preconditions(resource: ResourceType, record: StoredVersion, name: str, options: Json) -> None:
    preconditions = options.get("preconditions") or {}
    metadata = record.obj["metadata"]
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid is not None and uid != metadata["uid"]:
        if (resource.group, resource.plural) == ("", "namespaces"):  # which look for themselves
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
            raise status_errors.conflict("", "namespaces", name, why)
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
        why += "The object might have been deleted and then recreated"
        raise status_errors.conflict(resource.group, resource.kind, name, why)
    if version is not None and version != metadata["resourceVersion"]:
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
        why += f"({metadata['resourceVersion']}). The object might have been modified"
        raise status_errors.conflict(resource.group, resource.kind, name, why)


def _delete(
    server: ServerState, resource: ResourceType, record: StoredVersion, options: Json, ctx: RequestContext
) -> Deleted:
    """Mark, or take away. Kinds with grace are always marked first, even where the grace is nothing."""
    waiting = resource.strategy.terminate(record.obj, ctx)
    if waiting is not None:
        return Deleted(_keep(server, resource, record, waiting, ctx).fresh(), gone=False)
    if held_by_spec(record.obj):
        return _end(server, resource, record, ctx)
    metadata = dict(record.obj["metadata"])
    requested = options.get("gracePeriodSeconds")
    if requested is not None and requested < 0:
        requested = 1
    grace = resource.strategy.grace(record.obj, requested)
    finalizers = _finalizers(resource, record.obj, options)
    changed = _set_finalizers(metadata, finalizers)
    if "deletionTimestamp" in metadata:
        already = metadata.get("deletionGracePeriodSeconds") or 0
        shorter = grace is not None and grace < already and (requested is not None or not already)
        if shorter:
            _shorten(metadata, ctx, already, grace or 0)
        changed |= shorter
        left = (grace or 0) if shorter else already
    else:
        left = grace or 0
        if grace is not None or finalizers:
            changed = True
            _mark(metadata, ctx, left)
            if metadata.get("generation"):
                metadata["generation"] += 1
    if changed:
        record = _keep(server, resource, record, {**record.obj, "metadata": metadata}, ctx)
    if left > 0 or finalizers:
        return Deleted(record.fresh(), gone=False)
    return _take(server, resource, record, ctx)


def _end(server: ServerState, resource: ResourceType, record: StoredVersion, ctx: RequestContext) -> Deleted:
    """A namespace ends in its own time: it is marked, and goes when its spec's finalizers are gone."""
    if "deletionTimestamp" not in record.obj["metadata"]:
        metadata = {**record.obj["metadata"], "deletionTimestamp": stamp(ctx.now)}
        status_now = {**(record.obj.get("status") or {}), "phase": "Terminating"}
        record = _keep(server, resource, record, {**record.obj, "metadata": metadata, "status": status_now}, ctx)
    return Deleted(record.fresh(), gone=False)


def _set_finalizers(metadata: Json, finalizers: list[str]) -> bool:
    if finalizers == list(metadata.get("finalizers") or []):
        return False
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    return True


def _mark(metadata: Json, ctx: RequestContext, grace: int) -> None:
    metadata["deletionTimestamp"] = stamp(ctx.now + timedelta(seconds=grace))
    metadata["deletionGracePeriodSeconds"] = grace


def _shorten(metadata: Json, ctx: RequestContext, already: int, grace: int) -> None:
    """The shorter grace counts from the first deletion; what has passed of it leaves one second, for a clean end."""
    end = gotime.parse(metadata["deletionTimestamp"]) + timedelta(seconds=grace - already)
    late = end < ctx.now
    metadata["deletionTimestamp"] = stamp(ctx.now if late else end)
    metadata["deletionGracePeriodSeconds"] = min(grace, 1) if late else grace


def _keep(
    server: ServerState, resource: ResourceType, record: StoredVersion, obj: Json, ctx: RequestContext
) -> StoredVersion:
    if obj == record.obj:
        return record
    if ctx.dry_run:
        return dry_record(record.key, obj, record.rv)
    stored = server.store.put(table_of(resource), record.key, obj)
    resource.strategy.committed(stored.obj, record.obj, ctx)
    return stored


def _take(server: ServerState, resource: ResourceType, record: StoredVersion, ctx: RequestContext) -> Deleted:
    gone = record
    if not ctx.dry_run:
        gone = server.store.delete(table_of(resource), record.key)
        resource.strategy.committed(None, record.obj, ctx)
    if resource.strategy.returns_deleted:
        return Deleted(gone.fresh(), gone=True)
    metadata = record.obj["metadata"]
    details: Json = {"name": metadata["name"]}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    details["uid"] = metadata["uid"]
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return Deleted(body, gone=True)


def _finalizers(resource: ResourceType, obj: Json, options: Json) -> list[str]:
    """The finalizers after this deletion: the propagation policy adds and takes away the collector's own."""
    have = list(obj["metadata"].get("finalizers") or [])
    policy = options.get("propagationPolicy")
    orphan = options.get("orphanDependents")
    if policy is None and orphan is not None:
        policy = "Orphan" if orphan else "Background"
    default = resource.strategy.delete_finalizers(obj, options)
    if policy is None:
        if default is not None:
            return list(default)
        return have
    left = [name for name in have if name not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        return [*left, FOREGROUND]
    if policy == "Orphan":
        return [*left, ORPHAN]
    return left


async def _delete_admitted(call: RequestCall, namespace: str, name: str, options: Json, ctx: RequestContext) -> None:
    """Delete one object of a collection, after the webhooks that it concerns were asked."""
    call.answers, call.drawn = Answers(), {}
    while True:
        try:
            delete_object(call.server, call.resource, namespace, name, dict(options), ctx, call)
            return
        except PendingCalls as outstanding:
            await call.answers.ask(outstanding.questions)


async def delete_collection(call: RequestCall) -> Response:
    form = call.response_form(listing=True)
    options = read_options(call)
    chosen = query.list_options(call.request)
    test = selectors.compile(call, chosen.labels, chosen.fields)
    page = await get_list.paged(call, chosen, test)
    get_list.prepare(call.resource, page.records)
    items: list[Json] = []
    for record in page.records:
        name = record.obj["metadata"]["name"]
        namespace = record.obj["metadata"].get("namespace", "")
        ctx = call.context("DELETE", dry_run=bool(options.get("dryRun")), options=options)
        ctx.name = name
        if call.server.store.get(call.table, record.key) is None:
            continue
        await _delete_admitted(call, namespace, name, options, ctx)
        items.append(responses.show(record, call.resource))
    body = {
        "kind": call.resource.list_kind or f"{call.resource.kind}List",
        "apiVersion": call.resource.api_version,
        "metadata": get_list.list_metadata(get_list.ListPage([], page.version), call.resource.custom),
        "items": items
        if call.resource.custom
        else [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in items],
    }
    return responses.value(body, 200, form)
