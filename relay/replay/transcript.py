"""A recording as text: each line that its program said or drew once, however often it was redrawn.

It is read by the readers that hear a session, told of no agent's ways: prompts and panels count, too.  Where
something is missing, `[... 266 kB left out ...]` stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from relay.readers.auto import AutoReader
from relay.readers.line import Line
from relay.recording import gap
from relay.replay.seekable_screen import Film, bounded
from relay.replay.tape import Tape, size

TICK = 0.02
"""Seconds between two looks at the screen, as in a session."""

_BEGINNING = "[... the beginning, which is no longer kept ...]"


def lines(tape: Tape) -> Iterator[str]:
    """The lines, oldest first; not yet made safe to show. Also without a virtual screen, if less well."""
    if tape.cut:
        yield _BEGINNING
    yield from _joined(_said(tape))


def _said(tape: Tape) -> Iterator[str | int]:
    """The lines, and how many bytes are left out between them."""
    reader = AutoReader(*bounded(tape.columns, tape.rows))
    now = 0.0
    for event in tape.reader():
        while reader.settling and now + TICK < event.time:
            now += TICK
            yield from _texts(reader.tick(now))
        now = event.time
        if event.kind == "o":
            yield from _texts(reader.feed(event.bytes, now))
        elif event.kind == "r" and (wanted := size(event.data)) is not None:
            yield from _texts(reader.resize(*bounded(*wanted), now))
        elif event.kind == "m" and (missing := gap.size(event.data)) is not None:
            yield missing
    yield from _texts(reader.close(now))


def _joined(said: Iterable[str | int]) -> Iterator[str]:
    """The lines, and in place of all bytes that are left out between two of them a line that says so."""
    for missing, group in groupby(said, lambda each: isinstance(each, int)):
        if missing:
            yield f"[... {gap.say(sum(each for each in group if isinstance(each, int)))} ...]"
        else:
            yield from (each for each in group if isinstance(each, str))


def screen(film: Film) -> list[str]:
    """The rows of the screen now, without blank ones at its end; not yet made safe to show."""
    texts = [row.text for row in film.screen.rows()]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _texts(said: list[Line]) -> Iterator[str]:
    return (line.text for line in said)
