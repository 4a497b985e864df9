"""Findings and page texts in English and Korean. Every sentence carries the figures it rests on.

Korean sentences put names before a colon, so that no particle depends on how a name ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.language import in_language, message, source, translated
from dovetail.studies.findings import Side, StudyFinding
from dovetail.studies.setups import TITLES, Setup
from dovetail.studies.summary import Figure, Row


def number(figure: Figure, form: str, unit: str = "", scale: float = 1.0) -> str:
    """A figure with its unit, and with the spread where there are several seeds."""
    text = f"{figure.median * scale:{form}}"
    if figure.seeds > 1 and f"{figure.low * scale:{form}}" != f"{figure.high * scale:{form}}":
        return f"{text}{unit} ({figure.low * scale:{form}}–{figure.high * scale:{form}})"
    return f"{text}{unit}"


def dollars(figure: Figure) -> str:
    """Less than a dollar in hundredths of a cent: a walk-through of minutes costs some cents, and so does its bound."""
    return "$" + number(figure, ",.2f" if figure.median >= 1 else ".4f")


def count(figure: Figure) -> str:
    return number(figure, ",.0f")


def share(figure: Figure) -> str:
    return number(figure, ".0f", " %", 100.0)


def seconds(figure: Figure) -> str:
    return number(figure, ".0f", " s")


def times(figure: Figure) -> str:
    return number(figure, ".2f", "×")


FORMATS: Mapping[str, Callable[[Figure], str]] = {
    "dollars": dollars,
    "cost_ratio": times,
    "lower_bound": dollars,
    "above_bound": share,
    "cpu_utilisation": share,
    "memory_utilisation": share,
    "ready_p50": seconds,
    "ready_p99": seconds,
}

_BEST: Mapping[str, str] = {
    "dollars": source("cheapest: {own}; {others}"),
    "cost_ratio": source("cheapest for its own pods: {own} their lower bound; {others}"),
    "ready_p50": source("quickest for the typical pod: half of the pods were ready within {own}; {others}"),
    "ready_p99": source("quickest for the slowest pods: 99 % were ready within {own}; {others}"),
    "pods_waited": source("fewest pods waited for a node: {own}; {others}"),
    "evictions": source("fewest evictions: {own}; {others}"),
    "nodes_launched": source("fewest nodes launched: {own}; {others}"),
    "cpu_utilisation": source("fullest nodes: pods request {own} of their CPU; {others}"),
    "api_calls": source("fewest requests to the Kubernetes API: {own}; {others}"),
    "most_nodes": source(
        "a lost node takes the smallest part of the pods with it: at its largest the fleet had {own} nodes; {others}"
    ),
}
_WORST: Mapping[str, str] = {
    "dollars": source("dearest: {own}; {others}"),
    "cost_ratio": source("dearest for its own pods: {own} their lower bound; {others}"),
    "ready_p50": source("slowest for the typical pod: half of the pods were ready only after {own}; {others}"),
    "ready_p99": source("slowest for the slowest pods: 99 % were ready only after {own}; {others}"),
    "pods_waited": source("most pods waited for a node: {own}; {others}"),
    "evictions": source("most evictions: {own}; {others}"),
    "nodes_launched": source("most nodes launched: {own}; {others}"),
    "cpu_utilisation": source("emptiest nodes: pods request {own} of their CPU; {others}"),
    "api_calls": source("most requests to the Kubernetes API: {own}; {others}"),
    "most_nodes": source(
        "a lost node takes the largest part of the pods with it: at its largest the fleet had {own} nodes; {others}"
    ),
}
_EFFECT: Mapping[tuple[str, Side], str] = {
    ("dollars", Side.ADVANTAGE): source("with {effect}, {name} costs {own} instead of {plain} ({change})"),
    ("dollars", Side.DISADVANTAGE): source("with {effect}, {name} costs {own} instead of {plain} ({change})"),
    ("pods_waited", Side.ADVANTAGE): source("with {effect}, {own} pods wait for a node of {name} instead of {plain}"),
    ("pods_waited", Side.DISADVANTAGE): source(
        "with {effect}, {own} pods wait for a node of {name} instead of {plain}: capacity follows the load"
    ),
    ("evictions", Side.ADVANTAGE): source("with {effect}, {name} has {own} evictions instead of {plain}"),
    ("evictions", Side.DISADVANTAGE): source("with {effect}, {name} has {own} evictions instead of {plain}"),
}


def sentence(finding: StudyFinding, rows: Mapping[Setup, Row], language: str) -> str:
    """A finding in words, without a name in front where the reader knows whom it is about."""
    shown = FORMATS.get(finding.measure, count)
    own = rows[finding.about][finding.measure]
    if finding.effect:
        plain = rows[finding.others[0]][finding.measure]
        text = text_in(
            _EFFECT[finding.measure, finding.side],
            language,
            effect=finding.effect.upper(),
            name=Setup(finding.about.nodes).title,
            own=shown(own),
            plain=shown(plain),
            change=change(own, plain),
        )
        return text[:1].upper() + text[1:]
    others = ", ".join(
        f"{TITLES[setup.nodes]} {shown(rows[setup][finding.measure])}{_against(finding.measure, rows[setup], own)}"
        for setup in finding.others
    )
    template = (_BEST if finding.side is Side.ADVANTAGE else _WORST)[finding.measure]
    return text_in(template, language, own=shown(own), others=others)


def change(own: Figure, other: Figure) -> str:
    """By how much a figure is above or below another one."""
    if not other.median:
        return "—"
    return f"{100.0 * (own.median / other.median - 1.0):+.0f} %"


def _against(measure: str, row: Row, own: Figure) -> str:
    return f" ({change(row[measure], own)})" if measure == "dollars" and own.median else ""


TEXTS: Mapping[str, str] = {
    "title": source("Node autoscalers compared: {workload}"),
    "lead": source(
        "{hours} of this workload were played on {count} set-ups in virtual time, with {seeds}, at the prices of "
        "{region}."
    ),
    "one_seed": source("one seed (differences below {least} % are not reported; --seeds 5 shows the spread)"),
    "seeds": source(
        "{count} seeds (medians, in brackets the least and the most; a difference is reported only where no seed "
        "contradicts it)"
    ),
    "short": source("In short"),
    "figures": source("Figures"),
    "charts": source("Charts"),
    "autoscalers": source("Advantages and disadvantages"),
    "advantages": source("Advantages"),
    "disadvantages": source("Disadvantages"),
    "effects": source("What HPA and VPA change"),
    "finding_with": source("with {pod_autoscalers}: {finding}"),
    "no_finding": source("No measure sets it apart in this run."),
    "method": source("How it was measured"),
    "cheapest": source("{name} is the cheapest{variant}: {own}, {above} above the lower bound of {bound}; {others}."),
    "only": source("{name} costs {own}{variant}, {above} above the lower bound of {bound}."),
    "no_cheapest": source("No set-up is the cheapest{variant} beyond the spread: {others}."),
    "no_cheapest_of_one_seed": source("No set-up is the cheapest{variant} by more than {least} %: {others}."),
    "requests_differ": source(
        "The dollars do not compare{variant}: a pod gets the requests that VPA recommends only when it is created anew, "
        "so more evictions ({evictions}) mean smaller pods. Cost for the lower bound of its own pods: {ratios}."
    ),
    "pods_differ": source(
        "The dollars do not compare{variant}: the set-ups ran unlike pods (evictions {evictions}). Cost for the lower "
        "bound of its own pods: {ratios}."
    ),
    "ratio": source("{name} {ratio} ({own} for {bound})"),
    "table_note": source(
        "Lower bound: no fleet that these NodePools allow can run these pods for less. Waited: bound more than "
        "{waited} s after creation. Ready: from creation to Ready, of half and of 99 % of the pods. CPU/mem used: what "
        "the pods request of the nodes' CPU and memory. Nodes: launched and removed. Calls: requests of the autoscaler."
    ),
    "method_1": source(
        "Every set-up gets the same pods, the same load and the same cluster: API server, kube-scheduler, "
        "workload controllers and kubelets of Dovetail's lab, in virtual time. Instances join after {boot} s."
    ),
    "method_2": source("Cluster Autoscaler runs with --balance-similar-node-groups on the node groups {groups}."),
    "method_3": source(
        "Karpenter is emulated: the decisions of version 1.15 (its scheduler, batching, emptiness, multi-node and "
        "single-node consolidation) with kube-scheduler placing the pods; launch, drain and termination are shared with "
        "Dovetail. Both have the NodePools {pools}."
    ),
    "method_4": source(
        "Costs are those of the instances from launch to termination. Requests are the autoscaler's own; watches "
        "count once."
    ),
    "again": source("Run it again: {command}"),
    "chart_cost": source("Cost and lower bound"),
    "chart_rate": source("Dollars an hour over time{variant}"),
    "chart_ready": source("Seconds until 50 % (pale) and 99 % of the pods are ready"),
    "chart_evictions": source("Evictions"),
    "bound": source("lower bound"),
    "unchanged": source("pods as they are"),
    "hours": source("{count} h"),
    "for_hpa": source(" with HPA"),
    "for_vpa": source(" with VPA"),
}
COLUMNS: tuple[tuple[str, str], ...] = (
    ("setup", source("set-up")),
    ("dollars", source("cost")),
    ("lower_bound", source("lower bound")),
    ("utilisation", source("CPU/mem used")),
    ("ready", source("ready 50/99 %")),
    ("pods_waited", source("waited")),
    ("evictions", source("evicted")),
    ("nodes", source("nodes +/−")),
    ("api_calls", source("API calls")),
    ("cloud_calls", source("cloud calls")),
)


def text(key: str, language: str, **facts: object) -> str:
    return text_in(TEXTS[key], language, **facts)


def title(name: str, language: str) -> str:
    """The title of a workload: ours has a translation, that of a scenario is its author's."""
    with in_language(language):
        return translated(name)


def text_in(template: str, language: str, **facts: object) -> str:
    """A text of this module in one of the languages: a report may be written in both."""
    with in_language(language):
        return message(template, **facts)


def cells(row: Row) -> list[str]:
    """A row of the table, in the order of COLUMNS."""
    bound = dollars(row["lower_bound"])
    if "above_bound" in row.figures:
        bound += f" ({100 * row['above_bound'].median:+.0f} %)"
    ready = "–"
    if "ready_p50" in row.figures and "ready_p99" in row.figures:
        ready = f"{row['ready_p50'].median:.0f}/{row['ready_p99'].median:.0f} s"
    return [
        row.setup.title,
        dollars(row["dollars"]),
        bound,
        f"{100 * row['cpu_utilisation'].median:.0f}/{100 * row['memory_utilisation'].median:.0f} %",
        ready,
        count(row["pods_waited"]),
        count(row["evictions"]),
        f"{row['nodes_launched'].median:.0f}/{row['nodes_removed'].median:.0f}",
        count(row["api_calls"]),
        count(row["cloud_calls"]),
    ]
