"""The reader of programs that draw: logical lines by their place on the virtual screen.

    feed → screen ─(a look between two frames)→ rows → logical lines → page
                                                                                 │
              a line is said once it has scrolled off, or has not changed for a moment ┘

How long that moment is depends on what the place tells: what stands above the cursor of a program that prints
is done; a line with something newer below it is as good as done; the last one may still grow.
"""

from __future__ import annotations

import re

from relay.readers.drawing import PLAIN, Drawing
from relay.readers.echo import Echo
from relay.readers.flood import FLOOD, hit, visible_part
from relay.readers.line import Line
from relay.readers.page import Entry, Page
from relay.readers.wrap import FULL_SCREEN_MARGIN, clip, logical_lines
from relay.terminal.screen import Row, Screen

QUIET = 0.008
"""Seconds of silence after which a frame is taken to be whole."""

LOOK_EVERY = 0.1
"""Seconds between two looks at a program that is never silent."""

DONE = 0.06
"""Seconds without a change after which a line above the cursor of a program that prints has been said."""

FOLLOWED = 0.3
"""The same for a line that has newer text below it."""

LAST = 1.2
"""The same for the newest line of a program that draws: models pause in the middle of a line."""

AT_CURSOR = 2.0
"""The same for the line that the cursor stands on, which is mostly a prompt or a draft."""

PATIENCE = 3.0
"""Seconds for which a line waits for one above it that keeps changing."""

_BACKLOG = 256 * 1024
"""Bytes fed without a look, after which one is due: what scrolls off in between is kept in memory."""

_FRAME = 1.0
"""Seconds after which a synchronized update (mode 2026) that does not end is not waited for any more."""

_ECHO = 10.0
"""Seconds in which a drawing program shows what was typed; it may be busy."""

_MAX_LOOKS = 128
"""Looks within one feed; a program that needs more shows an animation."""

_TURN = re.compile(
    rb"\x1b\[\?[0-9;]*(?:1049|1047|47)[0-9;]*[hl]"  # to or from the alternate screen
    rb"|\x1b\[(?:1?;?1)?H\x1b\[0?J|\x1b\[[23]J|\x1bc"  # erasing it all
)
_LIVE_END = re.compile(rb"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)+\r?\n\x1b\[\?25h")  # of rich's live display
_PLACES = re.compile(rb"\x1b\[[0-9;]*[HfJ]")
_CLOSES = re.compile(
    r"\s*(?:[│┃▎▌]\s*)*(?:>\s*){2,3}\Z"
)  # `>>>`, also as a quote in quotes (opencode, pi, qwen)
_REGION = re.compile(rb"\x1b\[([0-9;]*)r")


class ScreenReader:
    """A `relay.readers.line.Reader` over a virtual screen that it feeds."""

    def __init__(self, screen: Screen, echo: Echo, *, marker: bytes = b"@", drawing: Drawing = PLAIN) -> None:
        self._screen = screen
        self._drawing = drawing
        self._echo = echo
        echo.seconds = _ECHO
        self._marker = marker.decode("utf-8", "replace")
        self._hit = re.compile(hit(marker))  # in plain text
        self._coarse = re.compile(re.escape(marker) + rb"|```|~~~")
        self._form = False  # a `<<<` form is open
        self._primary = Page(scrolls_back=False)
        self._alternate = Page(scrolls_back=True)
        self._page = self._primary
        self._carry: list[Row] = []  # rows that scrolled off, of a line that has not wholly
        self._fed = 0.0
        self._looked = 0.0
        self._ticked = 0.0
        self._dirty = False
        self._gap = False
        self._stale = False  # the alternate screen was resized, and the program has not drawn it again
        self._region = False  # a scroll region is set
        self._scrolls = False  # or was, since the last look
        self._feeds = 0  # line feeds since then
        self._again: set[str] = set()  # what was drawn before, in part, in rows above it
        self._unseen = 0  # bytes since then
        if drawing != PLAIN:
            screen.marks = (self._marker, "```", "~~~", ">>>")
        screen.collect()

    def begin(self, unfinished: str, settled: str, now: float) -> None:
        """Take over from the lines reader, which said all but the `unfinished` line, and `settled` of it."""
        self._fed = now
        self._look(now)
        cursor = len(self._carry) + self._screen.cursor[1]
        for entry in self._page.visible:
            if not (entry.first <= cursor <= entry.last and unfinished.removeprefix(settled).strip()):
                entry.spoken = entry.key

    def feed(self, data: bytes, now: float) -> list[Line]:
        said = self.tick(now)
        if not data:
            return said
        self._fed = now
        if (tail := self._skippable(data)) is not None:
            return said + self._skip(data, tail, now)
        for match in _REGION.finditer(data):
            self._region = match[1] != b""
            self._scrolls = True
        at = 0
        for start, turn in self._cuts(data)[:_MAX_LOOKS]:
            self._screen.feed(data[at:start])
            at = start
            said += self._look(now)
            if _LIVE_END.match(data, start) is not None:
                said += self._say(self._torn(), now)
            elif turn:
                said += self._say(self._complete(), now)
                if data[start : start + 3] != b"\x1b[?":
                    self._page.wipe(now)
        self._screen.feed(data[at:])
        if self._stale and _PLACES.search(data) is not None:
            self._stale = False
            self._page.expect_reprint(now)
        self._unseen += len(data)
        self._dirty = True
        return said

    def tick(self, now: float) -> list[Line]:
        self._ticked = now
        if self._screen.synchronized and now - self._fed < _FRAME:
            return []
        said: list[Line] = []
        pause = now - self._fed >= QUIET or now - self._looked >= LOOK_EVERY
        if self._dirty and (pause or self._unseen >= _BACKLOG):
            said += self._look(now)
        return said + self._say(self._settled(now), now)

    def typed(self, data: bytes, now: float, *, echo: bool) -> None:
        self._echo.typed(data, now, echo=echo)

    def waiting(self, now: float) -> list[Line]:
        self._form = False
        return self._look(now) + self._say(self._page.visible, now)

    def gap(self, now: float) -> list[Line]:
        """Output was lost here: what the screen shows from now on need not continue what it showed."""
        said = self._look(now)
        self._gap = True
        return said

    @property
    def settling(self) -> bool:
        """Whether `tick` may still say something though nothing is fed."""
        if self._dirty:
            return True
        return self._ticked - self._fed <= PATIENCE and any(entry.unsaid for entry in self._page.visible)

    def resize(self, columns: int, rows: int, now: float) -> list[Line]:
        said = self._look(now)
        self._screen.resize(columns, rows)
        self._fed = now
        self._page.expect_reprint(now)
        # What stands on the alternate screen is cut off, not wrapped anew, until the program draws it again.
        self._stale = self._page is self._alternate
        return said + self._look(now)

    def close(self, now: float) -> list[Line]:
        return self.waiting(now)

    def _cuts(self, data: bytes) -> list[tuple[int, bool]]:
        """Where in `data` the screen must be looked at: before it is turned over (True), and where lines may
        scroll away without scrolling off."""
        turns = [(match.start(), True) for match in _TURN.finditer(data)]
        turns += [(match.start(), False) for match in _LIVE_END.finditer(data)]
        if (self._page is self._primary and not self._scrolls) or self._coarse.search(data) is None:
            return turns
        step = max(self._screen.height // 2, 1)
        scrolls: list[tuple[int, bool]] = []
        at = -1
        while (at := data.find(b"\n", at + 1)) >= 0:
            self._feeds += 1
            if self._feeds >= step:
                self._feeds = 0
                scrolls.append((at + 1, False))
        return sorted(turns + scrolls)

    def _skippable(self, data: bytes) -> bytes | None:
        """In a flood of plain text with nothing to find in it, the part that must be fed to the screen."""
        if len(data) < FLOOD or self._page is self._alternate or self._scrolls or self._form:
            return None
        if self._hit.search(data) is not None:
            return None
        tail = visible_part(data, self._screen)
        return tail if len(tail) < len(data) // 2 else None

    def _skip(self, data: bytes, tail: bytes, now: float) -> list[Line]:
        """Feed only the end of a line that was begun, and the `tail`; the rest has nothing to find in it."""
        self._screen.feed(data[: data.index(b"\n") + 1])
        said = self._look(now) + self._say(self._page.visible, now)
        self._screen.feed(tail)
        self._screen.drain()
        self._carry.clear()
        self._page = self._primary = Page(scrolls_back=False)
        self._dirty = self._gap = True
        return said

    def _look(self, now: float) -> list[Line]:
        """Bring the page up to date; say what has scrolled away."""
        said: list[Line] = []
        if self._stale and self._screen.alternate:
            return said
        screen = self._screen
        self._dirty = False
        self._looked = now
        self._unseen = self._feeds = 0
        if screen.alternate != (self._page is self._alternate):
            if self._page is self._alternate:  # it is left: what stands there will not change any more
                said += self._say(self._page.visible, now)
                self._page = self._primary
            else:
                self._page = self._alternate
                self._page.wipe(now)
            self._page.expect_reprint(now)
        drained = screen.drain()
        self._gap = self._gap or drained.lost
        if self._page is self._alternate:
            columns = self._drawing.text_columns(screen)
            rows = [clip(row, columns) for row in screen.rows()]
            lines = logical_lines(rows, columns, self._marker, self._drawing, FULL_SCREEN_MARGIN)
            return said + self._say(self._alternate.look(lines, self._fed, scrolls=True), now)
        rows = self._carry + drained.rows + screen.rows()
        away = len(self._carry) + len(drained.rows)
        lines = logical_lines(rows, screen.columns, self._marker, self._drawing)
        self._again = {line.key for line in lines if line.again}
        gone = self._primary.look(lines, self._fed, scrolls=self._scrolls)
        self._scrolls = self._region
        off, taken = self._primary.scroll_off(away)
        self._carry = rows[taken:away]
        return said + self._say(gone + off, now)

    def _complete(self) -> list[Entry]:
        """The lines above a visible cursor that stands at the left with nothing beside or below it: a program
        prints there, line by line. (A cursor after some text may be that of an input box.)"""
        screen = self._screen
        x, y = screen.cursor
        if self._page is self._alternate or x or not screen.cursor_visible:
            return []
        entries = self._primary.visible
        if entries and entries[-1].last >= len(self._carry) + y:
            return []
        return entries

    def _torn(self) -> list[Entry]:
        """The lines of a text that a live display, which ends, is about to erase instead of its own rows.

        Where rich did not erase its rows before it printed the text (`Logical.again`), it takes the last rows
        of the text for its own afterwards, though it has drawn none since: its cursor is in an empty row.
        """
        screen = self._screen
        entries = self._primary.visible
        torn = any(entry.unsaid and entry.key in self._again for entry in entries)
        return entries if torn and not screen.rows()[screen.cursor[1]].text else []

    def _settled(self, now: float) -> list[Entry]:
        """The lines that have stood unchanged for long enough."""
        entries = self._page.visible
        if not any(entry.unsaid for entry in entries):
            return []
        printing = set(map(id, self._complete()))
        cursor = self._screen.cursor[1] + (len(self._carry) if self._page is self._primary else 0)
        due: list[Entry] = []
        newest = 0.0
        for entry in reversed(entries):
            if entry.unsaid:
                if self._screen.cursor_visible and entry.first <= cursor <= entry.last:
                    wait = AT_CURSOR
                elif id(entry) in printing:
                    wait = DONE
                else:
                    wait = FOLLOWED if newest > entry.changed else LAST
                if now - entry.changed >= wait:
                    due.append(entry)
            newest = max(newest, entry.born)
        return self._in_order(entries, set(map(id, due)), now)

    def _in_order(self, entries: list[Entry], due: set[int], now: float) -> list[Entry]:
        """Those of `entries` that are `due` and have nothing above them that is about to be said."""
        settled: list[Entry] = []
        held = False
        for entry in entries:
            if id(entry) in due:
                if not held or now - entry.changed >= PATIENCE:
                    settled.append(entry)
            elif entry.spoken is None:
                held = True
        return settled

    def _say(self, entries: list[Entry], now: float) -> list[Line]:
        said: list[Line] = []
        above = ""
        for entry in entries:
            if entry.unsaid and not self._echo.drafted(entry.text):
                entry.spoken = entry.key
                if not self._is_echo(above, entry.text, now) and not entry.echo:
                    said += [Line("", now)] * min(entry.blanks, 2)
                    text = ">>>" if self._form and _CLOSES.match(entry.text) else entry.text
                    said.append(Line(text, now, self._gap, entry.code))
                    if text.endswith("<<<") and self._marker in text:
                        self._form = True
                    elif text.strip() == ">>>":
                        self._form = False
                    self._gap = False
            above = entry.text
        return said

    def _is_echo(self, above: str, text: str, now: float) -> bool:
        if not self._echo.expecting:
            return False
        return self._echo.continues(above, text) or self._echo.heard(text, now)
