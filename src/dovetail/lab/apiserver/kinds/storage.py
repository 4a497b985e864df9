"""StorageClasses, CSI nodes and drivers, volume attachments."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.lab.apiserver.gocompat.internal_types import internal
from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.kinds.pod.defaults import fill
from dovetail.lab.apiserver.kinds.volume_rules import csi_driver_name
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, unsupported
from dovetail.model.validation.selectors import label_name

_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES = ("Persistent", "Ephemeral")


def _topologies(terms: Sequence[Object]) -> list[FieldError]:
    """Topologies that repeat nothing: for the server, one that asks for nothing repeats as many as there are."""
    errors: list[FieldError] = []
    seen: list[dict[str, set[str]]] = [{} for _ in terms]
    for index, term in enumerate(terms):
        field_path = f"allowedTopologies[{index}].matchLabelExpressions"
        values_by_key: dict[str, set[str]] = {}
        for number, expression in enumerate(term.get("matchLabelExpressions") or ()):
            key, values = expression.get("key", ""), expression.get("values") or []
            if not values:
                errors.append(required(f"{field_path}[{number}].values"))
            errors += [
                duplicate(f"{field_path}[{number}].values[{i}]", v) for i, v in enumerate(values) if v in values[:i]
            ]
            errors += label_name(key, f"{field_path}[{number}].key")
            if key in values_by_key:
                errors.append(duplicate(f"{field_path}[{number}].key", key))
            values_by_key[key] = set(values)
        errors += [duplicate(field_path, "")] * seen.count(values_by_key)
        seen.append(values_by_key)
    return errors


class StorageClassStrategy(KindStrategy):
    rechecks_all = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        fill(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"})

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        provisioner = obj.get("provisioner", "")
        errors = label_name(provisioner.lower(), "provisioner") if provisioner else [required("provisioner")]
        if "" in (obj.get("parameters") or {}):
            errors.append(invalid("parameters", "", "field can not be empty."))
        if obj.get("reclaimPolicy") not in (None, "", "Delete", "Retain"):
            errors.append(unsupported("reclaimPolicy", obj["reclaimPolicy"], ("Delete", "Retain")))
        mode = obj.get("volumeBindingMode")
        if mode not in ("Immediate", "WaitForFirstConsumer"):
            modes = ("Immediate", "WaitForFirstConsumer")
            errors.append(unsupported("volumeBindingMode", mode, modes) if mode else required("volumeBindingMode"))
        return errors + _topologies(obj.get("allowedTopologies") or ())

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        fields = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
        errors = self.check(obj, ctx)
        return errors + [error for field in fields for error in immutable(obj.get(field), old.get(field), field)]


class CSINodeStrategy(KindStrategy):
    rechecks_all = True
    rechecks_change = False
    returns_deleted = True

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
            field_path, name = f"spec.drivers[{index}]", driver.get("name", "")
            errors += csi_driver_name(name, f"{field_path}.name")
            node = driver.get("nodeID", "")
            if not node:
                errors.append(required(f"{field_path}.nodeID"))
            elif formats.size(node) > 256:
                errors.append(invalid(f"{field_path}.nodeID", node, "must be 256 characters or less"))
            errors += numbers.nonnegative(
                (driver.get("allocatable") or {}).get("count"), f"{field_path}.allocatable.count"
            )
            if name in seen:
                errors.append(duplicate(f"{field_path}.name", name))
            seen.add(name)
            keys: set[str] = set()
            for key in driver.get("topologyKeys") or ():
                if not key:
                    errors.append(required(field_path))
                if key in keys:
                    errors.append(duplicate(field_path, key))
                keys.add(key)
                errors += label_name(key, field_path)
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self.check(obj, ctx)
        before = {driver.get("name"): driver for driver in (old.get("spec") or {}).get("drivers") or ()}
        for driver in (obj.get("spec") or {}).get("drivers") or ():
            was = before.get(driver.get("name"))
            if was and _bare(was) != _bare(driver):
                shown = internal("storage.CSINodeDriver", _bare(driver))
                errors.append(invalid("spec.drivers", shown, metadata.IMMUTABLE))
        return errors


def _bare(driver: Object) -> Object:
    return {key: value for key, value in driver.items() if key != "allocatable"}


class CSIDriverStrategy(KindStrategy):
    returns_deleted = True

    def default(self, obj: Object) -> None:
        fill(
            obj.setdefault("spec", {}),
            {
                "attachRequired": True,
                "podInfoOnMount": False,
                "volumeLifecycleModes": ["Persistent"],
                "storageCapacity": False,
                "fsGroupPolicy": "ReadWriteOnceWithFSType",
                "requiresRepublish": False,
                "seLinuxMount": False,
            },
        )

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        if spec["fsGroupPolicy"] not in _GROUP_POLICIES:
            errors.append(unsupported("spec.fsGroupPolicy", spec["fsGroupPolicy"], _GROUP_POLICIES))
        for mode in spec["volumeLifecycleModes"]:
            if mode not in _LIFECYCLES:
                errors.append(unsupported("spec.volumeLifecycleModes", mode, _LIFECYCLES))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors, new, before = self.check(obj, ctx), obj["spec"], old["spec"]
        for field, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
            errors += immutable(new.get(field), before.get(field), f"spec.{shown}")
        return errors


class VolumeAttachmentStrategy(KindStrategy):
    rechecks_all = True
    rechecks_change = False
    status_keeps = ("labels", "annotations", "finalizers", "ownerReferences")
    returns_deleted = True
    has_status_subresource = True

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"attached": False}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = csi_driver_name(spec.get("attacher", ""), "spec.attacher")
        source = spec.get("source") or {}
        if not source:
            text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
            errors.append(required("spec.source", text))
        node = spec.get("nodeName", "")
        return errors + [invalid("spec.nodeName", node, text) for text in formats.subdomain(node)]

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self.check(obj, ctx)
        if obj.get("spec") != old.get("spec"):
            shown = internal("storage.VolumeAttachmentSpec", obj.get("spec"))
            errors.append(invalid("spec", shown, metadata.IMMUTABLE))
        return errors
