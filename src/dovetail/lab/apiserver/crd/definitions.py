"""CustomResourceDefinitions: how one is checked, accepted, served and let go."""

from __future__ import annotations

from dovetail.lab.apiserver.crd.crd_validation import check_definition
from dovetail.lab.apiserver.crd.finalizer import (
    FINALIZER,
    GROUP,
    PLURAL,
    condition,
    finish,
    stamp,
    update,
    with_condition,
)
from dovetail.lab.apiserver.crd.serving import resource_types
from dovetail.lab.apiserver.crd.unions import settle
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.registry import Object, Registry, RequestContext
from dovetail.model.validation.field_errors import FieldError


class DefinitionStrategy(KindStrategy):
    generation = True
    has_status_subresource = True
    owned_finalizers = False

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
            settle((version.get("schema") or {}).get("openAPIV3Schema"))
            for column in version.get("additionalPrinterColumns") or ():
                column.setdefault("type", "string")
        status = obj.setdefault("status", {})
        if not status.get("storedVersions"):
            stored = [v["name"] for v in spec.get("versions") or () if v.get("storage")][:1]
            status["storedVersions"] = stored or None

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        stored = [v["name"] for v in obj["spec"].get("versions") or () if v.get("storage")]
        obj["metadata"]["generation"] = 1
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        super().prepare_update(obj, old, ctx)
        if ctx.subresource:
            return
        for version in obj["spec"].get("versions") or ():
            stored = obj["status"].get("storedVersions") or []
            if version.get("storage") and version["name"] not in stored:
                obj["status"] = {**obj["status"], "storedVersions": [*stored, version["name"]]}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return check_definition(obj)

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = check_definition(obj, new=False)
        if any(c["type"] == "Established" and c["status"] == "True" for c in old["status"].get("conditions") or ()):
            errors += immutable(obj["spec"].get("scope"), old["spec"].get("scope"), "spec.scope")
            new, before = obj["spec"].get("names", {}), old["spec"].get("names", {})
            errors += immutable(new.get("kind"), before.get("kind"), "spec.names.kind")
        new_group, old_group = obj["spec"].get("group"), old["spec"].get("group")
        errors += immutable(new_group, old_group, "spec.group")
        new, before = obj["spec"].get("names", {}), old["spec"].get("names", {})
        return errors + immutable(new.get("plural"), before.get("plural"), "spec.names.plural")

    def terminate(self, obj: Object, ctx: RequestContext) -> Object | None:
        """Instances go first: the definition waits for them."""
        meta = obj["metadata"]
        if "deletionTimestamp" in meta and FINALIZER not in (meta.get("finalizers") or ()):
            return None
        if "deletionTimestamp" in meta:
            return obj
        text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        pending = condition("Terminating", "True", "InstanceDeletionPending", text, ctx)
        finalizers = [*(meta.get("finalizers") or ()), FINALIZER]
        marked = {**meta, "deletionTimestamp": stamp(ctx), "finalizers": finalizers}
        return {**obj, "metadata": marked, "status": with_condition(obj["status"], pending)}

    def committed(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
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
            if old is not None and obj["spec"]["versions"] != old["spec"]["versions"]:
                ctx.cluster.reread(obj["spec"]["group"], obj["spec"]["names"]["plural"])
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


def accept(name: str, ctx: RequestContext) -> None:
    """Take the names, then establish: the two steps that watchers see."""
    obj = ctx.cluster.get(GROUP, PLURAL, None, name)
    if obj is None or "deletionTimestamp" in obj["metadata"]:
        return
    free, reason, text = _conflict(obj, ctx)
    status = {**obj["status"], "acceptedNames": free}
    if reason:
        status = with_condition(status, condition("NamesAccepted", "False", reason, text, ctx))
        text = "not all names are accepted"
        status = with_condition(status, condition("Established", "False", "NotAccepted", text, ctx))
        update(obj, status, ctx)
        return
    names = condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", ctx)
    status = with_condition(status, names)
    text = "the initial names have been accepted"
    if not _established(obj):
        status = with_condition(status, condition("Established", "False", "Installing", text, ctx))
        obj = update(obj, status, ctx)
        done = condition("Established", "True", "InitialNamesAccepted", text, ctx)
        status = with_condition(obj["status"], done)
    update(obj, status, ctx)


def _conflict(obj: Object, ctx: RequestContext) -> tuple[Object, str, str]:
    """The names that are free, and why one is not: its reason and its text."""
    spec, names = obj["spec"], obj["spec"]["names"]
    words: set[str] = set()
    kinds: set[str] = set()
    for other in ctx.cluster.list(GROUP, PLURAL):
        if other["metadata"]["name"] == obj["metadata"]["name"] or other["spec"]["group"] != spec["group"]:
            continue
        taken = other["status"].get("acceptedNames") or {}
        words |= {taken.get("plural", ""), taken.get("singular", ""), *(taken.get("shortNames") or ())}
        kinds |= {taken.get("kind", ""), taken.get("listKind", "")}
    free: Object = {"plural": "", "kind": ""}
    reason = text = ""
    for field, used in (
        ("plural", words),
        ("singular", words),
        ("shortNames", words),
        ("kind", kinds),
        ("listKind", kinds),
    ):
        value = names.get(field)
        clash = [name for name in (value if isinstance(value, list) else [value]) if name and name in used]
        if clash:
            label = field[0].upper() + field[1:]
            reason, text = f"{label}Conflict", f'"{clash[0]}" is already in use'
        elif value:
            free[field] = value
    if "categories" in names:
        free["categories"] = names["categories"]
    return free, reason, text
