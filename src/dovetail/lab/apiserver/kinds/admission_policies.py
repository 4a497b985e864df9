"""ValidatingAdmissionPolicy, MutatingAdmissionPolicy and their bindings: defaults and validation."""

from __future__ import annotations

import re

from dovetail.lab.apiserver.crd.cel.types import CelType
from dovetail.lab.apiserver.crd.cel_admission import (
    BOOL,
    NULL,
    OBJECT,
    PATCHES,
    STRING,
    Declarations,
    complaint,
    kind_of_expression,
)
from dovetail.lab.apiserver.kinds.admission_rules import (
    FAILURE_POLICIES,
    REINVOCATION_POLICIES,
    check_choice,
    check_conditions,
    check_match,
    match_defaults,
)
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, duplicate, forbidden, invalid, required, unsupported
from dovetail.model.validation.selectors import label_name, label_selector

REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
ACTIONS = ("Audit", "Deny", "Warn")
PATCH_TYPES = ("ApplyConfiguration", "JSONPatch")
MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
MAX_ANNOTATIONS = 20
MAX_ANNOTATION_EXPRESSION_BYTES = 5 * 1024
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_ONE_ITEM = "validations or auditAnnotations must contain at least one item"


class PolicyStrategy(KindStrategy):
    """What both kinds of policies have in common: `check_spec` is their own."""

    generation = True
    owned_finalizers = False
    rechecks_all = True
    rechecks_change = False
    unconditional_update = False

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        match_defaults(spec.get("matchConstraints"))

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return self.check_spec(obj, checks_conditions=True)

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        same = all(obj["spec"].get(field) == old["spec"].get(field) for field in ("paramKind", "matchConditions"))
        return self.check_spec(obj, checks_conditions=not same)

    def check_spec(self, obj: Object, *, checks_conditions: bool) -> list[FieldError]:
        raise AssertionError("each kind of policy checks its own spec")


class ValidatingPolicyStrategy(PolicyStrategy):
    """ValidatingAdmissionPolicy."""

    has_status_subresource = True

    def check_spec(self, obj: Object, *, checks_conditions: bool) -> list[FieldError]:
        spec = obj["spec"]
        errors, declared = _common(spec, checks_conditions=checks_conditions)
        validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
        if not validations and not annotations:
            return [*errors, required("spec.validations", _ONE_ITEM), required("spec.auditAnnotations", _ONE_ITEM)]
        for index, validation in enumerate(validations):
            errors += _validation(validation, f"spec.validations[{index}]", declared)
        if len(annotations) > MAX_ANNOTATIONS:
            text = f"must not have more than {MAX_ANNOTATIONS} auditAnnotations"
            errors.append(invalid("spec.auditAnnotations", list(annotations), text))
        for index, annotation in enumerate(annotations):
            path = f"spec.auditAnnotations[{index}]"
            errors += _annotation(annotation, obj["metadata"].get("name", ""), path, declared)
            if annotation.get("key") in [item.get("key") for item in annotations[:index]]:
                errors.append(duplicate(f"{path}.key", annotation.get("key")))
        return errors


class MutatingPolicyStrategy(PolicyStrategy):
    """MutatingAdmissionPolicy, which has no status."""

    def check_spec(self, obj: Object, *, checks_conditions: bool) -> list[FieldError]:
        spec = obj["spec"]
        errors, declared = _common(spec, checks_conditions=checks_conditions, mutating=True)
        mutations = spec.get("mutations") or ()
        if not mutations:
            errors.append(required("spec.mutations", "mutations must contain at least one item"))
        for index, mutation in enumerate(mutations):
            errors += _mutation(mutation, f"spec.mutations[{index}]", declared)
        if not spec.get("reinvocationPolicy"):
            errors.append(required("spec.reinvocationPolicy"))
        return errors + check_choice(spec, "reinvocationPolicy", "spec", REINVOCATION_POLICIES)


def _common(spec: Object, *, checks_conditions: bool, mutating: bool = False) -> tuple[list[FieldError], Declarations]:
    """What both kinds of policies have, and the variables of their expressions."""
    errors = check_choice(spec, "failurePolicy", "spec", FAILURE_POLICIES)
    params = spec.get("paramKind")
    if params is not None:
        errors += _param_kind(params)
    match = spec.get("matchConstraints")
    if match is None:
        errors.append(required("spec.matchConstraints"))
    else:
        errors += check_match(match, "spec.matchConstraints")
        if not match.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        if mutating:
            errors += _operations(match, "spec.matchConstraints.resourceRules.operations")
    if checks_conditions:
        conditions = spec.get("matchConditions") or ()
        errors += check_conditions(conditions, "spec.matchConditions", params=params is not None)
    declared = Declarations(params=params is not None)
    variables: dict[str, CelType | None] = {}
    for index, variable in enumerate(spec.get("variables") or ()):
        composed = declared.composed(variables)
        errors += _variable(variable, f"spec.variables[{index}]", composed)
        variables[variable.get("name", "")] = kind_of_expression(variable.get("expression", ""), composed)
    return errors, declared.composed(variables) if variables or mutating else declared


def _operations(match: Object, path: str) -> list[FieldError]:
    return [
        unsupported(path, operation, MUTATING_OPERATIONS)
        for rule in match.get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in MUTATING_OPERATIONS
    ]


def _param_kind(kind: Object) -> list[FieldError]:
    path, api_version, name = "spec.paramKind", kind.get("apiVersion") or "", kind.get("kind") or ""
    errors: list[FieldError] = []
    if not api_version:
        errors.append(required(f"{path}.apiVersion"))
    elif api_version.count("/") > 1:
        text = f"unexpected GroupVersion string: {api_version}"
        errors.append(invalid(f"{path}.apiVersion", api_version, text))
    else:
        group, _, version = api_version.rpartition("/")
        if group and (problems := formats.subdomain(group)):
            errors.append(invalid(f"{path}.apiVersion", group, ",".join(problems)))
        if not version:
            errors.append(invalid(f"{path}.apiVersion", api_version, "version must be specified"))
        elif problems := formats.label_1035(version):
            errors.append(invalid(f"{path}.apiVersion", version, ",".join(problems)))
    if not name:
        errors.append(required(f"{path}.kind"))
    elif problems := formats.label_1035(name.lower()):
        text = "may have mixed case, but should otherwise match: " + ",".join(problems)
        errors.append(invalid(f"{path}.kind", name, text))
    return errors


def _variable(variable: Object, path: str, declared: Declarations) -> list[FieldError]:
    errors: list[FieldError] = []
    name, expression = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        errors.append(required(f"{path}.name", "name is not specified"))
    elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
        errors.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
    if not expression.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    elif text := complaint(expression, [], declared):
        errors.append(invalid(f"{path}.expression", expression, text))
    return errors


def _validation(validation: Object, path: str, declared: Declarations) -> list[FieldError]:
    errors: list[FieldError] = []
    expression, message = validation.get("expression") or "", validation.get("message") or ""
    spoken = validation.get("messageExpression") or ""
    if not expression.strip():
        errors.append(required(f"{path}.expression", "expression is not specified"))
    elif text := complaint(expression, [BOOL], declared):
        errors.append(invalid(f"{path}.expression", expression, text))
    if spoken and not spoken.strip():
        errors.append(invalid(f"{path}.messageExpression", spoken, "must be non-empty if specified"))
    elif spoken and (text := complaint(spoken, [STRING], declared.without("authorizer"))):
        errors.append(invalid(f"{path}.messageExpression", spoken, text))
    if message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        errors.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    return errors + check_choice(validation, "reason", path, REASONS)


def _annotation(annotation: Object, name: str, path: str, declared: Declarations) -> list[FieldError]:
    key, expression = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
    if name:
        errors = label_name(f"{name}/{key}", f"{path}.key")
    else:
        errors = [invalid(f"{path}.key", key, "requires metadata.name be non-empty")]
    if not expression:
        errors.append(required(f"{path}.valueExpression", "valueExpression is not specified"))
    elif len(expression.encode()) > MAX_ANNOTATION_EXPRESSION_BYTES:
        text = f"must not exceed {MAX_ANNOTATION_EXPRESSION_BYTES} bytes in length"
        errors.append(required(f"{path}.valueExpression", text))
    elif text := complaint(expression, [STRING, NULL], declared):
        errors.append(invalid(f"{path}.valueExpression", annotation["valueExpression"], text))
    return errors


def _mutation(mutation: Object, path: str, declared: Declarations) -> list[FieldError]:
    kind = mutation.get("patchType") or ""
    if not kind:
        return [required(f"{path}.patchType")]
    if kind not in PATCH_TYPES:
        return [unsupported(f"{path}.patchType", kind, PATCH_TYPES)]
    own, other = ("jsonPatch", "applyConfiguration") if kind == "JSONPatch" else ("applyConfiguration", "jsonPatch")
    errors: list[FieldError] = []
    if mutation.get(own) is None:
        errors.append(required(f"{path}.{own}", f"must be specified when patchType is {kind}"))
    else:
        expression = (mutation[own].get("expression") or "").strip()
        if not expression:
            errors.append(required(f"{path}.{own}.expression"))
        elif text := complaint(expression, [PATCHES if kind == "JSONPatch" else OBJECT], declared.with_patches()):
            errors.append(invalid(f"{path}.{own}.expression", expression, text))
    if mutation.get(other) is not None:
        text = f"must not be specified when patchType is {kind}"
        errors.append(invalid(f"{path}.{other}", f"{{{other}}}", text))
    return errors


class MutatingPolicyBindingStrategy(KindStrategy):
    """MutatingAdmissionPolicyBinding."""

    generation = True
    owned_finalizers = False
    rechecks_all = True
    rechecks_change = False
    unconditional_update = False

    def default(self, obj: Object) -> None:
        match_defaults((obj.get("spec") or {}).get("matchResources"))

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = _policy_name(spec) + _param_ref(spec.get("paramRef"))
        errors += check_match(spec.get("matchResources"), "spec.matchResources")
        return errors + _operations(spec.get("matchResources") or {}, "spec.matchResources.resourceRules.operations")


class PolicyBindingStrategy(MutatingPolicyBindingStrategy):
    """ValidatingAdmissionPolicyBinding."""

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = _policy_name(spec) + _param_ref(spec.get("paramRef"))
        errors += check_match(spec.get("matchResources"), "spec.matchResources")
        return errors + _actions(spec.get("validationActions") or [])


def _policy_name(spec: Object) -> list[FieldError]:
    name = spec.get("policyName") or ""
    if not name:
        return [required("spec.policyName")]
    return [invalid("spec.policyName", name, text) for text in formats.subdomain(name)]


def _param_ref(reference: Object | None) -> list[FieldError]:
    if reference is None:
        return []
    path, name, selector = "spec.paramRef", reference.get("name") or "", reference.get("selector")
    errors: list[FieldError] = []
    if name:
        errors += [invalid(f"{path}.name", name, text) for text in formats.path_segment(name)]
        if selector is not None:
            errors.append(forbidden(f"{path}.name", "name and selector are mutually exclusive"))
    if selector is not None:
        errors += label_selector(selector, f"{path}.selector")
        if name:
            errors.append(forbidden(f"{path}.selector", "name and selector are mutually exclusive"))
    if not name and selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction")
    if not action:
        errors.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Deny", "Allow"):
        errors.append(unsupported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))
    return errors


def _actions(actions: list[str]) -> list[FieldError]:
    path = "spec.validationActions"
    errors: list[FieldError] = []
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            errors.append(unsupported(f"{path}[{index}]", action, ACTIONS))
        if action in actions[:index]:
            errors.append(duplicate(f"{path}[{index}]", action))
    if {"Deny", "Warn"} <= set(actions):
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        errors.append(invalid(path, actions, text))
    if not actions:
        errors.append(required(path, "at least one validation action is required"))
    return errors
