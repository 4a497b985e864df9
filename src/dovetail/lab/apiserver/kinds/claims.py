"""PersistentVolumeClaims and PersistentVolumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.gocompat.internal_types import difference, internal
from dovetail.lab.apiserver.kinds.admission import limits, quota, storage
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable, restore
from dovetail.lab.apiserver.kinds.pod.defaults import claim_defaults, fill, round_up
from dovetail.lab.apiserver.kinds.volume_rules import csi_driver_name, no_backsteps
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported
from dovetail.model.validation.resources import amount
from dovetail.model.validation.selectors import label_selector, node_selector

Spec = Mapping[str, Any]
MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_NOT_POSITIVE = "must be greater than zero"


def _access_modes(spec: Spec, path: str, detail: str) -> list[FieldError]:
    modes = spec.get("accessModes") or ()
    return [] if modes else [required(f"{path}.accessModes", detail)]


def _mode_values(spec: Spec, path: str) -> list[FieldError]:
    modes = spec.get("accessModes") or ()
    errors = [unsupported(f"{path}.accessModes", mode, MODES) for mode in modes if mode not in MODES]
    if "ReadWriteOncePod" in modes and any(mode in MODES and mode != "ReadWriteOncePod" for mode in modes):
        text = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden(f"{path}.accessModes", text))
    return errors


def _below_zero(text: str, path: str) -> list[FieldError]:
    size = amount(text)
    return [invalid(path, size.whole, "must be a valid resource quantity")] if size < amount("0") else []


def check_claim_spec(spec: Spec, path: str) -> list[FieldError]:
    errors = _access_modes(spec, path, "at least 1 access mode is required")
    if "selector" in spec:
        errors += label_selector(spec["selector"], f"{path}.selector")
    errors += _mode_values(spec, path)
    field_path = f"{path}.resources[storage]"
    size = (spec.get("resources") or {}).get("requests", {}).get("storage")
    if size is None:
        errors.append(required(field_path))
    elif not amount(size) > amount("0"):
        errors.append(invalid(field_path, size, _NOT_POSITIVE))
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        errors += [invalid(f"{path}.storageClassName", name, text) for text in formats.subdomain(name)]
    if spec.get("volumeMode", "Filesystem") not in ("Block", "Filesystem"):
        errors.append(unsupported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem")))
    for field in ("dataSource", "dataSourceRef"):
        if field in spec:
            errors += _data_source(spec[field], f"{path}.{field}")
    return errors


def _data_source(source: Spec, path: str) -> list[FieldError]:
    errors = [required(f"{path}.{field}") for field in ("name", "kind") if not source.get(field)]
    if not source.get("apiGroup") and source.get("kind", "") != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errors.append(invalid(path, source.get("kind", ""), text))
    return errors


def claim_template(template: Spec, path: str) -> list[FieldError]:
    """The claim of an ephemeral volume."""
    meta = template.get("metadata") or {}
    errors = metadata.annotation_set(meta.get("annotations") or {}, f"{path}.annotations")
    errors += metadata.labels(meta.get("labels") or {}, f"{path}.labels")
    return errors + check_claim_spec(template.get("spec") or {}, f"{path}.spec")


def claim_template_defaults(claim: Object) -> None:
    """A claim template of a StatefulSet: it is printed as a claim of its own."""
    claim.setdefault("apiVersion", "v1")
    claim.setdefault("kind", "PersistentVolumeClaim")
    claim_defaults(claim.setdefault("spec", {}))
    status = claim.setdefault("status", {})
    status.setdefault("phase", "Pending")


class ClaimStrategy(KindStrategy):
    has_status_subresource = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        claim_defaults(spec)
        if not obj.setdefault("status", {}).get("phase"):
            obj["status"]["phase"] = "Pending"

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if obj is not None and ctx.operation == "CREATE" and not ctx.subresource:
            storage.default_class(obj, ctx)
            storage.protect(obj, "kubernetes.io/pvc-protection")

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"phase": "Pending"}

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        _follow_data_source(obj["spec"])

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return check_claim_spec(obj["spec"], "spec")

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = metadata.check_own(obj["metadata"], True, formats.subdomain) + self.check(obj, ctx)
        new, before = dict(obj["spec"]), dict(old["spec"])
        if not before.get("volumeName"):
            restore(before, new, "volumeName")
        if "storageClassName" not in before:
            new.pop("storageClassName", None)
        bound = (obj.get("status") or {}).get("phase") == "Bound"
        requested = new.get("resources", {}).get("requests", {}).get("storage")
        held = before.get("resources", {}).get("requests", {}).get("storage")
        if bound:
            new["resources"] = _with_storage(new.get("resources", {}), held)
            restore(new, before, "volumeAttributesClassName")
        if new != before:
            text = (
                "spec is immutable after creation except resources.requests and volumeAttributesClassName "
                "for bound claims\n"
            )
            errors.append(forbidden("spec", text + difference("core.PersistentVolumeClaimSpec", before, new)))
        if requested and held and amount(requested) < amount(held):
            capacity = (old.get("status") or {}).get("capacity", {}).get("storage", "0")
            if amount(requested) <= amount(capacity):
                text = "field can not be less than status.capacity"
                errors.append(forbidden("spec.resources.requests.storage", text))
        return errors + immutable(obj["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode")

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        capacity = obj["status"].get("capacity") or {}
        return [error for name, text in capacity.items() for error in _below_zero(text, f"status.capacity[{name}]")]

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        size = (obj["spec"].get("resources") or {}).get("requests", {}).get("storage", "0")
        if not size.endswith("m") or amount(size).milli % 1000 == 0:
            return []
        text = f'fractional byte value "{size}" is invalid, must be an integer'
        return [f"spec.resources.requests[storage]: {text}"]

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        if obj is not None and not ctx.subresource and ctx.operation in ("CREATE", "UPDATE"):
            limits.review_claim(obj, ctx)
            if old is not None:
                storage.review_resize(obj, old, ctx)
        quota.review(obj, old, ctx)


def _with_storage(resources: Spec, size: str | None) -> dict[str, Any]:
    requests = dict(resources.get("requests") or {})
    if size is None:
        requests.pop("storage", None)
    else:
        requests["storage"] = size
    return {**resources, "requests": requests}


_OLD_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _follow_data_source(spec: Object) -> None:
    """dataSource and dataSourceRef say the same; what the older one may not say is dropped in silence."""
    source = spec.get("dataSource")
    if (
        source
        and "dataSourceRef" not in spec
        and (source.get("apiGroup") or "", source.get("kind")) not in _OLD_SOURCES
    ):
        del spec["dataSource"]
    if "dataSource" in spec and "dataSourceRef" not in spec:
        spec["dataSourceRef"] = dict(spec["dataSource"])
    elif "dataSourceRef" in spec and "dataSource" not in spec and "namespace" not in spec["dataSourceRef"]:
        spec["dataSource"] = dict(spec["dataSourceRef"])


_SOURCES = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
]


class VolumeStrategy(KindStrategy):
    rechecks_change = False
    has_status_subresource = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not obj.setdefault("status", {}).get("phase"):
            obj["status"]["phase"] = "Pending"
        fill(spec, {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"})
        round_up(spec.get("capacity", {}))
        if "hostPath" in spec:
            spec["hostPath"].setdefault("type", "")

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if obj is not None and ctx.operation == "CREATE":
            storage.protect(obj, "kubernetes.io/pv-protection")

    def clear_status(self, obj: Object) -> None:
        pass

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        super().prepare_update(obj, old, ctx)
        if ctx.subresource == "status" and obj["status"].get("phase") != old["status"].get("phase"):
            obj["status"]["lastPhaseTransitionTime"] = ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = _access_modes(spec, "spec", "") + _mode_values(spec, "spec") + self._capacity(spec)
        policy = spec.get("persistentVolumeReclaimPolicy")
        if policy and policy not in ("Delete", "Recycle", "Retain"):
            errors.append(unsupported("spec.persistentVolumeReclaimPolicy", policy, ("Delete", "Recycle", "Retain")))
        affinity = spec.get("nodeAffinity")
        if affinity is not None:
            if "required" in affinity:
                errors += node_selector(affinity["required"], "spec.nodeAffinity.required")
            else:
                errors.append(required("spec.nodeAffinity.required", "must specify required node constraints"))
        errors += self._source(spec)
        if spec.get("storageClassName"):
            name = spec["storageClassName"]
            errors += [invalid("spec.storageClassName", name, text) for text in formats.subdomain(name)]
        if spec.get("volumeMode") not in (None, "Block", "Filesystem"):
            errors.append(unsupported("spec.volumeMode", spec["volumeMode"], ("Block", "Filesystem")))
        return errors

    def _capacity(self, spec: Spec) -> list[FieldError]:
        capacity = spec.get("capacity") or {}
        errors = [] if capacity else [required("spec.capacity")]
        if list(capacity) != ["storage"]:
            errors.append(unsupported("spec.capacity", capacity or None, ("storage",)))
        for name, text in sorted(capacity.items()):
            errors += _below_zero(text, f"spec.capacity[{name}]")
            if not amount(text) > amount("0"):
                errors.append(invalid(f"spec.capacity[{name}]", text, _NOT_POSITIVE))
        return errors

    def _source(self, spec: Spec) -> list[FieldError]:
        kinds = [kind for kind in _SOURCES if kind in spec]
        if not kinds:
            return [required("spec", "must specify a volume type")]
        first, *more = kinds
        source, path = spec[first], f"spec.{first}"
        errors: list[FieldError] = []
        if first == "hostPath":
            errors += no_backsteps(source["path"], f"{path}.path") if source.get("path") else [required(f"{path}.path")]
        elif first == "csi":
            errors += csi_driver_name(source.get("driver", ""), f"{path}.driver")
            if not source.get("volumeHandle"):
                errors.append(required(f"{path}.volumeHandle"))
        elif first == "nfs":
            errors += [required(f"{path}.{field}") for field in ("server", "path") if not source.get(field)]
        elif first == "local":
            if not source.get("path"):
                errors.append(required(f"{path}.path"))
            if "nodeAffinity" not in spec:
                errors.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
        return errors + [forbidden(f"spec.{kind}", "may not specify more than 1 volume type") for kind in more]

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = 2 * (metadata.check_own(obj["metadata"], False, formats.subdomain) + self.check(obj, ctx))
        new = {kind: obj["spec"][kind] for kind in _SOURCES if kind in obj["spec"]}
        before = {kind: old["spec"][kind] for kind in _SOURCES if kind in old["spec"]}
        if new != before:
            shown = difference("core.PersistentVolumeSource", before, new)
            text = f"spec.persistentvolumesource is immutable after creation\n{shown}"
            errors.append(forbidden("spec.persistentvolumesource", text))
        errors += immutable(obj["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode")
        where = obj["spec"].get("nodeAffinity")
        if "nodeAffinity" in old["spec"] and where != old["spec"]["nodeAffinity"]:
            text = f"{metadata.IMMUTABLE}, except for updating from beta label to GA"
            errors.append(invalid("nodeAffinity", internal("*core.VolumeNodeAffinity", where), text))
        return errors
