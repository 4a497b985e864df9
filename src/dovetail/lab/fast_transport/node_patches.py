"""Merge patches of nodes and claims, the short way: what our own components write about a thousand nodes.

A patch is merged and stored as it is: the components are ours, and what they write was checked when they were made.
Whatever is not exactly so (another version than asked for, an object being deleted, a dry run) takes the usual way.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver.patches.merge import merge
from dovetail.lab.apiserver.store import ObjectStore, StoredVersion

#: The path, the table of the store, and the fields beside metadata that may be patched.
_PATHS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("/api/v1/nodes/", "/nodes", frozenset({"spec"})),
    ("/apis/karpenter.sh/v1/nodeclaims/", "karpenter.sh/nodeclaims", frozenset()),
)
_STATUS = frozenset({"status"})
_METADATA = {"labels", "annotations", "finalizers", "ownerReferences"}
_MERGE = "application/merge-patch+json"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def merges(request: Request) -> bool:
    """Whether a request is a merge patch that is meant."""
    return request.headers.get("content-type") == _MERGE and not request.parameter("dryRun")


def merged(store: ObjectStore, request: Request) -> StoredVersion | None:
    """The object after the patch; None for a request that must take the usual way."""
    if not merges(request):
        return None
    for path, table, parts in _PATHS:
        if request.path.startswith(path):
            name, _, subresource = request.path.removeprefix(path).partition("/")
            record = store.get(table, name)
            if record is None or subresource not in ("", "status"):
                return None
            return _merged(store, table, record, _decode(request.body), _STATUS if subresource else parts)
    return None


def _merged(
    store: ObjectStore, table: str, record: StoredVersion, body: dict[str, Any], parts: frozenset[str]
) -> StoredVersion | None:
    metadata = dict(body.get("metadata") or {})
    version = metadata.pop("resourceVersion", None)
    if "deletionTimestamp" in record.obj["metadata"] or version not in (None, str(record.rv)):
        return None
    if body.keys() - {"metadata", *parts} or metadata.keys() - (_METADATA if parts is not _STATUS else set()):
        return None
    changed = merge(record.obj, {**body, "metadata": metadata})
    return record if changed == record.obj else store.put(table, record.key, changed)
