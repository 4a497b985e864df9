"""Owner references in a request: named twice, they are kept once, and the client hears of it."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.call import Call

Json = dict[str, Any]


def dedupe(call: Call, obj: Json, admitted: bool) -> None:
    """An owner named twice in the same words is named once; the client is told."""
    owners = obj["metadata"].get("ownerReferences")
    if not owners or len(owners) < 2:
        return
    kept: list[Json] = []
    repeated: list[str] = []
    for owner in owners:
        if owner in kept:
            repeated.append(owner.get("uid", ""))
        else:
            kept.append(owner)
    if repeated:
        obj["metadata"]["ownerReferences"] = kept
        when = " after mutating admission happens" if admitted else ""
        call.warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            "and may reject such requests as early as 1.24; please fix your requests; "
            f"duplicate UID(s) observed: {', '.join(repeated)}"
        )
