"""StatefulSets, and the ReplicationController, elder of them all."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.lab.apiserver.gocompat.internal_types import internal
from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.claims import check_claim_spec, claim_template_defaults
from dovetail.lab.apiserver.kinds.pod.defaults import template_defaults
from dovetail.lab.apiserver.kinds.pod.spec import check_template
from dovetail.lab.apiserver.kinds.pod.warnings import claim_warnings
from dovetail.lab.apiserver.kinds.workloads import (
    MISMATCH,
    Spec,
    WorkloadStrategy,
    above,
    always_restarts,
    check_selector,
    decremented,
    is_selective,
    shown_labels,
    template_labels,
    valid_selector,
)
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported
from dovetail.model.validation.selectors import match_labels


class StatefulSetStrategy(WorkloadStrategy):
    name_rule = staticmethod(formats.label)
    names_pods = False

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if ctx.subresource:
            return []
        warnings = super().warnings(obj, old, ctx)
        for index, claim in enumerate(obj["spec"].get("volumeClaimTemplates") or ()):
            field_path = f"spec.volumeClaimTemplates[{index}]" + (".Spec" if old is not None else "")
            warnings += claim_warnings(claim.get("spec") or {}, field_path)
        if obj["spec"].get("revisionHistoryLimit", 0) < 0:
            text = "a negative value retains all historical revisions; a value >= 0 is recommended"
            warnings.append(f"spec.revisionHistoryLimit: {text}")
        return warnings

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
            strategy.setdefault("rollingUpdate", {})
        if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
            strategy["rollingUpdate"].setdefault("partition", 0)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates") or ():
            claim_template_defaults(claim)

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0, "availableReplicas": 0}

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        _rolling(obj).pop("maxUnavailable", None)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        """Drop maxUnavailable: its feature gate is off, unless the stored object has it."""
        if "maxUnavailable" not in _rolling(old):
            _rolling(obj).pop("maxUnavailable", None)
        super().prepare_update(obj, old, ctx)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = self._policies(spec)
        if ctx.operation == "CREATE":
            for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
                errors += check_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
        errors += numbers.all_nonnegative(spec, ("replicas", "minReadySeconds"), "spec")
        errors += numbers.nonnegative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
        service = spec.get("serviceName", "")
        if service and ctx.operation == "CREATE":
            errors += [invalid("spec.serviceName", service, text) for text in formats.label(service)]
        errors += check_selector(spec, "statefulset")
        selector = spec.get("selector")
        if valid_selector(selector):
            errors += self._template(spec)
        else:
            errors.append(invalid("spec.selector", selector, ""))
        return errors + always_restarts(spec.get("template") or {}, "spec.template", "StatefulSet")

    def _policies(self, spec: Spec) -> list[FieldError]:
        errors: list[FieldError] = []
        policy = spec.get("podManagementPolicy", "")
        if policy not in ("OrderedReady", "Parallel"):
            field_path = "spec.podManagementPolicy"
            errors.append(
                invalid(field_path, policy, "must be 'OrderedReady' or 'Parallel'") if policy else required(field_path)
            )
        strategy = spec.get("updateStrategy") or {}
        kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
        field_path = "spec.updateStrategy"
        if kind == "OnDelete":
            if rolling is not None:
                shown = internal("apps.RollingUpdateStatefulSetStrategy", rolling)
                text = "only allowed for updateStrategy 'RollingUpdate'"
                errors.append(invalid(f"{field_path}.rollingUpdate", shown, text))
        elif kind == "RollingUpdate":
            errors += self._rolling(rolling or {}, f"{field_path}.rollingUpdate")
        else:
            shown = internal("apps.StatefulSetUpdateStrategy", strategy)
            errors.append(
                invalid(field_path, shown, "must be 'RollingUpdate' or 'OnDelete'") if kind else required(field_path)
            )
        retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
        for field in ("whenDeleted", "whenScaled"):
            if field in retention and retention[field] not in ("Retain", "Delete"):
                path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
                errors.append(unsupported(path, retention[field], ("Retain", "Delete")))
        return errors

    def _rolling(self, rolling: Spec, path: str) -> list[FieldError]:
        errors = numbers.nonnegative(rolling.get("partition"), f"{path}.partition")
        down = rolling.get("maxUnavailable")
        if down is not None:
            field_path = f"{path}.maxUnavailable"
            errors += numbers.int_or_percent(down, field_path)
            if numbers.amount_of(down) == 0:
                errors.append(invalid(field_path, down, "cannot be 0"))
            errors += numbers.not_above_100(down, field_path)
        return errors

    def _template(self, spec: Spec) -> list[FieldError]:
        template = dict(spec.get("template") or {})
        pod = {k: v for k, v in (template.get("spec") or {}).items() if k not in ("subdomain", "hostname")}
        claims = [claim["metadata"].get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
        if claims:
            made = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claims)]
            pod["volumes"] = made + [v for v in pod.get("volumes") or () if v.get("name") not in claims]
        template["spec"] = pod
        errors: list[FieldError] = []
        selector = spec.get("selector")
        if selector is None or (is_selective(selector) and not match_labels(selector, template_labels(template))):
            errors.append(invalid("spec.template.metadata.labels", shown_labels(template), MISMATCH))
        return errors + check_template(template, "spec.template")

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self.check(obj, ctx)
        free = {
            *("replicas", "template", "updateStrategy", "minReadySeconds", "ordinals", "revisionHistoryLimit"),
            "persistentVolumeClaimRetentionPolicy",
        }
        if {k: v for k, v in obj["spec"].items() if k not in free} != {
            k: v for k, v in old["spec"].items() if k not in free
        }:
            text = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
                "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
                "'minReadySeconds' are forbidden"
            )
            errors.append(forbidden("spec", text))
        return errors

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        names = [
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ]
        status = obj.get("status") or {}
        errors = numbers.all_nonnegative(status, names, "status")
        compared = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
        return errors + above(status, compared, "status.readyReplicas") + decremented(status, old.get("status") or {})


def _rolling(obj: Object) -> Object:
    rolling_update: Object = obj["spec"]["updateStrategy"].get("rollingUpdate") or {}
    return rolling_update


class ReplicationControllerStrategy(WorkloadStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        template = spec.get("template")
        if template is not None:
            template_defaults(template)
            labels = template_labels(template)
            if labels:
                if not spec.get("selector"):
                    spec["selector"] = dict(labels)
                if not obj["metadata"].get("labels"):
                    obj["metadata"]["labels"] = dict(labels)
        spec.setdefault("replicas", 1)

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = numbers.nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds")
        selector, template = spec.get("selector") or {}, spec.get("template")
        if not selector:
            errors.append(required("spec.selector"))
        errors += numbers.nonnegative(spec.get("replicas"), "spec.replicas")
        if template is None:
            return [*errors, required("spec.template")]
        if selector and any(template_labels(template).get(k) != v for k, v in selector.items()):
            errors.append(invalid("spec.template.metadata.labels", shown_labels(template), MISMATCH))
        return (
            errors
            + check_template(template, "spec.template")
            + always_restarts(template, "spec.template", "ReplicationController")
        )

    def delete_finalizers(self, obj: Object, options: Object) -> tuple[str, ...] | None:
        """It orphans its pods unless the request sets a propagation policy."""
        have = obj["metadata"].get("finalizers") or ()
        return (*have, "orphan") if "orphan" not in have else tuple(have)

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(("status.replicas",))

    def unknown_selector(self, label: str) -> str:
        return f"field label not supported: {label}"
