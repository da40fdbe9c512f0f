"""A recording as text: each line that its program said or drew once, however often it was redrawn.

It is read by the readers that hear a session, told of no agent's ways: prompts and panels count, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from relay.readers.auto import AutoReader
from relay.readers.line import Line
from relay.replay.film import Film, bounded
from relay.replay.tape import Tape, size

TICK = 0.02
"""Seconds between two looks at the screen, as in a session."""


def lines(tape: Tape) -> Iterator[str]:
    """The lines, oldest first; not yet made safe to show. Also without a virtual screen, if less well."""
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
    yield from _texts(reader.close(now))


def screen(film: Film) -> list[str]:
    """The rows of the screen now, without blank ones at its end; not yet made safe to show."""
    texts = [row.text for row in film.screen.rows()]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def _texts(said: list[Line]) -> Iterator[str]:
    return (line.text for line in said)
