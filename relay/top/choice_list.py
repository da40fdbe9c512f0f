"""Widgets that show rows of text with SGR sequences: a list to choose from, and a plain one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import ClassVar

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from relay.top.rows import ListRow

_CONSOLE = Console()
_CHOSEN = Style(reverse=True)  # instead of colours: it stands out on any background


@lru_cache(maxsize=1024)
def strip(row: str, columns: int) -> Strip:
    """Return a row of text with SGR sequences as Textual draws it, cut or padded to `columns`."""
    text = Text.from_ansi(row, end="", no_wrap=True)
    return Strip(text.render(_CONSOLE)).adjust_cell_length(columns, Style.null())


class Lines(Widget):
    """Shows rows from the top on, as many as fit."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[str] = ()

    def show(self, lines: Sequence[str]) -> None:
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        return strip(self._lines[y] if y < len(self._lines) else "", self.size.width)


class ChoiceList(ScrollView, can_focus=True):
    """A list of rows, of which one is chosen. It follows its row wherever that goes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-9999)", show=False),
        Binding("end", "move(9999)", show=False),
    ]

    class Chosen(Message):
        """Another row is chosen."""

    class Opened(Message):
        """The chosen row was clicked twice."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[ListRow] = ()
        self._at = 0

    @property
    def chosen(self) -> ListRow | None:
        row = self._rows[self._at] if self._at < len(self._rows) else None
        return None if row is None or row.id is None else row

    @property
    def columns(self) -> int:
        """The width of a row: without the scroll bar, if there is one."""
        return self.scrollable_content_region.width

    def show(self, rows: Sequence[ListRow], chosen: Hashable = None) -> None:
        """Show `rows`. chosen: the id of the row to choose; None: that of the last one, or its neighbour."""
        wanted = chosen if chosen is not None or self.chosen is None else self.chosen.id
        if rows == self._rows and chosen is None:
            return
        grown = len(rows) != len(self._rows)
        self._rows = rows
        self.virtual_size = Size(0, len(rows))
        ids = [at for at, row in enumerate(rows) if row.id is not None]
        found = next((at for at in ids if rows[at].id == wanted), None)
        if found is None:  # it has gone
            found = next((at for at in ids if at >= self._at), ids[-1] if ids else 0)
        self._choose(found)
        self.refresh(layout=grown)
        self.call_after_refresh(self._reveal)  # once it has its new height

    def render_line(self, y: int) -> Strip:
        at = y + self.scroll_offset.y
        shown = strip(self._rows[at].text if at < len(self._rows) else "", self.columns)
        return Strip([Segment(shown.text, _CHOSEN)]) if at == self._at and self.chosen else shown

    def action_move(self, step: int) -> None:
        ids = [at for at, row in enumerate(self._rows) if row.id is not None]
        if ids:
            place = ids.index(self._at) + step
            self._choose(ids[min(max(place, 0), len(ids) - 1)])

    def action_page(self, direction: int) -> None:
        self.action_move(direction * max(self.size.height - 1, 1))

    def on_click(self, event: Click) -> None:
        at = event.y + self.scroll_offset.y
        if at < len(self._rows) and self._rows[at].id is not None:
            self._choose(at)
            if event.chain == 2:
                self.post_message(self.Opened())

    def on_resize(self, _: Resize) -> None:
        self.call_after_refresh(self._reveal)

    def _choose(self, at: int) -> None:
        before, self._at = self.chosen, at
        self._reveal()
        self.refresh()
        if before != self.chosen:
            self.post_message(self.Chosen())

    def _reveal(self) -> None:
        """Scroll to the chosen row, and to the heading above it if it is the first one of its group."""
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        heading = 0 < self._at <= len(self._rows) and self._rows[self._at - 1].id is None
        first = self._at - heading
        if first < top or self._at >= top + height:
            y = first if first < top else self._at - height + 1
            self.scroll_to(y=y, animate=False, immediate=True)
