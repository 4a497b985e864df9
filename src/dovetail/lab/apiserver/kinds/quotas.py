"""ResourceQuotas: which resources may be limited, and for which pods or claims alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.kinds.base import CountedStrategy
from dovetail.lab.apiserver.kinds.pod.defaults import round_up
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model.validation import metadata, resources
from dovetail.model.validation.field_errors import FieldError, invalid, required

_NAMES = resources.STANDARD | {"requests.storage"}
_OF_PODS = frozenset(
    ("pods", *(f"{prefix}{name}" for prefix in ("", "limits.", "requests.") for name in ("cpu", "memory")))
)
_OF_CLAIMS = frozenset(("persistentvolumeclaims", "requests.storage"))
#: The resources that can be limited for a part of the pods, or of the claims, alone.
_COVERS: Mapping[str, frozenset[str]] = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "BestEffort": frozenset(("pods",)),
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "VolumeAttributesClass": _OF_CLAIMS,
}
_VALUELESS = frozenset(_COVERS) - {"PriorityClass", "VolumeAttributesClass"}
_EXCLUSIVE = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_MUST_EXIST = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


class ResourceQuotaStrategy(CountedStrategy):
    has_status_subresource = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        round_up(obj.setdefault("spec", {}).get("hard") or {})

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        hard = spec.get("hard") or {}
        expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
        return [*_amounts(hard), *_scopes(spec.get("scopes") or [], hard), *_selector(expressions, spec)]

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self.check(obj, ctx)
        scopes = obj["spec"].get("scopes") or []
        if set(scopes) != set(old["spec"].get("scopes") or ()):
            errors.append(invalid("spec.scopes", scopes or None, metadata.IMMUTABLE))
        return errors


def _amounts(hard: Mapping[str, str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for name, text in sorted(hard.items()):
        field_path = f"spec.hard[{name}]"
        errors += resources.resource_name(name, field_path)
        if "/" not in name and name not in _NAMES and not resources.is_standard(name):
            errors.append(invalid(field_path, name, "must be a standard resource for quota"))
        errors += resources.value(name, text, field_path)
    return errors


def _scopes(scopes: Sequence[str], hard: Collection[str]) -> list[FieldError]:
    texts: list[str] = []
    for scope in scopes:
        texts += ["unsupported scope"] if scope not in _COVERS else []
        texts += ["unsupported scope applied to resource"] * _uncovered(scope, hard)
    return [invalid("spec.scopes", scopes, text) for text in (*texts, *_conflicts(scopes))]


def _uncovered(scope: str, hard: Collection[str]) -> int:
    """How many of the limits do not go with the scope."""
    covered = _COVERS.get(scope)
    if covered is None:
        return 0
    return sum((name in _NAMES or resources.is_standard(name)) and name not in covered for name in hard)


def _conflicts(scopes: Collection[str]) -> list[str]:
    return ["conflicting scopes" for pair in _EXCLUSIVE if pair <= set(scopes)]


def _selector(expressions: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> list[FieldError]:
    field_path, errors = "spec.scopeSelector.matchExpressions", list[FieldError]()
    for expression in expressions:
        scope, operator, values = (expression.get(field) for field in ("scopeName", "operator", "values"))
        if scope not in _COVERS:
            errors.append(invalid(f"{field_path}.scopeName", scope, "unsupported scope"))
        wrong = _uncovered(str(scope), spec.get("hard") or {})
        errors += [invalid(field_path, _as_kept(expressions), "unsupported scope applied to resource")] * wrong
        if scope in _VALUELESS and operator != "Exists":
            errors.append(invalid(f"{field_path}.operator", operator or "", _MUST_EXIST))
        if operator in ("In", "NotIn"):
            text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            errors += [] if values else [required(f"{field_path}.values", text)]
        elif operator in ("Exists", "DoesNotExist"):
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            errors += [invalid(f"{field_path}.values", values, text)] if values else []
        else:
            errors.append(invalid(f"{field_path}.operator", operator or "", "not a valid selector operator"))
    scopes = {str(expression.get("scopeName")) for expression in expressions}
    return errors + [invalid(field_path, spec.get("scopes"), text) for text in _conflicts(scopes)]


def _as_kept(expressions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A scope selector as the server prints its own form of it."""
    return {
        "MatchExpressions": [
            {
                "ScopeName": expression.get("scopeName"),
                "Operator": expression.get("operator"),
                "Values": expression.get("values"),
            }
            for expression in expressions
        ]
    }
