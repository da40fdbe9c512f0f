"""Joins screen rows into logical lines: soft wraps by the terminal's flag, hard wraps by their shape.

Agents wrap their text themselves, at or near the margin, and indent the continuation like a new paragraph.
The row above distinguishes the two: if it is wrapped, the next word would not have fitted into it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from relay.columns import cluster, columns_of, width
from relay.readers.drawing import PLAIN, Drawing
from relay.readers.echo import squeeze
from relay.terminal.screen import Row

MARGIN = 2
"""Maximum columns that agents leave free at the right: claude, codex and aider 0, pi 1, qwen 2."""

FULL_SCREEN_MARGIN = 3
"""The same on the alternate screen: codex 0, opencode 3."""

# Begins something new: a list item, heading, quote, fence, prompt, or a box drawn with lines.
_NEW = re.compile(r"(?:[-*+•●◦▪‣⏺✦✧✻>❯›$#|]|\d+[.)])(?:\s|\Z)|#{1,6}\s|```|~~~|[\u2500-\u259f]")
_BULLETS = re.compile(r"\s*(?:[-*+•●◦▪‣⏺✦✧]\s+|\d+[.)]\s+)*")
_RULED = re.compile(r"[\u2500-\u259f]\Z")
_TABLE_RULE = re.compile(r"\s*[\u2500\u2501]{3,}(?:\s+[\u2500\u2501]{3,})+\s*\Z")
"""The rule below the headings or between the rows of a table with columns separated by blanks (codex)."""

_WHOLE_RULE = re.compile(r"\s*[\u2500\u2501]{3,}\s*\Z")
_HEADS = re.compile(r"\s*\S.*?\s{2,}\S")
"""Column headings directly above an unbroken rule (aider)."""

_WIDE_ROOM = 4
"""Maximum free columns at a break between wide characters: some, such as 。, may not begin a row."""

_LONG_ROOM = 3
"""The same where a word longer than a row was broken."""

_MAX_ROWS = 64
"""Maximum rows of one hard-wrapped line; more are a table or a log."""

_LIVE_ROWS = 6
"""Maximum rows that a printing program redraws while its text grows (aider's mdstream.py)."""


class LogicalLine(NamedTuple):
    """One logical line as it is drawn.

    key:         its text without blanks.
    first, last: its rows. blanks: the empty rows before it.
    echo:        drawn as something other than the agent's own words; hidden: as in Row.
    code:        drawn as code, or in a table.
    again:       part of it was drawn before in the rows above, which are not lines themselves.
    """

    text: str
    key: str
    first: int
    last: int
    blanks: int
    echo: bool = False
    code: bool = False
    again: bool = False
    hidden: bool = False

    def below(self, above: str, size: int, *, echo: bool, code: bool, hidden: bool) -> LogicalLine:
        """Return this line as the rest of one that began with `size` non-blank characters of `above`."""
        end = 0
        while size:
            size -= not above[end].isspace()
            end += 1
        gap = " " if above[end].isspace() else ""
        text = above[:end] + gap + self.text.lstrip()
        hidden = hidden or self.hidden
        return self._replace(text=text, key=squeeze(text), echo=echo, code=code, hidden=hidden)


def logical_lines(
    rows: Sequence[Row],
    columns: int,
    marker: str,
    drawing: Drawing = PLAIN,
    margin: int = MARGIN,
) -> list[LogicalLine]:
    """Return the logical lines of `rows`, top to bottom; empty rows are counted, not listed.

    margin: maximum columns that the program leaves free at the right where it breaks a line.
    """
    begins = re.compile(rf"{re.escape(marker)}[A-Za-z][\w-]*:\S")
    return _Rows(rows, columns, columns - margin, begins, drawing).lines()


class _Rows(NamedTuple):
    """The rows of one look.

    limit:  the columns that a program fills before it breaks a line.
    begins: matches the beginning of a directive.
    """

    rows: Sequence[Row]
    columns: int
    limit: int
    begins: re.Pattern[str]
    drawing: Drawing

    def lines(self) -> list[LogicalLine]:
        rows = self.rows
        styled = self.drawing != PLAIN
        some_hidden = any(row.hidden for row in rows)
        wraps = self._wraps()
        lines: list[LogicalLine] = []
        blanks = 0
        echo = code = table = False
        behind = 0  # the column of the text after the sign of an echo, while rows may belong to it
        at = 0
        while at < len(rows):
            whole = self._whole(at, wraps[at])
            again = whole > at
            first = at = whole
            text, at = self._soft(at)
            if not text or text.isspace():
                blanks += at - first
                continue
            if styled:
                if self.drawing.has_sign(text):
                    behind = self.drawing.hanging(text)
                elif blanks or len(text) - len(text.lstrip()) < behind:
                    behind = 0
                echo = behind > 0 or self.drawing.is_echo(rows[first])
                code = not echo and self.drawing.is_code(rows[first])
            heads = lines[-1].text if lines and not blanks else ""
            table = self._is_table_rule(text, heads) or (table and not blanks)
            if at < len(rows) and rows[at].text:
                text, at = self._hard(at, text, first)
            hidden = some_hidden and any(row.hidden for row in rows[first:at])
            if at - first > 1 and not hidden:
                hidden = any(self._drawn_over(*pair) for pair in pairwise(rows[first:at]))
            lines.append(
                LogicalLine(text, squeeze(text), first, at - 1, blanks, echo, code or table, again, hidden)
            )
            blanks = 0
        return lines

    def _is_table_rule(self, text: str, above: str) -> bool:
        """Return True if `text` is a rule of a table. above: the line that touches it, or ""."""
        if _TABLE_RULE.match(text) is not None:
            return True
        if _WHOLE_RULE.match(text) is None or _HEADS.match(above) is None:
            return False
        return columns_of(text) < self.columns - 1  # else it separates the agent's words from something else

    def _wraps(self) -> list[int]:
        """Return for each row the next one, or itself, that wraps; the number of rows if there is none."""
        found, last = [], len(self.rows)
        for at in range(last - 1, -1, -1):
            if self.rows[at].wrapped:
                last = at
            found.append(last)
        return found[::-1]

    def _whole(self, at: int, last: int) -> int:
        """Return the row where the text whose torn beginning is in the row `at` starts again, complete.

        last: the next row that wraps, from `_wraps`.

        Rich, which aider draws with, pads each row with blanks and sometimes prints the text without erasing
        its earlier drawing. The last row of that drawing soft-wraps into the same text, whose end rich may
        then erase.
        """
        rows = self.rows
        if last == len(rows) or last - at > _LIVE_ROWS or not rows[at].text or not rows[last].text:
            return at
        torn = [row.text for row in rows[at : last + 1]]
        whole = [row.text for row in rows[last + 1 : last + 1 + len(torn)]]
        most = min(last - at, len(whole))
        same = next((n for n in range(most) if torn[n] != whole[n]), most)
        if same == len(whole) or (not same and self.columns - columns_of(torn[0]) < 2):
            return at  # without any break it is one long text, which may repeat itself
        half, rest = torn[same], whole[same]
        erased = bool(same and not rest)
        grown = bool(rest) and same == last - at and (rest.startswith(half) or half.startswith(rest))
        return last + 1 if erased or grown else at

    def _soft(self, at: int) -> tuple[str, int]:
        """Return the text of the row `at` with the rows it soft-wraps into, and the index after them."""
        rows = self.rows
        if not rows[at].wrapped:
            return rows[at].text, at + 1
        pieces = [rows[at].text]
        while rows[at].wrapped and at + 1 < len(rows) and rows[at + 1].text:  # else the rest was erased
            below = rows[at + 1].text
            missing = self.columns - columns_of(pieces[-1])
            if missing > 1 and below[0].isspace():
                break  # blanks on both sides: other text was drawn over a wrapped one
            at += 1
            # Blanks at the margin were trimmed; a column stays empty where a wide character did not fit.
            # (If it is the only one, an emoji after a Latin word more likely had a blank before it.)
            found = cluster().match(below)
            wide = columns_of(found[0] if found else below[0]) == 2
            if wide and (missing > 1 or below[0] < "\U0001f000" or pieces[-1][-1:] > "~"):
                missing -= 1
            pieces += [" " * missing, below]
        return "".join(pieces), at + 1

    def _hard(self, at: int, text: str, first: int) -> tuple[str, int]:
        """Return `text`, from the rows `first` to `at`, with its hard-wrapped rest, and the next index."""
        rows = self.rows
        above = rows[first].text if first == at - 1 else text
        bullets = _BULLETS.match(text)
        body = bullets.end() if bullets else 0
        indents = (len(text) - len(text.lstrip()), body)
        is_directive = self.begins.match(text, body) is not None
        if not is_directive and columns_of(text) * 2 <= self.columns:
            return text, at
        pieces = [above]
        while at < len(rows) and rows[at].text and at - first < _MAX_ROWS:
            below = rows[at].text
            if not self._continues(above, below, indents, is_directive) or self.drawing.has_sign(below):
                break
            if self.begins.match(below.lstrip()) and (is_directive or above[-1] in ".!?:;"):
                break
            above, at = self._soft(at)
            pieces.append(above)
        # A program that does not break lines at blanks, such as a multiplexer, fills row after row.
        chopped = len(pieces) > 3 and all(columns_of(piece) == self.columns for piece in pieces[:-1])
        edge = max(map(columns_of, pieces))
        for above, below in pairwise(pieces):
            text += ("" if chopped or self._tight(above, below, edge) else " ") + below.lstrip()
        return text, at

    def _drawn_over(self, above: Row, below: Row) -> bool:
        """Return True if a wide character at the margin is drawn again below, over the next character.

        opencode does this where only half the room is left, and so hides the next character. In a row that
        the terminal has wrapped, the text has the same character twice.
        """
        if above.wrapped:
            return False
        last, body = above.text[-1:], below.text.lstrip()
        return width(last or " ") == 2 and body.startswith(f"{last} ") and columns_of(above.text) > self.limit

    def _tight(self, above: str, below: str, edge: int) -> bool:
        """Return True if no blank joins the rows: both sides are wide, or one word is longer than a row.

        Where the row above has room left, the break was at a blank. edge: columns of the widest row.
        """
        body = below.lstrip()
        taken = columns_of(above)
        if width(above[-1]) == 2 and width(body[0]) == 2:
            return taken + _WIDE_ROOM > self.limit
        if taken <= self.limit - _LONG_ROOM or taken + width(body[0]) <= edge:
            return False
        if " " not in above.strip():
            return True
        word = above.rsplit(" ", 1)[1] + body.split(" ", 1)[0]
        return columns_of(word) > edge

    def _continues(self, above: str, below: str, indents: tuple[int, int], is_directive: bool) -> bool:
        """Return True if the row `below` can be the hard-wrapped rest of the row `above`.

        A directive's row may be less than half full: its next word may be long, as wide characters are.
        """
        body = below.lstrip()
        if not body:
            return False  # a row of no-break or wide blanks
        taken = columns_of(above)
        indent = len(below) - len(body)
        if taken >= self.limit and indent - 1 in indents:
            indent -= 1  # the blank between two words, which had no room in a full row (qwen)
        if indent not in indents or _NEW.match(body) or _RULED.search(above):
            return False
        word = body.split(" ", 1)[0]
        if width(body[0]) == 2 and taken + _WIDE_ROOM > self.limit:
            return True  # lines of wide characters break anywhere
        if taken * 2 <= self.columns and not is_directive:
            return False
        return (is_directive or width(body[0]) < 2) and taken + 1 + columns_of(word) > self.limit


def clip(row: Row, columns: int) -> Row:
    text = row.text[:columns]
    while columns_of(text) > columns:
        text = text[:-1]
    return row if text == row.text else row._replace(text=text.rstrip(), wrapped=False)
