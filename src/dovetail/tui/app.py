"""The live view: totals, a table, and behind every row the reason. Drawn when something changes, and not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from rich.style import Style
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from dovetail.language import message, source, translated
from dovetail.language.columns import left
from dovetail.tui import text
from dovetail.tui.explanation import Evidence, explanation, subject_of
from dovetail.tui.figures import UNICODE, Glyphs, fit, printable, wrapped
from dovetail.tui.rows import Rows
from dovetail.tui.tables import NODES, TABLES, Table, TableLook, heading, line, matching, ordered, widths
from dovetail.view.model import FleetView, NodeView

#: Ages grow without an event; so often they are drawn anew.
AGE_INTERVAL_S = 10.0
#: Columns of a page that its padding and its scroll bar take.
PAGE_MARGIN = 4
#: Columns of the keys on the page about them.
KEYS_WIDTH = 28
_STATE_STYLES = {
    "not-ready": Style(color="red"),
    "draining": Style(color="yellow"),
    "replacing": Style(color="yellow"),
    "cordoned": Style(color="yellow"),
    "launching": Style(color="cyan"),
    "joining": Style(color="cyan"),
}
KEYS: tuple[tuple[str, str], ...] = (
    ("1 2 3 4, Tab", source("nodes, pods, pending pods, NodePools")),
    ("Enter", source("why: the explanation of the row")),
    ("/", source("filter: words, or pool:web zone:2a type:m5 state:draining ns:shop")),
    ("Esc", source("back; without a filter")),
    ("s, S", source("sort by the next column; the other way round")),
    ("u", source("bars show usage, or requests")),
    (source("arrows, j k, PgUp PgDn, g G"), source("move")),
    ("?", source("this page")),
    ("q", source("quit")),
)


def _key_help(keys: str, meaning: str, width: int) -> list[str]:
    """The keys, and beside them what they do; below each other where there is no room for that."""
    room = width - KEYS_WIDTH - 1
    if room < KEYS_WIDTH:
        return wrapped(f"{keys}  {meaning}", width)
    first, *rest = wrapped(meaning, room)
    return [f"{left(keys, KEYS_WIDTH)} {first}", *(f"{'':{KEYS_WIDTH}} {part}" for part in rest)]


class ViewSource(NamedTuple):
    """Where the view comes from: the present one, what is called with every new one, the time and the evidence."""

    view: Callable[[], FleetView]
    listen: Callable[[Callable[[], None]], Callable[[], None]]
    now: Callable[[], datetime]
    evidence: Evidence


class _Order:
    """How one table is sorted, and the row that the cursor is on."""

    def __init__(self, table: Table[Any]) -> None:
        self.sort = table.first
        self.descending = False
        self.key = ""


class Page(ModalScreen[None]):
    """Lines over the whole screen, drawn anew while it is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,left,backspace", "dismiss_page", show=False),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]

    def __init__(self, lines: Callable[[int], Sequence[str]]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="page"):
            yield Static(id="page-text")
        yield Static(id="page-keys")

    def on_mount(self) -> None:
        self.draw()
        self.query_one("#page", VerticalScroll).focus()

    def on_resize(self, event: Resize) -> None:
        self.draw()

    def draw(self) -> None:
        width = max(20, self.size.width - PAGE_MARGIN)
        self.query_one("#page-text", Static).update(Text("\n".join(self._lines(width)), no_wrap=True))
        keys = message("Esc back   arrows, PgUp PgDn scroll")
        self.query_one("#page-keys", Static).update(Text(fit(keys, width), style=Style(dim=True)))

    def action_dismiss_page(self) -> None:
        self.dismiss()

    def action_scroll(self, step: int) -> None:
        self.query_one("#page", VerticalScroll).scroll_relative(y=step, animate=False)


class ViewApp(App[None]):
    """`notes` are shown first, and again with the keys: where the lab is, and what to type next.

    `warnings` are shown above the tables, beside what the view itself has to warn of.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: transparent; }
    Page { background: ansi_default; }
    #totals { height: 3; }
    #trouble { height: auto; text-style: reverse bold; }
    #tabs, #heading, #keys, #page-keys { height: 1; }
    #heading { text-style: bold; }
    #rows { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    #filter.shown { display: block; }
    #page { height: 1fr; padding: 0 1; }
    #page-keys { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False, priority=False),
        *(Binding(str(number), f"table({number - 1})", show=False) for number in range(1, len(TABLES) + 1)),
        Binding("tab,right", "next_table(1)", show=False),
        Binding("shift+tab,left", "next_table(-1)", show=False),
        Binding("s", "sort", show=False),
        Binding("S", "reverse", show=False),
        Binding("u", "usage", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "clear_filter", show=False),
        Binding("question_mark,h", "keys", show=False),
    ]

    def __init__(
        self,
        view_source: ViewSource,
        title: str,
        notes: Sequence[str] = (),
        *,
        glyphs: Glyphs = UNICODE,
        filter_text: str = "",
        sort: str = "",
        usage: bool = False,
        warnings: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        super().__init__(ansi_color=True)
        self.title = title
        self._source = view_source
        self._notes = notes
        self._warnings = warnings
        self._glyphs = glyphs
        self._usage = usage
        self.filter_text = filter_text
        self.table: Table[Any] = NODES
        self._orders = {table.name: _Order(table) for table in TABLES}
        for table in TABLES:
            if any(column.name == sort for column in table.columns):
                self._orders[table.name].sort = sort
        self.rows: list[Any] = []
        self._stop: Callable[[], None] | None = None
        self._columns: list[Any] = []
        self._look = TableLook(view_source.now(), glyphs, usage)

    def compose(self) -> ComposeResult:
        yield Static(id="totals")
        yield Static(id="trouble")
        yield Static(id="tabs")
        yield Static(id="heading")
        yield Rows(self._draw_row)
        yield Input(id="filter", placeholder=message("filter: words, or pool:web zone:2a state:draining"))
        yield Static(id="keys")

    def on_mount(self) -> None:
        context = copy_context()  # who publishes a view may speak another language
        self._stop = self._source.listen(lambda: context.run(self.draw))
        self.set_interval(AGE_INTERVAL_S, self.draw)
        self.query_one(Rows).focus()
        self.draw()
        if self._notes:
            self.action_keys()

    def on_unmount(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self.draw)

    # -- drawing

    def draw(self) -> None:
        """The view as it is now; the cursor stays on its object."""
        if self._stop is None:
            return
        base = self.screen_stack[0]
        view, width = self._source.view(), max(20, self.size.width)
        self._look = TableLook(self._source.now(), self._glyphs, self._usage)
        order = self._orders[self.table.name]
        self.rows = ordered(
            self.table, matching(self.table, self.table.rows(view), self.filter_text), order.sort, order.descending
        )
        rows = base.query_one(Rows)
        self._columns = widths(self.table, width - (len(self.rows) > rows.size.height))  # beside the scroll bar
        base.query_one("#totals", Static).update(Text("\n".join(text.totals(view, self._look, width)), no_wrap=True))
        trouble = (*text.problems(view), *map(printable, self._warnings()))
        troubles = [part for text in trouble for part in wrapped(text, width)]
        shown = base.query_one("#trouble", Static)
        shown.display = bool(troubles)
        shown.update(Text("\n".join(troubles)))
        base.query_one("#tabs", Static).update(self._tabs(view, width))
        titles = heading(self._columns, self._look, order.sort, order.descending)
        base.query_one("#heading", Static).update(Text(titles, no_wrap=True))
        base.query_one("#keys", Static).update(Text(fit(self._key_line(), width), style=Style(dim=True)))
        keys = [self.table.key(row) for row in self.rows]
        rows.set_rows(len(keys), keys.index(order.key) if order.key in keys else rows.cursor)
        if isinstance(self.screen, Page):
            self.screen.draw()

    def _draw_row(self, index: int, width: int) -> tuple[str, Style]:
        row = self.rows[index]
        style = _STATE_STYLES.get(row.state.value, Style()) if isinstance(row, NodeView) else Style()
        return line(self._columns, row, self._look), style

    def _tabs(self, view: FleetView, width: int) -> Text:
        tabs = Text(no_wrap=True)
        counts = {"nodes": len(view.nodes), "pods": view.totals.pods, "pending": len(view.pending)}
        for number, table in enumerate(TABLES, 1):
            count = counts.get(table.name, len(view.pools))
            label = f" {number} {message(table.title)} {'?' if count is None else count} "
            here = table is self.table
            tabs.append(f"[{label.strip()}]" if here else label, Style(bold=here))
            tabs.append(" ")
        if self.filter_text:
            tabs.append(message("filter: {text} ({n} shown)", text=printable(self.filter_text), n=len(self.rows)))
        tabs.truncate(width)
        return tabs

    def _key_line(self) -> str:
        return message("q quit  Enter why  / filter  s sort  u usage  Tab tables  ? keys") + f"   {self.title}"

    # -- keys

    def action_table(self, number: int) -> None:
        self._keep_cursor()
        self.table = TABLES[number]
        self.query_one(Rows).cursor = 0
        self.draw()

    def action_next_table(self, step: int) -> None:
        self.action_table((TABLES.index(self.table) + step) % len(TABLES))

    def action_sort(self) -> None:
        """By the next column that is shown."""
        order = self._orders[self.table.name]
        names = [column.name for column, _ in self._columns]
        order.sort = names[(names.index(order.sort) + 1) % len(names)] if order.sort in names else names[0]
        order.descending = order.sort in ("cpu", "memory", "used-cpu", "used-memory", "pods", "price", "nodes", "age")
        self.draw()

    def action_reverse(self) -> None:
        order = self._orders[self.table.name]
        order.descending = not order.descending
        self.draw()

    def action_usage(self) -> None:
        self._usage = not self._usage
        self.draw()

    def action_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.value = self.filter_text
        entry.add_class("shown")
        entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.filter_text = event.value
        self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("shown")
        self.query_one(Rows).focus()

    def action_clear_filter(self) -> None:
        self._close_filter()
        self.filter_text = ""
        self.query_one("#filter", Input).value = ""
        self.draw()

    def action_keys(self) -> None:
        self.push_screen(Page(self._help))

    def _help(self, width: int) -> list[str]:
        notes = [*self._notes, ""] if self._notes else []
        bound = self._source.view().totals.bound
        of = "; ".join(map(translated, bound.of)) if bound is not None else ""
        about = ["", message("lower bound: {of}", of=of)] if of else []
        return [
            *(part for note in notes for part in wrapped(note, width)),
            *(line for keys, meaning in KEYS for line in _key_help(message(keys), message(meaning), width)),
            *(part for note in about for part in wrapped(note, width)),
        ]

    # -- rows

    def _keep_cursor(self) -> None:
        rows = self.query_one(Rows)
        if self.rows:
            self._orders[self.table.name].key = self.table.key(self.rows[rows.cursor])

    def on_rows_moved(self, event: Rows.Moved) -> None:
        self._keep_cursor()

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        table, row = self.table, self.rows[event.index]
        subject, key = subject_of(row), table.key(row)
        if subject is None:
            return

        def lines(width: int) -> list[str]:
            present = next((row for row in table.rows(self._source.view()) if table.key(row) == key), None)
            lines = explanation(subject, present, self._source.evidence, self._source.now())
            return [part for line in lines for part in wrapped(printable(line), width)]

        self._keep_cursor()
        self.push_screen(Page(lines))
