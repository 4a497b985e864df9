"""`dovetail run` says what is wrong before it touches a cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import dovetail
from dovetail.cli import run_autoscaler
from dovetail.cli.main import main
from dovetail.cli.run_autoscaler import installed_autoscaler
from dovetail.cloud.aws.start_checks import StartRefused
from dovetail.controllers.inert_settings import REFUSED, WITHOUT_EFFECT
from dovetail.controllers.settings import UNREAD, meanings

KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}]}
"""


def test_every_setting_is_a_flag_with_its_variable() -> None:
    text = CliRunner().invoke(main, ["run", "--help"]).output
    for flag in ("--batch-idle-duration", "--feature-gates", "--place", "--cluster-name", "--metrics-port"):
        assert flag in text
    assert "BATCH_IDLE_DURATION" in text


def test_every_setting_says_what_it_is_for_and_what_it_is_by_default() -> None:
    reported = meanings()
    assert reported and all(text[0].isupper() or text.startswith("debug") for text in reported.values())
    assert reported["batch_idle_duration"].endswith("[BATCH_IDLE_DURATION; 1s]")
    assert reported["cluster_name"].endswith("[CLUSTER_NAME]")
    assert reported["disable_leader_election"].endswith("; false]")
    assert reported["feature_gates"].endswith("; ReservedCapacity]")


def test_what_changes_nothing_is_said_to_change_nothing() -> None:
    """Karpenter's flags without effect are named as such; and those alone."""
    root = Path(str(dovetail.__file__)).parent
    declared = ("settings.py", "inert_settings.py")
    text = "".join(path.read_text() for path in root.rglob("*.py") if path.name not in declared)
    unread = {name for name in meanings() if not re.search(rf"\b{name}\b", text)} - REFUSED.keys()
    assert unread == {name for name, reported in meanings().items() if reported.startswith(UNREAD)}
    assert unread == WITHOUT_EFFECT.keys()


def test_a_bad_value_names_its_flag() -> None:
    answer = CliRunner().invoke(main, ["run", "--batch-max-duration", "soon"])
    assert answer.exit_code == 2
    assert "--batch-max-duration" in answer.output


def test_a_missing_kubeconfig_is_one_clear_line(tmp_path: Path) -> None:
    answer = CliRunner().invoke(main, ["run", "--cloud", "simulated", "--kubeconfig", str(tmp_path / "none")])
    assert answer.exit_code == 2
    assert "no such kubeconfig" in answer.output


def test_the_autoscaler_that_a_lab_has_is_named_with_the_way_to_stop_it() -> None:
    deployment = {"metadata": {"name": "karpenter", "namespace": "karpenter"}, "spec": {"replicas": 2}}
    said = installed_autoscaler([deployment])
    assert "Deployment karpenter/karpenter" in said
    assert "kubectl scale deployment karpenter -n karpenter --replicas=0" in said
    assert installed_autoscaler([{**deployment, "spec": {"replicas": 0}}]) == ""
    assert installed_autoscaler([]) == ""


def test_aws_needs_the_clusters_name(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    answer = CliRunner().invoke(main, ["run", "--kubeconfig", str(config)], env={"CLUSTER_NAME": ""})
    assert answer.exit_code == 2
    assert "--cluster-name" in answer.output


def test_a_run_says_what_it_starts_with_and_that_it_stopped(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    flags = ["--cloud", "simulated", "--kubeconfig", str(config), "--metrics-port", "0", "--health-probe-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail.cli", "run", *flags, "--log-output-paths", f"stdout,{tmp_path / 'log'}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "CPU_REQUESTS": "2000"},
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    rest = [json.loads(line) for line in process.stdout]
    assert process.wait(10) == 0
    process.stdout.close()
    assert (first["message"], first["settings"]["metrics-port"]) == ("starting dovetail", 0)
    assert [line["setting"] for line in rest if "setting" in line] == ["cpu_requests"]
    assert rest[-1]["message"] == "stopped dovetail"
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1])["message"] == "stopped dovetail"


def test_aws_without_a_region_is_one_clear_line_before_anything_is_asked(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    answer = CliRunner().invoke(
        main,
        ["run", "--kubeconfig", str(config), "--cluster-name", "demo"],
        env={"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_EC2_METADATA_DISABLED": "true"},
    )
    assert answer.exit_code == 2
    assert "AWS_REGION" in answer.output and "Traceback" not in answer.output


def test_a_refused_start_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(options: object) -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [StartRefused("EC2 knows none of 3 instances")])])

    monkeypatch.setattr(run_autoscaler, "_run", refused)
    answer = CliRunner().invoke(main, ["run", "--cluster-name", "demo"])
    assert answer.exit_code == 2
    assert "EC2 knows none of 3 instances" in answer.output
