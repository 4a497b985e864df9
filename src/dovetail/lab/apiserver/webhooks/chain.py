"""The order of admission: built-in plugins, mutating policies and webhooks; later validating policies and webhooks.

Where a mutating policy or webhook changed the object, the mutating half runs once more for those that ask for it.
"""

from __future__ import annotations

import copy
from typing import Any

from dovetail.lab.apiserver import managedfields
from dovetail.lab.apiserver.policies import mutating, validating
from dovetail.lab.apiserver.registry import RequestContext
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.server_state import ServerState
from dovetail.lab.apiserver.webhooks import admission
from dovetail.lab.apiserver.webhooks.admission import Reinvocation
from dovetail.lab.apiserver.webhooks.attributes import Attributes, Kind, attributes
from dovetail.lab.apiserver.webhooks.configurations import PHASES
from dovetail.lab.apiserver.webhooks.matching import is_exempt, rule_names

Json = dict[str, Any]


def admit(call: RequestCall, obj: Json, old: Json | None, ctx: RequestContext) -> Json:
    """The object, which is in its stored version, after all mutating admission."""
    strategy = call.resource.strategy
    strategy.admit(obj, old, ctx)
    if not _mutates(call):
        return obj
    shown, before = ctx.views or (_shown(call, obj, ctx), _shown_old(call, old, ctx))
    request = attributes(call, shown, before, ctx, name=_requested_name(call, obj))
    chain = _Mutation(call)
    chain.run(request)
    obj = _restored(call, request, shown, obj, ctx)
    if chain.again():
        strategy.admit(obj, old, ctx)
        shown = _shown(call, obj, ctx) if ctx.views is None or request.object is None else request.object
        request.object = attributes(call, shown, None, ctx).object
        chain.run(request)
        obj = _restored(call, request, shown, obj, ctx)
    return obj


def review(call: RequestCall, obj: Json | None, old: Json | None, ctx: RequestContext) -> None:
    """Validating admission of an object in its stored version."""
    if not _validates(call):
        return
    shown = None if obj is None else _shown(call, obj, ctx)
    _validate(call, attributes(call, shown, _shown_old(call, old, ctx), ctx))


def review_deletion(call: RequestCall, old: Json, ctx: RequestContext) -> None:
    """Admission of a deletion, mutating webhooks included: they may refuse it."""
    if not _mutates(call) and not _validates(call):
        return
    request = attributes(call, None, _shown_old(call, old, ctx), ctx, name=call.name)
    if request.is_namespace:
        request.namespace = call.name
    _Mutation(call).run(request)
    _validate(call, request)


def admit_body(call: RequestCall, body: Json, ctx: RequestContext, kind: Kind | None = None) -> Json:
    """What is not stored (a review, an eviction, the options of a stream), after all admission."""
    body = mutate_body(call, body, ctx, kind)
    review_body(call, body, ctx, kind)
    return body


def mutate_body(call: RequestCall, body: Json, ctx: RequestContext, kind: Kind | None = None) -> Json:
    """What is not stored, after mutating admission."""
    if not _mutates(call):
        return body
    request = attributes(call, body, None, ctx, kind=kind)
    chain = _Mutation(call)
    chain.run(request)
    if chain.again():
        chain.run(request)
    assert request.object is not None
    return request.object


def review_body(call: RequestCall, body: Json, ctx: RequestContext, kind: Kind | None = None) -> None:
    """Validating admission of what is not stored."""
    if _validates(call):
        _validate(call, attributes(call, body, None, ctx, kind=kind))


def may_concern(server: ServerState, plural: str, subresource: str = "", group: str = "") -> bool:
    """Whether a rule of any webhook or policy names this resource; no selector is looked at."""
    return any(
        rule_names(rule, group, plural, subresource)
        for phase in PHASES
        for rules in (
            *(webhook.rules for webhook in server.webhooks.webhooks(phase)),
            *(policy.match.rules for policy in server.policies.policies(phase)),
        )
        for rule in rules
    )


def _mutates(call: RequestCall) -> bool:
    server = call.server
    return (server.webhooks.any("mutating") or server.policies.any("mutating")) and not is_exempt(call.resource)


def _validates(call: RequestCall) -> bool:
    server = call.server
    return (server.webhooks.any("validating") or server.policies.any("validating")) and not is_exempt(call.resource)


def _validate(call: RequestCall, request: Attributes) -> None:
    validating.validate(call, request)
    admission.validate(call, request)


class _Mutation:
    """Mutating policies, then mutating webhooks; a second run for those that ask for one."""

    def __init__(self, call: RequestCall) -> None:
        self._call = call
        self._policies, self._webhooks = Reinvocation(), Reinvocation()

    def run(self, request: Attributes) -> None:
        mutating.mutate(self._call, request, self._policies)
        admission.mutate(self._call, request, self._webhooks)

    def again(self) -> bool:
        needed = self._policies.needed or self._webhooks.needed
        self._policies.round = self._webhooks.round = 1
        return needed


def _requested_name(call: RequestCall, obj: Json) -> str:
    """The name as the request has it: one that is still to be generated is none."""
    return call.name or call.drawn.get("requested name", obj["metadata"].get("name", ""))


def _shown(call: RequestCall, obj: Json, ctx: RequestContext) -> Json:
    """An object as the request sees it: in its version, or as the kind of its subresource."""
    resource, subresource = call.resource, call.subresource_type
    shown = obj
    if ctx.seen is not None and resource.custom:
        shown = {**ctx.seen[0], "metadata": obj["metadata"]}
    elif resource.storage != (resource.group, resource.version):
        shown = resource.strategy.from_storage(copy.deepcopy(obj), resource.version)
    if subresource is not None and subresource.view is not None:
        return subresource.view(shown, resource)
    return shown


def _shown_old(call: RequestCall, old: Json | None, ctx: RequestContext) -> Json | None:
    if old is None:
        return None
    resource, subresource = call.resource, call.subresource_type
    shown = old
    if ctx.seen is not None and resource.custom:
        shown = ctx.seen[1]
    elif resource.storage != (resource.group, resource.version):
        shown = resource.strategy.from_storage(copy.deepcopy(old), resource.version)
    if subresource is not None and subresource.view is not None:
        return subresource.view(shown, resource)
    return shown


def _restored(call: RequestCall, request: Attributes, shown: Json, obj: Json, ctx: RequestContext) -> Json:
    """The object in its stored version, after admission changed what it was shown."""
    changed = request.object
    assert changed is not None
    if _content(changed) == _content(shown):
        return obj
    changed = {**changed, "metadata": {**changed["metadata"]}}
    _check_managed_fields(call, changed["metadata"], shown["metadata"])
    resource, subresource = call.resource, call.subresource_type
    if subresource is not None and subresource.merge is not None:
        changed = subresource.merge(copy.deepcopy(_plain(call, obj, ctx)), changed, resource)
    admission.same_namespace(call, changed)
    if resource.storage == (resource.group, resource.version):
        return changed
    ctx.seen = (changed, ctx.seen[1] if ctx.seen is not None else {})
    return resource.strategy.to_storage(copy.deepcopy(changed), resource.version)


def _plain(call: RequestCall, obj: Json, ctx: RequestContext) -> Json:
    resource = call.resource
    if resource.storage == (resource.group, resource.version):
        return obj
    return resource.strategy.from_storage(copy.deepcopy(obj), resource.version)


def _content(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _check_managed_fields(call: RequestCall, metadata: Json, before: Json) -> None:
    """Fields that admission changes have no manager; ownership that it made unreadable is put back."""
    if metadata.get("managedFields") and managedfields.read(metadata["managedFields"]) is None:
        metadata["managedFields"] = before.get("managedFields") or []
        call.warn(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated "
            "mutating admission controller; please fix your requests"
        )
    if not metadata.get("managedFields"):
        metadata.pop("managedFields", None)
