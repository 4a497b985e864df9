"""Where the prices of a plan come from: a list, an observation, an estimate; each says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.model.instancetype import InstanceType
from dovetail.planner.plan import Choice, Plan

Sources = Mapping[Choice, str]


def sources_of(plan: Plan, types: Iterable[InstanceType]) -> Sources:
    """What is known about the prices of a plan's machines; a price that an overlay gave is not the catalogue's."""
    bought = {machine.choice for machine in plan.machines}
    names = {choice.instance_type for choice in bought}
    known = {(kind.name, each.zone, each.capacity_type, each.price): each.price_source
             for kind in types if kind.name in names for each in kind.offerings}  # fmt: skip
    told = {each: known.get((each.instance_type, each.zone, each.capacity_type, each.price), "") for each in bought}
    return {choice: source for choice, source in told.items() if source}
