"""DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready, unless it says otherwise."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Object

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def _covers(toleration: dict[str, Any], key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def admit(pod: Object) -> None:
    """Runs on updates as well: a default toleration that was removed comes back, at the end."""
    present = pod["spec"].get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in _TAINTS
        if not any(_covers(toleration, key) for toleration in present)
    ]
    if added:
        pod["spec"]["tolerations"] = [*present, *added]
