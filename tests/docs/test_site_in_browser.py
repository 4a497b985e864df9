"""The site from the file system in a real browser: search in both languages, and no request leaves the disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def context() -> Iterator[BrowserContext]:
    program = os.environ.get("DOVETAIL_CHROMIUM") or shutil.which("chromium")
    assert program, "the tests of the site need a browser: apt-get install chromium, or set DOVETAIL_CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        context.set_default_timeout(40_000)
        yield context
        browser.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab; a request to anything but a file, and an error of a script, fails the test."""
    problems: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: problems.append(request.url) if _is_foreign(request.url) else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert problems == []


def _is_foreign(url: str) -> bool:
    return not url.startswith(("file://", "data:", "blob:", "about:"))


def _results(page: Page, query: str) -> list[str]:
    page.locator("[data-md-component=search-query]").click()
    ready = page.locator(".md-search-result__meta")
    expect(ready).to_have_text(re.compile("Type to start searching|검색어를 입력하세요"), timeout=40_000)
    page.keyboard.type(query)
    page.keyboard.press("End")  # an input method ends a syllable with a key; typed Korean alone has none
    links = page.locator(".md-search-result__link")
    expect(links.first).to_be_visible(timeout=40_000)
    return [link.get_attribute("href") or "" for link in links.all()]


@pytest.mark.parametrize(
    ("start", "query", "target"),
    [
        ("lab.html", "NodePool", "/api.html"),
        ("index.html", "NO_TYPE_FITS", "/reasons.html"),
        ("ko/index.html", "노드", "/ko/"),
        ("ko/index.html", "섀도", "/ko/index.html"),
    ],
)
def test_search_from_the_file_system_answers_in_the_language_of_the_page(
    site: Path, page: Page, start: str, query: str, target: str
) -> None:
    page.goto((site / start).as_uri())
    results = _results(page, query)
    assert any(target in link for link in results), results
    assert all(("/ko/" in link) == start.startswith("ko/") for link in results), results
    page.goto(results[0])
    expect(page.locator("article h1").first).to_be_visible()


def test_the_language_switch_leads_to_the_same_page(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.locator("[hreflang=ko].md-select__link").dispatch_event("click")
    page.wait_for_url("**/ko/index.html")
    assert page.locator("html").get_attribute("lang") == "ko"


def test_no_page_makes_a_request_beyond_the_file_system(site: Path, page: Page) -> None:
    """Every page of one language, as a browser loads it; `page` holds the assertion."""
    paths = sorted(path for path in site.rglob("*.html") if path.relative_to(site).parts[0] != "ko")
    assert len(paths) > 20
    for path in paths:
        page.goto(path.as_uri(), wait_until="load")
