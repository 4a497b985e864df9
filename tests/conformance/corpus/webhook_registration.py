"""Registration of webhooks and admission policies: what is filled in, and what is refused."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.policies import (
    MUTATING as MUTATING_POLICIES,
)
from tests.conformance.corpus.policies import (
    MUTATING_BINDINGS,
    PARAMS,
    VALIDATING_BINDINGS,
    applied,
    json_patch,
)
from tests.conformance.corpus.policies import (
    VALIDATING as POLICIES,
)
from tests.conformance.corpus.webhook_reviews import rule
from tests.conformance.corpus.webhooks import MUTATING, VALIDATING
from tests.conformance.steps import Step, delete, get, patch, post, table

Json = dict[str, Any]
NOWHERE = {"matchLabels": {"no": "such"}}
MINIMAL = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://example.com/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "objectSelector": NOWHERE,
}
WRONG: dict[str, Json] = {
    "name": {"name": "short"},
    "no-name": {"name": ""},
    "bad-name": {"name": "A.example.com"},
    "operations": {"rules": [{**rule("pods"), "operations": ["*", "CREATE"]}]},
    "operation": {"rules": [{**rule("pods"), "operations": ["READ"]}]},
    "no-operations": {"rules": [{**rule("pods"), "operations": []}]},
    "empty-rule": {"rules": [{}]},
    "groups": {"rules": [{**rule("pods"), "apiGroups": ["*", "apps"]}]},
    "versions": {"rules": [{**rule("pods"), "apiVersions": ["*", "v1"]}]},
    "no-version": {"rules": [{**rule("pods"), "apiVersions": [""]}]},
    "resources": {"rules": [rule("*/*", "pods")]},
    "star": {"rules": [rule("*", "pods")]},
    "whole": {"rules": [rule("pods/*", "pods/status")]},
    "sub": {"rules": [rule("*/status", "pods/status")]},
    "no-resource": {"rules": [rule("")]},
    "scope": {"rules": [rule("pods", scope="Nowhere")]},
    "failure": {"failurePolicy": "Maybe"},
    "match": {"matchPolicy": "Maybe"},
    "effects": {"sideEffects": "Some"},
    "no-effects": {"sideEffects": None},
    "timeout": {"timeoutSeconds": 31},
    "no-timeout": {"timeoutSeconds": 0},
    "selector": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
    "selected": {"objectSelector": {"matchLabels": {"a b": "c"}}},
    "both": {"clientConfig": {"url": "https://x", "service": {"name": "a", "namespace": "b"}}},
    "neither": {"clientConfig": {}},
    "http": {"clientConfig": {"url": "http://example.com"}},
    "host": {"clientConfig": {"url": "https:///x"}},
    "user": {"clientConfig": {"url": "https://a:b@example.com"}},
    "query": {"clientConfig": {"url": "https://example.com/?a=b#c"}},
    "service-name": {"clientConfig": {"service": {"namespace": "b"}}},
    "service-namespace": {"clientConfig": {"service": {"name": "a"}}},
    "service-port": {"clientConfig": {"service": {"name": "a", "namespace": "b", "port": 70000}}},
    "service-path": {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x//Y/"}}},
    "service-slashes": {"clientConfig": {"service": {"name": "a", "namespace": "b", "path": "//"}}},
    "review": {"admissionReviewVersions": []},
    "reviews": {"admissionReviewVersions": ["v9"]},
    "repeated": {"admissionReviewVersions": ["v1", "v1", "V_"]},
    "condition": {"matchConditions": [{"name": "a b", "expression": "object.x +"}]},
    "condition-name": {"matchConditions": [{"name": "", "expression": "true"}, {"name": "x", "expression": " "}]},
    "condition-twice": {"matchConditions": [{"name": "x", "expression": "true"}, {"name": "x", "expression": "true"}]},
    "condition-type": {"matchConditions": [{"name": "x", "expression": "1 + 1"}]},
    "condition-dynamic": {"matchConditions": [{"name": "x", "expression": "object.spec"}]},
    "condition-unknown": {"matchConditions": [{"name": "x", "expression": "params.x == 1"}]},
    "condition-field": {"matchConditions": [{"name": "x", "expression": "request.nothing == 'x'"}]},
    "condition-mismatch": {"matchConditions": [{"name": "x", "expression": "request.name == 1"}]},
}
VALIDATION = {"expression": "true"}
CONSTRAINTS = {"resourceRules": [rule("pods")], "objectSelector": NOWHERE}
WRONG_POLICIES: dict[str, Json] = {
    "no-constraints": {"matchConstraints": None},
    "no-rules": {"matchConstraints": {}},
    "no-validations": {"validations": []},
    "failure": {"failurePolicy": "Maybe"},
    "param-kind": {"paramKind": {"apiVersion": "a/b/c", "kind": "X y"}},
    "param-version": {"paramKind": {"apiVersion": "A/", "kind": ""}},
    "no-expression": {"validations": [{"expression": " "}]},
    "syntax": {"validations": [{"expression": "object.x ="}]},
    "type": {"validations": [{"expression": "'x'"}]},
    "dynamic": {"validations": [{"expression": "object.x"}]},
    "params": {"validations": [{"expression": "params.x == 1"}]},
    "variable": {"validations": [{"expression": "variables.x == 1"}]},
    "message": {"validations": [{**VALIDATION, "message": "a\nb"}]},
    "blank-message": {"validations": [{**VALIDATION, "message": "  ", "messageExpression": " "}]},
    "message-type": {"validations": [{**VALIDATION, "messageExpression": "1"}]},
    "message-dynamic": {"validations": [{**VALIDATION, "messageExpression": "object.x"}]},
    "reason": {"validations": [{**VALIDATION, "reason": "Because"}]},
    "variables": {
        "variables": [
            {"name": "a-b", "expression": "1"},
            {"name": "in", "expression": "1"},
            {"name": "x", "expression": ""},
            {"name": "y", "expression": "nothing + 1"},
        ]
    },
    "variable-order": {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
    "annotation": {"auditAnnotations": [{"key": "a b", "valueExpression": "1"}]},
    "annotations": {"auditAnnotations": [{"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": " "}]},
    "resource-names": {"matchConstraints": {"resourceRules": [{**rule("pods"), "resourceNames": ["a", "a", "b/c"]}]}},
    "condition": {"matchConditions": [{"name": "x", "expression": "params.x == 1"}]},
}
WRONG_MUTATIONS: dict[str, Json] = {
    "none": {"mutations": []},
    "no-type": {"mutations": [{"applyConfiguration": {"expression": "Object{}"}}]},
    "type": {"mutations": [{"patchType": "Merge"}]},
    "no-patch": {"mutations": [{"patchType": "JSONPatch"}]},
    "no-configuration": {"mutations": [{"patchType": "ApplyConfiguration"}]},
    "other": {
        "mutations": [{**json_patch("[JSONPatch{op: 'test'}]"), "applyConfiguration": {"expression": "Object{}"}}]
    },
    "empty": {"mutations": [applied(" ")]},
    "not-object": {"mutations": [applied("{'a': 'b'}")]},
    "not-list": {"mutations": [json_patch("JSONPatch{op: 'test'}")]},
    "delete": {"matchConstraints": {"resourceRules": [rule("pods", operations="DELETE")]}},
    "reinvocation": {"reinvocationPolicy": "Sometimes"},
    "no-reinvocation": {"reinvocationPolicy": None},
}
WRONG_BINDINGS: dict[str, Json] = {
    "no-policy": {"policyName": ""},
    "policy": {"policyName": "A_"},
    "actions": {"validationActions": []},
    "action": {"validationActions": ["Refuse", "Deny", "Deny"]},
    "deny-warn": {"validationActions": ["Deny", "Warn"]},
    "reference": {"paramRef": {"parameterNotFoundAction": "Deny"}},
    "both": {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}},
    "not-found": {"paramRef": {"name": "a/b"}},
    "not-found-action": {"paramRef": {"name": "a", "parameterNotFoundAction": "Maybe"}},
    "match": {"matchResources": {"matchPolicy": "Maybe", "resourceRules": [{}]}},
}


def configuration(name: str, *hooks: Json) -> Json:
    return {"metadata": {"name": f"registration-{name}"}, "webhooks": list(hooks)}


def policy(name: str, **spec: Any) -> Json:
    made = {"matchConstraints": CONSTRAINTS, "validations": [VALIDATION], **spec}
    return {"metadata": {"name": f"registration-{name}"}, "spec": made}


def mutation(name: str, **spec: Any) -> Json:
    made = {
        "matchConstraints": {**CONSTRAINTS, "resourceRules": [rule("pods", operations="CREATE")]},
        "mutations": [applied("Object{}")],
        "reinvocationPolicy": "Never",
        **spec,
    }
    return {"metadata": {"name": f"registration-{name}"}, "spec": made}


def binding(name: str, **spec: Any) -> Json:
    made = {"policyName": "registration", "validationActions": ["Deny"], **spec}
    return {"metadata": {"name": f"registration-{name}"}, "spec": made}


TOPICS: dict[str, list[Step]] = {
    "webhookregistration": [
        post(VALIDATING, configuration("least", MINIMAL)),
        post(MUTATING, configuration("least", MINIMAL)),
        post(VALIDATING, configuration("rules", {**MINIMAL, "rules": [{**rule("pods"), "scope": None}]})),
        post(VALIDATING, configuration("empty")),
        post(VALIDATING, configuration("twice", MINIMAL, MINIMAL)),
        post(
            MUTATING,
            configuration("service", {**MINIMAL, "clientConfig": {"service": {"name": "a", "namespace": "b"}}}),
        ),
        *(post(VALIDATING, configuration(f"wrong-{name}", {**MINIMAL, **fields})) for name, fields in WRONG.items()),
        post(MUTATING, configuration("reinvoked", {**MINIMAL, "reinvocationPolicy": "Sometimes"})),
        post(MUTATING, configuration("several", {**MINIMAL, "name": "x", "timeoutSeconds": 99, "sideEffects": "Some"})),
        patch(f"{VALIDATING}/registration-least", {"webhooks": [{**MINIMAL, "sideEffects": "Some"}]}),
        patch(f"{VALIDATING}/registration-least", {"webhooks": [{**MINIMAL, "timeoutSeconds": 5}]}),
        patch(f"{VALIDATING}/registration-least", {"metadata": {"labels": {"a": "b"}}}),
        get(f"{VALIDATING}/registration-least"),
        table(f"{VALIDATING}/registration-least"),
        table(f"{MUTATING}/registration-least"),
        *(delete(f"{VALIDATING}/registration-{name}") for name in ("least", "rules", "empty")),
        *(delete(f"{MUTATING}/registration-{name}") for name in ("least", "service")),
    ],
    "policyregistration": [
        post(POLICIES, policy("least")),
        post(POLICIES, policy("params", paramKind=PARAMS, validations=[{"expression": "params.x == object.y"}])),
        post(
            POLICIES,
            policy(
                "whole",
                variables=[{"name": "x", "expression": "object.spec"}],
                validations=[{"expression": "variables.x == 1", "messageExpression": "'m' + string(variables.x)"}],
                auditAnnotations=[{"key": "k", "valueExpression": "'v'"}],
                matchConditions=[{"name": "c", "expression": "has(object.spec)"}],
                failurePolicy="Ignore",
            ),
        ),
        *(post(POLICIES, policy(f"wrong-{name}", **fields)) for name, fields in WRONG_POLICIES.items()),
        post(MUTATING_POLICIES, mutation("least")),
        *(post(MUTATING_POLICIES, mutation(f"wrong-{name}", **fields)) for name, fields in WRONG_MUTATIONS.items()),
        post(VALIDATING_BINDINGS, binding("least")),
        post(VALIDATING_BINDINGS, binding("matched", matchResources={})),
        *(post(VALIDATING_BINDINGS, binding(f"wrong-{name}", **fields)) for name, fields in WRONG_BINDINGS.items()),
        post(MUTATING_BINDINGS, {"metadata": {"name": "registration-least"}, "spec": {"policyName": "registration"}}),
        post(MUTATING_BINDINGS, {"metadata": {"name": "registration-wrong"}, "spec": {"paramRef": {}}}),
        patch(f"{POLICIES}/registration-least", {"spec": {"failurePolicy": "Ignore"}}),
        patch(f"{POLICIES}/registration-least", {"spec": {"validations": [{"expression": "nothing"}]}}),
        table(f"{POLICIES}/registration-least"),
        *(delete(f"{POLICIES}/registration-{name}") for name in ("least", "params", "whole")),
        *(delete(f"{VALIDATING_BINDINGS}/registration-{name}") for name in ("least", "matched")),
        delete(f"{MUTATING_POLICIES}/registration-least"),
        delete(f"{MUTATING_BINDINGS}/registration-least"),
    ],
}
