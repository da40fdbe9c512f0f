"""The log of what an agent said in one session: a separate journal, next to the recording.

    {"time": 1760000001.5, "event": "said", ..., "text": "two\\nlines", "place": ["terminal", 812, 1]}

place: that of the last line, from which the next session knows what is already logged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from relay.dataclass import dataclass
from relay.place import Place
from relay.storage import journal
from relay.text import count

SAID = "said"

_TAIL = 1 << 20  # bytes at the end of a log to search for the last place of each source


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """A line that the agent said, not yet safe to show. time: the log entry's, in seconds since the epoch."""

    time: float
    text: str


def entries(said: Sequence[tuple[str, Place]], most: int) -> Iterator[tuple[str, Place, int]]:
    """Yield (text, place of its last line, lines left out before it) for what was `said`, source by source.

    Take from each source the last lines that have at most `most` characters together.
    """
    for _, group in groupby(said, key=lambda each: each[1].source):
        lines = [*group]
        size, first = 0, len(lines)
        while first and (size := size + len(lines[first - 1][0]) + 1) <= most:
            first -= 1
        kept = lines[min(first, len(lines) - 1) :]
        yield "\n".join(line for line, _ in kept), kept[-1][1], len(lines) - len(kept)


def last_places(path: Path) -> dict[str, Place]:
    """Return the last logged place of each source. Raise OSError if the log cannot be read."""
    with open(path, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _TAIL, 0))
        tail = file.read().decode(errors="replace").splitlines()
    found: dict[str, Place] = {}
    for line in tail:
        if (entry := journal.parse(line)) is not None and (place := _place(entry)) is not None:
            found[place.source] = place
    return found


def _place(entry: dict[str, Any]) -> Place | None:
    match entry.get("place"):
        case [str(source), int(offset), int(ordinal)]:
            return Place(source, offset, ordinal)
    return None


def read(path: Path) -> Iterator[LoggedLine]:
    """Yield the lines of a log, oldest first."""
    for entry in journal.read(path):
        yield from _lines(entry)


def follow(path: Path, over: Callable[[], bool]) -> Iterator[LoggedLine | None]:
    """Yield the lines, then new ones as they are written, as `journal.follow` does."""
    for entry in journal.follow(path, over):
        if entry is None:
            yield None
        else:
            yield from _lines(entry)


def _lines(entry: dict[str, Any]) -> Iterator[LoggedLine]:
    at, text, left_out = entry.get("time"), entry.get("text"), entry.get("left_out")
    if entry["event"] != SAID or not isinstance(at, int | float) or not isinstance(text, str):
        return
    if left_out and isinstance(left_out, int):
        yield LoggedLine(float(at), f"[... {count(left_out, 'line')} left out ...]")
    for line in text.split("\n"):
        yield LoggedLine(float(at), line)
