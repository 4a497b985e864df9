"""The default deadline of a plan is one range, wherever a user reads it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.planner.consolidate import search
from dovetail.planner.optimise import improve


@pytest.mark.parametrize("arguments, bounds", [((), improve), (("--consolidate",), search)])
def test_help_error_and_planner_have_the_same_default_deadline(
    arguments: tuple[str, ...], bounds: ModuleType, tmp_path: Path
) -> None:
    least, most = bounds.MIN_DEFAULT_DEADLINE_S, bounds.MAX_DEFAULT_DEADLINE_S
    assert (bounds.default_deadline(0), bounds.default_deadline(10**6)) == (least, most)
    file = tmp_path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": []}))
    wrong = CliRunner().invoke(main, ["plan", "-f", str(file), "--deadline", "nan", *arguments])
    assert f"{least:g} to {most:g}" in wrong.output
    shown = " ".join(CliRunner().invoke(main, ["plan", "--help"]).output.split())
    assert f"{least:g} to {most:g}" in shown
