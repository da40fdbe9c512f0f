"""The reader of a session: lines while the program just prints, the screen once it draws.

Every program starts with the lines reader.  The first sequence that leaves the line (a vertical or absolute
movement, the alternate screen, a scroll region) hands over to the screen reader for good: by then all lines
on the screen have been returned, except the one with the cursor.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from relay.agents.profile import BlockEnd, RowStyle
from relay.place import Place, PlaceCounter
from relay.readers.controls import cut, leaves_line, revealing, seven_bit
from relay.readers.drawing import Drawing
from relay.readers.echo import Echo
from relay.readers.flood import visible_part
from relay.readers.line import Line
from relay.readers.lines import LinesReader
from relay.readers.screen import PAUSE, QUIET, READ_EVERY, ScreenReader
from relay.terminal.libghostty import ScreenUnavailable
from relay.terminal.screen import VirtualScreen

Kind = Literal["auto", "lines", "screen"]


class AutoReader:
    """Bytes in, lines out. Not thread-safe. `now` is seconds on any clock that never goes back.

    screen:      the virtual screen, always fed; None if there is none, and `unavailable` says why.
    kind:        "lines" and "screen" pin the reader ("screen" needs the screen; without it, lines).
    held:        an unfinished character or sequence at the end of the output.
    marker:      begins a directive.
    offset:      bytes of the output so far.
    echo_style, code_style, block_end: how the agent draws typed text, code, and a line `>>>`.
    settle:      seconds for which it may draw a text differently from its final form.
    """

    def __init__(
        self,
        columns: int,
        rows: int,
        *,
        kind: Kind = "auto",
        marker: bytes = b"@",
        echo_style: RowStyle | None = None,
        code_style: RowStyle | None = None,
        block_end: BlockEnd = "drawn",
        settle: float = 0.0,
    ) -> None:
        self._marker = marker
        self._reveal = revealing(marker)
        self._drawing = Drawing(echo_style or RowStyle(), code_style or RowStyle(), block_end, settle)
        self._echo = Echo(marker.decode("utf-8", "replace"))
        self._places = PlaceCounter()
        self.offset = 0
        self.held = b""
        self.unavailable: str | None = None
        self.screen: VirtualScreen | None = None
        try:
            self.screen = VirtualScreen(columns, rows)
        except ScreenUnavailable as error:
            self.unavailable = str(error)
        self._switches = kind == "auto" and self.screen is not None
        self._lines = LinesReader(columns, marker, self._echo, self._places)
        self._drawn: ScreenReader | None = None
        if kind == "screen" and self.screen is not None:
            self._drawn = self._screen_reader(self.screen)

    @property
    def kind(self) -> Literal["lines", "screen"]:
        return "lines" if self._drawn is None else "screen"

    @property
    def prompts(self) -> list[str]:
        """The prompt signs at which the program has waited."""
        return self._echo.prompts.known

    @property
    def failed(self) -> str | None:
        """The reason why reading has stopped, or None."""
        return self.screen.failed if self.screen is not None and self._drawn is not None else None

    @property
    def settling(self) -> bool:
        """True while `tick` may return lines without new output, so it must still be called."""
        return self._reader.settling

    @property
    def draws_no_directive(self) -> bool:
        """True if the program draws, and its screen shows no directive that is incomplete or not returned."""
        return self._drawn is not None and not self._drawn.matters(b"")

    def look_due(self, now: float) -> float:
        """Return the time from which output must not be fed in one piece with that of `now` or before."""
        due = math.inf if self._drawn is None else self._drawn.look_due
        return min(due, now + READ_EVERY)

    def pause(self, data: bytes) -> float:
        """Return the seconds of silence from which `data` and its neighbour must not be fed in one piece.

        It makes no difference except on a screen with a directive, which needs a look in between.
        """
        if self._drawn is not None:
            return QUIET if self._drawn.matters(data) else PAUSE
        return QUIET if self._switches and leaves_line(data) >= 0 else PAUSE

    def feed(self, data: bytes, now: float, begun: float | None = None) -> list[Line]:
        """Take output of the program, cut anywhere; return the lines that it completed.

        begun: when its first piece came, in seconds, if before `now`.
        """
        self.offset += len(data)
        data = self.held + data
        end = cut(data)
        data, self.held = data[:end], data[end:]
        start = self.offset - len(data) - len(self.held)
        return self._take(seven_bit(data), start, now if begun is None else begun, now)

    def state(self) -> dict[str, Any]:
        """Return the JSON that `restore` needs, besides the screen, to continue from here."""
        return {
            "offset": self.offset,
            "held": self.held.decode("latin-1"),
            "place": list(self._places.last),
            "echo": self._echo.state(),
            "lines": self._lines.state(),
            "drawn": None if self._drawn is None else self._drawn.state(),
        }

    def restore(self, size: tuple[int, int], screen: bytes, state: dict[str, Any]) -> None:
        """Continue from a checkpoint: `screen` is a VirtualScreen.repaint of what was read, `state` the rest.

        Call this before the first feed.
        """
        self.offset, self.held = state["offset"], state["held"].encode("latin-1")
        self._places.last = Place(*state["place"])
        self._echo.restore(state["echo"])
        self._lines.resize(*size, 0.0)
        self._lines.restore(state["lines"])
        if state["drawn"] is not None and self.screen is not None:
            self._drawn = self._screen_reader(self.screen)
            self._drawn.restore(state["drawn"])
        if self.screen is not None:
            self.screen.resize(*size)
            self.screen.feed(screen)

    def tick(self, now: float) -> list[Line]:
        """Return the lines that have settled merely because time has passed."""
        return self._reader.tick(now)

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        """Note keys written to the program's terminal, by the user or by relay, before their echo is fed.

        echo: the terminal or the program will draw them (False: ECHO off in canonical mode).
        """
        self._echo.typed(data, now, echo=echo)

    def waiting(self, now: float, *, sure: bool = True) -> list[Line]:
        """Treat an unfinished line as finished because the program waits for input; return it, if any.

        sure: the kernel says that it waits; otherwise it is only silent, and may still print a directive.
        """
        return self._reader.waiting(now, sure=sure)

    def drawing(self, now: float) -> bool:
        """Return True while the program is silent in the middle of drawing: it is not waiting for input."""
        return self._drawn is not None and self._drawn.drawing(now)

    def gap(self, size: int, now: float) -> list[Line]:
        """Note that `size` bytes of output were lost between the last feed and the next."""
        self.held = b""
        self.offset += size
        return self._reader.gap(self.offset, now)

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        """Note a new size of the terminal between the last feed and the next."""
        self._lines.resize(columns, rows, now)
        if self._drawn is not None:
            return self._drawn.resize(columns, rows, now)
        if self.screen is not None:
            self.screen.resize(columns, rows)
        return []

    def close(self, now: float) -> list[Line]:
        """Return what is left at the end of the output."""
        held, self.held = self.held, b""
        return self._take(held, self.offset - len(held), now, now) + self._reader.close(now)

    def unfinished(self) -> str:
        """Return the logical line with the cursor: a prompt, a question, half a line."""
        if self.screen is None or self.screen.failed is not None:
            return self._lines.unfinished()
        rows, y = self.screen.rows(), self.screen.cursor[1]
        first = y
        while first and rows[first - 1].wrapped:
            first -= 1
        return "".join(row.text for row in rows[first : y + 1])

    @property
    def _reader(self) -> LinesReader | ScreenReader:
        return self._lines if self._drawn is None else self._drawn

    def _screen_reader(self, screen: VirtualScreen) -> ScreenReader:
        return ScreenReader(screen, self._marker, self._drawing, self._echo, self._places)

    def _take(self, data: bytes, start: int, begun: float, now: float) -> list[Line]:
        end = self.offset - len(self.held)
        if self._drawn is not None:
            return self._drawn.feed(self._reveal(data), end, begun, now)
        if not self._switches or leaves_line(data) < 0:
            self._show(data)
            return self._lines.feed(data, end, now)
        assert self.screen is not None
        # All of it: it may erase its first lines before anyone can see them.
        self._drawn = self._screen_reader(self.screen)
        self._drawn.begin(self._lines.unfinished(), self._lines.settled, start, now)
        return self._drawn.feed(self._reveal(data), end, begun, now)

    def _show(self, data: bytes) -> None:
        if self.screen is not None:
            self.screen.feed(visible_part(self._reveal(data), self.screen))
