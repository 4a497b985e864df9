"""Whom admission webhooks concern: rules, match conditions; and what a webhook costs that cannot be reached."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.basics import CM
from tests.conformance.corpus.webhook_reviews import rule
from tests.conformance.corpus.webhooks import MUTATING, SETTLE, VALIDATING, hook, labelled, register
from tests.conformance.steps import Step, calls, core, delete, get, patch, post

Json = dict[str, Any]


def conditioned(case: str, *expressions: str, **fields: Any) -> Json:
    conditions = [{"name": f"c{number}", "expression": text} for number, text in enumerate(expressions)]
    return hook("deny-message", case, matchConditions=conditions, **fields)


CONDITIONS = {
    "name": ("object.metadata.name == 'name'",),
    "other": ("object.metadata.name == 'name'",),
    "user": ("request.userInfo.username == 'admin'", "'system:masters' in request.userInfo.groups"),
    "operation": ("request.operation == 'UPDATE'",),
    "error": ("object.spec.missing == 1",),
    "errorfalse": ("object.spec.missing == 1", "false"),
    "errors": ("object.spec.missing == 1", "object.data.missing == 'x'"),
    "old": ("oldObject == null",),
    "has": ("has(object.data) && object.data.k == 'v'",),
    "resource": ("request.resource.resource == 'configmaps' && request.resource.group == ''",),
    "kind": ("request.kind.kind == 'ConfigMap' && request.requestKind.version == 'v1'",),
    "namespace": ("request.namespace.startsWith('t-')",),
    "dry": ("!request.dryRun",),
    "may": ("authorizer.group('').resource('configmaps').namespace(request.namespace).check('create').allowed()",),
    "request-may": ("authorizer.requestResource.check('delete').allowed()",),
    "spaces": ("namespaceObject == null",),
}


def at(url: str, case: str, **fields: Any) -> Json:
    return hook("allow", case, clientConfig={"url": url, "caBundle": "{bundle}"}, **fields)


def through(case: str, service: Json, **fields: Any) -> Json:
    return hook("allow", case, clientConfig={"service": service, "caBundle": "{bundle}"}, **fields)


TOPICS: dict[str, list[Step]] = {
    "hookconditions": [
        register(
            VALIDATING,
            "hookconditions",
            *(conditioned(case, *texts) for case, texts in CONDITIONS.items()),
            conditioned("lenient", "object.spec.missing == 1", failurePolicy="Ignore"),
        ),
        *(post(CM, labelled(case, case)) for case in [*CONDITIONS, "lenient"]),
        post(CM, labelled("upd", "operation"), dryRun="All"),
        patch(core("configmaps", "operation"), {"data": {"x": "y"}}),
        get(CM),
        delete(f"{VALIDATING}/hookconditions", pause=SETTLE),
    ],
    "hookrules": [
        register(
            VALIDATING,
            "hookrules",
            hook("deny-message", "create", rules=[rule("configmaps", operations="CREATE")]),
            hook("deny-message", "update", rules=[rule("configmaps", operations="UPDATE")]),
            hook("deny-message", "delete", rules=[rule("configmaps", operations="DELETE")]),
            hook("deny-message", "star", rules=[rule("*", group="*")]),
            hook("deny-message", "sub", rules=[rule("configmaps/*", group="*")]),
            hook("deny-message", "status", rules=[rule("*/status")]),
            hook("deny-message", "group", rules=[rule("configmaps", group="apps")]),
            hook("deny-message", "version", rules=[rule("configmaps", version="v2")]),
            hook("deny-message", "none", rules=[]),
            hook(
                "deny-message",
                "expression",
                objectSelector={
                    "matchExpressions": [
                        {"key": "case", "operator": "NotIn", "values": ["a"]},
                        {"key": "x", "operator": "Exists"},
                    ]
                },
            ),
        ),
        *(
            post(CM, labelled(case, case))
            for case in (
                "create",
                "update",
                "delete",
                "star",
                "sub",
                "status",
                "group",
                "version",
                "none",
                "expression",
            )
        ),
        post(CM, {"metadata": {"name": "chosen", "labels": {"x": "1"}}}),
        patch(core("configmaps", "update"), {"data": {"x": "y"}}),
        patch(core("configmaps", "update"), {"metadata": {"labels": {"case": "gone"}}}),
        delete(core("configmaps", "delete")),
        delete(core("configmaps", "group")),
        get(CM),
        delete(CM),
        get(CM),
        delete(f"{VALIDATING}/hookrules", pause=SETTLE),
        delete(CM),
    ],
    "hookfailures": [
        post(core("services"), {"metadata": {"name": "plain"}, "spec": {"ports": [{"port": 80}]}}),
        post(
            core("services"),
            {"metadata": {"name": "headless"}, "spec": {"ports": [{"port": 443}], "clusterIP": "None"}},
        ),
        register(
            VALIDATING,
            "hookfailures",
            hook("hang", "hang", timeoutSeconds=1),
            hook("hang", "lenient-hang", timeoutSeconds=1, failurePolicy="Ignore"),
            at("https://127.0.0.1:1/x", "refused"),
            at("https://127.0.0.1:1/x", "lenient-refused", failurePolicy="Ignore"),
            at("https://127.0.0.1:1", "bare"),
            hook("allow", "distrust", clientConfig={"url": "{hooks}/allow"}),
            hook("nowhere", "nowhere"),
            through("service-missing", {"namespace": "{ns}", "name": "missing"}),
            through("service-port", {"namespace": "{ns}", "name": "plain", "path": "/p"}),
            through("service-headless", {"namespace": "{ns}", "name": "headless", "port": 443}),
            hook("allow", "beta", admissionReviewVersions=["v9", "v1beta1"]),
            hook("wrong-uid", "beta-uid", admissionReviewVersions=["v1beta1"]),
        ),
        register(
            MUTATING,
            "hookfailures",
            hook("hang", "mutating-hang", timeoutSeconds=1),
            hook("hang", "first-hang", timeoutSeconds=1, failurePolicy="Ignore"),
            hook("label-a", "first-hang", name="after.example.com"),
            hook("label-b", "beta-patch", admissionReviewVersions=["v1beta1"]),
        ),
        *(
            post(CM, labelled(case, case))
            for case in (
                *(
                    "hang",
                    "lenient-hang",
                    "refused",
                    "lenient-refused",
                    "bare",
                    "distrust",
                    "nowhere",
                    "service-missing",
                ),
                *("service-port", "service-headless", "beta", "beta-uid", "mutating-hang", "first-hang", "beta-patch"),
            )
        ),
        calls(),
        get(CM),
        delete(f"{MUTATING}/hookfailures"),
        delete(f"{VALIDATING}/hookfailures", pause=SETTLE),
    ],
}
