"""Nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.base import KindStrategy, restore
from dovetail.lab.apiserver.kinds.pod.defaults import round_up
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.addresses import network, valid_cidr
from dovetail.model.validation.field_errors import FieldError, duplicate, forbidden, invalid
from dovetail.model.validation.resources import value
from dovetail.model.validation.scheduling import taint_effect
from dovetail.model.validation.selectors import label_name

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def check_taints(taints: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        field_path = f"{path}[{index}]"
        key, text, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        errors += label_name(key, f"{field_path}.key")
        complaints = formats.label_value(text)
        if complaints:
            errors.append(invalid(f"{field_path}.value", text, ";".join(complaints)))
        errors += taint_effect(effect, f"{field_path}.effect")
        if (effect, key) in seen:
            shown = {"Key": key, "Value": text, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            error = duplicate(field_path, shown)
            detail = "taints must be unique by key and effect pair"
            errors.append(FieldError(error.type, field_path, shown, detail))
        seen.add((effect, key))
    return errors


def _pod_ranges(ranges: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, text in enumerate(ranges):
        errors += valid_cidr(text, f"spec.podCIDRs[{index}]")
    families = [parsed.version for parsed in map(network, ranges) if parsed is not None]
    if len(ranges) > 1 and sorted(families) != [4, 6]:
        text = "may specify no more than one CIDR for each IP family"
        errors.append(invalid("spec.podCIDRs", ranges, text))
    return errors


class NodeStrategy(KindStrategy):
    has_status_subresource = True

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        for field in ("capacity", "allocatable"):
            round_up(status.get(field) or {})
        if "capacity" in status and "allocatable" not in status:
            status["allocatable"] = dict(status["capacity"])
        cidr, cidrs = obj["spec"].get("podCIDR"), obj["spec"].get("podCIDRs")
        if cidr and (not cidrs or cidrs[0] != cidr):
            obj["spec"]["podCIDRs"] = [cidr]
        elif cidrs and not cidr:
            obj["spec"]["podCIDR"] = cidrs[0]

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        """A new node is not ready: TaintNodesByCondition."""
        super().admit(obj, old, ctx)
        if obj is None or ctx.operation != "CREATE" or ctx.subresource:
            return
        taints = obj["spec"].get("taints") or []
        if not any(t.get("key") == NOT_READY["key"] and t.get("effect") == NOT_READY["effect"] for t in taints):
            obj["spec"]["taints"] = [*taints, dict(NOT_READY)]

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        """A node comes with the status its kubelet gives it."""
        obj["spec"].pop("configSource", None)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        if ctx.subresource == "status":
            obj["spec"] = old["spec"]
        else:
            restore(obj, old, "status")

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors = check_taints(obj["spec"].get("taints") or (), "metadata.taints") + self._resources(obj)
        return errors + _pod_ranges(obj["spec"].get("podCIDRs") or [])

    def _resources(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for field in ("capacity", "allocatable"):
            for name, text in sorted((obj["status"].get(field) or {}).items()):
                errors += value(name, text, f"status.{field}.{name}")
        return errors

    def validate_update(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        meta, before = obj["metadata"], old["metadata"]
        errors = metadata.check(meta, False, formats.path_segment) + metadata.check_update(meta, before)
        if ctx.subresource != "status":
            errors += metadata.check_own(meta, False, formats.subdomain) + self.check(obj, ctx)
        errors += metadata.check_update(meta, before) + metadata.own_finalizers(meta) + self._resources(obj)
        seen: list[Any] = []
        for index, address in enumerate(obj["status"].get("addresses") or ()):
            if address in seen:
                shown = {"Type": address.get("type", ""), "Address": address.get("address", "")}
                errors.append(duplicate(f"status.addresses[{index}]", shown))
            seen.append(address)
        spec, old_spec = obj["spec"], old["spec"]
        if old_spec.get("podCIDRs") and old_spec["podCIDRs"] != spec.get("podCIDRs"):
            text = 'node updates may not change podCIDR except from "" to valid'
            errors.append(forbidden("spec.podCIDRs", text))
        if old_spec.get("providerID") and old_spec["providerID"] != spec.get("providerID"):
            text = 'node updates may not change providerID except from "" to valid'
            errors.append(forbidden("spec.providerID", text))
        return errors + check_taints(spec.get("taints") or (), "metadata.taints")

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if obj["spec"].get("externalID"):
            return ["spec.externalID: this field is deprecated, and is unused by Kubernetes"]
        return []

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"spec.unschedulable": "true" if obj["spec"].get("unschedulable") else "false"}

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(("spec.unschedulable",))

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"
