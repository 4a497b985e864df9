"""A list of any length of which only the lines on the screen are drawn: tens of thousands of rows cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

#: The text and style of a row in so many columns.
Draw = Callable[[int, int], tuple[str, Style]]

_SELECTED = Style(reverse=True)


class Rows(ScrollView, can_focus=True):
    """A cursor over `count` rows, each drawn on demand."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "first", show=False),
        Binding("end,G", "last", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    class Moved(Message):
        def __init__(self, index: int) -> None:
            self.index = index
            super().__init__()

    def __init__(self, draw: Draw) -> None:
        super().__init__(id="rows")
        self._draw = draw
        self.count = 0
        self.cursor = 0

    def set_rows(self, count: int, cursor: int) -> None:
        """There are so many rows now, and the cursor stands on one of them."""
        self.count = count
        self.cursor = max(0, min(cursor, count - 1))
        self.virtual_size = Size(self.size.width, count)
        self._show_cursor()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, index = self.size.width, self.scroll_offset.y + y
        if index >= self.count:
            return Strip.blank(width)
        text, style = self._draw(index, width)
        if index == self.cursor:
            style = style + _SELECTED
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)

    def _show_cursor(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)

    def _move_to(self, index: int) -> None:
        self.cursor = max(0, min(index, self.count - 1))
        self._show_cursor()
        self.refresh()
        self.post_message(self.Moved(self.cursor))

    def action_move(self, step: int) -> None:
        self._move_to(self.cursor + step)

    def action_page(self, pages: int) -> None:
        self._move_to(self.cursor + pages * max(1, self.size.height - 1))

    def action_first(self) -> None:
        self._move_to(0)

    def action_last(self) -> None:
        self._move_to(self.count - 1)

    def action_choose(self) -> None:
        if self.count:
            self.post_message(self.Chosen(self.cursor))

    def on_click(self, event: Click) -> None:
        index = self.scroll_offset.y + event.y
        if index >= self.count:
            return
        if index == self.cursor:
            self.action_choose()
        else:
            self._move_to(index)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self._move_to(self.cursor + 3)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        event.prevent_default()
        self._move_to(self.cursor - 3)
