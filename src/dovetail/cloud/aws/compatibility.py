"""Whether a machine of a type can be made as a node class asks. What cannot is never on offer.

Not every mistake is caught: what EC2 alone knows, it says when it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.cloud.aws import nodeclass
from dovetail.cloud.aws.spec import Spec

#: The fields of a node class that decide.
FIELDS = ("amiFamily", "amiSelectorTerms", "cpuOptions", "connectionTracking", "networkInterfaces")


def compatible(spec: Spec, wanted: Mapping[str, Any]) -> bool:
    """`wanted` is the spec of a node class."""
    if nodeclass.family_name(wanted) == "AL2023" and spec.name.startswith("a1."):
        return False  # AL2023 does not run on the first Graviton
    if (wanted.get("cpuOptions") or {}).get("nestedVirtualization") == "enabled" and not spec.nested_virtualization:
        return False
    if wanted.get("connectionTracking") and spec.hypervisor != "nitro":
        return False
    return _interfaces_fit(spec, wanted.get("networkInterfaces") or ())


def _interfaces_fit(spec: Spec, wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are the cards, the places on them, and the fabric. The cards of a type are taken to be alike."""
    if not wanted:
        return True
    fabric = sum(each.get("interfaceType") == "efa-only" for each in wanted)
    placed = all(
        each["networkCardIndex"] < spec.cards and each["deviceIndex"] < spec.interfaces for each in wanted
    )
    return spec.ena and placed and fabric <= spec.efa
