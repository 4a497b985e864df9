"""The screen, by its keys: what a reader presses, and what then stands there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from dovetail.controllers.explain import Answer
from dovetail.controllers.history.decisions import Decision
from dovetail.language import in_language
from dovetail.model.nodes import Event
from dovetail.tui.app import Page, ViewApp, ViewSource
from dovetail.tui.explanation import SelectedObject
from dovetail.tui.rows import Rows
from dovetail.view import FleetView, WatchHealth
from tests.tui.conftest import NOW, a_node, a_pod, with_totals


class Answers:
    """Evidence that says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[SelectedObject] = []

    def answer(self, subject: SelectedObject) -> Answer | None:
        self.asked.append(subject)
        return Answer(subject=f"{subject.kind}/{subject.name}", line="stays: it is needed", remedy="wait")

    def events(self, subject: SelectedObject) -> Sequence[Event]:
        return ()

    def decisions(self, subject: SelectedObject) -> Sequence[Decision]:
        return ()


class Stage:
    """A view that the test changes."""

    def __init__(self, view: FleetView) -> None:
        self.view = view
        self.evidence = Answers()
        self.listeners: list[Callable[[], None]] = []

    def source(self) -> ViewSource:
        def listen(draw: Callable[[], None]) -> Callable[[], None]:
            self.listeners.append(draw)
            return lambda: self.listeners.remove(draw)

        return ViewSource(lambda: self.view, listen, lambda: NOW, self.evidence)

    def show(self, view: FleetView) -> None:
        self.view = view
        for draw in tuple(self.listeners):
            draw()


def screen(app: ViewApp) -> str:
    """What stands on the screen, as text."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.ljust(width) for strip in strips[:height])


def play(
    view: FleetView,
    story: Callable[[Stage, ViewApp, Pilot[None]], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
    **options: Any,
) -> None:
    async def main() -> None:
        stage = Stage(view)
        app = ViewApp(stage.source(), "https://cluster", **options)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await story(stage, app, pilot)
        assert stage.listeners == []

    asyncio.run(main())


def test_the_first_screen_has_totals_nodes_and_keys(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        text = screen(app)
        for part in ("5 nodes", "≥$0.3540/hour", "[1 Nodes 5]", "NODE^", "draining-1", "q quit"):
            assert part in text
        assert max(map(len, text.splitlines())) <= 80

    play(fleet, story)


def test_a_wide_screen_shows_usage_and_zone(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        assert "CPU USED" in screen(app) and "ap-northeast-2a" in screen(app)

    play(fleet, story, (200, 50))


def test_enter_explains_and_escape_returns(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down", "enter")
        assert isinstance(app.screen, Page)
        assert stage.evidence.asked[0] == SelectedObject("node", "draining-1")
        assert "node/draining-1 stays: it is needed" in screen(app) and "shop/web-3" in screen(app)
        await pilot.press("escape")
        assert "[1 Nodes 5]" in screen(app)
        await pilot.press("3", "enter")
        assert stage.evidence.asked[-1] == SelectedObject("pod", "shop/api-0")

    play(fleet, story)


def test_an_explained_object_that_goes_is_said_to_be_gone(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        stage.evidence.answer = lambda subject: None  # type: ignore[method-assign]
        stage.show(with_totals(msgspec.structs.replace(stage.view, nodes={})))
        await pilot.pause()
        assert "the cluster any more" in screen(app)

    play(fleet, story)


def test_filter_by_typing_and_clear(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"pool", "colon", *"spot", "enter")
        assert [row.name for row in app.rows] == ["spot-1"]
        assert "filter: pool:spot (1 shown)" in screen(app)
        await pilot.press("s")  # the keys are the table's again
        assert app.filter_text == "pool:spot"
        await pilot.press("escape")
        assert len(app.rows) == 5

    play(fleet, story)


def test_sort_by_the_next_column_and_the_other_way_round(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("s")
        assert app.rows[0].name.startswith("big-") and "CPUv" in screen(app)
        await pilot.press("S")
        assert app.rows[0].name == "spot-1" and "CPU^" in screen(app)

    play(fleet, story)


def test_u_shows_usage_in_place_of_requests(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        assert "CPU USED" not in screen(app)
        await pilot.press("u")
        assert "CPU USED" in screen(app) and "10%" in screen(app)

    play(fleet, story)


def test_the_cursor_stays_on_its_node_while_others_come_and_go(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("down", "down")
        nodes = {**stage.view.nodes, "node/aaa": a_node("aaa"), "node/aab": a_node("aab")}
        stage.show(with_totals(msgspec.structs.replace(stage.view, nodes=nodes)))
        await pilot.pause()
        rows = app.query_one(Rows)
        assert rows.cursor == 4 and app.rows[rows.cursor].name == "draining-1"

    play(fleet, story)


def test_a_lost_connection_is_seen_and_heals(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        whole = stage.view
        health = WatchHealth(connected=False, problems={"API server": "connection refused"})
        stage.show(msgspec.structs.replace(whole, health=health))
        await pilot.pause()
        assert "CONNECTION LOST (API server): connection refused" in screen(app)
        stage.show(whole)
        await pilot.pause()
        assert "CONNECTION LOST" not in screen(app)

    play(fleet, story)


def test_notes_are_shown_first_and_again_on_demand(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        assert "kubeconfig  here.yaml" in screen(app)
        await pilot.press("escape")
        assert "kubeconfig" not in screen(app)
        await pilot.press("question_mark")
        assert "kubeconfig  here.yaml" in screen(app) and "sort by the next column" in screen(app)

    play(fleet, story, notes=["kubeconfig  here.yaml"])


def test_no_colour_where_none_is_wanted(fleet: FleetView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        assert app.no_color
        assert "draining-1" in screen(app)

    play(fleet, story)


def test_korean_lines_are_no_wider_than_the_screen(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        strips = app.screen._compositor.render_strips()
        assert "노드" in screen(app)
        assert max(strip.cell_length for strip in strips) <= 80

    with in_language("ko"):
        play(fleet, story)


def test_a_view_published_in_english_is_drawn_in_the_language_of_the_screen(fleet: FleetView) -> None:
    """The page of the lab and its screen share what is observed, which is English."""

    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        with in_language("en"):
            stage.show(with_totals(msgspec.structs.replace(fleet, nodes={})))
        await pilot.pause()
        assert "종료" in screen(app) and "quit" not in screen(app)
        await pilot.press("escape")
        assert "노드 0개" in screen(app)

    with in_language("ko"):
        play(fleet, story)


def test_thirty_thousand_pods_are_drawn_as_quickly_as_thirty(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        drawn: list[int] = []
        rows = app.query_one(Rows)
        plain = rows._draw

        def counted(index: int, width: int) -> Any:
            drawn.append(index)
            return plain(index, width)

        rows._draw = counted
        await pilot.press("2")
        assert len(app.rows) == 30_000
        await pilot.press("end")
        assert "shop/p99999" in screen(app)
        assert 0 < len(drawn) < 500

    pods = [tuple(a_pod(f"p{70_000 + number * 30 + pod}") for pod in range(30)) for number in range(1000)]
    nodes = [a_node(f"n{number}", pods[number]) for number in range(1000)]
    play(with_totals(FleetView(nodes={node.key: node for node in nodes})), story)


def test_warnings_of_the_caller_stand_above_the_tables(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        assert "broken: api-slow" in screen(app)

    play(fleet, story, warnings=lambda: ["broken: api-slow"])


def test_a_list_longer_than_the_screen_keeps_its_last_column(fleet: FleetView) -> None:
    """A scroll bar takes a column: the age beside it is whole, and nothing has to be scrolled sideways."""
    nodes = [a_node(f"ip-{number}") for number in range(60)]

    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        rows = app.query_one(Rows)
        assert rows.scrollable_content_region.width == 79 and not rows.show_horizontal_scrollbar
        drawn = [line[:79] for line in screen(app).splitlines() if line.startswith("ip-")]
        assert len(drawn) == 18 and {line[-3:] for line in drawn} == {" 5h"}
        stage.show(fleet)
        await pilot.pause()
        assert rows.scrollable_content_region.width == 80

    play(with_totals(FleetView(nodes={node.key: node for node in nodes})), story)


def test_the_page_of_keys_is_aligned(fleet: FleetView) -> None:
    async def story(stage: Stage, app: ViewApp, pilot: Pilot[None]) -> None:
        await pilot.press("question_mark")
        lines = screen(app).splitlines()
        meaning = next(line for line in lines if "filter: words" in line)
        rest = lines[lines.index(meaning) + 1]
        assert rest.strip() and len(rest) - len(rest.lstrip()) == meaning.index("filter: words")

    play(fleet, story, (72, 24))
