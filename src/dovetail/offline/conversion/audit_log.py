"""Kubernetes audit logs: JSON lines of `audit.k8s.io/v1` events, written at the level RequestResponse.

Read are finished, successful writes of recorded kinds: the object in the answer, deletions, and bindings of pods. A log
at the level Metadata has no objects, and gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.offline.conversion.entries import DeleteEntry, Entry, NotThisFormat, PutObject, parse_time
from dovetail.offline.recorder import KINDS
from dovetail.offline.recording import ObjectKey

Json = dict[str, Any]

_KINDS = {(resource.group, resource.plural): resource.kind for resource in KINDS}
_WRITES = frozenset({"create", "update", "patch"})


def entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    """What the log says, in its order."""
    pods: dict[ObjectKey, Json] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise NotThisFormat(message("line {number}: {problem}", number=number, problem=problem)) from problem
        if not isinstance(event, dict) or event.get("kind") != "Event" or "auditID" not in event:
            raise NotThisFormat(message("line {number}: no audit event", number=number))
        yield from _entry(event, pods, number)


def _entry(event: Json, pods: dict[ObjectKey, Json], number: int) -> Iterator[Entry]:
    reference = event.get("objectRef") or {}
    kind = _KINDS.get((reference.get("apiGroup") or "", reference.get("resource") or ""))
    code = (event.get("responseStatus") or {}).get("code") or 0
    if kind is None or event.get("stage") != "ResponseComplete" or not 200 <= code < 300:
        return
    time = parse_time(event.get("stageTimestamp"))
    group = reference.get("apiGroup") or ""
    verb, part = event.get("verb"), reference.get("subresource") or ""
    answer = event.get("responseObject")
    if verb == "create" and kind == "Pod" and part == "binding":
        key = ObjectKey("", "Pod", reference.get("namespace") or "", reference.get("name") or "")
        target = ((event.get("requestObject") or {}).get("target") or {}).get("name")
        if key in pods and target:
            pods[key] = {**pods[key], "spec": {**(pods[key].get("spec") or {}), "nodeName": target}}
            yield PutObject(time, pods[key])
    elif verb in _WRITES and part in ("", "status", "scale", "resize"):
        if isinstance(answer, dict) and answer.get("kind") == kind:
            if not isinstance(answer.get("metadata"), dict) or not answer["metadata"].get("name"):
                raise NotThisFormat(message("line {number}: responseObject has no name", number=number))
            if kind == "Pod":
                pods[ObjectKey("", "Pod", answer["metadata"].get("namespace") or "", answer["metadata"]["name"])] = (
                    answer
                )
            yield PutObject(time, answer)
    elif verb == "delete" and not part:
        key = ObjectKey(group, kind, reference.get("namespace") or "", reference.get("name") or "")
        pods.pop(key, None)
        yield DeleteEntry(time, key)
