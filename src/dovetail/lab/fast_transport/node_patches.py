"""Patches of nodes and claims, the short way: what our own components write about a thousand nodes.

A merge patch, and the conditions that a kubelet posts, are merged and stored as they are: the components are ours, and
what they write was checked when they were made. Whatever is not exactly so takes the usual way: another version than
asked for, a finalizer of an object that is being deleted, a dry run. Caches get the fields that are new
(`lab.pushed_changes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver.patches.merge import merge
from dovetail.lab.apiserver.store import ObjectStore, StoredVersion
from dovetail.lab.pushed_changes import Parts

Json = dict[str, Any]

#: The path, the table of the store, and the fields beside metadata that may be patched.
_PATHS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("/api/v1/nodes/", "/nodes", frozenset({"spec"})),
    ("/apis/karpenter.sh/v1/nodeclaims/", "karpenter.sh/nodeclaims", frozenset()),
)
_STATUS = frozenset({"status"})
_METADATA = {"labels", "annotations", "finalizers", "ownerReferences"}
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
#: Stores an object under a key of a table, and tells caches what is new about it.
Put = Callable[[str, str, Json, Parts | None], StoredVersion]


def merges(request: Request) -> bool:
    """Whether a request is a merge patch that is meant."""
    return request.headers.get("content-type") == _MERGE and not request.parameter("dryRun")


def merged(store: ObjectStore, request: Request, put: Put) -> StoredVersion | None:
    """The object after the patch; None for a request that must take the usual way."""
    for path, table, parts in _PATHS:
        if request.path.startswith(path):
            name, _, subresource = request.path.removeprefix(path).partition("/")
            record = store.get(table, name)
            if record is None or subresource not in ("", "status"):
                return None
            if merges(request):
                changed = _merged(record, _decode(request.body), _STATUS if subresource else parts)
            elif table == "/nodes" and subresource and _is_strategic(request):
                changed = _reported(record, _decode(request.body))
            else:
                return None
            if changed is None or changed == record.obj:
                return record if changed is not None else None
            return put(table, record.key, changed, _difference(record.obj, changed))
    return None


def _merged(record: StoredVersion, body: Json, parts: frozenset[str]) -> Json | None:
    metadata = dict(body.get("metadata") or {})
    version = metadata.pop("resourceVersion", None)
    if version not in (None, str(record.rv)):
        return None
    if "finalizers" in metadata and "deletionTimestamp" in record.obj["metadata"]:
        return None
    if body.keys() - {"metadata", *parts} or metadata.keys() - (_METADATA if parts is not _STATUS else set()):
        return None
    changed: Json = merge(record.obj, {**body, "metadata": metadata})
    return changed


def _is_strategic(request: Request) -> bool:
    return request.headers.get("content-type") == _STRATEGIC and not request.parameter("dryRun")


def _reported(record: StoredVersion, body: Json) -> Json | None:
    """A node with the conditions that its kubelet posts; None unless it has conditions of all these types already."""
    status = record.obj.get("status") or {}
    given = (body.get("status") or {}).get("conditions")
    if body.keys() != {"status"} or body["status"].keys() != {"conditions"} or not isinstance(given, list):
        return None
    fresh = {condition.get("type"): condition for condition in given}
    if not all(condition.keys() == _CONDITION and all(condition.values()) for condition in given):
        return None
    stored_types = {condition["type"] for condition in status.get("conditions") or ()}
    if len(fresh) < len(given) or not fresh.keys() <= stored_types:
        return None
    conditions = [{**condition, **fresh.get(condition["type"], {})} for condition in status["conditions"]]
    return {**record.obj, "metadata": {**record.obj["metadata"]}, "status": {**status, "conditions": conditions}}


def _difference(old: Json, new: Json) -> Parts | None:
    """The fields of metadata, spec and status that are new; None where one went, or anything else is new."""
    parts: Parts = {}
    for part in old.keys() | new.keys():
        before, after = old.get(part), new.get(part)
        if before is after or before == after:
            continue
        if part not in _PARTS or not isinstance(before, dict) or not isinstance(after, dict):
            return None
        if before.keys() - after.keys():
            return None
        parts[part] = {name: value for name, value in after.items() if name not in before or before[name] is not value}
    return parts


_PARTS = frozenset({"metadata", "spec", "status"})
_CONDITION = {"type", "status", "lastHeartbeatTime", "lastTransitionTime", "reason", "message"}
