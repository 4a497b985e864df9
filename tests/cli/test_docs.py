"""The documents name only what is there: files, modules, commands and their options."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dovetail.autoscalers.node_groups.flags import FLAGS
from dovetail.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("bench/", "docs/", "examples/", "kubernetes/", "scenarios/", "scripts/", "src/", "tests/")

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


@documents
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text())
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@documents
def test_files_are_there(document: Path) -> None:
    words = re.findall(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})[\w./*-]*\w", document.read_text(), re.ASCII)
    places = (ROOT, ROOT / "src" / "dovetail")
    named = {word for word in words if not any(list(place.glob(f"{word}*")) for place in places)}
    assert named == set()


@documents
def test_modules_can_be_imported(document: Path) -> None:
    text = document.read_text()
    dotted = {*re.findall(r"`(dovetail\.[a-z_.]+)`", text), *re.findall(r"python -m (bench[\w.]*|tests[\w.]*)", text)}
    assert {name for name in dotted if not _is_there(name)} == set()


def _is_there(name: str) -> bool:
    """A module, or something in one."""
    module, _, inner = name.rpartition(".")
    if module and not hasattr(importlib.import_module(module), "__path__"):
        return hasattr(importlib.import_module(module), inner)
    return importlib.util.find_spec(name) is not None


@documents
def test_commands_and_their_options_are_there(document: Path) -> None:
    unknown = []
    for name, rest in re.findall(r"(?m)(?:^|[`(]|\$ )dovetail ([a-z]+(?:-[a-z]+)*)\b([^`\n|#]*)", document.read_text()):
        if name == "kubectl":
            continue
        if name not in COMMANDS:
            unknown.append(name)
            continue
        command = main.get_command(click.Context(main), name)
        assert command is not None
        commands = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        options = [each for command in commands for each in command.params]
        known = {option for each in options for option in (*each.opts, *each.secondary_opts)}
        if name == "cluster-autoscaler":
            known |= {f"--{flag}" for flag in FLAGS}  # read as Go programs read them, not by click
        own = re.sub(r"\$\(.*?\)", "", rest)  # a command inside has options of its own
        typed = re.findall(r"(?<!\S)(--[a-z][a-z-]*|-[a-z]\b)", own)
        unknown += [f"{name} {option}" for option in typed if option not in {*known, "--help"}]
    assert unknown == []


def test_every_command_is_in_both_readmes() -> None:
    for name in ("README.md", "README.ko.md"):
        table = (ROOT / name).read_text().partition("| `dovetail up`")[2]
        assert {each for each in COMMANDS if f"`{each}`" not in table and f"`dovetail {each}`" not in table} <= {
            "up",
            "version",
        }


def test_both_readmes_show_the_same_screens() -> None:
    english, korean = (
        re.findall(r"```console\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
        for name in ("README.md", "README.ko.md")
    )
    assert [re.sub(r" +# .*", "", each) for each in english] == [re.sub(r" +# .*", "", each) for each in korean]


def test_the_readme_shows_what_lint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    said = CliRunner().invoke(main, ["lint", "-f", "examples/mistake.yaml"])
    assert said.exit_code == 1
    assert f"$ dovetail lint -f examples/mistake.yaml\n{said.stdout}```" in (ROOT / "README.md").read_text()


def test_the_readme_shows_why_plan_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    line = "dovetail plan -f examples/nodepool.yaml -f examples/giant.yaml"
    said = CliRunner().invoke(main, line.split()[1:])
    assert said.exit_code == 1
    assert f"$ {line}\n{said.stdout}```" in (ROOT / "README.md").read_text()


def test_the_readme_shows_what_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of today; the numbers may be those of a better plan tomorrow."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    said = CliRunner().invoke(main, ["plan", "-f", "examples/web.yaml"])
    assert said.exit_code == 0
    lines = [line for line in said.output.splitlines() if not re.match(r"\d|\$|lower bound|  the prices", line)]
    shown = " ".join((ROOT / "README.md").read_text().split())
    assert [line for line in lines if " ".join(line.split()) not in shown] == []
