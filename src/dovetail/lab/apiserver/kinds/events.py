"""Events: one record, two names for its fields (core and events.k8s.io)."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.lab.apiserver.canonicalize import zero
from dovetail.lab.apiserver.kinds import types
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, invalid, required
from dovetail.model.validation.selectors import label_name

_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}
_SUBJECT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


#: What never changes in an event, in the order the server looks; at the reason it looks twice.
_FIXED = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type"),
    *("eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)


class EventStrategy(KindStrategy):
    create_on_update = True
    owned_finalizers = False
    rechecks_change = False
    name_rule = staticmethod(formats.path_segment)

    def __init__(self, group: str) -> None:
        self.group = group

    def to_storage(self, obj: Object, version: str) -> Object:
        if self.group == "":
            return obj
        stored = zero(types.schema_of("", "v1", "Event"))
        stored |= {_NAMES.get(key, key): value for key, value in obj.items()}
        return stored | {"apiVersion": "v1"}

    def from_storage(self, obj: Object, version: str) -> Object:
        if self.group == "":
            return obj
        shown = zero(types.schema_of("events.k8s.io", "v1", "Event"))
        shown |= {_BACK.get(key, key): value for key, value in obj.items() if value or key in ("metadata", "eventTime")}
        return shown | {"apiVersion": "events.k8s.io/v1"}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self._legacy(obj)
        if self.group == "":
            return errors
        errors += metadata.check(obj["metadata"], True, formats.subdomain)
        errors += self._series(obj)
        if not obj.get("eventTime"):
            errors.append(required("eventTime"))
        if obj.get("type", "") not in ("Normal", "Warning"):
            errors.append(invalid("type", "", f"has invalid value: {obj.get('type', '')}"))
        for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
            if obj.get(field):
                errors.append(invalid(field, "", "needs to be unset"))
        return errors

    def _series(self, obj: Object) -> list[FieldError]:
        series = obj.get("series")
        errors: list[FieldError] = []
        if series is not None:
            if series.get("count", 0) < 2:
                errors.append(invalid("series.count", "", "should be at least 2"))
            if not series.get("lastObservedTime"):
                errors.append(required("series.lastObservedTime"))
        return errors

    def _legacy(self, obj: Object) -> list[FieldError]:
        namespace = obj["metadata"].get("namespace", "")
        involved = (obj.get("involvedObject") or {}).get("namespace", "")
        mismatch = invalid("involvedObject.namespace", involved, "does not match event.namespace")
        if not obj.get("eventTime"):
            wrong = namespace not in ("", "default") if not involved else namespace != involved
            return [mismatch] if wrong else []
        errors = [mismatch] if not involved and namespace not in ("default", "kube-system") else []
        controller = obj.get("reportingComponent", "")
        field_path = "reportingComponent" if self.group == "" else "reportingController"
        if not controller:
            errors.append(required(field_path))
        errors += label_name(controller, field_path)
        for field, limit in (("reportingInstance", 128), ("action", 128), ("reason", 128)):
            if not obj.get(field):
                errors.append(required(field))
            elif formats.size(obj[field]) > limit:
                errors.append(invalid(field, "", f"can have at most {limit} characters"))
        if formats.size(obj.get("message", "")) > 1024:
            errors.append(invalid("message", "", "can have at most 1024 characters"))
        return errors

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return self.check(obj, ctx) or metadata.check(obj["metadata"], True, formats.path_segment)

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self._legacy(obj)
        if self.group == "":
            return errors
        errors += metadata.check_update(obj["metadata"], old["metadata"]) + metadata.own_finalizers(obj["metadata"])
        if obj.get("series") != old.get("series"):
            errors += self._series(obj)
        for field in _FIXED:
            shown = "reportingController" if field == "reportingComponent" else field
            errors += immutable(obj.get(field), old.get(field), shown)
        return errors

    def selectable(self, obj: Object) -> Mapping[str, str]:
        involved = obj.get("involvedObject") or obj.get("regarding") or {}
        reporter = obj.get("reportingComponent") or obj.get("reportingController") or ""
        values = {f"{self._subject}.{field}": involved.get(field, "") for field in _SUBJECT}
        values |= {"reason": obj.get("reason", ""), "type": obj.get("type", "")}
        if self.group:
            return values | {"reportingController": reporter}
        return values | {
            "reportingComponent": reporter,
            "source": (obj.get("source") or {}).get("component", "") or reporter,
        }

    @property
    def _subject(self) -> str:
        return "regarding" if self.group else "involvedObject"

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(self.selectable({}))

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"
