"""A replay as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dovetail.language import message
from dovetail.language.columns import width_of
from dovetail.language.recognition import recognized
from dovetail.offline.timeline import ScalingDecision, Timeline
from dovetail.studies import svg
from dovetail.studies.recorded.replay import Pair, Replay

#: Decisions that the text shows at most; all are in the JSON.
MAX_DECISIONS = 20
_STYLE = """<style>svg{background:#fff}text{font:12px system-ui,sans-serif;fill:#5b6675}
.title{font-weight:600;fill:#1c2430}.scale{text-anchor:end}.tick{text-anchor:middle}.grid{stroke:#d8dee6}
path,line{fill:none;stroke-width:2.2}.recorded{stroke:#c2762b}.replayed{stroke:#1d8f6a}
.bound{stroke:#1c2430;stroke-dasharray:5 3}</style>"""


class ReplayRow(NamedTuple):
    label: str
    recorded: str
    replayed: str


def text(replay: Replay) -> Iterator[str]:
    """The report, line by line."""
    hours = replay.recorded.seconds / 3600.0
    yield message(
        "{name}: {hours:.2f} h, replayed with {autoscaler}", name=replay.name, hours=hours, autoscaler=title(replay)
    )
    yield ""
    rows = [ReplayRow("", message("recorded"), message("replayed")), *figures(replay)]
    widths = [max(width_of(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = [row.label + " " * (widths[0] - width_of(row.label))]
        cells += [" " * (widths[column] - width_of(row[column])) + row[column] for column in (1, 2)]
        yield "  ".join(cells).rstrip()
    yield ""
    yield difference(replay)
    yield from _decisions(replay)
    for timeline, side in ((replay.recorded, message("recorded")), (replay.replayed, message("replayed"))):
        if timeline.unpriced:
            yield message(
                "{side}: no price is known for {types}; they count as nothing",
                side=side,
                types=", ".join(timeline.unpriced),
            )


def title(replay: Replay) -> str:
    return message("the recorded nodes") if replay.autoscaler == "none" else replay.autoscaler


def figures(replay: Replay) -> list[ReplayRow]:
    before, after = replay.recorded, replay.replayed
    return [
        ReplayRow(message("cost"), _cost(before), _cost(after)),
        ReplayRow(message("lower bound"), _dollars(before.lower_bound), _dollars(after.lower_bound)),
        ReplayRow(message("most nodes"), _most_nodes(before), _most_nodes(after)),
        ReplayRow(message("nodes launched"), f"{before.launched:,}", f"{after.launched:,}"),
        ReplayRow(message("nodes removed"), f"{before.removed:,}", f"{after.removed:,}"),
        ReplayRow(message("pods created"), f"{before.pods:,}", f"{after.pods:,}"),
        ReplayRow(message("pending, 50 %"), _seconds(before.pending_p50), _seconds(after.pending_p50)),
        ReplayRow(message("pending, 90 %"), _seconds(before.pending_p90), _seconds(after.pending_p90)),
        ReplayRow(message("pending, 99 %"), _seconds(before.pending_p99), _seconds(after.pending_p99)),
        ReplayRow(message("pending at the end"), f"{before.never_bound:,}", f"{after.never_bound:,}"),
        ReplayRow(message("evictions"), f"{before.evictions:,}", f"{after.evictions:,}"),
        ReplayRow(message("capacity errors"), f"{before.capacity_errors:,}", f"{after.capacity_errors:,}"),
    ]


def difference(replay: Replay) -> str:
    if replay.first_difference is None:
        return message("no difference: nodes, price and pending pods are within 5 % at every sample")
    when, what = replay.first_difference
    return message("first difference at {when}: {what}", when=clock(when), what=recognized(what))


def _decisions(replay: Replay) -> Iterator[str]:
    differing = [pair for pair in replay.pairs if _differs(pair)]
    if not differing:
        yield message("decisions: all {n:,} alike", n=len(replay.pairs))
        return
    yield message("decisions: {n:,} of {total:,} differ", n=len(differing), total=len(replay.pairs))
    for pair in differing[:MAX_DECISIONS]:
        yield f"  {_decision(pair.recorded):<44}  {_decision(pair.replayed)}".rstrip()
    if len(differing) > MAX_DECISIONS:
        yield message("  and {n:,} more; -o json has all", n=len(differing) - MAX_DECISIONS)


def _differs(pair: Pair) -> bool:
    recorded, replayed = pair.recorded, pair.replayed
    if recorded is None or replayed is None:
        return True
    return (recorded.instance_type, recorded.capacity_type) != (replayed.instance_type, replayed.capacity_type)


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
