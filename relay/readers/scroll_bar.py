"""Strips a full-screen program's scroll bar from its rows: it is not part of their text.

Qwen Code 0.24.4 draws one in the last column, beside the conversation, and removes it seconds after the last
line has come. Copilot CLI 1.0.102 draws only the thumb.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from relay.columns import columns_of
from relay.terminal.screen import Row

_BAR = frozenset("█▓▐┃│║▕░▒")
_THUMBS = frozenset("█▓▐")
"""Characters that never draw the side of a box."""

_SIDE = "┃"
"""A thumb, too, but where it also begins the rows."""

_DRAWN = re.compile(r"[\s\u2500-\u259f]\Z")
"""Ends a row that has room for a scroll bar or is not text: a rule, or a box cut off at its right."""

_LEAST = 3
"""Minimum rows of a scroll bar at the margin. Elsewhere, as after a resize: a third of the screen."""


class Unbarred(NamedTuple):
    """Rows without their scroll bar. torn: the text of some rows continues under it and is hidden."""

    rows: list[Row]
    torn: bool


class _Drawn(NamedTuple):
    """A row as the program drew it; the terminal has wrapped it if it was too long.

    last: the row it ends in. column: where a scroll bar may end it, or 0. torn: no room before the bar.
    """

    last: int
    column: int
    torn: bool


def without_scroll_bar(rows: Sequence[Row], columns: int) -> Unbarred:
    """Return `rows`, of a screen of `columns`, without the scroll bar at their end, if there is one.

    A scroll bar is a column of block and line characters, some of them a thumb's, most of them after a blank
    or a rule. Text that runs right up to it was laid out for a wider page and is cut off: Qwen Code 0.24.4
    draws such a page after a resize, and the correct one once it has measured its lines again.
    """
    result = list(rows)
    torn = False
    for column, run in groupby(_drawn(rows, columns), lambda drawn: drawn.column):
        found = list(run)
        least = _LEAST if column == columns else len(rows) // 3
        apart = sum(not drawn.torn for drawn in found)
        texts = [rows[drawn.last].text for drawn in found]
        thumbs = _THUMBS if any(text[:-1].lstrip().startswith(_SIDE) for text in texts) else {*_THUMBS, _SIDE}
        thumb = any(text[-1:] in thumbs for text in texts)
        if column and thumb and apart >= least and apart * 2 > len(found):
            for at, _, hidden in found:
                text = rows[at].text[:-1].rstrip()
                result[at] = rows[at]._replace(text=text, wrapped=False, hidden=rows[at].hidden or hidden)
                torn = torn or hidden
    return Unbarred(result, torn)


def _drawn(rows: Sequence[Row], columns: int) -> list[_Drawn]:
    found: list[_Drawn] = []
    above = 0  # columns of the rows that wrap into this one
    before = ""
    for at, row in enumerate(rows):
        if row.wrapped and at + 1 < len(rows):
            above += columns
            before = row.text + " " * (columns - columns_of(row.text))
            continue
        bar = row.text[-1:] in _BAR
        before += row.text[:-1]
        torn = bar and before != "" and _DRAWN.search(before) is None
        found.append(_Drawn(at, above + columns_of(row.text) if bar else 0, torn))
        above, before = 0, ""
    return found
