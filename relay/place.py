"""The place of a line in an agent's output, which identifies a directive even after a crash."""

from __future__ import annotations

from typing import NamedTuple

TERMINAL, TRANSCRIPT, REQUEST = "terminal", "transcript", "request"


class Place(NamedTuple):
    """The end of a line in one source. Each line has a greater place than the one before.

    source:  TERMINAL; TRANSCRIPT, the agent's own record; "transcript/ID", that of a subagent; or
             "request/ID", a request from another process, always at offset 0.
    offset:  bytes of the source read by the time the line was complete, including lost ones.
    ordinal: counts the lines with the same offset, from 0.
    """

    source: str
    offset: int
    ordinal: int = 0

    @property
    def requested(self) -> bool:
        """True for a request from another process, which may repeat it; the agent says nothing twice."""
        return self.source.startswith(f"{REQUEST}/")

    def __str__(self) -> str:
        return f"{self.source}:{self.offset}" + (f".{self.ordinal}" if self.ordinal else "")


class PlaceCounter:
    """Numbers the lines of one source. Several readers of the source may share it.

    last: the place of the last line.
    """

    def __init__(self, source: str = TERMINAL) -> None:
        self.last = Place(source, -1)

    def at(self, offset: int) -> Place:
        """Return the place of the next line, which was complete after `offset` bytes."""
        source, last, ordinal = self.last
        self.last = Place(source, last, ordinal + 1) if offset <= last else Place(source, offset)
        return self.last
