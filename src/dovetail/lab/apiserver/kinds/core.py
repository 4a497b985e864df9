"""Small kinds of the core group: namespaces, config maps, secrets, service accounts, limits, templates."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.gocompat import gojson
from dovetail.lab.apiserver.kinds.base import CountedStrategy, KindStrategy, immutable, restore
from dovetail.lab.apiserver.kinds.pod.defaults import round_up, template_defaults
from dovetail.lab.apiserver.kinds.pod.spec import check_template
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata, resources
from dovetail.model.validation.field_errors import FieldError, duplicate, forbidden, invalid, required, too_long

_LIMIT = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"


class NamespaceStrategy(KindStrategy):
    rechecks_all = True
    name_rule = staticmethod(formats.label)
    has_status_subresource = True

    def default(self, obj: Object) -> None:
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = (obj["metadata"].get("labels") or {}) | {"kubernetes.io/metadata.name": name}
        if not obj.setdefault("status", {}).get("phase"):
            obj["status"]["phase"] = "Active"

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        obj["status"] = {"phase": "Active"}
        self.default(obj)
        spec = obj.setdefault("spec", {})
        finalizers = spec.get("finalizers") or []
        if "kubernetes" not in finalizers:
            spec["finalizers"] = [*finalizers, "kubernetes"]

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        if ctx.subresource == "status":
            restore(obj, old, "spec")
        elif ctx.subresource == "finalize":
            restore(obj, old, "status")
        else:
            restore(obj, old, "status")
            finalizers = (old.get("spec") or {}).get("finalizers")
            spec = obj.setdefault("spec", {})
            if finalizers is None:
                spec.pop("finalizers", None)
            else:
                spec["finalizers"] = finalizers

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, name in enumerate((obj.get("spec") or {}).get("finalizers") or ()):
            field_path = "spec.finalizers" if ctx.operation == "CREATE" else f"spec.finalizers[{index}]"
            errors += [invalid(field_path, name, text) for text in formats.qualified_name(name)]
            if "/" not in name and name not in ("kubernetes", "orphan", "foregroundDeletion"):
                text = "name is neither a standard finalizer name nor is it fully qualified"
                errors.append(invalid(field_path, name, text))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return self.check(obj, ctx) if ctx.subresource == "finalize" else []

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        phase = obj["status"].get("phase", "")
        if "deletionTimestamp" not in old["metadata"]:
            if phase == "Active":
                return []
            return [invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty")]
        if phase == "Terminating":
            return []
        return [invalid("status.Phase", phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")]

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.phase": (obj.get("status") or {}).get("phase", ""), "name": obj["metadata"]["name"]}

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(("status.phase", "name"))

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        return []


class ConfigMapStrategy(CountedStrategy):
    def default(self, obj: Object) -> None:
        """An empty map is not printed, so there is nothing to fill in."""

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        errors: list[FieldError] = []
        size = 0
        for key in sorted(data):
            errors += [invalid(f"data[{key}]", key, text) for text in formats.config_key(key)]
            if key in binary:
                errors.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
            size += formats.size(data[key])
        for key in sorted(binary):
            errors += [invalid(f"binaryData[{key}]", key, text) for text in formats.config_key(key)]
            size += len(base64.b64decode(binary[key] or ""))
        if size > _LIMIT:
            errors.append(too_long("[]", _LIMIT))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = _frozen(obj, old, ("data", "binaryData"))
        errors += metadata.check_own(obj["metadata"], True, formats.subdomain)
        return errors + self.check(obj, ctx)


def _frozen(obj: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = [] if obj.get("immutable") else [forbidden("immutable", _FROZEN)]
    return errors + [forbidden(field, _FROZEN) for field in fields if (obj.get(field) or {}) != (old.get(field) or {})]


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


class SecretStrategy(CountedStrategy):
    def default(self, obj: Object) -> None:
        obj.setdefault("type", "Opaque")
        text = obj.pop("stringData", None)
        if text:
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in text.items()}
            obj["data"] = (obj.get("data") or {}) | encoded

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        data = obj.get("data") or {}
        errors: list[FieldError] = []
        size = 0
        for key in sorted(data):
            errors += [invalid(f"data[{key}]", key, text) for text in formats.config_key(key)]
            size += len(base64.b64decode(data[key] or ""))
        if size > _LIMIT:
            errors.append(too_long("data", _LIMIT))
        return errors + self._typed(obj, data)

    def _typed(self, obj: Object, data: Mapping[str, str]) -> list[FieldError]:
        kind = obj.get("type", "")
        errors: list[FieldError] = []
        if kind == "kubernetes.io/service-account-token":
            key = "kubernetes.io/service-account.name"
            if not (obj["metadata"].get("annotations") or {}).get(key):
                errors.append(required(f"metadata.annotations[{key}]"))
        elif kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
            errors += [required("data[username]"), required("data[password]")]
        for key in _SECRET_KEYS.get(kind, ()):
            if key not in data or (kind.endswith("ssh-auth") and not data[key]):
                errors.append(required(f"data[{key}]"))
            elif key.startswith(".docker"):
                text = _no_object(base64.b64decode(data[key]))
                errors += [invalid(f"data[{key}]", "<secret contents redacted>", text)] if text else []
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = immutable(obj.get("type", ""), old.get("type", ""), "type") + _frozen(obj, old, ("data",))
        errors += metadata.check_own(obj["metadata"], True, formats.subdomain)
        return errors + self.check(obj, ctx)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        """A type that was left out means the old one."""

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        """A key pair that is none; whether a certificate fits its key is not looked at."""
        if obj.get("type") != "kubernetes.io/tls":
            return []
        for key, what in (("tls.crt", "certificate"), ("tls.key", "key")):
            if b"-----BEGIN " not in base64.b64decode((obj.get("data") or {}).get(key) or ""):
                return [f"tls: failed to find any PEM data in {what} input"]
        return []

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"type": obj.get("type", "")}

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(("type",))

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"


_GO_KINDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def _no_object(text: bytes) -> str:
    """Why a text is no JSON object; "" where it is one."""
    complaint = gojson.problem(text)
    if complaint:
        return complaint
    value = json.loads(text)
    if value is None or isinstance(value, dict):
        return ""
    return f"json: cannot unmarshal {_GO_KINDS[type(value)]} into Go value of type map[string]interface {{}}"


class ServiceAccountStrategy(CountedStrategy):
    rechecks_all = True
    returns_deleted = True

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return []


class PodTemplateStrategy(KindStrategy):
    generation = True
    returns_deleted = True
    generation_fields = ("template",)

    def default(self, obj: Object) -> None:
        template_defaults(obj.setdefault("template", {"metadata": {}, "spec": {}}))

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return check_template(obj["template"], "template")


class LimitRangeStrategy(KindStrategy):
    rechecks_all = True
    rechecks_change = False

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = ctx.chance.uid()

    def default(self, obj: Object) -> None:
        for item in obj.setdefault("spec", {}).get("limits") or ():
            for field in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
                round_up(item.get(field) or {})
            if item.get("type") == "Container":
                default = {**item.get("max", {}), **item.get("default", {})}
                request = {**item.get("min", {}), **default, **item.get("defaultRequest", {})}
                for field, values in (("default", default), ("defaultRequest", request)):
                    if values:
                        item[field] = values

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, item in enumerate(obj["spec"].get("limits") or ()):
            field_path, kind = f"spec.limits[{index}]", item.get("type", "")
            errors += [invalid(f"{field_path}.type", kind, text) for text in formats.qualified_name(kind)]
            if "/" not in kind and kind not in ("Pod", "Container", "PersistentVolumeClaim") and kind:
                text = "must be a standard limit type or fully qualified"
                errors.append(invalid(f"{field_path}.type", kind, text))
            if kind in seen:
                errors.append(duplicate(f"{field_path}.type", kind))
            seen.add(kind)
            errors += self._item(item, kind, field_path)
        return errors

    def _item(self, item: Mapping[str, Any], kind: str, field_path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        fields = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if item.get(field):
                    errors.append(forbidden(f"{field_path}.{field}", "may not be specified when `type` is 'Pod'"))
            fields = ["max", "min", "maxLimitRequestRatio"]
        rule = resources.container_resource_name if kind in ("Pod", "Container") else resources.resource_name
        for field in fields:
            for name in sorted(item.get(field) or {}):
                errors += rule(name, f"{field_path}.{field}[{name}]")
        if kind == "PersistentVolumeClaim" and not any("storage" in (item.get(f) or {}) for f in ("min", "max")):
            text = "either minimum or maximum storage value is required, but neither was provided"
            errors.append(required(f"{field_path}.limits", text))
        for name in sorted({name for field in fields for name in item.get(field) or {}}):
            errors += self._bounds({field: (item.get(field) or {}).get(name) for field in fields}, name, field_path)
        return errors

    def _bounds(self, own: dict[str, Any], name: str, field_path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        least, most = own.get("min"), own.get("max")
        default, request = own.get("default"), own.get("defaultRequest")

        def above(a: str | None, b: str | None, field: str, shown: str | None, text: str) -> None:
            if a is not None and b is not None and resources.amount(a) > resources.amount(b):
                errors.append(invalid(f"{field_path}.{field}[{name}]", shown, text))

        above(least, most, "min", least, f"min value {least} is greater than max value {most}")
        above(
            least,
            request,
            "defaultRequest",
            request,
            f"min value {least} is greater than default request value {request}",
        )
        above(
            request,
            most,
            "defaultRequest",
            request,
            f"default request value {request} is greater than max value {most}",
        )
        text = f"default request value {request} is greater than default limit value {default}"
        above(request, default, "defaultRequest", request, text)
        above(least, default, "default", least, f"min value {least} is greater than default value {default}")
        above(default, most, "default", most, f"default value {default} is greater than max value {most}")
        ratio = own.get("maxLimitRequestRatio")
        if ratio is not None and resources.amount(ratio) < resources.amount("1"):
            errors.append(invalid(f"{field_path}.maxLimitRequestRatio[{name}]", ratio, f"ratio {ratio} is less than 1"))
        return errors
