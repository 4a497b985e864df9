"""Pods: how they are born, changed and let go."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.gocompat.internal_types import difference
from dovetail.lab.apiserver.kinds.admission import limits, priority, quota, resize, runtimeclass, tolerations, topology
from dovetail.lab.apiserver.kinds.base import KindStrategy, restore
from dovetail.lab.apiserver.kinds.pod import update_validation
from dovetail.lab.apiserver.kinds.pod.containers import only_for_pod
from dovetail.lab.apiserver.kinds.pod.defaults import pod_defaults, spec_defaults
from dovetail.lab.apiserver.kinds.pod.qos import qos_class
from dovetail.lab.apiserver.kinds.pod.spec import pod_annotations
from dovetail.lab.apiserver.kinds.pod.validation_cache import VERDICTS
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, forbidden

_FIELDS = frozenset(
    [
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ]
)


def set_condition(status: Object, condition: Object, now: datetime) -> None:
    """Write a pod condition; the transition time moves only when the status does."""
    entries = [dict(entry) for entry in status.get("conditions", ())]
    fresh: Object = {"type": condition["type"], "status": condition["status"], "lastProbeTime": None}
    fresh["lastTransitionTime"] = stamp(now)
    fresh |= {key: value for key, value in condition.items() if value not in ("", None)}
    for index, entry in enumerate(entries):
        if entry["type"] == condition["type"]:
            if entry.get("status") == condition["status"]:
                fresh["lastTransitionTime"] = entry.get("lastTransitionTime")
            entries[index] = fresh
            break
    else:
        entries.append(fresh)
    status["conditions"] = entries


def _without_stop_signals(spec: Object) -> None:
    """Drop `lifecycle.stopSignal`: its feature gate is off."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        lifecycle = container.get("lifecycle")
        if lifecycle and lifecycle.pop("stopSignal", None) and not lifecycle:
            del container["lifecycle"]


class PodStrategy(KindStrategy):
    generation = True
    has_status_subresource = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec_defaults(spec)
        pod_defaults(spec)
        status = obj.get("status")
        if status:
            follow_addresses(status)

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if obj is None or ctx.subresource:
            return
        if ctx.operation == "CREATE":
            limits.apply(obj, ctx)
            priority.admit_pod(obj, ctx)
            runtimeclass.admit_pod(obj, ctx)
            topology.label_pod(obj, ctx)
        elif old is not None:
            priority.keep(obj, old)
        tolerations.admit(obj)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        obj["metadata"]["generation"] = 1
        spec = obj["spec"]
        _without_stop_signals(spec)
        status: Object = {"phase": "Pending", "qosClass": qos_class(spec)}
        obj["status"] = status
        if spec.get("schedulingGates"):
            gated = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
            set_condition(status, gated, ctx.now)
        topology.merge_label_keys(obj)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        meta = obj["metadata"]
        if ctx.subresource == "status":
            obj["spec"] = old["spec"]
            restore(meta, old["metadata"], "ownerReferences")
            status = obj.setdefault("status", {})
            if not status.get("qosClass") and "qosClass" in old.get("status", {}):
                status["qosClass"] = old["status"]["qosClass"]
            if "observedGeneration" in old.get("status", {}):
                status.setdefault("observedGeneration", old["status"]["observedGeneration"])
            return
        if ctx.subresource in ("ephemeralcontainers", "resize"):
            self._narrow(obj, old, ctx.subresource)
        restore(obj, old, "status")
        if obj["spec"] != old["spec"]:
            meta["generation"] = old["metadata"].get("generation", 0) + 1

    def _narrow(self, obj: Object, old: Object, subresource: str) -> None:
        spec = dict(old["spec"])
        if subresource == "ephemeralcontainers":
            restore(spec, obj["spec"], "ephemeralContainers")
        else:
            for group in ("containers", "initContainers"):
                if group in spec:
                    spec[group] = _with_resources(obj["spec"].get(group) or [], spec[group])
            restore(spec, obj["spec"], "resources")
        obj["spec"] = spec
        for field in ("labels", "annotations", "finalizers", "ownerReferences"):
            restore(obj["metadata"], old["metadata"], field)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = check_pod(obj)
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            text = "cannot be set until all schedulingGates have been cleared"
            errors.append(forbidden("spec.nodeName", text))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = metadata.check_own(obj["metadata"], True, formats.subdomain) + check_pod(obj)
        if ctx.subresource == "resize":
            return errors + update_validation.resize(obj, old)
        if ctx.subresource == "ephemeralcontainers":
            return errors + self._ephemeral(obj, old)
        errors += update_validation.own_annotations(obj, old)
        errors += pod_annotations(obj["metadata"].get("annotations", {}), obj["spec"], "metadata.annotations")
        return errors + update_validation.update(obj, old)

    def _ephemeral(self, obj: Object, old: Object) -> list[FieldError]:
        now = {c.get("name"): c for c in obj["spec"].get("ephemeralContainers", ())}
        path = "spec.ephemeralContainers"
        errors = []
        for container in old["spec"].get("ephemeralContainers", ()):
            name = container.get("name", "")
            text = f'existing ephemeral containers "{name}" may not be'
            if name not in now:
                errors.append(forbidden(path, f"{text} removed\n"))
            elif now[name] != container:
                shown = difference("core.EphemeralContainer", container, now[name])
                errors.append(forbidden(path, f"{text} changed\n{shown}"))
        return errors

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return update_validation.status(obj, old)

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        if obj is not None and old is not None and ctx.subresource == "resize":
            resize.review(obj, old, ctx)
        if obj is not None and ctx.subresource in ("", "resize") and ctx.operation in ("CREATE", "UPDATE"):
            limits.review_pod(obj, ctx)
        quota.review(obj, old, ctx)

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if old is not None:
            return []
        name_warnings = []
        texts = formats.label(obj["metadata"].get("name", ""))
        if texts:
            name_warnings.append(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
                f"a DNS label is recommended: [{' '.join(texts)}]"
            )
        return name_warnings + VERDICTS.warnings(obj["spec"], obj["metadata"])

    def selectable(self, obj: Object) -> Mapping[str, str]:
        spec, status = obj["spec"], obj.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.podIPs": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def selectable_fields(self) -> frozenset[str]:
        return _FIELDS

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"

    def grace(self, obj: Object, requested: int | None) -> int | None:
        period: int = obj["spec"].get("terminationGracePeriodSeconds", 0) if requested is None else requested
        if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if period < 0 else period


def _with_resources(new: list[Any], old: list[Any]) -> list[Any]:
    if [c.get("name") for c in new] != [c.get("name") for c in old]:
        return new
    merged = []
    for container, before in zip(new, old, strict=True):
        copy = dict(before)
        for field in ("resources", "resizePolicy"):
            restore(copy, container, field)
        merged.append(copy)
    return merged


def check_pod(pod: Object) -> list[FieldError]:
    """Annotations and spec of a pod, at creation and at every change."""
    spec = pod["spec"]
    errors = []
    notes = pod["metadata"].get("annotations")
    if notes:
        errors += pod_annotations(notes, spec, "metadata.annotations")
    errors += VERDICTS.check(spec, pod["metadata"].get("name", ""))
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for number, source in enumerate(volume.get("projected", {}).get("sources") or ()):
                if "serviceAccountToken" in source:
                    field_path = f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken"
                    errors.append(forbidden(field_path, "must not be specified when serviceAccountName is not set"))
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            errors += only_for_pod(container, f"spec.{group}[{index}]")
    return errors


def follow_addresses(status: Object) -> None:
    """podIPs and podIP say the same; podIP wins."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses and not address:
        status["podIP"] = addresses[0].get("ip", "")
