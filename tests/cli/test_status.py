"""Exit statuses: 0 a good answer, 1 a bad one, 2 none, 130 interrupted; and an error says what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dovetail.cli.main import main

KUBECONFIG = """
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}]}
"""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without a cluster and without a lab, as a newcomer's is."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "AWS_REGION", "AWS_DEFAULT_REGION", "CLUSTER_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("refused.yaml").write_text(KUBECONFIG)
    Path("day.yaml").write_text("duration: 1m")
    Path("market.yaml").write_text("bot: [1, 2]")


def _typed(line: str) -> Result:
    return CliRunner().invoke(main, line.split())


WRONG = [
    ("plan", "nothing to plan: name files with -f PATH"),
    ("plan -f none.yaml", "none.yaml: No such file or directory; name a file"),
    ("plan none.yaml", "none.yaml: No such file or directory; name a file"),
    ("plan day.yaml", "has no kind; every document needs apiVersion and kind"),
    ("plan --kubeconfig none", "none: no such kubeconfig"),
    ("plan --kubeconfig refused.yaml", "http://127.0.0.1:1 cannot be reached"),
    ("plan --consolidate", "no kubeconfig at"),
    ("lint none.yaml", "none.yaml: No such file or directory; name a file"),
    ("convert none.yaml", "none.yaml: No such file or directory; name a file"),
    ("simulate none.yaml", "none.yaml: No such file or directory; name the file of a scenario"),
    ("simulate day.yaml --log no/such/folder", "--log no/such/folder: No such file or directory"),
    ("explain pod/web", "no kubeconfig at"),
    ("explain pod/web --kubeconfig refused.yaml", "http://127.0.0.1:1 cannot be reached"),
    ("history --kubeconfig none", "none: no such kubeconfig"),
    ("history -n 0", "0 is not in the range"),
    ("env", "no lab runs; dovetail up --detach starts one"),
    ("fault", "no lab runs; dovetail up --detach starts one"),
    ("fault api-slow --for soon", "'soon' is not a duration"),
    ("up --zones mars-1a", "--zones: 'mars-1a' is not a zone of ap-northeast-2"),
    ("up --feature-gates Nope=true", "--feature-gates: 'Nope' is none of NodeRepair"),
    ("up --cluster-name 한글 --port 0", "--cluster-name: '한글' is none that EKS takes"),
    ("up --node-type m5.huge --port 0", "--node-type: no instance type 'm5.huge'; did you mean m5.large?"),
    ("run --cloud simulated --kubeconfig refused.yaml --market market.yaml", "market.yaml: a market: Object contains"),
    ("crds --ca refused.yaml", "--ca belongs to a webhook"),
    ("crds pods", "pods: no such definition; there are nodepools"),
    ("plna", "no command 'plna'; did you mean plan?"),
]


@pytest.mark.parametrize(("line", "reported"), WRONG, ids=[line for line, _ in WRONG])
def test_who_gets_no_answer_gets_status_two_and_the_way_out(line: str, reported: str) -> None:
    answer = _typed(line)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert reported in " ".join(answer.stderr.split())


def test_a_home_that_cannot_be_written_is_reported_before_a_lab_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", "file")
    answer = _typed("up --port 0")
    assert answer.exit_code == 2
    assert "file/dovetail: Not a directory; set XDG_STATE_HOME to a folder that can be written" in answer.stderr


@pytest.mark.parametrize("line", ["plan web.yaml", "lint web.yaml", "up", "run --cloud simulated"])
def test_a_region_that_is_not_there_is_reported_in_the_same_words_everywhere(line: str) -> None:
    Path("web.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a}]}}")
    kubeconfig = " --kubeconfig refused.yaml" if line.startswith("run") else ""
    answer = _typed(f"{line} --region mars-1{kubeconfig}")
    assert answer.exit_code == 2
    assert "--region: region 'mars-1' is not in the packaged catalogue; it has af-south-1" in answer.stderr


def test_a_command_that_ctrl_c_ends_is_reported_from_one_that_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dovetail.cli.main.importlib.import_module", interrupted)
    assert _typed("version").exit_code == 130


def test_nothing_to_plan_for_is_a_note_and_no_node() -> None:
    Path("empty.yaml").touch()
    answer = _typed("plan empty.yaml -o json")
    assert (answer.exit_code, '"machines": []' in answer.stdout) == (0, True)
    assert "note: no pod waits" in answer.stderr


def test_the_version_is_reported_by_command_and_by_option() -> None:
    assert _typed("version").stdout == _typed("--version").stdout
