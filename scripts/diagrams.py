"""Pictures of boxes and arrows, and of messages between participants, as SVG texts.

Coordinates are given in a grid, so that the same picture is drawn on every computer; texts are centred, so that a
Korean text needs no other place than its English twin.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

COLUMN, ROW, BOX_WIDTH, LINE = 215, 108, 178, 17
INK, PAPER, EDGE, SHADE, ACCENT = "#1f2430", "#ffffff", "#5b6478", "#eef1f8", "#3f51b5"
FONT = "system-ui, 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic', sans-serif"


class Box(NamedTuple):
    """A box at a column and row of the grid; the first line of its text is bold."""

    key: str
    column: float
    row: float
    text: str
    accent: bool = False
    width: float = BOX_WIDTH


class Arrow(NamedTuple):
    start: str
    end: str
    text: str = ""
    bend: float = 0.0  # how far the middle is off the straight line
    shift: float = 0.0  # how far the text is moved down


class Message(NamedTuple):
    start: str
    end: str
    text: str
    dashed: bool = False


class Note(NamedTuple):
    text: str


def _text(x: float, y: float, text: str, *, bold: bool = False, size: int = 13, colour: str = INK) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{weight} text-anchor="middle" '
        f'paint-order="stroke" stroke="{PAPER}" stroke-width="4" stroke-linejoin="round">{escape(text)}</text>'
    )


def _page(width: float, height: float, title: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" font-family="{escape(FONT)}">'
    )
    marker = (
        '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        f'orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{EDGE}"/></marker></defs>'
    )
    paper = f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", marker, paper, *parts, "</svg>"]) + "\n"


class _Place(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def _edge(place: _Place, x: float, y: float) -> tuple[float, float]:
    """Where the line from the middle of a box to a point leaves the box."""
    dx, dy = x - place.x, y - place.y
    scale = min(
        (place.width / 2 + 3) / abs(dx) if dx else float("inf"),
        (place.height / 2 + 3) / abs(dy) if dy else float("inf"),
    )
    return place.x + dx * scale, place.y + dy * scale


def boxes_and_arrows(title: str, boxes: list[Box], arrows: list[Arrow]) -> str:
    left = min(box.column * COLUMN - box.width / 2 for box in boxes)
    places = {}
    for box in boxes:
        height = LINE * (box.text.count("\n") + 1) + 18
        places[box.key] = _Place(20 - left + box.column * COLUMN, 52 + box.row * ROW, box.width, height)
    parts = [_arrow(arrow, places) for arrow in arrows]
    parts += [_box(box, places[box.key]) for box in boxes]
    parts += [_label(arrow, places) for arrow in arrows if arrow.text]
    width = max(place.x + place.width / 2 for place in places.values()) + 20
    bottom = max(place.y + place.height / 2 for place in places.values()) + 20
    return _page(width, bottom, title, parts)


def _box(box: Box, place: _Place) -> str:
    fill, edge = (SHADE, ACCENT) if box.accent else (PAPER, EDGE)
    rect = (
        f'<rect x="{place.x - place.width / 2:g}" y="{place.y - place.height / 2:g}" width="{place.width:g}" '
        f'height="{place.height:g}" rx="6" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
    )
    lines = box.text.split("\n")
    first = place.y - LINE * (len(lines) - 1) / 2 + 4.5
    texts = [
        _text(place.x, first + LINE * index, line, bold=index == 0, size=13 if index == 0 else 12)
        for index, line in enumerate(lines)
    ]
    return "".join([rect, *texts])


def _middle(arrow: Arrow, places: dict[str, _Place]) -> tuple[float, float]:
    start, end = places[arrow.start], places[arrow.end]
    dx, dy = end.x - start.x, end.y - start.y
    length = (dx * dx + dy * dy) ** 0.5
    return (start.x + end.x) / 2 - dy / length * arrow.bend, (start.y + end.y) / 2 + dx / length * arrow.bend


def _arrow(arrow: Arrow, places: dict[str, _Place]) -> str:
    mx, my = _middle(arrow, places)
    x1, y1 = _edge(places[arrow.start], mx, my)
    x2, y2 = _edge(places[arrow.end], mx, my)
    # The control point of a quadratic curve that passes through the middle.
    cx, cy = 2 * mx - (x1 + x2) / 2, 2 * my - (y1 + y2) / 2
    return (
        f'<path d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" fill="none" stroke="{EDGE}" '
        'stroke-width="1.5" marker-end="url(#arrow)"/>'
    )


def _label(arrow: Arrow, places: dict[str, _Place]) -> str:
    x, y = _middle(arrow, places)
    lines = arrow.text.split("\n")
    first = y - 14 * (len(lines) - 1) / 2 + arrow.shift + 3
    return "".join(_text(x, first + 14 * index, line, size=11, colour=EDGE) for index, line in enumerate(lines))


def sequence(title: str, participants: list[tuple[str, str]], steps: list[Message | Note]) -> str:
    """Participants from left to right, time from top to bottom; a note stands over all of them."""
    gap = 190
    x = {key: 95.0 + gap * index for index, (key, _) in enumerate(participants)}
    width, height = 95 * 2 + gap * (len(participants) - 1), 84 + 42 * len(steps)
    parts = []
    for key, text in participants:
        parts.append(
            f'<line x1="{x[key]:g}" y1="44" x2="{x[key]:g}" y2="{height - 14}" stroke="{EDGE}" stroke-dasharray="3 4"/>'
        )
        parts.append(
            f'<rect x="{x[key] - 84:g}" y="12" width="168" height="32" rx="6" fill="{SHADE}" stroke="{ACCENT}"/>'
            + _text(x[key], 33, text, bold=True)
        )
    for index, step in enumerate(steps):
        y = 84 + 42 * index
        if isinstance(step, Note):
            parts.append(
                f'<rect x="14" y="{y - 16}" width="{width - 28}" height="26" rx="4" fill="{SHADE}"/>'
                + _text(width / 2, y + 2, step.text, size=12)
            )
            continue
        dash = ' stroke-dasharray="5 4"' if step.dashed else ""
        if step.start == step.end:
            left = x[step.start]
            parts.append(
                f'<path d="M{left:g} {y - 6}h34v14h-32" fill="none" stroke="{EDGE}" marker-end="url(#arrow)"{dash}/>'
                + _text(left + 20, y - 12, step.text, size=12)
            )
        else:
            left, right = x[step.start], x[step.end] + (2 if x[step.end] < x[step.start] else -2)
            parts.append(
                f'<line x1="{left:g}" y1="{y}" x2="{right:g}" y2="{y}" stroke="{EDGE}" marker-end="url(#arrow)"{dash}/>'
                + _text((left + right) / 2, y - 6, step.text, size=12)
            )
    return _page(width, height, title, parts)
