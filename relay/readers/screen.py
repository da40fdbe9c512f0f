"""The reader of programs that draw: logical lines by their place on the virtual screen."""

from __future__ import annotations

from relay.readers.echo import Echo
from relay.readers.line import Line
from relay.terminal.screen import Screen


class ScreenReader:
    """A `relay.readers.line.Reader` over a virtual screen that it feeds."""

    def __init__(self, screen: Screen, echo: Echo, *, marker: bytes = b"@") -> None:
        self._screen = screen
        self._echo = echo
        self._marker = marker
        screen.collect()

    def begin(self, unfinished: str, settled: str, now: float) -> None:
        """Take over from the lines reader, which said all but the `unfinished` line, and `settled` of it."""

    def feed(self, data: bytes, now: float) -> list[Line]:
        self._screen.feed(data)
        drained = self._screen.drain()
        return [Line(row.text, now) for row in drained.rows]

    def tick(self, now: float) -> list[Line]:
        return []

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        self._echo.typed(data, now, echo=echo)

    def waiting(self, now: float) -> list[Line]:
        return []

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        self._screen.resize(columns, rows)
        return []

    def close(self, now: float) -> list[Line]:
        return [Line(row.text, now) for row in self._screen.rows() if row.text]
