"""Which policies and bindings concern a request, and the parameters that a binding gives a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.lab.apiserver.policies.source import AdmissionPolicy, Match, PolicyBinding
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.lab.apiserver.status_errors import StatusError
from dovetail.lab.apiserver.webhooks.attributes import Attributes
from dovetail.lab.apiserver.webhooks.matching import matched, matched_version
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]


class ConfigurationError(Exception):
    """A policy or binding that cannot be used as it stands; whether that matters is the failure policy's to say."""


def matched_resource(call: RequestCall, match: Match, attributes: Attributes) -> ResourceType | None:
    """The version in which a policy sees the request; None if it does not concern it. Raises ConfigurationError."""
    server = call.server
    everything = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]
    try:
        seen = matched(
            match.rules or everything,
            match.match_policy,
            match.namespace_selector,
            match.object_selector,
            attributes,
            server.registry,
            server.store,
        )
    except StatusError as error:
        raise ConfigurationError(error.message) from error
    if seen is None or not match.excluded:
        return seen
    excluded = matched_version(match.excluded, match.match_policy, attributes, server.registry)
    return None if excluded is not None else seen


def param_resource(call: RequestCall, kind: Json) -> ResourceType:
    """The resource that a policy's paramKind names. Raises ConfigurationError."""
    resource = call.server.policies.param_resource(kind)
    if resource is None:
        group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
        shown = f"{group}/{version}, Kind={kind.get('kind')}"
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{shown}'")
    return resource


def params(call: RequestCall, policy: AdmissionPolicy, binding: PolicyBinding, namespace: str) -> Sequence[Json | None]:
    """The parameters for a policy, which runs once for each. Raises ConfigurationError."""
    kind, reference = policy.param_kind, binding.param_ref
    if kind is None or reference is None:
        return [None]
    resource = param_resource(call, kind)
    given = reference.get("namespace") or ""
    if given and not resource.namespaced:
        raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    place: str | None = None
    if resource.namespaced:
        place = given or namespace
        if not place:
            text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise ConfigurationError(text)
    chosen = _chosen(call, resource, place, reference)
    if not chosen and reference.get("parameterNotFoundAction") == "Deny":
        raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
    head = {"kind": resource.kind, "apiVersion": resource.api_version}
    return [{**item, **head} for item in chosen]


def _chosen(call: RequestCall, resource: ResourceType, place: str | None, reference: Json) -> list[Json]:
    cluster = call.server.cluster
    group, plural = resource.storage[0], resource.storage_plural or resource.plural
    if reference.get("name"):
        item = cluster.get(group, plural, place, reference["name"])
        return [] if item is None else [item]
    selector = msgspec.convert(reference.get("selector") or {}, LabelSelector)
    return [
        item for item in cluster.list(group, plural, place) if selector.matches(item["metadata"].get("labels") or {})
    ]
