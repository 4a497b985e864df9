"""The word check finds retired words in identifiers, comments and documents, and nowhere else."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check_words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_words", ROOT / "scripts" / "check_words.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", "class NodeShelf:\n    pass\n", [1]),
        ("a.py", "x = 1\nnode_shelf = 2  # a wish\n", [2, 2]),
        ("a.py", "dashboard, manifold = 1, 2\n", []),
        ("a.md", "# Title\n\nNobody knows.\n", [3]),
        ("a.md", "<!-- glossary -->\n| preference | wish |\n<!-- /glossary -->\nA wish.\n", [4]),
        ("shelf.md", "Plain.\n", [1]),
        ("a.py", "class Machine:\n    machines = 1  # the v1alpha5 Machine\n", [1, 2]),
        ("a.md", "kubectl get machines shows a Machine; a machine is an instance\n", [1]),
        ("src/a.py", "def f(at):\n    found = [each for each in at]\n    return found\n", [1, 2, 2]),
        ("src/a.py", "class A:\n    at: float\n\n    def known(self):\n        return self.at\n", []),
        ("tests/a.py", "def f(at):\n    return at\n", []),
    ],
)
def test_retired_words_are_found_with_their_line(
    check_words: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, lines: list[int]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    findings = list(check_words.check(name))
    assert [int(finding.split(":")[1]) for finding in findings] == lines


def test_the_tree_holds_no_retired_word(check_words: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    paths = check_words._tracked()
    assert len(paths) > 1000
    assert [finding for path in paths for finding in check_words.check(path)] == []


def test_a_public_class_name_in_two_modules_is_reported_unless_it_is_an_api_type(
    check_words: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("class Verdict:\n    pass\n\n\nclass PodSpec:\n    pass\n\n\nclass _State:\n    pass\n")
    Path("b.py").write_text("class _State:\n    pass\n\n\nclass PodSpec:\n    pass\n\n\nclass Verdict:\n    pass\n")
    findings = list(check_words.shared_class_names(["a.py", "b.py"]))
    assert findings == ["b.py:9: class 'Verdict' stands also in a.py:1: name one after its object"]
