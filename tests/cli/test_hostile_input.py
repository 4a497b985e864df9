"""Input that no cluster has and outputs that take nothing: one line that says what is wrong, and status 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.main import main

DEEP = "a: " + "[" * 3000 + "]" * 3000 + "\n"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {requests: {cpu: "%s"}}}]
"""


@pytest.mark.parametrize(
    "command",
    [
        ["convert", "FILE"],
        ["simulate", "FILE"],
        ["explain", "pod/p", "--kubeconfig", "FILE"],
        ["history", "--kubeconfig", "FILE"],
        ["plan", "FILE"],
    ],
    ids=lambda command: command[0],
)
def test_yaml_that_is_nested_without_end_is_refused_in_one_line(tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(DEEP)
    answer = CliRunner().invoke(main, [str(file) if part == "FILE" else part for part in command])
    assert answer.exit_code == 2, answer.exception
    assert answer.stderr.startswith(f"Error: {file}: nested too deeply to be a")


@pytest.mark.parametrize("quote", ['"', ""])
def test_a_request_of_more_processors_than_there_are_atoms_has_an_answer(tmp_path: Path, quote: str) -> None:
    """A number without quotes is an integer that no message of 64 bits holds."""
    (tmp_path / "big.yaml").write_text((POD % "99999999999999999999999999").replace('"', quote))
    answer = CliRunner().invoke(main, ["plan", str(tmp_path / "big.yaml")])
    assert (answer.exit_code, type(answer.exception)) == (1, SystemExit)
    assert "NO_TYPE_FITS" in answer.stdout


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text((POD % "1").replace("name: p", 'name: "\\e[31mp\\0"'))
    answer = CliRunner().invoke(main, ["plan", str(tmp_path / "pod.yaml"), "--catalog", str(tmp_path / "a\x1b[31m")])
    assert answer.exit_code == 2
    assert "a\\x1b[31m" in answer.stderr and "\x1b" not in answer.stderr
    answer = CliRunner().invoke(main, ["plan", str(tmp_path / "pod.yaml")])
    assert "\\x1b[31mp\\x00" in answer.stdout and "\x1b" not in answer.stdout


def test_a_catalogue_that_is_no_text_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD % "1")
    (tmp_path / "types.json").write_bytes(b'[{"name": "a\xff"}]')
    command = ["plan", str(tmp_path / "pod.yaml"), "--catalog", str(tmp_path / "types.json")]
    answer = CliRunner().invoke(main, command)
    assert answer.exit_code == 2, answer.exception
    assert "not a catalogue" in answer.stderr


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """The last won without a word, and half of a manifest was planned for."""
    twice = POD % "1" + "  containers: []\n"
    (tmp_path / "twice.yaml").write_text(twice)
    answer = CliRunner().invoke(main, ["plan", str(tmp_path / "twice.yaml")])
    assert answer.exit_code == 2
    assert 'line 6, column 3: "containers" is given twice; the first is on line 5' in answer.stderr
    (tmp_path / "twice.json").write_text('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "name": "b"}}')
    answer = CliRunner().invoke(main, ["plan", str(tmp_path / "twice.json")])
    assert answer.exit_code == 2
    assert '"name" is given twice in one object' in answer.stderr


def test_merge_keys_are_not_keys_given_twice(tmp_path: Path) -> None:
    text = POD % "1" + "  nodeSelector: {<<: &base {a: b}, kubernetes.io/os: linux}\n"
    (tmp_path / "merged.yaml").write_text(text)
    answer = CliRunner().invoke(main, ["plan", str(tmp_path / "merged.yaml")])
    assert answer.exit_code == 1 and "given twice" not in answer.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('!!python/object/apply:os.system ["true"]\n', "the tag tag:yaml.org,2002:python/object/apply:os.system"),
        ("apiVersion: v1\nkind: Pod\nspec: !mine {}\n", "the tag !mine"),
        ("hello\n", "a single value"),
        ("- a\n- b\n", "a list"),
    ],
)
def test_lint_finds_what_is_no_manifest(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "no.yaml").write_text(text)
    answer = CliRunner().invoke(main, ["lint", str(tmp_path / "no.yaml")])
    assert answer.exit_code == 1
    assert said in answer.stdout


def _certificate(folder: Path) -> bytes:
    from datetime import UTC, datetime

    from dovetail.lab.apiserver.tls import new_authority

    made = new_authority(datetime(2026, 1, 1, tzinfo=UTC))
    (folder / "key.pem").write_bytes(made.certificate + made.key)
    (folder / "ca.pem").write_bytes(made.certificate * 2)
    return made.certificate


def test_only_certificates_are_published_as_a_ca(tmp_path: Path) -> None:
    certificate = _certificate(tmp_path)
    (tmp_path / "noise.pem").write_bytes(bytes(range(256)))
    (tmp_path / "empty.pem").write_bytes(b"")
    (tmp_path / "cut.pem").write_bytes(certificate.replace(b"M", b"N", 1))
    (tmp_path / "large.pem").write_bytes(certificate + b"x" * (1 << 20))
    command = ["crds", "--webhook", "a/b", "nodepools", "--ca"]
    assert CliRunner().invoke(main, [*command, str(tmp_path / "ca.pem")]).exit_code == 0
    for name in ("noise", "empty", "cut", "large", "key"):
        answer = CliRunner().invoke(main, [*command, str(tmp_path / f"{name}.pem")])
        assert (answer.exit_code, answer.stdout) == (2, ""), name
        assert f"--ca {tmp_path / name}.pem" in answer.stderr


@pytest.mark.parametrize("closed", [False, True])
def test_an_output_that_takes_nothing_is_an_error(tmp_path: Path, closed: bool) -> None:
    program = [sys.executable, "-c", "from dovetail.cli.main import main; main()", "version"]
    if closed:
        program = ["sh", "-c", 'exec "$0" "$@" >&-', *program]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ)
    why = "Bad file descriptor" if closed else "No space left on device"
    assert ended.stderr == f"Error: the output cannot be written: {why}; send it elsewhere\n"
    assert ended.returncode == 2


def test_a_planner_whose_parent_was_killed_ends_without_a_word() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "dovetail.planner.optimise.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdin is not None and child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait() == 0
    child.stdin.close()
    child.stderr.close()


@pytest.mark.parametrize("version", ["[]", "{}", "1", "[{}]", "1.5", "true"])
def test_a_version_that_is_no_text_is_refused_in_one_line(tmp_path: Path, version: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(f"apiVersion: {version}\nkind: NodePool\nmetadata: {{name: p}}\nspec: {{}}\n")
    answer = CliRunner().invoke(main, ["plan", str(file)])
    assert (answer.exit_code, type(answer.exception)) == (2, SystemExit)
    assert f'{file}: NodePool "p": apiVersion: {version} is not text' in answer.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["record", "--convert", "FILE", "out", "--for", "10m"], "--for"),
        (["record", "--convert", "FILE", "out", "--resume"], "--resume"),
        (["record", "--convert", "FILE", "out", "--max-size", "1M"], "--max-size"),
        (["record", "--convert", "FILE", "out", "--max-age", "1h"], "--max-age"),
        (["record", "--convert", "FILE", "out", "--usage-every", "1m"], "--usage-every"),
        (["record", "--convert", "FILE", "out", "--context", "c"], "--context"),
        (["history", "--file", "FILE", "--namespace", "karpenter"], "--namespace"),
        (["history", "--file", "FILE", "--name", "dev"], "--name"),
        (["dashboard", "--user-header", "X-User"], "--user-header"),
        (["dashboard", "--auth", "kubernetes", "--group-header", "X-Groups"], "--group-header"),
        (["dashboard", "--seed", "3"], "--seed"),
        (["dashboard", "--recording", "FILE", "--kubeconfig", "FILE"], "--kubeconfig"),
        (["view", "--at", "2026-01-01T00:00:00Z"], "--at"),
        (["compare", "--image", "x", "web"], "--image"),
        (["doctor", "--from", "FILE", "--fix"], "--from"),
        (["doctor", "--dry-run"], "--dry-run"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_an_option_that_would_be_ignored_is_refused(tmp_path: Path, command: list[str], option: str) -> None:
    (tmp_path / "file").write_text("{}\n")
    answer = CliRunner().invoke(main, [part.replace("FILE", str(tmp_path / "file")) for part in command])
    assert (answer.exit_code, type(answer.exception)) == (2, SystemExit)
    assert f"Error: {option}" in answer.stderr
