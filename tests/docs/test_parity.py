"""Every page exists in English and Korean, with the same headings, code blocks, links and tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.markdown_pages import blocks, headings, lines

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if not path.name.endswith(".ko.md"))
HANGUL = re.compile(r"[가-힣]")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))


def twin(page: Path) -> Path:
    return page.with_suffix(".ko.md")


def prose(text: str) -> list[str]:
    """The lines outside code blocks."""
    return [line.text for line in lines(text) if not line.in_code]


def links(text: str) -> list[str]:
    """Where the page leads; a picture with Korean texts stands for its English twin."""
    return sorted(re.sub(r"-ko(\.\w+)$", r"\1", link) for line in prose(text) for link in _LINK.findall(line))


def tables(text: str) -> list[int]:
    """The number of rows of every table."""
    counts, rows = [], 0
    for line in (*prose(text), ""):
        if line.lstrip().startswith("|"):
            rows += 1
        elif rows:
            counts.append(rows)
            rows = 0
    return counts


def code(text: str) -> list[tuple[str, str, str]]:
    """Code blocks without their comments, which are translated."""
    return [
        (block.language, block.options.partition(":")[0], re.sub(r"(?m)(^|\s+)(#|//) .*$", "", block.text))
        for block in blocks(text)
    ]


@pages
def test_the_korean_page_has_the_same_headings_code_links_and_tables(page: Path) -> None:
    english, korean = page.read_text(), twin(page).read_text()
    assert [level for level, _ in headings(english)] == [level for level, _ in headings(korean)]
    assert code(english) == code(korean)
    assert links(english) == links(korean)
    assert tables(english) == tables(korean)


@pages
def test_the_korean_page_is_korean(page: Path) -> None:
    """Every paragraph of more than a few words has Korean in it; what is left in English is code and names."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(prose(twin(page).read_text())))
    plain = [re.sub(r"`[^`]*`|\(\S+\)", "", paragraph) for paragraph in paragraphs]
    left = [text for text in plain if len(re.findall(r"[A-Za-z]{2,}", text)) > 8 and not HANGUL.search(text)]
    assert left == []


def test_no_korean_page_is_without_an_english_one() -> None:
    korean = sorted((ROOT / "docs").rglob("*.ko.md"))
    assert len(korean) == len(PAGES)
    assert [path.name for path in korean if not path.with_suffix("").with_suffix(".md").exists()] == []


def test_words_are_counted_in_both_languages(capsys: pytest.CaptureFixture[str]) -> None:
    """Korean needs fewer words than English, since particles and endings are written with the word before."""
    counts = {
        page: tuple(len(" ".join(prose(path.read_text())).split()) for path in (page, twin(page))) for page in PAGES
    }
    english, korean = (sum(pair[index] for pair in counts.values()) for index in (0, 1))
    with capsys.disabled():
        print(f"\n{len(PAGES)} pages: {english} words in English, {korean} in Korean")
    assert english > 0
    assert 0.5 < korean / english < 1.2
