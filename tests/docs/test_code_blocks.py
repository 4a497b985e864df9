"""Every code block of the documentation is checked, or its first line says why it is not.

| first line of a block | what is done with it |
|---|---|
| `console` | the commands run, offline, and print what the page shows |
| `console lab` | the same in a lab, which the page starts, or which is started for it |
| `yaml` | manifests: our kinds pass `dovetail lint` |
| `yaml file: NAME` | the same, and commands of the page find it as NAME |
| `yaml bad: NAME` | a manifest with a mistake that the page talks about, as NAME |
| `yaml scenario`, `yaml market` | read as `dovetail simulate` and `dovetail run --market` read them |
| `yaml fragment: FIELD of a KIND` | a part of a manifest; parsed |
| `json` | parsed |
| `… held-by: FILE` | that test reads the page |
| `… no-run: REASON` | not run |
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.cloud.simulated import config as market_file
from dovetail.lab.scenario import schema
from scripts.markdown_pages import Block, blocks
from tests.docs.terminal import ROOT, Terminal, agrees, commands

PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if not path.name.endswith(".ko.md"))
LANGUAGES = {"console", "json", "python", "text", "yaml"}
OPTIONS = {"", "bad", "file", "fragment", "held-by", "lab", "market", "no-run", "scenario"}
OUR_GROUPS = ("karpenter.sh/", "karpenter.k8s.aws/", "autoscaling.x-k8s.io/")


def option(block: Block) -> str:
    return block.options.partition(":")[0].strip()


def argument(block: Block) -> str:
    return block.options.partition(":")[2].strip()


def name(page: Path) -> str:
    return str(page.relative_to(ROOT / "docs"))


def named(page: Path, kind: str) -> list[Block]:
    return [block for block in blocks(page.read_text()) if block.language == kind]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_has_a_language_and_is_checked_or_says_why_not(page: Path) -> None:
    for block in blocks(page.read_text()):
        place = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{place}: {block.language or 'no language'}"
        assert option(block) in OPTIONS, f"{place}: {block.options}"
        if option(block) == "held-by":
            assert page.name in (ROOT / argument(block)).read_text(), (
                f"{place}: {argument(block)} does not read this page"
            )
        elif option(block) in ("no-run", "fragment", "file", "bad"):
            assert argument(block), f"{place}: {option(block)} of what?"
        elif block.language in ("python", "text"):
            raise AssertionError(f"{place}: a {block.language} block is held by a test, or says why it is not run")


def _runnable(page: Path) -> bool:
    return any(option(block) in ("", "lab") for block in named(page, "console"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in PAGES if _runnable(page)], ids=name)
def test_commands_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    try:
        for block in blocks(page.read_text()):
            if option(block) in ("file", "bad"):
                terminal.write(argument(block), block.text)
            elif block.language == "console" and option(block) in ("", "lab"):
                typed = commands(block)
                if option(block) == "lab" and not terminal.has_lab and not typed[0].text.startswith("dovetail up"):
                    terminal.start_lab()
                for command in typed:
                    terminal.type(command)
    finally:
        terminal.close()


def _manifests() -> list[tuple[Path, Block]]:
    return [(page, block) for page in PAGES for block in named(page, "yaml")]


@pytest.mark.parametrize(
    ("page", "block"), _manifests(), ids=lambda value: f"{value.line}" if isinstance(value, Block) else name(value)
)
def test_yaml_is_what_its_reader_takes(page: Path, block: Block, tmp_path: Path) -> None:
    documents = [document for document in yaml.safe_load_all(block.text) if document is not None]
    assert documents
    if option(block) == "scenario":
        (tmp_path / "page.yaml").write_text(block.text)
        schema.read(tmp_path / "page.yaml")
    elif option(block) == "market":
        market_file.read(block.text.encode())
    elif option(block) in ("", "file"):
        _lint(block.text, documents, tmp_path)


def _lint(text: str, documents: list[Any], folder: Path) -> None:
    for document in documents:
        assert "apiVersion" in document and "kind" in document, "a manifest, or another option after `yaml`"
    if any(str(document["apiVersion"]).startswith(OUR_GROUPS) for document in documents):
        (folder / "page.yaml").write_text(text)
        result = CliRunner().invoke(main, ["lint", "-f", str(folder / "page.yaml")])
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("page", [page for page in PAGES if named(page, "json")], ids=name)
def test_json_can_be_read(page: Path) -> None:
    for block in named(page, "json"):
        json.loads(block.text)


def test_what_the_page_shows_is_compared() -> None:
    """The comparison knows a difference from a name, an age or an id that changes from run to run."""
    shown = ["NAME    READY   AGE", "web-6f9c8b7d5-x7zq2   1/1   12s", "…"]
    assert agrees(shown, "NAME READY AGE\nweb-5d4c7b6f9-b2h7k 1/1 3m4s\nmore\n")
    assert not agrees(shown, "NAME READY AGE\nweb-5d4c7b6f9-b2h7k 0/1 3m4s\nmore\n")
    assert not agrees(["a", "b"], "a\n")
    assert agrees(["node … joined"], "node i-0123456789abcdef0 of zone a joined\n")


def test_a_command_that_fails_fails_its_page(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    [good, bad] = commands(Block(1, "console", "", "$ echo hello   # said\nhello\n$ false\n"))
    terminal.type(good)
    with pytest.raises(AssertionError, match="false"):
        terminal.type(bad)
