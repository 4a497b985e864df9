"""What a command says of the files it is given: the file, the place, and no trace of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dovetail.cli.main import main

COMMANDS = ("plan", "lint", "convert")


def _reported(*words: str) -> str:
    answer = CliRunner().invoke(main, words)
    assert answer.exit_code != 0
    assert isinstance(answer.exception, SystemExit), answer.exception
    return answer.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there_is_named(command: str, tmp_path: Path) -> None:
    text = _reported(command, "-f", str(tmp_path / "none.yaml"))
    assert "none.yaml: No such file or directory; name a file, a folder" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_text_is_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "cat.yaml").write_bytes(b"kind: \xff\xfe")
    assert "cat.yaml: not UTF-8 text at byte 6" in _reported(command, "-f", str(tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_yaml_is_named_with_the_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: Pod\n---\nkind: [\n")
    text = _reported(command, "-f", str(tmp_path))
    assert "bad.yaml" in text and "not YAML" in text
    assert "line 4" in text or "bad.yaml:4:" in text


def test_an_object_without_a_kind_is_found_by_its_file_and_name(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("metadata: {name: lost}\n")
    assert "odd.yaml: an object (lost) has no kind" in _reported("plan", "-f", str(tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_manifests_is_named(command: str, tmp_path: Path) -> None:
    assert "no file in it ends in .yaml, .yml, .json" in _reported(command, "-f", str(tmp_path))


def test_an_amount_that_cannot_be_read_is_named_with_its_object_and_field(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(
        "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {capacity: {cpu: lots}}}"
    )
    reported = _reported("plan", "-f", str(tmp_path))
    assert 'Node "n": status.capacity.cpu: "lots" is not a quantity (such as 500m or 2Gi)' in reported


@pytest.mark.parametrize("command", [("lint", "--fix"), ("convert", "-i")], ids=" ".join)
def test_a_file_that_cannot_be_written_is_named(
    command: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "old.yaml"
    file.write_text("{apiVersion: karpenter.sh/v1beta1, kind: NodePool, metadata: {nam: p}, spec: {}}")
    monkeypatch.setattr(Path, "write_text", full)
    assert "old.yaml: No space left on device; nothing was written to it" in _reported(*command, str(file))


def test_a_key_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("no key")
    path = str(tmp_path / "key.pem")
    assert "not a certificate and its key" in _reported("webhook", "--tls-cert", path, "--tls-key", path)


def test_zones_and_gates_that_are_not_there_are_answered_with_those_that_are() -> None:
    assert "'x' is not a zone of ap-northeast-2, which has ap-northeast-2a," in _reported("up", "--zones", "x")
    assert "'foo' is none of NodeRepair," in _reported("up", "--feature-gates", "foo=true")
    assert "--feature-gates: 'maybe' is neither true nor false" in _reported(
        "up", "--feature-gates", "NodeRepair=maybe"
    )
