"""A logical line that the agent said, and what every reader can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Line:
    """One logical line: escape sequences gone, wrapped rows joined, no newline at its end.

    text: what was said, the agent's decoration (bullet, indent) included.
    time: seconds, on the clock of whoever feeds the reader (monotonic; a recording's own in inspect).
    code: it is drawn as code, and so is no directive.
    gap:  output before this line was dropped in a flood; a grammar never joins across it.
    """

    text: str
    time: float
    gap: bool = False
    code: bool = False


class Reader(Protocol):
    """Bytes in, lines out. Not thread-safe: one thread feeds it. `now` is seconds and never goes back."""

    def feed(self, data: bytes, now: float) -> list[Line]:
        """Take output of the child, cut anywhere; return the lines that it completed."""
        ...

    def tick(self, now: float) -> list[Line]:
        """Return the lines that the passing of time alone has settled."""
        ...

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        """Note what was written to the child's terminal (by the person or by relay), before its echo is fed.

        echo: whether the terminal or the program will draw it (False: ECHO off in canonical mode).
        """
        ...

    def waiting(self, now: float) -> list[Line]:
        """The program waits for input: an unfinished line is finished. Return it, if any."""
        ...

    def gap(self, now: float) -> list[Line]:
        """Output was lost between what was fed before and what will be fed after."""
        ...

    @property
    def settling(self) -> bool:
        """Whether `tick` may still return lines though nothing is fed: then it must go on being called."""
        ...

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        """The terminal's size has changed, between what was fed before and what will be fed after."""
        ...

    def close(self, now: float) -> list[Line]:
        """The output has ended. Return what is left."""
        ...
