"""The text of a program that draws: the lines on both of its screens, and which of them are complete.

    rows of the screen ─→ logical lines ─→ Page (primary, alternate) ─→ settled: those complete

How soon a line settles depends on its place: above the cursor of a program that prints, it is complete; with
something newer below, it is as good as complete; the last line may still grow.
"""

from __future__ import annotations

import math
import re
from collections import deque
from itertools import pairwise
from typing import Any

from relay.columns import columns_of
from relay.readers.drawing import Drawing
from relay.readers.page import Page, PageLine
from relay.readers.scroll_bar import without_scroll_bar
from relay.readers.wrap import FULL_SCREEN_MARGIN, clip, logical_lines
from relay.terminal.screen import Colours, Drained, Row, VirtualScreen

DONE = 0.06
"""Seconds without a change after which a line above the cursor of a program that prints is complete."""

FOLLOWED = 0.3
"""The same for a line that has newer text below it."""

LAST = 1.2
"""The same for the newest line of a program that draws: models pause in the middle of a line."""

_SLOW = 8
"""Frames, at their own pace, for which a line waits while one below it moves: a spinner, a counter."""

_SLOWEST = 2.5
"""Maximum seconds of that wait: less than a line below waits for this one."""

_PACE = 4
"""Frames from which that pace is measured."""

_STALLED = 5.0
"""Maximum seconds without a frame for which the program, or its terminal, counts as stalled."""

_MOVES = 1.0
"""Seconds before a line's last change from which a change of a line below it counts as movement."""

AT_CURSOR = 2.0
"""Seconds without a change for the line with the cursor, which is mostly a prompt or a draft."""

CHANGING_LINE_TIMEOUT = 3.0
"""Seconds for which a line waits for one above it that keeps changing."""

REDRAW = 3.0
"""Seconds after a resize within which a busy program starts to redraw."""

LAYOUT = 10.0
"""Seconds after a resize or another page within which a full-screen program draws one that fits its screen.

No line waits longer.
"""

_RULE = re.compile(r"[\u2500\u2501\u2550\u2580-\u2588\u2594]{10,}\Z")
_PLACES = re.compile(rb"\x1b\[[0-9;]*[HfJ]")
_REGION = re.compile(rb"\x1b\[([0-9;]*)r")


class _Pages:
    """The pages of the primary and of the alternate screen. shown: the one that is on the screen."""

    def __init__(self) -> None:
        self.primary = Page(scrolls_back=False)
        self.alternate = Page(scrolls_back=True)
        self.shown = self.primary


class DrawnText:
    """The lines on the screens of one program, as of the last `look`.

    marker:  begins a directive.
    scrolls: lines may have left the screen other than off its top.
    """

    def __init__(self, screen: VirtualScreen, marker: str, drawing: Drawing) -> None:
        self._screen = screen
        self._marker = marker
        self._drawing = drawing
        self._pages = _Pages()
        self._carry: list[Row] = []  # rows that scrolled off, of a line that is still partly visible
        self._drained = Drained([])  # what scrolled off since the last look, found by `state`
        self._stale = False  # the alternate screen was resized, and the program has not redrawn it
        self._unread = math.inf  # since when, in seconds, the alternate screen has shown no page that fits
        self._region = False  # a scroll region is set
        self.scrolls = False
        self._frames: deque[float] = deque(maxlen=_PACE + 1)  # when those with a look came (seconds)
        self._again: set[str] = set()  # keys of lines partly drawn before in the rows above them

    def state(self) -> dict[str, Any]:
        """Return the JSON that `restore` needs, besides the screen, to continue from here."""
        self._drain()
        return {
            "covered": self._pages.primary.covered if self._screen.alternate else None,
            "pages": [self._pages.primary.state(), self._pages.alternate.state()],
            "alternate": self.alternate,
            "rows": [self._carry, self._drained.rows],
            "lost": self._drained.lost,
            "flags": [self._stale, self._region, self.scrolls],
            "again": sorted(self._again),
            "frames": list(self._frames),
            "unread": self._unread,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from there. Call this before drawing the screen: it draws the covered primary screen."""
        if state["covered"] is not None:
            columns, rows, drawn = self._pages.primary.covered = state["covered"]
            self._screen.resize(columns, rows)
            self._screen.feed(drawn.encode("latin-1") + b"\x1b[?1049h")
        for page, saved in zip((self._pages.primary, self._pages.alternate), state["pages"], strict=True):
            page.restore(saved)
        self._pages.shown = self._pages.alternate if state["alternate"] else self._pages.primary
        self._carry, drained = ([_row(*row) for row in rows] for rows in state["rows"])
        self._drained = Drained(drained, state["lost"])
        self._stale, self._region, self.scrolls = state["flags"]
        self._again = set(state["again"])
        self._frames.extend(state["frames"])
        self._unread = state["unread"]

    def _drain(self) -> Drained:
        """Return what has scrolled off since the last look."""
        drained = self._screen.drain()
        self._drained.rows += drained.rows
        self._drained.lost = self._drained.lost or drained.lost
        return self._drained

    @property
    def lines(self) -> list[PageLine]:
        """The lines on the screen, top to bottom."""
        return self._pages.shown.visible

    @property
    def pending(self) -> bool:
        """True if one of the lines on the screen shows something that was not emitted."""
        return self._pages.shown.pending

    @property
    def covered(self) -> list[PageLine]:
        """The lines of the primary screen while the alternate one covers it."""
        return self._pages.primary.visible if self.alternate else []

    @property
    def alternate(self) -> bool:
        """True while the shown page is the alternate screen's."""
        return self._pages.shown is self._pages.alternate

    @property
    def stale(self) -> bool:
        """True while the screen shows a page that was cut by a resize and not redrawn."""
        return self._stale and self._screen.alternate

    def unread(self, now: float) -> bool:
        """Return True while a page that fits the screen is still to come; its known lines wait for that."""
        return self.alternate and 0 <= now - self._unread < LAYOUT

    def at_cursor(self, line: PageLine) -> bool:
        return line.first <= self._cursor_row <= line.last

    def follow_regions(self, data: bytes) -> None:
        """Note the scroll regions that `data` sets or unsets."""
        for match in _REGION.finditer(data):
            self._region = match[1] != b""
            self.scrolls = True

    def resized(self, now: float) -> None:
        """Note that the screen has another size: the program may reprint its lines.

        The text on the alternate screen is cut off, not rewrapped, until the program redraws it.
        """
        self._pages.shown.expect_reprint(now, REDRAW)
        self._stale = self.alternate
        self._unread = now if self.alternate else math.inf

    def drawn(self, data: bytes, now: float) -> None:
        """Note whether `data`, just fed, begins or continues to redraw a page after a resize."""
        if self._screen.synchronized:
            self._pages.shown.hold_reprint(now)
        if self._stale and _PLACES.search(data) is not None:
            self._stale = False
            self._pages.shown.expect_reprint(now)

    def wipe(self, now: float) -> None:
        """Note that the program is about to clear the screen: lines that begin above it lose their end."""
        if not self.alternate:
            self._carry.clear()
        self._pages.shown.wipe(now)

    def cover(self) -> None:
        """Note that the program may be about to cover the primary screen with the alternate one."""
        screen = self._screen
        if not screen.alternate:
            self._pages.primary.covered = screen.columns, screen.height, screen.repaint().decode("latin-1")

    def restart(self) -> None:
        """Forget the primary screen: output was skipped."""
        self._carry.clear()
        self._pages.shown = self._pages.primary = Page(scrolls_back=False)

    def turn(self, now: float) -> list[PageLine]:
        """Follow the program to the other screen; return the alternate one's lines if it has left that."""
        if self._screen.alternate == self.alternate:
            return []
        left = self._pages.shown.visible if self.alternate else []  # these will not change any more
        self._pages.shown = self._pages.primary if self.alternate else self._pages.alternate
        if self.alternate:
            self._pages.shown.wipe(now)
        self._pages.shown.expect_reprint(now)
        return left

    def look(self, changed: float) -> tuple[list[PageLine], bool]:
        """Bring the page up to date; return the lines that have scrolled away, and whether any were lost.

        changed: when the output that the screen shows came, in seconds.
        """
        screen = self._screen
        drained, self._drained = self._drain(), Drained([])
        if not self._frames or changed > self._frames[-1]:
            self._frames.append(changed)
        if self.alternate:
            columns = self._drawing.text_columns(screen)
            rows, torn = without_scroll_bar([clip(row, columns) for row in screen.rows()], columns)
            self._unread = min(self._unread, changed) if torn else math.inf
            if self.unread(changed):
                self._pages.shown.hold_reprint(changed)
                return [], drained.lost
            lines = logical_lines(rows, columns, self._marker, self._drawing, FULL_SCREEN_MARGIN)
            gone = self._pages.alternate.look(lines, changed, scrolls=True)
            if screen.cursor_visible:  # in the input: neither it nor what is below is the agent's words
                for known in self.lines:
                    known.footer_since = -math.inf if known.last >= screen.cursor[1] else math.inf
            return gone, drained.lost
        rows = self._carry + drained.rows + screen.rows()
        away = len(self._carry) + len(drained.rows)
        lines = logical_lines(rows, screen.columns, self._marker, self._drawing)
        self._again = {line.key for line in lines if line.again}
        gone = self._pages.primary.look(lines, changed, scrolls=self.scrolls)
        self._mark_footer()
        self.scrolls = self._region
        off, taken = self._pages.primary.scroll_off(away)
        self._carry = rows[taken:away]
        return gone + off, drained.lost

    def _mark_footer(self) -> None:
        """Mark the last rule across the primary screen and the lines below it."""
        lines = self._pages.primary.visible
        across = (known for known in reversed(lines) if _RULE.match(known.text))
        rule = next((known for known in across if columns_of(known.text) >= self._screen.columns - 1), None)
        for known in lines:
            below = rule is not None and known.first >= rule.first
            known.footer_since = rule.born if below and rule is not None else math.inf

    def complete(self) -> list[PageLine]:
        """Return the lines above a visible cursor at the left edge with nothing beside or below it.

        A program prints there, line by line. (A cursor after text may belong to an input box.)
        """
        screen = self._screen
        x, y = screen.cursor
        if self.alternate or x or not screen.cursor_visible:
            return []
        lines = self._pages.primary.visible
        return [] if lines and lines[-1].last >= len(self._carry) + y else lines

    def torn(self) -> list[PageLine]:
        """Return the lines of a text that an ending live display is about to erase with its own rows.

        If rich did not erase its rows before it printed the text (`LogicalLine.again`), it takes the last
        rows of the text for its own, though it has drawn none since: its cursor is in an empty row.
        """
        screen = self._screen
        lines = self._pages.primary.visible
        torn = any(line.pending and line.key in self._again for line in lines)
        return lines if torn and not screen.rows()[screen.cursor[1]].text else []

    def prompt(self) -> str:
        """Return the text before a visible cursor that follows the last text of the primary screen.

        A program that reads lines has its prompt there; one that draws has something below or beside it.
        """
        screen, lines = self._screen, self._pages.primary.visible
        x, _ = screen.cursor
        if self.alternate or not (x and lines and screen.cursor_visible):
            return ""
        last = lines[-1]
        alone = last.first == last.last == self._cursor_row and columns_of(last.text) <= x
        return last.text.ljust(x) if alone else ""

    def settled(self, now: float) -> list[PageLine]:
        """Return the lines that have been unchanged for long enough and are not yet emitted."""
        if self.unread(now) or not self._pages.shown.pending:
            return []
        lines = self._pages.shown.visible
        printing = set(map(id, self.complete()))
        cursor = self._cursor_row if self._screen.cursor_visible else -1
        due: set[int] = set()
        newest = moved = 0.0
        followed = max(FOLLOWED, self._drawing.settle)
        pace = max((later - one for one, later in pairwise(self._frames)), default=0.0)
        slow = max(LAST, min(_SLOW * pace, _SLOWEST))
        drawn = max(self._frames, default=now)
        lively = now if now - drawn >= _STALLED else min(now, drawn + pace)
        for line in reversed(lines):
            if line.pending:
                until = now
                if line.first <= cursor <= line.last:
                    wait = AT_CURSOR
                elif id(line) in printing:
                    wait = DONE
                elif newest > line.changed:
                    wait = followed
                elif moved > line.changed - _MOVES:
                    # While the moving line stands still, as when the terminal is stalled, no time counts.
                    wait, until = max(followed, slow), lively
                else:
                    wait = max(followed, LAST)
                if until - line.changed >= wait:
                    due.add(id(line))
            if line.born > newest:
                newest = line.born
            if line.changed > moved and line.changed > line.born:
                moved = line.changed
        if not due:
            return []
        # Only lines with nothing incomplete above them.
        settled: list[PageLine] = []
        held = False
        for line in lines:
            if id(line) in due:
                if not held or now - line.changed >= CHANGING_LINE_TIMEOUT:
                    settled.append(line)
            elif line.emitted is None:
                held = True
        return settled

    @property
    def _cursor_row(self) -> int:
        return self._screen.cursor[1] + (0 if self.alternate else len(self._carry))


def _row(text: str, wrapped: bool, colours: list[int | None] | None, hidden: bool) -> Row:
    return Row(text, wrapped, None if colours is None else Colours(*colours), hidden)
