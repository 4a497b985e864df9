"""`dovetail doctor` as a command: exit status, forms of output, and bundles."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from dovetail.cli.main import main
from dovetail.cli.remedies import NotSafe, parts, run
from dovetail.install.doctor.checks import CHECKS
from dovetail.install.doctor.collect import LISTED, METRICS
from dovetail.install.doctor.facts import Facts, SourceAnswer, State
from dovetail.kube.resources import DEPLOYMENTS, HPAS

ROOT = Path(__file__).parents[2]


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return bundle(tmp_path / "healthy.json", {})


def bundle(path: Path, answers: dict[str, SourceAnswer]) -> Path:
    empty = {resource.name: SourceAnswer(data=[]) for resource in LISTED} | {METRICS: SourceAnswer(data={})}
    facts = Facts(time=datetime(2026, 5, 1, tzinfo=UTC), answers={**empty, **answers})
    path.write_bytes(msgspec.json.encode(facts))
    return path


def test_a_cluster_without_a_failure_gives_status_zero(healthy: Path) -> None:
    said = typed("--from", str(healthy))
    assert said.exit_code == 0, said.output
    assert "√ D02 subnets and security groups are selected" in said.stdout
    assert "× " not in said.stdout


def test_a_failure_gives_status_one_with_cause_and_remedy(tmp_path: Path) -> None:
    hpa = {"metadata": {"name": "web", "namespace": "a"}, "spec": {"metrics": [{"resource": {"name": "cpu"}}]}}
    broken = bundle(
        tmp_path / "b.json", {METRICS: SourceAnswer(state=State.ABSENT), HPAS.name: SourceAnswer(data=[hpa])}
    )
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
    role, collecting = list(yaml.safe_load_all(said))
    granted = {
        (group, plural)
        for rule in role["rules"]
        if rule["verbs"] == ["list"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert granted == {(resource.group, resource.plural) for resource in LISTED} | {("", "events")}
    assert {verb for rule in (*role["rules"], *collecting["rules"]) for verb in rule["verbs"]} == {"get", "list"}
    assert "iam:GetRole" in said


def test_several_ids_in_one_option(healthy: Path) -> None:
    rows = json.loads(typed("--from", str(healthy), "-o", "json", "--only", "D02, d17", "--only", "V03").stdout)
    assert [row["id"] for row in rows] == ["D02", "D17", "V03"]
    wrong = typed("--from", str(healthy), "--only", "P01")
    assert (wrong.exit_code, "made with --pre" in wrong.stderr) == (2, True)


def test_before_an_installation_only_its_needs_are_checked(healthy: Path) -> None:
    rows = json.loads(typed("--from", str(healthy), "--pre", "-o", "json").stdout)
    assert {row["id"] for row in rows} == {"P01", "P02", "P03", "P04", "D19", "D20", "V04", "V08", "V09"}
    assert {row["id"]: row["status"] for row in rows}["P02"] == "failed"


def test_checks_without_a_controller_are_one_line(healthy: Path) -> None:
    said = typed("--from", str(healthy)).stdout
    assert "no controller is installed, so these were not checked: D03, D04" in said
    assert "dovetail doctor --pre" in said


def without_definition(tmp_path: Path) -> Path:
    """A cluster whose controller lacks a definition: its remedy is safe."""
    labels = {"app.kubernetes.io/name": "karpenter"}
    spec = {"containers": [{"name": "c", "image": "public.ecr.aws/karpenter/controller:1.8.1"}]}
    deployment = {
        "metadata": {"name": "karpenter", "namespace": "karpenter", "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"spec": spec}},
    }
    return bundle(tmp_path / "c.json", {DEPLOYMENTS.name: SourceAnswer(data=[deployment])})


def test_safe_remedies_are_printed_and_others_are_for_the_operator(tmp_path: Path) -> None:
    said = typed("--from", str(without_definition(tmp_path)), "--fix", "--dry-run")
    assert said.exit_code == 0, said.output
    assert "# D06 crd/nodepools.karpenter.sh\ndovetail crds nodepools | kubectl apply --server-side -f -" in said.stdout
    assert typed("--from", str(without_definition(tmp_path)), "--fix").exit_code == 2
    assert typed("--from", str(without_definition(tmp_path)), "--dry-run").exit_code == 2


def test_a_remedy_runs_without_a_shell_and_on_the_same_cluster() -> None:
    ran: list[tuple[list[str], bytes]] = []

    def execute(words: list[str], variables: object, given: bytes) -> subprocess.CompletedProcess[bytes]:
        ran.append((words, given))
        return subprocess.CompletedProcess(words, 0, b"definitions", b"")

    options = {"kubectl": ["--kubeconfig=k"]}
    assert run("dovetail crds nodepools | kubectl apply --server-side -f -", options, execute) == ""
    assert ran[0][0][-2:] == ["crds", "nodepools"]
    assert ran[1] == (["kubectl", "--kubeconfig=k", "apply", "--server-side", "-f", "-"], b"definitions")
    assert parts("aws iam create-role --role-name '$(reboot)'", {})[0][-1] == "$(reboot)"
    for unsafe in ("rm -rf /", "aws a && aws b", "kubectl get pods > f"):
        with pytest.raises(NotSafe):
            parts(unsafe, {})
    failed = subprocess.CompletedProcess(["aws"], 1, b"", b"line\nAccessDenied")
    assert run("aws iam list-roles", {}, lambda *_: failed) == "aws: AccessDenied"


def test_every_check_has_a_section() -> None:
    text = (ROOT / "docs" / "doctor.md").read_text()
    sections = re.findall(r"(?m)^### (\w+)$", text)
    assert sorted(sections) == sorted(check.id for check in CHECKS)
    for section in text.split("\n### ")[1:]:
        assert "- See it: " in section, section[:3]
        assert "- Remedy: " in section, section[:3]
