"""Logical lines from the rows of a screen: soft wraps by the terminal's flag, hard wraps by their shape.

Agents wrap their text themselves, at or near the margin, and indent the continuation like a new paragraph.
What tells the two apart is whether the row above was full: its next word would not have fitted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from relay.readers.controls import width
from relay.readers.drawing import PLAIN, Drawing
from relay.readers.echo import squeeze
from relay.terminal.screen import Row

_MARGIN = 2
"""Columns that agents leave free at the right (measured: claude, codex, aider 0, pi 1, qwen 2)."""

# What begins something new: list items, headings, quotes, fences, prompts, and boxes drawn with lines.
_NEW = re.compile(r"(?:[-*+•●◦▪‣⏺✦✧✻>❯›$#|]|\d+[.)])(?:\s|\Z)|#{1,6}\s|```|~~~|[\u2500-\u259f]")
_BULLETS = re.compile(r"\s*(?:[-*+•●◦▪‣⏺✦✧]\s+|\d+[.)]\s+)*")
_RULED = re.compile(r"[\u2500-\u259f]\Z")


_MAX_ROWS = 64
"""Rows of one hard-wrapped line; more is a table or a log."""


@dataclass(slots=True)
class Logical:
    """One logical line: its text, the same without blanks, its first and last row, empty rows before it.

    echo: not the agent's own words, by the way it is drawn; code: drawn as code.
    """

    text: str
    key: str
    first: int
    last: int
    blanks: int
    echo: bool = False
    code: bool = False


def logical_lines(rows: Sequence[Row], columns: int, marker: str, drawing: Drawing = PLAIN) -> list[Logical]:
    """The logical lines of `rows`, top to bottom; empty rows are counted, not listed."""
    begins = re.compile(rf"{re.escape(marker)}[A-Za-z][\w-]*:\S")
    lines: list[Logical] = []
    blanks = 0
    behind = 0  # the column of the text behind the sign of an echo, while rows may belong to it
    at = 0
    while at < len(rows):
        first = at
        text, at = _soft(rows, at, columns)
        if not text or text.isspace():
            blanks += at - first
            continue
        if sign := drawing.sign(text):
            behind = sign
        elif blanks or len(text) - len(text.lstrip()) < behind:
            behind = 0
        echo = behind > 0 or drawing.is_echo(rows[first])
        if at < len(rows) and rows[at].text and columns_of(text) * 2 > columns:
            text, at = _hard(rows, at, text, first, columns, begins, drawing)
        lines.append(
            Logical(
                text, squeeze(text), first, at - 1, blanks, echo, not echo and drawing.is_code(rows[first])
            )
        )
        blanks = 0
    return lines


def _hard(
    rows: Sequence[Row],
    at: int,
    text: str,
    first: int,
    columns: int,
    begins: re.Pattern[str],
    drawing: Drawing,
) -> tuple[str, int]:
    """`text`, which stands in the rows from `first` to before `at`, with what was hard-wrapped below it."""
    full = rows[first].text if first == at - 1 else text
    bullets = _BULLETS.match(text)
    body = bullets.end() if bullets else 0
    indents = (len(text) - len(text.lstrip()), body)
    is_directive = begins.match(text, body) is not None
    chopped = False
    while at < len(rows) and rows[at].text and at - first < _MAX_ROWS:
        below = rows[at].text
        if not _continues(full, below, columns, indents) or drawing.sign(below):
            break
        if begins.match(below.lstrip()) and (is_directive or full[-1] in ".!?:;"):
            break
        chopped = columns_of(full) == columns and (chopped or columns_of(below) == columns)
        more, at = _soft(rows, at, columns)
        text += ("" if chopped or _tight(full, more) else " ") + more.lstrip()
        full = more
    return text, at


def columns_of(text: str) -> int:
    """The columns that `text` takes on a terminal."""
    return len(text) if text.isascii() else sum(map(width, text))


def _soft(rows: Sequence[Row], at: int, columns: int) -> tuple[str, int]:
    """The text of the row `at` with the rows it soft-wraps into, and the index after them."""
    pieces = [rows[at].text]
    while rows[at].wrapped and at + 1 < len(rows):
        at += 1
        below = rows[at].text
        missing = columns - columns_of(pieces[-1])
        # Blanks at the margin were trimmed; but one column stays empty where a wide character did not fit.
        if missing and not (missing == 1 and below and width(below[0]) == 2):
            pieces.append(" " * missing)
        pieces.append(below)
    return "".join(pieces), at + 1


def _continues(above: str, below: str, columns: int, indents: tuple[int, int]) -> bool:
    """Whether the row `below` can be the hard-wrapped rest of the row `above`."""
    body = below.lstrip()
    if len(below) - len(body) not in indents or _NEW.match(body) or _RULED.search(above):
        return False
    taken = columns_of(above)
    word = body.split(" ", 1)[0]
    # Text without blanks between its words may break anywhere.
    needed = 1 if width(body[0]) == 2 else 1 + columns_of(word)
    return taken * 2 > columns and taken + needed > columns - _MARGIN


def _tight(above: str, below: str) -> bool:
    """Whether nothing stood between the rows: both sides are wide characters, or one word fills the row."""
    body = below.lstrip()
    return (width(above[-1]) == 2 and width(body[0]) == 2) or " " not in above.strip()
