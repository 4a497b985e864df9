"""What `dovetail plan` prints for programs: the whole plan by its contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from math import floor
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.cli.plan_text import Sources
from dovetail.model.quantity import format_resources
from dovetail.model.reasons import reason
from dovetail.planner.plan import Funnel, OfferingOption, Placement, Plan, PlannedNode

_UNKNOWN: Sources = MappingProxyType({})


def as_json(plan: Plan, consolidating: bool, sources: Sources = _UNKNOWN) -> dict[str, Any]:
    """The plan by its contract; `sources` say where prices are from."""
    cost: dict[str, Any] = {"perHour": round(plan.cost.per_hour, 6)}
    if plan.cost.before is not None:
        cost |= {"before": round(plan.cost.before, 6), "after": round(plan.cost.per_hour, 6)}
    unpriced = plan.cost.unpriced + sum(planned.choice.price is None for planned in plan.nodes)
    if unpriced:
        cost["unpriced"] = unpriced
    if for_zones := round(plan.cost.for_zones, 6):
        cost["forZones"] = for_zones
    bound = plan.cost.lower_bound
    shown = None if bound is None else floor(min(bound, plan.cost.per_hour) * 1e6) / 1e6
    gap = replace(plan.cost, per_hour=cost["perHour"], lower_bound=shown).gap
    cost |= {"lowerBound": shown, "gap": None if gap is None else round(gap, 6), "boundOf": plan.cost.bound_of}
    document: dict[str, Any] = {
        "pods": {pod: _place(place) for pod, place in plan.placements.items()},
        "machines": [_planned_node(planned, sources) for planned in plan.nodes],
        "cost": cost,
        "took": {"seconds": round(plan.seconds, 4), "tier": plan.tier},
    }
    if consolidating:
        document["remove"] = list(plan.remove)
        document["moves"] = {
            pod: {"from": move.source, **({"node": move.node} if move.node else {"machine": move.new_node})}
            for pod, move in plan.moves.items()
        }
        document["evictions"] = plan.evictions
        document["stays"] = dict(plan.stays)
    return document


def json_pieces(plan: Plan, consolidating: bool, sources: Sources = _UNKNOWN) -> Iterator[str]:
    """The same as JSON text, a node at a time: what thousands of them may become fills gigabytes."""
    opening = "{"
    for name, part in as_json(replace(plan, nodes=()), consolidating).items():
        yield f'{opening}\n "{name}": '
        if name == "machines" and plan.nodes:
            for index, planned in enumerate(plan.nodes):
                yield ("," if index else "[") + "\n  " + _indented(_planned_node(planned, sources, _encoded), 2)
            yield "\n ]"
        else:
            yield _indented(part, 1)
        opening = ","
    yield "\n}"


def yaml_pieces(plan: Plan, consolidating: bool, sources: Sources = _UNKNOWN) -> Iterator[str]:
    """The same as YAML, a node at a time as well."""
    import yaml

    def text(part: Any) -> str:
        return str(yaml.dump(part, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False))

    for name, part in as_json(replace(plan, nodes=()), consolidating).items():
        if name == "machines" and plan.nodes:
            yield f"{name}:\n"
            yield from (text([_planned_node(planned, sources)]) for planned in plan.nodes)
        else:
            yield text({name: part})


def _indented(part: Any, depth: int) -> str:
    return msgspec.json.format(msgspec.json.encode(part), indent=1).decode().replace("\n", "\n" + depth * " ")


def _place(place: Placement) -> dict[str, Any]:
    relaxed = {"relaxed": list(place.relaxed)} if place.relaxed else {}
    if place.node is not None:
        return {"node": place.node, **relaxed}
    if place.new_node is not None:
        return {"machine": place.new_node, **relaxed}
    why = place.unschedulable
    assert why is not None
    pools = {name: _funnel(funnel) for name, funnel in why.pools.items()}
    explained = reason(why.code)
    return {
        "unschedulable": {
            "code": why.code,
            "class": explained.kind,
            "message": why.message,
            "remedy": why.remedy or explained.remedy,
            **({"object": why.object} if why.object else {}),
            "nodePools": pools,
        }
    }


def _funnel(funnel: Funnel) -> dict[str, Any]:
    document: dict[str, Any] = {
        "offerings": funnel.start,
        "after": [{"clause": step.clause, "left": step.left} for step in funnel.steps],
        "code": funnel.code,
        "emptiedBy": funnel.emptied_by,
        "remedy": funnel.remedy,
    }
    if funnel.nearest is not None:
        document["nearest"] = {**_choice(funnel.nearest), "lacks": funnel.nearest_lacks}
    return document


def _choice(choice: OfferingOption) -> dict[str, Any]:
    document: dict[str, Any] = {
        "instanceType": choice.instance_type,
        "zone": choice.zone,
        "capacityType": choice.capacity_type,
        "price": choice.price,
    }
    if choice.reservation_id:
        document["reservationId"] = choice.reservation_id
    return document


@cache
def _encoded(choice: OfferingOption) -> msgspec.Raw:
    """An offering as JSON already: many nodes may become the same."""
    return msgspec.Raw(msgspec.json.encode(_choice(choice)))


def _planned_node(
    planned: PlannedNode, sources: Sources, offering: Callable[[OfferingOption], Any] = _choice
) -> dict[str, Any]:
    source = sources.get(planned.choice)
    document = {
        "name": planned.name,
        "nodePool": planned.pool,
        **_choice(planned.choice),
        **({"priceSource": source} if source else {}),
        "requests": format_resources(planned.requests),
        "requirements": [dict(requirement) for requirement in planned.requirements],
        "offerings": [offering(choice) for choice in planned.offerings],
    }
    if planned.cheaper:
        document["cheaper"] = [{**_choice(lost.choice), "because": lost.because} for lost in planned.cheaper]
    return document
