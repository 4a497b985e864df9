"""A catalogue with a text that is missing, empty, uncertain or short of a fact is refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from babel.messages.catalog import Catalog

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def build_messages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_messages", ROOT / "scripts" / "build_messages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_faults_of_a_catalogue(build_messages: ModuleType) -> None:
    catalogue = Catalog(locale="ko")
    catalogue.add("done", "끝났습니다")
    catalogue.add("empty", "")
    catalogue.add("uncertain", "아마도", flags=["fuzzy"])
    catalogue.add("node {name} waits", "노드가 기다립니다")
    catalogue.add("node waits", "노드 {name:이} 기다립니다")
    catalogue.add(("{n} pod", "{n} pods"), ("",))
    assert sorted(line.partition(":")[0] for line in build_messages.faults(catalogue)) == [
        "facts differ (name)",
        "facts differ (name)",
        "fuzzy",
        "untranslated",
        "untranslated",
    ]


def test_a_new_text_is_missing_and_an_old_one_is_dropped(build_messages: ModuleType) -> None:
    catalogue = Catalog(locale="ko")
    catalogue.add("old", "예전")
    catalogue.add("kept", "유지")
    fresh = build_messages.updated(catalogue, {"kept", "new"})
    assert list(build_messages.faults(fresh)) == ["untranslated: 'new'"]
    assert fresh.get("old") is None
    assert fresh.get("kept").string == "유지"


def test_the_catalogue_has_every_text_of_the_source() -> None:
    """As `make check` runs it: in this process an earlier test may have shown the help of a command in Korean."""
    program = [sys.executable, str(ROOT / "scripts" / "build_messages.py"), "--check"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nrun scripts/build_messages.py and write the Korean"
