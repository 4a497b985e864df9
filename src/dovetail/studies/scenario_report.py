"""The outcome of a scenario as a page with charts: nodes and pods over time, totals, and what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from html import escape

from dovetail.lab.cluster import Lab
from dovetail.lab.scenario.runner import ScenarioOutcome, SummaryRow, row_of
from dovetail.language import current, message, source
from dovetail.language.recognition import recognized
from dovetail.studies import svg
from dovetail.studies.html import document

#: Samples of a chart: as many as it has pixels to tell them apart, nearly.
SAMPLES = 300
_TOTALS = {
    "disruptions": source("nodes disrupted"),
    "evictions": source("evictions"),
    "instances launched": source("nodes launched"),
    "instances terminated": source("nodes removed"),
    "pods created": source("pods created"),
    "pods gone": source("pods that ended"),
}


class Samples:
    """The cluster at even intervals; `run` is an extra of a scenario's player. It only reads."""

    def __init__(self, seconds: float) -> None:
        self._interval_s = seconds / SAMPLES
        self.rows: list[SummaryRow] = []

    async def run(self, lab: Lab) -> None:
        began = lab.clock.monotonic()
        while True:
            self.rows.append(row_of(lab, lab.clock.monotonic() - began))
            await asyncio.sleep(self._interval_s)


def html(outcome: ScenarioOutcome, samples: Sequence[SummaryRow], command: str) -> str:
    """In the language of the command; `command` is how to get the page again."""
    title = outcome.name or message("A scenario")
    lead = message("{hours:g} h in virtual time, seed {seed}", hours=outcome.seconds / 3600.0, seed=outcome.seed)
    figures = "".join(f"<figure>{chart}</figure>" for chart in charts(samples, outcome.seconds))
    verdict = "".join(f"<p>{escape(line)}</p>" for line in _verdict(outcome))
    body = (
        f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p><div class="short">{verdict}</div>'
        f'<h2>{escape(message("Over time"))}</h2><div class="charts">{figures}</div>'
        f"<h2>{escape(message('Figures'))}</h2>{_table(outcome)}"
        f"<p><code>{escape(command)}</code></p>"
    )
    return document(current(), title, body)


def charts(samples: Sequence[SummaryRow], seconds: float) -> list[str]:
    """Nodes and pods at every sample. A sample holds until the next one."""
    hours = max(seconds, 1.0) / 3600.0
    nodes = [
        _line(samples, message("nodes"), "all", lambda row: row.nodes),
        _line(samples, message("ready nodes"), "ready", lambda row: row.nodes_ready),
    ]
    pods = [
        _line(samples, message("pods"), "all", lambda row: row.pods),
        _line(samples, message("ready pods"), "ready", lambda row: row.ready),
        _line(samples, message("pending pods"), "pending", lambda row: row.pending),
    ]
    return [svg.lines(message("Nodes"), nodes, hours), svg.lines(message("Pods"), pods, hours)]


def _line(samples: Sequence[SummaryRow], label: str, colour: str, value: Callable[[SummaryRow], int]) -> svg.ChartLine:
    return svg.ChartLine(label, colour, [(row.at / 3600.0, float(value(row))) for row in samples])


def _verdict(outcome: ScenarioOutcome) -> Iterator[str]:
    if not outcome.problems:
        yield message("Everything went as the scenario expects.")
    for problem in outcome.problems:
        yield message("problem: {problem}", problem=recognized(problem))


def _table(outcome: ScenarioOutcome) -> str:
    rows = [(message(_TOTALS[name]) if name in _TOTALS else name, f"{n:,}") for name, n in outcome.totals.items()]
    rows.append((message("seconds that pods were pending"), f"{outcome.pods_pending_seconds:,.0f}"))
    if outcome.dollars is not None:
        rows.append((message("dollars spent"), f"${outcome.dollars:,.2f}"))
    body = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<div class="wide"><table><tbody>{body}</tbody></table></div>'
