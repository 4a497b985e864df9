"""What a reader of Korean sees: no English sentence, columns that line up, no mojibake, no wait for it."""

from __future__ import annotations

import gettext
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.install.doctor.checks import CHECKS
from dovetail.language import columns, in_language, message
from dovetail.language.recognition import recognized
from dovetail.offline.evaluation import PlanEvaluation
from tests.install.doctor_facts import of
from tests.install.test_doctor_report import ALL_CASES

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "explain" / "corpus.jsonl"


@pytest.fixture(scope="module")
def check_korean() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_korean", ROOT / "scripts" / "check_korean.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def korean() -> Iterator[None]:
    with in_language("ko"):
        yield


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "DOVETAIL_LANG"))}
    return subprocess.run(
        [sys.executable, "-m", "dovetail.cli", *arguments],
        capture_output=True,
        cwd=ROOT,
        env={**kept, "KUBECONFIG": os.devnull, **environment},
        check=False,
    )


def test_no_command_speaks_english_to_a_reader_of_korean() -> None:
    """Every command, on good and bad input; and no text is printed or raised beside the catalogue."""
    done = subprocess.run(
        [sys.executable, "scripts/check_korean.py"], capture_output=True, cwd=ROOT, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("오류: the file cannot be read", ["the file cannot be read"]),
        ("참고: run it again once more", ["run it again once more"]),
        ("종류: pod, node, nodeclaim, provisioner", []),
        ("조치: kubectl get nodes --all and wait", []),
        ("`dovetail plan says why it waits` 참조", []),
        ('"web has no node at all"은 이름입니다', []),
        ("spec.template.spec.requirements의 값", []),
        ("NodePool default의 제한", []),
    ],
)
def test_a_sentence_is_found_and_code_is_not(check_korean: ModuleType, line: str, found: list[str]) -> None:
    assert check_korean.english_sentences(line) == found


def test_a_text_beside_the_catalogue_is_found(check_korean: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'click.echo(f"there is no {name}")\nclick.echo(message("there is no pod"))\n'
        'raise Problem("give some file" if x else message("name it"))\nclick.echo("{}")\n'
    )
    assert [line.partition(" ")[0] for line in check_korean.unspoken(tmp_path)] == ["a.py:1:", "a.py:3:"]


def test_an_english_fact_of_a_korean_text_is_found(check_korean: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'REMEDY = source("mend it")\nmessage("{file}: {remedy}", file=file, remedy=REMEDY)\n'
        'message("{why}", why=error.strerror)\nmessage("{place}", place=place or "the whole file")\n'
        'f"{path}: {error.strerror}"\nmessage("{file}: {remedy}", file="a.yaml", remedy=message(REMEDY))\n'
    )
    lines = [line.partition(" ")[0] for line in check_korean.untranslated_facts(tmp_path)]
    assert sorted(lines) == ["a.py:2:", "a.py:3:", "a.py:4:", "a.py:5:"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("nul.yaml", b'a: "\x00"'),
        ("latin.yaml", b"name: caf\xe9\n"),
        ("handle.yaml", b"a: !x!y 1\n"),
        ("escape.yaml", b'a: "\\xZZ"\n'),
        ("merge.yaml", b"a: {<<: 5}\n"),
        ("two.yaml", b"a: 1\n---\nb: 2\n"),
    ],
)
def test_words_of_a_parser_are_in_korean(check_korean: ModuleType, tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    for arguments in (("simulate", str(tmp_path / file), "--check"), ("doctor", "--kubeconfig", str(tmp_path / file))):
        text = check_korean.answer(arguments)
        assert "오류: " in text
        assert check_korean.english_sentences(text) == [], text
        assert "codec" not in text and "unacceptable" not in text


def test_an_error_as_a_fact_is_in_korean(korean: None) -> None:
    text = message(
        "{server} cannot be reached: {problem}", server="https://a", problem=ConnectionError("Server disconnected")
    )
    assert text.endswith("서버가 연결을 끊었습니다")
    missing = FileNotFoundError(2, "No such file or directory", "a.yaml")
    assert "No such file" not in message("{server} cannot be reached: {problem}", server="https://a", problem=missing)


def test_an_unknown_language_is_refused_in_the_language_of_the_environment() -> None:
    assert "--lang" in (refused := run("plan", "--lang", "fr", DOVETAIL_LANG="ko").stderr.decode())
    assert "오류: " in refused
    assert b"Error: " in run("plan", "--lang", "fr", DOVETAIL_LANG="en").stderr


def test_every_finding_of_the_doctor_is_in_korean(check_korean: ModuleType, korean: None) -> None:
    found = set()
    for check, status, _, answers in ALL_CASES:
        for row in of(check, answers):
            if row.status is not status:
                continue
            found.add(check)
            given = json.dumps(answers, default=str, ensure_ascii=False)
            for sentence in check_korean.english_sentences(f"{row.message}\n{row.remedy}"):
                assert sentence in given, (check, row.message, row.remedy)
    assert found == {check.id for check in CHECKS} & {case[0] for case in ALL_CASES}
    assert not [check.title for check in CHECKS if message(check.title) == check.title]


def test_refusals_of_the_planner_are_in_korean(check_korean: ModuleType, korean: None) -> None:
    rows = CORPUS.read_text().splitlines()
    shown = 0
    for row in rows[:: len(rows) // 25]:
        case = json.loads(row)
        for why in PlanEvaluation(case["manifests"], whole_cluster=True).plan.unschedulable.values():
            for text in (why.message, why.remedy, *(funnel.emptied_by for funnel in why.pools.values())):
                shown += recognized(text) != text
                for sentence in check_korean.english_sentences(recognized(text)):
                    assert sentence in row, text
    assert shown > 25


# Tables, encodings, time


def test_columns_of_simulate_line_up(tmp_path: Path) -> None:
    (tmp_path / "short.yaml").write_text("duration: 120\n")
    done = run("simulate", str(tmp_path / "short.yaml"), "--lang", "ko", PYTHONUTF8="1")
    lines = done.stdout.decode().splitlines()
    start = next(index for index, line in enumerate(lines) if "노드" in line and "파드" in line)
    widths = {columns.width_of(line) for line in lines[start : start + 3]}
    assert len(widths) == 1, lines[:6]


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "ko_KR.UTF-8"])
@pytest.mark.parametrize("arguments", [("lint", "-f", "examples/mistake.yaml"), ("plan", "-f", "/nope"), ("--help",)])
def test_no_mojibake_in_any_locale(locale: str, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--lang", "ko", LC_ALL=locale)
    text = (done.stdout + done.stderr).decode("utf-8")
    assert "Traceback" not in text
    assert "?" * 2 not in text and "\\u" not in text and "\ufffd" not in text
    assert any("가" <= char <= "힣" for char in text)


def test_json_is_never_translated() -> None:
    """Programs read it: the same bytes whatever the reader speaks."""
    lint = ("lint", "-o", "json", "-f", "examples/mistake.yaml", "--lang")
    english, korean = run(*lint, "en").stdout, run(*lint, "ko").stdout
    assert b"is not an instance type" in english
    assert english == korean


def test_an_output_in_another_encoding_gets_english() -> None:
    done = run("lint", "-f", "examples/mistake.yaml", "--lang", "ko", PYTHONIOENCODING="latin-1")
    assert done.stdout.decode("latin-1").startswith("error: ")


def test_the_language_follows_option_then_variable_then_locale() -> None:
    english = b"no command"
    assert english in run("nope", "--lang", "en", DOVETAIL_LANG="ko", LANG="ko_KR.UTF-8").stderr
    assert english not in run("nope", DOVETAIL_LANG="ko", LC_ALL="C").stderr
    assert english not in run("nope", LC_ALL="ko_KR.UTF-8", LANG="C").stderr
    assert english in run("nope", LC_ALL="C", LANG="ko_KR.UTF-8").stderr


@pytest.mark.parametrize(
    "arguments", [("--help",), ("migrate", "--help"), ("migrate", "node-groups", "--help"), ("simulate", "-h")]
)
def test_every_reader_of_one_process_gets_help_in_the_language_of_the_reader(arguments: tuple[str, ...]) -> None:
    """Commands are shared by all who call them; their help, and Click's own sentences, are not."""
    korean, english, korean_again = (
        CliRunner().invoke(main, [*arguments, "--lang", chosen]).stdout for chosen in ("ko", "en", "ko")
    )
    assert "사용법: " in korean and "Usage: " in english
    assert not re.search("[가-힣]", english), english
    assert korean_again == korean != english
    assert "LANGUAGE" not in os.environ and gettext.textdomain() == "messages"


def test_the_catalogue_is_read_within_ten_milliseconds() -> None:
    """What Korean costs at the start: the catalogue, and the particles."""
    code = (
        "import time; from dovetail import language; start = time.process_time(); language.use('ko');"
        "language.message('no command {name!r}', name='x'); print(time.process_time() - start)"
    )
    best = min(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert best < 0.010 * _slowness(), f"{best * 1000:.1f} ms"


def _slowness() -> float:
    """How much slower than the reference this host is now, and at least 1."""
    start = time.process_time()
    sum(range(2_000_000))
    return max(1.0, (time.process_time() - start) / 0.05)
