"""`dovetail diff` from files: exit statuses, outputs, errors, and the workflow that uses it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dovetail.cli.main import main
from dovetail.offline.recording import Writer
from tests.studies.random_changes import exported
from tests.studies.test_what_if import deployment_manifest, pool_manifest

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of a small cluster, the same as a recording, and manifests."""
    folder = tmp_path_factory.mktemp("diff")
    objects, now = exported([pool_manifest(), deployment_manifest("web", 6)])
    (folder / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    (folder / "same.yaml").write_text(yaml.safe_dump_all([pool_manifest(), deployment_manifest("web", 6)]))
    (folder / "more.yaml").write_text(yaml.safe_dump(deployment_manifest("web", 9)))
    with Writer.create(folder / "cluster.dvrec", now, "test", b"0123456789abcdef") as writer:
        for item in objects:
            writer.put(now, item)
        writer.begin()
        writer.close(now)
    return folder


def run(files: Path, *options: str, source: tuple[str, ...] = ()) -> Result:
    cluster = source or ("--cluster-from", str(files / "cluster.json"))
    return CliRunner().invoke(main, ["diff", *cluster, "--region", "ap-northeast-2", "--horizon", "3h", *options])


def test_manifests_that_the_cluster_has_already_end_with_0(files: Path) -> None:
    result = run(files, "-f", str(files / "same.yaml"))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("No changes")


def test_changes_end_with_2_and_say_what_they_cost(files: Path) -> None:
    result = run(files, "-f", str(files / "more.yaml"))
    assert result.exit_code == 2, result.output
    assert "spec.replicas: 6 → 9" in result.output
    assert re.search(r"Plan: \d+ nodes? to add, 0 to replace, 0 to remove; 0 evictions; \+\$", result.output)


def test_a_limit_that_is_exceeded_ends_with_3_and_the_answer_is_printed(files: Path) -> None:
    result = run(files, "--scale", "deployment/web=9", "--fail-on", "cost>+1%,evictions>100", "-o", "json")
    assert result.exit_code == 3, result.output
    body = json.loads(result.stdout)
    assert body["exceeded"] == ["cost>+1%"]
    assert body["with"]["end"]["pods"] == body["now"]["pods"] + 3


def test_a_recording_is_a_cluster_too(files: Path) -> None:
    result = run(
        files, "--scale", "deployment/web=0", "-o", "markdown", source=("--recording", str(files / "cluster.dvrec"))
    )
    assert result.exit_code == 2, result.output
    assert result.output.startswith("### dovetail diff")
    assert "spec.replicas: 6 → 0" in result.output


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "nothing to compare"),
        (("--scale", "deployment/wep=1"), "did you mean web?"),
        (("--no-such-option",), "No such option"),
        (("--horizon", "soon", "--scale", "deployment/web=1"), "--horizon 'soon': is not a time"),
        (("-f", "none.yaml"), "none.yaml: No such file or directory"),
        (("--at", "2026-01-01T00:00:00Z", "--scale", "deployment/web=1"), "--at names a moment of a recording"),
        (("--kubeconfig", "x", "--scale", "deployment/web=1"), "all say which cluster"),
        (("--price-file", "none.txt", "--scale", "deployment/web=1"), "--price-file none.txt: No such file"),
    ],
)
def test_errors_end_with_1(files: Path, options: tuple[str, ...], problem: str) -> None:
    result = run(files, *options)
    assert result.exit_code == 1
    assert problem in result.output


def test_without_a_change_no_cluster_is_asked(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["diff", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: nothing to compare: name manifests with -f")


def test_a_cluster_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "a", "user": {}}],
    }
    path = tmp_path / "kubeconfig.yaml"
    path.write_text(yaml.safe_dump(config))
    result = CliRunner().invoke(main, ["diff", "--kubeconfig", str(path), "--scale", "deployment/web=1"])
    assert result.exit_code == 1
    assert "--kubeconfig" in result.output


def test_the_workflow_uses_options_and_statuses_that_exist() -> None:
    workflow = yaml.safe_load((ROOT / "examples" / "diff-workflow.yaml").read_text())
    steps = workflow["jobs"]["diff"]["steps"]
    command = next(line for step in steps for line in step.get("run", "").splitlines() if "dovetail diff" in line)
    words = shlex.split(command.split(" > ")[0])
    found = main.get_command(main.make_context("dovetail", ["diff"], resilient_parsing=True), "diff")
    assert found is not None
    context = found.make_context("diff", words[2:], resilient_parsing=True)
    assert context.params["output"] == "markdown"
    assert context.params["fail_on"] == "evictions>50,cost>+20%"
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
