"""The page over a recording: every figure is what the recording holds at the instant that the URL names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from dovetail.cli.main import main
from dovetail.model.quantity import milli
from dovetail.offline.recording import Writer, read
from tests.offline.recording.small import IDENTITY, START, later
from tests.web.recorded_page import RecordedPage, node, write

#: The packaged list price of an m5.xlarge in us-east-1.
LIST_PRICE = 0.192


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("recorded") / "shop.dvrec")


@pytest.fixture(scope="module")
def page(file: Path) -> Iterator[RecordedPage]:
    with RecordedPage(file) as opened:
        yield opened


def figures(html: str) -> dict[str, str]:
    return dict(re.findall(r'data-figure="(\w+)"[^>]*><span class="value[^"]*">([^<]*)<', html))


def from_the_recording(file: Path, instant: datetime) -> dict[str, str]:
    """The same, counted from the objects alone."""
    objects = read(file).objects_at(instant)
    nodes = [source for source in objects if source["kind"] == "Node"]
    pods = [source for source in objects if source["kind"] == "Pod"]
    bound = [pod for pod in pods if pod["spec"].get("nodeName")]
    requested = sum(milli(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in bound)
    share = requested / sum(milli(source["status"]["allocatable"]["cpu"]) for source in nodes)
    return {
        "nodes": str(len(nodes)),
        "pods": str(len(bound)),
        "pending": str(len(pods) - len(bound)),
        "cost": f"${len(nodes) * LIST_PRICE:.4f}",
        "cpu": f"{share:.1%}",
    }


def test_the_figures_are_those_of_the_recording_at_the_instant_of_the_url(page: RecordedPage, file: Path) -> None:
    seen = []
    for after in (60, 250, 450):
        shown = figures(page.get(f"/?at={later(after):%Y-%m-%dT%H:%M:%SZ}"))
        expected = from_the_recording(file, later(after))
        assert {name: shown[name] for name in expected} == expected
        seen.append((expected["nodes"], expected["pending"]))
    assert seen == [("1", "5"), ("3", "0"), ("2", "0")]


def test_without_an_instant_the_end_is_shown(page: RecordedPage, file: Path) -> None:
    shown = figures(page.get("/"))
    assert shown["nodes"] == from_the_recording(file, later(600))["nodes"] == "2"


def test_every_page_is_of_the_instant(page: RecordedPage) -> None:
    query = "?at=2026-01-01T00:04:10Z"
    assert "third" in page.get(f"/{query}") and "third" not in page.get("/?at=2026-01-01T00:01:00Z")
    assert "$0.5760" in page.get(f"/cost{query}")
    assert "web-4" in page.get(f"/node/third{query}")
    assert "providerID: aws:///us-east-1a/third" in page.get(f"/manifest/node/third{query}")
    assert "third" in page.get(f"/search?q=thi&at={query[4:]}")
    page.get("/node/third?at=2026-01-01T00:01:00Z", status=404)
    for address in ("/autoscalers", "/budgets", "/pending", "/health", "/time"):
        assert 'id="slider"' in page.get(address + query)


def test_every_link_and_form_keeps_the_instant(page: RecordedPage) -> None:
    for address in ("/", "/cost", "/time", "/node/third", "/search/results?q=web"):
        html = page.get(f"{address}{'&' if '?' in address else '?'}at=2026-01-01T00:04:10Z")
        links = re.findall(r'(?:href|hx-get|data-chart)="(/[^"]*)"', html)
        ours = [link for link in links if not link.startswith("/assets/")]
        assert len(ours) > 2
        assert [link for link in ours if "at=2026-01-01T00%3A0" not in link.replace(":", "%3A")] == []
        forms = re.findall(r"<form\b.*?</form>", html, re.DOTALL)
        assert forms or address.startswith("/search/results")  # a part of a page
        assert all(('name="at"' in form) != ('id="slider"' in form) for form in forms)


def test_a_step_of_the_slider_leads_to_the_url_of_its_instant(page: RecordedPage) -> None:
    assert page.get("/cost?step=50&at=2026-01-01T00:00:00Z", status=302) == "/cost?at=2026-01-01T00:02:30Z"
    assert page.get("/?step=200&form=table", status=302) == "/?form=table&at=2026-01-01T00:10:00Z"
    html = page.get("/?at=2026-01-01T00:02:30Z")
    slider = re.search(r'<input id="step"[^>]*>', html)
    assert slider is not None
    for attribute in ('type="range"', 'min="0"', 'max="200"', 'value="50"', 'aria-valuetext="2026-01-01 00:02:30 UTC"'):
        assert attribute in slider.group()
    assert '<label for="step">' in html


def test_the_neighbouring_changes_of_the_fleet_are_linked(page: RecordedPage) -> None:
    html = page.get("/cost?at=2026-01-01T00:04:10Z")
    assert 'href="/cost?at=2026-01-01T00%3A03%3A20Z"' in html
    assert 'href="/cost?at=2026-01-01T00%3A06%3A40Z"' in html
    on_change = page.get("/cost?at=2026-01-01T00:03:20Z")
    assert 'href="/cost?at=2026-01-01T00%3A01%3A40Z"' in on_change
    assert "2026-01-01T00%3A06%3A40Z" not in page.get("/?at=2026-01-01T00:06:40Z").replace(
        "at=2026-01-01T00%3A06%3A40Z", ""
    )


def test_the_series_are_those_of_the_whole_recording(page: RecordedPage, file: Path) -> None:
    chart = msgspec.json.decode(page.get("/data/time?at=2026-01-01T00:04:10Z"))
    assert chart["instant"] == later(250).timestamp()
    assert chart["time"][0] == START.timestamp() and chart["time"][-1] == later(600).timestamp()
    assert len(chart["time"]) <= 202
    for position, time in enumerate(chart["time"]):
        expected = from_the_recording(file, later(time - START.timestamp()))
        assert (str(chart["nodes"][position]), str(chart["pending"][position])) == (
            expected["nodes"],
            expected["pending"],
        )
        assert f"${chart['cost'][position]:.4f}" == expected["cost"]
    assert [(mark["id"], mark["kind"]) for mark in chart["marks"]] == [
        ("second", "launch"),
        ("third", "launch"),
        ("third", "remove"),
    ]
    assert set(chart["evictions"]) == {None}


def test_what_only_a_live_cluster_has_is_called_a_recording(page: RecordedPage) -> None:
    html = page.get("/health")
    for name in ("API server", "API errors"):
        row = html.partition(f">{name}</td>")[2].partition("</tr>")[0]
        assert "recording" in row and "good" not in row and "0" not in row
    assert "A recording: doctor checks clusters." in html
    assert "metrics-server" not in page.get("/health?at=2026-01-01T00:00:00Z")
    assert 'data-stream=""' in html
    page.get("/events", status=404)


def test_the_slider_speaks_korean(page: RecordedPage) -> None:
    assert "기록의 시점" in page.get("/?lang=ko")
    page.get("/?lang=en")


@pytest.mark.parametrize(
    "query", ["at=yesterday", "at=2025-12-31T23:59:59Z", "at=2026-01-01T00:10:01Z", "step=x", f"step={'9' * 5000}"]
)
def test_an_instant_that_the_recording_does_not_have_is_refused(page: RecordedPage, query: str) -> None:
    page.get(f"/?{query}", status=400)


def test_a_gap_of_the_recorder_is_said(tmp_path: Path) -> None:
    path = tmp_path / "gap.dvrec"
    with Writer.create(path, START, "test", IDENTITY) as writer:
        writer.put(START, node("first"))
        writer.begin()
        writer.close(later(10))
    with Writer.resume(path, later(100)) as writer:
        writer.close(later(120))
    with RecordedPage(path) as page:
        assert "The recorder did not run" in page.get("/?at=2026-01-01T00:00:50Z")
        assert "The recorder did not run" not in page.get("/?at=2026-01-01T00:01:50Z")


def test_the_view_prints_the_instant(file: Path) -> None:
    def nodes(*options: str) -> int:
        result = CliRunner().invoke(main, ["view", "--recording", str(file), "-o", "json", *options])
        assert result.exit_code == 0, result.output
        return len(msgspec.json.decode(result.stdout)["nodes"])

    assert nodes("--at", "2026-01-01T00:04:10Z") == 3
    assert nodes("--at", "2026-01-01T00:01:00Z") == 1
    assert nodes() == 2


@pytest.mark.parametrize("command", ["view", "dashboard"])
def test_a_changed_file_is_refused_with_the_byte(command: str, file: Path, tmp_path: Path) -> None:
    changed = bytearray(file.read_bytes())
    changed[len(changed) // 2] ^= 0xFF
    broken = tmp_path / "broken.dvrec"
    broken.write_bytes(changed)
    result = CliRunner().invoke(main, [command, "--recording", str(broken)])
    assert result.exit_code != 0
    assert re.search(r"broken\.dvrec: byte \d+: ", str(result.exception) + result.output)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["dashboard", "--kubeconfig", "x"], "--kubeconfig"),
        (["dashboard", "--auth", "kubernetes"], "--auth"),
        (["view", "--context", "x"], "--context"),
        (["view", "--at", "2027-01-01T00:00:00Z"], "2027-01-01T00:00:00Z"),
    ],
)
def test_options_that_a_recording_cannot_have_are_refused(options: list[str], named: str, file: Path) -> None:
    result = CliRunner().invoke(main, [*options, "--recording", str(file)])
    assert result.exit_code != 0
    assert named in str(result.exception) + result.output
