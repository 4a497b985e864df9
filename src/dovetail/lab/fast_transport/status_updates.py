"""Status updates of workloads and PodDisruptionBudgets, the short way: the lab's controllers write them all day long.

Only a PUT of the stored version of an object by one of the lab's own controllers, with a status that is stored as it is
given. Whatever is not exactly so (an older version, an object being deleted, a field that the server would drop) takes
the usual way, with the usual answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.kube.resources import DEPLOYMENTS, PDBS, REPLICASETS, Resource
from dovetail.lab.apiserver.store import ObjectStore, StoredVersion

#: The resources, and the numbers of their status that are stored where they are 0 as well.
KEPT_ZEROS: Mapping[Resource, frozenset[str]] = {
    DEPLOYMENTS: frozenset({"terminatingReplicas"}),
    REPLICASETS: frozenset({"replicas", "terminatingReplicas"}),
    PDBS: frozenset({"disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"}),
}


def updated(store: ObjectStore, resource: Resource, body: Mapping[str, Any]) -> StoredVersion | None:
    """The object with the status of `body`; None where the update must take the usual way."""
    kept_zeros, table = KEPT_ZEROS.get(resource), f"{resource.group}/{resource.plural}"
    if kept_zeros is None:
        return None
    metadata, status = body["metadata"], body.get("status")
    record = store.get(table, f"{metadata.get('namespace', '')}/{metadata['name']}")
    if record is None or not isinstance(status, dict):
        return None
    if metadata.get("resourceVersion") != str(record.rv) or "deletionTimestamp" in metadata:
        return None
    if not all(value or (value == 0 and field in kept_zeros) for field, value in status.items()):
        return None
    old = record.obj
    if status == old.get("status"):
        return record
    return store.put(table, record.key, {**old, "metadata": {**old["metadata"]}, "status": status})
