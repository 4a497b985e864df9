"""Expressions of match conditions and policies: their variables, and what becomes of their errors."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.crd import cel
from dovetail.lab.apiserver.crd.cel.values import Fields
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.webhooks.attributes import Attributes
from dovetail.lab.apiserver.webhooks.authorizer import Authorizer, ResourceCheck

Json = dict[str, Any]
#: What of a Namespace policies see of its metadata.
_NAMESPACE_METADATA = (
    *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers"),
)


class EvaluationFailed(Exception):
    """Expressions that could not be evaluated; whether that matters is the failure policy's to say."""


class Variables:
    """What expressions about one request see: the objects in the version of `seen`, and more for policies."""

    def __init__(
        self,
        call: RequestCall,
        attributes: Attributes,
        seen: ResourceType,
        params: Json | None = None,
        composed: Sequence[Mapping[str, str]] = (),
        *,
        in_namespace: bool = True,
    ) -> None:
        new, old = attributes.converted(seen)
        authorizer = Authorizer(call.server.cluster, call.user, call.groups, call.borrowed)
        check = ResourceCheck(
            authorizer,
            group=seen.group,
            resource=seen.plural,
            subresource=attributes.subresource,
            namespace="" if attributes.is_namespace else attributes.namespace,
            name=attributes.name,
        )
        self.env: dict[str, Any] = {
            "object": new,
            "oldObject": old,
            "request": attributes.request("", seen),
            "namespaceObject": _namespace(call, attributes) if in_namespace else None,
            "params": params,
            "authorizer": authorizer.with_request_resource(check),
        }
        self._composed = composed
        self.env["variables"] = PolicyVariables(composed, self.env)

    def without_authorizer(self) -> Variables:
        """What message expressions see; a policy's variable that asks the authorizer fails there."""
        made = copy.copy(self)
        made.env = {name: value for name, value in self.env.items() if name != "authorizer"}
        made.env["variables"] = PolicyVariables(self._composed, made.env)
        return made

    def evaluate(self, expression: str) -> Any:
        """The value of an expression. Raises EvaluationFailed."""
        try:
            return cel.compile_expression(expression)(self.env)
        except cel.CelSyntaxError as error:
            raise EvaluationFailed(f"compilation error: compilation failed: {error.located(expression)}") from error
        except cel.CelError as error:
            raise EvaluationFailed(f"expression '{expression}' resulted in error: {error}") from error


def _namespace(call: RequestCall, attributes: Attributes) -> Json | None:
    if attributes.is_namespace or not attributes.namespace:
        return None
    home = call.server.store.get("/namespaces", attributes.namespace)
    if home is None:
        return None
    obj = home.obj
    metadata = {name: obj["metadata"][name] for name in _NAMESPACE_METADATA if name in obj["metadata"]}
    return {"metadata": metadata, "spec": obj.get("spec") or {}, "status": obj.get("status") or {}}


class PolicyVariables(Fields):
    """The variables of a policy: evaluated when first read, and only then."""

    def __init__(self, declared: Sequence[Mapping[str, str]], env: dict[str, Any]) -> None:
        self._expressions = {item["name"]: item["expression"] for item in declared}
        self._env = env
        self._values: dict[str, Any] = {}
        self._errors: dict[str, cel.CelError] = {}

    def field(self, name: str) -> Any:
        if name not in self._expressions:
            raise cel.CelError(f"no such key: {name}")
        if name in self._errors:
            raise self._errors[name]
        if name not in self._values:
            try:
                self._values[name] = cel.compile_expression(self._expressions[name])(self._env)
            except (cel.CelError, cel.CelSyntaxError) as error:
                self._errors[name] = cel.CelError(f'composited variable "{name}" fails to evaluate: {error}')
                raise self._errors[name] from error
        return self._values[name]

    def has(self, name: str) -> bool:
        return name in self._expressions


def conditions_hold(conditions: Sequence[Mapping[str, str]], variables: Variables, failure_policy: str) -> bool:
    """Whether all match conditions are true. Where one fails and none is false, the failure policy decides.

    Raises EvaluationFailed if that is Fail.
    """
    problems: list[str] = []
    for condition in conditions:
        try:
            value = variables.evaluate(condition.get("expression") or "")
        except EvaluationFailed as problem:
            problems.append(str(problem))
            continue
        if value is False:
            return False
    if not problems:
        return True
    if failure_policy == "Ignore":
        return False
    unique = list(dict.fromkeys(problems))
    raise EvaluationFailed(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")
