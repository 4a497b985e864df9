"""What `dovetail plan` prints for people: nodes, their price and what they are for, the bound, what has no place."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from dovetail.language import message, plural, source
from dovetail.language.columns import left, width_of
from dovetail.language.recognition import recognized
from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.quantity import format_resources
from dovetail.model.reasons import reason
from dovetail.planner.plan import Cost, Funnel, OfferingOption, Plan, PlannedNode
from dovetail.planner.snapshot import NodeState

# Where the prices of a plan come from: a list, an observation, an estimate; each says so.

Sources = Mapping[OfferingOption, str]


#: Where prices come from, as catalogues say it; `recognized` knows them by this.
_PRICE_SOURCES = (
    source("observed {month}"),
    source("estimated {share} of on-demand ({quote})"),
    source("estimated {factor} of {region} ({quote})"),
    source("aws price list"),
    source("aws price list, in CNY"),
    source("ec2 spot price history"),
)


def sources_of(plan: Plan, types: Iterable[InstanceType]) -> Sources:
    """What is known about the prices of a plan's nodes; a price that an overlay gave is not the catalogue's."""
    chosen = {planned.choice for planned in plan.nodes}
    names = {choice.instance_type for choice in chosen}
    price_sources = {
        (kind.name, offering.zone, offering.capacity_type, offering.price): offering.price_source
        for kind in types
        if kind.name in names
        for offering in kind.offerings
    }
    texts = {
        choice: price_sources.get((choice.instance_type, choice.zone, choice.capacity_type, choice.price), "")
        for choice in chosen
    }
    return {choice: source for choice, source in texts.items() if source}


HOURS_A_MONTH = 730
_HEADS = ("N", "TYPE", "ZONE", "CAPACITY", "NODEPOOL", "$/H EACH", "PODS", "CPU", "MEMORY", "OTHER", "TYPES", "FOR")
_GOING = ("N", "TYPE", "ZONE", "CAPACITY", "NODEPOOL", "$/H EACH", "PODS", "NODES")
#: Amounts that have a column of their own.
_SHOWN = frozenset({"cpu", "memory", "pods"})
#: What controllers put behind the name of a workload: an ordinal, or what a ReplicaSet, a DaemonSet or a Job makes up.
_MADE_UP = re.compile(r"-(\d+|([a-f0-9]{8,10}-)?[bcdfghjklmnpqrstvwxz2456789]{5})$")
#: So many names, pools, or offerings, are shown.
_FEW, _POOLS, _BEST = 3, 5, 10
#: Less than this is nothing to speak of.
_NO_GAP = 0.0005
#: As wide as text is where the terminal's width is unknown, and as narrow as a column of it may be.
_WIDE, _NARROW = 100, 20


def as_text(
    plan: Plan, nodes: Sequence[NodeState] | None = None, verbose: bool = False, sources: Sources = MappingProxyType({})
) -> str:
    """The plan for people; with `nodes` it is about what of them is terminated.

    `verbose` says of each node what else it may become, and why nothing cheaper would do, and names every node.
    `sources` say where prices are from.
    """
    width = shutil.get_terminal_size((_WIDE, 24)).columns
    chosen, lines = list(_planned_nodes(plan, verbose, width)), list[str]()
    if nodes is None:
        texts = [*_on_nodes(plan), *_given_up(plan)]
        texts += [*([""] if chosen or texts else []), *_cost(plan.cost, plan.nodes)]
    else:
        lines = list(_given_back(plan, nodes, verbose, width))
        lines += ["", plural("launch {n} node", "launch {n} nodes", n=len(plan.nodes))] if chosen else []
        texts = [*_given_up(plan), "", *_saving(plan)]
    if sources:
        texts.append(
            message("  the prices: {sources}", sources=", ".join(sorted(map(recognized, set(sources.values())))))
        )
    texts += _reasons(plan, verbose)
    return "\n".join([*lines, *chosen, *(part for line in texts for part in _wrapped(line, width))])


def _wrapped(line: str, width: int) -> list[str]:
    """A line in as many as it takes, further ones further in."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def _planned_nodes(plan: Plan, verbose: bool, width: int) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[PlannedNode]] = {}
    for planned in plan.nodes:
        choice = planned.choice
        alike.setdefault((planned.pool, choice.instance_type, choice.zone, choice.capacity_type), []).append(planned)
    if alike:
        yield from _table(_HEADS, [_row(group) for group in alike.values()], width)
    for group in alike.values() if verbose else ():
        for line in ("", *_alternatives(group[0])):
            yield from _wrapped(line, width)


def _row(group: Sequence[PlannedNode]) -> tuple[str, ...]:
    """Nodes that are alike, with what is on them in total."""
    planned, total = group[0], Counter[str]()
    for alike in group:
        total.update(alike.requests)
    options = {choice.instance_type for alike in group for choice in alike.offerings}
    pods = [pod for alike in group for pod in alike.pods]
    price = message("unknown") if planned.choice.price is None else f"{planned.choice.price:.4f}"
    others = format_resources({name: total[name] for name in sorted(total) if name not in _SHOWN and total[name]})
    return (
        str(len(group)),
        planned.choice.instance_type,
        planned.choice.zone,
        planned.choice.capacity_type,
        planned.pool,
        price,
        str(len(pods)),
        format_resources({"cpu": total["cpu"]})["cpu"],
        _mebibytes(total["memory"]),
        ", ".join(f"{amount} {name}" for name, amount in others.items()),
        str(len(options)),
        _workloads(pods),
    )


def _table(heads: Sequence[str], rows: Iterable[tuple[str, ...]], width: int) -> Iterator[str]:
    """Rows under their heads, without empty columns; the last goes on below itself."""
    *columns, last = [column for column in zip(heads, *rows, strict=True) if any(column[1:])]
    widths = [max(map(width_of, column)) for column in columns]
    start = sum(widths) + 2 * len(widths)
    for *row, end in zip(*columns, last, strict=True):
        cells = "".join(f"{left(cell, size)}  " for cell, size in zip(row, widths, strict=True))
        first, *more = textwrap.wrap(end, max(_NARROW, width - start), break_long_words=False, break_on_hyphens=False)
        yield f"{cells}{first}"
        yield from (f"{' ' * start}{part}" for part in more)


def _workload(pod: str) -> str:
    return _MADE_UP.sub("", pod)


def _workloads(pods: Iterable[str]) -> str:
    """Whose pods they are, as far as their names tell."""
    workloads = Counter(_workload(pod.partition("/")[2]) for pod in pods)
    texts = [name if count == 1 else f"{count} {name}" for name, count in workloads.most_common(_FEW)]
    return _and_more(texts, len(workloads) - _FEW)


def _and_more(texts: Sequence[str], more: int) -> str:
    """What is named, and how many are not."""
    listed = ", ".join(texts)
    return message("{listed} and {more} more", listed=listed, more=more) if more > 0 else listed


def _alternatives(planned: PlannedNode) -> Iterator[str]:
    """What else would hold the pods of a node, and what speaks against the types that cost less."""
    yield plural(
        "{node}: {n} offering would do, the best",
        "{node}: {n} offerings would do, the best",
        n=len(planned.offerings),
        node=planned.name,
    )
    alike: dict[tuple[object, ...], list[OfferingOption]] = {}
    for choice in planned.offerings:
        same = (choice.instance_type, choice.capacity_type, choice.price, choice.reservation_id)
        alike.setdefault(same, []).append(choice)
    for group in list(alike.values())[:_BEST]:
        yield f"  {_offering_text(group[0], len(group))}"
    if planned.cheaper:
        yield message("  cheaper, and why not")
    for lost in planned.cheaper:
        yield f"  {_offering_text(lost.choice)}: {recognized(lost.because)}"


def _offering_text(choice: OfferingOption, zones: int = 1) -> str:
    """An offering, and in how many zones it is to be had at that price."""
    reserved = f" {choice.reservation_id}" if choice.reservation_id else ""
    where = (
        choice.zone
        if zones == 1
        else plural("{zone} and {n} more zone", "{zone} and {n} more zones", n=zones - 1, zone=choice.zone)
    )
    return message(
        "{price}  {type} in {where}, {capacity_type}",
        price=_price(choice),
        type=choice.instance_type,
        where=where,
        capacity_type=f"{choice.capacity_type}{reserved}",
    )


def _price(choice: OfferingOption) -> str:
    return message("unknown") if choice.price is None else f"${choice.price:.4f}"


def _on_nodes(plan: Plan) -> Iterator[str]:
    count = sum(1 for place in plan.placements.values() if place.node is not None)
    if count:
        yield plural("{n} pod on existing or in-flight nodes", "{n} pods on existing or in-flight nodes", n=count)


def _given_up(plan: Plan) -> Iterator[str]:
    relaxed = Counter(preference for place in plan.placements.values() for preference in place.relaxed)
    for preference, count in relaxed.items():
        yield plural(
            "relaxed for {n} pod: {preference}",
            "relaxed for {n} pods: {preference}",
            n=count,
            preference=recognized(preference),
        )


def _given_back(plan: Plan, nodes: Sequence[NodeState], verbose: bool, width: int) -> Iterator[str]:
    """What goes, where its pods move, and why the others stay."""
    by_name = {node.name: node for node in nodes}
    there = sum(move.node is not None for move in plan.moves.values())
    launched = plan.evictions - there
    places = [plural("{n} pod to nodes that stay", "{n} pods to nodes that stay", n=there)] if there else []
    places += [plural("{n} pod to new nodes", "{n} pods to new nodes", n=launched)] if launched > 0 else []
    removal = plural("remove {count} of {n} node", "remove {count} of {n} nodes", n=len(nodes), count=len(plan.remove))
    moving = plural("{n} eviction", "{n} evictions", n=plan.evictions) + (f": {', '.join(places)}" if places else "")
    yield from _wrapped(f"{removal}, {moving}", width)
    pods = Counter(move.source for move in plan.moves.values())
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in plan.remove:
        node = by_name[name]
        price = message("unknown") if node.price is None else f"{node.price:.4f}"
        labels = tuple(node.labels.get(key, "") for key in (INSTANCE_TYPE, ZONE, CAPACITY_TYPE))
        alike.setdefault((*labels, node.pool or "", price), []).append(name)
    if alike:
        yield from _table(
            _GOING,
            [
                (str(len(names)), *key, str(sum(pods[name] for name in names)), _names(names, verbose))
                for key, names in alike.items()
            ],
            width,
        )
    for line in _staying(plan, verbose):
        yield from _wrapped(line, width)


def _staying(plan: Plan, verbose: bool) -> Iterator[str]:
    why: dict[str, list[str]] = {}
    for name, reason_ in plan.stays.items():
        why.setdefault(reason_, []).append(name)
    texts = sorted(why.items(), key=lambda entry: -len(entry[1]))
    for text, names in texts if verbose else texts[:_BEST]:
        yield plural(
            "{n} node stays, {why}: {names}",
            "{n} nodes stay, {why}: {names}",
            n=len(names),
            why=recognized(text),
            names=_names(names, verbose),
        )
    if len(texts) > _BEST and not verbose:
        yield plural(
            "{n} more node for other reasons (-v names them)",
            "{n} more nodes for other reasons (-v names them)",
            n=sum(len(names) for _, names in texts[_BEST:]),
        )


def _names(names: Sequence[str], every: bool) -> str:
    shown = names if every else names[:_FEW]
    return _and_more(shown, len(names) - len(shown))


def _saving(plan: Plan) -> Iterator[str]:
    cost = plan.cost
    before, after = cost.before or 0.0, cost.per_hour
    change = message("${before} an hour before, ${after} after", before=f"{before:.4f}", after=f"{after:.4f}")
    if not before or after >= before:
        yield message("{change}: nothing saved", change=change)
    else:
        yield message(
            "{change}: {share} less, ${month} a month",
            change=change,
            share=f"{1 - after / before:.1%}",
            month=f"{(before - after) * HOURS_A_MONTH:,.2f}",
        )
    if cost.unpriced:
        yield _not_counted(cost.unpriced)
    yield from _bound(cost)


def _not_counted(unpriced: int) -> str:
    return plural(
        "not counted: {n} node whose price is unknown", "not counted: {n} nodes whose price is unknown", n=unpriced
    )


def _cost(cost: Cost, planned_nodes: Sequence[PlannedNode]) -> Iterator[str]:
    if not planned_nodes and not cost.per_hour:
        yield message("nothing to launch")
        return
    unpriced = sum(1 for planned in planned_nodes if planned.choice.price is None)
    price = message(
        "${hour} an hour, ${month} a month", hour=f"{cost.per_hour:.4f}", month=f"{cost.per_hour * HOURS_A_MONTH:,.2f}"
    )
    if unpriced:
        some = unpriced < len(planned_nodes)
        price = message("at least {price}", price=price) if some else message("an unknown price")
    yield plural("{price}, {n} node", "{price}, {n} nodes", n=len(planned_nodes), price=price)
    if 0 < unpriced < len(planned_nodes):
        yield _not_counted(unpriced)
    if round(cost.for_zones, 4):
        yield plural(
            "includes ${price}/h for spreading over {n} zone",
            "includes ${price}/h for spreading over {n} zones",
            n=len({planned.choice.zone for planned in planned_nodes}),
            price=f"{cost.for_zones:.4f}",
        )
    if planned_nodes:
        yield from _bound(cost)


def _bound(cost: Cost) -> Iterator[str]:
    if cost.lower_bound and cost.gap is not None:
        bound = f"{cost.lower_bound:.4f}"
        if cost.gap < _NO_GAP:
            yield message("lower bound ${bound}/h; this plan is the optimum", bound=bound)
        else:
            yield message(
                "lower bound ${bound}/h; this plan is at most {gap} above the optimum",
                bound=bound,
                gap=f"{cost.gap:.1%}",
            )
        yield message("  the bound: {relaxations}", relaxations=recognized(cost.bound_of))


def _reasons(plan: Plan, verbose: bool) -> Iterator[str]:
    why: dict[tuple[str, str], list[str]] = {}
    for pod, refusal in plan.unschedulable.items():  # claims of a workload's pods have as many names as it has pods
        why.setdefault((refusal.code, refusal.message if refusal.pools else _workload(pod)), []).append(pod)
    totals = Counter(map(_workload, plan.placements)) if why else Counter[str]()
    for (code, _), pods in why.items():
        yield ""
        yield plural(
            "no node for {n} pod: {pods}", "no node for {n} pods: {pods}", n=len(pods), pods=_left_out(pods, totals)
        )
        refusal = plan.unschedulable[pods[0]]
        if not refusal.pools:
            yield f"  {code} ({reason(code).kind}): {recognized(refusal.message)}"
            continue
        remedy = recognized(refusal.remedy)
        yield f"  {code} ({reason(code).kind}), NodePool {next(iter(refusal.pools))}: {remedy}"
        shown = len(refusal.pools) if verbose else _POOLS
        for name in list(refusal.pools)[:shown]:
            yield from _funnel(name, refusal.pools[name])
        if len(refusal.pools) > shown:
            yield plural(
                "  and {n} NodePool more, see -v", "  and {n} NodePools more, see -v", n=len(refusal.pools) - shown
            )


def _left_out(pods: Sequence[str], totals: Mapping[str, int]) -> str:
    """Whose pods they are, and how many of how many."""
    if len(pods) == 1:
        return pods[0]
    workloads = Counter(map(_workload, pods)).most_common()
    return _and_more([_share(name, count, totals[name]) for name, count in workloads[:_FEW]], len(workloads) - _FEW)


def _share(workload: str, count: int, total: int) -> str:
    if count == 1 == total:
        return workload
    if count < total:
        return message("{count} of {total} {workload}", count=count, total=total, workload=workload)
    return f"{count} {workload}"


def _funnel(pool: str, funnel: Funnel) -> Iterator[str]:
    """How many offerings were left by each question that turned some away, and the nearest miss."""
    if funnel.unusable:
        yield f"  NodePool {pool} {recognized(funnel.emptied_by)}"
        return
    texts, before = [plural("{n} offering", "{n} offerings", n=funnel.start)], funnel.start
    for step in funnel.steps:
        if not step.left:
            texts.append(message("none left by {clause}", clause=recognized(step.clause)))
        elif step.left != before:
            texts.append(message("{count} left by {clause}", count=step.left, clause=recognized(step.clause)))
        before = step.left
    yield f"  NodePool {pool}: {', '.join(texts)}"
    if funnel.nearest is not None:
        yield message(
            "    nearest: {type} in {zone}, {detail}",
            type=funnel.nearest.instance_type,
            zone=funnel.nearest.zone,
            detail=recognized(funnel.miss_detail),
        )


def _mebibytes(amount: int) -> str:
    if not amount:
        return "0"
    return f"{amount / 2**30:.1f}Gi" if amount >= 2**30 else f"{amount // 2**20}Mi"
