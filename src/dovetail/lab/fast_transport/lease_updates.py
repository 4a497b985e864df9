"""Renewals of leases, the short way: candidates renew theirs every few seconds, for as long as a simulation runs.

Only a PUT of the stored object with another spec, by the fields that leader election writes. Whatever is not exactly
so (an older version, other metadata, a dry run) takes the usual way, with the usual answers.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dovetail.kube.transport import Request
from dovetail.lab.apiserver.store import ObjectStore, StoredVersion

PATH = "/apis/coordination.k8s.io/v1/namespaces/"
TABLE = "coordination.k8s.io/leases"
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def renewed(store: ObjectStore, request: Request) -> StoredVersion | None:
    """The lease after the update; None for a request that must take the usual way."""
    parts = request.path.removeprefix(PATH).split("/")
    if len(parts) != 3 or parts[1] != "leases" or request.parameter("dryRun"):
        return None
    record = store.get(TABLE, f"{parts[0]}/{parts[2]}")
    if record is None:
        return None
    lease, body = record.obj, _decode(request.body)
    if "deletionTimestamp" in lease["metadata"] or body.keys() != lease.keys():
        return None
    spec = body.get("spec")
    if not isinstance(spec, dict) or not all(_is_plain(field, value) for field, value in spec.items()):
        return None
    if any(body[field] != lease[field] for field in lease if field != "spec"):
        return None
    if spec == lease["spec"]:
        return record
    return store.put(TABLE, record.key, {**lease, "metadata": {**lease["metadata"]}, "spec": spec})


def _is_plain(field: str, value: Any) -> bool:
    """Whether a field of a spec is stored as it is given."""
    match field:
        case "holderIdentity":
            return isinstance(value, str) and value != ""
        case "leaseDurationSeconds":
            return type(value) is int and value > 0
        case "leaseTransitions":
            return type(value) is int and value >= 0
        case "acquireTime" | "renewTime":
            return isinstance(value, str) and _MICRO_TIME.fullmatch(value) is not None
    return False
