"""Streams into pods, services and nodes: admission sees them as CONNECT, with their options as the object."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus import policies
from tests.conformance.corpus.pods import P, pod
from tests.conformance.corpus.webhook_reviews import rule
from tests.conformance.corpus.webhooks import HERE, MUTATING, SETTLE, VALIDATING, hook, register
from tests.conformance.steps import Step, call, calls, core, delete, get, post

Json = dict[str, Any]
CONNECTS = [
    get(core("pods", "p", "exec"), command="ls", container="c"),
    get(core("pods", "p", "exec"), query=(("command", "ls"), ("command", "-l"), ("stdin", "true"), ("tty", "true"))),
    post(core("pods", "p", "exec"), None, command="ls"),
    get(core("pods", "p", "attach"), stdout="true"),
    get(core("pods", "p", "portforward"), ports="80"),
    post(core("pods", "p", "portforward"), None),
    get(core("pods", "p", "proxy")),
    get(core("pods", "p", "proxy/a/b"), x="y"),
    call("DELETE", core("pods", "p", "proxy/a")),
    get(core("pods", "none", "exec"), command="ls"),
    get(core("pods", "p", "log")),
    get(core("services", "s", "proxy")),
    get(core("services", "s:80", "proxy/x")),
    get("/api/v1/nodes/{ns}-n/proxy/stats"),
]


def streams(script: str, name: str, *resources: str, **fields: Any) -> Json:
    rules = [rule(resource, operations="CONNECT") for resource in resources]
    return hook(script, name=f"{name}.example.com", rules=rules, **fields)


TOPICS: dict[str, list[Step]] = {
    "hookconnects": [
        post(P, pod("p", nodeName="{ns}-n")),
        post(core("services"), {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        register(VALIDATING, "hookconnects", streams("allow", "allow", "pods/*", "services/*")),
        *CONNECTS,
        calls(),
        delete(f"{VALIDATING}/hookconnects", pause=SETTLE),
        register(
            VALIDATING,
            "hookconnects2",
            streams("deny-message", "exec", "pods/exec"),
            streams("deny-message", "proxy", "pods/proxy", "services/proxy"),
            streams("deny-message", "other", "pods"),
        ),
        *CONNECTS,
        calls(),
        delete(f"{VALIDATING}/hookconnects2", pause=SETTLE),
        register(
            MUTATING,
            "hookconnects3",
            streams("allow", "attach", "pods/attach"),
            streams("deny-message", "forward", "pods/portforward"),
        ),
        *CONNECTS[3:6],
        calls(),
        delete(f"{MUTATING}/hookconnects3", pause=SETTLE),
    ],
    "policyconnects": [
        post(P, pod("p", nodeName="{ns}-n")),
        post(
            policies.VALIDATING,
            {
                "metadata": {"name": "{ns}-exec"},
                "spec": {
                    "matchConstraints": {
                        "namespaceSelector": HERE,
                        "resourceRules": [rule("pods/exec", operations="CONNECT")],
                    },
                    "validations": [
                        {"expression": "object.command[0] != 'rm'", "message": "rm is not for here"},
                        {"expression": "!has(object.tty) || !object.tty"},
                        {"expression": "request.operation == 'CONNECT' && request.kind.kind == 'PodExecOptions'"},
                        {"expression": "oldObject == null && request.subResource == 'exec'"},
                    ],
                },
            },
        ),
        policies.bound(policies.VALIDATING_BINDINGS, "exec"),
        get(core("pods", "p"), pause=policies.SETTLE),
        get(core("pods", "p", "exec"), command="ls"),
        get(core("pods", "p", "exec"), command="rm"),
        get(core("pods", "p", "exec"), command="ls", tty="true"),
        get(core("pods", "p", "attach"), tty="true"),
        delete(f"{policies.VALIDATING_BINDINGS}/{{ns}}-exec"),
        delete(f"{policies.VALIDATING}/{{ns}}-exec"),
    ],
}
