"""RBAC for impersonated users (`kubectl --as`), on servers that have the default roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dovetail.lab.apiserver.registry import StoredObjects
from dovetail.model.validation.field_errors import quoted

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_ACCOUNT = "system:serviceaccount:"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of a request for a resource."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def groups_of(name: str, given: Iterable[str]) -> tuple[str, ...]:
    """The groups of a user, beside those that were named."""
    groups = list(given)
    if name.startswith(_ACCOUNT):
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    if name != "system:anonymous":
        groups.append("system:authenticated")
    return tuple(dict.fromkeys(groups))


def in_force(cluster: StoredObjects) -> bool:
    """Whether there are roles at all."""
    return cluster.get(GROUP, "clusterroles", None, "cluster-admin") is not None


def allowed(cluster: StoredObjects, user: str, groups: Iterable[str], ask: Ask) -> bool:
    """True where no roles are stored at all: an API server alone authorizes everything."""
    held = frozenset(groups)
    if MASTERS in held or not in_force(cluster):
        return True
    return any(_covers(rule, ask) for rule in rules(cluster, user, held, ask.namespace))


def reason(cluster: StoredObjects, user: str, groups: Iterable[str], ask: Ask) -> str:
    """By which binding something is allowed, in the authorizer's words; "" where roles do not allow it."""
    held = frozenset(groups)
    if MASTERS in held:
        return ""
    granted = _granted(cluster, user, held, ask.namespace)
    return next((f"RBAC: allowed by {why}" for rule, why in granted if _covers(rule, ask)), "")


def path_allowed(cluster: StoredObjects, user: str, groups: Iterable[str], verb: str, path: str) -> bool:
    """Whether a user may ask for a path that is no resource, such as /healthz."""
    held = frozenset(groups)
    return MASTERS in held or any(
        not {"*", verb}.isdisjoint(rule.get("verbs") or ())
        and any(_matches(pattern, path) for pattern in rule.get("nonResourceURLs") or ())
        for rule in rules(cluster, user, held, "")
    )


def _matches(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def rules(cluster: StoredObjects, user: str, groups: frozenset[str], namespace: str) -> Iterator[dict[str, Any]]:
    """Every rule that a user has, in the whole cluster and in one namespace."""
    for rule, _ in _granted(cluster, user, groups, namespace):
        yield rule


def _granted(
    cluster: StoredObjects, user: str, groups: frozenset[str], namespace: str
) -> Iterator[tuple[dict[str, Any], str]]:
    """The rules with the binding, role and subject that give them."""
    bindings = list(cluster.list(GROUP, "clusterrolebindings"))
    if namespace:
        bindings += cluster.list(GROUP, "rolebindings", namespace)
    for binding in bindings:
        subject = next((item for item in binding.get("subjects") or () if _is(item, user, groups)), None)
        if subject is None:
            continue
        reference = binding["roleRef"]
        local = reference["kind"] == "Role"
        place = binding["metadata"].get("namespace") if local else None
        role = cluster.get(GROUP, "roles" if local else "clusterroles", place, reference["name"])
        if role is not None:
            why = f"{_described(binding)} of {reference['kind']} {quoted(reference['name'])} to {_subject(subject)}"
            for rule in role.get("rules") or ():
                yield rule, why
    for name in cluster.granted_roles(user, namespace):
        role = cluster.get(GROUP, "clusterroles", None, name)
        for rule in (role or {}).get("rules") or ():
            yield rule, f"access policy with the rules of ClusterRole {quoted(name)}"


def _described(binding: dict[str, Any]) -> str:
    metadata = binding["metadata"]
    if metadata.get("namespace"):
        return f"RoleBinding {quoted(metadata['name'] + '/' + metadata['namespace'])}"
    return f"ClusterRoleBinding {quoted(metadata['name'])}"


def _subject(subject: dict[str, Any]) -> str:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"{name}/{subject.get('namespace', '')}"
    return f"{subject['kind']} {quoted(name)}"


def _is(subject: dict[str, Any], user: str, groups: frozenset[str]) -> bool:
    kind, name = subject["kind"], subject["name"]
    if kind == "ServiceAccount":
        return user == f"{_ACCOUNT}{subject.get('namespace', '')}:{name}"
    return user == name if kind == "User" else name in groups


def _covers(rule: dict[str, Any], ask: Ask) -> bool:
    names = rule.get("resourceNames") or ()
    subresource = ask.resource.partition("/")[2]
    resources = {"*", ask.resource, *([f"*/{subresource}"] if subresource else [])}
    return (
        not {"*", ask.verb}.isdisjoint(rule.get("verbs") or ())
        and not {"*", ask.group}.isdisjoint(rule.get("apiGroups") or ())
        and not resources.isdisjoint(rule.get("resources") or ())
        and (not names or ask.name in names)
    )
