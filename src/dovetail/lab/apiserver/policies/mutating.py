"""MutatingAdmissionPolicy: expressions that change an object, as apply configurations or as JSON patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dovetail.lab.apiserver import status_errors, structured_merge, typed_validation
from dovetail.lab.apiserver.crd.cel.values import Message, Optional
from dovetail.lab.apiserver.patches import jsonpatch
from dovetail.lab.apiserver.policies.params import ConfigurationError, matched_resource, param_resource, params
from dovetail.lab.apiserver.policies.source import AdmissionPolicy, PolicyBinding
from dovetail.lab.apiserver.policies.validating import shown_name
from dovetail.lab.apiserver.registry import ResourceType, Schema
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.webhooks.admission import Reinvocation, read_back
from dovetail.lab.apiserver.webhooks.attributes import Attributes, in_version
from dovetail.lab.apiserver.webhooks.expressions import EvaluationFailed, Variables, conditions_hold

Json = dict[str, Any]


class MutationFailed(Exception):
    """A mutation that cannot be applied."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in force for the request, through one binding and with one parameter."""

    policy: AdmissionPolicy
    binding: PolicyBinding
    seen: ResourceType
    param: Json | None

    @property
    def uid(self) -> str:
        metadata = (self.param or {}).get("metadata", {})
        return f"{self.policy.name}/{self.binding.name}/{metadata.get('namespace', '')}/{metadata.get('name', '')}"


class PolicyError(msgspec.Struct, frozen=True):
    """What went wrong with a policy; `reason` is the Status's."""

    policy: AdmissionPolicy
    message: str
    reason: str


def mutate(call: RequestCall, attributes: Attributes, reinvocation: Reinvocation) -> None:
    """Let the policies in force change `asked.object`, in order. Raises StatusError where one with Fail cannot."""
    if attributes.operation == "DELETE" or not call.server.policies.any("mutating"):
        return
    errors: list[PolicyError] = []
    invocations = [
        item
        for policy in call.server.policies.policies("mutating")
        for item in _invocations(call, policy, attributes, errors)
    ]
    reinvocation.start(attributes.object)
    applied = [_mutate_with(call, invocation, attributes, reinvocation, errors) for invocation in invocations]
    if any(applied):
        reinvocation.require()
        reinvocation.needed = True
    reinvocation.last = attributes.object
    refusals = [error for error in errors if error.policy.failure_policy != "Ignore"]
    if refusals:
        resource = attributes.resource
        causes = [{"message": error.message} for error in refusals]
        refusal = status_errors.forbidden(resource.group, resource.plural, shown_name(attributes), "", causes)
        refusal.message = refusals[0].message
        refusal.reason = refusals[0].reason
        raise refusal


def _invocations(
    call: RequestCall, policy: AdmissionPolicy, attributes: Attributes, errors: list[PolicyError]
) -> list[Invocation]:
    try:
        seen = matched_resource(call, policy.match, attributes)
        if seen is not None and policy.param_kind is not None:
            param_resource(call, policy.param_kind)
    except ConfigurationError as problem:
        text = f'policy "{policy.name}" denied request: failed to configure policy: {problem}'
        errors.append(PolicyError(policy, text, "Forbidden"))
        return []
    if seen is None:
        return []
    made = []
    for binding in policy.bindings:
        try:
            if matched_resource(call, binding.match, attributes) is None:
                continue
            given = params(call, policy, binding, attributes.namespace)
        except ConfigurationError as problem:
            errors.append(
                PolicyError(policy, _denied(policy, binding, f"failed to configure binding: {problem}"), "Forbidden")
            )
            continue
        made += [Invocation(policy=policy, binding=binding, seen=seen, param=param) for param in given]
    return made


def _denied(policy: AdmissionPolicy, binding: PolicyBinding, text: str) -> str:
    return f"policy '{policy.name}' with binding '{binding.name}' denied request: {text}"


def _mutate_with(
    call: RequestCall,
    invocation: Invocation,
    attributes: Attributes,
    reinvocation: Reinvocation,
    errors: list[PolicyError],
) -> bool:
    """Apply a policy's mutations; whether any was."""
    policy = invocation.policy
    try:
        variables = _variables(call, invocation, attributes)
        if not conditions_hold(policy.spec.get("matchConditions") or (), variables, policy.failure_policy):
            return False
    except EvaluationFailed as problem:
        errors.append(PolicyError(policy, _denied(policy, invocation.binding, str(problem)), "Invalid"))
        return False
    if reinvocation.skips(invocation.uid):
        return False
    before, applied = attributes.object, False
    for mutation in policy.spec.get("mutations") or ():
        if attributes.object is None:
            continue
        try:
            _apply(call, invocation, attributes, mutation)
            applied = True
        except (EvaluationFailed, MutationFailed) as problem:
            errors.append(PolicyError(policy, _denied(policy, invocation.binding, str(problem)), "Invalid"))
    again = policy.spec.get("reinvocationPolicy") == "IfNeeded"
    reinvocation.ran(invocation.uid, attributes.object != before, again)
    return applied


def _variables(call: RequestCall, invocation: Invocation, attributes: Attributes) -> Variables:
    composed = invocation.policy.spec.get("variables") or ()
    return Variables(call, attributes, invocation.seen, invocation.param, composed)


def _apply(call: RequestCall, invocation: Invocation, attributes: Attributes, mutation: Json) -> None:
    """Put one mutation into the object."""
    seen = invocation.seen
    shown, _ = attributes.converted(seen)
    assert shown is not None
    variables = _variables(call, invocation, attributes)
    if mutation.get("patchType") == "JSONPatch":
        document = _patched(shown, variables.evaluate(mutation["jsonPatch"]["expression"]))
    else:
        value = variables.evaluate(mutation["applyConfiguration"]["expression"])
        document = _merged(shown, value, seen)
    made = read_back(call, document, seen, attributes.kind_in(seen))
    if attributes.kind_in(seen) != attributes.kind:
        made = in_version(made, seen, attributes.resource) or made
    attributes.object = made


def _patched(shown: Json, operations: Any) -> Json:
    """The object after a list of JSONPatch values; a test that fails leaves it as it is."""
    if not isinstance(operations, list):
        raise MutationFailed("type mismatch: JSONPatchType.expression should evaluate to array")
    patch = [_operation(item) for item in operations]
    try:
        document = jsonpatch.apply(shown, patch)
    except jsonpatch.TestFailed:
        return shown
    except (jsonpatch.PatchFailure, jsonpatch.BadPatch, jsonpatch.WrongField) as error:
        raise MutationFailed(f"JSON Patch: {error}") from error
    if not isinstance(document, dict):
        raise MutationFailed("JSON Patch: the document is no object")
    return document


def _operation(item: Any) -> Json:
    if not isinstance(item, Message) or item.type_name != "JSONPatch":
        raise MutationFailed("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
    operation = {name: item.fields[name] for name in ("op", "path", "from") if item.fields.get(name)}
    if "value" in item.fields:
        operation["value"] = document_of(item.fields["value"])
    return operation


def document_of(value: Any, path: str = "") -> Any:
    """What an expression made, as JSON. Raises MutationFailed where a type does not name the place it stands at."""
    if isinstance(value, Message):
        if path and value.type_name != path:
            names = f'unexpected type name "{value.type_name}", expected "{path}"'
            raise MutationFailed(f"type mismatch: {names}, which matches field name path from root Object type")
        own = value.type_name
        return {name: document_of(item, f"{own}.{name}") for name, item in value.fields.items()}
    if isinstance(value, Optional):
        return document_of(value.value, path) if value.present else None
    if isinstance(value, dict):
        return {str(key): document_of(item, path) for key, item in value.items()}
    if isinstance(value, list):
        return [document_of(item, path) for item in value]
    return value


def _merged(shown: Json, value: Any, seen: ResourceType) -> Json:
    """The object with an apply configuration merged into it; nothing that is there is taken away."""
    if not isinstance(value, Message):
        raise MutationFailed("unsupported return type from ApplyConfiguration expression")
    head = {"kind": seen.kind, "apiVersion": seen.api_version}
    configuration = {**document_of(value, "Object"), **head}
    problems = typed_validation.problems(seen.schema, configuration)
    if problems:
        text = f"failed to convert patch object to typed object: {typed_validation.message(problems)}"
        raise MutationFailed(f"error applying patch: {text}")
    whole = list(_atomics(seen.schema, configuration, ""))
    if whole:
        text = f"may not mutate atomic arrays, maps or structs: {', '.join(whole)}"
        raise MutationFailed(f"error applying patch: invalid ApplyConfiguration: {text}")
    merged: Json = structured_merge.merge(seen.schema, shown, configuration)
    return merged


def _atomics(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """The places where a value would replace what is there as a whole."""
    if isinstance(value, dict):
        if schema.kind in ("object", "map") and schema.map_type == "atomic":
            yield path
        for name, item in value.items():
            if name in schema.fields:
                yield from _atomics(schema.fields[name].schema, item, f"{path}.{name}")
    elif isinstance(value, list) and schema.kind == "array":
        if not structured_merge.associative(schema):
            yield path
        if schema.items is not None:
            for index, item in enumerate(value):
                yield from _atomics(schema.items, item, f"{path}[{index}]")
