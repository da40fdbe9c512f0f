"""When a text appeared on the screen of a recording.

The screen is looked at as often as it can be seen to change; rows that scrolled off between two looks count,
and a line that wraps is one line.  Upper and lower case are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relay.replay.seekable_screen import Film
from relay.terminal.screen import Row

FRAME = 0.1
"""Seconds of the recording between two looks: what was there for less, and did not scroll, nobody read."""


@dataclass(frozen=True, slots=True)
class Hit:
    """The text appeared. time: seconds of the recording; line: the line of the screen that holds it."""

    time: float
    line: str


def hits(film: Film, text: str, stopped: Callable[[], bool] = lambda: False) -> Iterator[Hit]:
    """Each appearance of `text` from the film's place on, once for as long as it stays on the screen.

    `film` is at its end afterwards. `stopped` is asked now and then whether to give up.
    """
    wanted = text.casefold()
    film.screen.collect()
    before: list[str] = []
    while film.upcoming is not None and not stopped():
        end = film.upcoming + FRAME
        while film.upcoming is not None and film.upcoming < end:
            film.step()
        gone = _matching(film.screen.drain().rows, wanted)
        shown = _matching(film.screen.rows(), wanted)
        now = gone + shown
        new = [line for line in now if line not in before] + [line for line in now if line in before]
        yield from (Hit(film.time, line) for line in new[: max(0, len(now) - len(before))])
        before = shown


def _matching(rows: list[Row], wanted: str) -> list[str]:
    """The lines in `rows` that hold the text `wanted`, which is casefolded."""
    found, line = [], ""
    for row in rows:
        line += row.text
        if not row.wrapped:
            if wanted in line.casefold():
                found.append(line)
            line = ""
    return [*found, line] if line and wanted in line.casefold() else found
