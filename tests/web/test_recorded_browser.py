"""The slider of a recording in a real browser, by keyboard."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.web.recorded_page import RecordedPage, write

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def test_the_slider_is_moved_by_keyboard_and_the_series_mark_the_instant(tab: BrowserContext, tmp_path: Path) -> None:
    with RecordedPage(write(tmp_path / "shop.dvrec")) as recorded:
        page = tab.new_page()
        page.goto(recorded.url)
        expect(page.locator("[data-figure=nodes] .value")).to_have_text("2")
        slider = page.get_by_role("slider", name="Time in the recording")
        slider.focus()
        page.keyboard.press("Home")
        page.wait_for_url(re.compile(r"at=2026-01-01T00:00:00Z"))
        expect(page.locator("[data-figure=nodes] .value")).to_have_text("1")
        expect(slider).to_be_focused()
        page.get_by_role("link", name="Next change of the fleet").click()
        expect(page.locator("[data-figure=nodes] .value")).to_have_text("2")
        page.get_by_role("link", name="Time", exact=True).click()
        expect(page.locator("#plots[data-drawn]")).to_have_count(1)
        expect(page.locator("#instant")).to_have_text("2026-01-01 00:01:40 UTC")
        expect(page.locator("#lost")).to_be_hidden()
        page.evaluate(AXE.read_text())
        violations = page.evaluate("async () => (await axe.run()).violations.map(({ id, impact }) => [id, impact])")
        assert [name for name, impact in violations if impact in ("serious", "critical")] == []
