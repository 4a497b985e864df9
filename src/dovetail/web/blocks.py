"""A node as a block: its area is its capacity, the left part CPU and the right memory, filled from below by requests.

The line across a part is what is used. Without a style attribute, for the content security policy forbids those.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from dovetail.language import source
from dovetail.view.decisions import host
from dovetail.view.model import NodePhase, NodeView, PodView
from dovetail.web import figures
from dovetail.web.markup import Markup, escaped, path
from dovetail.web.page_language import PageLanguage
from dovetail.web.palette import Palette
from dovetail.web.view_options import ZOOMS, ViewOptions, units

#: Blocks from this width on have a caption, and from the second one on the name of the node in it.
MIN_CAPTION_PX, _MIN_NAME_PX = 58, 96
_MIN_SIDE_PX = 10
#: Blocks up to this width fit into any screen.
_MAX_FIXED_PX = 280
#: A node of which no size is known yet is drawn as one of two vCPUs and 8 GiB, with a question mark.
_UNKNOWN_UNITS = 4.0
#: Blocks from this height on show their pods apart from each other, by a gap.
_MIN_PODS_APART_PX, _GAP_PX = 40, 1.0
#: A pod of at least this height and width has the name of its workload in it; letters are about so wide.
_MIN_LABEL_HEIGHT_PX, _MIN_LABEL_WIDTH_PX, _LETTER_PX = 13, 46, 6.2
#: Namespaces named in the description of a node.
_MAX_NAMED = 6

STATES = {
    NodePhase.LAUNCHING: source("launching"),
    NodePhase.JOINING: source("joining"),
    NodePhase.READY: source("ready"),
    NodePhase.NOT_READY: source("not ready"),
    NodePhase.CORDONED: source("cordoned"),
    NodePhase.REPLACING: source("being replaced"),
    NodePhase.DRAINING: source("draining"),
}


def block(node: NodeView, options: ViewOptions, palette: Palette, t: PageLanguage) -> Markup:
    width, height, split = _size(node, options)
    caption = ""
    if width >= MIN_CAPTION_PX:
        unknown = t("price unknown") if width >= _MIN_NAME_PX else "$?"
        cost = figures.dollars(node.price.per_hour, t) if node.price is not None else unknown
        name = f"<i>{escaped(short_name(node))}</i>" if width >= _MIN_NAME_PX else ""
        kind = escaped(node.instance_type or "?")
        caption = f'<span class="cap" aria-hidden="true"><b>{kind}</b> {escaped(cost)}{name}</span>'
    # a block that may be wider than a small screen is drawn smaller there, with all that is in it
    box = f' viewBox="0 0 {width} {height}"' if width > _MAX_FIXED_PX else ""
    return Markup(
        f'<a class="n {node.state.value}" id="{escaped(node.key)}" href="{target(node)}"'
        f' data-g="{escaped(group_of(node, options))}"><span class="hidden">{escaped(description(node, t))}</span>'
        f'<svg width="{width}" height="{height}"{box} aria-hidden="true" focusable="false">'
        f"{_fill(node, options, palette, width, height, split)}</svg>{caption}</a>"
    )


def short_name(node: NodeView) -> str:
    return host(node.name)


def target(node: NodeView) -> str:
    return path("node" if node.has_node else "nodeclaim", node.name)


def group_of(node: NodeView, options: ViewOptions) -> str:
    texts = {
        "pool": node.pool,
        "group": node.group,
        "zone": node.zone,
        "type": node.instance_type,
        "capacity": node.capacity_type,
    }[options.group]
    return texts or ""


def _size(node: NodeView, options: ViewOptions) -> tuple[int, int, int]:
    """Width, height, and the width of the CPU's part, in pixels."""
    processors, memory = units(node)
    if not processors + memory:
        processors = memory = _UNKNOWN_UNITS / 2
    side = max(_MIN_SIDE_PX, round(ZOOMS[options.zoom] * sqrt(processors + memory)))
    part = processors / (processors + memory) if processors + memory else 0.5
    return side, side, max(2, min(side - 2, round(side * part)))


def _fill(node: NodeView, options: ViewOptions, palette: Palette, width: int, height: int, split: int) -> str:
    parts = [
        f'<path class="bg" d="M0 0h{split - 1}v{height}h-{split - 1}zM{split} 0h{width - split}v{height}H{split}z"/>'
    ]
    columns = (("cpu", 0, split - 1), ("memory", split, width - split))
    apart = height >= _MIN_PODS_APART_PX
    drawn: dict[int, list[str]] = {}
    if not node.has_node and (node.capacity or node.requests):
        parts.append(_planned(node, columns, height))
    elif node.requests is None or not node.allocatable:
        parts.append(f'<text class="unread" x="{width / 2:.0f}" y="{height / 2:.0f}">?</text>')
    labels: dict[str, str] = {}
    for resource, left, wide in columns:
        total, top = node.allocatable.get(resource), float(height)
        if not total or node.requests is None:
            continue
        for colour, pods in _shares(node, resource, total, options, palette):
            shares = [share for share, _ in pods] if apart else [sum(share for share, _ in pods)]
            for number, share in enumerate(shares):
                bottom, top = top, max(0.0, top - share * height)
                gap = _GAP_PX if apart and bottom - top > 3 * _GAP_PX else 0.0
                drawn.setdefault(colour, []).append(f"M{left} {top + gap:.1f}h{wide}V{bottom:.1f}H{left}z")
                pod = pods[number][1]
                if apart and bottom - top >= _MIN_LABEL_HEIGHT_PX and wide >= _MIN_LABEL_WIDTH_PX:
                    labels.setdefault(pod.key, _label(pod, left, wide, (top + gap + bottom) / 2))
    parts += [f'<path class="c{colour}" d="{"".join(shapes)}"/>' for colour, shapes in drawn.items()]
    parts += labels.values()
    lines = []
    for resource, left, wide in columns:
        used = node.usage_share(resource)
        if used is not None:
            lines.append(f"M{left} {height * (1 - min(1.0, used)):.1f}h{wide}")
    if lines:
        parts.append(f'<path class="use" d="{"".join(lines)}"/>')
    return "".join(parts)


def _planned(node: NodeView, columns: Iterable[tuple[str, int, int]], height: int) -> str:
    """What a NodeClaim was created for, before its node is there."""
    shapes = []
    for resource, left, wide in columns:
        share = node.share(resource)
        if share:
            top = height * (1 - min(1.0, share))
            shapes.append(f"M{left} {top:.1f}h{wide}V{height}H{left}z")
    return f'<path class="planned" d="{"".join(shapes)}"/>' if shapes else ""


def _shares(
    node: NodeView, resource: str, total: int, options: ViewOptions, palette: Palette
) -> list[tuple[int, list[tuple[float, PodView]]]]:
    """The pods and their shares of a resource by colour, from the bottom up."""
    shares: dict[int, list[tuple[float, PodView]]] = {}
    for pod in node.pods:
        count = (pod.requests or {}).get(resource, 0)
        if count:
            shares.setdefault(palette.of(options.colour, coloured_by(pod, options)), []).append((count / total, pod))
    return [(colour, shares[colour]) for colour in sorted(shares)]


def _label(pod: PodView, left: int, wide: int, middle: float) -> str:
    """The name of the pod's workload, as much of it as fits."""
    name, letters = pod.workload.partition("/")[2] or pod.name, int((wide - 8) / _LETTER_PX)
    shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
    return f'<text class="pod" x="{left + 5}" y="{middle:.1f}">{escaped(shown)}</text>'


def coloured_by(pod: PodView, options: ViewOptions) -> str:
    return pod.namespace if options.colour == "namespace" else f"{pod.namespace}/{pod.workload}"


def description(node: NodeView, t: PageLanguage) -> str:
    """Everything a block shows, in words, one fact a clause."""
    facts = [f"{node.name}: {t(STATES[node.state])}{f' ({t.recorded(node.reason)})' if node.reason else ''}"]
    price = figures.dollars(node.price.per_hour, t) if node.price is not None else t("price unknown")
    named = f"{node.instance_type or '?'} {price}{'/h' if node.price is not None else ''}"  # as the caption has it
    facts.append(", ".join(filter(None, (named, node.capacity_type, node.zone))))
    for resource, name in (("cpu", t("CPU")), ("memory", t("Memory"))):
        facts.append(f"{name}: {_use(node, resource, t)}")
    if node.has_node and node.requests is not None:
        facts.append(f"{t('Pods')}: {_pods(node)}")
    return "; ".join(facts)


def _use(node: NodeView, resource: str, t: PageLanguage) -> str:
    share, used = node.share(resource), node.usage_share(resource)
    requested = node.requests.get(resource, 0) if node.requests is not None else None
    text = t(
        "{requested} of {allocatable} requested ({share})",
        requested=figures.amount(resource, requested, t),
        allocatable=figures.amount(resource, node.allocatable.get(resource), t),
        share=figures.percent(share, t),
    )
    return f"{text}, {t('{share} used', share=figures.percent(used, t))}" if used is not None else text


def _pods(node: NodeView) -> str:
    counts: dict[str, int] = {}
    for pod in node.pods:
        counts[pod.namespace] = counts.get(pod.namespace, 0) + 1
    largest = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    named = ", ".join(f"{namespace} {count}" for namespace, count in largest[:_MAX_NAMED])
    limit = node.allocatable.get("pods")
    return f"{len(node.pods)}{f'/{limit}' if limit else ''}{f' ({named})' if named else ''}"
