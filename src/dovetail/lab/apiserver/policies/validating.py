"""ValidatingAdmissionPolicy: expressions that must hold, and what a binding does where one does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.policies.params import ConfigurationError, matched_resource, param_resource, params
from dovetail.lab.apiserver.policies.source import AdmissionPolicy, PolicyBinding
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.webhooks.attributes import Attributes
from dovetail.lab.apiserver.webhooks.expressions import EvaluationFailed, Variables, conditions_hold

Json = dict[str, Any]
MAX_MESSAGE_BYTES = 5 * 1024
MAX_ANNOTATION_BYTES = 10 * 1024
_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_FAILURE_KEY = "validation.policy.admission.k8s.io/validation_failure"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A validation that does not hold, or cannot be evaluated."""

    index: int
    message: str
    reason: str = "Invalid"


def validate(call: RequestCall, attributes: Attributes) -> None:
    """Evaluate the policies in force; the first denial is the answer."""
    if not call.server.policies.any("validating"):
        return
    denials: list[tuple[str, str]] = []
    for policy in call.server.policies.policies("validating"):
        denials += _denials(call, policy, attributes)
    if denials:
        message, reason = denials[0]
        raise denial(attributes, message, reason)


def denial(attributes: Attributes, message: str, reason: str) -> StatusError:
    """A refusal of admission with the reason's code and the message as its cause."""
    error = status_errors.forbidden(
        attributes.resource.group, attributes.resource.plural, shown_name(attributes), message, [{"message": message}]
    )
    error.reason, error.code = reason, _CODES.get(reason, 422)
    return error


def shown_name(attributes: Attributes) -> str:
    metadata = (attributes.object or {}).get("metadata", {})
    return attributes.name or metadata.get("name") or metadata.get("generateName") or "Unknown"


def _denials(call: RequestCall, policy: AdmissionPolicy, attributes: Attributes) -> list[tuple[str, str]]:
    """Messages and reasons of what a policy denies."""
    head = f"ValidatingAdmissionPolicy '{policy.name}'"
    try:
        seen = matched_resource(call, policy.match, attributes)
        if seen is not None and policy.param_kind is not None:
            param_resource(call, policy.param_kind)
    except ConfigurationError as problem:
        return _configured(policy, f"{head} denied request: failed to configure policy: {problem}")
    if seen is None:
        return []
    denials: list[tuple[str, str]] = []
    annotations: dict[str, list[str]] = {}
    for binding in policy.bindings:
        bound = f"{head} with binding '{binding.name}'"
        try:
            if matched_resource(call, binding.match, attributes) is None:
                continue
            given = params(call, policy, binding, attributes.namespace)
        except ConfigurationError as problem:
            denials += _configured(policy, f"{bound} denied request: failed to configure binding: {problem}")
            continue
        for param in given:
            denials += _denials_with(call, policy, binding, attributes, seen, param, annotations)
    for key, values in annotations.items():
        call.answers.audit[f"{policy.name}/{key}"] = ", ".join(values)
    return denials


def _configured(policy: AdmissionPolicy, message: str) -> list[tuple[str, str]]:
    return [] if policy.failure_policy == "Ignore" else [(message, "Invalid")]


def _denials_with(
    call: RequestCall,
    policy: AdmissionPolicy,
    binding: PolicyBinding,
    attributes: Attributes,
    seen: ResourceType,
    param: Json | None,
    annotations: dict[str, list[str]],
) -> list[tuple[str, str]]:
    """What one binding denies with one parameter; warnings and audit annotations are left on the call."""
    variables = Variables(call, attributes, seen, param, policy.spec.get("variables") or ())
    denials = []
    head = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
    try:
        if not conditions_hold(policy.spec.get("matchConditions") or (), variables, policy.failure_policy):
            return []
        failures = list(_failures(policy, variables))
        errors = _annotate(policy, variables, annotations)
    except EvaluationFailed as problem:
        failures, errors = _errors(policy, problem), []
    for failure in failures:
        for action in binding.actions:
            if action == "Deny":
                denials.append((f"{head} denied request: {failure.message}", failure.reason))
            elif action == "Warn":
                call.warn(f"Validation failed for {head}: {failure.message}")
            elif action == "Audit":
                _audit(call, policy, binding, failure)
    return denials + [(f"{head} denied request: {text}", "Invalid") for text in errors]


def _errors(policy: AdmissionPolicy, problem: EvaluationFailed) -> list[Failure]:
    return [] if policy.failure_policy == "Ignore" else [Failure(index=0, message=str(problem))]


def _failures(policy: AdmissionPolicy, variables: Variables) -> Iterator[Failure]:
    for index, validation in enumerate(policy.spec.get("validations") or ()):
        try:
            if variables.evaluate(validation["expression"]) is True:
                continue
        except EvaluationFailed as problem:
            if policy.failure_policy != "Ignore":
                yield Failure(index=index, message=str(problem))
            continue
        yield Failure(
            index=index, message=_message(validation, variables), reason=validation.get("reason") or "Invalid"
        )


def _message(validation: Json, variables: Variables) -> str:
    """The text of the message expression, of the message, or of the rule: whichever is there and fit to print."""
    if validation.get("messageExpression"):
        try:
            text = variables.without_authorizer().evaluate(validation["messageExpression"])
        except EvaluationFailed:
            text = ""
        if isinstance(text, str):
            text = text.strip()
            if text and "\n" not in text and len(text.encode()) <= MAX_MESSAGE_BYTES:
                return text
    stated = (validation.get("message") or "").strip()
    return stated or f"failed expression: {validation['expression'].strip()}"


def _annotate(policy: AdmissionPolicy, variables: Variables, annotations: dict[str, list[str]]) -> list[str]:
    """Collect the policy's audit annotations; the errors of those that cannot be evaluated."""
    errors: list[str] = []
    for item in policy.spec.get("auditAnnotations") or ():
        try:
            value = variables.evaluate(item["valueExpression"])
        except EvaluationFailed as problem:
            if policy.failure_policy != "Ignore":
                errors.append(str(problem))
            continue
        if not isinstance(value, str) or not value.strip():
            continue
        text = value.strip()[:MAX_ANNOTATION_BYTES]
        held = annotations.setdefault(item["key"], [])
        if text not in held:
            held.append(text)
    return errors


def _audit(call: RequestCall, policy: AdmissionPolicy, binding: PolicyBinding, failure: Failure) -> None:
    value = {
        "message": failure.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": failure.index,
        "validationActions": list(binding.actions),
    }
    call.answers.audit.setdefault(_FAILURE_KEY, msgspec.json.encode([value]).decode())
