"""The reference is what the code says, in both languages, and leaves nothing out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from dovetail.cli.main import COMMANDS, main
from dovetail.controllers import settings
from scripts.build_reference import DOCS, ROOT, pages
from scripts.reference.formats import PLAN
from scripts.reference.kinds import REPLACED, SUCCESSORS, fields, listed, schemas
from scripts.reference.runtime import events, log_lines, metrics
from scripts.reference.words import Words


@pytest.mark.parametrize("language", ["en", "ko"])
def test_pages_are_as_the_code_says_and_every_text_is_translated(language: str) -> None:
    say = Words(language)
    stale = [path.name for path, text in pages(say).items() if not path.exists() or path.read_text() != text]
    assert stale == [], "python scripts/build_reference.py"
    assert list(say.missing) == [], "scripts/reference/korean.yaml"


def test_every_field_of_our_kinds_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    """`kubectl explain` shows these texts. Fields that every object has are described by the API server."""
    described = [
        (kind, version, field)
        for (kind, version), schema in schemas().items()
        for field in fields(schema)
        if field.path not in ("apiVersion", "kind", "metadata")
    ]
    missing = [f"{kind} {version} {field.path}" for kind, version, field in described if not field.description]
    with capsys.disabled():
        print(f"\n{len(described)} fields of {len(schemas())} kinds and versions are described")
    assert len(described) > 500
    assert missing == []


def test_replaced_fields_lead_to_fields_that_exist() -> None:
    for old, moved in REPLACED.items():
        before, after = ({field.path for field in listed(schemas()[version])} for version in (old, SUCCESSORS[old]))
        assert set(moved) <= before, old
        assert {path for path in moved.values() if path.startswith(("spec.", "status."))} <= after, old


def test_every_command_and_option_is_listed() -> None:
    page = (DOCS / "reference" / "commands.md").read_text()
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        section = page.partition(f"\n## dovetail {name}\n")[2].partition("\n## ")[0]
        options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
        unlisted = [option.opts[-1] for option in options if option.name != "lang" and option.opts[-1] not in section]
        assert unlisted == [], name


def test_every_setting_is_listed() -> None:
    page = (DOCS / "reference" / "settings.md").read_text()
    assert [name for name in settings.meanings() if f"`{name.upper()}`" not in page] == []


def test_metrics_of_the_alerts_are_listed() -> None:
    rules = yaml.safe_load((ROOT / "charts" / "dovetail" / "files" / "alerts.yaml").read_text())
    text = " ".join(rule["expr"] for group in rules["groups"] for rule in group["rules"])
    ours = set(re.findall(r"\b(?:karpenter|dovetail|operator)_[a-z0-9_]+", text))
    known = {metric.name for metric in metrics()}
    assert ours
    assert {
        name for name in ours if name not in known and re.sub(r"_(bucket|sum|count)$", "", name) not in known
    } == set()


def test_events_and_log_lines_are_found() -> None:
    """Well-known ones; a change of how they are written must not empty the lists."""
    assert {"Nominated", "DisruptionBlocked", "FailedScheduling", "SafeMode"} <= {event.reason for event in events()}
    assert {"launched nodeclaim", "starting dovetail"} <= {line.text for line in log_lines()}


def test_the_plan_has_the_fields_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = [
        "plan -f examples/web.yaml -o json -v",
        "plan -f examples/nodepool.yaml -f examples/giant.yaml -o json",
    ]
    for line in lines:
        printed = CliRunner().invoke(main, line.split()).stdout
        plan = json.loads(printed[printed.index("{") :])
        unknown = {path for path in _paths(plan, "") if not _is_listed(path)}
        assert unknown == set(), line


def _paths(value: Any, path: str) -> Iterator[str]:
    """The paths of a document, as deep as the page lists them."""
    if path in PLAN or path.removesuffix("[]") in PLAN:
        yield path
    if isinstance(value, dict):
        open_keys = path in ("pods", "moves", "stays")
        for key, inner in value.items():
            yield from _paths(inner, f"{path}{{}}" if open_keys else f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{path}[]")
    else:
        yield path


def _is_listed(path: str) -> bool:
    """A listed path, or a part of a listed value whose inside the page leaves to its example."""
    return any(path == known or path.startswith((f"{known}.", f"{known}[", f"{known}{{")) for known in PLAN)
