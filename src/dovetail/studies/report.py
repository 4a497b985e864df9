"""A comparison as a table, as Markdown and as a page of HTML that needs nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from dovetail.offline.diff.report_text import duration
from dovetail.studies import svg, texts
from dovetail.studies.findings import Side, StudyFinding, between_autoscalers, effects, of_autoscaler
from dovetail.studies.html import document
from dovetail.studies.observation import WAITED_S
from dovetail.studies.run import Run
from dovetail.studies.setups import TITLES, NodeAutoscaler, Setup, by_pods, variant
from dovetail.studies.summary import MIN_DIFFERENCE_OF_ONE_SEED, Row, pods_differ, rows
from dovetail.studies.texts import COLUMNS, text, text_in
from dovetail.studies.workloads.workload import Workload

_CLASSES = {
    NodeAutoscaler.CLUSTER_AUTOSCALER: "ca",
    NodeAutoscaler.KARPENTER: "karpenter",
    NodeAutoscaler.DOVETAIL: "dovetail",
}


class StudyComparison(msgspec.Struct, frozen=True):
    """What a report is made of. `command` is how to get it again."""

    workload: Workload
    runs: tuple[Run, ...]
    command: str

    @property
    def rows(self) -> list[Row]:
        return rows(self.runs)

    def to_json(self) -> bytes:
        """Everything, for other programs."""
        table = self.rows
        by_setup = {row.setup: row for row in table}
        findings = [*between_autoscalers(table), *effects(table)]
        document = {
            "workload": self.workload.name,
            "command": self.command,
            "setups": [{"setup": row.setup.name, "title": row.setup.title, "figures": row.figures} for row in table],
            "findings": [
                {
                    "setup": finding.about.name,
                    "side": finding.side,
                    "measure": finding.measure,
                    "against": [setup.name for setup in finding.others],
                    "en": texts.sentence(finding, by_setup, "en"),
                    "ko": texts.sentence(finding, by_setup, "ko"),
                }
                for finding in findings
            ],
            "runs": self.runs,
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2)


class Report:
    """A comparison in one language."""

    def __init__(self, comparison: StudyComparison, language: str) -> None:
        self._comparison = comparison
        self._language = language
        self._rows = comparison.rows
        self._by_setup: Mapping[Setup, Row] = {row.setup: row for row in self._rows}
        self._findings = between_autoscalers(self._rows)
        self._effects = effects(self._rows)

    # -- parts

    def _text(self, key: str, **values: object) -> str:
        return text(key, self._language, **values)

    def title(self) -> str:
        return self._text("title", workload=texts.title(self._comparison.workload.title, self._language))

    def lead(self) -> str:
        run, workload = self._comparison.runs[0], self._comparison.workload
        seeds = len({run.seed for run in self._comparison.runs})
        spread = (
            self._text("one_seed", least=f"{100 * MIN_DIFFERENCE_OF_ONE_SEED:.0f}")
            if seeds == 1
            else self._text("seeds", count=seeds)
        )
        whole = run.seconds % 3600 == 0
        hours = self._text("hours", count=f"{run.seconds / 3600:g}") if whole else duration(run.seconds)
        return self._text("lead", hours=hours, count=len(self._rows), seeds=spread, region=workload.part.region)

    def short(self) -> list[str]:
        """One sentence on cost for each way that pods are changed, and one where the pods are not the same."""
        sentences = []
        for setups in by_pods(self._by_setup).values():
            sentences.append(self._ratios(setups) if self._pods_differ(setups) else self._cheapest(setups))
        return sentences

    def _pods_differ(self, setups: Sequence[Setup]) -> bool:
        return pods_differ([self._by_setup[setup] for setup in setups])

    def _ratios(self, setups: Sequence[Setup]) -> str:
        """Set-ups whose pods request unlike amounts: cost for what these pods must cost, closest first."""
        ordered = sorted((self._by_setup[setup] for setup in setups), key=lambda row: row["cost_ratio"].median)
        ratios = ", ".join(
            self._text(
                "ratio",
                name=TITLES[row.setup.nodes],
                ratio=texts.times(row["cost_ratio"]),
                own=texts.dollars(row["dollars"]),
                bound=texts.dollars(row["lower_bound"]),
            )
            for row in ordered
        )
        evictions = ", ".join(f"{TITLES[row.setup.nodes]} {texts.count(row['evictions'])}" for row in ordered)
        key = "requests_differ" if setups[0].vpa else "pods_differ"
        return self._text(key, variant=self._variant(setups[0]), ratios=ratios, evictions=evictions)

    def _cheapest(self, setups: Sequence[Setup]) -> str:
        ordered = sorted((self._by_setup[setup] for setup in setups), key=lambda row: row["dollars"].median)
        best, pods_changed = ordered[0], self._variant(setups[0])

        def shown(group: Sequence[Row]) -> str:
            return ", ".join(
                f"{TITLES[row.setup.nodes]} {texts.dollars(row['dollars'])}"
                + (f" ({texts.change(row['dollars'], best['dollars'])})" if row is not best else "")
                for row in group
            )

        above = texts.share(best["above_bound"]) if "above_bound" in best.figures else "–"
        if len(ordered) > 1 and not best["dollars"].below(ordered[1]["dollars"]):
            if best["dollars"].seeds == 1:
                least = f"{100 * MIN_DIFFERENCE_OF_ONE_SEED:.0f}"
                return self._text("no_cheapest_of_one_seed", variant=pods_changed, least=least, others=shown(ordered))
            return self._text("no_cheapest", variant=pods_changed, others=shown(ordered))
        return self._text(
            "cheapest" if len(ordered) > 1 else "only",
            name=TITLES[best.setup.nodes],
            variant=pods_changed,
            own=texts.dollars(best["dollars"]),
            above=above,
            bound=texts.dollars(best["lower_bound"]),
            others=shown(ordered[1:]),
        )

    def _variant(self, setup: Setup) -> str:
        return (self._text("for_hpa") if setup.hpa else "") + (self._text("for_vpa") if setup.vpa else "")

    def sentences(self, nodes: NodeAutoscaler, side: Side) -> list[str]:
        """What speaks for or against a node autoscaler; the set-up is named where it has HPA or VPA."""
        return [self._sentence(finding) for finding in of_autoscaler(self._findings, nodes, side)]

    def _sentence(self, finding: StudyFinding) -> str:
        said = texts.sentence(finding, self._by_setup, self._language)
        pod_autoscalers = variant(finding.about.pods).removeprefix(" + ")
        if pod_autoscalers:
            said = self._text("finding_with", pod_autoscalers=pod_autoscalers, finding=said)
        return said[:1].upper() + said[1:]

    def effects(self) -> list[str]:
        return [texts.sentence(effect, self._by_setup, self._language) for effect in self._effects]

    def method(self) -> list[str]:
        workload = self._comparison.workload
        groups: dict[str, int] = {}
        for group in workload.groups:
            kind = f"{group.instance_type} ({group.capacity_type}, {group.min_size}–{group.max_size})"
            groups[kind] = groups.get(kind, 0) + 1
        boot = workload.part.market.get("boot", (25, 35))
        pools = ", ".join(str(item["metadata"]["name"]) for item in workload.node_pools())
        return [
            self._text("method_1", boot=f"{boot[0]:g}–{boot[1]:g}"),
            self._text("method_2", groups=", ".join(f"{number} × {kind}" for kind, number in groups.items())),
            self._text("method_3", pools=pools),
            self._text("method_4"),
            *sorted({f"{run.setup.title}: {problem}" for run in self._comparison.runs for problem in run.problems}),
        ]

    def charts(self) -> list[str]:
        groups = by_pods(self._by_setup)
        return [
            self._cost_chart(),
            *(self._rate_chart(setups) for setups in groups.values()),
            self._ready_chart(),
            self._eviction_chart(),
        ]

    def _cost_chart(self) -> str:
        groups = []
        for setups in by_pods(self._by_setup).values():
            costs = [
                self._bar(setup, "dollars")._replace(mark=self._by_setup[setup]["lower_bound"].median)
                for setup in setups
            ]
            groups.append(svg.BarGroup(self._group_label(setups[0]), costs))
        return svg.bars(self._text("chart_cost"), groups, self._legend(), "$", self._text("bound"))

    def _group_label(self, setup: Setup) -> str:
        return self._variant(setup).strip() or self._text("unchanged")

    def _bar(self, setup: Setup, measure: str) -> svg.Bar:
        figure = self._by_setup[setup][measure]
        shown = texts.FORMATS.get(measure, texts.count)(figure)
        colour = _CLASSES[setup.nodes] + (" pale" if measure == "ready_p50" else "")
        return svg.Bar(figure.median, colour, f"{setup.title}: {shown}")

    def _rate_chart(self, setups: Sequence[Setup]) -> str:
        series = []
        for setup in setups:
            run = self._by_setup[setup].typical
            points = [(sample.at / 3600.0, sample.rate) for sample in run.samples]
            series.append(svg.ChartLine(TITLES[setup.nodes], _CLASSES[setup.nodes], points))
        bounded = setups if self._pods_differ(setups) else setups[-1:]
        for setup in bounded:
            run = self._by_setup[setup].typical
            colour = f"bound {_CLASSES[setup.nodes]}" if len(bounded) > 1 else "bound"
            bound = [(sample.at / 3600.0, sample.bound) for sample in run.samples]
            series.append(svg.ChartLine(self._text("bound"), colour, bound))
        title = self._text("chart_rate", variant=self._variant(setups[0]))
        return svg.lines(title, series, run.seconds / 3600.0, "$")

    def _ready_chart(self) -> str:
        groups = []
        for setups in by_pods(self._by_setup).values():
            bars = [
                self._bar(setup, measure)
                for measure in ("ready_p50", "ready_p99")
                for setup in setups
                if measure in self._by_setup[setup].figures
            ]
            groups.append(svg.BarGroup(self._group_label(setups[0]), bars))
        return svg.bars(self._text("chart_ready"), groups, self._legend())

    def _eviction_chart(self) -> str:
        groups = [
            svg.BarGroup(self._group_label(setups[0]), [self._bar(setup, "evictions") for setup in setups])
            for setups in by_pods(self._by_setup).values()
        ]
        return svg.bars(self._text("chart_evictions"), groups, self._legend())

    def _legend(self) -> list[tuple[str, str]]:
        return [(TITLES[nodes], _CLASSES[nodes]) for nodes in self._autoscalers()]

    # -- wholes

    def table(self) -> str:
        """For a terminal: columns aligned, also where characters are two cells wide."""
        header = [text_in(name, self._language) for _, name in COLUMNS]
        lines = [header, *(texts.cells(row) for row in self._rows)]
        widths = [max(_cells_wide(line[place]) for line in lines) for place in range(len(header))]
        shown = []
        for number, line in enumerate(lines):
            if number > 1 and self._rows[number - 1].setup.pods != self._rows[number - 2].setup.pods:
                shown.append("")
            cells = [
                cell + " " * (width - _cells_wide(cell)) if place == 0 else " " * (width - _cells_wide(cell)) + cell
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            shown.append("  ".join(cells).rstrip())
        return "\n".join(shown)

    def markdown(self) -> str:
        parts = [
            f"# {self.title()}",
            self.lead(),
            f"## {self._text('short')}",
            *(f"- {sentence}" for sentence in self.short()),
        ]
        header = [text_in(name, self._language) for _, name in COLUMNS]
        table = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        table += ["| " + " | ".join(texts.cells(row)) + " |" for row in self._rows]
        parts += [f"## {self._text('figures')}", "\n".join(table), self._text("table_note", waited=f"{WAITED_S:g}")]
        parts.append(f"## {self._text('autoscalers')}")
        for nodes in self._autoscalers():
            parts.append(f"### {TITLES[nodes]}")
            for side, name in ((Side.ADVANTAGE, "advantages"), (Side.DISADVANTAGE, "disadvantages")):
                said = self.sentences(nodes, side) or [self._text("no_finding")]
                parts.append(f"**{self._text(name)}**\n\n" + "\n".join(f"- {sentence}" for sentence in said))
        if self._effects:
            parts.append(f"## {self._text('effects')}\n\n" + "\n".join(f"- {effect}" for effect in self.effects()))
        parts.append(f"## {self._text('method')}\n\n" + "\n".join(f"- {sentence}" for sentence in self.method()))
        parts.append(self._text("again", command=f"`{self._comparison.command}`"))
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        short = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.short())
        figures = "".join(f"<figure>{chart}</figure>" for chart in self.charts())
        cards = "".join(self._card(nodes) for nodes in self._autoscalers())
        changed = "".join(f"<li>{escape(effect)}</li>" for effect in self.effects())
        method = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.method())
        again = self._text("again", command="\0").partition("\0")
        body = (
            f"<h1>{escape(self.title())}</h1>"
            f'<p class="lead">{escape(self.lead())}</p><div class="short">{short}</div>'
            f"<h2>{self._text('figures')}</h2>{self._html_table()}"
            f'<p class="note">{escape(self._text("table_note", waited=f"{WAITED_S:g}"))}</p>'
            f'<h2>{self._text("charts")}</h2><div class="charts">{figures}</div>'
            f'<h2>{self._text("autoscalers")}</h2><div class="cards">{cards}</div>'
            + (f'<h2>{self._text("effects")}</h2><ul class="effects">{changed}</ul>' if changed else "")
            + f"<h2>{self._text('method')}</h2><ul>{method}</ul>"
            f"<p>{escape(again[0])}<code>{escape(self._comparison.command)}</code>{escape(again[2])}</p>"
        )
        return document(self._language, self.title(), body)

    def _html_table(self) -> str:
        header = "".join(f"<th>{escape(text_in(name, self._language))}</th>" for _, name in COLUMNS)
        body, before = [], None
        for row in self._rows:
            name, *cells = texts.cells(row)
            dot = f'<span class="dot" style="background:var(--{_CLASSES[row.setup.nodes]})"></span>'
            first = ' class="first"' if before is not None and before != row.setup.pods else ""
            before = row.setup.pods
            rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            body.append(f"<tr{first}><td>{dot}{escape(name)}</td>{rest}</tr>")
        return f'<div class="wide"><table><thead><tr>{header}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'

    def _card(self, nodes: NodeAutoscaler) -> str:
        parts = [f'<div class="card" style="border-color:var(--{_CLASSES[nodes]})"><h3>{TITLES[nodes]}</h3>']
        for side, name in ((Side.ADVANTAGE, "advantages"), (Side.DISADVANTAGE, "disadvantages")):
            said = self.sentences(nodes, side)
            listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
            shown = f"<ul>{listed}</ul>" if said else f'<p class="note">{escape(self._text("no_finding"))}</p>'
            parts.append(f"<h4>{escape(self._text(name))}</h4>{shown}")
        return "".join(parts) + "</div>"

    def _autoscalers(self) -> list[NodeAutoscaler]:
        return list(dict.fromkeys(row.setup.nodes for row in self._rows))


def _cells_wide(text_: str) -> int:
    """How many cells of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text_)
