"""Which pods come back elsewhere once their machine goes: all but those that belong to it."""

from __future__ import annotations

from dovetail.model.pods import Pod


def owned_by(pod: Pod, *kinds: str) -> bool:
    return any(owner.kind in kinds for owner in pod.metadata.owner_references)


def returning(pod: Pod) -> bool:
    """A pod that will come back elsewhere once it is made to leave."""
    if pod.finished or owned_by(pod, "DaemonSet", "Node"):
        return False
    return not pod.terminating or owned_by(pod, "StatefulSet")
