"""The page of a simulated scenario: its charts draw the outcome's samples."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.lab.scenario.runner import ScenarioOutcome, SummaryRow
from dovetail.language import in_language
from dovetail.studies import scenario_report, svg

SCENARIO = """
name: a <minute> of two nodes
duration: 60s
seed: 3
cluster: {pools: [{count: 2, type: m5.large, zones: [us-east-1a]}]}
"""


ROWS = [
    SummaryRow(at=0.0, nodes=1, nodes_ready=0, pods=10, running=0, ready=0, pending=10, failed=0),
    SummaryRow(at=1800.0, nodes=4, nodes_ready=4, pods=10, running=10, ready=10, pending=0, failed=0),
]


def outcome(problems: list[str]) -> ScenarioOutcome:
    return ScenarioOutcome(
        "burst", 7, 3600.0, ROWS, {"instances launched": 3, "pods created": 10}, {}, problems, 120.0, 1.5
    )


def test_a_chart_has_a_step_where_the_samples_change() -> None:
    nodes, pods = scenario_report.charts(ROWS, 3600.0)
    middle = svg.LEFT + (svg.WIDTH - svg.LEFT - svg.RIGHT) / 2
    (path,) = re.findall(r'class="all" d="([^"]*)"', nodes)
    first, second = re.fullmatch(rf"M\d+\.\d (\d+\.\d)H{middle:.1f}V(\d+\.\d)H\d+", path).groups()
    assert float(first) > float(second), "four nodes are drawn above one"
    assert pods.count("<path") == 3


def test_the_page_says_what_went_wrong_and_escapes_it() -> None:
    shown = scenario_report.html(outcome(["pod <b> stayed pending"]), ROWS, "dovetail simulate burst.yaml")
    assert "pod &lt;b&gt; stayed pending" in shown and "Everything went" not in shown
    assert "$1.50" in shown and "dovetail simulate burst.yaml" in shown
    with in_language("ko"):
        korean = scenario_report.html(outcome([]), ROWS, "dovetail simulate burst.yaml")
    assert '<html lang="ko">' in korean and "시작한 노드" in korean and "Everything" not in korean


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    page, logs = tmp_path / "report.html", [tmp_path / "with.log", tmp_path / "without.log"]
    for log, more in zip(logs, ([f"--report={page}"], []), strict=True):
        called = CliRunner().invoke(main, ["simulate", str(tmp_path / "scenario.yaml"), f"--log={log}", *more])
        assert called.exit_code == 0, called.output
    assert logs[0].read_bytes() == logs[1].read_bytes(), "sampling changes nothing of the run"
    assert "<h1>a &lt;minute&gt; of two nodes</h1>" in page.read_text() and page.read_text().count("<svg") == 2
    refused = CliRunner().invoke(
        main, ["simulate", str(tmp_path / "scenario.yaml"), "--report", str(tmp_path / "no/x")]
    )
    assert refused.exit_code != 0 and "--report" in refused.output
