"""Hooks of MkDocs: the same anchors in both languages, plain info strings, a search index for each language."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.markdown_pages import anchors, with_anchors

KOREAN = "ko"
_INFO = re.compile(r"(?m)^( *```+ *\w+) [^`\n]*$")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """A Korean page has the anchors of its English twin; what follows the language of a code block is for the tests."""
    source = Path(page.file.src_uri)
    if source.suffixes[-2:] == [f".{KOREAN}", ".md"]:
        twin = Path(config["docs_dir"]) / source.with_suffix("").with_suffix(".md")
        if twin.exists():
            markdown = with_anchors(markdown, anchors(twin.read_text()))
    return _INFO.sub(r"\1", markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """A Korean page searches below its own folder, so that it shows Korean pages alone."""
    if page.url.startswith(f"{KOREAN}/"):
        return re.sub(r'("base": ")(\.\./)?\.\.(")', lambda m: f"{m[1]}{'..' if m[2] else '.'}{m[3]}", output, count=1)
    return output


@event_priority(-200)  # after the offline plugin, which runs at -100
def on_post_build(*, config: Any, **_: Any) -> None:
    """One index becomes two; each has the pages of its language, relative to its folder."""
    site = Path(config["site_dir"])
    (site / "404.html").unlink(missing_ok=True)  # for a server; its links are absolute
    index = json.loads((site / "search" / "search_index.json").read_text())
    prefix = f"{KOREAN}/"
    korean = [
        {**entry, "location": entry["location"].removeprefix(prefix)}
        for entry in index["docs"]
        if entry["location"].startswith(prefix)
    ]
    if not korean:  # the English half of the build, or it is split already
        return
    english = [entry for entry in index["docs"] if not entry["location"].startswith(prefix)]
    for folder, docs in ((site, english), (site / KOREAN, korean)):
        text = json.dumps({**index, "docs": docs}, ensure_ascii=False, separators=(",", ":"))
        (folder / "search").mkdir(exist_ok=True)
        (folder / "search" / "search_index.json").write_text(text)
        (folder / "search" / "search_index.js").write_text(f"var __index = {text}")
