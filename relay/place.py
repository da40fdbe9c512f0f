"""The place in an agent's words from which something came, so that it is told apart after a crash."""

from __future__ import annotations

from typing import NamedTuple

TERMINAL, TRANSCRIPT = "terminal", "transcript"


class Place(NamedTuple):
    """The end of a line in one source; it increases strictly from line to line.

    source:  TERMINAL; TRANSCRIPT, the agent's own record; "transcript/ID" for that of a subagent.
    offset:  bytes of the source, lost ones included, that had been read when the line was complete.
    ordinal: of the line among those with the same offset, from 0 on.
    """

    source: str
    offset: int
    ordinal: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.offset}" + (f".{self.ordinal}" if self.ordinal else "")


class PlaceCounter:
    """Gives the places in one source, which may be asked for by several readers."""

    def __init__(self, source: str = TERMINAL) -> None:
        self._last = Place(source, -1)

    def at(self, offset: int) -> Place:
        """Return the place of the next line that was complete after `offset` bytes."""
        source, last, ordinal = self._last
        self._last = Place(source, last, ordinal + 1) if offset <= last else Place(source, offset)
        return self._last
