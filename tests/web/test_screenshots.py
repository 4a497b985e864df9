"""The main views in both languages beside stored pictures of them, in the light and the dark theme.

The pictures are a quarter of the page's width and height, so that another version of the browser's fonts is no
difference and a panel that moved, vanished or lost its colours is one. After a change that is meant, look at the new
pictures: `DOVETAIL_DRAW_SCREENSHOTS=1 pytest tests/web/test_screenshots.py` stores them.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.web.recorded_page import RecordedPage, write

pytestmark = pytest.mark.browser

STORED = Path(__file__).parent / "screenshots"
#: How far the mean colour of a tile of 32 by 32 pixels may be from the stored one, of 255. Another smoothing of
#: letters changes it by 1 or 2, a figure or a link that vanished by 10 and more.
MAX_TILE_DIFFERENCE = 6.0
#: How wide two texts are in the fonts that the stored pictures were drawn with: on a host with others nothing is equal.
FONT_WIDTHS_PX = [163, 139]
_WIDTHS = """() => ["Cost an hour $0.1180", "시간당 비용 노드 대기"].map((text) => {
  const context = new OffscreenCanvas(10, 10).getContext("2d");
  context.font = getComputedStyle(document.documentElement).font;
  return Math.round(context.measureText(text).width);
})"""
VIEWS = {
    "fleet": "/?at=2026-01-01T00:04:10Z",
    "cost": "/cost?at=2026-01-01T00:04:10Z",
    "time": "/time?at=2026-01-01T00:04:10Z",
    "node": "/node/third?at=2026-01-01T00:04:10Z",
    "pending": "/pending?at=2026-01-01T00:01:00Z",
    "health": "/health?at=2026-01-01T00:04:10Z",
}
_REDUCED = """async (picture) => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
  const canvas = new OffscreenCanvas(image.width / 4, image.height / 4), context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""
_DIFFERENCE = """async (pictures) => {
  const decode = async (picture) => {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64," + picture)).blob());
    const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  };
  const [a, b] = [await decode(pictures[0]), await decode(pictures[1])];
  if (a.width !== b.width || a.height !== b.height) return 255;
  let most = 0;
  for (let top = 0; top < a.height; top += 8)
    for (let left = 0; left < a.width; left += 8)
      for (const colour of [0, 1, 2]) {
        let sum = 0;
        for (let y = top; y < top + 8; y++)
          for (let x = left; x < left + 8; x++) {
            const at = 4 * (y * a.width + x) + colour;
            sum += a.data[at] - b.data[at];
          }
        most = Math.max(most, Math.abs(sum) / 64);
      }
  return most;
}"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedPage]:
    with RecordedPage(write(tmp_path_factory.mktemp("screenshots") / "shop.dvrec")) as page:
        yield page


@pytest.fixture(scope="module")
def canvas(browser: Browser) -> Iterator[Page]:
    """A page of no site, where pictures are reduced and compared."""
    page = browser.new_page()
    yield page
    page.close()


def picture(browser: Browser, recorded: RecordedPage, view: str, language: str, scheme: str, style: str = "") -> bytes:
    """One view as it is drawn; the version in the footer is left out."""
    context = browser.new_context(
        locale=language,
        viewport={"width": 1280, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
        bypass_csp=bool(style),
    )
    try:
        page = context.new_page()
        page.goto(recorded.url)
        page.goto(recorded.base + VIEWS[view] + f"&lang={language}")
        if view == "time":
            page.locator("#plots[data-drawn]").wait_for()
        if style:
            page.add_style_tag(content=style)
        page.evaluate("document.fonts.ready")
        if not os.environ.get("DOVETAIL_DRAW_SCREENSHOTS"):
            widths = page.evaluate(_WIDTHS)
            if widths != FONT_WIDTHS_PX:
                pytest.skip(f"the fonts of this host are not those of the stored pictures: {widths}, {FONT_WIDTHS_PX}")
        return page.screenshot(mask=[page.locator("footer")], mask_color="#808080", animations="disabled")
    finally:
        context.close()


def reduced(canvas: Page, shot: bytes) -> bytes:
    return base64.b64decode(canvas.evaluate(_REDUCED, base64.b64encode(shot).decode()))


def difference(canvas: Page, mine: bytes, theirs: bytes) -> float:
    """How far the mean colours of two pictures are apart in the tile that differs most; 255 where their sizes do."""
    return float(canvas.evaluate(_DIFFERENCE, [base64.b64encode(shot).decode() for shot in (mine, theirs)]))


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize(("view", "scheme"), [*((view, "light") for view in VIEWS), ("fleet", "dark")])
def test_a_view_looks_as_stored(
    browser: Browser, canvas: Page, recorded: RecordedPage, view: str, language: str, scheme: str, tmp_path: Path
) -> None:
    drawn = reduced(canvas, picture(browser, recorded, view, language, scheme))
    stored = STORED / f"{view}-{language}-{scheme}.png"
    if os.environ.get("DOVETAIL_DRAW_SCREENSHOTS"):
        STORED.mkdir(exist_ok=True)
        stored.write_bytes(drawn)
    (tmp_path / stored.name).write_bytes(drawn)
    most = difference(canvas, drawn, stored.read_bytes())
    assert most <= MAX_TILE_DIFFERENCE, f"{stored.name} differs by {most:.1f}; drawn now: {tmp_path / stored.name}"


@pytest.mark.parametrize(
    "style",
    ["[data-figure=cost] { visibility: hidden }", ".n { visibility: hidden }", "nav { display: none }"],
)
def test_a_figure_or_block_that_vanished_is_noticed(
    browser: Browser, canvas: Page, recorded: RecordedPage, style: str
) -> None:
    drawn = reduced(canvas, picture(browser, recorded, "fleet", "en", "light", style))
    assert difference(canvas, drawn, (STORED / "fleet-en-light.png").read_bytes()) > 1.5 * MAX_TILE_DIFFERENCE
