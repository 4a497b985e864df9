"""`dovetail doctor` as a command: exit status, forms of output, and bundles."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from dovetail.cli.main import main
from dovetail.install.doctor.checks import CHECKS
from dovetail.install.doctor.collect import LISTED, METRICS
from dovetail.install.doctor.facts import Answer, Facts, State
from dovetail.kube.resources import HPAS

ROOT = Path(__file__).parents[2]


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return bundle(tmp_path / "healthy.json", {})


def bundle(path: Path, answers: dict[str, Answer]) -> Path:
    empty = {resource.name: Answer(data=[]) for resource in LISTED} | {METRICS: Answer(data={})}
    facts = Facts(time=datetime(2026, 5, 1, tzinfo=UTC), answers={**empty, **answers})
    path.write_bytes(msgspec.json.encode(facts))
    return path


def test_a_cluster_without_a_failure_gives_status_zero(healthy: Path) -> None:
    said = typed("--from", str(healthy))
    assert said.exit_code == 0, said.output
    assert "√ D02 subnets and security groups are selected" in said.stdout
    assert "- D04 the controller has an AWS identity\n      not checked: no Deployment" in said.stdout


def test_a_failure_gives_status_one_with_cause_and_remedy(tmp_path: Path) -> None:
    hpa = {"metadata": {"name": "web", "namespace": "a"}, "spec": {"metrics": [{"resource": {"name": "cpu"}}]}}
    broken = bundle(tmp_path / "b.json", {METRICS: Answer(state=State.ABSENT), HPAS.name: Answer(data=[hpa])})
    said = typed("--from", str(broken))
    assert said.exit_code == 1
    assert "× D20" in said.stdout
    assert "remedy: kubectl apply -f" in said.stdout
    rows = json.loads(typed("--from", str(broken), "-o", "json", "--only", "d20").stdout)
    assert [list(row) for row in rows] == [["id", "status", "object", "message", "remedy"]]
    assert (rows[0]["id"], rows[0]["status"]) == ("D20", "failed")
    assert typed("--from", str(broken), "--only", "D01").exit_code == 0


def test_what_cannot_be_checked_gives_status_two(tmp_path: Path, healthy: Path) -> None:
    (tmp_path / "text").write_text("text")
    assert typed("--from", str(tmp_path / "text")).exit_code == 2
    assert typed("--kubeconfig", str(tmp_path / "none")).exit_code == 2
    wrong = typed("--from", str(healthy), "--only", "D99")
    assert (wrong.exit_code, "there is no such check; there are D01" in wrong.stderr) == (2, True)


def test_the_rights_cover_every_list(healthy: Path) -> None:
    said = typed("--rbac").stdout
    assert said.count("- list") == len(LISTED)
    assert "iam:GetRole" in said


def test_every_check_has_a_section() -> None:
    text = (ROOT / "docs" / "doctor.md").read_text()
    sections = re.findall(r"(?m)^### (\w+)$", text)
    assert sorted(sections) == sorted(check.id for check in CHECKS)
