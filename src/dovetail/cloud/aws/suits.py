"""Whether an instance type can be bought with all that a node class asks of its machines.

A type that cannot is still a type, with labels and capacity; nobody sells it to this class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cloud.aws.nodeclass import family_name
from dovetail.cloud.aws.spec import Spec

if TYPE_CHECKING:
    from dovetail.cloud.aws.placement import Group


def suits(spec: Spec, asked: Mapping[str, Any], group: Group | None = None) -> bool:
    """`asked` is the class's spec, `group` the placement group that its machines stand in."""
    if group is not None and group.strategy not in spec.placement:
        return False
    if family_name(asked) == "AL2023" and spec.name.startswith("a1."):
        return False  # its first generation of arm64 is too old for the image
    if (asked.get("cpuOptions") or {}).get("nestedVirtualization") == "enabled" and not spec.nested_virtualization:
        return False
    if asked.get("connectionTracking") is not None and spec.hypervisor != "nitro":
        return False
    interfaces = asked.get("networkInterfaces")
    return interfaces is None or _takes(spec, interfaces)


def _takes(spec: Spec, interfaces: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the machine has the cards, and on each card the room, for these interfaces."""
    room = spec.card_interfaces or (spec.interfaces,) * spec.cards
    fabric = sum(each["interfaceType"] == "efa-only" for each in interfaces)
    return (
        spec.ena
        and fabric <= spec.efa
        and all(
            each["networkCardIndex"] < len(room) and each["deviceIndex"] < room[each["networkCardIndex"]]
            for each in interfaces
        )
    )
