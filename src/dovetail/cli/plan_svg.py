"""`dovetail plan --svg`: the planned fleet as a picture.

A node is a block whose area is its capacity. Its left half is CPU, its right half memory, filled by the requests of its
pods. Price, lower bound and the workloads by their colours stand above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from math import sqrt
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from dovetail.language import message, plural
from dovetail.language.columns import width_of
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.planner.plan import Plan, PlannedNode
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.snapshot import NodeState, Snapshot

WIDTH = 1200
#: Height of what stands above the blocks, and below each.
_HEAD, _CAPTION = 100, 46
#: Where the line of the workloads stands, and how wide a letter of it is.
_LEGEND_Y, _LETTER = 84.0, 6.4
_GAP = 14
#: The longest side of a block, and the shortest that a caption is readable under.
_MAX_SIDE, _MIN_SIDE = 180.0, 140.0
#: Colours that differ without seeing red and green (Okabe and Ito), for the first workloads; the others share one.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
_OTHERS = "#F0E442"
_OVERHEAD = "#9AA0A6"
_RESOURCES = ("cpu", "memory")


class NodeBlock(NamedTuple):
    """A node. `pods` are (key, requests, whether the plan places it here); `kind` is new, kept or removed."""

    name: str
    kind: str
    lines: tuple[str, str, str]
    allocatable: Mapping[str, int]
    pods: Sequence[tuple[str, Mapping[str, int], bool]]
    overhead: Mapping[str, int]


def as_svg(plan: Plan, snapshot: Snapshot, consolidating: bool = False) -> str:
    """The picture; without nodes it says so."""
    blocks = list(_blocks(plan, snapshot, consolidating))
    most = {name: max((block.allocatable.get(name, 0) for block in blocks), default=0) for name in _RESOURCES}
    colours = _colours(blocks)
    drawn, x, y, row = [], float(_GAP), float(_HEAD), 0.0
    for block in blocks:
        side = _side(block, most)
        wide = max(side, _MIN_SIDE)
        if x + wide + _GAP > WIDTH and x > _GAP:
            x, y, row = float(_GAP), y + row + _GAP, 0.0
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{_drawn(block, side, colours)}</g>')
        x, row = x + wide + _GAP, max(row, side + _CAPTION)
    height = y + row + _GAP
    title, lines = _headlines(plan, blocks)
    heads = "".join(
        f'<text x="{_GAP}" y="{24 + 20 * number}" font-size="{16 if not number else 12}"'
        f' font-weight="{600 if not number else 400}">{escape(line)}</text>'
        for number, line in enumerate((title, *lines))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
        f' height="{height:.0f}" role="img" aria-label={quoteattr(title)} font-family="sans-serif" fill="#202124">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{heads}{_legend(blocks, colours)}{''.join(drawn)}</svg>\n"
    )


def _headlines(plan: Plan, blocks: Sequence[NodeBlock]) -> tuple[str, list[str]]:
    new = sum(block.kind == "new" for block in blocks)
    kept = sum(block.kind == "kept" for block in blocks)
    title = plural("{n} new node, ${cost}/h", "{n} new nodes, ${cost}/h", n=new, cost=f"{plan.cost.per_hour:.4f}")
    lines = []
    if plan.cost.lower_bound and plan.cost.gap is not None:
        bound = f"{plan.cost.lower_bound:.4f}"
        lines.append(
            message("lower bound ${bound}/h; this plan is the optimum", bound=bound)
            if plan.cost.gap < 5e-5
            else message(
                "lower bound ${bound}/h; this plan is at most {gap} above the optimum",
                bound=bound,
                gap=f"{plan.cost.gap:.1%}",
            )
        )
    facts = []
    if kept:
        facts.append(plural("{n} node is kept", "{n} nodes are kept", n=kept))
    if plan.remove:
        facts.append(plural("{n} node is removed", "{n} nodes are removed", n=len(plan.remove)))
    if plan.unschedulable:
        facts.append(plural("{n} pod has no place", "{n} pods have no place", n=len(plan.unschedulable)))
    if plan.cost.unpriced:
        facts.append(plural("{n} price unknown", "{n} prices unknown", n=plan.cost.unpriced))
    if not blocks:
        facts.append(message("nothing is to be launched"))
    return title, [*lines, *([", ".join(facts)] if facts else [])]


def _blocks(plan: Plan, snapshot: Snapshot, consolidating: bool) -> Iterator[NodeBlock]:
    """New nodes, then those that the plan uses or removes; of a consolidation all that stay."""
    types = {(pool.name, kind.name): kind for pool in snapshot.pools for kind in pool.types}
    pods = {pod_key(pod): pod for pod in snapshot.pending}
    pods |= {pod_key(pod): pod for state in snapshot.nodes for pod in state.pods}
    for planned in plan.nodes:
        yield _planned(planned, types[planned.pool, planned.choice.instance_type].allocatable, pods)
    arriving: dict[str, list[str]] = {}
    for key, place in plan.placements.items():
        if place.node is not None:
            arriving.setdefault(place.node, []).append(key)
    leaving = frozenset(plan.moves)
    for state in snapshot.nodes:
        removed = state.name in plan.remove
        if consolidating or removed or state.name in arriving:
            yield _existing(state, removed, [pods[key] for key in arriving.get(state.name, ())], leaving)


def _planned(planned: PlannedNode, allocatable: Mapping[str, int], pods: Mapping[str, Pod]) -> NodeBlock:
    inside = [(key, requests(pods[key]), True) for key in planned.pods]
    overhead = {
        name: max(0, planned.requests.get(name, 0) - sum(pod_requests.get(name, 0) for _, pod_requests, _ in inside))
        for name in _RESOURCES
    }
    choice = planned.choice
    price = "?" if choice.price is None else f"${choice.price:.4f}/h"
    lines = (f"{choice.instance_type}", f"{price} {choice.capacity_type}", f"{planned.pool} {choice.zone}")
    return NodeBlock(planned.name, "new", lines, allocatable, inside, overhead)


def _existing(state: NodeState, removed: bool, arriving: Sequence[Pod], leaving: frozenset[str]) -> NodeBlock:
    staying = [pod for pod in state.pods if not pod.finished and (removed or pod_key(pod) not in leaving)]
    inside = [(pod_key(pod), requests(pod), False) for pod in staying]
    inside += [(pod_key(pod), requests(pod), True) for pod in arriving]
    price = "?" if state.price is None else f"${state.price:.4f}/h"
    lines = (
        state.labels.get(INSTANCE_TYPE, "?"),
        f"{price} {state.labels.get(CAPACITY_TYPE, '')}".strip(),
        f"{state.name} {state.labels.get(ZONE, '')}".strip(),
    )
    return NodeBlock(state.name, "removed" if removed else "kept", lines, state.allocatable, inside, {})


def _side(block: NodeBlock, most: Mapping[str, int]) -> float:
    """So long that areas compare as capacities do: the mean of the shares of CPU and memory of the largest node."""
    shares = [block.allocatable.get(name, 0) / most[name] for name in _RESOURCES if most[name]]
    return max(18.0, _MAX_SIDE * sqrt(sum(shares) / len(shares))) if shares else 18.0


def _drawn(block: NodeBlock, side: float, colours: Mapping[str, str]) -> str:
    dashes = ' stroke-dasharray="6 4"' if block.kind == "removed" else ""
    stroke = "#202124" if block.kind == "new" else "#80868b"
    parts = [f'<rect width="{side:.1f}" height="{side:.1f}" fill="#f1f3f4"/>']
    fade = ' opacity="0.35"' if block.kind == "removed" else ""
    for column, name in enumerate(_RESOURCES):
        total, top = block.allocatable.get(name, 0), side
        if not total:
            continue
        rows = [(message("DaemonSets"), block.overhead.get(name, 0), _OVERHEAD, True)]
        rows += [(key, requests.get(name, 0), colours[_workload(key)], new) for key, requests, new in block.pods]
        for key, amount, colour, new in rows:
            height = min(top, side * amount / total)
            if height <= 0:
                continue
            top -= height
            pale = "" if new else ' fill-opacity="0.45"'
            parts.append(
                f'<rect x="{column * side / 2:.1f}" y="{top:.1f}" width="{side / 2:.1f}" height="{height:.1f}"'
                f' fill="{colour}"{pale} stroke="#ffffff" stroke-width="0.5">'
                f"<title>{escape(f'{key}: {name} {100 * amount / total:.0f}%')}</title></rect>"
            )
    outline = f'<rect width="{side:.1f}" height="{side:.1f}" fill="none" stroke="{stroke}"{dashes}/>'
    texts = "".join(
        f'<text y="{side + 13 + 13 * number:.0f}" font-size="11">{escape(_cut(line, max(side, _MIN_SIDE)))}</text>'
        for number, line in enumerate(block.lines)
    )
    return f"<g{fade}><title>{escape(block.name)}</title>{''.join(parts)}{outline}</g>{texts}"


def _cut(line: str, width: float) -> str:
    """About six units a letter at this size."""
    most = int(width / 6)
    return line if len(line) <= most else line[: most - 1] + "…"


def _workload(key: str) -> str:
    """Pods of a name but for its last part are of one workload, as far as a picture can say."""
    return key.rpartition("-")[0] or key


def _colours(blocks: Sequence[NodeBlock]) -> dict[str, str]:
    names = dict.fromkeys(_workload(key) for block in blocks for key, _, _ in block.pods)
    return dict(zip_longest(names, _COLOURS[: len(names)], fillvalue=_OTHERS))


def _legend(blocks: Sequence[NodeBlock], colours: Mapping[str, str]) -> str:
    """What the halves and the colours are."""
    if not blocks:
        return ""
    named = [(name, colour) for name, colour in colours.items() if colour != _OTHERS]
    others = len(colours) - len(named)
    entries = list(named)
    if others:
        entries.append((message("{count} others", count=others), _OTHERS))
    if any(block.overhead.get(name) for block in blocks for name in _RESOURCES):
        entries.append((message("DaemonSets"), _OVERHEAD))
    halves = message("left CPU, right memory")
    parts = [f'<text x="{_GAP}" y="{_LEGEND_Y:.0f}" font-size="11">{escape(halves)}</text>']
    x = _GAP + width_of(halves) * _LETTER + 2 * _GAP
    room = (WIDTH - x - _GAP) / len(entries) if entries else 0.0
    for name, colour in entries:
        label = _cut(name, room - 2 * _GAP)
        parts.append(
            f'<rect x="{x:.0f}" y="{_LEGEND_Y - 9:.0f}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{x + 14:.0f}" y="{_LEGEND_Y:.0f}" font-size="11">{escape(label)}</text>'
        )
        x += 14 + width_of(label) * _LETTER + _GAP
    return "".join(parts)
