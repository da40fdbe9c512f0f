"""The reader of programs that just print lines.

A line ends at its newline, or when the program waits for input.  Its text is what the line leaves on a
terminal: colours gone, carriage returns and in-line edits applied.  In a flood only what can matter to a
directive is looked at: lines with the marker, code fences, open `<<<` forms, and the tail.
"""

from __future__ import annotations

import re

from relay.readers.controls import ends_in_string, only_colours, plain
from relay.readers.echo import Echo
from relay.readers.flood import FENCES, FLOOD, coloured, directive, fenced
from relay.readers.line import Line

_TAIL = 10
"""Lines at the end of a flood's chunk that are kept all the same."""

_MAX_LINE = 256 * 1024
"""Bytes kept of one line. A message has at most 64 KB, and a longer line is no directive."""

_MAX_BLOCK = 4 * 1024 * 1024
"""Bytes after a `<<<` that are read in full while no `>>>` has come."""


class LinesReader:
    """A `relay.readers.line.Reader` over raw output."""

    def __init__(self, columns: int = 120, *, marker: bytes = b"@", echo: Echo | None = None) -> None:
        self._columns = columns
        self._marker = marker
        self._echo = Echo(marker.decode("utf-8", "replace")) if echo is None else echo
        self._patterns = {
            (fences, kind): re.compile(pattern + (b"|" + FENCES if fences else b""))
            for fences in (False, True)
            for kind, pattern in (
                ("plain", directive(marker)),
                ("coloured", coloured(marker)),
                ("any", re.escape(marker)),
            )
        }
        self._partial = bytearray()
        self._cut = False  # the line has grown beyond _MAX_LINE
        self._settled = ""  # what `waiting` has returned of the unfinished line
        self._gap = False
        self._block = 0  # bytes that may still be read in full because a `<<<` is open

    def feed(self, data: bytes, now: float) -> list[Line]:
        lines: list[Line] = []
        if len(data) >= FLOOD and not self._block:
            self._flood(data, now, lines)
        else:
            self._all(data, now, lines)
        return lines

    def tick(self, now: float) -> list[Line]:
        return []

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        self._echo.typed(data, now, echo=echo)

    def waiting(self, now: float) -> list[Line]:
        self._block = 0
        text = self._echo.before_draft(self.unfinished())
        said = self._unsaid(text)
        self._settled = text
        return self._say(said, now) if said.strip() else []

    @property
    def settling(self) -> bool:
        return False

    def gap(self, now: float) -> list[Line]:
        """Output was lost here: what was begun is not continued by what comes."""
        self._partial.clear()
        self._settled = ""
        self._block = 0
        self._gap = True
        return []

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        self._columns = columns
        return []

    def close(self, now: float) -> list[Line]:
        lines: list[Line] = []
        if self._partial:
            self._finish(bytes(self._partial), now, lines)
            self._partial.clear()
        return lines

    def unfinished(self) -> str:
        """The text of the line that has no newline yet."""
        return plain(bytes(self._partial), self._columns)[-1]

    @property
    def settled(self) -> str:
        """What `waiting` has returned of the unfinished line."""
        return self._settled

    def _all(self, data: bytes, now: float, lines: list[Line]) -> None:
        """Read every line of `data`."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._partial:
                self._keep(data[start:end])
                raw = bytes(self._partial)
                if ends_in_string(raw):
                    self._partial += b" "  # a newline inside OSC or DCS is no end of the line
                else:
                    self._partial.clear()
                    self._finish(raw, now, lines)
            else:
                raw = data[start:end]
                if ends_in_string(raw):
                    self._keep(raw)
                else:
                    self._finish(raw, now, lines)
            start = end + 1
        self._keep(data[start:])

    def _flood(self, data: bytes, now: float, lines: list[Line]) -> None:
        """Read the first line, those that can matter, and the tail; mark a gap for what is left out."""
        first = data.find(b"\n") + 1
        if first == 0:
            self._keep(data)
            return
        self._all(data[:first], now, lines)
        tail = len(data)
        for _ in range(_TAIL + 1):
            tail = data.rfind(b"\n", first, tail)
            if tail < 0:
                break
        tail = max(tail + 1, first)
        # An escape may stand within the words of a directive; if it is no colour, every marker counts.
        kind = "plain" if b"\x1b" not in data else "coloured" if only_colours(data) else "any"
        fences = fenced(data)
        pattern = self._patterns[fences, kind]
        matters = fences or self._marker in data
        at = first
        while matters and (found := pattern.search(data, at, tail)) is not None:
            start = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.start()) + 1
            self._gap = self._gap or start > at
            self._all(data[start:end], now, lines)
            at = end
            if self._block or at >= tail:
                self._all(data[at:], now, lines)
                return
        self._gap = self._gap or tail > at
        self._all(data[tail:], now, lines)

    def _keep(self, raw: bytes) -> None:
        """Append to the unfinished line, within bounds."""
        room = _MAX_LINE - len(self._partial)
        if len(raw) > room:
            self._cut = True
            raw = raw[:room]
        self._partial += raw

    def _finish(self, raw: bytes, now: float, lines: list[Line]) -> None:
        gap = self._cut
        self._cut = False
        for text in plain(raw, self._columns):
            said = self._unsaid(text)
            self._settled = ""
            if self._block:
                self._follow_block(text, len(raw))
            elif text.endswith("<<<") and self._marker in raw:
                self._block = _MAX_BLOCK
            if said or not text:
                lines += self._say(said, now)
        if gap:
            self._gap = True

    def _follow_block(self, text: str, size: int) -> None:
        self._block = 0 if text.strip() == ">>>" else max(0, self._block - size)

    def _unsaid(self, text: str) -> str:
        """What of `text` `waiting` has not returned before."""
        return text.removeprefix(self._settled) if self._settled else text

    def _say(self, text: str, now: float) -> list[Line]:
        if self._echo.expecting and self._echo.heard(text, now):
            return []
        gap, self._gap = self._gap, False
        return [Line(text, now, gap)]
