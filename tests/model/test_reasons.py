"""Every reason says who must act and the remedy, and the vocabulary is closed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dovetail
from dovetail.model.reasons import REASONS, reason

#: Upper case, by itself in quotes or in brackets at the end of a sentence.
_WORD = re.compile(r"""["(']([A-Z]+(?:_[A-Z]+)*)["')]""")
#: The calls whose codes are of the vocabulary.
_CALLS = {"Blocker", "Rejection", "Trouble", "Unschedulable", "Meaning"}


def _sources() -> list[str]:
    root = Path(str(dovetail.__file__)).parent
    rooms = ("planner", "cloud", "cluster", "controllers")
    paths = [path for room in rooms for path in sorted((root / room).rglob("*.py"))]
    paths.append(root / "model" / "pvc_problems.py")
    return [path.read_text() for path in paths]


def _said(source: str) -> Iterator[str]:
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _CALLS:
            for given in (*call.args, *(each.value for each in call.keywords)):
                if isinstance(given, ast.Constant) and isinstance(given.value, str) and given.value.isupper():
                    yield given.value


def test_every_reason_has_a_text_a_class_and_a_remedy() -> None:
    for code, row in REASONS.items():
        assert code == row.code == code.upper()
        assert row.text and row.remedy
        assert row.kind in ("wait", "change", "admin", "bug")


def test_facts_are_filled_in() -> None:
    assert reason("PDB").message(budget="web") == "the PodDisruptionBudget web allows no disruption"
    assert "?" in reason("PDB").message()


def test_no_code_is_said_that_is_not_in_the_vocabulary() -> None:
    said = {code for text in _sources() for code in _said(text)}
    assert len(said) > 20
    assert said - REASONS.keys() == set()


def test_no_row_of_the_vocabulary_is_never_said() -> None:
    said = {code for text in _sources() for code in _WORD.findall(text)}
    assert REASONS.keys() - said == set()


def test_every_row_is_in_the_documents_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text()
    rows = [f"| `{row.code}` | {row.kind} | {row.text} | {row.remedy} |" for row in REASONS.values()]
    assert [row for row in rows if row not in page] == []
    assert page.count("\n| `") == len(rows)


def test_every_code_has_a_section_with_an_example_and_a_remedy() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text().partition("# Examples and remedies")[2]
    sections = {each.partition("\n")[0]: each for each in page.split("\n## ")[1:]}
    assert sections.keys() == {code.lower() for code in REASONS}
    for code, text in sections.items():
        example = text.partition("```text held-by: tests/model/test_reasons.py\n")[2].partition("\n```")[0]
        remedy = text.partition("**Remedy** ")[2].strip()
        assert example.partition(" ")[0].count("/") >= 1, f"{code}: an example begins with the object"
        assert len(remedy) > 10, code


def test_examples_name_their_code_or_are_about_a_node() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reasons.md").read_text().partition("# Examples and remedies")[2]
    for section in page.split("\n## ")[1:]:
        code, example = (
            section.partition("\n")[0],
            section.partition("```text held-by: tests/model/test_reasons.py\n")[2].partition("\n```")[0],
        )
        assert code.upper() in example or example.startswith(("node/", "nodepool/")), code
