"""CustomResourceDefinitions: how one is checked, accepted, served and let go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.crd.definitioncheck import check_definition
from dovetail.lab.apiserver.crd.serving import resource_types
from dovetail.lab.apiserver.fielderror import FieldError
from dovetail.lab.apiserver.kinds import formats, metadata
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.registry import Context, Object, Registry

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def _stamp(ctx: Context) -> str:
    return ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(kind: str, status: str, reason: str, message: str, ctx: Context) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": _stamp(ctx), "reason": reason, "message": message}


def _with_condition(status: Mapping[str, Any], fresh: Object) -> Object:
    entries = [dict(entry) for entry in status.get("conditions") or ()]
    for index, entry in enumerate(entries):
        if entry["type"] == fresh["type"]:
            if entry["status"] == fresh["status"]:
                fresh["lastTransitionTime"] = entry["lastTransitionTime"]
            entries[index] = fresh
            break
    else:
        entries.append(fresh)
    return {**status, "conditions": entries}


class DefinitionStrategy(KindStrategy):
    generation = True
    status_door = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if not names.get("singular"):
            names["singular"] = names.get("kind", "").lower()
        if not names.get("listKind") and names.get("kind"):
            names["listKind"] = f"{names['kind']}List"
        if "conversion" not in spec:
            spec["conversion"] = {"strategy": "None"}
        service = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)
        for version in spec.get("versions") or ():
            for column in version.get("additionalPrinterColumns") or ():
                column.setdefault("type", "string")
        status = obj.setdefault("status", {})
        if not status.get("storedVersions"):
            stored = [v["name"] for v in spec.get("versions") or () if v.get("storage")][:1]
            status["storedVersions"] = stored or None

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        stored = [v["name"] for v in obj["spec"].get("versions") or () if v.get("storage")]
        obj["metadata"]["generation"] = 1
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }

    def prepare_update(self, obj: Object, old: Object, ctx: Context) -> None:
        super().prepare_update(obj, old, ctx)
        if ctx.subresource:
            return
        for version in obj["spec"].get("versions") or ():
            stored = obj["status"].get("storedVersions") or []
            if version.get("storage") and version["name"] not in stored:
                obj["status"] = {**obj["status"], "storedVersions": [*stored, version["name"]]}

    def keep_all_but_status(self, obj: Object, old: Object) -> None:
        super().keep_all_but_status(obj, old)
        obj["metadata"] = {
            **old["metadata"],
            **{k: obj["metadata"][k] for k in ("resourceVersion",) if k in obj["metadata"]},
        }

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        return check_definition(obj)

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        found = metadata.check(obj["metadata"], False, formats.subdomain) + check_definition(obj)
        if any(c["type"] == "Established" and c["status"] == "True" for c in old["status"].get("conditions") or ()):
            found += immutable(obj["spec"].get("scope"), old["spec"].get("scope"), "spec.scope")
            new, before = obj["spec"].get("names", {}), old["spec"].get("names", {})
            found += immutable(new.get("kind"), before.get("kind"), "spec.names.kind")
        new_group, old_group = obj["spec"].get("group"), old["spec"].get("group")
        found += immutable(new_group, old_group, "spec.group")
        new, before = obj["spec"].get("names", {}), old["spec"].get("names", {})
        return found + immutable(new.get("plural"), before.get("plural"), "spec.names.plural")

    def terminate(self, obj: Object, ctx: Context) -> Object | None:
        """Instances go first: the definition waits for them."""
        meta = obj["metadata"]
        if "deletionTimestamp" in meta and FINALIZER not in (meta.get("finalizers") or ()):
            return None
        if "deletionTimestamp" in meta:
            return obj
        text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        condition = _condition("Terminating", "True", "InstanceDeletionPending", text, ctx)
        finalizers = [*(meta.get("finalizers") or ()), FINALIZER]
        marked = {**meta, "deletionTimestamp": _stamp(ctx), "finalizers": finalizers}
        return {**obj, "metadata": marked, "status": _with_condition(obj["status"], condition)}

    def committed(self, obj: Object | None, old: Object | None, ctx: Context) -> None:
        if obj is None:
            if old is not None:
                spec = old["spec"]
                ctx.registry.replace_custom(spec["group"], spec["names"]["plural"], ())
            return
        name = obj["metadata"]["name"]
        if "deletionTimestamp" in obj["metadata"]:
            ctx.defer(lambda: finish(name, ctx))
        elif not (obj["status"].get("conditions") or ()):
            ctx.defer(lambda: accept(name, ctx))
        elif old is None or obj["spec"] != old["spec"] or not _established(old):
            serve(obj, ctx.registry)
            if _established(obj) and obj["status"].get("acceptedNames") != obj["spec"]["names"]:
                ctx.defer(lambda: accept(name, ctx))


def _established(obj: Object) -> bool:
    conditions = obj["status"].get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def serve(obj: Object, registry: Registry) -> None:
    """Answer for the served versions of an established definition."""
    spec = obj["spec"]
    types = resource_types(obj, registry) if _established(obj) else ()
    registry.replace_custom(spec["group"], spec["names"]["plural"], types)


def accept(name: str, ctx: Context) -> None:
    """Take the names, then establish: the two steps that watchers see."""
    obj = ctx.cluster.get(GROUP, PLURAL, None, name)
    if obj is None or "deletionTimestamp" in obj["metadata"]:
        return
    conflict = _conflict(obj, ctx)
    status = obj["status"]
    if conflict:
        status = _with_condition(status, _condition("NamesAccepted", "False", conflict[0], conflict[1], ctx))
        text = "not all names are accepted"
        status = _with_condition(status, _condition("Established", "False", "NotAccepted", text, ctx))
        _update(obj, status, ctx)
        return
    names = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", ctx)
    status = _with_condition({**status, "acceptedNames": dict(obj["spec"]["names"])}, names)
    text = "the initial names have been accepted"
    if not _established(obj):
        status = _with_condition(status, _condition("Established", "False", "Installing", text, ctx))
        obj = _update(obj, status, ctx)
        done = _condition("Established", "True", "InitialNamesAccepted", text, ctx)
        status = _with_condition(obj["status"], done)
    _update(obj, status, ctx)


def _conflict(obj: Object, ctx: Context) -> tuple[str, str] | None:
    spec = obj["spec"]
    for other in ctx.cluster.list(GROUP, PLURAL):
        if other["metadata"]["name"] == obj["metadata"]["name"] or other["spec"]["group"] != spec["group"]:
            continue
        taken = other["status"].get("acceptedNames") or {}
        plurals = {taken.get("plural"), taken.get("singular"), *(taken.get("shortNames") or ())}
        for word, reason in (("plural", "PluralConflict"), ("singular", "SingularConflict")):
            if spec["names"].get(word) in plurals:
                return reason, f'"{spec["names"][word]}" is already in use'
        for short in spec["names"].get("shortNames") or ():
            if short in plurals:
                return "ShortNamesConflict", f'"{short}" is already in use'
        kinds = {taken.get("kind"), taken.get("listKind")}
        for word, reason in (("kind", "KindConflict"), ("listKind", "ListKindConflict")):
            if spec["names"].get(word) in kinds:
                return reason, f'"{spec["names"][word]}" is already in use'
    return None


def _update(obj: Object, status: Object, ctx: Context) -> Object:
    from dovetail.lab.apiserver import managedfields

    fresh = {**obj, "metadata": dict(obj["metadata"]), "status": status}
    resource = ctx.registry.stored(GROUP, PLURAL)
    assert resource is not None
    managedfields.track_update(resource, obj, fresh, "kube-apiserver", "status", ctx.now)
    return ctx.cluster.update(GROUP, PLURAL, fresh)


def finish(name: str, ctx: Context) -> None:
    """Delete the instances; with the last one the definition goes."""
    obj = ctx.cluster.get(GROUP, PLURAL, None, name)
    if obj is None or FINALIZER not in (obj["metadata"].get("finalizers") or ()):
        return
    group, plural = obj["spec"]["group"], obj["spec"]["names"]["plural"]
    for instance in list(ctx.cluster.list(group, plural)):
        if "deletionTimestamp" not in instance["metadata"]:
            meta = instance["metadata"]
            ctx.cluster.delete(group, plural, meta.get("namespace"), meta["name"], {})
    if any(True for _ in ctx.cluster.list(group, plural)):
        text = "CustomResource deletion is in progress"
        progress = _condition("Terminating", "True", "InstanceDeletionInProgress", text, ctx)
        _update(obj, _with_condition(obj["status"], progress), ctx)
        return
    left = [entry for entry in obj["metadata"]["finalizers"] if entry != FINALIZER]
    meta = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
    if left:
        meta["finalizers"] = left
    ctx.registry.replace_custom(group, plural, ())
    ctx.cluster.update(GROUP, PLURAL, {**obj, "metadata": meta})
    if not left:
        ctx.cluster.delete(GROUP, PLURAL, None, name, {})
