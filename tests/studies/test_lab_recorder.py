"""A scenario that is recorded while it runs."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.offline.recording import read

SCENARIO = """
name: a minute of two nodes
duration: 60s
seed: 3
cluster: {pools: [{count: 2, type: m5.large, zones: [us-east-1a]}]}
"""


def test_the_same_run_is_recorded_with_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    files = [tmp_path / "first.dvrec", tmp_path / "second.dvrec"]
    for file in files:
        outcome = CliRunner().invoke(main, ["simulate", str(tmp_path / "scenario.yaml"), "--record", str(file)])
        assert outcome.exit_code == 0, outcome.output
    recording = read(files[0])
    nodes = [source for source in recording.objects_at(recording.end) if source["kind"] == "Node"]
    assert len(nodes) == 2 and recording.closed
    assert files[0].read_bytes() == files[1].read_bytes()
    refused = CliRunner().invoke(main, ["simulate", str(tmp_path / "scenario.yaml"), "--record", str(files[0])])
    assert refused.exit_code != 0 and "exists" in refused.output
