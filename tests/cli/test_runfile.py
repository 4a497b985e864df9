"""Labs that run can be found by name, and those that are gone are not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dovetail.cli import cluster_session
from dovetail.cli.kubectl import as_typed, lab_of
from dovetail.cli.main import main
from dovetail.errors import UserError
from dovetail.lab.apiserver_only import StartError, kubeconfig, refuse_second
from dovetail.runfile import RunningLab, find, leave, path_of, register, running


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _lab(name: str, pid: int | None = None, **more: Any) -> None:
    register(RunningLab(pid or os.getpid(), f"https://{name}:1", f"/kc/{name}.yaml", "", name=name, **more))


def test_a_lab_is_found_until_it_leaves() -> None:
    _lab("default")
    lab = find()
    assert lab is not None and lab.url == "https://default:1"
    assert path_of("default").stat().st_mode & 0o077 == 0
    leave(os.getpid())
    assert find() is None


def test_a_process_that_is_gone_is_no_lab() -> None:
    _lab("default", pid=2**22 + 1)
    assert find() is None and running() == []


def test_a_process_that_got_the_pid_of_a_lab_is_no_lab() -> None:
    """`dovetail down` would end it."""
    _lab("default")
    path = path_of("default")
    path.write_bytes(path.read_bytes().replace(b'"started":"', b'"started":"1'))
    assert find() is None and running() == []


def test_several_labs_are_reported_apart_by_name() -> None:
    _lab("dev", environment={"AWS_REGION": "eu-west-1"})
    assert cluster_session.lab(None).name == "dev"
    _lab("prod", environment={"AWS_REGION": "us-east-1"})
    assert cluster_session.lab("prod").kubeconfig == cluster_session.kubeconfig(None, "prod") == "/kc/prod.yaml"
    assert "export AWS_REGION=us-east-1" in CliRunner().invoke(main, ["env", "--name", "prod"]).stdout
    assert "export KUBECONFIG=/kc/dev.yaml" in CliRunner().invoke(main, ["env", "--name", "dev"]).stdout
    with pytest.raises(UserError, match="--name and --kubeconfig both"):
        cluster_session.kubeconfig("mine", "prod")


@pytest.mark.parametrize(
    "command", [["env"], ["down"], ["fault"], ["explain", "pod/p"], ["history"], ["kubectl", "get", "pods"]]
)
def test_where_several_labs_run_a_command_without_a_name_says_which(command: list[str]) -> None:
    _lab("dev")
    _lab("prod")
    answer = CliRunner().invoke(main, command)
    assert answer.exit_code == 2
    expected = "several labs run: dev (https://dev:1), prod (https://prod:1); choose one with --name"
    assert answer.stderr.startswith(f"Error: {expected}, or ")
    assert 'eval "$(dovetail env --name dev)"' in answer.stderr


def test_a_diff_takes_the_name_of_a_lab() -> None:
    _lab("dev")
    answer = CliRunner().invoke(main, ["diff", "--name", "prod", "--scale", "deployment/web=3"])
    assert answer.exit_code == 1
    assert "no lab 'prod' runs; there are dev" in answer.stderr


@pytest.mark.parametrize("command", [["env"], ["down"], ["fault"], ["explain", "pod/p"], ["history"], ["kubectl"]])
def test_a_name_that_no_lab_has_is_refused_with_those_there_are(command: list[str]) -> None:
    _lab("dev")
    answer = CliRunner().invoke(main, [command[0], "--name", "prod", *command[1:]])
    assert answer.exit_code == 2
    assert answer.stderr.startswith("Error: no lab 'prod' runs; there are dev (https://dev:1); dovetail up --name prod")


def test_the_lab_that_the_environment_points_at_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """After eval "$(dovetail env --name dev)" the other commands are about it."""
    _lab("dev")
    _lab("prod")
    monkeypatch.setenv("KUBECONFIG", "/kc/dev.yaml")
    assert cluster_session.lab(None).name == "dev"


def test_a_second_lab_needs_another_name() -> None:
    _lab("dev", pid=os.getppid())
    refuse_second("default")
    with pytest.raises(StartError, match=r"lab dev runs already at https://dev:1 .*dovetail down --name dev stops it"):
        refuse_second("dev")
    answer = CliRunner().invoke(main, ["up", "--name", "Not A Name"])
    assert (answer.exit_code, answer.stderr.startswith("Error: --name: 'Not A Name'")) == (2, True)


def test_kubeconfigs_of_named_labs_can_be_merged() -> None:
    assert "current-context: dovetail\n" in kubeconfig("https://a", None, "t")
    assert "current-context: dovetail-dev\n" in kubeconfig("https://a", None, "t", "dev")


def test_kubectl_gets_its_double_dash_and_its_own_name() -> None:
    line = ["dovetail", "kubectl", "run", "x", "--", "sh", "-c", "true"]
    assert as_typed(line, ("run",)) == ["run", "x", "--", "sh", "-c", "true"]
    assert lab_of(["--name", "dev", "expose", "deploy/x", "--name=y"]) == ("dev", ["expose", "deploy/x", "--name=y"])
    assert lab_of(["--name=dev", "get", "pods"]) == ("dev", ["get", "pods"])
    assert lab_of(["expose", "deploy/x", "--name", "y"]) == (None, ["expose", "deploy/x", "--name", "y"])


def test_the_production_command_brings_no_lab_with_it() -> None:
    """A controller image need not hold the lab, nor wait for its imports."""
    code = (
        "import sys, dovetail.cli.run_autoscaler; print([name for name in sys.modules if name[:12] == 'dovetail.lab'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
