"""What expressions of policies may ask the authorizer, and what it says of users and service accounts."""

from __future__ import annotations

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.corpus.policies import SETTLE, VALIDATING_BINDINGS, bound, validating
from tests.conformance.corpus.webhooks import labelled
from tests.conformance.steps import Step, core, named, post

PODS = "authorizer.group('').resource('pods')"
ACCOUNT = "authorizer.serviceAccount('{ns}', 'reader')"
#: Each is shown as a message, so that values are compared and not only whether they hold.
ASKED = {
    "field": f"string({PODS}.fieldSelector('spec.nodeName=n').check('list').allowed())",
    "label": f"string({PODS}.labelSelector('a=b,c in (d, e)').check('list').allowed())",
    "both": f"string({PODS}.namespace('{{ns}}').fieldSelector('a=b').labelSelector('a').check('watch').allowed())",
    "badfield": f"string({PODS}.fieldSelector('a b').check('list').allowed())",
    "badlabel": f"string({PODS}.labelSelector('a b').check('list').allowed())",
    "badreason": f"{PODS}.labelSelector('a b').check('list').reason() + '|' + {PODS}.labelSelector('a b').check('x').error()",
    "reason": f"'reason: ' + {PODS}.check('list').reason() + '.'",
    "error": f"'error: ' + {PODS}.check('list').error() + '.'",
    "errored": f"string({PODS}.check('list').errored())",
    "mine": f"string({ACCOUNT}.group('').resource('pods').namespace('{{ns}}').check('list').allowed())",
    "minereason": f"{ACCOUNT}.group('').resource('pods').namespace('{{ns}}').check('list').reason()",
    "other": f"string({ACCOUNT}.group('').resource('secrets').namespace('{{ns}}').check('list').allowed())",
    "otherreason": f"'no: ' + {ACCOUNT}.group('').resource('secrets').namespace('{{ns}}').check('list').reason() + '.'",
    "elsewhere": f"string({ACCOUNT}.group('').resource('pods').check('list').allowed())",
    "named": f"string({ACCOUNT}.group('').resource('configmaps').namespace('{{ns}}').name('one').check('get').allowed())",
    "unnamed": f"string({ACCOUNT}.group('').resource('configmaps').namespace('{{ns}}').check('get').allowed())",
    "sub": f"string({ACCOUNT}.group('').resource('pods').subresource('log').namespace('{{ns}}').check('get').allowed())",
    "minefield": (
        f"string({ACCOUNT}.group('').resource('pods').namespace('{{ns}}').fieldSelector('x=y').check('list').allowed())"
    ),
    "path": "string(authorizer.path('/healthz').check('get').allowed())",
    "minepath": f"string({ACCOUNT}.path('/metrics').check('get').allowed())",
    "minehealth": f"string({ACCOUNT}.path('/healthz').check('get').allowed())",
    "emptypath": "string(authorizer.path('').check('get').allowed())",
    "badaccount": "string(authorizer.serviceAccount('A B', 'x').path('/').check('get').allowed())",
    "request": "string(authorizer.requestResource.check('create').allowed())",
    "requestfield": "string(authorizer.requestResource.fieldSelector('metadata.name=x').check('list').allowed())",
}
#: What they may say; a warning tells which of these it is.
SAID = (
    "true",
    "false",
    "",
    "reason: .",
    "error: .",
    "|",
    "no: .",
    'RBAC: allowed by RoleBinding "r/{ns}" of Role "r" to ServiceAccount "reader/{ns}"',
)
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["get"]},
]
WRONG = {
    "group": "authorizer.group().resource('pods').check('get').allowed()",
    "number": "authorizer.group('').resource('pods').fieldSelector(1).check('get').allowed()",
    "order": "authorizer.group('').fieldSelector('a=b').resource('pods').check('get').allowed()",
    "result": "authorizer.group('').resource('pods').check('get')",
    "unknown": "authorizer.group('').resource('pods').selector('a').check('get').allowed()",
}

TOPICS: dict[str, list[Step]] = {
    "policyauthorizer": [
        post(core("serviceaccounts"), {"metadata": {"name": "reader"}}),
        post(named("rbac.authorization.k8s.io/v1", "roles"), {"metadata": {"name": "r"}, "rules": RULES}),
        post(
            named("rbac.authorization.k8s.io/v1", "rolebindings"),
            {
                "metadata": {"name": "r"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "{ns}"}],
            },
        ),
        *(
            validating(
                case,
                *({"expression": f"variables.v != {value!r}", "message": value or "empty"} for value in SAID),
                {"expression": "false", "messageExpression": "'says ' + variables.v"},
                variables=[{"name": "v", "expression": text}],
            )
            for case, text in ASKED.items()
        ),
        *(bound(VALIDATING_BINDINGS, case, validationActions=["Warn"]) for case in ASKED),
        *(validating(f"wrong-{case}", text) for case, text in WRONG.items()),
        post(CM, cm("settled"), pause=SETTLE),
        *(post(CM, labelled(case, case)) for case in ASKED),
    ],
}
