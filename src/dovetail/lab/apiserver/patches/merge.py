"""JSON merge patch (RFC 7386): objects merge, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for name, item in patch.items():
        if item is None:
            out.pop(name, None)
        else:
            out[name] = merge(out.get(name), item)
    return out
