"""Which webhooks a request concerns: rules, scope, selectors and match conditions.

Webhooks are called in the order of their configurations' names, and within one as listed. No webhook is asked about
webhook configurations and admission policies: a broken one could not be repaired otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from dovetail.lab.apiserver.crd import cel
from dovetail.lab.apiserver.registry import Registry, ResourceType
from dovetail.lab.apiserver.store import Store
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]
Phase = Literal["mutating", "validating"]
GROUP = "admissionregistration.k8s.io"
TABLES: Mapping[Phase, str] = {
    "mutating": f"{GROUP}/mutatingwebhookconfigurations",
    "validating": f"{GROUP}/validatingwebhookconfigurations",
}
_EXEMPT = frozenset(
    {
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    }
)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration; `uid` tells webhooks of one name apart."""

    uid: str
    name: str
    rules: list[Json]
    client: Json
    failure_policy: str
    match_policy: str
    side_effects: str
    timeout_s: float
    reinvocation: str
    versions: list[str]
    namespace_selector: LabelSelector
    object_selector: LabelSelector
    conditions: list[Json]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is about, as far as matching needs it."""

    resource: ResourceType
    subresource: str
    operation: str
    namespace: str
    object: Json | None
    old_object: Json | None


class ConditionFailed(Exception):
    """A match condition that could not be evaluated; whether that matters is the failure policy's to say."""


def any_configured(store: Store) -> bool:
    """Whether any webhook is registered at all: most servers have none, and their writes should cost nothing."""
    return any(store.table(table).records for table in TABLES.values())


def is_exempt(resource: ResourceType) -> bool:
    return resource.group == GROUP and resource.plural in _EXEMPT


def webhooks(store: Store, phase: Phase) -> Iterator[Webhook]:
    records = store.table(TABLES[phase]).records
    for name in sorted(records):
        seen: dict[str, int] = {}
        for item in records[name].obj.get("webhooks") or ():
            number = seen[item["name"]] = seen.get(item["name"], -1) + 1
            yield Webhook(
                uid=f"{name}/{item['name']}/{number}",
                name=item["name"],
                rules=item.get("rules") or [],
                client=item.get("clientConfig") or {},
                failure_policy=item.get("failurePolicy") or "Fail",
                match_policy=item.get("matchPolicy") or "Equivalent",
                side_effects=item.get("sideEffects") or "Unknown",
                timeout_s=float(item.get("timeoutSeconds") or 10),
                reinvocation=item.get("reinvocationPolicy") or "Never",
                versions=item.get("admissionReviewVersions") or [],
                namespace_selector=msgspec.convert(item.get("namespaceSelector") or {}, LabelSelector),
                object_selector=msgspec.convert(item.get("objectSelector") or {}, LabelSelector),
                conditions=item.get("matchConditions") or [],
            )


def matched_version(webhook: Webhook, asked: Asked, registry: Registry) -> ResourceType | None:
    """The resource in the version that a rule names; None if no rule concerns the request.

    With match policy Equivalent a rule for another served version of the same resource counts, and the webhook gets
    the object in that version.
    """
    resource = asked.resource
    for rule in webhook.rules:
        if _rule_matches(rule, asked, resource):
            return resource
    if webhook.match_policy != "Equivalent":
        return None
    for version in registry.versions(resource.group):
        other = registry.lookup(resource.group, version, resource.plural)
        if other is not None and any(_rule_matches(rule, asked, other) for rule in webhook.rules):
            return other
    return None


def _rule_matches(rule: Json, asked: Asked, resource: ResourceType) -> bool:
    operations, groups, versions = (rule.get(key) or [] for key in ("operations", "apiGroups", "apiVersions"))
    scope = rule.get("scope") or "*"
    return (
        ("*" in operations or asked.operation in operations)
        and ("*" in groups or resource.group in groups)
        and ("*" in versions or resource.version in versions)
        and (scope == "*" or (scope == "Namespaced") == resource.namespaced)
        and any(_resource_matches(name, resource.plural, asked.subresource) for name in rule.get("resources") or ())
    )


def _resource_matches(rule: str, plural: str, subresource: str) -> bool:
    wanted, slash, wanted_sub = rule.partition("/")
    if not slash:
        return not subresource and wanted in ("*", plural)
    return wanted in ("*", plural) and (wanted_sub == "*" or (bool(subresource) and wanted_sub == subresource))


def selectors_match(webhook: Webhook, asked: Asked, store: Store) -> bool:
    objects = [obj for obj in (asked.object, asked.old_object) if obj is not None]
    if not webhook.object_selector.empty and not any(
        webhook.object_selector.matches(obj["metadata"].get("labels") or {}) for obj in objects
    ):
        return False
    if webhook.namespace_selector.empty:
        return True
    if asked.resource.plural == "namespaces" and not asked.resource.group:
        labels = objects[0]["metadata"].get("labels") or {} if objects else {}
        return webhook.namespace_selector.matches(labels)
    if not asked.resource.namespaced:
        return True
    home = store.get("/namespaces", asked.namespace)
    return home is not None and webhook.namespace_selector.matches(home.obj["metadata"].get("labels") or {})


def conditions_hold(webhook: Webhook, asked: Asked, request: Json) -> bool:
    """Whether all match conditions are true. Raises ConditionFailed if one cannot tell and none is false."""
    if not webhook.conditions:
        return True
    env = {"object": asked.object, "oldObject": asked.old_object, "request": request}
    problem: str | None = None
    for condition in webhook.conditions:
        expression = condition.get("expression") or ""
        try:
            if cel.compile_expression(expression)(env) is not True:
                return False
        except cel.CelSyntaxError as error:
            problem = problem or f"{condition.get('name')}: {error.located(expression)}"
        except cel.CelError as error:
            problem = problem or f"expression '{expression}' resulted in error: {error}"
    if problem is not None:
        raise ConditionFailed(problem)
    return True
