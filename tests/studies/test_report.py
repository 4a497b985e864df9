"""The report: no sentence without a figure, none about a difference inside the spread, the same in two languages."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from dovetail.language import LANGUAGES
from dovetail.studies import texts
from dovetail.studies.findings import Side, between_autoscalers, effects
from dovetail.studies.observation import StudySample
from dovetail.studies.report import Report, StudyComparison
from dovetail.studies.run import Measures, Run
from dovetail.studies.setups import NodeAutoscaler, Setup, UnknownSetup, parse
from dovetail.studies.summary import figure, rows
from dovetail.studies.workloads.built_in import BUILT_IN, build
from dovetail.studies.workloads.workload import check_groups

CA, KARPENTER, DOVETAIL = (Setup(nodes) for nodes in NodeAutoscaler)


def run(setup: Setup, seed: int = 1, **changes: float) -> Run:
    measures = Measures(
        dollars=10.0,
        lower_bound=8.0,
        cpu_utilisation=0.7,
        memory_utilisation=0.6,
        ready_p50=40.0,
        ready_p99=60.0,
        pods=100,
        pods_waited=50,
        pods_never_ready=0,
        pending_hours=1.0,
        evictions=10,
        nodes_launched=12,
        nodes_removed=8,
        most_nodes=9,
        api_calls=1000,
        cloud_calls=100,
    )
    samples = (StudySample(0.0, 0, 0.0, 0.0, 0, 0, 0.0, 0.0), StudySample(1800.0, 9, 2.0, 1.6, 100, 0, 0.7, 0.6))
    changed = msgspec.structs.replace(measures, **changes)
    return Run(workload="web", setup=setup, seed=seed, seconds=3600.0, measures=changed, samples=samples)


def comparison(*runs: Run) -> StudyComparison:
    return StudyComparison(build("web", 1), runs, "dovetail compare web")


def test_a_difference_inside_the_spread_is_not_a_finding() -> None:
    """Seeds overlap: 9 to 12 dollars against 11 to 13. A median of 10 against 12 says nothing."""
    overlapping = [run(CA, seed, dollars=cost) for seed, cost in enumerate((9.0, 10.0, 12.0))]
    overlapping += [run(DOVETAIL, seed, dollars=cost) for seed, cost in enumerate((11.0, 12.0, 13.0))]
    assert not [each for each in between_autoscalers(rows(overlapping)) if each.measure == "dollars"]
    apart = [run(CA, seed, dollars=cost) for seed, cost in enumerate((9.0, 10.0, 10.9))]
    apart += [run(DOVETAIL, seed, dollars=cost) for seed, cost in enumerate((11.0, 12.0, 13.0))]
    found = [each for each in between_autoscalers(rows(apart)) if each.measure == "dollars"]
    assert [(each.about, each.side) for each in found] == [(CA, Side.ADVANTAGE), (DOVETAIL, Side.DISADVANTAGE)]


def test_with_one_seed_a_small_difference_is_not_a_finding() -> None:
    near = rows([run(CA, dollars=10.3), run(DOVETAIL, dollars=10.0)])
    assert not [each for each in between_autoscalers(near) if each.measure == "dollars"]
    far = rows([run(CA, dollars=11.0), run(DOVETAIL, dollars=10.0)])
    assert [each.about for each in between_autoscalers(far) if each.measure == "dollars"] == [DOVETAIL, CA]


def test_medians_carry_their_spread() -> None:
    assert texts.dollars(figure([3.0, 1.0, 2.0])) == "$2.00 (1.00–3.00)"
    assert texts.dollars(figure([2.0])) == "$2.00"
    assert texts.dollars(figure([2.0, 2.0])) == "$2.00"


def test_a_difference_of_less_than_a_cent_is_visible() -> None:
    assert [texts.dollars(figure([amount])) for amount in (0.0312, 0.0279, 1234.5)] == [
        "$0.0312",
        "$0.0279",
        "$1,234.50",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_pods_that_differ_under_vpa_are_named_with_their_bounds(language: str) -> None:
    """Who evicts more has the smaller pods: its cost is not that of better packing, and no bar lies below its bound."""
    apart = [
        run(Setup(NodeAutoscaler.KARPENTER, vpa=True), dollars=9.0, lower_bound=7.5, evictions=180),
        run(Setup(NodeAutoscaler.DOVETAIL, vpa=True), dollars=15.0, lower_bound=12.5, evictions=26),
    ]
    report = Report(comparison(*apart), language)
    (sentence,) = report.short()
    assert all(text in sentence for text in ("1.20×", "$7.50", "$12.50", "180", "26"))
    chart = report.charts()[0]
    marks = re.findall(r'class="bound" x1="[0-9.]+" x2="[0-9.]+" y1="([0-9.]+)"', chart)[:2]
    tops = re.findall(r'<rect class="[a-z]+" x="[0-9.]+" y="([0-9.]+)"', chart)
    assert len(marks) == len(tops) == 2
    assert all(float(top) < float(mark) for top, mark in zip(tops, marks, strict=True))
    alike = [
        msgspec.structs.replace(outcome, measures=msgspec.structs.replace(outcome.measures, lower_bound=8.0))
        for outcome in apart
    ]
    (sentence,) = Report(comparison(*alike), language).short()
    assert "×" not in sentence


def test_dollars_of_unlike_pods_are_no_finding() -> None:
    """Smaller pods are not better packing: Karpenter pays half of Dovetail here, and more for its own pods."""
    runs = [
        run(Setup(NodeAutoscaler.KARPENTER, vpa=True), dollars=9.0, lower_bound=6.0, evictions=180),
        run(Setup(NodeAutoscaler.DOVETAIL, vpa=True), dollars=15.0, lower_bound=12.0, evictions=26),
    ]
    found = {(finding.measure, finding.about.nodes, finding.side) for finding in between_autoscalers(rows(runs))}
    assert {measure for measure, *_ in found} >= {"cost_ratio", "evictions"}
    assert "dollars" not in {measure for measure, *_ in found}
    assert ("cost_ratio", NodeAutoscaler.DOVETAIL, Side.ADVANTAGE) in found


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_has_its_figures(language: str) -> None:
    runs = [
        run(CA, dollars=14.0, ready_p99=95.0, evictions=0, most_nodes=12, api_calls=80, ready_p50=55.0),
        run(KARPENTER, dollars=12.0, evictions=40, nodes_launched=20, most_nodes=4, api_calls=300),
        run(DOVETAIL, cpu_utilisation=0.9, pods_waited=20, api_calls=900, ready_p50=38.0),
        run(Setup(NodeAutoscaler.DOVETAIL, hpa=True), dollars=6.0, pods_waited=90, evictions=30),
        run(Setup(NodeAutoscaler.DOVETAIL, vpa=True), dollars=7.0, evictions=80),
    ]
    table = rows(runs)
    found = [*between_autoscalers(table), *effects(table)]
    assert len(found) > 12
    by_setup = {row.setup: row for row in table}
    for finding in found:
        said = texts.sentence(finding, by_setup, language)
        assert len(re.findall(r"\d", said)) >= 2, said
        assert "{" not in said
    report = Report(comparison(*runs), language)
    assert all(re.search(r"\d", each) for each in report.short())
    assert len(report.short()) == 3
    assert report.table().count("\n") == 7  # a header, five set-ups, two gaps


class _Parts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "line", "rect", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_is_whole_and_needs_nothing_else(language: str) -> None:
    page = Report(comparison(run(CA, dollars=14.0), run(KARPENTER, dollars=12.0), run(DOVETAIL)), language).html()
    parts = _Parts()
    parts.feed(page)
    assert not parts.open
    assert not parts.addresses
    assert parts.names.count("svg") == 4
    assert f'lang="{language}"' in page
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)


def test_markdown_and_json_tell_the_same_findings() -> None:
    whole = comparison(run(CA, dollars=14.0), run(DOVETAIL))
    markdown = Report(whole, "en").markdown()
    document = msgspec.json.decode(whole.to_json())
    assert document["findings"]
    for finding in document["findings"]:
        said = finding["en"]
        assert said[:1].upper() + said[1:] in markdown
    assert "| Cluster Autoscaler | $14.00 |" in markdown


def test_a_comparison_of_one_set_up_claims_no_winner() -> None:
    said = Report(comparison(run(DOVETAIL)), "en").short()
    assert said == ["Dovetail costs $10.00, 25 % above the lower bound of $8.00."]


def test_the_title_of_a_workload_cannot_break_the_page() -> None:
    hostile = msgspec.structs.replace(build("web", 1), title={"en": "<script>x</script>", "ko": "x"})
    page = Report(StudyComparison(hostile, (run(DOVETAIL),), "dovetail compare '<b>'"), "en").html()
    assert "<script>" not in page
    assert "<b>" not in page


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_node_groups_of_a_built_in_workload_can_be_had(name: str) -> None:
    workload = build(name, 1)
    assert workload.groups
    assert workload.node_pools()
    check_groups(workload.groups, workload.types(), name)
    assert build(name, 1).fingerprint() == workload.fingerprint()
    assert build(name, 2).fingerprint() != workload.fingerprint()


def test_set_ups_are_named_as_they_are_parsed() -> None:
    for name in ("karpenter", "dovetail+hpa", "cluster-autoscaler+vpa", "dovetail+hpa+vpa"):
        assert parse(name).name == name
    with pytest.raises(UnknownSetup, match="karpentr"):
        parse("karpentr")
