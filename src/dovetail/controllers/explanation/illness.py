"""A machine that is not well: what ails it, and what will be done about it when."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.controllers.ledger import Decision
from dovetail.model.meta import stamp
from dovetail.model.nodes import Node


def conditions(node: Node) -> list[str]:
    """What is not as it should be: that it is not ready, or something else of it."""
    return [
        f"ill: {each.type}={each.status} ({each.reason})"
        + (f" since {stamp(each.last_transition_time)}" if each.last_transition_time else "")
        for each in node.status.conditions
        if each.type.endswith("Ready") and each.status != "True"
    ]


def repair(node: Node, about: Sequence[Decision]) -> str:
    """When it will be repaired or what that waits for, as long as it is ill of what was written down."""
    last = next((each for each in reversed(about) if each.kind == "ill"), None)
    if last is None:
        return ""
    ailment = (last.reason, last.detail.get("status"))
    return last.summary if any((each.type, each.status) == ailment for each in node.status.conditions) else ""
