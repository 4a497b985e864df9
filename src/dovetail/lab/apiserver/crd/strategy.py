"""Custom resources: a strategy made from a definition's version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dovetail.lab.apiserver.crd import cel_rules
from dovetail.lab.apiserver.crd.cel_rules import Correlation
from dovetail.lab.apiserver.crd.finalizer import GROUP, PLURAL, finish
from dovetail.lab.apiserver.crd.jsonpath import compile_path, dotted, get
from dovetail.lab.apiserver.crd.schema_validation import list_types, validate
from dovetail.lab.apiserver.crd.structural import Structural, apply_defaults, prune
from dovetail.lab.apiserver.gocompat.goprint import plain
from dovetail.lab.apiserver.kinds.admission import lifecycle, quota
from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.kinds.base import restore
from dovetail.lab.apiserver.registry import Converter, Object, RequestContext, RestStrategy
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, invalid

Convert = Callable[[Object, str], Object]
_BLOCKING = frozenset(
    (
        *("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany"),
        "FieldValueTypeInvalid",
    )
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_SELF = ("kubernetes", "orphan", "foregroundDeletion")


class CustomStrategy(RestStrategy):
    """One served version of a custom resource."""

    unconditional_update = False
    generation = True

    def __init__(
        self,
        version: Mapping[str, Any],
        schema: Structural,
        stored_schema: Structural,
        group: str,
        namespaced: bool,
        storage: str,
        converter: Convert | None = None,
        webhook: Converter | None = None,
    ) -> None:
        self.schema = schema
        self.stored_schema = stored_schema
        self.group = group
        self.version: str = version["name"]
        self.storage = storage
        self.namespaced = namespaced
        self.converter = webhook or converter
        self.webhook = webhook
        self.renamed_only = self.converter is None
        subresources = version.get("subresources") or {}
        self.has_status_subresource = "status" in subresources
        self.scale: Mapping[str, Any] | None = subresources.get("scale")
        self.fields = {
            entry["jsonPath"].removeprefix("."): compile_path(entry["jsonPath"])
            for entry in version.get("selectableFields") or ()
        }

    def default(self, obj: Object) -> None:
        whole_numbers(obj)
        apply_defaults(self.schema, obj)

    def to_storage(self, obj: Object, version: str) -> Object:
        """In the stored version's form, by its schema: what that does not know is lost."""
        if self.converter is not None and obj.get("apiVersion") != f"{self.group}/{self.storage}":
            obj = self.converter(obj, self.storage)
        made: Object = {**prune(self.stored_schema, obj), "apiVersion": f"{self.group}/{self.storage}"}
        apply_defaults(self.stored_schema, made)
        return made

    def from_storage(self, obj: Object, version: str) -> Object:
        if version == self.storage and self.is_current(obj):
            return obj
        if self.converter is not None:
            obj = self.converter(obj, version)
        shown: Object = prune(self.schema, obj)
        return {**shown, "apiVersion": f"{self.group}/{version}"}

    def prepare(self, objects: Iterable[Object], version: str) -> None:
        if self.webhook is not None:
            self.webhook.prepare(objects, version)

    def is_current(self, obj: Object) -> bool:
        return self.webhook is None or obj.get("apiVersion") == f"{self.group}/{self.storage}"

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        lifecycle.admit(obj, ctx)
        if obj is not None and ctx.operation == "CREATE" and self._ending(ctx):
            raise forbidden(obj, ctx, "create not allowed while custom resource definition is terminating")

    def _ending(self, ctx: RequestContext) -> bool:
        name = f"{ctx.resource.plural}.{self.group}"
        definition = ctx.cluster.get(GROUP, PLURAL, None, name)
        return definition is not None and "deletionTimestamp" in definition["metadata"]

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        for version in (obj, ctx.seen[0]) if ctx.seen else (obj,):
            if self.has_status_subresource:
                version.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        for new, before in ((obj, old), ctx.seen) if ctx.seen else ((obj, old),):
            if ctx.subresource == "status":
                self._only_status(new, before)
            elif self.has_status_subresource:
                restore(new, before, "status")
        if ctx.subresource == "status":
            return
        if _content(new) != _content(before):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _only_status(self, obj: Object, old: Object) -> None:
        """A write to the status subresource: everything else stays as it was."""
        fixed = ("managedFields", "resourceVersion", "uid", "name", "namespace")
        meta, before = obj["metadata"], old["metadata"]
        for key in {*meta, *before} - set(fixed):
            restore(meta, before, key)
        for field in {*obj, *old} - {"metadata", "status", "kind", "apiVersion"}:
            restore(obj, old, field)
        if obj.get("status") is None:
            obj.pop("status", None)

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors = metadata.check(obj["metadata"], self.namespaced, formats.subdomain)
        if ctx.seen:
            obj = {**ctx.seen[0], "metadata": obj["metadata"]}
        errors += validate(self.schema, obj) + self._scale(obj)
        errors += list_types(self.schema, obj)
        return self._with_rules(errors, obj, None, ctx)

    def validate_update(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        meta, before = obj["metadata"], old["metadata"]
        errors = metadata.check(meta, self.namespaced, formats.path_segment) + metadata.check_update(meta, before)
        errors += metadata.check_update(meta, before)
        if ctx.seen:
            obj, old = {**ctx.seen[0], "metadata": meta}, ctx.seen[1]
        if ctx.subresource == "status":
            return self._status(errors, obj, old, ctx)
        trace = Correlation(_content(obj), _content(old), True)
        errors += validate(self.schema, obj, _Root(trace)) + self._scale(obj)
        if not list_types(self.schema, old):
            errors += list_types(self.schema, obj)
        return self._with_rules(errors, obj, old, ctx)

    def _status(self, errors: list[FieldError], obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        schema = self.schema.properties.get("status")
        if schema is None or "status" not in obj:
            return errors + self._scale_status(obj)
        trace = Correlation(obj["status"], old["status"], True) if "status" in old else None
        for error in validate(schema, obj["status"], trace):
            field_path = "status" if error.field == "<nil>" else f"status.{error.field}"
            errors.append(FieldError(error.type, field_path, error.value, error.detail))
        errors += self._scale_status(obj)
        errors += list_types(self.schema, {"status": obj["status"]})
        return self._with_rules(errors, obj, old, ctx)

    def _with_rules(
        self, errors: list[FieldError], obj: Object, old: Object | None, ctx: RequestContext
    ) -> list[FieldError]:
        if not self.schema.has_rules:
            return errors
        if any(error.type in _BLOCKING for error in errors):
            return [*errors, invalid("<nil>", None, _UNCHECKED)]
        trace = Correlation(obj, old, True) if old is not None else Correlation()
        return errors + cel_rules.run(self.schema, obj, old, "", trace, ctx.warn)

    def _scale(self, obj: Object) -> list[FieldError]:
        if self.scale is None:
            return []
        path = self.scale.get("specReplicasPath", "")
        return _replicas(obj, path) + self._scale_status(obj)

    def _scale_status(self, obj: Object) -> list[FieldError]:
        return _replicas(obj, self.scale.get("statusReplicasPath", "")) if self.scale is not None else []

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        before = set((old or {}).get("metadata", {}).get("finalizers") or ())
        added = sorted(set(obj["metadata"].get("finalizers") or ()) - before)
        return [_prefer(name) for name in added if "/" not in name and name not in _SELF]

    def committed(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        definition = ctx.resource.definition
        if obj is None and definition is not None:
            name = definition["metadata"]["name"]
            ctx.defer(lambda: finish(name, ctx))

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        quota.review(obj, old, ctx)

    def selectable(self, obj: Object) -> Mapping[str, str]:
        selectable = {}
        for name, find in self.fields.items():
            values = find(obj)
            selectable[name] = _text(values[0]) if values and values[0] is not None else ""
        return selectable

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(self.fields)

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"


def _prefer(name: str) -> str:
    path = " including a path (/)" if "." in name else ""
    return (
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} to avoid '
        "accidental conflicts with other finalizer writers"
    )


def whole_numbers(value: Any) -> Any:
    """Floats without a fraction are printed as integers, and so they are kept."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    if isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, float | dict | list):
                value[name] = whole_numbers(item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, float | dict | list):
                value[index] = whole_numbers(item)
    return value


class _Root(Correlation):
    """The top of an object: its metadata does not count when asking what changed."""

    def __init__(self, inner: Correlation) -> None:
        super().__init__(inner.new, inner.old, True)


def _text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _content(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "apiVersion", "kind")}


_GO_TYPES = {str: "string", float: "float64", bool: "bool", int: "int64", list: "[]interface {}"}


def _replicas(obj: Object, path: str) -> list[FieldError]:
    names = dotted(path)
    parent = get(obj, names[:-1])
    if parent is not None and not isinstance(parent, dict):
        return [_no_access(path, parent, "map[string]interface{}")]
    value = get(obj, names)
    if value is None:
        return []
    if not isinstance(value, int) or isinstance(value, bool):
        return [_no_access(path, value, "int64")]
    if value < 0:
        return [invalid(path, value, "should be a non-negative integer")]
    if value >= 2**31:
        return [invalid(path, value, "should be less than or equal to 2147483647")]
    return []


def _no_access(path: str, value: Any, access: str) -> FieldError:
    shown = _GO_TYPES.get(type(value), "map[string]interface {}")
    return invalid(path, 0, f"{path} accessor error: {plain(value)} is of the type {shown}, expected {access}")
