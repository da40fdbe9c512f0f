"""The reader for programs that just print lines.

A line ends at its newline, or when the program waits for input.  Its text is what the line leaves on a
terminal: colours gone, carriage returns and in-line edits applied.  A control string, such as an inline
image, may be of any length and contain newlines.  In a flood it reads only what can matter to a directive:
lines with the marker, code fences, open `<<<` forms, and the tail.
"""

from __future__ import annotations

import re
from typing import Any

from relay.place import PlaceCounter
from relay.readers.controls import only_colours, outside_strings, plain
from relay.readers.echo import Echo
from relay.readers.flood import FENCES, FLOOD, coloured, directive
from relay.readers.line import Line
from relay.terminal.pen import Pen

_TAIL = 10
"""Lines at the end of a flood's chunk that are always read."""

_MAX_LINE = 256 * 1024
"""Maximum bytes kept of one line. A message has at most 64 KB, so a longer line is not a directive."""

_MAX_BLOCK = 4 * 1024 * 1024
"""Maximum bytes after a `<<<` that are read in full before a `>>>` comes."""


class _Marker:
    """The text that begins a directive, and the patterns that find it: by (with fences, kind of output)."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._patterns: dict[tuple[bool, str], re.Pattern[bytes]] = {}

    def pattern(self, fences: bool, kind: str) -> re.Pattern[bytes]:
        if (fences, kind) not in self._patterns:  # compiling takes a millisecond, and few sessions need all
            match kind:
                case "plain":
                    found = directive(self.text)
                case "coloured":
                    found = coloured(self.text)
                case _:
                    found = re.escape(self.text)
            self._patterns[fences, kind] = re.compile(found + (b"|" + FENCES if fences else b""))
        return self._patterns[fences, kind]


class LinesReader:
    """Turns raw output into lines for an AutoReader, which documents the methods.

    marker:  begins a directive.
    settled: the part of the unfinished line that `waiting` has returned.
    """

    def __init__(self, columns: int, marker: bytes, echo: Echo, places: PlaceCounter) -> None:
        self._columns = columns
        self._marker = _Marker(marker)
        self._echo = echo
        self._places = places
        self._end = 0  # offset of the next output
        self._partial = bytearray()
        self._cut = False  # the line has grown beyond _MAX_LINE
        self._string = False  # a control string is open
        self.settled = ""
        self._gap = False
        self._block = 0  # bytes still to be read in full because a `<<<` is open
        self._pen = Pen()

    def state(self) -> dict[str, Any]:
        return {
            "end": self._end,
            "partial": self._partial.decode("latin-1"),
            "cut": self._cut,
            "string": self._string,
            "settled": self.settled,
            "gap": self._gap,
            "block": self._block,
            "pen": self._pen.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._end, self._partial = state["end"], bytearray(state["partial"].encode("latin-1"))
        self._cut, self._string, self.settled = state["cut"], state["string"], state["settled"]
        self._gap, self._block = state["gap"], state["block"]
        self._pen.restore(state["pen"])

    def feed(self, data: bytes, end: int, now: float) -> list[Line]:
        """Take output that ends at the offset `end`; return the lines that it completed."""
        lines: list[Line] = []
        start, self._end = self._end, end
        parts, self._string = outside_strings(data, inside=self._string)
        for begin, stop in parts:
            read = self._flood if stop - begin >= FLOOD and not self._block else self._all
            read(data[begin:stop], start + begin, now, lines)
        return lines

    def tick(self, now: float) -> list[Line]:
        return []

    def waiting(self, now: float, *, sure: bool) -> list[Line]:
        self._block = 0
        text = self._echo.before_draft(self.unfinished())
        rest = self._unsettled(text)
        marker = re.escape(self._marker.text.decode("utf-8", "replace"))
        if not sure and re.match(rf"\W*?{marker}", rest):
            return []  # a directive that the program, which is only silent, may still be printing
        self.settled = text
        self._echo.prompts.learn(rest)
        hidden = self._pen.end_line()
        return self._emit(rest, self._end, now, hidden=hidden) if rest.strip() else []

    @property
    def settling(self) -> bool:
        return False

    def gap(self, end: int, now: float) -> list[Line]:
        self._end = end
        self._partial.clear()
        self._string = False
        self._pen.end_line()
        self.settled = ""
        self._block = 0
        self._gap = True
        return []

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        self._columns = columns
        return []

    def close(self, now: float) -> list[Line]:
        lines: list[Line] = []
        if self._partial:
            self._finish(bytes(self._partial), self._end, now, lines)
            self._partial.clear()
        return lines

    def unfinished(self) -> str:
        """Return the text of the line that has no newline yet."""
        return plain(bytes(self._partial), self._columns)[-1]

    def _all(self, data: bytes, base: int, now: float, lines: list[Line]) -> None:
        """Read every line of `data`, which begins at the offset `base`."""
        start = 0
        pen = self._pen
        visible = (pen.calm and b"\x1b" not in data) or pen.passes(data)
        while (end := data.find(b"\n", start)) >= 0:
            raw = data[start:end]
            if not visible:
                pen.write(raw)
            if self._partial:
                self._keep(raw)
                raw = bytes(self._partial)
                self._partial.clear()
            self._finish(raw, base + end + 1, now, lines)
            start = end + 1
        if not visible:
            pen.write(data[start:])
        self._keep(data[start:])

    def _flood(self, data: bytes, base: int, now: float, lines: list[Line]) -> None:
        """Read the first line, those that can matter, and the tail; mark a gap for the lines left out."""
        first = data.find(b"\n") + 1
        if first == 0:
            self._all(data, base, now, lines)
            return
        self._all(data[:first], base, now, lines)
        tail = len(data)
        for _ in range(_TAIL + 1):
            tail = data.rfind(b"\n", first, tail)
            if tail < 0:
                break
        tail = max(tail + 1, first)
        # An escape may be within the words of a directive; if it is not a colour, every marker counts.
        kind = "plain" if b"\x1b" not in data else "coloured" if only_colours(data) else "any"
        # Searching for one byte is six times as fast.
        fences = (b"`" in data and b"```" in data) or (b"~" in data and b"~~~" in data)
        pattern = self._marker.pattern(fences, kind)
        matters = fences or self._marker.text in data
        at = first
        while matters and (found := pattern.search(data, at, tail)) is not None:
            start = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.start()) + 1
            self._skip(data, at, start, kind)
            self._all(data[start:end], base + start, now, lines)
            at = end
            if self._block or at >= tail:
                self._all(data[at:], base + at, now, lines)
                return
        self._skip(data, at, tail, kind)
        self._all(data[tail:], base + tail, now, lines)

    def _skip(self, data: bytes, start: int, end: int, kind: str) -> None:
        """Skip the whole lines of `data` from `start` to `end`."""
        if end > start:
            self._gap = True
            if kind != "plain":
                self._pen.skip(data, start, end)

    def _unsettled(self, text: str) -> str:
        """Return the new part of a line, without the part already returned and leading prompt signs."""
        return self._echo.behind_prompt(text.removeprefix(self.settled))

    def _keep(self, raw: bytes) -> None:
        """Append to the unfinished line, within bounds."""
        room = _MAX_LINE - len(self._partial)
        if len(raw) > room:
            self._cut = True
            raw = raw[:room]
        self._partial += raw

    def _finish(self, raw: bytes, offset: int, now: float, lines: list[Line]) -> None:
        gap, self._cut = self._cut, False
        hidden = self._pen.hidden and self._pen.end_line()
        for text in plain(raw, self._columns):
            rest = self._unsettled(text)
            self.settled = ""
            if self._block:
                self._block = 0 if text.strip() == ">>>" else max(0, self._block - len(raw))
            elif text.endswith("<<<") and self._marker.text in raw and not hidden:
                self._block = _MAX_BLOCK
            if rest or not text:
                lines += self._emit(rest, offset, now, hidden=hidden)
        self._gap = self._gap or gap

    def _emit(self, text: str, offset: int, now: float, *, hidden: bool) -> list[Line]:
        if self._echo.consume(text, now):
            return []
        gap, self._gap = self._gap, False
        # `offset` counts raw 8-bit controls twice: each became two bytes.
        return [Line(text, now, self._places.at(min(offset, self._end)), gap, hidden=hidden)]
