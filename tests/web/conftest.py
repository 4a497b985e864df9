"""A cluster of our own API server, the page in front of it, and a real browser that looks at the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.web.world import World

#: What a browser shows on a host that does much else beside may take a while; it returns as soon as it is shown.
expect.set_options(timeout=40_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one module: while it runs, no other event loop can run in this thread."""
    program = os.environ.get("DOVETAIL_CHROMIUM") or shutil.which("chromium")
    assert program, "the tests of the page need a browser: apt-get install chromium, or set DOVETAIL_CHROMIUM"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A pool, two nodes and a pod: every test may count on them, and leaves them."""
    with World() as running:
        running.pool("default")
        for name in ("base-1", "base-2"):
            running.node(name)
        running.pod("base", "base-1")
        running.settle(lambda observer: len(observer.view.nodes) == 2 and bool(observer.view.nodes["node/base-1"].pods))
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of its own cookies, in English; every message of the console fails the test that made it."""
    context = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 800})
    context.set_default_timeout(40_000)
    problems: list[str] = []

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if _is_violation(message.text) else None)

    context.on("page", watch)
    yield context
    context.close()
    assert problems == []


def _is_violation(text: str) -> bool:
    """What the content security policy refused; a lost connection is expected where a test cuts it."""
    return "Content Security Policy" in text or "Refused to" in text
