"""Logical lines of an agent's words."""

from __future__ import annotations

from typing import NamedTuple

from relay.place import Place


class Line(NamedTuple):
    """One logical line: without escape sequences and newline, its wrapped rows joined.

    text: with the agent's decoration (bullet, indent).
    time: seconds, on the clock of whoever feeds the reader (monotonic; a recording's own in inspect).
    gap:  output before this line was lost or skipped in a flood; a grammar never joins across it.
    code: it is drawn as code, and so is no directive.
    unmarked: the agent draws no `>>>`: a directive here ends an open `<<<` form.
    hidden: some of it is drawn so that nobody can see it, and so none of it counts.
    """

    text: str
    time: float
    place: Place
    gap: bool = False
    code: bool = False
    unmarked: bool = False
    hidden: bool = False
