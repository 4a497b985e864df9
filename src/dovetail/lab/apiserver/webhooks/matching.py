"""Which requests a webhook or a policy concerns: rules, scope and selectors.

Nothing is asked about webhook configurations and admission policies: a broken one could not be repaired otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.registry import Registry, ResourceType
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.store import ObjectStore
from dovetail.lab.apiserver.webhooks.attributes import Attributes
from dovetail.lab.apiserver.webhooks.configurations import GROUP
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]
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


def is_exempt(resource: ResourceType) -> bool:
    return resource.group == GROUP and resource.plural in _EXEMPT


def matched_version(
    rules: Sequence[Json], match_policy: str, attributes: Attributes, registry: Registry
) -> ResourceType | None:
    """The resource in the version that a rule names; None if no rule concerns the request.

    With match policy Equivalent a rule for another served version of the same resource counts, and the object is
    shown in that version.
    """
    own = attributes.resource
    if any(_rule_matches(rule, attributes, own) for rule in rules):
        return own
    if match_policy != "Equivalent":
        return None
    others = registry.equivalents(own)
    for rule in rules:
        for other in others:
            if other is not own and _rule_matches(rule, attributes, other):
                return other
    return None


def _rule_matches(rule: Json, attributes: Attributes, resource: ResourceType) -> bool:
    operations, groups, versions = (rule.get(key) or () for key in ("operations", "apiGroups", "apiVersions"))
    names = rule.get("resourceNames")
    return (
        ("*" in operations or attributes.operation in operations)
        and ("*" in groups or resource.group in groups)
        and ("*" in versions or resource.version in versions)
        and _scope_matches(rule.get("scope") or "*", attributes)
        and any(
            _resource_matches(name, resource.plural, attributes.subresource) for name in rule.get("resources") or ()
        )
        and (not names or attributes.name in names)
    )


def rule_names(rule: Json, group: str, plural: str, subresource: str) -> bool:
    """Whether a rule names a resource, whatever the operation and the version."""
    groups = rule.get("apiGroups") or ()
    return ("*" in groups or group in groups) and any(
        _resource_matches(name, plural, subresource) for name in rule.get("resources") or ()
    )


def _scope_matches(scope: str, attributes: Attributes) -> bool:
    in_cluster = attributes.is_namespace or not attributes.namespace
    return scope == "*" or (scope == "Cluster") == in_cluster


def _resource_matches(rule: str, plural: str, subresource: str) -> bool:
    ruled_resource, _, wanted_sub = rule.partition("/")
    return ruled_resource in ("*", plural) and wanted_sub in ("*", subresource)


def object_matches(selector: LabelSelector, objects: Iterable[Json | None]) -> bool:
    """Whether the new or the old object has the labels."""
    return selector.empty or any(
        selector.matches(obj.get("metadata", {}).get("labels") or {}) for obj in objects if obj is not None
    )


def namespace_matches(selector: LabelSelector, attributes: Attributes, store: ObjectStore) -> bool | StatusError:
    """Whether the namespace has the labels; an error where there is no such namespace.

    Objects of the cluster are in no namespace and match; a Namespace that is written is judged by its new labels.
    """
    if not attributes.namespace and not attributes.is_namespace:
        return True
    if selector.empty:
        return True
    if attributes.is_namespace and not attributes.subresource and attributes.operation in ("CREATE", "UPDATE"):
        return selector.matches((attributes.object or {})["metadata"].get("labels") or {})
    home = store.get("/namespaces", attributes.namespace)
    if home is None:
        return status_errors.not_found("", "namespaces", attributes.namespace)
    return selector.matches(home.obj["metadata"].get("labels") or {})


def matched(
    rules: Sequence[Json],
    match_policy: str,
    namespaces: LabelSelector,
    objects: LabelSelector,
    attributes: Attributes,
    registry: Registry,
    store: ObjectStore,
) -> ResourceType | None:
    """The version in which a request is shown to a webhook or policy that it concerns. Raises StatusError."""
    within = namespace_matches(namespaces, attributes, store)
    if within is False or not object_matches(objects, (attributes.object, attributes.old_object)):
        return None
    seen = matched_version(rules, match_policy, attributes, registry)
    if seen is not None and isinstance(within, StatusError):
        raise within
    return seen
