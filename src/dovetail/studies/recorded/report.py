"""A replay as text and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from dovetail.language import message
from dovetail.language.columns import width_of
from dovetail.language.recognition import recognized
from dovetail.offline.diff.report_text import duration
from dovetail.offline.timeline import ScalingDecision, Timeline
from dovetail.studies import svg
from dovetail.studies.recorded.replay import Replay

#: Decisions that the text shows at most; all are in the JSON.
MAX_DECISIONS = 20
_STYLE = """<style>svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#5b6675}
.title{font-weight:600;fill:#1c2430}.scale{text-anchor:end}.tick{text-anchor:middle}.grid{stroke:#d8dee6}
path,line{fill:none;stroke-width:2.2}.recorded{stroke:#c2762b}.replayed{stroke:#1d8f6a}
.bound{stroke:#1c2430;stroke-dasharray:5 3}</style>"""


class ReplayRow(NamedTuple):
    """A figure: recorded, replayed, and replayed by another version where there is one."""

    label: str
    cells: tuple[str, ...]


def text(replay: Replay) -> Iterator[str]:
    """The report, line by line."""
    length = duration(replay.recorded.seconds)
    yield message(
        "{name}: {length}, replayed with {autoscaler}", name=replay.name, length=length, autoscaler=title(replay)
    )
    yield ""
    sides = _sides(replay)
    rows = [ReplayRow("", tuple(sides)), *figures(replay)]
    label_width = max(width_of(row.label) for row in rows)
    widths = [max(width_of(row.cells[column]) for row in rows) for column in range(len(sides))]
    for row in rows:
        cells = [row.label + " " * (label_width - width_of(row.label))]
        cells += [" " * (width - width_of(cell)) + cell for cell, width in zip(row.cells, widths, strict=True)]
        yield "  ".join(cells).rstrip()
    yield ""
    yield difference(replay)
    yield from _decisions(replay)
    yield from _other_version(replay)
    yield from _dry_run(replay)
    for side, timeline in sides.items():
        if timeline.unpriced:
            yield message(
                "{side}: no price is known for {types}; they count as nothing",
                side=side,
                types=", ".join(timeline.unpriced),
            )


def _sides(replay: Replay) -> dict[str, Timeline]:
    sides = {message("recorded"): replay.recorded, message("replayed"): replay.replayed}
    if replay.other_version is not None:
        sides[replay.other_version.version] = replay.other_version.replayed
    return sides


def title(replay: Replay) -> str:
    return message("the recorded nodes") if replay.autoscaler == "none" else replay.autoscaler


def figures(replay: Replay) -> list[ReplayRow]:
    shown: tuple[tuple[str, Callable[[Timeline], str]], ...] = (
        (message("cost"), _cost),
        (message("lower bound"), lambda timeline: _dollars(timeline.lower_bound)),
        (message("most nodes"), _most_nodes),
        (message("nodes launched"), lambda timeline: f"{timeline.launched:,}"),
        (message("nodes removed"), lambda timeline: f"{timeline.removed:,}"),
        (message("pods created"), lambda timeline: f"{timeline.pods:,}"),
        (message("pending, 50 %"), lambda timeline: _seconds(timeline.pending_p50)),
        (message("pending, 90 %"), lambda timeline: _seconds(timeline.pending_p90)),
        (message("pending, 99 %"), lambda timeline: _seconds(timeline.pending_p99)),
        (message("pending at the end"), lambda timeline: f"{timeline.never_bound:,}"),
        (message("evictions"), lambda timeline: f"{timeline.evictions:,}"),
        (message("capacity errors"), lambda timeline: f"{timeline.capacity_errors:,}"),
    )
    timelines = list(_sides(replay).values())
    return [ReplayRow(label, tuple(figure(timeline) for timeline in timelines)) for label, figure in shown]


def difference(replay: Replay) -> str:
    if replay.first_difference is None:
        return message("no difference: nodes, price and pending pods are within 5 % at every sample")
    when, what = replay.first_difference
    return message("first difference at {when}: {what}", when=clock(when), what=recognized(what))


def _decisions(replay: Replay) -> Iterator[str]:
    pairs = [(pair.recorded, pair.replayed) for pair in replay.pairs]
    differing = [pair for pair in pairs if _differs(*pair)]
    if not differing:
        yield message("decisions: all {n:,} alike", n=len(pairs))
        return
    yield message("decisions: {n:,} of {total:,} differ", n=len(differing), total=len(pairs))
    yield from _listed(differing)


def _other_version(replay: Replay) -> Iterator[str]:
    other = replay.other_version
    if other is None:
        return
    yield ""
    if other.first_difference is None:
        yield message("{version}: within 5 % of this version at every sample", version=other.version)
    else:
        when, what = other.first_difference
        yield message(
            "{version}: first differs from this version at {when}: {what}",
            version=other.version,
            when=clock(when),
            what=recognized(what),
        )
    pairs = [(pair.this, pair.other) for pair in other.pairs]
    differing = [pair for pair in pairs if _differs(*pair)]
    yield message(
        "{version}: {n:,} of {total:,} decisions differ", version=other.version, n=len(differing), total=len(pairs)
    )
    yield from _listed(differing)


def _dry_run(replay: Replay) -> Iterator[str]:
    if replay.dry_run is None:
        return
    pairs = [(pair.recorded, pair.replayed) for pair in replay.dry_run.pairs]
    differing = [pair for pair in pairs if _differs(*pair)]
    yield ""
    yield message(
        "dry run: {n:,} of {total:,} decisions differ from the recorded ones", n=len(differing), total=len(pairs)
    )
    yield from _listed(differing)


def _listed(differing: Sequence[tuple[ScalingDecision | None, ScalingDecision | None]]) -> Iterator[str]:
    for first, second in differing[:MAX_DECISIONS]:
        yield f"  {_decision(first):<44}  {_decision(second)}".rstrip()
    if len(differing) > MAX_DECISIONS:
        yield message("  and {n:,} more; -o json has all", n=len(differing) - MAX_DECISIONS)


def _differs(first: ScalingDecision | None, second: ScalingDecision | None) -> bool:
    if first is None or second is None:
        return True
    return (first.instance_type, first.capacity_type) != (second.instance_type, second.capacity_type)


def _decision(decision: ScalingDecision | None) -> str:
    if decision is None:
        return "-"
    where = f" {decision.zone}" if decision.zone else ""
    why = f" ({decision.reason})" if decision.reason else ""
    return f"{clock(decision.at)} {decision.action} {decision.instance_type}{where}{why}"


def chart(replay: Replay) -> str:
    """Price, nodes and pending pods over time, recorded and replayed, as one SVG."""
    hours = max(replay.recorded.seconds, replay.replayed.seconds, 1.0) / 3600.0
    before, after = message("recorded"), message("replayed")
    parts = []
    for label, field, unit in (
        (message("cost per hour"), "rate", "$"),
        (message("nodes"), "nodes", ""),
        (message("pending pods"), "pending", ""),
    ):
        series = [
            svg.ChartLine(
                name, colour, [(sample.at / 3600.0, float(getattr(sample, field))) for sample in timeline.samples]
            )
            for name, colour, timeline in ((before, "recorded", replay.recorded), (after, "replayed", replay.replayed))
        ]
        bounds = [(sample.at / 3600.0, sample.bound) for sample in replay.recorded.samples if sample.bound is not None]
        if field == "rate" and bounds:
            series.append(svg.ChartLine(message("lower bound"), "bound", bounds))
        parts.append(svg.lines(label, series, hours, unit))
    height = svg.HEIGHT * len(parts)
    placed = "".join(
        part.replace("<svg ", f'<svg x="0" y="{number * svg.HEIGHT}" width="{svg.WIDTH}" height="{svg.HEIGHT}" ', 1)
        for number, part in enumerate(parts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {svg.WIDTH} {height}" width="{svg.WIDTH}" '
        f'height="{height}">{_STYLE}{placed}</svg>\n'
    )


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def _cost(timeline: Timeline) -> str:
    if timeline.lower_bound:
        return f"{_dollars(timeline.dollars)} ({timeline.dollars / timeline.lower_bound - 1.0:+.0%})"
    return _dollars(timeline.dollars)


def _dollars(amount: float | None) -> str:
    return "-" if amount is None else f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"


def _seconds(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.1f} s"


def _most_nodes(timeline: Timeline) -> str:
    return f"{max((sample.nodes for sample in timeline.samples), default=0):,}"
