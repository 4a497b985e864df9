"""The common strategy of built-in kinds: metadata rules, the status subresource, generation.

A kind derives from it and writes only what it means: `defaults`, `check` (a new object), `check_change` (an update).
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.lab.apiserver.kinds.admission import lifecycle, quota
from dovetail.lab.apiserver.registry import Object, RequestContext, RestStrategy
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, invalid


def immutable(new: object, old: object, path: str) -> list[FieldError]:
    return [] if new == old else [invalid(path, new, metadata.IMMUTABLE)]


class KindStrategy(RestStrategy):
    """A built-in kind. `generation` counts spec changes. With `has_status_subresource`, only that one writes status."""

    name_rule: metadata.NameRule = staticmethod(formats.subdomain)
    generation_fields: Sequence[str] = ("spec",)
    owned_finalizers = True
    #: The checks of metadata that a kind repeats, which shows as repeated causes: of all on updates, of what may change
    #: on updates, and through the status subresource.
    rechecks_all = False
    rechecks_change = True
    rechecks_status = True

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        """Complaints about a new object, besides its metadata."""
        return []

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        """Complaints about a new state of an object, besides its metadata; by default the same as for a new one."""
        return self.check(obj, ctx)

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        """Complaints about a write through the status subresource, besides metadata."""
        return []

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        lifecycle.admit(obj, ctx)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        if self.has_status_subresource:
            self.clear_status(obj)
        if self.generation:
            obj["metadata"]["generation"] = 1

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {}

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        if ctx.subresource == "status":
            self.keep_all_but_status(obj, old)
            return
        if self.has_status_subresource:
            restore(obj, old, "status")
        if self.generation and any(obj.get(field) != old.get(field) for field in self.generation_fields):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def keep_all_but_status(self, obj: Object, old: Object) -> None:
        """A write to the status subresource: the spec stays as it was."""
        for field in old:
            if field not in ("metadata", "status"):
                obj[field] = old[field]
        for field in [f for f in obj if f not in old and f not in ("metadata", "status")]:
            del obj[field]
        for field in self.status_keeps:
            restore(obj["metadata"], old["metadata"], field)

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        namespaced = ctx.resource.namespaced
        errors = metadata.check(obj["metadata"], namespaced, self.name_rule)
        if self.owned_finalizers:
            errors += metadata.own_finalizers(obj["metadata"])
        errors += self.check(obj, ctx)
        return errors or metadata.check_name(obj["metadata"], formats.path_segment)

    def validate_update(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        meta, before = obj["metadata"], old["metadata"]
        errors = metadata.check(meta, ctx.resource.namespaced, formats.path_segment)
        errors += metadata.check_update(meta, before)
        own = metadata.own_finalizers(meta) if self.owned_finalizers else []
        if ctx.subresource == "status":
            errors += metadata.check_update(meta, before) + own if self.rechecks_status else []
            return errors + self.check_status(obj, old, ctx)
        if self.rechecks_all:
            errors += metadata.check(meta, ctx.resource.namespaced, formats.path_segment) + own
        if self.rechecks_change:
            errors += metadata.check_update(meta, before) + own
        return errors + self.check_change(obj, old, ctx)


class CountedStrategy(KindStrategy):
    """A kind that quotas count: every one that people make, but not what the machinery makes by the thousand."""

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        quota.review(obj, old, ctx)


def restore(obj: Object, old: Object, field: str) -> None:
    """Give a field its old value, or take it away."""
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)
