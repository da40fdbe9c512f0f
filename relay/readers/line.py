"""Logical lines of an agent's words."""

from __future__ import annotations

from typing import NamedTuple

from relay.place import Place


class Line(NamedTuple):
    """One logical line: without escape sequences and newline, its wrapped rows joined.

    text: with the agent's decoration (bullet, indent).
    time: seconds on the clock of the reader's caller (monotonic; in inspect, the recording's own).
    gap:  output before this line was lost or skipped in a flood; a grammar never joins across it.
    code: drawn as code, so never a directive.
    unmarked: the agent draws no `>>>`, so a directive here ends an open `<<<` form.
    hidden: part of the line is drawn invisibly, so none of it counts.
    """

    text: str
    time: float
    place: Place
    gap: bool = False
    code: bool = False
    unmarked: bool = False
    hidden: bool = False
