"""Admission policies in expressions: what they deny, warn of and change, with which parameters."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.corpus.webhook_reviews import DEPLOYMENTS, HPA, HPA1, deployment, rule
from tests.conformance.corpus.webhooks import HERE, labelled
from tests.conformance.steps import Step, cluster, core, delete, get, named, patch, post

Json = dict[str, Any]
GROUP = "admissionregistration.k8s.io/v1"
VALIDATING = cluster(GROUP, "validatingadmissionpolicies")
VALIDATING_BINDINGS = cluster(GROUP, "validatingadmissionpolicybindings")
MUTATING = cluster(GROUP, "mutatingadmissionpolicies")
MUTATING_BINDINGS = cluster(GROUP, "mutatingadmissionpolicybindings")
#: How long a real server takes to act on new policies: it looks for them every second.
SETTLE = 4.0
CONFIGMAPS = [rule("configmaps")]


def selected(case: str, rules: list[Json]) -> Json:
    return {"resourceRules": rules, "namespaceSelector": HERE, "objectSelector": {"matchLabels": {"case": case}}}


def validating(case: str, *validations: str | Json, rules: list[Json] | None = None, **spec: Any) -> Step:
    items = [{"expression": item} if isinstance(item, str) else item for item in validations]
    made = {"matchConstraints": selected(case, rules or [{**rule("configmaps"), "operations": ["CREATE", "UPDATE"]}])}
    return post(VALIDATING, {"metadata": {"name": f"{{ns}}-{case}"}, "spec": made | {"validations": items} | spec})


def bound(path: str, case: str, suffix: str = "", **spec: Any) -> Step:
    actions = {} if path == MUTATING_BINDINGS else {"validationActions": ["Deny"]}
    body = {"policyName": f"{{ns}}-{case}", **actions, **spec}
    return post(path, {"metadata": {"name": f"{{ns}}-{case}{suffix}"}, "spec": body})


def mutating(case: str, *mutations: Json, rules: list[Json] | None = None, **spec: Any) -> Step:
    made = {
        "matchConstraints": selected(case, rules or [{**rule("configmaps"), "operations": ["CREATE", "UPDATE"]}]),
        "reinvocationPolicy": "Never",
        "mutations": list(mutations),
    }
    return post(MUTATING, {"metadata": {"name": f"{{ns}}-{case}"}, "spec": made | spec})


def json_patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def applied(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


PARAMS = {"apiVersion": "v1", "kind": "ConfigMap"}
CASES: dict[str, tuple[tuple[str | Json, ...], Json]] = {
    "true": (("true",), {}),
    "false": (("false",), {}),
    "key": (("object.data.k == 'v'",), {}),
    "other": (("object.data.k == 'w'",), {}),
    "message": (({"expression": "object.data.k == 'w'", "message": " k must be w "},), {}),
    "spoken": (({"expression": "false", "messageExpression": "'k is ' + object.data.k"},), {}),
    "unspoken": (({"expression": "false", "messageExpression": "string(object.data.none)", "message": "instead"},), {}),
    "lines": (({"expression": "false", "messageExpression": "'a\\nb'"},), {}),
    "forbidden": (({"expression": "false", "reason": "Forbidden"},), {}),
    "large": (({"expression": "false", "reason": "RequestEntityTooLarge"},), {}),
    "invalid": (({"expression": "false", "reason": "Invalid"},), {}),
    "two": (("true", "object.data.k == 'w'", "false"), {}),
    "error": (("object.spec.missing == 1",), {}),
    "ignored": (("object.spec.missing == 1",), {"failurePolicy": "Ignore"}),
    "ignored-false": (("object.spec.missing == 1", "false"), {"failurePolicy": "Ignore"}),
    "condition": (("false",), {"matchConditions": [{"name": "c", "expression": "object.data.k == 'w'"}]}),
    "condition-true": (("false",), {"matchConditions": [{"name": "c", "expression": "object.data.k == 'v'"}]}),
    "condition-error": (("true",), {"matchConditions": [{"name": "c", "expression": "object.x.y == 'w'"}]}),
    "variables": (
        ("variables.b == 2 && variables.long",),
        {
            "variables": [
                {"name": "a", "expression": "object.data.size()"},
                {"name": "b", "expression": "variables.a + 1"},
                {"name": "long", "expression": "object.metadata.name.size() > 20"},
            ]
        },
    ),
    "variable-error": (("variables.a == 1",), {"variables": [{"name": "a", "expression": "object.x.y"}]}),
    "unused-error": (("true || variables.a == 1",), {"variables": [{"name": "a", "expression": "object.x.y"}]}),
    "namespace": (("namespaceObject.metadata.name == 'other'",), {}),
    "namespace-labels": (
        ("namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == request.namespace",),
        {},
    ),
    "request": (
        (
            "request.operation == 'CREATE' && request.userInfo.username == 'admin' && request.name == 'request'",
            "request.dryRun == false && !has(request.subResource) && request.kind.kind == 'ConfigMap'",
        ),
        {},
    ),
    "may": (("authorizer.group('').resource('configmaps').namespace(request.namespace).check('get').allowed()",), {}),
    "old": (("oldObject == null",), {}),
    "optional": (("object.?data.?none.orValue('x') == 'x'", "object.data[?'k'].hasValue()"), {}),
    "macros": (("object.data.all(key, key.startsWith('k'))", "object.data.exists(key, key == 'z')"), {}),
    "format": (({"expression": "false", "messageExpression": "'%s has %d keys'.format(['it', 1])"},), {}),
}
WITH_PARAMS: dict[str, Json] = {
    "named": {"name": "limits", "namespace": "{ns}", "parameterNotFoundAction": "Deny"},
    "own-namespace": {"name": "limits", "parameterNotFoundAction": "Deny"},
    "absent": {"name": "none", "namespace": "{ns}", "parameterNotFoundAction": "Deny"},
    "absent-allowed": {"name": "none", "namespace": "{ns}", "parameterNotFoundAction": "Allow"},
    "chosen": {"selector": {"matchLabels": {"limits": "yes"}}, "namespace": "{ns}", "parameterNotFoundAction": "Deny"},
}
MUTATIONS: dict[str, tuple[tuple[Json, ...], Json]] = {
    "patched": (
        (json_patch("[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'made': 'here'}}]"),),
        {},
    ),
    "escaped": (
        (json_patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: 'd'}]"),),
        {},
    ),
    "tested": (
        (
            json_patch(
                "[JSONPatch{op: 'test', path: '/data/k', value: 'w'}, JSONPatch{op: 'add', path: '/data/x', value: 'y'}]"
            ),
        ),
        {},
    ),
    "merged": ((applied("Object{data: {'added': object.data.k + '!'}}"),), {}),
    "labelled": ((applied("Object{metadata: Object.metadata{labels: {'made': 'here'}}}"),), {}),
    "misnamed": ((applied("Object{metadata: Object.data{labels: {'made': 'here'}}}"),), {}),
    "unknown": ((applied("Object{surprise: 'x'}"),), {}),
    "error": ((applied("Object{data: {'x': object.data.none}}"),), {}),
    "ignored": ((applied("Object{data: {'x': object.data.none}}"),), {"failurePolicy": "Ignore"}),
    "bad-path": ((json_patch("[JSONPatch{op: 'remove', path: '/none/such'}]"),), {}),
    "both": ((applied("Object{data: {'x': '1'}}"), applied("Object{data: {'y': object.data.x + '2'}}")), {}),
    "conditional": (
        (applied("Object{data: {'x': '1'}}"),),
        {"matchConditions": [{"name": "c", "expression": "object.data.k == 'w'"}]},
    ),
    "varied": (
        (applied("Object{data: {'x': variables.a}}"),),
        {"variables": [{"name": "a", "expression": "object.metadata.name + '!'"}]},
    ),
    "condition-error": (
        (applied("Object{data: {'x': '1'}}"),),
        {"matchConditions": [{"name": "c", "expression": "object.x.y == 'w'"}]},
    ),
}


TOPICS: dict[str, list[Step]] = {
    "validatingpolicies": [
        *(validating(case, *items, **spec) for case, (items, spec) in CASES.items()),
        *(bound(VALIDATING_BINDINGS, case) for case in CASES),
        validating("warned", "object.data.k == 'w'"),
        bound(VALIDATING_BINDINGS, "warned", validationActions=["Warn", "Audit"]),
        validating("unbound", "false"),
        validating("narrow", "false"),
        bound(VALIDATING_BINDINGS, "narrow", matchResources={"objectSelector": {"matchLabels": {"narrow": "yes"}}}),
        validating("several", {"expression": "false", "message": "first"}),
        bound(VALIDATING_BINDINGS, "several", "-b"),
        bound(VALIDATING_BINDINGS, "several", "-a", validationActions=["Warn"]),
        validating("scaled", "object.spec.replicas < 5", rules=[rule("deployments/scale", group="apps")]),
        bound(VALIDATING_BINDINGS, "scaled"),
        validating("deleted", "oldObject.data.k == 'w'", rules=[rule("configmaps", operations="DELETE")]),
        bound(VALIDATING_BINDINGS, "deleted"),
        validating(
            "equal",
            "object.apiVersion == 'autoscaling/v2' && object.spec.metrics.size() == 7",
            rules=[rule("horizontalpodautoscalers", group="autoscaling", version="v2")],
        ),
        bound(VALIDATING_BINDINGS, "equal"),
        post(CM, cm("settled"), pause=SETTLE),
        *(post(CM, labelled(case, case)) for case in CASES),
        post(CM, labelled("warned", "warned")),
        post(CM, labelled("unbound", "unbound")),
        post(CM, labelled("narrow", "narrow")),
        post(CM, cm("narrow-2", {}, labels={"case": "narrow", "narrow": "yes"})),
        post(CM, labelled("several", "several")),
        post(CM, labelled("variables-with-a-long-name", "variables")),
        post(DEPLOYMENTS, {**deployment("d"), "metadata": {"name": "d", "labels": {"case": "scaled"}}}),
        patch(named("apps/v1", "deployments", "d", "scale"), {"spec": {"replicas": 7}}),
        patch(named("apps/v1", "deployments", "d", "scale"), {"spec": {"replicas": 3}}),
        post(CM, labelled("deleted", "deleted")),
        delete(core("configmaps", "deleted")),
        post(HPA1, {**HPA, "metadata": {"name": "h", "labels": {"case": "equal"}}}),
        patch(core("configmaps", "key"), {"data": {"k": "x"}}),
        patch(core("configmaps", "key"), {"data": {"k": "x"}}, dryRun="All"),
        get(CM),
        *(delete(f"{VALIDATING_BINDINGS}/{{ns}}-{case}") for case in ("several-a", "several-b", "false", "equal")),
    ],
    "policyparams": [
        post(CM, cm("limits", {"most": "3"}, labels={"limits": "yes"})),
        post(CM, cm("limits-2", {"most": "1"}, labels={"limits": "yes"})),
        *(
            validating(
                case,
                {
                    "expression": "size(object.data.k) <= int(params.data.most)",
                    "messageExpression": "string(params.metadata.name)",
                },
                paramKind=PARAMS,
            )
            for case in WITH_PARAMS
        ),
        *(bound(VALIDATING_BINDINGS, case, paramRef=reference) for case, reference in WITH_PARAMS.items()),
        validating("no-kind", "false", paramKind={"apiVersion": "example.com/v1", "kind": "Nothing"}),
        bound(VALIDATING_BINDINGS, "no-kind", paramRef=WITH_PARAMS["named"]),
        validating("no-reference", "params == null", paramKind=PARAMS),
        bound(VALIDATING_BINDINGS, "no-reference"),
        post(CM, cm("settled"), pause=SETTLE),
        *(
            post(CM, cm(f"{case}-{size}", {"k": "x" * size}, labels={"case": case}))
            for case in WITH_PARAMS
            for size in ((1, 2) if case == "chosen" else (1, 2, 4))
        ),
        post(CM, labelled("no-kind", "no-kind")),
        post(CM, labelled("no-reference", "no-reference")),
        get(CM),
    ],
    "mutatingpolicies": [
        *(mutating(case, *items, **spec) for case, (items, spec) in MUTATIONS.items()),
        *(bound(MUTATING_BINDINGS, case) for case in MUTATIONS),
        mutating(
            "replicas",
            applied("Object{spec: Object.spec{replicas: 4}}"),
            rules=[rule("deployments", group="apps", operations="CREATE")],
        ),
        bound(MUTATING_BINDINGS, "replicas"),
        mutating(
            "containers",
            applied(
                "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: "
                "[Object.spec.template.spec.containers{name: 'c', imagePullPolicy: 'Always'}, "
                "Object.spec.template.spec.containers{name: 'sidecar', image: 'proxy'}]}}}}"
            ),
            rules=[rule("deployments", group="apps", operations="CREATE")],
        ),
        bound(MUTATING_BINDINGS, "containers"),
        mutating(
            "atomic",
            applied("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'x': 'y'}}}}"),
            rules=[rule("deployments", group="apps", operations="CREATE")],
        ),
        bound(MUTATING_BINDINGS, "atomic"),
        mutating("again", applied("Object{data: {'a': string(size(object.data))}}"), reinvocationPolicy="IfNeeded"),
        bound(MUTATING_BINDINGS, "again"),
        mutating(
            "param",
            applied("Object{data: {'x': params.data.most}}"),
            paramKind=PARAMS,
        ),
        bound(MUTATING_BINDINGS, "param", paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}),
        post(CM, cm("settled"), pause=SETTLE),
        *(post(CM, labelled(case, case)) for case in MUTATIONS),
        *(
            post(DEPLOYMENTS, {**deployment(case), "metadata": {"name": case, "labels": {"case": case}}})
            for case in ("replicas", "containers", "atomic")
        ),
        post(CM, labelled("again", "again")),
        post(CM, labelled("param", "param")),
        post(CM, cm("limits", {"most": "3"})),
        post(CM, labelled("param", "param"), pause=1.0),
        patch(core("configmaps", "labelled"), {"metadata": {"labels": {"made": None}}}),
        get(CM),
    ],
}
