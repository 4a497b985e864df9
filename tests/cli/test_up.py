"""A lab in the background: it leaves nothing behind, and says where it is in words that a shell can read."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dovetail.cli.cluster_session import kubeconfig
from dovetail.cli.main import main
from dovetail.runfile import RunningLab, register


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _lab(**more: Any) -> None:
    register(RunningLab(os.getpid(), "https://127.0.0.1:1", "/a folder/it's.yaml", "", **more))


def test_ctrl_c_while_a_lab_comes_up_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    def interrupted(done: Any, seconds: float) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("dovetail.cli.up.subprocess.Popen", Kept)
    monkeypatch.setattr("dovetail.cli.up._poll", interrupted)
    monkeypatch.setattr("sys.argv", ["dovetail", "up", "--port", "0", "--detach"])
    assert CliRunner().invoke(main, ["up", "--port", "0", "--detach"]).exit_code == 130
    assert [each.returncode is not None for each in started] == [True]


def test_the_environment_can_be_read_by_a_shell_whatever_the_folder_is_called() -> None:
    _lab(environment={"AWS_REGION": "ap-northeast-2"})
    said = CliRunner().invoke(main, ["env"]).stdout
    assert shlex.split(said) == ["export", "KUBECONFIG=/a folder/it's.yaml", "export", "AWS_REGION=ap-northeast-2"]


def test_a_lab_whose_aws_does_not_answer_yet_is_not_reported_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the environment `aws` would ask the real one."""
    _lab(ready=False)
    monkeypatch.setattr("dovetail.cli.up._poll", lambda done, seconds: done())
    answer = CliRunner().invoke(main, ["env"])
    assert (answer.exit_code, answer.stdout) == (2, "")


def test_who_has_no_kubeconfig_is_answered_by_the_lab_that_runs(tmp_path: Path) -> None:
    assert kubeconfig(None) is None
    _lab()
    assert kubeconfig(None) == "/a folder/it's.yaml"
    assert kubeconfig("mine") == "mine"
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    assert kubeconfig(None) is None
