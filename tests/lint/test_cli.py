"""`dovetail lint` as a script sees it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.lint import lint
from dovetail.lab.aws import account
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.offerings import LabOfferings

SEEDS = Path(__file__).parents[1] / "data" / "kinds" / "seeds"


def test_errors_make_the_exit_status_1_and_warnings_do_not() -> None:
    run = CliRunner()
    assert run.invoke(lint, ["-f", str(SEEDS / "provisioner-network.yaml")]).exit_code == 0
    assert run.invoke(lint, ["-f", str(SEEDS / "provisioner-network.yaml"), "--strict"]).exit_code == 1
    assert run.invoke(lint, ["-f", str(SEEDS / "provisioner-categories.yaml")]).exit_code == 1
    assert run.invoke(lint, ["-f", str(SEEDS / "no-such.yaml")]).exit_code == 2
    assert run.invoke(lint, []).exit_code == 2


def test_fix_corrects_the_seeds_and_leaves_their_comments(tmp_path: Path) -> None:
    for seed in SEEDS.glob("*.yaml"):
        shutil.copy(seed, tmp_path)
    result = CliRunner().invoke(lint, ["-f", str(tmp_path), "--fix", "-o", "json"])
    findings = json.loads(result.stdout)
    assert {row["code"] for row in findings if row["severity"] == "error"} <= {"DV301"}
    stray = (tmp_path / "provisioner-stray.yaml").read_text()
    before = (SEEDS / "provisioner-stray.yaml").read_text()
    assert stray == before.replace("      requirements:\n", "", 1)
    categories = (tmp_path / "provisioner-categories.yaml").read_text()
    assert 'key: "karpenter.k8s.aws/instance-category"' in categories


def test_the_input_is_read_and_its_corrected_text_written() -> None:
    text = (SEEDS / "provisioner-stray.yaml").read_text()
    result = CliRunner().invoke(lint, ["-f", "-", "--fix"], input=text)
    assert result.stdout == text.replace("      requirements:\n", "", 1)
    assert result.exit_code == 0


def test_selectors_that_select_nothing_in_aws_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: x
  amiSelectorTerms: [{alias: al2023@v20990101}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}, {id: subnet-1}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: mine}}]
"""
    endpoint = AwsEndpoint(LabOfferings("ap-northeast-2", families=frozenset({"m5"})))
    try:
        account.build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"certificate")
        for name, value in endpoint.environment().items():
            monkeypatch.setenv(name, value)
        result = CliRunner().invoke(lint, ["-f", "-", "--aws", "-o", "json"], input=manifest)
    finally:
        endpoint.close()
        endpoint.forget()
    assert [(row["line"], row["message"]) for row in json.loads(result.stdout) if row["code"] == "DV401"] == [
        (7, "nothing in AWS matches subnet-id=subnet-1"),
        (8, "nothing in AWS matches karpenter.sh/discovery=mine"),
    ]
    assert [(row["line"], row["message"]) for row in json.loads(result.stdout) if row["code"] == "DV402"] == [
        (5, "IAM has no role 'x'"),
        (6, "AWS publishes no image al2023@v20990101"),
    ]
