"""The text of a terminal's output, as a person reads it, and where in the output each character of it is."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

SEQUENCE = 4096
"""Characters of a control sequence that is not over; a longer one is taken for text."""

_SEQUENCE = re.compile(
    r"\x1b\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])"  # CSI (ECMA-48, 5.4)
    r"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"  # OSC (xterm ctlseqs)
    r"|\x1b[PX^_](?P<string>[^\x1b]*)\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*(?P<escape>[0-Z\\`-~])"  # other escape sequences
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]"  # controls that write nothing
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z")

_MOVES = frozenset("HfABEFGJLMSTd")
"""Finals of CSI after which something else stands at the cursor: CUP, HVP, CUU, ..., VPA."""
_ESCAPE_MOVES = frozenset("78DEMc")
"""DECSC, DECRC, IND, NEL, RI, RIS."""


class Page:
    """Text that was taken out of another one, the source.

    text:    what can be read; a movement of the cursor is a line feed in it, a step to the right a blank.
    end:     where in the source an unfinished control sequence begins, else the source's length.
    strings: (start, end, content's start) of the OSC and DCS sequences of the source, which hold text, too.
    columns: the column at which the text goes on after a movement, by the index in the text.
    """

    def __init__(self, end: int) -> None:
        self.text = ""
        self.end = end
        self.strings: list[tuple[int, int, int]] = []
        self.columns: dict[int, int] = {}
        self._parts: list[str] = []
        self._size = 0
        self._starts: list[int] = []  # of the pieces in the text
        self._sources: list[int] = []  # where in the source they are
        self._lengths: list[int] = []  # in the source; 0 for what stands for a sequence

    @classmethod
    def of_terminal(cls, source: str) -> Page:
        """The text of a terminal's output."""
        page = cls(len(source))
        position = 0
        for match in _SEQUENCE.finditer(source):
            page._add(source[position : match.start()], position)
            position = match.end()
            page._sequence(match)
        escape = source.find("\x1b", position)
        if escape >= 0 and len(source) - escape <= SEQUENCE and _UNFINISHED.match(source, escape):
            page.end = escape
        page._add(source[position : page.end], position)
        return page._done()

    @classmethod
    def without(cls, source: str, gaps: Iterable[tuple[int, int]]) -> Page:
        """`source` without the parts (start, end) of it, which are in order."""
        page = cls(len(source))
        position = 0
        for start, end in gaps:
            page._add(source[position:start], position)
            position = end
        page._add(source[position:], position)
        return page._done()

    def source(self, index: int) -> int:
        """Where in the source text[index] is."""
        if index >= len(self.text):
            return self.end
        piece = bisect_right(self._starts, index) - 1
        return self._sources[piece] + min(index - self._starts[piece], self._lengths[piece])

    def index(self, source: int) -> int:
        """How much of the text comes from before that place in the source."""
        piece = bisect_right(self._sources, source - 1) - 1
        if piece < 0:
            return 0
        shown = self._starts[piece + 1] if piece + 1 < len(self._starts) else len(self.text)
        return min(self._starts[piece] + source - self._sources[piece], shown)

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of the source that text[start:end] is made of, without the sequences in between."""
        piece = max(bisect_right(self._starts, start) - 1, 0)
        while piece < len(self._starts) and self._starts[piece] < end:
            first, source, length = self._starts[piece], self._sources[piece], self._lengths[piece]
            a, b = max(start - first, 0), min(end - first, length)
            if a < b:
                yield source + a, source + b
            piece += 1

    def _sequence(self, match: re.Match[str]) -> None:
        kind = match.lastgroup
        if kind == "final":
            if match["final"] == "C":
                self._stand_in(" ", match.start())
            elif match["final"] in _MOVES:
                self._stand_in("\n", match.start())
                column = match["parameters"].rpartition(";")[2]
                if match["final"] in "Hf" and ";" in match["parameters"] and column.isdigit():
                    self.columns[self._size] = int(column[:5]) - 1
        elif kind == "escape":
            if match["escape"] in _ESCAPE_MOVES:
                self._stand_in("\n", match.start())
        elif kind is not None:
            self.strings.append((match.start(), match.end(), match.start(kind)))

    def _add(self, text: str, source: int) -> None:
        if text:
            self._piece(text, source, len(text))

    def _stand_in(self, text: str, source: int) -> None:
        self._piece(text, source, 0)

    def _piece(self, text: str, source: int, length: int) -> None:
        self._starts.append(self._size)
        self._sources.append(source)
        self._lengths.append(length)
        self._parts.append(text)
        self._size += len(text)

    def _done(self) -> Page:
        self.text = "".join(self._parts)
        self._parts.clear()
        return self
