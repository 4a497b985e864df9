"""JSON merge patch (RFC 7386): objects merge, null removes, everything else replaces.

What a patch goes through or brings was parsed into maps on the real server: its keys come out in order, and no null
is left in it, inside lists neither.
"""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch if isinstance(target, dict) else _new_value(patch)
    if not isinstance(target, dict):
        return _new_value(patch)
    out = dict(target)
    for name, item in patch.items():
        if item is None:
            out.pop(name, None)
        else:
            out[name] = merge(out.get(name), item)
    return out if out.keys() <= target.keys() else {name: out[name] for name in sorted(out)}


def _new_value(value: Any) -> Any:
    """A value that only the patch has."""
    if isinstance(value, dict):
        return {name: _new_value(value[name]) for name in sorted(value) if value[name] is not None}
    return [_new_value(item) for item in value] if isinstance(value, list) else value
