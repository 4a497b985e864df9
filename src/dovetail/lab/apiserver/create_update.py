"""Writing: create and update, through defaulting, admission, preparation, validation, to the store."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dovetail.kube.transport import Response
from dovetail.lab.apiserver import managedfields, responses, status_errors
from dovetail.lab.apiserver.canonicalize import settle
from dovetail.lab.apiserver.decode import decode
from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.options import WriteOptions, write_options
from dovetail.lab.apiserver.registry import RequestContext, RequestRefused, ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.routes import Route
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import StoredVersion, TransientVersion
from dovetail.lab.apiserver.webhooks import chain
from dovetail.lab.apiserver.webhooks.pending_calls import after_commit
from dovetail.model.validation import field_errors
from dovetail.model.validation.field_errors import quoted

# Owner references in a request: named twice, they are kept once, and the client gets a warning.


def dedupe(call: RequestCall, obj: Json, admitted: bool) -> None:
    """Drop owner references that are repeated word for word, with a warning to the client."""
    owners = obj["metadata"].get("ownerReferences")
    if not owners or len(owners) < 2:
        return
    kept: list[Json] = []
    repeated: list[str] = []
    for owner in owners:
        if owner in kept:
            repeated.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if repeated:
        obj["metadata"]["ownerReferences"] = kept
        when = " after mutating admission happens" if admitted else ""
        call.warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            "and may reject such requests as early as 1.24; please fix your requests; "
            f"duplicate UID(s) observed: {', '.join(repeated)}"
        )


Json = dict[str, Any]
GENERATED_PREFIX = 58


def refused(refusal: RequestRefused) -> StatusError:
    details = None if refusal.details is None else dict(refusal.details)
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return StatusError(refusal.code, refusal.reason, refusal.message, details, headers)


def key_of(resource: ResourceType, obj: Json) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}" if resource.namespaced else str(metadata["name"])


def create(call: RequestCall) -> Response:
    resource = call.resource
    responses.check_form(call)
    options = write_options(call.request, "CreateOptions")
    obj = decode(call.request.body, call.content_type, call.expected(), options.validation, call.warn)
    if call.subresource_type is not None and call.subresource_type.act is not None:
        return act(call, obj, options)
    check_namespace(call, obj)
    if call.name:
        _check_name(call, obj)
    if resource.plural == "bindings" and not resource.group:
        return _bind(call, obj, options)
    if not resource.stored:
        ctx = context(call, "CREATE", options)
        resource.strategy.default(obj)
        managedfields.track_create(resource, obj, ctx.manager, ctx.now)
        resource.strategy.admit(obj, None, ctx)
        obj = chain.admit_body(call, obj, ctx)
        errors = resource.strategy.validate_create(obj, ctx)
        if errors:
            raise status_errors.invalid(resource.group, "", "", errors)
        return responses.one(call, resource.strategy.answer(obj, ctx), 201)
    record = create_object(call, obj, options)
    return created(call, record)


def _bind(call: RequestCall, binding: Json, options: WriteOptions) -> Response:
    """The old resource for bindings, which names the pod in the body."""
    pods = call.server.registry.lookup("", "v1", "pods")
    assert pods is not None
    name = binding["metadata"].get("name", "")
    if not name:
        raise status_errors.bad_request("Name parameter required.")
    route = Route("", "v1", "pods", call.namespace, name, "binding")
    through = RequestCall(
        call.server, call.request, route, pods, "create", call.user, call.groups, call.uid, call.borrowed
    )
    return act(through, binding, options)


def created(call: RequestCall, record: StoredVersion, code: int = 201) -> Response:
    resource = call.resource

    def show() -> Response:
        raw = record.raw if responses.is_stored_so(record, resource) else None
        return responses.one(call, responses.show(record, resource), code, raw=raw)

    return after_commit(show)


def context(call: RequestCall, operation: Any, options: WriteOptions) -> RequestContext:
    return call.context(operation, dry_run=options.dry_run, manager=call.manager(options.manager))


def check_namespace(call: RequestCall, obj: Json) -> None:
    """A namespaced object takes the namespace of the URL; another one is a mistake. Others have none, whatever said."""
    metadata = obj["metadata"]
    given = metadata.get("namespace", "")
    if not call.resource.namespaced:
        metadata.pop("namespace", None)
        return
    if given and given != call.namespace:
        raise status_errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if not given:
        metadata["namespace"] = call.namespace


def _check_name(call: RequestCall, obj: Json) -> None:
    metadata = obj["metadata"]
    given = metadata.get("name", "")
    if given and given != call.name:
        raise status_errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({call.name})"
        )
    metadata["name"] = call.name


def create_object(
    call: RequestCall, obj: Json, options: WriteOptions, track: Callable[[Json], None] | None = None
) -> StoredVersion:
    """Everything between a decoded body and the stored object."""
    resource = call.resource
    strategy = resource.strategy
    ctx = context(call, "CREATE", options)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        obj["metadata"].pop(name, None)
    dedupe(call, obj, admitted=False)
    strategy.default(obj)
    if track is None:
        managedfields.track_create(resource, obj, ctx.manager, ctx.now)
    else:
        track(obj)
    settle_lists(call, obj)
    if resource.storage != (resource.group, resource.version):
        ctx.seen = (obj, {})
        obj = strategy.to_storage(obj, resource.version)
    metadata = obj["metadata"]
    if metadata.get("resourceVersion") and not options.dry_run:
        raise status_errors.internal("resourceVersion should not be set on objects to be created")
    for field in SYSTEM_METADATA:
        metadata.pop(field, None)
    ctx.name = call.drawn["requested name"] = metadata.get("name", "")
    try:
        obj = chain.admit(call, obj, None, ctx)
        dedupe(call, obj, admitted=True)
        fill_metadata(obj, ctx, call.drawn)
        metadata = obj["metadata"]
        ctx.name = metadata.get("name", "")
        strategy.prepare_create(obj, ctx)
        errors = strategy.validate_create(obj, ctx) or _name_required(metadata)
        if errors:
            raise status_errors.invalid(resource.storage[0], resource.kind, metadata.get("name", ""), errors)
        for text in strategy.warnings(obj, None, ctx):
            call.warn(text)
        chain.review(call, obj, None, ctx)
        strategy.review(obj, None, ctx)
    except RequestRefused as refusal:
        raise refused(refusal) from refusal
    return commit_new(call, obj, ctx)


_EMPTY_LIST = re.compile(rb"\[\s*\]")


def settle_lists(call: RequestCall, obj: Json) -> None:
    """Empty lists were there for field ownership; the store keeps none."""
    if not call.resource.custom and _EMPTY_LIST.search(call.request.body):
        settle(call.resource.schema, obj)


def _name_required(metadata: Json) -> list[field_errors.FieldError]:
    if metadata.get("name"):
        return []
    return [field_errors.required("metadata.name", "name or generateName is required")]


#: What the server alone decides about a new object, after admission.
SYSTEM_METADATA = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def fill_metadata(obj: Json, ctx: RequestContext, drawn: dict[str, str]) -> None:
    """Name a new object, if it has only the beginning of a name, and give it its uid and its time.

    `drawn` holds what was drawn at random for an earlier run of the same request.
    """
    metadata = obj["metadata"]
    for field in (*SYSTEM_METADATA, "resourceVersion"):
        metadata.pop(field, None)
    if not metadata.get("name") and metadata.get("generateName"):
        if "suffix" not in drawn:
            drawn["suffix"] = ctx.chance.suffix()
        metadata["name"] = metadata["generateName"][:GENERATED_PREFIX] + drawn["suffix"]
    if "uid" not in drawn:
        drawn["uid"] = ctx.chance.uid()
    metadata["uid"] = drawn["uid"]
    metadata["creationTimestamp"] = stamp(ctx.now)


def commit_new(call: RequestCall, obj: Json, ctx: RequestContext) -> StoredVersion:
    resource = call.resource
    store = call.server.store
    key = key_of(resource, obj)
    existing = store.get(call.table, key)
    if existing is not None:
        deleting = "deletionTimestamp" in existing.obj["metadata"]
        raise status_errors.already_exists(resource.group, resource.plural, obj["metadata"]["name"], deleting)
    obj = {"kind": resource.kind, "apiVersion": storage_version(resource), **_body(obj)}
    if ctx.dry_run:
        return dry_record(key, obj, 0)
    record = store.put(call.table, key, obj)
    resource.strategy.committed(record.obj, None, ctx)
    return record


def _body(obj: Json) -> Json:
    return {name: item for name, item in obj.items() if name not in ("kind", "apiVersion")}


def storage_version(resource: ResourceType) -> str:
    group, version = resource.storage
    return f"{group}/{version}" if group else version


def dry_record(key: str, obj: Json, rv: int) -> StoredVersion:
    metadata = dict(obj["metadata"])
    if rv:
        metadata["resourceVersion"] = str(rv)
    else:
        metadata.pop("resourceVersion", None)
    shown = {**obj, "metadata": metadata}
    return TransientVersion(key, rv, obj=shown)


def act(call: RequestCall, body: Json, options: WriteOptions) -> Response:
    """A subresource that is a verb: eviction, binding, token."""
    subresource = call.subresource_type
    assert subresource is not None and subresource.act is not None
    record = call.server.store.get(call.table, call.key)
    ctx = call.context("CREATE", dry_run=options.dry_run, manager=call.manager(options.manager))
    if call.resource.namespaced:
        body["metadata"].setdefault("namespace", call.namespace)
    if subresource.tracked:
        managedfields.track_body(subresource, body, ctx.manager, ctx.now)
    obj = None if record is None else record.obj
    body = chain.mutate_body(call, body, ctx)
    try:
        if subresource.complete is not None:
            subresource.complete(obj, body, ctx)
        chain.review_body(call, body, ctx)
        reply = subresource.act(obj, body, ctx)
    except RequestRefused as refusal:
        raise refused(refusal) from refusal
    if reply.text is not None:
        return Response(status=reply.code, headers={"content-type": "text/plain"}, body=reply.text)
    return responses.value(reply.body, reply.code, call.response_form())


def incoming(call: RequestCall) -> tuple[Json, WriteOptions]:
    """The body of a PUT, in the right place and under the right name."""
    responses.check_form(call)
    options = write_options(call.request, "UpdateOptions")
    obj = decode(call.request.body, call.content_type, call.expected(), options.validation, call.warn)
    check_namespace(call, obj)
    given = obj["metadata"].get("name", "")
    if not given:
        raise no_name(call)
    if given != call.name:
        raise status_errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({call.name})"
        )
    return obj, options


def update(call: RequestCall) -> Response:
    """PUT: the whole object anew."""
    resource = call.resource
    obj, options = incoming(call)
    record = call.server.store.get(call.table, call.key)
    if record is None:
        if resource.strategy.create_on_update and not call.subresource:
            obj["metadata"].pop("resourceVersion", None)
            return created(call, create_object(call, obj, options))
        raise status_errors.not_found(resource.group, resource.plural, call.name)
    return updated(call, update_object(call, record, obj, options))


def no_name(call: RequestCall) -> StatusError:
    return status_errors.bad_request(
        f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
    )


def updated(call: RequestCall, record: StoredVersion) -> Response:
    return created(call, record, 200)


def update_object(
    call: RequestCall,
    record: StoredVersion,
    obj: Json,
    options: WriteOptions,
    track: Callable[[Json], None] | None = None,
    unconditional: bool = False,
    views: tuple[Json, Json] | None = None,
) -> StoredVersion:
    """Everything between a new state and the stored one: `obj` is in the request's version and the caller's to give.

    `views` are the view after and before, of a write through one.
    """
    resource = call.resource
    strategy = resource.strategy
    ctx = context(call, "UPDATE", options)
    ctx.views = views
    old = record.obj
    given_uid = obj["metadata"].get("uid")
    if given_uid and given_uid != old["metadata"].get("uid") and not unconditional:
        raise wrong_uid(call, given_uid, old["metadata"].get("uid", ""))
    dedupe(call, obj, admitted=call.verb == "patch")
    strategy.default(obj)
    shown = responses.show(record, resource)
    if track is None:
        subresource, registry = call.subresource, call.server.registry
        managedfields.track_update(resource, shown, obj, ctx.manager, subresource, ctx.now, registry)
    else:
        track(obj)
    settle_lists(call, obj)
    if resource.storage != (resource.group, resource.version):
        ctx.seen = (obj, shown)
        obj = strategy.to_storage(obj, resource.version)
    check_version(call, obj, record, unconditional)
    keep_metadata(obj, old)
    try:
        obj = chain.admit(call, obj, old, ctx)
        keep_metadata(obj, old)
        strategy.prepare_update(obj, old, ctx)
        errors = strategy.validate_update(obj, old, ctx)
        if errors:
            raise status_errors.invalid(resource.storage[0], resource.kind, obj["metadata"].get("name", ""), errors)
        for text in strategy.warnings(obj, old, ctx):
            call.warn(text)
        chain.review(call, obj, old, ctx)
        strategy.review(obj, old, ctx)
    except RequestRefused as refusal:
        raise refused(refusal) from refusal
    return commit_update(call, record, obj, ctx)


def wrong_uid(call: RequestCall, given: str, actual: str) -> StatusError:
    resource = call.resource
    where = f"/registry/{registry_path(resource)}/{call.key}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {given}, UID in object meta: {actual}"
    )
    return status_errors.conflict(resource.group, resource.plural, call.name, why)


def registry_path(resource: ResourceType) -> str:
    """Where etcd would keep a kind: some built-ins by plural alone, custom resources under their group."""
    return f"{resource.group}/{resource.plural}" if resource.custom else resource.plural


def check_version(call: RequestCall, obj: Json, record: StoredVersion, unconditional: bool) -> None:
    """Optimistic concurrency: an unset version means any, where the kind allows it."""
    metadata = obj["metadata"]
    text = metadata.get("resourceVersion", "")
    resource = call.resource
    through_view = call.subresource_type is not None and call.subresource_type.merge is not None
    if unconditional and not text and through_view:
        return
    if text and not (text.isascii() and text.isdigit()):
        problem = f"strconv.ParseUint: parsing {quoted(text)}: invalid syntax"
        raise status_errors.internal(problem)
    version = int(text or "0")
    if version == 0:
        if not resource.strategy.unconditional_update:
            error = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise status_errors.invalid(resource.group, resource.plural, call.name, [error])
        return
    if version != record.rv:
        raise status_errors.conflict(resource.group, resource.plural, call.name)


def keep_metadata(obj: Json, old: Json) -> None:
    """What no update changes. A missing value is put back; another uid is for validation to refuse."""
    metadata, before = obj["metadata"], old["metadata"]
    metadata["resourceVersion"] = before["resourceVersion"]
    for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        if name == "uid" and metadata.get("uid"):
            continue
        if name in before:
            metadata[name] = before[name]
        elif name not in ("uid", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
    metadata.pop("selfLink", None)


def commit_update(call: RequestCall, record: StoredVersion, obj: Json, ctx: RequestContext) -> StoredVersion:
    resource = call.resource
    store = call.server.store
    old = record.obj
    obj = {"kind": resource.kind, "apiVersion": storage_version(resource), **_body(obj)}
    if released(obj, old):
        if not ctx.dry_run:
            store.delete(call.table, record.key)
            resource.strategy.committed(None, old, ctx)
        return dry_record(record.key, obj, record.rv)
    if obj == old or managedfields.equal_but_for_times(obj, old):
        return record
    if ctx.dry_run:
        return dry_record(record.key, obj, record.rv)
    stored = store.put(call.table, record.key, obj)
    resource.strategy.committed(stored.obj, old, ctx)
    return stored


def released(obj: Json, old: Json) -> bool:
    """Whether this update takes away the last thing that held a deleted object."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if metadata.get("deletionGracePeriodSeconds") or held_by_spec(obj):
        return False
    return bool(old["metadata"].get("finalizers")) or held_by_spec(old)


def held_by_spec(obj: Json) -> bool:
    """A namespace has finalizers of its own, in its spec."""
    return obj.get("kind") == "Namespace" and bool((obj.get("spec") or {}).get("finalizers"))
