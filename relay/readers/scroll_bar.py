"""Takes the scroll bar of a full-screen program off its rows: it is no part of what they say.

Qwen Code 0.24.4 draws one in the last column, beside the conversation, and takes it away seconds after the
last line has come.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from relay.columns import columns_of
from relay.terminal.screen import Row

_BAR = re.compile(r"(?:^|[\s─━═])[█▓▐┃│║▕░▒]\Z")
_THUMBS = frozenset("█▓▐")
"""What the side of a box is never drawn with."""

_LEAST = 3
"""Rows of the lowest scroll bar at the margin. Elsewhere, as after a resize, it is a third of the screen."""


class _Drawn(NamedTuple):
    """What was drawn as one row, and the terminal has wrapped if it was too long.

    last: the row it ends in. column: where a scroll bar may end it, or 0.
    """

    last: int
    column: int


def without_scroll_bar(rows: Sequence[Row], columns: int) -> list[Row]:
    """Return `rows`, of a screen of `columns`, without a scroll bar behind them, if there is one.

    That is a column of block and line characters, each behind a blank or a rule, of which some are those of a
    thumb.
    """
    result = list(rows)
    for column, run in groupby(_drawn(rows, columns), lambda drawn: drawn.column):
        lasts = [drawn.last for drawn in run]
        least = _LEAST if column == columns else len(rows) // 3
        if column and len(lasts) >= least and any(rows[at].text[-1] in _THUMBS for at in lasts):
            for at in lasts:
                result[at] = rows[at]._replace(text=rows[at].text[:-1].rstrip(), wrapped=False)
    return result


def _drawn(rows: Sequence[Row], columns: int) -> list[_Drawn]:
    found: list[_Drawn] = []
    above = 0  # columns of the rows that wrap into this one
    for at, row in enumerate(rows):
        if row.wrapped and at + 1 < len(rows):
            above += columns
            continue
        bar = _BAR.search(row.text[-2:]) is not None
        found.append(_Drawn(at, above + columns_of(row.text) if bar else 0))
        above = 0
    return found
