"""The built site: links and anchors lead somewhere, nothing is loaded from elsewhere, both languages have all pages."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that make a browser load something.
LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Reader(HTMLParser):
    """Links, anchors, loaded files and headings of the navigation of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and values.get(LOADED[tag]) and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values[LOADED[tag]])


def _pages(site: Path) -> dict[Path, Reader]:
    pages = {path: Reader(path.read_text()) for path in sorted(site.rglob("*.html"))}
    assert len(pages) > 40
    return pages


def test_every_link_and_anchor_resolves(site: Path) -> None:
    pages = _pages(site)
    broken = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if link.startswith("/") or not target.is_file():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif url.fragment and target in pages and unquote(url.fragment) not in pages[target].anchors:
                broken.append(f"{path.relative_to(site)}: {link} has no such anchor")
    assert broken == []


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    foreign = [
        f"{path.relative_to(site)}: {link}"
        for path, page in _pages(site).items()
        for link in page.loaded
        if urlsplit(link).scheme or urlsplit(link).netloc
    ]
    assert foreign == []


def test_every_page_is_there_in_both_languages_and_has_the_same_anchors_of_headings(site: Path) -> None:
    english = {path.relative_to(site) for path in site.rglob("*.html") if path.relative_to(site).parts[0] != "ko"}
    korean = {path.relative_to(site / "ko") for path in (site / "ko").rglob("*.html")}
    assert english == korean
    for path in english:
        there, here = (Reader((folder / path).read_text()).anchors for folder in (site, site / "ko"))
        assert there == here, path


def test_the_four_parts_are_in_the_navigation(site: Path) -> None:
    for page, parts in (
        (site / "index.html", ("Tutorials", "How-to", "Reference", "Explanation")),
        (site / "ko" / "index.html", ("튜토리얼", "방법 안내", "레퍼런스", "해설")),
    ):
        text = page.read_text()
        assert [part for part in parts if part not in text] == []
