"""Charts as SVG text: bars in groups, and lines over time. Colours come from the page, so they follow its theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 34, 64
TICKS = 5
#: Hours between two ticks of a time axis, and how many ticks it has at most.
_HOUR_STEPS, MAX_HOUR_TICKS = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 12.0, 24.0), 8


class Bar(NamedTuple):
    """A bar of a colour class (or several, separated by spaces), with what a pointer over it shows; `mark` is a line
    across it."""

    value: float
    colour: str
    title: str
    mark: float | None = None


class BarGroup(NamedTuple):
    """Bars side by side over one label."""

    label: str
    bars: Sequence[Bar]


class ChartLine(NamedTuple):
    """Steps of a colour class (or several, by spaces). Lines of the same label are one entry of the legend."""

    label: str
    colour: str
    points: Sequence[tuple[float, float]]


def bars(
    title: str, groups: Sequence[BarGroup], legend: Sequence[tuple[str, str]], unit: str = "", mark_label: str = ""
) -> str:
    """A bar chart; `legend` has the name and the colour class of each kind of bar."""
    values = [max(bar.value, bar.mark or 0.0) for group in groups for bar in group.bars]
    top = _round_axis_end(max(values, default=1.0))
    inner, parts = WIDTH - LEFT - RIGHT, [_axis(title, top, unit)]
    group_width = inner / max(1, len(groups))
    for number, group in enumerate(groups):
        start = LEFT + number * group_width
        wide = group_width * 0.68 / max(1, len(group.bars))
        first = start + group_width * 0.16
        for place, bar in enumerate(group.bars):
            y = _y(bar.value, top)
            parts.append(
                f'<rect class="{bar.colour}" x="{first + place * wide:.1f}" y="{y:.1f}" width="{wide * 0.9:.1f}" '
                f'height="{HEIGHT - BOTTOM - y:.1f}"><title>{escape(bar.title)}</title></rect>'
            )
            if bar.mark is not None:
                x, y = first + place * wide, _y(bar.mark, top)
                parts.append(
                    f'<line class="bound" x1="{x - 3:.1f}" x2="{x + wide * 0.9 + 3:.1f}" y1="{y:.1f}" y2="{y:.1f}">'
                    f"<title>{escape(mark_label)} {bar.mark:{',.2f' if bar.mark >= 1 else '.4f'}}</title></line>"
                )
        parts += _label(start + group_width / 2, group.label)
    entries = [*legend, *([(mark_label, "bound")] if mark_label else [])]
    parts += [_entry(number, len(entries), *entry) for number, entry in enumerate(entries)]
    return _svg(title, parts)


def _entry(number: int, count: int, label: str, colour: str) -> str:
    """An entry of the legend under a chart."""
    x, y = LEFT + number * (WIDTH - LEFT - RIGHT) / max(1, count), HEIGHT - 18
    return (
        f'<line class="{colour}" x1="{x:.1f}" x2="{x + 22:.1f}" y1="{y}" y2="{y}"/>'
        f'<text x="{x + 28:.1f}" y="{y + 4}">{escape(label)}</text>'
    )


def lines(title: str, series: Sequence[ChartLine], hours: float, unit: str = "") -> str:
    """Steps over time, in hours."""
    top = _round_axis_end(max((value for line in series for _, value in line.points), default=1.0))
    parts = [_axis(title, top, unit)]
    span = WIDTH - LEFT - RIGHT
    step = next((step for step in _HOUR_STEPS if hours / step <= MAX_HOUR_TICKS), hours / MAX_HOUR_TICKS)
    for tick in range(int(hours / step + 1e-9) + 1):
        x = LEFT + span * tick * step / hours
        parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{tick * step:.3g} h</text>')
    for line in series:
        path, last = [], None
        for point, value in line.points:
            x, y = LEFT + span * min(1.0, point / hours), _y(value, top)
            path.append(f"M{x:.1f} {y:.1f}" if last is None else f"H{x:.1f}V{y:.1f}")
            last = value
        if last is not None:
            path.append(f"H{WIDTH - RIGHT}")
        parts.append(f'<path class="{line.colour}" d="{"".join(path)}"><title>{escape(line.label)}</title></path>')
    entries = {line.label: line.colour.partition(" ")[0] for line in series}
    parts += [_entry(number, len(entries), *entry) for number, entry in enumerate(entries.items())]
    return _svg(title, parts)


def _svg(title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def _axis(title: str, top: float, unit: str) -> str:
    parts = [f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>']
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _y(value, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="scale" x="{LEFT - 6}" y="{y + 4:.1f}">{escape(unit)}{value:.4g}</text>')
    return "".join(parts)


def _label(x: float, label: str) -> list[str]:
    """A label of up to three lines under the axis."""
    lines_of = label.split("\n")
    return [
        f'<text class="tick" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16 + 14 * number}">{escape(part)}</text>'
        for number, part in enumerate(lines_of)
    ]


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value / top if top else 0.0)


def _round_axis_end(most: float) -> float:
    """The end of an axis: a round number not below the largest value."""
    if most <= 0:
        return 1.0
    magnitude = 10.0 ** math.floor(math.log10(most))
    return next(step * magnitude for step in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.5, 10.0) if step * magnitude >= most)
