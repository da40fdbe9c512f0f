"""A recording as text: all that its screen showed and scrolled away, and what it showed at the end."""

from __future__ import annotations

from collections.abc import Iterator

from relay.replay.film import Film
from relay.terminal.screen import Row


def lines(film: Film) -> Iterator[str]:
    """Each line once, from the film's place to the end of the tape; not yet made safe to show.

    Of a program on the alternate screen, what that showed when the program left it, or at the end.
    """
    left: list[Row] = []
    film.on_leave = left.extend
    film.screen.collect()
    while film.step() is not None:
        yield from _joined(film.screen.drain().rows)
        if left:
            yield from _trimmed(_joined(left))
            left.clear()
    yield from _trimmed(_joined(film.screen.rows()))


def screen(film: Film) -> list[str]:
    """The rows of the screen, without blank ones at its end; not yet made safe to show."""
    return _trimmed([row.text for row in film.screen.rows()])


def _joined(rows: list[Row]) -> list[str]:
    """Rows as lines: one that wraps goes on in the next."""
    found, line = [], ""
    for row in rows:
        line += row.text
        if not row.wrapped:
            found.append(line)
            line = ""
    return [*found, line] if line else found


def _trimmed(texts: list[str]) -> list[str]:
    while texts and not texts[-1].strip():
        texts.pop()
    return texts
