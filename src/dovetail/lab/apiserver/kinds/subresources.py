"""Subresources of built-in kinds that do more than show the object: scale, eviction, binding, token, log."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.kinds import scale, tokens
from dovetail.lab.apiserver.kinds.pod import binding, eviction, logs

_SCALED = ("deployments", "replicasets", "statefulsets")
_SUBRESOURCES: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("", "pods"): {
        "eviction": {"act": eviction.evict},
        "binding": {"act": binding.bind, "tracked": True},
        "log": {"act": logs.read},
    },
    ("", "serviceaccounts"): {"token": {"act": tokens.issue, "complete": tokens.complete, "tracked": True}},
    ("", "replicationcontrollers"): {"scale": {"view": scale.view, "merge": scale.merge}},
    **{("apps", plural): {"scale": {"view": scale.view, "merge": scale.merge}} for plural in _SCALED},
}


def subresources_of(group: str, plural: str) -> dict[str, dict[str, Any]]:
    """The handlers of a resource's subresources, as arguments of `Subresource`."""
    return _SUBRESOURCES.get((group, plural), {})
