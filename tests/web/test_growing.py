"""The page over a recording that is still written, as that of a running simulation."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import BrowserContext, expect

from dovetail.cli.main import main
from dovetail.offline.recording import Writer
from tests.offline.recording.small import IDENTITY, START, later, pod
from tests.web.recorded_page import RecordedPage, node

SCENARIO = """
name: a minute of two nodes
duration: 60s
seed: 3
cluster: {pools: [{count: 2, type: m5.large, zones: [us-east-1a]}]}
"""


class Simulation:
    """A recording in the making: one node at the start, more as the test goes on."""

    def __init__(self, path: Path) -> None:
        self.running = True
        self._writer = Writer.create(path, START, "simulated", IDENTITY, source="simulation")
        self._writer.put(START, node("first"))
        self._writer.put(START, pod("web-0", "first", "Running"))
        self._writer.begin()
        self._writer.sync()

    def launch(self, name: str, after: float) -> None:
        self._writer.put(later(after), node(name))
        self._writer.flush()
        self._writer.sync()

    def abandon(self) -> None:
        self._writer.abandon()

    def end(self, after: float) -> None:
        self._writer.close(later(after))
        self.running = False


@contextmanager
def followed(folder: Path) -> Iterator[tuple[Simulation, RecordedPage]]:
    simulation = Simulation(folder / "simulation.dvrec")
    try:
        with RecordedPage(folder / "simulation.dvrec", lambda: simulation.running) as page:
            yield simulation, page
    finally:
        simulation.abandon()


@pytest.mark.browser
def test_a_page_without_an_instant_follows_the_simulation_to_its_end(tab: BrowserContext, tmp_path: Path) -> None:
    with followed(tmp_path) as (simulation, recorded):
        page = tab.new_page()
        page.goto(recorded.url)
        nodes, instant = page.locator("[data-figure=nodes] .value"), page.locator("#instant")
        expect(page.get_by_text("Simulation, running")).to_be_visible()
        expect(nodes).to_have_text("1")
        simulation.launch("second", 100)
        expect(nodes).to_have_text("2")
        expect(instant).to_have_text("2026-01-01 00:01:40 UTC")
        assert "at=" not in page.url
        simulation.launch("third", 200)
        expect(nodes).to_have_text("3")
        simulation.end(600)
        expect(instant).to_have_text("2026-01-01 00:10:00 UTC")
        expect(page.get_by_text("Simulation, running")).to_have_count(0)
        expect(page.locator("#lost")).to_be_hidden()


@pytest.mark.browser
def test_a_page_of_an_instant_stays_there_while_the_slider_grows(tab: BrowserContext, tmp_path: Path) -> None:
    with followed(tmp_path) as (simulation, recorded):
        simulation.launch("second", 100)
        page = tab.new_page()
        page.goto(recorded.url)
        nodes, slider = page.locator("[data-figure=nodes] .value"), page.locator("#step")
        expect(nodes).to_have_text("2")
        slider.focus()
        page.keyboard.press("Home")
        page.wait_for_url(re.compile(r"at=2026-01-01T00:00:00Z"))
        expect(nodes).to_have_text("1")
        page.locator("#main").focus()
        simulation.launch("third", 300)
        expect(slider).to_have_attribute("data-end", "2026-01-01T00:05:00+00:00")
        expect(nodes).to_have_text("1")
        page.get_by_role("link", name="Follow the simulation").click()
        expect(nodes).to_have_text("3")
        simulation.launch("fourth", 400)
        expect(nodes).to_have_text("4")


def test_links_of_a_page_that_follows_name_no_instant(tmp_path: Path) -> None:
    with followed(tmp_path) as (simulation, recorded):
        simulation.launch("second", 100)
        following = recorded.get("/cost")
        assert "Following the simulation" in following and 'href="/time"' in following
        assert 'href="/time?at=2026-01-01T00%3A00%3A00Z"' in recorded.get("/cost?at=2026-01-01T00:00:00Z")


def test_a_recording_that_is_whole_has_no_stream(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path / "simulation.dvrec")
    simulation.end(60)
    with RecordedPage(tmp_path / "simulation.dvrec") as recorded:
        assert 'data-stream=""' in recorded.get("/")
        recorded.get("/events", status=404)


def test_the_command_plays_the_scenario_and_ends_with_its_page(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    program = [sys.executable, "-m", "dovetail.cli", "dashboard", "--scenario", str(tmp_path / "scenario.yaml")]
    with subprocess.Popen([*program, "--port=0", "--lang=en"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        missing = {"dashboard   http://127.0.0.1:", "simulation  ", "pods made"}
        for line in process.stdout:
            missing = {part for part in missing if part not in line}
            if not missing:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0 and not missing


def test_a_wrong_scenario_is_reported_and_no_page_is_served(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text("duration: often\n")
    program = [sys.executable, "-m", "dovetail.cli", "dashboard", "--scenario", str(tmp_path / "scenario.yaml")]
    outcome = subprocess.run([*program, "--port=0"], capture_output=True, text=True, check=False)
    assert outcome.returncode == 2 or outcome.returncode == 1
    assert "often" in outcome.stderr and "dashboard" not in outcome.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seed=4"], "--seed: is for a simulation"),
        (["--scenario=a.yaml", "--name=dev"], "--name: leave it out with --scenario"),
        (["--scenario=a.yaml", "--recording=b.dvrec"], "--recording: leave it out with --scenario"),
    ],
)
def test_options_that_contradict_a_scenario_are_refused(options: list[str], said: str) -> None:
    outcome = CliRunner().invoke(main, ["dashboard", *options])
    assert outcome.exit_code != 0 and said in outcome.output
