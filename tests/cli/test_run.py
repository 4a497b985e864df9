"""`dovetail run` says what is wrong before it touches a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner

from dovetail.cli.main import main


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """The command sets the form of every log line; other tests keep theirs."""
    yield
    structlog.reset_defaults()


def test_every_setting_is_a_flag_with_its_variable() -> None:
    text = CliRunner().invoke(main, ["run", "--help"]).output
    for flag in ("--batch-idle-duration", "--feature-gates", "--place", "--cluster-name", "--metrics-port"):
        assert flag in text
    assert "BATCH_IDLE_DURATION" in text


def test_a_bad_value_names_its_flag() -> None:
    answer = CliRunner().invoke(main, ["run", "--batch-max-duration", "soon"])
    assert answer.exit_code == 2
    assert "--batch-max-duration" in answer.output


def test_a_missing_kubeconfig_is_one_clear_line(tmp_path: Path) -> None:
    answer = CliRunner().invoke(main, ["run", "--cloud", "simulated", "--kubeconfig", str(tmp_path / "none")])
    assert answer.exit_code == 1
    assert "no such kubeconfig" in answer.output


def test_aws_needs_the_clusters_name(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    answer = CliRunner().invoke(main, ["run", "--kubeconfig", str(config)], env={"CLUSTER_NAME": ""})
    assert answer.exit_code == 1
    assert "--cluster-name" in answer.output
