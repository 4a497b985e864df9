"""A new user's paste with one thing misspelt: the finding names the line and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.cloud.aws import catalog
from dovetail.model.lint import SourceFile, lint
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.lint.source import Document, read

SEEDS = sorted((Path(__file__).parents[1] / "data" / "kinds" / "seeds").glob("*.yaml"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHOP = InstanceCatalog("ap-northeast-2", catalog.load("ap-northeast-2"))
#: Maps whose keys are the user's own.
OWN = ("labels", "annotations", "tags", "subnetSelector", "securityGroupSelector", "limits", "resources")
#: Fields whose values are one of a closed set, or names that nodes have.
CLOSED = ("operator", "effect", "key", "values", "consolidationPolicy", "volumeType", "amiFamily", "kind", "enabled")


def misspell(word: str) -> str:
    """Two letters swapped near the end, or one left out where they are alike."""
    at = len(word) - 3 if len(word) > 4 else 0
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return swapped if swapped != word else word[:at] + word[at + 1 :]


def mistakes(document: Document) -> Iterator[tuple[str, str, int]]:
    """The text with one thing wrong, the right word, and the line."""
    text = document.text
    for path, span in document.keys.items():
        word = text[span.start : span.end]
        if any(part in OWN for part in path[:-1]) or len(word) < 4:
            continue
        yield text[: span.start] + misspell(word) + text[span.end :], word, span.line
    for path, span in document.values.items():
        written = text[span.start : span.end]
        word = written.strip("\"'")
        field = next((str(part) for part in reversed(path) if not isinstance(part, int)), "")
        if field not in CLOSED or "\n" in written or written[:1] in "[{" or len(word) < 4:
            continue
        if field == "key" and ("taints" in path or "/" not in word):
            continue
        yield text[: span.start] + written.replace(word, misspell(word)) + text[span.end :], word, span.line


def cases() -> Iterator[tuple[str, str, str, int]]:
    for seed in SEEDS:
        for document in read(SourceFile(seed.name, seed.read_text()))[0]:
            for text, word, line in mistakes(document):
                yield f"{seed.stem}:{line} {word}", text, word, line


@pytest.mark.parametrize(("text", "word", "line"), [pytest.param(*rest, id=name) for name, *rest in cases()])
def test_a_misspelt_word_is_found_on_its_line_with_the_remedy(text: str, word: str, line: int) -> None:
    findings = [each for each in lint([SourceFile("x.yaml", text)], NOW, SHOP) if each.line == line]
    assert any(word in each.hint for each in findings), [(each.message, each.hint) for each in findings]
