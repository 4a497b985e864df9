"""Admission webhooks: what their answers do, in which order they are called, what they are sent, whom they concern."""

from __future__ import annotations

from typing import Any

from tests.conformance.corpus.basics import CM, cm
from tests.conformance.scripted_webhooks import SCRIPTS
from tests.conformance.steps import Step, calls, cluster, core, delete, get, patch, post, put

Json = dict[str, Any]
MUTATING = cluster("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations")
VALIDATING = cluster("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations")
#: How long a real server takes to act on a new configuration.
SETTLE = 1.5
HERE = {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}
CONFIGMAPS = {
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
}


def hook(script: str, case: str = "", **fields: Any) -> Json:
    """A webhook with a script; it concerns objects labelled with the case, or all in the topic's namespace."""
    made: Json = {
        "name": f"{case or script}.example.com",
        "clientConfig": {"url": f"{{hooks}}/{script}", "caBundle": "{bundle}"},
        "rules": [CONFIGMAPS],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": HERE,
        **fields,
    }
    if case:
        made["objectSelector"] = {"matchLabels": {"case": case}}
    return made


def configuration(name: str, *hooks: Json) -> Json:
    return {"metadata": {"name": name}, "webhooks": list(hooks)}


def register(path: str, name: str, *hooks: Json, pause: float = SETTLE) -> Step:
    return post(path, configuration(name, *hooks), pause=pause)


def labelled(name: str, case: str, **metadata: Any) -> Json:
    return cm(name, {"k": "v"}, labels={"case": case}, **metadata)


def each(scripts: list[str], prefix: str = "") -> list[Step]:
    return [post(CM, labelled(f"{prefix}{script}", f"{prefix}{script}")) for script in scripts]


FAILING = [
    *("wrong-uid", "no-uid", "no-response", "null-response", "wrong-kind", "wrong-version", "unknown-version"),
    *("no-kind", "no-version", "status-body", "status-500", "garbage", "garbage-json", "number", "list", "empty"),
    *("truncated", "http-400", "http-401", "http-403", "http-404", "http-409", "http-418", "http-422", "http-500"),
    *("http-500-json", "http-503", "http-504", "http-204", "patch-not-base64", "patch-without-type"),
    *("type-without-patch", "merge-patch", "empty-type"),
]
PATCHES = [
    *(
        "label-a",
        "remove-missing",
        "replace-missing",
        "add-deep",
        "test-fails",
        "bad-operation",
        "no-path",
        "bad-index",
    ),
    *("patch-number", "patch-object", "patch-text", "patch-empty", "patch-null", "denied-patch", "wrong-type"),
    *("wrong-struct", "unknown-field", "bad-label", "rename", "move", "set-uid", "set-generation", "drop-managed"),
    *("set-kind", "finalize", "owners"),
]
DENIALS = ["deny", "deny-message", "deny-reason", "deny-code", "deny-low-code", "deny-all", "deny-warn"]
WARNINGS = ["warn", "warn-long", "warn-many", "audit", "allow"]
assert {*FAILING, *PATCHES, *DENIALS, *WARNINGS} <= {*SCRIPTS}

LENIENT = ["wrong-uid", "no-response", "garbage", "http-500", "http-404", "empty", "patch-text", "merge-patch"]
STRICT_ANYWAY = ["remove-missing", "wrong-type", "deny-message", "bad-label"]


def lenient(*scripts: str) -> list[Json]:
    return [hook(script, f"lenient-{script}", failurePolicy="Ignore") for script in scripts]


TOPICS: dict[str, list[Step]] = {
    "mutatinganswers": [
        register(
            MUTATING,
            "mutatinganswers",
            *(hook(script, script) for script in [*PATCHES, *DENIALS, *WARNINGS, *FAILING]),
            *lenient(*LENIENT, *STRICT_ANYWAY),
        ),
        *each([*PATCHES, *DENIALS, *WARNINGS, *FAILING]),
        *each([*LENIENT, *STRICT_ANYWAY], "lenient-"),
        get(CM),
        delete(f"{MUTATING}/mutatinganswers", pause=SETTLE),
    ],
    "validatinganswers": [
        register(
            VALIDATING,
            "validatinganswers",
            *(hook(script, script) for script in [*DENIALS, *WARNINGS, *FAILING, "label-a", "patch-empty"]),
            *lenient(*LENIENT, "deny-message", "label-a"),
        ),
        *each([*DENIALS, *WARNINGS, *FAILING, "label-a", "patch-empty"]),
        *each([*LENIENT, "deny-message", "label-a"], "lenient-"),
        get(CM),
        delete(f"{VALIDATING}/validatinganswers", pause=SETTLE),
    ],
    "hookorder": [
        register(MUTATING, "hookorder-b", hook("order-b", "order"), pause=0),
        register(
            MUTATING,
            "hookorder-a",
            hook("order-c", "order"),
            hook("order-a", "order", name="second.example.com"),
            pause=0,
        ),
        register(
            MUTATING,
            "hookorder-c",
            hook("order-a", "again", reinvocationPolicy="IfNeeded", name="a.again.example.com"),
            hook("order-b", "again", reinvocationPolicy="IfNeeded", name="b.again.example.com"),
            hook("order-c", "again", name="c.again.example.com"),
            hook("once-a", "once", reinvocationPolicy="IfNeeded", name="a.once.example.com"),
            hook("once-b", "once", reinvocationPolicy="IfNeeded", name="b.once.example.com"),
            hook("order-a", "never", name="a.never.example.com"),
            hook("order-b", "never", name="b.never.example.com"),
            hook("order-a", "last", name="a.last.example.com"),
            hook("order-b", "last", reinvocationPolicy="IfNeeded", name="b.last.example.com"),
            hook("order-a", "first", reinvocationPolicy="IfNeeded", name="a.first.example.com"),
            hook("label-b", "first", name="b.first.example.com"),
            hook("order-a", "deny", name="a.deny.example.com"),
            hook("deny-message", "deny", name="b.deny.example.com"),
            hook("order-c", "deny", name="c.deny.example.com"),
            pause=0,
        ),
        register(
            VALIDATING,
            "hookorder-d",
            hook("deny-message", "two", name="a.two.example.com"),
            hook("allow", "two", name="b.two.example.com"),
        ),
        post(CM, labelled("order", "order")),
        post(CM, labelled("again", "again")),
        post(CM, labelled("once", "once")),
        post(CM, labelled("never", "never")),
        post(CM, labelled("last", "last")),
        post(CM, labelled("first", "first")),
        post(CM, labelled("deny", "deny")),
        post(CM, labelled("two", "two")),
        patch(core("configmaps", "again"), {"data": {"x": "y"}}),
        patch(core("configmaps", "once"), {"data": {"x": "y"}}),
        put(core("configmaps", "order"), labelled("order", "order")),
        *(delete(f"{MUTATING}/hookorder-{letter}") for letter in "abc"),
        delete(f"{VALIDATING}/hookorder-d", pause=SETTLE),
    ],
    "hookdryrun": [
        register(
            MUTATING, "hookdryrun", hook("patch-always", "none"), hook("label-b", "some", sideEffects="NoneOnDryRun")
        ),
        register(
            VALIDATING, "hookdryrun", hook("allow", "none"), hook("deny-message", "refused", sideEffects="NoneOnDryRun")
        ),
        post(CM, labelled("none", "none"), dryRun="All"),
        post(CM, labelled("some", "some"), dryRun="All"),
        post(CM, labelled("refused", "refused"), dryRun="All"),
        calls(),
        get(CM),
        post(CM, labelled("none", "none")),
        patch(core("configmaps", "none"), {"data": {"x": "y"}}, dryRun="All"),
        delete(core("configmaps", "none"), dryRun="All"),
        calls(),
        delete(f"{MUTATING}/hookdryrun"),
        delete(f"{VALIDATING}/hookdryrun", pause=SETTLE),
    ],
}
