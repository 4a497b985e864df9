"""The registered admission policies with their bindings, in the order of their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from dovetail.lab.apiserver.registry import Registry, ResourceType
from dovetail.lab.apiserver.store import ObjectStore
from dovetail.lab.apiserver.webhooks.configurations import GROUP
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]
Phase = Literal["mutating", "validating"]
POLICIES: Mapping[Phase, str] = {
    "mutating": f"{GROUP}/mutatingadmissionpolicies",
    "validating": f"{GROUP}/validatingadmissionpolicies",
}
BINDINGS: Mapping[Phase, str] = {phase: name.replace("policies", "policybindings") for phase, name in POLICIES.items()}


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """matchConstraints of a policy, or matchResources of a binding; no rules means everything."""

    rules: Sequence[Json]
    excluded: Sequence[Json]
    match_policy: str
    namespace_selector: LabelSelector
    object_selector: LabelSelector


class PolicyBinding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a policy is in force, with which parameters, and what a failure does."""

    name: str
    match: Match
    param_ref: Json | None
    actions: Sequence[str]


class AdmissionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in force."""

    name: str
    spec: Json
    match: Match
    failure_policy: str
    param_kind: Json | None
    bindings: Sequence[PolicyBinding]


class PolicySource:
    """The policies of a store; they are read again when one of them or of their bindings changed."""

    def __init__(self, store: ObjectStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._read: dict[Phase, tuple[object, list[AdmissionPolicy]]] = {}

    def any(self, phase: Phase) -> bool:
        """Whether anything is in force: a policy without a binding is not."""
        return bool(self._store.table(BINDINGS[phase]).records) and bool(self._store.table(POLICIES[phase]).records)

    def policies(self, phase: Phase) -> Iterator[AdmissionPolicy]:
        policies, bindings = (self._store.table(tables[phase]).records for tables in (POLICIES, BINDINGS))
        state = tuple((name, record.rv) for records in (policies, bindings) for name, record in records.items())
        held = self._read.get(phase)
        if held is None or held[0] != state:
            made = [
                _policy(policies[name].obj, [r.obj for _, r in sorted(bindings.items())]) for name in sorted(policies)
            ]
            held = self._read[phase] = (state, [policy for policy in made if policy.bindings])
        yield from held[1]

    def param_resource(self, kind: Json) -> ResourceType | None:
        """The resource that a policy's paramKind names."""
        group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
        return self._registry.by_kind(group, version, str(kind.get("kind") or ""))


def _match(match: Json | None) -> Match:
    match = match or {}
    return Match(
        rules=match.get("resourceRules") or (),
        excluded=match.get("excludeResourceRules") or (),
        match_policy=match.get("matchPolicy") or "Equivalent",
        namespace_selector=msgspec.convert(match.get("namespaceSelector") or {}, LabelSelector),
        object_selector=msgspec.convert(match.get("objectSelector") or {}, LabelSelector),
    )


def _policy(obj: Json, bindings: Sequence[Json]) -> AdmissionPolicy:
    spec, name = obj["spec"], obj["metadata"]["name"]
    return AdmissionPolicy(
        name=name,
        spec=spec,
        match=_match(spec.get("matchConstraints")),
        failure_policy=spec.get("failurePolicy") or "Fail",
        param_kind=spec.get("paramKind"),
        bindings=[
            PolicyBinding(
                name=item["metadata"]["name"],
                match=_match(item["spec"].get("matchResources")),
                param_ref=item["spec"].get("paramRef"),
                actions=item["spec"].get("validationActions") or (),
            )
            for item in bindings
            if item["spec"].get("policyName") == name
        ],
    )
