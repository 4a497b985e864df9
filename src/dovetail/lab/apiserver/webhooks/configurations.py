"""The registered webhooks, in the order in which they are called: by their configurations' names, then as listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from dovetail.lab.apiserver.store import ObjectStore, StoredVersion
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
Phase = Literal["mutating", "validating"]
PHASES: tuple[Phase, ...] = ("mutating", "validating")
TABLES: Mapping[Phase, str] = {
    "mutating": f"{GROUP}/mutatingwebhookconfigurations",
    "validating": f"{GROUP}/validatingwebhookconfigurations",
}


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration; `uid` tells webhooks of one name apart."""

    uid: str
    name: str
    configuration: str
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


class Configurations:
    """The webhooks of a store; a configuration is read again when it changed."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._read: dict[tuple[Phase, str], tuple[int, list[Webhook]]] = {}

    def any(self, phase: Phase) -> bool:
        """Most servers have none, and their writes should cost nothing."""
        return bool(self._store.table(TABLES[phase]).records)

    def webhooks(self, phase: Phase) -> Iterator[Webhook]:
        records = self._store.table(TABLES[phase]).records
        for name in sorted(records):
            record = records[name]
            held = self._read.get((phase, name))
            if held is None or held[0] != record.rv:
                held = self._read[phase, name] = (record.rv, _webhooks(name, record))
            yield from held[1]


def _webhooks(name: str, record: StoredVersion) -> list[Webhook]:
    seen: dict[str, int] = {}
    webhooks = []
    for item in record.obj.get("webhooks") or ():
        number = seen[item["name"]] = seen.get(item["name"], -1) + 1
        webhooks.append(
            Webhook(
                uid=f"{name}/{item['name']}/{number}",
                name=item["name"],
                configuration=name,
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
        )
    return webhooks
