"""The reader of a session: lines while the program just prints, the screen once it draws.

Every program begins as one that prints lines.  The first sequence that leaves the line (a vertical or
absolute movement, the alternate screen, a scroll region) hands over to the screen reader for good: what
stands on the screen then has been said, but for the line that the cursor stands on.
"""

from __future__ import annotations

from typing import Literal

from relay.agents.profile import CodeStyle, EchoStyle
from relay.readers.controls import cut, leaves_line, seven_bit
from relay.readers.drawing import Drawing
from relay.readers.echo import Echo
from relay.readers.flood import visible_part
from relay.readers.line import Line
from relay.readers.lines import LinesReader
from relay.readers.screen import ScreenReader
from relay.terminal.ghostty import open_screen
from relay.terminal.screen import Screen, ScreenUnavailable

Kind = Literal["auto", "lines", "screen"]


class AutoReader:
    """A `relay.readers.line.Reader` that owns the virtual screen.

    screen:      the virtual screen, always fed; None where it cannot be had, and `unavailable` says why.
    kind:        "lines" and "screen" pin the reader ("screen" needs the screen; without it, lines).
    marker:      what begins a directive.
    echo_style, code_style: how the agent draws what was typed into it, and code.
    """

    def __init__(
        self,
        columns: int,
        rows: int,
        *,
        kind: Kind = "auto",
        marker: bytes = b"@",
        echo_style: EchoStyle | None = None,
        code_style: CodeStyle | None = None,
    ) -> None:
        self._marker = marker
        self._drawing = Drawing(echo_style or EchoStyle(), code_style or CodeStyle())
        self._echo = Echo(marker.decode("utf-8", "replace"))
        self._held = b""
        self.unavailable: str | None = None
        self.screen: Screen | None = None
        try:
            self.screen = open_screen(columns, rows)
        except ScreenUnavailable as error:
            self.unavailable = str(error)
        self._switches = kind == "auto" and self.screen is not None
        self._lines = LinesReader(columns, marker=marker, echo=self._echo)
        self._drawn: ScreenReader | None = None
        if kind == "screen" and self.screen is not None:
            self._drawn = ScreenReader(self.screen, self._echo, marker=marker, drawing=self._drawing)

    @property
    def kind(self) -> Literal["lines", "screen"]:
        """Which reader is at work now."""
        return "lines" if self._drawn is None else "screen"

    @property
    def failed(self) -> str | None:
        """Why nothing is read any more, or None."""
        return self.screen.failed if self.screen is not None and self._drawn is not None else None

    def feed(self, data: bytes, now: float) -> list[Line]:
        data = self._held + data
        end = cut(data)
        data, self._held = data[:end], data[end:]
        return self._take(seven_bit(data), now)

    def tick(self, now: float) -> list[Line]:
        return self._reader.tick(now)

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        self._echo.typed(data, now, echo=echo)

    def waiting(self, now: float) -> list[Line]:
        return self._reader.waiting(now)

    def gap(self, now: float) -> list[Line]:
        self._held = b""
        return self._reader.gap(now)

    @property
    def settling(self) -> bool:
        return self._reader.settling

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        self._lines.resize(columns, rows, now)
        if self._drawn is not None:
            return self._drawn.resize(columns, rows, now)
        if self.screen is not None:
            self.screen.resize(columns, rows)
        return []

    def close(self, now: float) -> list[Line]:
        held, self._held = self._held, b""
        return self._take(held, now) + self._reader.close(now)

    def unfinished(self) -> str:
        """The text of the logical line that the cursor stands on: a prompt, a question, a half line."""
        if self.screen is None or self.screen.failed is not None:
            return self._lines.unfinished()
        rows = self.screen.rows()
        y = self.screen.cursor[1]
        text = rows[y].text
        while y and rows[y - 1].wrapped:
            y -= 1
            text = rows[y].text + text
        return text

    @property
    def _reader(self) -> LinesReader | ScreenReader:
        return self._lines if self._drawn is None else self._drawn

    def _take(self, data: bytes, now: float) -> list[Line]:
        if self._drawn is not None:
            return self._drawn.feed(data, now)
        at = leaves_line(data) if self._switches else -1
        if at < 0:
            self._show(data)
            return self._lines.feed(data, now)
        self._show(data[:at])
        lines = self._lines.feed(data[:at], now)
        assert self.screen is not None
        self._drawn = ScreenReader(self.screen, self._echo, marker=self._marker, drawing=self._drawing)
        self._drawn.begin(self._lines.unfinished(), self._lines.settled, now)
        return lines + self._drawn.feed(data[at:], now)

    def _show(self, data: bytes) -> None:
        if self.screen is not None:
            self.screen.feed(visible_part(data, self.screen))
